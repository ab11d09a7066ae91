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

/// Bytes that a peer may send before its handshake is over: several times a greeting and a chain of certificates. What it
/// sends is kept until a message is complete, and a message may claim to be long.
const HANDSHAKE: usize = 16 * 1024;

/// A socket, and what was read of it beyond what was asked for.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    socket: Socket,
    /// Has memory only while there is something to read, so that connections which wait cost none.
    ahead: BytesMut,
    /// Bytes that may be read before the handshake is over.
    left: usize,
}

impl ReadAhead {
    /// A socket whose peer may send as much as it likes.
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            ahead: BytesMut::new(),
            left: usize::MAX,
        }
    }

    /// A socket over which anybody may shake hands.
    pub(super) fn of_stranger(socket: Socket) -> Self {
        Self {
            left: HANDSHAKE,
            ..Self::new(socket)
        }
    }

    /// The handshake is over: the peer may send as much as it likes.
    pub(super) fn end_handshake(&mut self) {
        self.left = usize::MAX;
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
        let Self { socket, ahead, left } = self.get_mut();
        if *left == 0 {
            let what = format!("the peer sent more than {} KiB in its handshake", HANDSHAKE / 1024);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        if ahead.is_empty() {
            ahead.reserve(STEP);
            let read = pin!(socket.read_buf(ahead)).poll(cx);
            if !matches!(read, Poll::Ready(Ok(1..))) {
                *ahead = BytesMut::new();
            }
            ready!(read)?;
        }
        let count = ahead.len().min(buf.remaining()).min(*left);
        buf.put_slice(ahead.get(..count).unwrap_or_default());
        ahead.advance(count);
        if *left != usize::MAX {
            *left -= count;
        }
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
