//! How much unfinished appending a client holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Appends that were submitted and are not over, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    calls: AtomicUsize,
    bytes: AtomicUsize,
}

impl Budget {
    /// Adds without a limit: what is over the connection's budget queues.
    pub(crate) fn add(&self, calls: usize, bytes: usize) {
        self.calls.fetch_add(calls, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds only when everything stays within the limits. One that is over the limit by itself may go alone.
    pub(crate) fn try_add(&self, calls: usize, bytes: usize, max_calls: usize, max_bytes: usize) -> bool {
        let before = self.calls.fetch_add(calls, Ordering::Relaxed);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 || (before + calls <= max_calls && bytes_before + bytes <= max_bytes) {
            return true;
        }
        self.release(calls, bytes);
        false
    }

    pub(crate) fn release(&self, calls: usize, bytes: usize) {
        self.calls.fetch_sub(calls, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether more would stay within the limits, with `waiting` added before it. What is over the limit by itself may go
    /// alone.
    pub(crate) fn has_room(&self, waiting: (usize, usize), bytes: usize, max_calls: usize, max_bytes: usize) -> bool {
        let calls_before = self.calls() + waiting.0;
        let bytes_before = self.bytes() + waiting.1;
        calls_before == 0 || (calls_before < max_calls && bytes_before + bytes <= max_bytes)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// How many appends of one client are on their way.
#[derive(Clone, Debug)]
pub struct AppendsInFlight(Arc<Budget>);

impl AppendsInFlight {
    pub(crate) fn of(budget: &Arc<Budget>) -> Self {
        Self(Arc::clone(budget))
    }

    /// Their number now. Those whose client went away unanswered are counted for good.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.calls()
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn limits_hold_and_an_oversized_one_may_go_alone() {
        let budget = Budget::default();
        assert!(budget.try_add(1, 1_000, 2, 100));
        assert!(!budget.try_add(1, 1, 2, 100));
        budget.release(1, 1_000);
        assert!(budget.try_add(1, 50, 2, 100) && budget.try_add(1, 50, 2, 100));
        assert!(!budget.try_add(1, 0, 2, 100));
        assert_eq!((budget.calls(), budget.bytes()), (2, 100));
    }

    #[test]
    fn what_waits_counts_against_the_room() {
        let budget = Budget::default();
        assert!(budget.has_room((0, 0), 1_000, 2, 100), "alone");
        assert!(budget.has_room((1, 50), 50, 2, 100));
        assert!(!budget.has_room((2, 50), 50, 2, 100), "calls");
        assert!(!budget.has_room((1, 51), 50, 2, 100), "bytes");
        budget.add(1, 50);
        assert!(!budget.has_room((1, 0), 0, 2, 100));
    }
}
