//! Receive credit: memory for answers is charged before they are asked for.

use std::sync::Arc;

use sbp_locks::Mutex;
use tokio::sync::Notify;

use crate::clock::wait_until;

/// Credit to receive. A client has one account; each reader has one of its own below it, so that no reader can take all.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    total: i64,
    /// Can go below zero: a server returns at least one whole batch, however large, and that is charged on arrival.
    free: Mutex<i64>,
    returned: Notify,
    parent: Option<Arc<Self>>,
}

impl ReceiveCredit {
    /// A client's account.
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total: signed(total),
            free: Mutex::new(signed(total)),
            returned: Notify::new(),
            parent: None,
        })
    }

    /// A reader's account. What it is charged is charged to its client's too.
    pub(crate) fn part(self: &Arc<Self>, total: usize) -> Arc<Self> {
        let total = signed(total);
        let parent = Some(Arc::clone(self));
        Arc::new(Self {
            total,
            free: Mutex::new(total),
            returned: Notify::new(),
            parent,
        })
    }

    /// Waits until at least `least` bytes are free and takes up to `wanted`. A reader that holds nothing gets `least` at
    /// once, whatever others hold: else readers whose consumers wait for each other would stand still for ever.
    pub(crate) async fn charge(self: &Arc<Self>, least: usize, wanted: usize) -> Charge {
        let look = || self.try_charge(least, wanted);
        match &self.parent {
            None => wait_until(&self.returned, look).await,
            Some(parent) => tokio::select! {
                biased;
                charge = wait_until(&self.returned, look) => charge,
                charge = wait_until(&parent.returned, look) => charge,
            },
        }
    }

    /// As [`Self::charge`], without waiting.
    pub(crate) fn try_charge(self: &Arc<Self>, least: usize, wanted: usize) -> Option<Charge> {
        let mut free = self.free.lock();
        let least = signed(least).min(self.total);
        if *free < least {
            return None;
        }
        let mut taken = signed(wanted).min(*free).max(least);
        if let Some(parent) = &self.parent {
            let mut above = parent.free.lock();
            if *above >= least {
                taken = taken.min(*above);
            } else if *free == self.total {
                taken = least;
            } else {
                return None;
            }
            *above -= taken;
        }
        *free -= taken;
        Some(Charge {
            account: Arc::clone(self),
            bytes: usize::try_from(taken).unwrap_or(0),
        })
    }

    fn change(&self, bytes: i64) {
        *self.free.lock() += bytes;
        if bytes > 0 {
            self.returned.notify_waiters();
        }
        if let Some(parent) = &self.parent {
            parent.change(bytes);
        }
    }

    /// Bytes that are not charged.
    pub(crate) fn free(&self) -> usize {
        usize::try_from(*self.free.lock()).unwrap_or(0)
    }

    #[cfg(test)]
    fn balance(&self) -> i64 {
        *self.free.lock()
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Credit that was taken; returned when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<ReceiveCredit>,
    bytes: usize,
}

impl Charge {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Splits `bytes` off; what this charge does not hold is taken from the account, below zero if need be.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let held = bytes.min(self.bytes);
        self.bytes -= held;
        let overshoot = bytes - held;
        if overshoot > 0 {
            self.account.change(-signed(overshoot));
        }
        Self {
            account: Arc::clone(&self.account),
            bytes,
        }
    }

    /// Splits up to `bytes` off, never more than is held.
    pub(crate) fn split_held(&mut self, bytes: usize) -> Self {
        let held = bytes.min(self.bytes);
        self.split(held)
    }

    /// Takes over what another charge of the same account holds.
    pub(crate) fn join(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.account, &other.account), "charges of two accounts");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.change(signed(self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ReceiveCredit;

    #[tokio::test]
    async fn credit_comes_back_and_wakes_who_waits() {
        let credit = ReceiveCredit::new(100);
        let first = credit.charge(10, 80).await;
        assert_eq!((first.bytes(), credit.balance()), (80, 20));
        let second = credit.charge(10, 80).await;
        assert_eq!(second.bytes(), 20);
        let waiting = tokio::spawn({
            let credit = credit.clone();
            async move { credit.charge(50, 200).await.bytes() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(
            tokio::time::timeout(Duration::from_secs(5), waiting)
                .await
                .unwrap()
                .unwrap(),
            80
        );
    }

    #[tokio::test]
    async fn an_overshoot_is_paid_before_the_next_request() {
        let credit = ReceiveCredit::new(100);
        let mut asked = credit.charge(1, 50).await;
        let arrived = asked.split(120);
        assert_eq!((asked.bytes(), arrived.bytes(), credit.balance()), (0, 120, -20));
        assert!(credit.try_charge(1, 1).is_none());
        drop((asked, arrived));
        assert_eq!(credit.balance(), 100);
    }

    #[tokio::test]
    async fn joined_charges_come_back_together() {
        let credit = ReceiveCredit::new(100);
        let mut one = credit.charge(10, 30).await;
        one.join(credit.charge(10, 40).await);
        assert_eq!((one.bytes(), credit.balance()), (70, 30));
        drop(one);
        assert_eq!(credit.balance(), 100);
    }

    #[tokio::test]
    async fn a_reader_that_holds_nothing_is_never_starved_by_others() {
        let client = ReceiveCredit::new(100);
        let (one, two) = (client.part(100), client.part(50));
        let all = one.try_charge(10, 100).unwrap();
        assert_eq!((all.bytes(), client.balance()), (100, 0));
        let least = two.try_charge(10, 50).unwrap();
        assert_eq!((least.bytes(), client.balance()), (10, -10));
        assert!(two.try_charge(10, 10).is_none(), "only who holds nothing may overdraw");
        drop((all, least));
        assert_eq!((client.balance(), one.balance(), two.balance()), (100, 100, 50));
    }
}
