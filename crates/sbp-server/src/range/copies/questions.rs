//! Readers' questions where a range ends, while other servers are asked whether they are fenced.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sbp_replication::{EndQuestion, EndTold};
use sbp_types::{RangeKey, ServerId};

/// How long the other servers have time to answer. Then the reader is sent away: this server may be cut off from them.
const PATIENCE: Duration = Duration::from_secs(2);

/// A question that waits for other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndTicket {
    /// The last range of the stream when the question came.
    pub(crate) key: RangeKey,
    number: u64,
}

/// The questions about all ranges.
#[derive(Debug, Default)]
pub(in crate::range) struct Questions {
    last: u64,
    by_range: HashMap<RangeKey, OfRange>,
}

/// The questions about one range. Those that come while one is under way are together the next one.
#[derive(Debug, Default)]
struct OfRange {
    under_way: Option<UnderWay>,
    next: Option<u64>,
    /// The number of the last question that was answered, and the answer. It is one to all questions before it too.
    told: Option<(u64, EndTold)>,
}

#[derive(Debug)]
struct UnderWay {
    number: u64,
    question: EndQuestion,
    since: Instant,
}

impl Questions {
    /// A reader asks. Returns whether the other servers have to be asked now, with the question's number; else it waits for
    /// the one that is under way.
    pub(in crate::range) fn ask(&mut self, key: RangeKey, now: Instant) -> (EndTicket, bool) {
        let of_range = self.by_range.entry(key).or_default();
        if let Some(number) = of_range.next {
            return (EndTicket { key, number }, false);
        }
        self.last += 1;
        let number = self.last;
        let begins = of_range.under_way.is_none();
        if begins {
            of_range.begin(number, now);
        } else {
            of_range.next = Some(number);
        }
        (EndTicket { key, number }, begins)
    }

    /// The number of the question that is under way, and the question.
    pub(in crate::range) fn under_way(&self, key: RangeKey) -> Option<(u64, &EndQuestion)> {
        let under_way = self.by_range.get(&key)?.under_way.as_ref()?;
        Some((under_way.number, &under_way.question))
    }

    /// A server was asked with this question whether the range is fenced or sealed there, and has said so.
    pub(in crate::range) fn said(&mut self, key: RangeKey, number: u64, server: ServerId, is_fenced: bool) {
        let under_way = self
            .by_range
            .get_mut(&key)
            .and_then(|of_range| of_range.under_way.as_mut());
        if let Some(under_way) = under_way.filter(|under_way| under_way.number == number) {
            under_way.question.said(server, is_fenced);
        }
    }

    /// The question that is under way is answered. Returns the number of the next one, if it begins with that.
    pub(in crate::range) fn tell(&mut self, key: RangeKey, told: EndTold, now: Instant) -> Option<u64> {
        let of_range = self.by_range.get_mut(&key)?;
        let answered = of_range.under_way.take()?;
        of_range.told = Some((answered.number, told));
        let next = of_range.next.take()?;
        of_range.begin(next, now);
        Some(next)
    }

    /// What a reader is told; [`EndTold::Elsewhere`] also where the range is gone.
    pub(in crate::range) fn told(&self, ticket: EndTicket) -> EndTold {
        match self.by_range.get(&ticket.key) {
            None => EndTold::Elsewhere,
            Some(OfRange {
                told: Some((number, told)),
                ..
            }) if *number >= ticket.number => *told,
            Some(_) => EndTold::NotYet,
        }
    }

    /// The ranges whose question has waited for too long.
    pub(in crate::range) fn late(&self, now: Instant) -> Vec<RangeKey> {
        let is_late = |of_range: &OfRange| {
            let since = of_range.under_way.as_ref().map(|under_way| under_way.since);
            since.is_some_and(|since| now.saturating_duration_since(since) > PATIENCE)
        };
        let late = self.by_range.iter().filter(|(_, of_range)| is_late(of_range));
        late.map(|(key, _)| *key).collect()
    }

    /// The range is gone.
    pub(in crate::range) fn forget(&mut self, key: RangeKey) {
        self.by_range.remove(&key);
    }
}

impl OfRange {
    fn begin(&mut self, number: u64, now: Instant) {
        self.under_way = Some(UnderWay {
            number,
            question: EndQuestion::default(),
            since: now,
        });
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{RangeIndex, StreamId};

    use super::*;

    #[test]
    fn nobody_waits_for_ever() {
        let key = RangeKey {
            stream: StreamId(1),
            range: RangeIndex(0),
        };
        let mut questions = Questions::default();
        let begun = Instant::now();
        let (first, begins) = questions.ask(key, begun);
        assert!(begins && questions.late(begun + PATIENCE).is_empty());
        let (second, begins) = questions.ask(key, begun + PATIENCE);
        assert!(!begins);
        let late = begun + PATIENCE + Duration::from_millis(1);
        assert_eq!(questions.late(late), [key]);
        assert!(questions.tell(key, EndTold::Elsewhere, late).is_some());
        assert_eq!(questions.told(first), EndTold::Elsewhere);
        assert_eq!(questions.told(second), EndTold::NotYet);
        assert!(questions.late(late).is_empty());
        assert_eq!(questions.late(late + PATIENCE + PATIENCE), [key]);
        questions.forget(key);
        assert_eq!(questions.told(second), EndTold::Elsewhere);
    }
}
