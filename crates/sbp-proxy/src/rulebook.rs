//! The rules of a proxy, and the decisions about frames.

use std::time::Duration;

use crate::rule::Pick;
use crate::{Action, Cut, Fault, Hook, Rule, Seen};

/// The id of a rule of a running proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(u64);

impl RuleId {
    /// The id with this number, whether or not such a rule exists.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number; rules are counted from 1 in the order in which they were added.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// A rule, and how often it has acted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RuleCount {
    /// The rule's id.
    pub id: RuleId,
    /// The rule itself.
    pub rule: Rule,
    /// The frames that matched its conditions.
    pub matched: u64,
    /// The frames that its fault happened to.
    pub fired: u64,
}

/// What to do with a frame.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    Pass,
    Drop,
    Delay(Duration),
    Duplicate,
    Reorder(u32),
    /// Pass on this many of its bytes, then cut the connection.
    Cut(u64),
    Hold(Hook),
}

impl Decision {
    pub(crate) const fn action(&self) -> Action {
        match self {
            Self::Pass => Action::Passed,
            Self::Drop => Action::Dropped,
            Self::Delay(_) => Action::Delayed,
            Self::Duplicate => Action::Duplicated,
            Self::Reorder(_) => Action::Reordered,
            Self::Cut(_) => Action::Cut,
            Self::Hold(_) => Action::Held,
        }
    }
}

/// The rules in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct RuleBook {
    entries: Vec<RuleCount>,
    next: u64,
    chance: fastrand::Rng,
}

impl RuleBook {
    pub(crate) fn new(rules: Vec<Rule>, seed: u64) -> Self {
        let mut book = Self {
            entries: Vec::new(),
            next: 1,
            chance: fastrand::Rng::with_seed(seed),
        };
        for rule in rules {
            book.add(rule);
        }
        book
    }

    pub(crate) fn add(&mut self, rule: Rule) -> RuleId {
        let id = RuleId(self.next);
        self.next += 1;
        self.entries.push(RuleCount {
            id,
            rule,
            matched: 0,
            fired: 0,
        });
        id
    }

    pub(crate) fn remove(&mut self, id: RuleId) -> Option<RuleCount> {
        let place = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.remove(place))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn counts(&self) -> Vec<RuleCount> {
        self.entries.clone()
    }

    /// Tries the rules in order. The first one that takes the frame decides, and later ones do not count it.
    pub(crate) fn decide(&mut self, seen: &Seen) -> Decision {
        let Self { entries, chance, .. } = self;
        let taker = entries.iter_mut().find_map(|entry| {
            let takes = entry.takes(seen, chance);
            takes.then_some(&*entry)
        });
        taker.map_or(Decision::Pass, |entry| entry.rule.decision(seen))
    }
}

impl RuleCount {
    fn takes(&mut self, seen: &Seen, chance: &mut fastrand::Rng) -> bool {
        if !self.rule.is_about(seen) {
            return false;
        }
        self.matched += 1;
        let picked = match self.rule.pick {
            Pick::All => true,
            Pick::Nth(n) => self.matched == n,
            Pick::Every(n) => self.matched.is_multiple_of(n),
            Pick::AtByte(byte) => (seen.start..seen.start + seen.length).contains(&byte),
            Pick::Chance(probability) => chance.f64() < probability,
        };
        let takes = picked && self.rule.times.is_none_or(|times| self.fired < times);
        self.fired += u64::from(takes);
        takes
    }
}

