//! Whatever happens to a stream, its ranges tile its offsets and no offset is given twice.

use std::collections::VecDeque;

use super::*;

/// A stream under random orders, with a log that ends groups in order, well or not.
struct Play {
    random: fastrand::Rng,
    table: RangeTable,
    /// Batches that the log has: range, generation, first offset, behind the last.
    queued: VecDeque<(RangeKey, u32, Offset, Offset)>,
    /// Behind the last record that was ever acknowledged.
    acknowledged: Offset,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut table = RangeTable::default();
        table.scope = Scope::Everything;
        table.apply(Command::Open {
            stream: OPAQUE,
            facts: StreamFacts::default(),
            range: range(0, 0, 0, Phase::Open),
        });
        Self {
            random: fastrand::Rng::with_seed(seed),
            table,
            queued: VecDeque::new(),
            acknowledged: Offset::ZERO,
        }
    }

    fn last(&self) -> RangeState {
        self.table.stream(OPAQUE).unwrap().last().unwrap().clone()
    }

    fn step(&mut self) {
        let last = self.last();
        let key = last.key(OPAQUE);
        match self.random.u8(..16) {
            0..7 => self.append(),
            7..10 => self.sync(),
            10 => self.lose(),
            11 => {
                self.table.apply(Command::Seal { key });
            }
            12 => self.drain_and_publish(key),
            13 => {
                self.table.apply(Command::Unseal { key });
            }
            _ => {
                let start = Offset(self.random.i64(..=self.acknowledged.0));
                self.table.apply(Command::Trim { stream: OPAQUE, start });
            }
        }
    }

    fn append(&mut self) {
        let count = self.random.i64(1..5);
        let entry = with(OPAQUE, |entry| {
            entry.head = Ok(HeadFacts {
                record_count: count,
                is_fence: false,
                columns: None,
                claim: None,
            });
        });
        if let AppendDecision::Store {
            key,
            generation,
            base_offset,
            next_offset,
            ..
        } = judge(&mut self.table, &entry)
        {
            assert!(base_offset >= self.acknowledged, "{base_offset} was given before");
            self.queued.push_back((key, generation, base_offset, next_offset));
        }
    }

    /// The log syncs its oldest batch.
    fn sync(&mut self) {
        if let Some((key, _, base, end)) = self.queued.pop_front() {
            assert_eq!(base, self.acknowledged, "the log takes no gap");
            self.acknowledged = end;
            self.table.apply(Command::Confirm { key, end });
        }
    }

    /// The log has no room for anything it holds.
    fn lose(&mut self) {
        for (key, generation, base, _) in self.queued.drain(..) {
            self.table.apply(Command::Abandon { key, base, generation });
        }
    }

    /// The log is through; the end becomes durable, and the next range with it.
    fn drain_and_publish(&mut self, key: RangeKey) {
        let Effect::Seal(SealStep::Done(end)) = self.table.apply(Command::Drain { key }) else {
            return;
        };
        assert!(self.queued.is_empty());
        assert_eq!(end, self.acknowledged, "the end is what is synced");
        self.table.apply(Command::Publish { key, end });
        self.table.apply(Command::Open {
            stream: OPAQUE,
            facts: StreamFacts::default(),
            range: range(key.range.0 + 1, end.0, end.0, Phase::Open),
        });
    }

    fn check(&self) {
        let stream = self.table.stream(OPAQUE).unwrap();
        assert!(!stream.ranges.is_empty());
        for range in &stream.ranges {
            assert!(
                range.start <= range.confirmed && range.confirmed <= range.next,
                "{range:?}"
            );
            assert!(
                range.phase != Phase::Sealed || range.next == range.confirmed,
                "{range:?}"
            );
        }
        for pair in stream.ranges.windows(2) {
            assert_eq!(pair[0].phase, Phase::Sealed, "only the last one is open");
            assert_eq!(pair[0].confirmed, pair[1].start, "they tile");
        }
        assert_eq!(stream.confirmed_end(), self.acknowledged);
        assert!(stream.start <= self.acknowledged);
        // What is acknowledged and kept can be fetched.
        if stream.start < self.acknowledged {
            for offset in [stream.start.0, self.acknowledged.0 - 1] {
                let readiness = judged(&self.table, &fetch(OPAQUE, offset), WAITING);
                assert_eq!(shape(&readiness), "read", "offset {offset}: {readiness:?}");
            }
        }
    }
}

#[test]
fn random_orders_leave_ranges_that_tile_and_give_no_offset_twice() {
    let mut sealed = 0;
    for seed in 0..300 {
        let mut play = Play::new(seed);
        for _ in 0..200 {
            play.step();
            play.check();
        }
        sealed += play.last().index.0;
    }
    assert!(sealed > 500, "the orders seal too seldom: {sealed}");
}
