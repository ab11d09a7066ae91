//! The plug is pulled at every operation of a scripted load, and at every operation of the recoveries that follow.

use std::collections::{BTreeMap, HashMap, HashSet};

use sbp_log::{Durability, Log, LogConfig, LogError};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Offset, RangeKey};

use crate::common::{batch, entry, key, open, served, small_config};

type Served = BTreeMap<(RangeKey, i64), (i64, Vec<u8>)>;

/// Everything that was handed to the log, and what it promised.
#[derive(Clone, Debug, Default)]
struct History {
    /// By number: range, offset, records, bytes.
    sent: Vec<(RangeKey, i64, i64, Vec<u8>)>,
    acknowledged: HashSet<u64>,
    /// For lack of room.
    refused: HashSet<u64>,
    /// What a reader has seen once, it must see again.
    seen: Served,
}

/// One call to `append` each: stream, records and length of every batch. `None` waits for all before.
type Step = Option<&'static [(i64, i64, usize)]>;

const SHORT: &[Step] = &[
    Some(&[(1, 1, 200)]),
    None,
    Some(&[(1, 3, 700), (2, 2, 90)]),
    Some(&[(2, 1, 1_500)]),
    None,
    Some(&[(1, 1, 30)]),
    None,
];

/// Crosses segments, writes checkpoints, has groups of one and of many batches.
const LONG: &[Step] = &[
    Some(&[(1, 1, 3_000), (2, 5, 100), (3, 1, 6_000)]),
    None,
    Some(&[(1, 2, 9_000)]),
    Some(&[(2, 1, 500), (1, 1, 40)]),
    None,
    Some(&[(3, 7, 14_000)]),
    None,
    Some(&[(3, 1, 14_000), (1, 1, 2_000)]),
    None,
    Some(&[(2, 2, 12_000), (2, 2, 11_000)]),
    None,
    Some(&[(1, 1, 20_000)]),
    Some(&[(3, 1, 20), (2, 1, 20), (1, 1, 20)]),
    None,
    Some(&[(2, 1, 25_000)]),
    None,
    Some(&[(1, 4, 5_000)]),
    None,
];

impl History {
    /// Runs the script as far as it goes. Offsets continue where the log says.
    fn run(&mut self, fs: &SimFileSystem, config: &LogConfig, script: &[Step], shutdown: bool) {
        let Ok((log, _, acks)) = open(fs, config) else { return };
        let mut ends: HashMap<RangeKey, i64> = log
            .ranges()
            .into_iter()
            .map(|key| (key, log.synced_end(key).unwrap().0))
            .collect();
        let mut asked = 0;
        for step in script {
            let Some(batches) = step else {
                acks.wait(asked);
                // Where something was refused, its range continues from there.
                for (key, end) in &mut ends {
                    *end = log.synced_end(*key).unwrap_or_default().0;
                }
                continue;
            };
            let mut entries = Vec::new();
            let (first, before) = (self.sent.len() as u64, ends.clone());
            for (stream, count, length) in *batches {
                let number = self.sent.len() as u64;
                let bytes = batch(number, *length);
                let end = ends.entry(key(*stream)).or_default();
                self.sent.push((key(*stream), *end, *count, bytes.to_vec()));
                entries.push(entry(*stream, *end, *count, number, bytes));
                *end += count;
            }
            let more = entries.len();
            match log.append(entries) {
                Ok(()) => asked += more,
                Err(LogError::DiskFull) => {
                    self.refused.extend(first..first + more as u64);
                    ends = before;
                }
                // Also where what is queued before it in its range is refused by now.
                Err(_) => break,
            }
        }
        acks.wait(asked);
        // A reader was there: what it saw counts.
        self.seen.extend(read_what_can_be_read(&log));
        self.acknowledged.extend(acks.acknowledged());
        for (number, outcome) in acks.all() {
            if outcome.is_err_and(|error| matches!(*error, LogError::DiskFull)) {
                self.refused.insert(number);
            }
        }
        if shutdown {
            let _ = log.shutdown();
        }
    }

    /// What is wrong with a log that came back, in words.
    fn complaint(&self, served: &Served) -> Option<String> {
        for number in &self.acknowledged {
            let (key, offset, count, bytes) = &self.sent[usize::try_from(*number).unwrap()];
            match served.get(&(*key, *offset)) {
                None => return Some(format!("lost: {key} at {offset}, acknowledged as {number}")),
                Some(got) if got.0 != *count || got.1 != *bytes => {
                    return Some(format!("changed: {key} at {offset}, acknowledged as {number}"));
                }
                Some(_) => {}
            }
        }
        for ((key, offset), (count, bytes)) in served {
            let known = self
                .sent
                .iter()
                .any(|sent| (sent.0, sent.1, sent.2) == (*key, *offset, *count) && sent.3 == *bytes);
            if !known {
                return Some(format!("phantom: {key} at {offset}"));
            }
        }
        for number in &self.refused {
            let (key, offset, _, bytes) = &self.sent[usize::try_from(*number).unwrap()];
            if served.get(&(*key, *offset)).is_some_and(|(_, got)| got == bytes) {
                return Some(format!("refused and there: {key} at {offset}, sent as {number}"));
            }
        }
        for (place, content) in &self.seen {
            if served.get(place) != Some(content) {
                return Some(format!("seen once and gone: {} at {}", place.0, place.1));
            }
        }
        None
    }

