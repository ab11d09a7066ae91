//! A shared range while it is sealed: its fence, this server's vote, and what is written back to others.

use sbp_messages::ErrorCode;
use sbp_replication::{Replica, Vote};
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId};
use smallvec::SmallVec;

use crate::range::copies::{Fencing, SealWork, WritingBack};
use crate::range::job::LogContext;
use crate::range::log_errors;
use crate::range::not_taken::not_taken;
use crate::range::notifications::Notifications;
use crate::range::ranges::Ranges;
use crate::range::server::RangeServer;
use crate::refusal::{Done, Refusal};

/// What a fenced server says of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FencedEnd {
    pub(crate) vote: Vote,
    /// What it knows to be confirmed.
    pub(crate) confirmed: Position,
    /// From and to of records that it cannot read, at most [`MOST_SPANS`](Self::MOST_SPANS) of them.
    pub(crate) damaged: Vec<(Offset, Offset)>,
}

impl FencedEnd {
    pub(crate) const MOST_SPANS: usize = 1_024;

    fn of(replica: &Replica) -> Option<Self> {
        let offsets = replica
            .damaged_spans()
            .iter()
            .map(|(from, to)| (from.offset, to.offset));
        Some(Self {
            vote: replica.vote()?,
            confirmed: replica.confirmed(),
            damaged: offsets.filter(|(from, to)| from < to).take(Self::MOST_SPANS).collect(),
        })
    }
}

impl RangeServer {
    /// Has this copy of a shared range take nothing more, from clients or from its primary. `done` gets the place where it
    /// ended, once the log has ended everything before; the caller makes that durable, and then calls
    /// [`fence_is_durable`](Self::fence_is_durable).
    pub(crate) fn fence(&self, key: RangeKey, epoch: Option<Epoch>, done: Done<Position>) {
        let mut notifications = Notifications::default();
        {
            let mut ranges = self.hub.ranges.lock();
            match ranges.begin_fence(key, epoch) {
                Err(refusal) => ranges.seal_work.fenced.push((done, Err(refusal))),
                Ok(()) => {
                    let is_drained = match self.log.barrier(LogContext::Fenced(key)) {
                        Ok(()) => false,
                        // Nothing that is queued will ever be stored.
                        Err(error) if log_errors::is_final(&error) => {
                            ranges.change_copy(key, Replica::dropped);
                            true
                        }
                        Err(_) => {
                            ranges.seal_work.fenced.push((done, Err(Refusal::shutting_down())));
                            return self.hub.finish(ranges);
                        }
                    };
                    let fencing = Fencing { key, is_drained, done };
                    ranges.seal_work.fencing.push(fencing);
                    ranges.copy_moved(key, &mut notifications);
                }
            }
            self.hub.finish(ranges);
        }
        notifications.send();
    }

    /// The place that a fence gave is on the disk. Returns this server's vote.
    ///
    /// # Errors
    ///
    /// Something is being written back to this copy: its end is not certain yet, and the range has to be fenced again.
    pub(crate) fn fence_is_durable(&self, key: RangeKey, taken: Position) -> Result<FencedEnd, Refusal> {
        let mut ranges = self.hub.ranges.lock();
        let voted = ranges.change_copy(key, |replica| {
            replica.fence_is_durable(taken);
            FencedEnd::of(replica)
        });
        match voted {
            Some(Some(end)) => Ok(end),
            Some(None) => {
                let message = format!("range {key} is being written back to here; seal it again");
                Err(Refusal::new(ErrorCode::RS_INTERNAL_SERVER_ERROR, message))
            }
            None => Err(Refusal::range_not_here(key)),
        }
    }

    /// In how many parts the state of the writers came that begins a range; 0 if none of them is here.
    pub(crate) fn writers_parts(&self, key: RangeKey) -> u32 {
        let ranges = self.hub.ranges.lock();
        let writers_end = ranges.table.replica(key).and_then(Replica::writers_end);
        writers_end.map_or(0, |end| end.marks)
    }

    /// Sends a range that is being sealed, or is sealed, up to `end` to servers that lack some of it. `done` is called when
    /// all of them have synced it.
    pub(crate) fn write_back(&self, key: RangeKey, to: &[ServerId], end: Position, done: Done<()>) {
        let mut notifications = Notifications::default();
        let mut ranges = self.hub.ranges.lock();
        self.share_sealed(&mut ranges, key, to);
        match ranges.begin_write_back(key, to, end) {
            Err(refusal) => ranges.seal_work.written_back.push((done, Err(refusal))),
            Ok(()) => {
                let to = SmallVec::from_slice(to);
                ranges.seal_work.replace_order(key, &to);
                ranges.seal_work.writing_back.push(WritingBack { key, to, end, done });
                ranges.copy_moved(key, &mut notifications);
            }
        }
        self.hub.finish(ranges);
        notifications.send();
    }
}

