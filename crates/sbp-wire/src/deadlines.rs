//! Which of many calls runs out of time next.

use std::collections::BTreeSet;
use std::time::Instant;

/// The deadlines of calls that are under way, by their keys. Two calls may have one deadline.
#[derive(Debug)]
pub struct Deadlines<K>(BTreeSet<(Instant, K)>);

impl<K: Ord + Copy> Deadlines<K> {
    /// No deadline.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A call has to end by then.
    pub fn insert(&mut self, at: Instant, key: K) {
        self.0.insert((at, key));
    }

    /// The call has ended; `at` is what it was inserted with.
    pub fn remove(&mut self, at: Instant, key: K) {
        self.0.remove(&(at, key));
    }

    /// The earliest.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes out a call that has run out of time.
    pub fn take_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, key)| key)
    }
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn they_are_due_in_their_order() {
        let (mut deadlines, start) = (Deadlines::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!((deadlines.next(), deadlines.take_due(start)), (None, None));
        for (seconds, key) in [(3, 'c'), (1, 'a'), (2, 'x'), (1, 'b')] {
            deadlines.insert(at(seconds), key);
        }
        deadlines.remove(at(2), 'x');
        assert_eq!(deadlines.next(), Some(at(1)));
        assert_eq!(deadlines.take_due(start), None, "too early");
        assert_eq!(deadlines.take_due(at(2)), Some('a'));
        assert_eq!(deadlines.take_due(at(2)), Some('b'));
        assert_eq!(deadlines.take_due(at(2)), None);
        assert_eq!(deadlines.next(), Some(at(3)));
    }
}
