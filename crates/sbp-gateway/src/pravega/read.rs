//! Bytes that clients read, and what segments are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_client::ClientError;
use sbp_messages::ErrorCode;
use sbp_pravega::{MAX_READ, MIN_READ, Reply, SegmentInfo};
use sbp_types::{Offset, StreamId};
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::Shared;
use super::ahead::Ahead;
use super::catalog::{Held, Kind};
use super::failed::{Failed, no_such};
use super::pacing::{Turn, Turns};
use super::segments::{Advance, Found};
use crate::records::positions;

/// How long a read waits at the end of a segment.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// How often one that waits looks whether the segment was sealed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a read begins anew that meets what was just trimmed.
const ATTEMPTS: usize = 5;

impl Shared {
    /// Bytes from an offset on: at once if there are any, else when there are, or the time is over. And what is worth to be fetched
    /// behind the reply.
    pub(super) async fn read(
        &self,
        segment: String,
        offset: i64,
        length: i32,
        ahead: &Arc<Ahead>,
        mut turns: Turns,
    ) -> (Result<Reply, Failed>, Turn, Option<Advance>) {
        let most = usize::try_from(length).unwrap_or(0).clamp(MIN_READ, MAX_READ);
        let deadline = Instant::now() + LONGEST_WAIT;
        let woken = Arc::new(Notify::new());
        loop {
            let turn = turns.next().await;
            let next = match self.read_now(&segment, offset, most, ahead).await {
                Ok(Reading::Over(reply, advance)) => return (Ok(reply), turn, advance),
                Ok(Reading::Waits { stream, next }) => {
                    self.watch.wake(&woken, stream, next);
                    // Others read meanwhile.
                    drop(turn);
                    self.waits(&woken, &segment, deadline).await
                }
                Err(failed) => return (Err(failed), turn, None),
            };
            match next {
                Ok(true) => {}
                Ok(false) => {
                    let reply = bytes(segment, offset, (true, false), Bytes::new());
                    return (Ok(reply), None, None);
                }
                Err(failed) => return (Err(failed), None, None),
            }
        }
    }

    async fn read_now(&self, segment: &str, offset: i64, most: usize, ahead: &Arc<Ahead>) -> Result<Reading, Failed> {
        let segment = segment.to_owned();
        // What it says of the seal holds for what is read behind it.
        let Some(held) = self.bytes_of(&segment).await? else {
            return Ok(Reading::over(no_such(segment, Some(offset))));
        };
        Ok(match self.read_at(&held, offset, most, ahead).await? {
            Found::Bytes { data, is_tail, next } => Reading::Over(bytes(segment, offset, (is_tail, false), data), next),
            Found::Gone { start } => Reading::over(Reply::IsTruncated {
                segment,
                start,
                offset: Some(offset),
            }),
            Found::Nothing(end) if !held.is_sealed() => Reading::Waits {
                stream: held.id(),
                next: end.next,
            },
            Found::Nothing(end) if end.length == offset => {
                Reading::over(bytes(segment, offset, (false, true), Bytes::new()))
            }
            Found::Nothing(_) => return Err(Failed::Nonsense("a read behind the end of a sealed segment")),
        })
    }

    /// Waits until there may be something new of a segment. False: the time is over.
    async fn waits(&self, woken: &Notify, segment: &str, deadline: Instant) -> Result<bool, Failed> {
        loop {
            let look = Instant::now() + LOOK_EVERY;
            if timeout_at(look.min(deadline).into(), woken.notified()).await.is_ok() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            match self.catalog.segment(segment).await? {
                Some(held) if !held.is_sealed() => {}
                _ => return Ok(true),
            }
        }
    }

    async fn read_at(&self, held: &Held, offset: i64, most: usize, ahead: &Arc<Ahead>) -> Result<Found, Failed> {
        let start = held.start();
        if offset < start {
            return Ok(Found::Gone { start });
        }
        again(|| self.segments.read(ahead, held.id(), offset, most)).await
    }