/// Whether the range was sealed with another end than this one, up to which it was to be written back.
fn ends_elsewhere(replica: &Replica, end: Position) -> bool {
    replica.end().is_some_and(|known| known != end)
}

impl Ranges {
    fn begin_fence(&mut self, key: RangeKey, epoch: Option<Epoch>) -> Result<(), Refusal> {
        let range = self.table.range(key).ok_or_else(|| Refusal::range_not_here(key))?;
        Refusal::check_epoch(key, range.epoch, epoch)?;
        let is_disputed = range.replica.as_ref().is_some_and(|replica| replica.end_is_damaged());
        if range.phase == crate::range::stream::Phase::EndDamaged || is_disputed {
            return Err(Refusal::new(
                ErrorCode::RS_DATA_CORRUPTED,
                format!("the end of range {key} is damaged on disk, so this copy has no vote on it"),
            ));
        }
        let fence = |replica: &mut Replica| replica.fence(replica.range().epoch);
        match self.change_copy(key, fence) {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(not_taken(key, why, None)),
            None => Err(Refusal::invalid(format!(
                "range {key} has one copy, which is sealed without a vote"
            ))),
        }
    }

    fn begin_write_back(&mut self, key: RangeKey, to: &[ServerId], end: Position) -> Result<(), Refusal> {
        let replica = self.table.replica(key).ok_or_else(|| Refusal::range_not_here(key))?;
        if !replica.is_fenced() && replica.end().is_none() {
            return Err(Refusal::invalid(format!(
                "range {key} is not being sealed: nothing of it is written back"
            )));
        }
        if replica.synced_end() < end {
            let message = format!(
                "this copy of range {key} ends at {}, before {end}",
                replica.synced_end()
            );
            return Err(Refusal::new(ErrorCode::RANGE_NOT_FOUND, message));
        }
        if ends_elsewhere(replica, end) {
            return Err(Refusal::not_the_end(key, end));
        }
        let begun = self.change_copy(key, |replica| replica.write_back(to.iter().copied(), end));
        // What they have refused before was something else.
        for server in begun.into_iter().flatten() {
            self.outboxes.of(server).may_take(key);
        }
        Ok(())
    }

    /// Everything that a shared range had queued when it was fenced is on the disk.
    pub(in crate::range) fn fence_drained(&mut self, key: RangeKey, notifications: &mut Notifications) {
        for fencing in self.seal_work.fencing.iter_mut().filter(|fencing| fencing.key == key) {
            fencing.is_drained = true;
        }
        self.copy_moved(key, notifications);
    }

    /// Answers the requests about a range whose copy has changed, as far as they can be answered.
    pub(super) fn answer_seals(&mut self, key: RangeKey) {
        let Self { table, seal_work, .. } = self;
        let replica = table.replica(key);
        let place = replica.map(Replica::fenced_at);
        let taken = match place {
            Some(Some(place)) => Some(Ok(place)),
            Some(None) => None,
            None => Some(Err(Refusal::range_not_here(key))),
        };
        if let Some(taken) = taken {
            let ready = |fencing: &mut Fencing| fencing.key == key && (fencing.is_drained || taken.is_err());
            for fencing in seal_work.fencing.extract_if(.., ready) {
                seal_work.fenced.push((fencing.done, taken.clone()));
            }
        }
        let is_over = |order: &mut WritingBack| {
            let has_all = |to: &ServerId| replica.is_none_or(|replica| replica.is_written_back(*to, order.end));
            let ends_elsewhere = || replica.is_some_and(|replica| ends_elsewhere(replica, order.end));
            order.key == key && (order.to.iter().all(has_all) || ends_elsewhere())
        };
        for order in seal_work.writing_back.extract_if(.., is_over) {
            let result = match replica {
                Some(replica) if ends_elsewhere(replica, order.end) => Err(Refusal::not_the_end(key, order.end)),
                Some(_) => Ok(()),
                None => Err(Refusal::range_not_here(key)),
            };
            seal_work.written_back.push((order.done, result));
        }
    }

    /// The answers to give once the lock is released.
    pub(in crate::range) fn take_seal_answers(&mut self) -> Option<SealWork> {
        if !self.seal_work.has_answers() {
            return None;
        }
        Some(SealWork {
            fenced: std::mem::take(&mut self.seal_work.fenced),
            written_back: std::mem::take(&mut self.seal_work.written_back),
            ..SealWork::default()
        })
    }
}
