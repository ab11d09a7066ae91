//! The batches of one stream, and what became of them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_types::{Offset, StreamId};

use super::{BulkRepeat, BulkStored};
use crate::error::ClientError;
use crate::outcome::Ack;
use crate::submission::{AppendEntry, Body};
use crate::writer::machine::{Action, Content, Machine, Setup, TimeLimit};

/// A batch, kept until it is stored.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Bytes,
    records: u32,
    /// How often it was sent.
    sends: u32,
}

/// What is on its way to one stream, in its order.
#[derive(Debug)]
pub(super) struct StreamQueue {
    pub(super) stream: StreamId,
    pub(super) machine: Machine<Batch>,
    pub(super) stored: BulkStored,
    /// The writer has it among those that may have something to send.
    is_ready: bool,
    /// When the writer will look at its time.
    armed: Option<Instant>,
}

/// The next batch of a stream.
pub(super) enum Taken {
    /// With the machine's token for the attempt, and when the attempt is out of time.
    Batch(AppendEntry, u64, Instant),
    /// The next batch does not fit into the frame that is gathered.
    TooLarge,
    /// There is none, or it may not be sent yet.
    Nothing,
}

/// What the writer has to know of a stream.
pub(super) enum News {
    /// A batch is stored. A repeat was so before this side had sent it.
    Stored { bytes: usize, repeat: Option<BulkRepeat> },
    /// A batch is not stored, as far as is known, and will not be sent again.
    Failed(ClientError),
    /// The placement driver has to be asked where the stream is.
    Unrouted,
}

impl StreamQueue {
    pub(super) fn new(stream: StreamId, setup: Setup) -> Self {
        Self {
            stream,
            machine: Machine::new(setup),
            stored: BulkStored::default(),
            is_ready: false,
            armed: None,
        }
    }

    pub(super) fn push(&mut self, bytes: Bytes, records: u32, time: Duration) {
        let batch = Batch {
            bytes,
            records,
            sends: 0,
        };
        let limit = TimeLimit::AfterFirstSend(time);
        // A machine that takes nothing has failed, and the writer with it.
        drop(self.machine.push(records.into(), limit, batch));
    }

    /// Whether the writer has to add it to those that may have something to send.
    pub(super) fn becomes_ready(&mut self) -> bool {
        !std::mem::replace(&mut self.is_ready, true)
    }

    pub(super) fn can_send(&mut self, now: Instant) -> bool {
        self.machine.peek_send(now).is_some()
    }

    /// The next batch, if its length fits. If there is nothing to be sent, the queue is no longer ready.
    pub(super) fn take(&mut self, now: Instant, fits: impl Fn(usize) -> bool) -> Taken {
        match self.machine.peek_send(now) {
            Some(batch) if !fits(batch.bytes.len()) => return Taken::TooLarge,
            Some(_) | None => {}
        }
        let next = self.machine.poll_send(now);
        let Some((token, deadline, Content::Batch(batch))) = next.map(|next| (next.token, next.deadline, next.content))
        else {
            self.is_ready = false;
            return Taken::Nothing;
        };
        batch.sends = batch.sends.saturating_add(1);
        let body = Body::Shared {
            head: 0..0,
            body: batch.bytes.clone(),
            padding: 0,
        };
        Taken::Batch(AppendEntry::new(self.stream, body, batch.records), token, deadline)
    }

    /// The moment `at` has come. Returns whether that is the one at which the queue was to be looked at.
    pub(super) fn handle_timeout(&mut self, at: Instant, now: Instant) -> bool {
        let is_due = self.armed == Some(at);
        if is_due {
            self.armed = None;
            self.machine.handle_timeout(now);
        }
        is_due
    }

    /// When the writer has to look at its time, if that is earlier than it was.
    pub(super) fn arm(&mut self) -> Option<Instant> {
        let at = self.machine.poll_timeout()?;
        let is_earlier = self.armed.is_none_or(|armed| at < armed);
        is_earlier.then(|| *self.armed.insert(at))
    }

    /// What has happened. To be called until there is nothing.
    pub(super) fn poll_news(&mut self) -> Option<News> {
        loop {
            return Some(match self.machine.poll_action()? {
                Action::Tell(batch, Ok(ack)) => self.note_stored(batch, &ack),
                Action::Tell(_, Err(error)) => {
                    let error = if error.is_indeterminate() {
                        error.in_doubt()
                    } else {
                        error
                    };
                    News::Failed(error.with_stream(self.stream))
                }
                Action::Refresh => News::Unrouted,
                // An attempt has all of its batch's time, so one that was not answered has ended the writer.
                Action::Reconnect => continue,
            });
        }
    }

    fn note_stored(&mut self, batch: Batch, ack: &Ack) -> News {
        let records = i64::from(batch.records);
        self.stored.records += records;
        if let Some(base) = ack.base_offset {
            let last = Offset(base.0.saturating_add(records - 1));
            self.stored.first = Some(self.stored.first.map_or(base, |first| first.min(base)));
            self.stored.last = self.stored.last.max(Some(last));
        }
        let bytes = batch.bytes.len();
        let repeat = (ack.duplicate && batch.sends == 1).then(|| BulkRepeat {
            stream: self.stream,
            base_offset: ack.base_offset,
            records,
            batch: batch.bytes,
        });
        self.stored.repeats += u64::from(repeat.is_some());
        News::Stored { bytes, repeat }
    }
}
