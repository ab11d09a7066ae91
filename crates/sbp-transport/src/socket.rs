//! A connection's socket, remembered for as long as it is open.

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::descriptors::{Descriptors, Registered};

/// A connection's socket that is in a table of descriptors for as long as it is open.
#[derive(Debug)]
pub struct Socket {
    // Dropped first: once the socket is closed its number may belong to another file.
    _registered: Registered,
    stream: TcpStream,
    /// The kernel took no more bytes at the last try, because the peer takes none.
    stuck: bool,
}

impl Socket {
    /// Takes a socket and remembers its descriptor in the table.
    #[must_use]
    pub fn new(stream: TcpStream, descriptors: &Arc<Descriptors>) -> Self {
        Self {
            _registered: descriptors.register(stream.as_raw_fd()),
            stream,
            stuck: false,
        }
    }

    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        self.stuck = written.is_pending();
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The kernel would keep what it has for a peer that takes nothing, for as long as that likes.
        if self.stuck {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
