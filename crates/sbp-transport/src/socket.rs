//! A connection's socket, remembered for as long as it is open.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::descriptors::{Descriptors, Registered};

/// How long a connection is quiet before the kernel asks whether the other machine is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(20);
/// How often it then asks, before it gives up after the system's number of times (nine on Linux).
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged, or a full window closed, before the kernel gives up. Without it that
/// takes a quarter of an hour.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// How often it is looked whether more of a connection's first bytes have come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Sets on an accepted socket what [`crate::dial()`] sets on its own: no delay, because writes are batched here, and
/// keep-alive and a limit for unacknowledged bytes, so that a dead machine is noticed whether or not bytes are under way.
///
/// # Errors
/// What the system says.
pub fn accept_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_EVERY),
    )
}

/// A connection's socket that is in a table of descriptors for as long as it is open.
#[derive(Debug)]
pub struct Socket {
    // Dropped first: once the socket is closed its number may belong to another file.
    _registered: Registered,
    /// Always there, but for the moment between two runtimes.
    stream: Option<TcpStream>,
    /// The kernel took no more bytes at the last try, because the peer takes none.
    stuck: bool,
}

impl Socket {
    /// Takes a socket and remembers its descriptor in the table.
    #[must_use]
    pub fn new(stream: TcpStream, descriptors: &Arc<Descriptors>) -> Self {
        Self {
            _registered: descriptors.register(stream.as_raw_fd()),
            stream: Some(stream),
            stuck: false,
        }
    }

    /// Takes the socket over into the runtime that this is called in.
    ///
    /// # Errors
    /// What the system says; the socket is then closed.
    pub fn rehome(mut self) -> io::Result<Self> {
        self.rehome_in_place()?;
        Ok(self)
    }

    /// As [`Self::rehome`], for a socket that something else is built upon.
    pub(crate) fn rehome_in_place(&mut self) -> io::Result<()> {
        let stream = self.stream.take().ok_or_else(gone)?.into_std()?;
        self.stream = Some(TcpStream::from_std(stream)?);
        Ok(())
    }

    /// Whether the first bytes that come are these, of which there are a few. They are there to be read afterwards.
    pub(crate) async fn begins_with(&self, prefix: &[u8]) -> io::Result<bool> {
        let stream = self.stream.as_ref().ok_or_else(gone)?;
        let mut first = vec![0; prefix.len()];
        loop {
            let count = stream.peek(&mut first).await?;
            let is_begun = count > 0
                && prefix
                    .iter()
                    .zip(&first)
                    .take(count)
                    .all(|(wanted, came)| wanted == came);
            if !is_begun || count == prefix.len() {
                return Ok(is_begun);
            }
            // The system tells of bytes that are there, not of more of them.
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The address that the peer has connected to.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.as_ref().ok_or_else(gone)?.local_addr()
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(gone)
    }

    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        self.stuck = written.is_pending();
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The kernel would keep what it has for a peer that takes nothing, for as long as that likes.
        if let (true, Some(stream)) = (self.stuck, &self.stream) {
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream()?.poll_write(cx, buf);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream()?.poll_write_vectored(cx, bufs);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}