    /// Opens a disk after a power cut, twice, the second time after another cut that leaves nothing unsynced.
    fn check(&mut self, fs: &SimFileSystem, config: &LogConfig) -> Result<(), String> {
        let before = fs.operations();
        let (log, recovered, _) = open(fs, config).map_err(|error| format!("refused: {error}"))?;
        if recovered.damage != sbp_log::Damage::default() {
            return Err(format!("called damage: {recovered:?}"));
        }
        let once = served(&log);
        drop(log);
        if let Some(complaint) = self.complaint(&once) {
            return Err(format!(
                "{complaint} (first recovery, {} operations)",
                fs.operations() - before
            ));
        }
        let again = fs.power_cut(Survival::Nothing);
        let (log, recovered_again, _) = open(&again, config).map_err(|error| format!("refused again: {error}"))?;
        if served(&log) != once || recovered_again.ranges != recovered.ranges {
            return Err("recovery twice is not recovery once".to_owned());
        }
        self.seen = once;
        Ok(())
    }
}

fn read_what_can_be_read(log: &Log<u64>) -> Served {
    let mut seen = Served::new();
    for key in log.ranges() {
        for stored in log.read(key, Offset(0), usize::MAX, true).unwrap_or_default() {
            let bytes = stored.bytes.into_contiguous().to_vec();
            seen.insert((key, stored.base_offset.0), (stored.count, bytes));
        }
    }
    seen
}

/// With segments of one size, and with segments that grow from one block for groups.
fn configs() -> [LogConfig; 2] {
    let growing = LogConfig {
        first_segment_bytes: 8 << 10,
        ..small_config()
    };
    [small_config(), growing]
}

/// How many operations the script takes without a crash.
fn operations(config: &LogConfig, scripts: &[&[Step]]) -> u64 {
    let fs = SimFileSystem::new();
    let mut history = History::default();
    for script in scripts {
        history.run(&fs, config, script, true);
    }
    assert_eq!(
        history.acknowledged.len(),
        history.sent.len(),
        "the script does not even run"
    );
    fs.operations()
}

/// Runs the scripts, each after a proper shutdown of the one before, with the power going at one operation.
fn crash_at(at: u64, config: &LogConfig, scripts: &[&[Step]]) -> (SimFileSystem, History) {
    let fs = SimFileSystem::new();
    fs.power_off_at(at);
    let mut history = History::default();
    for script in scripts {
        history.run(&fs, config, script, true);
    }
    (fs, history)
}

#[test]
fn every_operation_of_a_short_load_every_way_to_tear_it() {
    for config in configs() {
        let scripts: &[&[Step]] = &[SHORT, SHORT];
        let mut disks = 0;
        for at in 1..=operations(&config, scripts) {
            let (fs, history) = crash_at(at, &config, scripts);
            for (way, disk) in fs.power_cuts(64, at).into_iter().enumerate() {
                disks += 1;
                if let Err(complaint) = history.clone().check(&disk, &config) {
                    panic!("power cut at operation {at}, way {way}: {complaint}\n{:#?}", fs.trace());
                }
            }
        }
        assert!(disks > 300, "only {disks} disks");
    }
}

#[test]
fn every_operation_of_a_long_load() {
    for config in configs() {
        let scripts: &[&[Step]] = &[LONG];
        for at in 1..=operations(&config, scripts) {
            let (fs, history) = crash_at(at, &config, scripts);
            for (way, disk) in fs.power_cuts(5, at * 1_000).into_iter().enumerate() {
                if let Err(complaint) = history.clone().check(&disk, &config) {
                    panic!("power cut at operation {at}, way {way}: {complaint}\n{:#?}", fs.trace());
                }
            }
        }
    }
}

/// Fills a disk, with small batches to other ranges behind large ones.
const FILLING: &[Step] = &[
    Some(&[(1, 1, 3_000), (2, 1, 100)]),
    None,
    Some(&[(3, 1, 14_000)]),
    Some(&[(1, 1, 300)]),
    Some(&[(3, 1, 20_000)]),
    Some(&[(1, 1, 400)]),
    None,
    Some(&[(2, 1, 25_000)]),
    Some(&[(1, 1, 500)]),
    Some(&[(2, 1, 60)]),
    None,
    Some(&[(3, 1, 26_000)]),
    Some(&[(2, 1, 700)]),
    Some(&[(1, 2, 800)]),
    None,
    Some(&[(2, 1, 27_000)]),
    Some(&[(3, 1, 90)]),
    Some(&[(1, 1, 40)]),
    None,
];

