//! Receive credit: memory for answers is charged before they are asked for.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The credit of one client. Charges come back when they are dropped.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    total: usize,
    /// Can go below zero: a server returns at least one whole batch, however large, and that is charged on arrival.
    free: Mutex<i64>,
    returned: Notify,
}

impl ReceiveCredit {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            free: Mutex::new(signed(total)),
            returned: Notify::new(),
        })
    }

    /// Waits until at least `least` bytes are free and takes up to `wanted`. `least` over the whole credit waits until
    /// nothing is charged, so that one oversized request can always be made.
    pub(crate) async fn charge(self: &Arc<Self>, least: usize, wanted: usize) -> Charge {
        let least = signed(least.min(self.total));
        loop {
            let returned = self.returned.notified();
            tokio::pin!(returned);
            returned.as_mut().enable();
            if let Some(charge) = self.try_charge(least, wanted) {
                return charge;
            }
            returned.await;
        }
    }

    fn try_charge(self: &Arc<Self>, least: i64, wanted: usize) -> Option<Charge> {
        let mut free = self.free.lock();
        if *free < least {
            return None;
        }
        let taken = signed(wanted).min(*free);
        *free -= taken;
        Some(Charge {
            credit: Arc::clone(self),
            bytes: usize::try_from(taken).unwrap_or(0),
        })
    }

    /// Bytes that are free; 0 when overdrawn.
    pub(crate) fn free(&self) -> usize {
        usize::try_from(*self.free.lock()).unwrap_or(0)
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Credit that was taken; returned when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    credit: Arc<ReceiveCredit>,
    bytes: usize,
}

impl Charge {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Splits `bytes` off; what this charge does not hold is taken from the credit, below zero if need be.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let held = bytes.min(self.bytes);
        self.bytes -= held;
        let overshoot = bytes - held;
        if overshoot > 0 {
            *self.credit.free.lock() -= signed(overshoot);
        }
        Self {
            credit: Arc::clone(&self.credit),
            bytes,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.credit.free.lock() += signed(self.bytes);
            self.credit.returned.notify_waiters();
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
        assert_eq!((first.bytes(), credit.free()), (80, 20));
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
        assert_eq!((asked.bytes(), arrived.bytes(), credit.free()), (0, 120, 0));
        assert!(credit.try_charge(1, 1).is_none());
        drop((asked, arrived));
        assert_eq!(credit.free(), 100);
    }
}
