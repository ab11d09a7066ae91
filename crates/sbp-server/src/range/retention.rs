//! Retention: which records are too old, or too many, to be kept.

use std::time::Duration;

use sbp_log::{ReadError, WriterKey};
use sbp_types::{Offset, RangeKey, StreamId, TimestampMs};
use smallvec::SmallVec;

use super::command::Command;
use super::server::RangeServer;
use super::stream::{HostedStream, StreamFacts};

/// A stream with a retention setting, as it was when the lock was held.
struct RetainedStream {
    stream: StreamId,
    start: Offset,
    period: Option<Duration>,
    bytes: Option<u64>,
    /// The kept part of each of its ranges, in order.
    ranges: SmallVec<[KeptRange; 2]>,
}

#[derive(Clone, Copy)]
struct KeptRange {
    key: RangeKey,
    from: Offset,
    /// One past its last synced record.
    end: Offset,
}

impl RangeServer {
    /// The trims that retention asks for. Also forgets writers and ranges that earlier trims and deletions left over.
    /// May read from the disk.
    pub(crate) fn retention_due(&self, now: TimestampMs) -> Vec<(StreamId, Offset)> {
        self.forget_writers();
        self.give_up_again();
        let kept: Vec<RetainedStream> = {
            let me = self.log.server_id();
            let ranges = self.hub.ranges.lock();
            // Of several servers with a range the primary decides, by its clock.
            let decided_here = |stream: &HostedStream| stream.last().is_none_or(|range| range.set.is_primary(me));
            ranges
                .table
                .streams()
                .filter(|(_, stream)| decided_here(stream))
                .filter_map(|(id, stream)| RetainedStream::of(id, stream))
                .collect()
        };
        let due = kept.iter().filter_map(|kept| match self.due(kept, now) {
            Ok(start) => (start > kept.start).then_some((kept.stream, start)),
            Err(error) => {
                tracing::warn!(stream = %kept.stream, %error, "retention has to wait");
                None
            }
        });
        due.collect()
    }

    /// The offset at which the stream should begin.
    fn due(&self, kept: &RetainedStream, now: TimestampMs) -> Result<Offset, ReadError> {
        let by_age = match kept.period {
            Some(period) => {
                let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
                self.young_enough(kept, TimestampMs(now.0.saturating_sub(period)))?
            }
            None => kept.start,
        };
        let by_size = kept.bytes.map_or(kept.start, |bytes| self.few_enough(kept, bytes));
        Ok(by_age.max(by_size))
    }

    /// The first record that was appended at or after `cutoff`; the stream's end if there is none.
    fn young_enough(&self, kept: &RetainedStream, cutoff: TimestampMs) -> Result<Offset, ReadError> {
        let mut start = kept.start;
        for range in &kept.ranges {
            let first = self.log.offset_appended_since(range.key, cutoff)?;
            start = start.max(first.clamp(range.from, range.end));
            if start < range.end {
                break;
            }
        }
        Ok(start)
    }

    /// The start of the last batch from which on at least `bytes` bytes are kept.
    fn few_enough(&self, kept: &RetainedStream, mut bytes: u64) -> Offset {
        for range in kept.ranges.iter().rev() {
            if bytes == 0 {
                return range.end;
            }
            let stored = self.log.stored_bytes(range.key);
            if stored >= bytes {
                let start = self.log.offset_keeping_bytes(range.key, bytes);
                return start.clamp(range.from, range.end);
            }
            bytes -= stored;
        }
        kept.start
    }

    /// Forgets the writers that the log has forgotten because their records are trimmed and they have long sent
    /// nothing.
    fn forget_writers(&self) {
        let streams: Vec<StreamId> = {
            let ranges = self.hub.ranges.lock();
            ranges.table.streams().map(|(stream, _)| stream).collect()
        };
        for stream in streams {
            // The lock is taken anew for each stream, because appends wait for it.
            let mut ranges = self.hub.ranges.lock();
            for writer in ranges.table.trimmed_writers(stream) {
                if self.log.writer(WriterKey { stream, writer }).is_none() {
                    ranges.table.apply(Command::Forget { stream, writer });
                }
            }
        }
    }

    /// Releases deleted streams in the log once more: their last appends may have reached it after the deletion.
    fn give_up_again(&self) {
        let given_up = std::mem::take(&mut self.hub.ranges.lock().given_up);
        let mut left = Vec::new();
        for key in given_up {
            // `pending_bytes` must be read first: what was pending then is in a segment when `holds` looks.
            let pending = self.log.pending_bytes() > 0;
            let held = self.log.holds(key);
            if held {
                self.log.release_stream(key.stream);
            }
            if held || pending {
                left.push(key);
            }
        }
        self.hub.ranges.lock().given_up.extend(left);
    }
}

impl RetainedStream {
    /// A stream that retention has to look at; `None` if all its records are kept.
    fn of(stream: StreamId, hosted: &HostedStream) -> Option<Self> {
        let StreamFacts {
            retention_period_ms,
            retention_bytes,
            ..
        } = hosted.facts;
        let period = u64::try_from(retention_period_ms).ok().filter(|period| *period > 0);
        let bytes = retention_bytes.and_then(|bytes| u64::try_from(bytes).ok());
        if period.is_none() && bytes.is_none() {
            return None;
        }
        let ranges = hosted.ranges.iter().map(|range| KeptRange {
            key: range.key(stream),
            from: range.start.max(hosted.start),
            end: range.confirmed.max(hosted.start),
        });
        Some(Self {
            stream,
            start: hosted.start,
            period: period.map(Duration::from_millis),
            bytes,
            ranges: ranges.collect(),
        })
    }
}
