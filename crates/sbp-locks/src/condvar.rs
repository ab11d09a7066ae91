//! Waiting for a change of what a mutex guards.

use std::sync::{self, PoisonError};
use std::time::Duration;

use crate::MutexGuard;

/// Lets threads wait until another one says that something has changed.
///
/// A wait may end without anybody having said so: what is waited for is looked at again.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was over.
    #[must_use]
    pub const fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Gives the lock back, waits for a notification, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.held.take() {
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// As [`wait`](Self::wait), but at most this long.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        let Some(held) = guard.held.take() else {
            return WaitTimeoutResult(false);
        };
        let (held, result) = self.0.wait_timeout(held, limit).unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(held);
        WaitTimeoutResult(result.timed_out())
    }

    /// Waits while the condition holds, but at most this long.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        limit: Duration,
    ) -> WaitTimeoutResult {
        let Some(held) = guard.held.take() else {
            return WaitTimeoutResult(false);
        };
        let waited = self.0.wait_timeout_while(held, limit, |value| condition(value));
        let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(held);
        WaitTimeoutResult(result.timed_out())
    }

    /// Wakes one thread that waits, if any does.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mutex;

    #[test]
    fn who_waits_is_woken() {
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    let mut turn = turn.lock();
                    while *turn != number {
                        changed.wait(&mut turn);
                    }
                    *turn += 1;
                    changed.notify_all();
                });
            }
        });
        assert_eq!(turn.into_inner(), 4);
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let (lock, changed) = (Mutex::new(true), Condvar::new());
        let mut value = lock.lock();
        // A wake-up without a cause is allowed, but not for ever.
        while !changed.wait_for(&mut value, Duration::from_millis(1)).timed_out() {}
        let waited = changed.wait_while_for(&mut value, |value| *value, Duration::from_millis(1));
        assert!(waited.timed_out());
        assert!(*value);
        let waited = changed.wait_while_for(&mut value, |value| !*value, Duration::from_secs(60));
        assert!(!waited.timed_out());
    }
}
