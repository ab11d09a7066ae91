//! The state that all connections of a proxy share.

use std::sync::Arc;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_transport::Descriptors;

use crate::relay::Judge;
use crate::rulebook::{Decision, RuleBook};
use crate::{Observer, ProxyCounts, Seen};

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: Mutex<Option<String>>,
    pub(crate) book: Mutex<RuleBook>,
    pub(crate) observer: Option<Observer>,
    pub(crate) counts: Mutex<ProxyCounts>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) dial_timeout: Duration,
}

impl Shared {
    pub(crate) fn target(&self) -> Option<String> {
        self.target.lock().clone()
    }
}

impl Judge for Shared {
    fn decide(&self, seen: &Seen) -> Decision {
        let decision = self.book.lock().decide(seen);
        let action = decision.action();
        self.counts.lock().count_frame(seen.direction, action);
        if let Some(observer) = &self.observer {
            observer.see(seen, action);
        }
        decision
    }

    fn note_foreign(&self) {
        self.counts.lock().foreign += 1;
    }
}