    /// What a segment is.
    pub(super) async fn info(&self, segment: String) -> Result<Reply, Failed> {
        let Some(held) = self.catalog.segment_now(&segment).await? else {
            return Ok(Reply::Info(SegmentInfo {
                segment,
                exists: false,
                is_sealed: false,
                is_deleted: false,
                modified_ms: 0,
                length: 0,
                start: Some(0),
            }));
        };
        let (modified_us, length, start) = match held.kind {
            Kind::Bytes => again(|| self.bounds(held.id())).await?,
            Kind::Table => {
                let bounds = positions(&self.client, held.id()).await?;
                (None, bounds.latest.0, bounds.earliest.0)
            }
        };
        Ok(Reply::Info(SegmentInfo {
            segment,
            exists: true,
            is_sealed: held.is_sealed(),
            is_deleted: false,
            modified_ms: modified_us.map_or(0, |time: i64| time.div_euclid(1_000)),
            length,
            start: Some(start.max(held.start()).min(length)),
        }))
    }

    /// When a segment was changed, its length, and where what is kept of it begins.
    async fn bounds(&self, stream: StreamId) -> Result<(Option<i64>, i64, i64), ClientError> {
        let tail = self.segments.end(stream, None).await?;
        let start = self.segments.start(tail.held).await?;
        Ok((tail.modified_us, tail.end.length, start))
    }

    /// Removes what is before an offset.
    pub(super) async fn truncate(&self, segment: String, offset: i64) -> Result<Reply, Failed> {
        Ok(match self.truncate_at(&segment, offset).await? {
            true => Reply::Truncated(segment),
            false => no_such(segment, Some(offset)),
        })
    }

    /// The same; whether there is such a segment.
    pub(super) async fn truncate_at(&self, segment: &str, offset: i64) -> Result<bool, Failed> {
        let Some(held) = self.bytes_of(segment).await? else {
            return Ok(false);
        };
        let tail = again(|| self.segments.end(held.id(), None)).await?;
        if offset < 0 || offset > tail.end.length {
            return Err(Failed::Told(format!(
                "the segment ends at {}: it cannot be truncated at {offset}",
                tail.end.length
            )));
        }
        let keep = match again(|| self.segments.record_at(tail.held, offset)).await? {
            Some(record) => record,
            // At its end, the last batch is kept: it says where that is.
            None => match tail.last.filter(|place| place.end() <= offset) {
                Some(place) => place.base,
                None => tail.held.earliest,
            },
        };
        Ok(self.catalog.truncate(segment, offset, keep).await?)
    }

    /// A segment for bytes.
    pub(super) async fn bytes_of(&self, segment: &str) -> Result<Option<Held>, Failed> {
        let held = self.catalog.segment(segment).await?;
        Ok(held.filter(|held| held.kind == Kind::Bytes))
    }
}

/// What a read has come to for now.
#[derive(Debug)]
enum Reading {
    /// And what is worth to be fetched then.
    Over(Reply, Option<Advance>),
    /// There is nothing yet: the stream has to get a record at this offset.
    Waits { stream: StreamId, next: Offset },
}

impl Reading {
    fn over(reply: Reply) -> Self {
        Self::Over(reply, None)
    }
}

/// Bytes of a segment: whether they are its tail, and whether its end.
fn bytes(segment: String, offset: i64, (is_tail, is_end): (bool, bool), data: Bytes) -> Reply {
    Reply::Read {
        segment,
        offset,
        is_tail,
        is_end,
        data,
    }
}

/// Reads, and again if what was to be read was trimmed meanwhile.
async fn again<T, F>(read: impl Fn() -> F) -> Result<T, Failed>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut attempts = 0;
    loop {
        attempts += 1;
        match read().await {
            Err(error) if error.code() == ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS && attempts < ATTEMPTS => {}
            outcome => return Ok(outcome?),
        }
    }
}
