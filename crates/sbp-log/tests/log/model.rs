//! Random operations against a model that is a map.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sbp_log::{Helpers, LogConfig};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Offset, TimestampMs};

use crate::common::{Opened, batch, entry, key, open, served, small_config};

#[derive(Clone, Debug)]
enum Op {
    /// Batches in one call: stream, records, length.
    Append(Vec<(i64, i64, usize)>),
    Read {
        stream: i64,
        from: i64,
        max_bytes: usize,
    },
    Find {
        stream: i64,
        from: i64,
        time: i64,
    },
    /// All but the newest batches.
    Release {
        stream: i64,
        keep: usize,
    },
    Checkpoint,
    Reclaim,
    Shutdown,
    PowerCut(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let one = (
        1..4i64,
        1..5i64,
        prop_oneof![4 => 1..2_000usize, 1 => 2_000..24_000usize],
    );
    prop_oneof![
        8 => prop::collection::vec(one, 1..6).prop_map(Op::Append),
        4 => (1..4i64, 0..40i64, 0..20_000usize)
            .prop_map(|(stream, from, max_bytes)| Op::Read { stream, from, max_bytes }),
        2 => (1..4i64, 0..40i64, 1_000..1_050i64).prop_map(|(stream, from, time)| Op::Find { stream, from, time }),
        2 => (1..4i64, 0..6usize).prop_map(|(stream, keep)| Op::Release { stream, keep }),
        1 => Just(Op::Checkpoint),
        2 => Just(Op::Reclaim),
        1 => Just(Op::Shutdown),
        1 => any::<u64>().prop_map(Op::PowerCut),
    ]
}

/// Per stream: base offset to records and bytes, all acknowledged.
type Model = BTreeMap<i64, BTreeMap<i64, (i64, Vec<u8>)>>;

struct World {
    fs: SimFileSystem,
    config: LogConfig,
    opened: Option<Opened>,
    model: Model,
    released: BTreeMap<i64, i64>,
    numbers: u64,
}

impl World {
    fn end(&self, stream: i64) -> i64 {
        self.model
            .get(&stream)
            .and_then(BTreeMap::last_key_value)
            .map_or(0, |(base, (count, _))| base + count)
    }

    fn append(&mut self, batches: &[(i64, i64, usize)]) {
        let mut entries = Vec::new();
        for (stream, count, length) in batches {
            let end = self.end(*stream);
            let bytes = batch(self.numbers, *length);
            self.model
                .entry(*stream)
                .or_default()
                .insert(end, (*count, bytes.to_vec()));
            entries.push(entry(*stream, end, *count, self.numbers, bytes));
            self.numbers += 1;
        }
        let (log, _, acks) = self.opened.as_ref().unwrap();
        let before = acks.all().len();
        log.append(entries).unwrap();
        acks.wait(before + batches.len());
        assert!(acks.all().iter().all(|(_, outcome)| outcome.is_ok()));
    }

    fn read(&self, stream: i64, from: i64, max_bytes: usize) {
        let (log, ..) = self.opened.as_ref().unwrap();
        let at_least_one = max_bytes.is_multiple_of(2);
        let got = match log.read(key(stream), Offset(from), max_bytes, at_least_one) {
            Ok(got) => got,
            Err(error) => {
                assert!(from < self.released.get(&stream).copied().unwrap_or(0), "{error}");
                return;
            }
        };
        let batches = self
            .model
            .get(&stream)
            .into_iter()
            .flatten()
            .filter(|(base, (count, _))| *base + count > from);
        let mut room = max_bytes;
        let mut expected = Vec::new();
        for (base, (count, bytes)) in batches {
            if bytes.len() > room && !(at_least_one && expected.is_empty()) {
                break;
            }
            room = room.saturating_sub(bytes.len());
            expected.push((*base, *count, bytes.clone()));
        }
        let got: Vec<_> = got
            .into_iter()
            .map(|stored| {
                (
                    stored.base_offset.0,
                    stored.count,
                    stored.bytes.into_contiguous().to_vec(),
                )
            })
            .collect();
        // A read may stop where a segment's index has to be fetched, but never empty-handed.
        assert!(expected.starts_with(&got), "{stream} from {from}");
        assert_eq!(got.is_empty(), expected.is_empty(), "{stream} from {from}");
    }

