//! The requests of this side that are under way.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

use crate::Deadlines;

/// A request that is not over.
#[derive(Debug)]
pub struct OwnCall<T> {
    /// What is remembered of it.
    pub what: T,
    /// Where its frame begins among all bytes ever queued, which tells whether any byte of it was written.
    pub position: u64,
    deadline: Instant,
}

/// All requests that are not over, by their ids.
#[derive(Debug)]
pub struct OwnCalls<K, T> {
    calls: HashMap<K, OwnCall<T>>,
    deadlines: Deadlines<K>,
}

impl<K: Ord + Copy + Hash, T> OwnCalls<K, T> {
    /// No request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a request with this id is under way.
    pub fn contains(&self, id: K) -> bool {
        self.calls.contains_key(&id)
    }

    /// A request is queued at `position` of all bytes ever queued, and has time until `deadline`.
    pub fn insert(&mut self, id: K, what: T, deadline: Instant, position: u64) {
        self.deadlines.insert(deadline, id);
        let call = OwnCall {
            what,
            position,
            deadline,
        };
        self.calls.insert(id, call);
    }

    /// What is remembered of a request.
    pub fn get(&self, id: K) -> Option<&T> {
        self.calls.get(&id).map(|call| &call.what)
    }

    /// The least id of a request of which this holds.
    pub fn find(&self, mut is_it: impl FnMut(&T) -> bool) -> Option<K> {
        let found = self.calls.iter().filter(|(_, call)| is_it(&call.what));
        found.map(|(id, _)| *id).min()
    }

    /// A request is over.
    pub fn remove(&mut self, id: K) -> Option<OwnCall<T>> {
        let call = self.calls.remove(&id)?;
        self.deadlines.remove(call.deadline, id);
        Some(call)
    }

    /// Something of its answer has come: it has time until then, if that is later.
    pub fn extend(&mut self, id: K, deadline: Instant) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.deadline < deadline {
            self.deadlines.remove(call.deadline, id);
            self.deadlines.insert(deadline, id);
            call.deadline = deadline;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// When the first of them runs out of time.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Takes out a request that has run out of time.
    pub fn take_due(&mut self, now: Instant) -> Option<OwnCall<T>> {
        let id = self.deadlines.take_due(now)?;
        self.calls.remove(&id)
    }

    /// Takes all of them out, in the order in which they were sent.
    pub fn take_all(&mut self) -> Vec<OwnCall<T>> {
        let mut calls: Vec<_> = self.calls.drain().map(|(_, call)| call).collect();
        calls.sort_by_key(|call| call.position);
        self.deadlines = Deadlines::new();
        calls
    }
}

impl<K, T> Default for OwnCalls<K, T> {
    fn default() -> Self {
        Self {
            calls: HashMap::new(),
            deadlines: Deadlines::default(),
        }
    }
}