impl Rule {
    fn decision(&self, seen: &Seen) -> Decision {
        match &self.fault {
            Fault::Drop => Decision::Drop,
            Fault::Delay(time) => Decision::Delay(*time),
            Fault::Duplicate => Decision::Duplicate,
            Fault::Reorder(behind) => Decision::Reorder(*behind),
            Fault::Hold(hook) => Decision::Hold(hook.clone()),
            Fault::Cut(Cut::After) => Decision::Cut(seen.length),
            Fault::Cut(Cut::Inside(bytes)) => Decision::Cut(seen.length.min(*bytes)),
            Fault::Cut(Cut::Before) => match self.pick {
                Pick::AtByte(byte) => Decision::Cut(byte.saturating_sub(seen.start)),
                Pick::All | Pick::Nth(_) | Pick::Every(_) | Pick::Chance(_) => Decision::Cut(0),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_frame::{Flags, OpCode};

    use super::*;
    use crate::{Direction, Kind};

    fn sample(kind: Kind, opcode: OpCode, start: u64, length: u64) -> Seen {
        let direction = match kind {
            Kind::Request => Direction::ToServer,
            Kind::Answer => Direction::ToClient,
        };
        Seen {
            connection: 1,
            direction,
            kind,
            opcode,
            flags: Flags::NONE,
            call_id: 1,
            number: 1,
            start,
            length,
        }
    }

    /// The numbers, from 1, of those among `count` frames that the rule takes.
    fn taken(rule: &str, kind: Kind, opcode: OpCode, count: u64) -> Vec<u64> {
        let mut book = RuleBook::new(vec![rule.parse().unwrap()], 7);
        let seen = |number| sample(kind, opcode, (number - 1) * 100, 100);
        (1..=count)
            .filter(|&number| !matches!(book.decide(&seen(number)), Decision::Pass))
            .collect()
    }

    #[test]
    fn conditions_pick_frames() {
        let table: [(&str, &[u64]); 12] = [
            ("drop", &[1, 2, 3, 4, 5, 6]),
            ("drop answer APPEND", &[1, 2, 3, 4, 5, 6]),
            ("drop to-client nth=2", &[2]),
            ("drop every=3", &[3, 6]),
            ("drop every=2 times=2", &[2, 4]),
            ("drop byte=0", &[1]),
            ("drop byte=299", &[3]),
            ("drop byte=300", &[4]),
            ("drop request", &[]),
            ("drop FETCH", &[]),
            ("drop to-server", &[]),
            ("drop connection=2", &[]),
        ];
        for (rule, expected) in table {
            assert_eq!(taken(rule, Kind::Answer, OpCode::APPEND, 6), expected, "{rule}");
        }
    }

    #[test]
    fn requests_are_not_reordered() {
        assert!(taken("reorder", Kind::Request, OpCode::APPEND, 3).is_empty());
        assert_eq!(taken("reorder", Kind::Answer, OpCode::APPEND, 3).len(), 3);
    }

    #[test]
    fn chances_are_near_their_probability_and_the_same_for_the_same_seed() {
        let first = taken("drop probability=0.1", Kind::Answer, OpCode::APPEND, 10_000);
        assert!((900..1_100).contains(&first.len()), "{}", first.len());
        assert_eq!(
            first,
            taken("drop probability=0.1", Kind::Answer, OpCode::APPEND, 10_000)
        );
        assert!(taken("drop probability=0", Kind::Answer, OpCode::APPEND, 100).is_empty());
        assert_eq!(
            taken("drop probability=1", Kind::Answer, OpCode::APPEND, 100).len(),
            100
        );
    }

    #[test]
    fn the_first_rule_that_takes_a_frame_decides_and_others_do_not_count_it() {
        let rules = ["drop nth=2", "duplicate nth=2"].map(|rule| rule.parse().unwrap());
        let mut book = RuleBook::new(rules.into(), 0);
        let actions: Vec<_> = (0..4)
            .map(|_| book.decide(&sample(Kind::Request, OpCode::PING, 0, 20)).action())
            .collect();
        assert_eq!(
            actions,
            [Action::Passed, Action::Dropped, Action::Duplicated, Action::Passed]
        );
        let counts: Vec<_> = book.counts().iter().map(|count| (count.matched, count.fired)).collect();
        assert_eq!(counts, [(4, 1), (3, 1)]);
        let id = book.counts()[0].id;
        assert_eq!(book.remove(id).map(|count| count.fired), Some(1));
        assert!(book.remove(id).is_none());
    }

    #[test]
    fn cuts_fall_where_they_are_asked_for() {
        let seen = sample(Kind::Answer, OpCode::FETCH, 1_000, 100);
        for (rule, keep) in [
            ("cut", 0),
            ("cut=30", 30),
            ("cut=300", 100),
            ("cut-after", 100),
            ("cut byte=1042", 42),
            ("cut=7 byte=1042", 7),
        ] {
            let mut book = RuleBook::new(vec![rule.parse().unwrap()], 0);
            assert!(
                matches!(book.decide(&seen), Decision::Cut(bytes) if bytes == keep),
                "{rule}"
            );
        }
    }
}