    fn find(&self, stream: i64, from: i64, time: i64) {
        let (log, ..) = self.opened.as_ref().unwrap();
        if from < self.released.get(&stream).copied().unwrap_or(0) {
            return;
        }
        let found = log
            .find_timestamp(key(stream), Offset(from), TimestampMs(time))
            .unwrap();
        let batches = self.model.get(&stream).into_iter().flatten();
        let mut later = batches.filter(|(base, (count, _))| *base + count > from && 1_000 + *base >= time);
        assert_eq!(found.map(|offset| offset.0), later.next().map(|(base, _)| *base));
    }

    fn release(&mut self, stream: i64, keep: usize) {
        let Some(batches) = self.model.get(&stream) else { return };
        let below = match keep {
            0 => self.end(stream),
            _ => match batches.keys().rev().nth(keep - 1) {
                Some(below) => *below,
                None => return,
            },
        };
        let released = self.released.entry(stream).or_default();
        *released = (*released).max(below);
        self.opened.as_ref().unwrap().0.release(key(stream), Offset(below));
    }

    /// Everything acknowledged and not released is served; nothing else is.
    fn reopen(&mut self) {
        let opened = open(&self.fs, &self.config).unwrap();
        assert_eq!(opened.1.damage, sbp_log::Damage::default());
        let now = served(&opened.0);
        for (stream, batches) in &self.model {
            let released = self.released.get(stream).copied().unwrap_or(0);
            for (base, content) in batches {
                let got = now.get(&(key(*stream), *base));
                assert!(
                    got == Some(content) || (got.is_none() && *base < released),
                    "{stream} at {base}"
                );
            }
        }
        let known = |(key, base): &(sbp_types::RangeKey, i64)| self.model[&key.stream.0].contains_key(base);
        assert!(now.keys().all(known));
        self.opened = Some(opened);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Append(batches) => self.append(batches),
            Op::Read {
                stream,
                from,
                max_bytes,
            } => self.read(*stream, *from, *max_bytes),
            Op::Find { stream, from, time } => self.find(*stream, *from, *time),
            Op::Release { stream, keep } => self.release(*stream, *keep),
            Op::Checkpoint => self.opened.as_ref().unwrap().0.checkpoint().unwrap(),
            Op::Reclaim => drop(self.opened.as_ref().unwrap().0.reclaim().unwrap()),
            Op::Shutdown => {
                let (log, ..) = self.opened.take().unwrap();
                let before = served(&log);
                log.shutdown().unwrap();
                self.fs = self.fs.power_cut(Survival::Nothing);
                self.reopen();
                let (log, recovered, _) = self.opened.as_ref().unwrap();
                assert!(recovered.clean);
                // Upkeep may have given up more of what is released meanwhile.
                assert!(served(log).keys().all(|place| before.contains_key(place)));
            }
            Op::PowerCut(seed) => {
                self.fs.power_off();
                self.opened = None;
                self.fs = self.fs.power_cut(Survival::Random(*seed));
                self.reopen();
            }
        }
    }
}

fn run(ops: &[Op], helpers: Helpers) {
    let config = LogConfig {
        helpers,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let opened = Some(open(&fs, &config).unwrap());
    let (model, released) = (Model::new(), BTreeMap::new());
    let mut world = World {
        fs,
        config,
        opened,
        model,
        released,
        numbers: 0,
    };
    for op in ops {
        world.apply(op);
    }
    world.apply(&Op::PowerCut(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_a_map_that_outlives_power_cuts(ops in prop::collection::vec(op(), 1..40), threads: bool) {
        run(&ops, if threads { Helpers::Threads } else { Helpers::Inline });
    }
}
