//! The connections that are open.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_locks::{Condvar, Mutex};

use crate::access::{Access, AccessError, KeyUrl};
use crate::connection::{ConnectionCommand, ConnectionHandle};

/// How often the file of names is looked at.
const LOOK_AT_ACCESS: Duration = Duration::from_secs(1);

/// All open connections, so that each can be told when the server shuts down.
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
}

impl Connections {
    /// Adds a connection. It counts as open until the second result is dropped.
    pub(crate) fn open(
        self: &Arc<Self>,
        handle: impl FnOnce(i64) -> ConnectionHandle,
    ) -> (Arc<ConnectionHandle>, OpenConnection) {
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let handle = Arc::new(handle(id));
        state.open.insert(id, Arc::clone(&handle));
        if state.going_down {
            handle.post(ConnectionCommand::GoAway);
        }
        (
            handle,
            OpenConnection {
                id,
                connections: Arc::clone(self),
            },
        )
    }

    /// The number of open connections.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Tells all connections, and those opened later, that the server shuts down.
    pub(crate) fn go_away(&self) {
        let mut state = self.state.lock();
        state.going_down = true;
        for handle in state.open.values() {
            handle.post(ConnectionCommand::GoAway);
        }
    }

    /// Has all connections look again at who their peers are and what these may do.
    pub(crate) fn access_changed(&self) {
        for handle in self.state.lock().open.values() {
            handle.post(ConnectionCommand::AccessChanged);
        }
    }

    /// Waits until no connection is open; false when that takes longer than `timeout`.
    pub(crate) fn wait_until_closed(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        let result = self
            .changed
            .wait_while_for(&mut state, |state| !state.open.is_empty(), timeout);
        !result.timed_out()
    }
}

/// Who is known, and those who have to hear of a change.
#[derive(Debug)]
pub(crate) struct Rights {
    pub(crate) access: Arc<Access>,
    pub(crate) connections: Arc<Connections>,
}

impl Rights {
    /// Reads the files again that have changed. Waits for the disk. Returns what there is.
    pub(crate) fn reload(&self) -> Vec<&'static str> {
        take(&self.connections, self.access.reload());
        let mut read = vec!["names"];
        if self.access.has_key_file() {
            take(&self.connections, self.access.reload_keys());
            read.push("keys");
        }
        read
    }
}

fn take(connections: &Connections, reloaded: Result<bool, AccessError>) {
    match reloaded {
        Ok(true) => connections.access_changed(),
        Ok(false) => {}
        Err(error) => tracing::error!(%error, "who was known before stays known, with the same rights"),
    }
}

/// Reads a file of who is known again when it has changed, with `reload`, and has all connections look again then. Ends with
/// the server. Each file has a task of its own: a disk that hangs keeps nobody who is in the other file's.
pub(crate) async fn watch_access(
    access: Weak<Access>,
    connections: Weak<Connections>,
    reload: fn(&Access) -> Result<bool, AccessError>,
) {
    loop {
        tokio::time::sleep(LOOK_AT_ACCESS).await;
        let Some(access) = access.upgrade() else { return };
        // The disk may be slow.
        let reloaded = tokio::task::spawn_blocking(move || reload(&access)).await;
        let Some(connections) = connections.upgrade() else {
            return;
        };
        // Else the runtime is shutting down.
        if let Ok(reloaded) = reloaded {
            take(&connections, reloaded);
        }
    }
}

/// Fetches the keys of OAuth tokens again and again. Ends with the server.
pub(crate) async fn fetch_keys(access: Weak<Access>, connections: Weak<Connections>, url: Arc<KeyUrl>) {
    loop {
        url.wait_until_due().await;
        let Some(access) = access.upgrade() else { return };
        let fetched = access.fetch_keys(&url).await;
        drop(access);
        let Some(connections) = connections.upgrade() else {
            return;
        };
        match fetched {
            Ok(true) => connections.access_changed(),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the keys that came last are believed still"),
        }
    }
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    id: i64,
    connections: Arc<Connections>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.open.remove(&self.id);
        drop(state);
        self.connections.changed.notify_all();
    }
}
