//! Random lives of a stream with copies elsewhere: entries, confirmations, ends, and power cuts between them.

use proptest::prelude::*;
use sbp_log::{Helpers, LogConfig};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Position, StreamId};

use crate::common::{Opened, open, small_config};
use crate::marks::range;
use crate::shared::History;

#[derive(Clone, Debug)]
enum Op {
    /// By a writer, of a length.
    Batch(u64, usize),
    Fence(u64),
    /// To a stream without copies elsewhere.
    Alone(usize),
    /// All but so many entries of the newest range.
    Confirm(usize),
    /// The newest range ends before so many of its entries, but not before one that is confirmed, and the next one begins
    /// with so many parts.
    Next(usize, usize),
    Checkpoint,
    Reclaim,
    Shutdown,
    PowerCut(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (1..4u64, prop_oneof![4 => 1..900usize, 1 => 2_000..15_000usize]).prop_map(|(by, length)| Op::Batch(by, length)),
        2 => (1..4u64).prop_map(Op::Fence),
        2 => (1..9_000usize).prop_map(Op::Alone),
        4 => (0..4usize).prop_map(Op::Confirm),
        2 => (0..5usize, 1..4usize).prop_map(|(behind, parts)| Op::Next(behind, parts)),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Reclaim),
        1 => Just(Op::Shutdown),
        2 => any::<u64>().prop_map(Op::PowerCut),
    ]
}

const STREAMS: [StreamId; 2] = [StreamId(1), StreamId(2)];

struct World {
    fs: SimFileSystem,
    config: LogConfig,
    opened: Opened,
    history: History,
    newest: i32,
    epoch: i64,
}

impl World {
    fn wait(&mut self, before: usize, count: usize) {
        self.opened.2.wait(before + count);
        assert!(self.opened.2.all().iter().all(|(_, outcome)| outcome.is_ok()));
        self.history.acknowledged = self.history.numbers;
    }

    fn apply(&mut self, op: &Op) {
        let (key, history, log) = (range(1, self.newest), &mut self.history, &self.opened.0);
        let before = self.opened.2.all().len();
        match op {
            Op::Batch(by, length) => {
                assert!(history.batch(log, key, *by, *length, true));
                self.wait(before, 1);
            }
            Op::Fence(by) => {
                self.epoch += 1;
                assert!(history.fence(log, key, *by, self.epoch));
                self.wait(before, 1);
            }
            Op::Alone(length) => {
                assert!(history.batch(log, range(2, 0), 9, *length, false));
                self.wait(before, 1);
            }
            Op::Confirm(but) => history.confirm(log, key, *but),
            Op::Next(behind, parts) => self.next(*behind, *parts),
            Op::Checkpoint => log.checkpoint().unwrap(),
            Op::Reclaim => drop(log.reclaim().unwrap()),
            Op::Shutdown => {
                log.close().unwrap();
                self.restart(Survival::Nothing);
            }
            Op::PowerCut(seed) => self.restart(Survival::Random(*seed)),
        }
        let log = &self.opened.0;
        assert_eq!(self.history.complaint(log, &STREAMS), None, "after {op:?}");
    }

    fn next(&mut self, behind: usize, parts: usize) {
        let (key, log) = (range(1, self.newest), &self.opened.0);
        let confirmed = self.history.confirmed.get(&key).copied().unwrap_or_default();
        let sent = self.history.ranges.get(&key).map_or(&[][..], Vec::as_slice);
        let before = sent.len().checked_sub(behind + 1).map(|last| sent[last].end);
        // No end is within the state of the writers.
        let least = sent.iter().rfind(|sent| sent.head.count == 0 && !sent.head.is_fence());
        let least = least.map_or(Position::default(), |least| least.end);
        let end = before.unwrap_or_default().max(confirmed).max(least);
        self.history.end_range(log, key, end);
        let known = self.history.expected(log, StreamId(1));
        self.history.resume(&known);
        self.newest += 1;
        let before = self.opened.2.all().len();
        assert!(
            self.history
                .begin(&self.opened.0, range(1, self.newest), end.offset.0, parts, true)
        );
        self.wait(before, parts);
    }

    fn restart(&mut self, survival: Survival) {
        self.fs.power_off();
        self.fs = self.fs.power_cut(survival);
        self.opened = open(&self.fs, &self.config).unwrap();
        assert_eq!(self.opened.1.damage, sbp_log::Damage::default());
    }
}

fn run(ops: &[Op], helpers: Helpers, compaction_percent: u8) {
    let config = LogConfig {
        helpers,
        compaction_percent,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let opened = open(&fs, &config).unwrap();
    let mut world = World {
        fs,
        config,
        opened,
        history: History::default(),
        newest: 0,
        epoch: 0,
    };
    for op in ops {
        world.apply(op);
    }
    world.apply(&Op::PowerCut(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_counts_is_what_was_confirmed(
        ops in prop::collection::vec(op(), 1..40), threads: bool, percent in prop_oneof![Just(50u8), Just(100)],
    ) {
        run(&ops, if threads { Helpers::Threads } else { Helpers::Inline }, percent);
    }
}
