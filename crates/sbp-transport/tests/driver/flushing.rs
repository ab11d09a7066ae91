//! A transport that keeps what it is given until it is flushed, as TLS does where the socket takes no more.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_session::{Session, SessionConfig};
use sbp_transport::{drive, mailbox};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;

use crate::apps::{Caller, Echo, Ended, call};

/// Keeps all it is given.
struct Keeping {
    inner: DuplexStream,
    kept: Vec<u8>,
}

impl AsyncRead for Keeping {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Keeping {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.kept.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { inner, kept } = &mut *self;
        while !kept.is_empty() {
            let count = ready!(Pin::new(&mut *inner).poll_write(cx, kept))?;
            kept.drain(..count);
        }
        Pin::new(inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn what_is_written_is_flushed_also_where_that_takes_turns() {
    // Less than a frame fits in the pipe, so that a flush has to wait for the reader.
    let (near, far) = duplex(100);
    let keeping = |inner| Keeping {
        inner,
        kept: Vec::new(),
    };
    let ((client, client_inbox), (_server, server_inbox)) = (mailbox(), mailbox());
    let now = Instant::now();
    let session = Session::new(SessionConfig::client(), now);
    tokio::spawn(drive(keeping(near), session, Caller::default(), client_inbox));
    let session = Session::new(SessionConfig::server(), now);
    tokio::spawn(drive(keeping(far), session, Echo::default(), server_inbox));
    let payload = Bytes::from(vec![7; 10_000]);
    let (call, reply) = call(payload.clone());
    assert!(client.post(call).is_ok());
    let answer = timeout(Duration::from_secs(10), reply).await;
    assert_eq!(answer.expect("an answer"), Ok(Ended::Answered(payload)));
}
