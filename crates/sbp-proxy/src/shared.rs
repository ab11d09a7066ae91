//! The state that all connections of a proxy share.

use std::sync::Arc;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_transport::Descriptors;

use crate::counts::Counters;
use crate::relay::Judge;
use crate::rulebook::{Decision, RuleBook};
use crate::{Direction, Observer, Seen};

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: Mutex<Option<String>>,
    pub(crate) book: Mutex<RuleBook>,
    pub(crate) observer: Option<Observer>,
    pub(crate) counters: Counters,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) dial_timeout: Duration,
}

impl Shared {
    pub(crate) fn target(&self) -> Option<String> {
        self.target.lock().clone()
    }

    pub(crate) fn count_bytes(&self, direction: Direction, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.counters.bytes.of(direction).add(count);
    }
}

impl Judge for Shared {
    fn decide(&self, seen: &Seen) -> Decision {
        let decision = self.book.lock().decide(seen);
        let action = decision.action();
        self.counters.frames.of(seen.direction).add(1);
        self.counters.count(action);
        if let Some(observer) = &self.observer {
            observer.see(seen, action);
        }
        decision
    }

    fn note_foreign(&self) {
        self.counters.foreign.add(1);
    }
}
