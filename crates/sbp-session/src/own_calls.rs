//! The requests that this side has sent.

use std::time::Instant;

use sbp_frame::{CallId, OpCode};

use crate::id_table::IdTable;

/// An own request, from the write queue to the end of its answer.
#[derive(Debug)]
pub(crate) struct OwnCall {
    pub(crate) user: u64,
    pub(crate) opcode: OpCode,
    pub(crate) deadline: Option<Instant>,
    pub(crate) queued_at: Instant,
    /// Where its frame starts among all bytes ever queued, which tells whether any byte of it was written.
    pub(crate) position: u64,
    /// Payload bytes for which the caller has set memory aside and that have not arrived yet.
    pub(crate) charge: u32,
    /// Frames and bytes that its answer may still have.
    pub(crate) left: AnswerLeft,
    /// Whether the call was cancelled or has failed, so that no events come for it. It is kept until its answer ends,
    /// so that the answer is recognised.
    pub(crate) orphan: bool,
}

/// How many more frames and bytes an answer may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerLeft {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}

impl AnswerLeft {
    /// Counts a frame of `bytes`. False if it exceeds the limits, and for every frame after it.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        match (self.frames.checked_sub(1), self.bytes.checked_sub(bytes)) {
            (Some(frames), Some(bytes)) => {
                (self.frames, self.bytes) = (frames, bytes);
                true
            }
            _ => {
                self.frames = 0;
                false
            }
        }
    }
}

impl OwnCall {
    /// Whether the call only keeps the connection alive. Such calls do not excuse silence, and a connection that is
    /// going away does not wait for them.
    fn is_upkeep(&self) -> bool {
        matches!(self.opcode, OpCode::PING | OpCode::HEARTBEAT)
    }
}

/// All own requests in flight.
#[derive(Debug)]
pub(crate) struct OwnCalls {
    table: IdTable<OwnCall>,
    next_id: Option<CallId>,
    /// No call has an earlier deadline. It may be too early if that call has ended; then `expired` finds the right one
    /// by looking at all calls, which is cheaper than keeping them sorted, because few calls reach their deadline.
    earliest_deadline: Option<Instant>,
    orphans: usize,
    /// Calls that are neither orphans nor upkeep.
    busy: usize,
}

impl OwnCalls {
    pub(crate) fn new(first_id: CallId) -> Self {
        let next_id = (first_id <= CallId::LAST).then_some(first_id);
        Self {
            table: IdTable::new(),
            next_id,
            earliest_deadline: None,
            orphans: 0,
            busy: 0,
        }
    }

    /// The id of the next request; `None` when all ids are used.
    pub(crate) fn next_id(&self) -> Option<CallId> {
        self.next_id
    }

    /// Adds a call under `id`, which must be [`OwnCalls::next_id`].
    pub(crate) fn insert(&mut self, id: CallId, call: OwnCall) {
        debug_assert_eq!(self.next_id, Some(id));
        self.next_id = id.next();
        self.earliest_deadline = match (self.earliest_deadline, call.deadline) {
            (Some(earliest), Some(deadline)) => Some(earliest.min(deadline)),
            (earliest, deadline) => earliest.or(deadline),
        };
        self.busy += usize::from(!call.is_upkeep());
        self.table.insert(id, call);
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&OwnCall> {
        self.table.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut OwnCall> {
        self.table.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<OwnCall> {
        let call = self.table.remove(id)?;
        if call.orphan {
            self.orphans -= 1;
        } else {
            self.busy -= usize::from(!call.is_upkeep());
        }
        Some(call)
    }

    /// Marks a call as an orphan; false if it is unknown or an orphan already.
    pub(crate) fn orphan(&mut self, id: CallId) -> bool {
        let Some(call) = self.table.get_mut(id).filter(|call| !call.orphan) else {
            return false;
        };
        call.orphan = true;
        self.busy -= usize::from(!call.is_upkeep());
        self.orphans += 1;
        true
    }

    /// Frees the memory of an empty table.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// The number of calls, including orphans.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn orphans(&self) -> usize {
        self.orphans
    }

    /// The number of calls whose answers are awaited, without PING and HEARTBEAT.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// No call has an earlier deadline than this.
    pub(crate) fn earliest_deadline(&self) -> Option<Instant> {
        self.earliest_deadline
    }

    /// The calls whose deadline has passed, without orphans.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<CallId> {
        let mut expired = Vec::new();
        let mut earliest = None::<Instant>;
        for (id, call) in self.table.iter_mut().filter(|(_, call)| !call.orphan) {
            match call.deadline {
                Some(deadline) if deadline <= now => expired.push(id),
                Some(deadline) => earliest = Some(earliest.map_or(deadline, |other| other.min(deadline))),
                None => {}
            }
        }
        self.earliest_deadline = earliest;
        expired.sort_unstable();
        expired
    }

    /// Removes and returns all calls with ids above `last`, or all calls, ordered by id.
    pub(crate) fn remove_above(&mut self, last: Option<u32>) -> Vec<(CallId, OwnCall)> {
        let mut ids: Vec<_> = self
            .table
            .iter_mut()
            .map(|(id, _)| id)
            .filter(|id| Some(id.raw()) > last)
            .collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }
}
