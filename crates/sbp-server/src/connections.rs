//! The connections that are open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::connection::{ConnectionCommand, Port};

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
    open: HashMap<i64, Arc<Port>>,
}

impl Connections {
    /// Takes a connection in. It is open until the second result is dropped.
    pub(crate) fn open(self: &Arc<Self>, port: impl FnOnce(i64) -> Port) -> (Arc<Port>, Open) {
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let port = Arc::new(port(id));
        state.open.insert(id, Arc::clone(&port));
        if state.going_down {
            let _new = port.mailbox.post(ConnectionCommand::GoAway);
        }
        (
            port,
            Open {
                id,
                connections: Arc::clone(self),
            },
        )
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Tells all of them, and those to come, that the server goes down.
    pub(crate) fn go_away(&self) {
        let mut state = self.state.lock();
        state.going_down = true;
        for port in state.open.values() {
            let _gone = port.mailbox.post(ConnectionCommand::GoAway);
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
    connections: Arc<Connections>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.state.lock().open.remove(&self.id);
        self.connections.changed.notify_all();
    }
}
