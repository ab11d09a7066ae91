//! One direction of a connection, between two sockets.

use std::future::pending;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::oneshot;
use tokio::time::{sleep_until, timeout};

use crate::held::HeldDecision;
use crate::outgoing::Outgoing;
use crate::relay::Relay;
use crate::shared::Shared;

/// When this many bytes wait for their time or for a slow receiver, no more are read.
const MOST_WAITING: usize = 32 << 20;
/// The most slices in one vectored write.
const SLICES: usize = 64;
/// The size of one read.
const READ: usize = 64 * 1024;
/// How long the last bytes before a cut may take to be written.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Why a direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The sender has closed its side and everything was passed on; the other direction goes on.
    Finished,
    /// The connection is over.
    Broken,
}

/// The event that a direction reacts to.
enum Turn {
    Decided(HeldDecision),
    Wrote(io::Result<usize>),
    Read(io::Result<usize>),
    Time,
}

/// Passes bytes on until one side ends or a rule cuts.
pub(crate) async fn pump(
    mut reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    mut relay: Relay,
    shared: &Shared,
) -> Ended {
    let mut buffer = BytesMut::new();
    let mut verdict = None;
    let mut ended = None;
    loop {
        let now = Instant::now();
        relay.handle_timeout(now);
        relay.advance(&mut buffer, now, shared);
        if relay.is_cut() {
            let _ = timeout(LAST_BYTES, flush(&mut writer, &mut relay.outgoing)).await;
            return Ended::Broken;
        }
        verdict = relay.take_verdict().or(verdict);
        if let Some(how) = ended
            && verdict.is_none()
        {
            relay.finish(&mut buffer, now);
            let flushed = flush(&mut writer, &mut relay.outgoing).await;
            let _ = writer.shutdown().await;
            return if flushed.is_ok() { how } else { Ended::Broken };
        }
        let reads = ended.is_none() && verdict.is_none() && relay.outgoing.len() < MOST_WAITING;
        let next_due = relay.outgoing.next_due();
        let is_due = next_due.is_some_and(|due| due <= now);
        let wakes_at = earliest(relay.poll_timeout(), next_due.filter(|_| !is_due));
        if reads {
            buffer.reserve(READ);
        }
        let turn = tokio::select! {
            biased;
            decided = decision(&mut verdict) => Turn::Decided(decided),
            written = write_due(&mut writer, &relay.outgoing, now), if is_due => Turn::Wrote(written),
            () = wait_until(wakes_at) => Turn::Time,
            read = reader.read_buf(&mut buffer), if reads => Turn::Read(read),
        };
        match turn {
            Turn::Decided(decided) => {
                verdict = None;
                relay.handle_verdict(decided, Instant::now());
            }
            Turn::Wrote(Ok(count)) if count > 0 => relay.outgoing.advance(count),
            // The receiver has closed the connection.
            Turn::Wrote(_) => return Ended::Broken,
            Turn::Read(Ok(0)) => ended = Some(Ended::Finished),
            Turn::Read(Ok(count)) => shared.counts.lock().count_bytes(relay.direction(), count),
            Turn::Read(Err(_)) => ended = Some(Ended::Broken),
            Turn::Time => {}
        }
    }
}

/// Writes everything that waits, each piece when it is due.
async fn flush(writer: &mut WriteHalf<'_>, outgoing: &mut Outgoing) -> io::Result<()> {
    while let Some(due) = outgoing.next_due() {
        wait_until(Some(due)).await;
        let count = write_due(writer, outgoing, Instant::now()).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        outgoing.advance(count);
    }
    Ok(())
}

/// Writes some of the bytes that are due. If the future is dropped before it completes, nothing was written.
async fn write_due(writer: &mut WriteHalf<'_>, outgoing: &Outgoing, now: Instant) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let count = outgoing.slices(&mut slices, now);
    writer.write_vectored(slices.get(..count).unwrap_or_default()).await
}

/// The hook's decision; if the hook has dropped the frame, it is passed on.
async fn decision(verdict: &mut Option<oneshot::Receiver<HeldDecision>>) -> HeldDecision {
    match verdict {
        Some(receiver) => receiver.await.unwrap_or(HeldDecision::Pass),
        None => pending().await,
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
