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

/// Bytes that a peer may send from then on until it is known who it is: twice what a session takes of it inside TLS. Records
/// of TLS without anything in them, which no session sees, are among them.
const STRANGER: usize = 128 * 1024;

/// A socket, and what was read of it beyond what was asked for.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    socket: Socket,
    /// Has memory only while there is something to read, so that connections which wait cost none.
    ahead: BytesMut,
    /// Bytes that may be read before the handshake is over, or then before the peer is known.
    left: usize,
    is_shaking_hands: bool,
}

impl ReadAhead {
    /// A socket whose peer may send as much as it likes.
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            ahead: BytesMut::new(),
            left: usize::MAX,
            is_shaking_hands: true,
        }
    }

    /// A socket over which anybody may shake hands.
    pub(super) fn of_stranger(socket: Socket) -> Self {
        Self {
            left: HANDSHAKE,
            ..Self::new(socket)
        }
    }

    /// The handshake is over: the peer may say who it is.
    pub(super) fn end_handshake(&mut self) {
        self.left = STRANGER;
        self.is_shaking_hands = false;
    }

    /// The peer is known, or is not asked who it is: it may send as much as it likes.
    pub(crate) fn let_in(&mut self) {
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
        let Self {
            socket,
            ahead,
            left,
            is_shaking_hands,
        } = self.get_mut();
        if *left == 0 {
            let what = if *is_shaking_hands {
                format!("the peer sent more than {} KiB in its handshake", HANDSHAKE / 1024)
            } else {
                let most = STRANGER / 1024;
                format!("the peer sent more than {most} KiB before it was known who it is")
            };
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::descriptors::Descriptors;

    /// Reads until nothing more may be read; how much that was, and why.
    async fn read_all(socket: &mut ReadAhead) -> (usize, String) {
        let (mut read, mut buffer) = (0, vec![0; 4_096]);
        loop {
            match socket.read(&mut buffer).await {
                Ok(0) => return (read, String::new()),
                Ok(count) => read += count,
                Err(error) => return (read, error.to_string()),
            }
        }
    }

    #[tokio::test]
    async fn a_peer_may_send_little_before_it_is_known_and_then_what_it_likes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("bound"))
            .await
            .expect("a peer");
        let (accepted, _) = listener.accept().await.expect("the peer");
        let mut socket = ReadAhead::of_stranger(Socket::new(accepted, &Descriptors::new(4)));
        let sending = tokio::spawn(async move {
            let sent = peer.write_all(&vec![7; 2 * STRANGER]).await;
            // Its end says that this was all.
            drop(peer);
            sent
        });
        let (read, why) = read_all(&mut socket).await;
        assert_eq!(read, HANDSHAKE);
        assert!(why.contains("16 KiB in its handshake"), "{why}");
        socket.end_handshake();
        let (read, why) = read_all(&mut socket).await;
        assert_eq!(read, STRANGER);
        assert!(why.contains("128 KiB before it was known"), "{why}");
        socket.let_in();
        assert_eq!(read_all(&mut socket).await, (STRANGER - HANDSHAKE, String::new()));
        sending.await.expect("no panic").expect("all is sent");
    }
}
