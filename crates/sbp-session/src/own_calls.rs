//! Requests that this side sent.

use std::time::Instant;

use sbp_frame::{CallId, OpCode};

use crate::id_table::IdTable;

/// One own request, from the write queue to the end of its answer.
#[derive(Debug)]
pub(crate) struct OwnCall {
    pub(crate) user: u64,
    pub(crate) opcode: OpCode,
    pub(crate) deadline: Option<Instant>,
    pub(crate) queued_at: Instant,
    /// Where its frame starts in all that was ever queued: tells whether a byte of it was written.
    pub(crate) position: u64,
    /// Payload bytes that the caller has set memory aside for and that have not come yet.
    pub(crate) charge: u32,
    /// Frames and bytes that its answer may still have.
    pub(crate) left: AnswerLeft,
    /// Nobody waits for it any more. It stays until its answer ends, so that the answer is known when it comes.
    pub(crate) orphan: bool,
}

/// How much more an answer may bring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerLeft {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}

impl AnswerLeft {
    /// Counts a frame of `bytes`; false where it is one too many, now and ever after.
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
    /// Whether it only keeps the connection alive: such calls neither keep a silent connection open nor hold up a
    /// departure.
    fn is_upkeep(&self) -> bool {
        matches!(self.opcode, OpCode::PING | OpCode::HEARTBEAT)
    }
}

/// All own requests of a connection.
#[derive(Debug)]
pub(crate) struct OwnCalls {
    table: IdTable<OwnCall>,
    next_id: Option<CallId>,
    /// No deadline is earlier. It may be too early, when the call that had it is answered already: then one look at
    /// the calls in flight sets it right, which is cheaper than keeping an order that almost no call lives to need.
    earliest_deadline: Option<Instant>,
    orphans: usize,
    /// Live calls that are no upkeep.
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

    /// The id that the next request will get, or nothing when all are given.
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

    /// Leaves a call to itself; false if it is unknown or an orphan already.
    pub(crate) fn orphan(&mut self, id: CallId) -> bool {
        let Some(call) = self.table.get_mut(id).filter(|call| !call.orphan) else {
            return false;
        };
        call.orphan = true;
        self.busy -= usize::from(!call.is_upkeep());
        self.orphans += 1;
        true
    }

    /// Gives memory back that no call in flight needs.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// All calls, orphans included.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn orphans(&self) -> usize {
        self.orphans
    }

    /// Calls that somebody waits for, PING and HEARTBEAT left out.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// No deadline is earlier than this.
    pub(crate) fn earliest_deadline(&self) -> Option<Instant> {
        self.earliest_deadline
    }

    /// The live calls whose deadline has come.
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

    /// Takes out all calls with ids above `last`, in order.
    pub(crate) fn remove_above(&mut self, last: u32) -> Vec<(CallId, OwnCall)> {
        let mut ids: Vec<_> = self
            .table
            .iter_mut()
            .map(|(id, _)| id)
            .filter(|id| id.raw() > last)
            .collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }

    /// Takes out everything, in order.
    pub(crate) fn remove_all(&mut self) -> Vec<(CallId, OwnCall)> {
        let mut ids: Vec<_> = self.table.iter_mut().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| Some((id, self.remove(id)?))).collect()
    }
}
