//! A socket read in large steps, for TLS, which asks for four KiB at a time.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::socket::Socket;

/// Bytes asked of the socket at a time: four of TLS's records.
const STEP: usize = 64 * 1024;

/// A socket, and what was read of it beyond what was asked for.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    socket: Socket,
    /// Has memory only while there is something to read, so that connections which wait cost none.
    ahead: BytesMut,
}

impl ReadAhead {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            ahead: BytesMut::new(),
        }
    }

    /// Takes the socket over into the runtime that this is called in.
    pub(crate) fn rehome_in_place(&mut self) -> io::Result<()> {
        self.socket.rehome_in_place()
    }

    fn socket(self: Pin<&mut Self>) -> Pin<&mut Socket> {
        Pin::new(&mut self.get_mut().socket)
    }
}

impl AsyncRead for ReadAhead {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { socket, ahead } = self.get_mut();
        if ahead.is_empty() {
            ahead.reserve(STEP);
            let read = pin!(socket.read_buf(ahead)).poll(cx);
            if !matches!(read, Poll::Ready(Ok(1..))) {
                *ahead = BytesMut::new();
            }
            ready!(read)?;
        }
        let count = ahead.len().min(buf.remaining());
        buf.put_slice(ahead.get(..count).unwrap_or_default());
        ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAhead {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_shutdown(cx)
    }
}
