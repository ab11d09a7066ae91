//! The connections that are open.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sbp_locks::{Condvar, Mutex};

use crate::connection::{ConnectionCommand, ConnectionHandle};

/// Every open connection, so that all of them can be told when the server goes down.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last_id: i64,
    going_down: bool,
    open: HashMap<i64, Arc<ConnectionHandle>>,
    /// How many of them come from each address; none of the counts is 0.
    by_address: HashMap<IpAddr, usize>,
}

impl Connections {
    /// Takes a connection from `address` in. It is open until the second result is dropped.
    pub(crate) fn open(
        self: &Arc<Self>,
        address: IpAddr,
        handle: impl FnOnce(i64) -> ConnectionHandle,
    ) -> (Arc<ConnectionHandle>, Open) {
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let handle = Arc::new(handle(id));
        state.open.insert(id, Arc::clone(&handle));
        *state.by_address.entry(address).or_default() += 1;
        if state.going_down {
            handle.post(ConnectionCommand::GoAway);
        }
        (
            handle,
            Open {
                id,
                address,
                connections: Arc::clone(self),
            },
        )
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().open.len()
    }

    /// How many of them come from `address`.
    pub(crate) fn count_from(&self, address: IpAddr) -> usize {
        self.state.lock().by_address.get(&address).copied().unwrap_or_default()
    }

    /// Tells all of them, and those to come, that the server goes down.
    pub(crate) fn go_away(&self) {
        let mut state = self.state.lock();
        state.going_down = true;
        for handle in state.open.values() {
            handle.post(ConnectionCommand::GoAway);
        }
    }

    /// Waits until none is open; false when that takes longer than this.
    pub(crate) fn wait_until_closed(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        let result = self
            .changed
            .wait_while_for(&mut state, |state| !state.open.is_empty(), timeout);
        !result.timed_out()
    }
}

/// A connection's place among those that are open.
#[derive(Debug)]
pub(crate) struct Open {
    id: i64,
    address: IpAddr,
    connections: Arc<Connections>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.open.remove(&self.id);
        if let Entry::Occupied(mut count) = state.by_address.entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(state);
        self.connections.changed.notify_all();
    }
}
