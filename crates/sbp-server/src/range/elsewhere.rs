//! What the placement driver has said about streams of which no range is here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_types::StreamId;

/// How long an answer counts. A stream that gets another name, or its next range here, is told of by itself; this bounds how
/// long somebody is told wrongly that he may not, and how often the placement driver is asked.
const COUNTS: Duration = Duration::from_secs(2);
/// The most streams that are remembered: anybody may ask for any number of streams.
const MOST: usize = 1_024;

/// The names of streams that are elsewhere, or do not exist, as they were told lately.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    told: HashMap<StreamId, (Instant, Option<Arc<str>>)>,
}

impl Elsewhere {
    /// The placement driver has said what a stream is called; `None`: nothing, or there is no such stream.
    pub(super) fn note(&mut self, stream: StreamId, name: Option<Arc<str>>, now: Instant) {
        if self.told.len() >= MOST {
            self.told.retain(|_, (since, _)| counts(*since, now));
        }
        if self.told.len() >= MOST {
            self.told.clear();
        }
        self.told.insert(stream, (now, name));
    }

    /// What was said lately. The outer `None`: nothing.
    pub(super) fn name(&self, stream: StreamId, now: Instant) -> Option<Option<&str>> {
        let (since, name) = self.told.get(&stream)?;
        counts(*since, now).then_some(name.as_deref())
    }
}

fn counts(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < COUNTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_counts_for_a_while_and_is_bounded() {
        let mut elsewhere = Elsewhere::default();
        let begin = Instant::now();
        let one = StreamId(1);
        assert_eq!(elsewhere.name(one, begin), None);
        elsewhere.note(one, Some("orders".into()), begin);
        elsewhere.note(StreamId(2), None, begin);
        assert_eq!(elsewhere.name(one, begin), Some(Some("orders")));
        assert_eq!(elsewhere.name(StreamId(2), begin), Some(None));
        let later = begin + COUNTS;
        assert_eq!(elsewhere.name(one, later), None);
        for stream in 0..5_000 {
            elsewhere.note(StreamId(stream), None, later);
            assert!(elsewhere.told.len() <= MOST);
            assert_eq!(elsewhere.name(StreamId(stream), later), Some(None));
        }
    }
}
