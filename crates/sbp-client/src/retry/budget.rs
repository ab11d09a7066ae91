//! How much of a client's work may be repeats: a service in trouble is not given more to do.

use std::sync::atomic::{AtomicU32, Ordering};

/// What a full account holds.
const FULL: u32 = 500;
/// What a repeat costs. A call that succeeds pays 1 back.
const COST: u32 = 5;

/// An account that repeats are paid from. Only repeats that make work for the service cost anything: what a server did
/// not start, and what was never sent, is free.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    left: AtomicU32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            left: AtomicU32::new(FULL),
        }
    }
}

impl RetryBudget {
    /// Pays for a repeat. False: it is better not made.
    pub(crate) fn pay(&self) -> bool {
        let paid = |left: u32| left.checked_sub(COST);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid)
            .is_ok()
    }

    /// Something succeeded.
    pub(crate) fn refund(&self) {
        // Nearly always full: then nothing is written.
        if self.left.load(Ordering::Relaxed) < FULL {
            let more = |left: u32| (left < FULL).then_some(left + 1);
            // An error means that it is full.
            let _full = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COST, FULL, RetryBudget};

    #[test]
    fn repeats_end_when_nothing_succeeds_and_go_on_with_every_fifth_success() {
        let budget = RetryBudget::default();
        budget.refund();
        for _ in 0..FULL / COST {
            assert!(budget.pay());
        }
        assert!(!budget.pay());
        for _ in 0..COST {
            assert!(!budget.pay());
            budget.refund();
        }
        assert!(budget.pay());
    }
}
