//! Ranges of which another server takes nothing now, and when they are tried again.

use std::collections::HashMap;
use std::time::Duration;

use sbp_types::RangeKey;
use tokio::time::Instant;

/// When a range is tried again that was refused for the first time. Twice as long each further time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What one server refuses.
#[derive(Debug, Default)]
pub(super) struct RefusedRanges(HashMap<RangeKey, Refused>);

#[derive(Clone, Copy, Debug)]
struct Refused {
    /// How long it waits, or has waited.
    pause: Duration,
    /// When that is over, or was.
    at: Instant,
    is_waiting: bool,
}

impl RefusedRanges {
    /// The server takes nothing of a range. Returns whether that is new.
    pub(super) fn add(&mut self, key: RangeKey, now: Instant) -> bool {
        let known = self.0.get(&key).copied();
        if known.is_some_and(|known| known.is_waiting) {
            return false;
        }
        let pause = known.map_or(FIRST_PAUSE, |known| LONGEST_PAUSE.min(known.pause * 2));
        let refused = Refused {
            pause,
            at: now + pause,
            is_waiting: true,
        };
        self.0.insert(key, refused);
        known.is_none()
    }

    /// The server has taken something of a range. One that waits goes on waiting: that was sent before what was refused, and it
    /// is sent nothing more before it is due.
    pub(super) fn remove(&mut self, key: RangeKey) {
        if self.0.get(&key).is_some_and(|refused| !refused.is_waiting) {
            self.0.remove(&key);
        }
    }

    /// The next time at which a range is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let waiting = self.0.values().filter(|refused| refused.is_waiting);
        waiting.map(|refused| refused.at).min()
    }

    /// The ranges to try now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<RangeKey> {
        // Of one that was neither refused again nor taken there was nothing more to send.
        self.0
            .retain(|_, refused| refused.is_waiting || now < refused.at + 2 * LONGEST_PAUSE);
        let mut due = Vec::new();
        for (key, refused) in &mut self.0 {
            if refused.is_waiting && refused.at <= now {
                refused.is_waiting = false;
                due.push(*key);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{RangeIndex, StreamId};

    use super::*;

    fn key(stream: i64) -> RangeKey {
        RangeKey {
            stream: StreamId(stream),
            range: RangeIndex(0),
        }
    }

    /// The pauses before each try, in milliseconds, of a range that is refused as often.
    fn pauses(refused: &mut RefusedRanges, now: &mut Instant, times: usize) -> Vec<u128> {
        let mut waited = Vec::new();
        for _ in 0..times {
            refused.add(key(1), *now);
            let next = refused.next().unwrap();
            assert_eq!(refused.due(next - Duration::from_millis(1)), []);
            waited.push((next - *now).as_millis());
            *now = next;
            assert_eq!(refused.due(*now), [key(1)]);
            assert_eq!(refused.due(*now), [], "once");
        }
        waited
    }

    #[test]
    fn what_is_refused_again_and_again_is_tried_less_often_until_something_is_taken() {
        let mut now = Instant::now();
        let mut refused = RefusedRanges::default();
        assert_eq!(pauses(&mut refused, &mut now, 6), [100, 200, 400, 800, 1_000, 1_000]);
        refused.remove(key(1));
        assert_eq!(pauses(&mut refused, &mut now, 2), [100, 200]);
        now += 3 * LONGEST_PAUSE;
        assert_eq!((refused.next(), refused.due(now)), (None, vec![]));
        assert_eq!(
            pauses(&mut refused, &mut now, 1),
            [100],
            "there was nothing more to send"
        );
    }

    #[test]
    fn what_waits_is_tried_also_if_something_sent_before_is_taken() {
        let now = Instant::now();
        let mut refused = RefusedRanges::default();
        refused.add(key(1), now);
        refused.remove(key(1));
        assert_eq!(refused.due(now + FIRST_PAUSE), [key(1)]);
        refused.remove(key(1));
        assert_eq!(refused.next(), None);
    }

    #[test]
    fn many_entries_of_one_frame_are_one_refusal() {
        let now = Instant::now();
        let mut refused = RefusedRanges::default();
        assert!(refused.add(key(1), now));
        assert!(!refused.add(key(1), now + Duration::from_millis(50)));
        assert!(refused.add(key(2), now));
        assert_eq!(refused.next(), Some(now + FIRST_PAUSE));
        let mut due = refused.due(now + FIRST_PAUSE);
        due.sort_unstable();
        assert_eq!(due, [key(1), key(2)]);
        assert!(!refused.add(key(1), now + FIRST_PAUSE), "it is not new");
        assert_eq!(refused.next(), Some(now + 3 * FIRST_PAUSE));
    }
}
