//! The requests that a client has sent.

use std::collections::HashMap;
use std::time::Instant;

use sbp_wire::Deadlines;

use crate::answer::Asked;

/// A request that is not over.
#[derive(Debug)]
pub(super) struct OwnCall {
    /// The caller's token.
    pub(super) user: u64,
    pub(super) asked: Asked,
    deadline: Instant,
    /// Where its frame begins among all bytes ever queued, which tells whether any byte of it was written.
    pub(super) position: u64,
}

/// All of them, by their ids.
#[derive(Debug, Default)]
pub(super) struct OwnCalls {
    calls: HashMap<u32, OwnCall>,
    deadlines: Deadlines<u32>,
    last: u32,
}

impl OwnCalls {
    /// An id that no request has.
    pub(super) fn next_id(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.calls.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    pub(super) fn insert(&mut self, id: u32, user: u64, asked: Asked, deadline: Instant, position: u64) {
        self.deadlines.insert(deadline, id);
        let call = OwnCall {
            user,
            asked,
            deadline,
            position,
        };
        self.calls.insert(id, call);
    }

    pub(super) fn get(&self, id: u32) -> Option<&OwnCall> {
        self.calls.get(&id)
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<OwnCall> {
        let call = self.calls.remove(&id)?;
        self.deadlines.remove(call.deadline, id);
        Some(call)
    }

    /// Something of its answer has come: it has time until then, if that is later.
    pub(super) fn extend(&mut self, id: u32, deadline: Instant) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.deadline < deadline {
            self.deadlines.remove(call.deadline, id);
            self.deadlines.insert(deadline, id);
            call.deadline = deadline;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Takes out a request that has run out of time.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<OwnCall> {
        let id = self.deadlines.take_due(now)?;
        self.calls.remove(&id)
    }

    /// Takes all of them out, in the order in which they were sent.
    pub(super) fn take_all(&mut self) -> Vec<OwnCall> {
        let mut calls: Vec<_> = self.calls.drain().map(|(_, call)| call).collect();
        calls.sort_by_key(|call| call.position);
        self.deadlines = Deadlines::new();
        calls
    }
}
