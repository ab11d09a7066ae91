//! Which servers were found silent: known to all channels of a client, whichever of them found it out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;

/// So long a server that was silent is asked last; then it is tried again.
const ASKED_LAST: Duration = Duration::from_secs(30);

/// So long one that was silent is not asked as the leader, nor given appends, although others still name it. Those who name it
/// wait until its lease of 3 s has ended, which began before it was silent for a client; whoever leads next does so within a
/// second of that, and has its ranges go on.
const REPLACED_WITHIN: Duration = Duration::from_secs(2);

/// When servers were found silent, by the address that was dialled. What was heard since is not in here.
#[derive(Debug, Default)]
pub(crate) struct Silences(Mutex<HashMap<Arc<str>, Instant>>);

impl Silences {
    /// This server was found silent.
    pub(super) fn note(&self, address: &Arc<str>, now: Instant) {
        let mut silent = self.0.lock();
        silent.retain(|_, since| now.saturating_duration_since(*since) < ASKED_LAST);
        silent.insert(Arc::clone(address), now);
    }

    /// This server was heard.
    pub(super) fn heard(&self, address: &str) {
        self.0.lock().remove(address);
    }

    /// Whether this server was silent when it was last asked, which is not long ago.
    pub(super) fn is_asked_last(&self, address: &str, now: Instant) -> bool {
        self.is_since(address, ASKED_LAST, now)
    }

    /// Whether this server was silent a moment ago, so that others are about to do without it, whoever names it.
    pub(crate) fn is_being_replaced(&self, address: &str, now: Instant) -> bool {
        self.is_since(address, REPLACED_WITHIN, now)
    }

    fn is_since(&self, address: &str, long: Duration, now: Instant) -> bool {
        let silent = self.0.lock();
        let since = silent.get(address);
        since.is_some_and(|since| now.saturating_duration_since(*since) < long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_silent_is_being_replaced_for_a_moment_and_asked_last_for_longer_unless_it_is_heard() {
        let (silences, begun) = (Silences::default(), Instant::now());
        let (a, b): (Arc<str>, Arc<str>) = ("a:1".into(), "b:1".into());
        let seen = |address: &str, after: Duration| {
            let now = begun + after;
            (
                silences.is_being_replaced(address, now),
                silences.is_asked_last(address, now),
            )
        };
        silences.note(&a, begun);
        assert_eq!(seen("a:1", Duration::ZERO), (true, true));
        assert_eq!(seen("b:1", Duration::ZERO), (false, false));
        assert_eq!(seen("a:1", REPLACED_WITHIN), (false, true));
        silences.note(&b, begun + REPLACED_WITHIN);
        silences.heard("a:1");
        assert_eq!(seen("a:1", REPLACED_WITHIN), (false, false));
        assert_eq!(seen("b:1", REPLACED_WITHIN + ASKED_LAST), (false, false));
        silences.note(&a, begun + REPLACED_WITHIN + ASKED_LAST);
        assert_eq!(silences.0.lock().len(), 1, "what is long ago is forgotten");
    }
}