#[test]
fn every_operation_of_a_load_on_a_disk_that_fills_up() {
    for config in configs() {
        let load = |capacity, at: Option<u64>| {
            let fs = SimFileSystem::new();
            fs.set_capacity(Some(capacity));
            at.into_iter().for_each(|at| fs.power_off_at(at));
            let mut history = History::default();
            history.run(&fs, &config, FILLING, true);
            (fs, history)
        };
        // Those where something is stored behind what is refused.
        let telling = (10..40).map(|blocks| blocks << 12).filter(|capacity| {
            let (_, history) = load(*capacity, None);
            let first = history.refused.iter().min();
            first.is_some_and(|first| history.acknowledged.iter().any(|number| number > first))
        });
        let telling: Vec<u64> = telling.collect();
        assert!(telling.len() > 3, "{telling:?}");
        for capacity in telling.into_iter().step_by(3) {
            for at in 1..=load(capacity, None).0.operations() {
                let (fs, history) = load(capacity, Some(at));
                for (way, disk) in fs.power_cuts(4, at * 1_000).into_iter().enumerate() {
                    if let Err(complaint) = history.clone().check(&disk, &config) {
                        panic!(
                            "{capacity}: power cut at {at}, way {way}: {complaint}\n{:#?}",
                            fs.trace()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn what_only_the_page_cache_has_is_made_durable_before_it_is_served() {
    for config in configs() {
        for at in 5..=operations(&config, &[LONG]) {
            let (fs, mut history) = crash_at(at, &config, &[LONG]);
            // The process is killed, a new one serves what it finds, and then the power goes.
            history
                .check(&fs.process_death(), &config)
                .unwrap_or_else(|complaint| panic!("killed at {at}: {complaint}"));
        }
    }
}

#[test]
fn every_operation_of_a_recovery() {
    for config in configs() {
        let scripts: &[&[Step]] = &[LONG];
        let total = operations(&config, scripts);
        for at in (5..=total).step_by(13) {
            let (fs, mut history) = crash_at(at, &config, scripts);
            let disk = fs.power_cut(Survival::Random(at));
            let clean = disk.power_cut(Survival::Everything);
            history
                .check(&clean, &config)
                .unwrap_or_else(|complaint| panic!("at {at}: {complaint}"));
            for crash in 1..=20 {
                let disk = disk.power_cut(Survival::Everything);
                disk.power_off_at(crash);
                let done = open(&disk, &config).is_ok();
                for disk in disk.power_cuts(4, at + crash) {
                    history
                        .clone()
                        .check(&disk, &config)
                        .unwrap_or_else(|complaint| panic!("at {at}, recovery cut at {crash}: {complaint}"));
                }
                if done {
                    break;
                }
            }
        }
    }
}

#[test]
fn life_goes_on_after_every_crash() {
    for config in configs() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut fs = SimFileSystem::new();
            let mut history = History::default();
            for life in 0..4 {
                fs.power_off_at(random.u64(5..80));
                let before = history.clone();
                history.run(&fs, &config, if random.bool() { SHORT } else { LONG }, random.bool());
                fs = fs.power_cut(Survival::Random(random.u64(..)));
                let lost = before.sent.len();
                if let Err(complaint) = history.check(&fs, &config) {
                    panic!(
                        "seed {seed}, life {life}, from batch {lost}: {complaint}\n{:#?}",
                        fs.trace()
                    );
                }
                fs = fs.power_cut(Survival::Nothing);
            }
        }
    }
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    let config = small_config();
    let total = operations(&config, &[LONG]);
    let mut losses = 0;
    for at in (20..=total).step_by(10) {
        let fs = SimFileSystem::new();
        fs.ignore_syncs();
        fs.power_off_at(at);
        let mut history = History::default();
        history.run(&fs, &config, LONG, true);
        let found_out = fs
            .power_cuts(4, at)
            .iter()
            .any(|disk| history.clone().check(disk, &config).is_err());
        losses += u64::from(found_out && !history.acknowledged.is_empty());
    }
    assert!(
        losses > 5,
        "the checker saw only {losses} losses on a disk that never syncs"
    );
}

#[test]
fn durability_none_loses_only_the_end() {
    let unsynced = |config| LogConfig {
        durability: Durability::None,
        ..config
    };
    for config in configs().map(unsynced) {
        for at in (5..=operations(&config, &[LONG])).step_by(3) {
            let (fs, mut history) = crash_at(at, &config, &[LONG]);
            // Nothing was promised to survive a power cut, but what comes back is whole and without gap.
            history.acknowledged.clear();
            history.seen.clear();
            for disk in fs.power_cuts(8, at) {
                history
                    .clone()
                    .check(&disk, &config)
                    .unwrap_or_else(|complaint| panic!("at {at}: {complaint}"));
                // The same under the stricter promise: what is found becomes durable.
                let strict = LogConfig {
                    durability: Durability::Fsync,
                    ..config.clone()
                };
                let disk = disk.power_cut(Survival::Everything);
                history
                    .clone()
                    .check(&disk, &strict)
                    .unwrap_or_else(|complaint| panic!("at {at}, strict: {complaint}"));
            }
        }
    }
}
