//! A slow disk: operations that wait until the test releases them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::{Condvar, Mutex};

use crate::disk::Operation;

/// The held operations, and how many threads wait for each.
#[derive(Debug, Default)]
pub(super) struct Delays {
    state: Mutex<State>,
    /// Signalled when a thread begins to wait.
    reached: Condvar,
    /// Signalled when waiting threads may go on.
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    holds: Vec<Hold>,
    next: u64,
}

#[derive(Debug)]
struct Hold {
    number: u64,
    operation: Operation,
    name: String,
    waiting: usize,
}

impl Hold {
    fn concerns(&self, operation: Operation, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.operation == operation && name.contains(&self.name)
    }
}

impl Delays {
    pub(super) fn hold(delays: &Arc<Self>, operation: Operation, name: &str) -> Held {
        let mut state = delays.state.lock();
        state.next += 1;
        let number = state.next;
        state.holds.push(Hold {
            number,
            operation,
            name: name.to_owned(),
            waiting: 0,
        });
        Held {
            delays: Arc::clone(delays),
            number,
        }
    }

    /// Waits as long as the operation is held.
    pub(super) fn wait(&self, operation: Operation, path: &Path) {
        let mut state = self.state.lock();
        while let Some(hold) = state.holds.iter_mut().find(|hold| hold.concerns(operation, path)) {
            hold.waiting += 1;
            let number = hold.number;
            self.reached.notify_all();
            self.released.wait(&mut state);
            if let Some(hold) = state.holds.iter_mut().find(|hold| hold.number == number) {
                hold.waiting -= 1;
            }
        }
    }
}

/// Operations that are held; dropping this releases them.
#[derive(Debug)]
pub struct Held {
    delays: Arc<Delays>,
    number: u64,
}

impl Held {
    /// Waits until a thread waits for one of these operations.
    ///
    /// # Panics
    ///
    /// When no thread does within 20 seconds.
    pub fn wait_until_reached(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut state = self.delays.state.lock();
        while !self.is_reached(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            let late = self.delays.reached.wait_for(&mut state, left);
            assert!(
                !late.timed_out() || self.is_reached(&state),
                "nobody waits for the disk"
            );
        }
    }

    fn is_reached(&self, state: &State) -> bool {
        state
            .holds
            .iter()
            .any(|hold| hold.number == self.number && hold.waiting > 0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.delays.state.lock().holds.retain(|hold| hold.number != self.number);
        self.delays.released.notify_all();
    }
}
