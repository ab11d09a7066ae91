//! A range leaves the disk and is taken again, from its first offset on, whenever the power goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sbp_log::{Damage, EntryHead, EntryKind, FileSystem, Helpers, Log, LogConfig, LogEntry};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Offset, Position, RangeKey, WriterId};

use crate::common::{Acks, Opened, batch, entry, key, open, small_config};
use crate::marks::{at, read_from, verify};

/// The range that comes and goes.
const LEAVING: i64 = 1;
/// A range that stays, and fills files together with it.
const STAYING: i64 = 2;
const WRITER: WriterId = WriterId { high: 0, low: 7 };

/// What the owner of the log knows of the leaving range, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is here, for this time, counted from 0.
    Held(u64),
    /// It is to leave the disk.
    Leaving,
    /// The log has said that it has left the disk.
    Gone,
}

/// What the log has promised.
#[derive(Clone, Debug)]
struct History {
    known: Known,
    /// How many entries of the leaving range were handed over, and how many of them are acknowledged.
    sent: usize,
    acknowledged: usize,
    /// The acknowledged batches of the other one, by their offsets.
    staying: BTreeMap<i64, Vec<u8>>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            known: Known::Held(0),
            sent: 0,
            acknowledged: 0,
            staying: BTreeMap::new(),
        }
    }
}

/// The entries of one life of the leaving range: a fence, then batches. No other life has any of their bytes.
fn entries_of(life: u64) -> Vec<LogEntry<u64>> {
    let fence = LogEntry {
        head: EntryHead {
            key: key(LEAVING),
            kind: EntryKind::Fence,
            shared: true,
            writer: WRITER,
            writer_epoch: i64::try_from(life).unwrap() + 1,
            ..EntryHead::default()
        },
        prefix: Default::default(),
        chunks: Default::default(),
        context: 0,
    };
    let lengths = [900, 40, 7_000, 300, 12_000, 60];
    let batches = (0..).zip(lengths).map(|(offset, length)| {
        let number = 1_000 * (life + 1) + u64::try_from(offset).unwrap();
        let mut entry = entry(LEAVING, offset, 1, number, batch(number, length));
        entry.head.shared = true;
        entry
    });
    std::iter::once(fence).chain(batches).collect()
}

/// The bytes of an entry.
fn bytes_of(entry: &LogEntry<u64>) -> Vec<u8> {
    let chunks = entry.chunks.iter().flat_map(|chunk| chunk.iter().copied());
    entry.prefix.iter().copied().chain(chunks).collect()
}

/// Appends, and waits until it is known what became of it. `None` if it is not stored.
fn append(log: &Log<u64>, acks: &Acks, entry: LogEntry<u64>) -> Option<()> {
    let before = acks.all().len();
    log.append(vec![entry]).ok()?;
    acks.wait(before + 1);
    acks.all().pop()?.1.ok()
}

impl History {
    fn fill(&mut self, (log, _, acks): &Opened, length: usize) -> Option<()> {
        let offset = log.synced_end(key(STAYING)).unwrap_or_default().0;
        let number = 500_000 + u64::try_from(offset).unwrap();
        let bytes = batch(number, length);
        append(log, acks, entry(STAYING, offset, 1, number, bytes.clone()))?;
        self.staying.insert(offset, bytes.to_vec());
        Some(())
    }

    /// The range begins again, and is filled.
    fn hold(&mut self, opened: &Opened, life: u64) -> Option<()> {
        self.known = Known::Held(life);
        (self.sent, self.acknowledged) = (0, 0);
        for entry in entries_of(life) {
            self.sent += 1;
            append(&opened.0, &opened.2, entry)?;
            self.acknowledged = self.sent;
            self.fill(opened, 2_500)?;
        }
        Some(())
    }

    /// The range leaves the disk; as often as that is asked for, something else is appended.
    fn leave(&mut self, opened: &Opened) -> Option<()> {
        self.known = Known::Leaving;
        for _ in 0..20 {
            let gone = opened.0.clear(&[key(LEAVING)]).ok()?;
            if gone == [key(LEAVING)] {
                self.known = Known::Gone;
                return Some(());
            }
            assert_eq!(gone, []);
            self.fill(opened, 90)?;
        }
        panic!("it never goes: {:?}", opened.0.stats());
    }

    /// What is wrong with a log that came back, in words.
    fn complaint(&self, (log, recovered, _): &Opened) -> Option<String> {
        if recovered.damage != Damage::default() {
            return Some(format!("called damage: {recovered:?}"));
        }
        for (offset, bytes) in &self.staying {
            let got = log.read(key(STAYING), Offset(*offset), 0, true).ok()?;
            if got
                .first()
                .map(|got| got.bytes.clone().into_contiguous().to_vec())
                .as_ref()
                != Some(bytes)
            {
                return Some(format!("lost: the range that stays, at {offset}"));
            }
        }
        let found = || read_from(log, key(LEAVING), at(0, 0));
        match self.known {
            Known::Leaving => None,
            Known::Gone if log.ranges().contains(&key(LEAVING)) || log.holds(key(LEAVING)) => {
                Some("a start finds what has left the disk".to_owned())
            }
            Known::Gone => (!found().is_empty()).then(|| "read after it left".to_owned()),
            Known::Held(life) => {
                let found: Vec<_> = found().into_iter().map(|(_, head, bytes)| (head.kind, bytes)).collect();
                let sent = entries_of(life).into_iter().take(self.sent);
                let sent: Vec<_> = sent.map(|entry| (entry.head.kind, bytes_of(&entry))).collect();
                let fits = found.len() >= self.acknowledged && sent.starts_with(&found);
                (!fits).then(|| {
                    let kinds: Vec<_> = found.iter().map(|(kind, bytes)| (kind, bytes.len())).collect();
                    format!("life {life}: {kinds:?}, and {} are acknowledged", self.acknowledged)
                })
            }
        }
    }
}

/// Two lives of the range, each of which ends, and a third one.
fn lives(history: &mut History, fs: &SimFileSystem, config: &LogConfig) -> Option<()> {
    let opened = open(fs, config).ok()?;
    history.fill(&opened, 3_000)?;
    history.hold(&opened, 0)?;
    opened.0.checkpoint().ok()?;
    history.leave(&opened)?;
    history.fill(&opened, 40)?;
    history.hold(&opened, 1)?;
    opened.0.reclaim().ok()?;
    drop(opened);
    let opened = open(fs, config).ok()?;
    opened.0.end_range(key(LEAVING), at(6, 0));
    history.leave(&opened)?;
    history.fill(&opened, 40)?;
    opened.0.reclaim().ok()?;
    history.hold(&opened, 2)?;
    opened.0.shutdown().ok()
}

/// From whatever a start has found, the range goes and comes back, and another start finds that.
fn go_on(history: &mut History, fs: &SimFileSystem, config: &LogConfig) {
    let opened = open(fs, config).unwrap();
    if history.known != Known::Gone {
        history.leave(&opened).unwrap();
    }
    history.hold(&opened, 9).unwrap();
    drop(opened);
    let after = fs.power_cut(Survival::Nothing);
    assert_eq!(history.complaint(&open(&after, config).unwrap()), None);
}

fn pull_the_plug(config: &LogConfig) {
    let fs = SimFileSystem::new();
    let mut history = History::default();
    lives(&mut history, &fs, config).expect("the script does not even run");
    assert_eq!((history.known, history.acknowledged), (Known::Held(2), 7));
    let total = fs.operations();
    assert!(total > 150, "{total}");
    let mut states = BTreeMap::new();
    for cut in 1..=total {
        let fs = SimFileSystem::new();
        fs.power_off_at(cut);
        let mut history = History::default();
        lives(&mut history, &fs, config);
        *states.entry(format!("{:?}", history.known)).or_insert(0) += 1;
        for (way, disk) in fs.power_cuts(4, cut).into_iter().enumerate() {
            let opened = open(&disk, config).unwrap_or_else(|error| panic!("cut at {cut}, way {way}: {error}"));
            let complaint = history.complaint(&opened);
            assert_eq!(complaint, None, "cut at {cut}, way {way}: {:#?}", fs.trace());
            drop(opened);
            // The start may have written another one.
            let older = disk.power_cut(Survival::Nothing);
            if damage_newest_checkpoint(&older) {
                let opened = open(&older, config).unwrap_or_else(|error| panic!("cut at {cut}, older, {way}: {error}"));
                assert_eq!(history.complaint(&opened), None, "cut at {cut}, older, {way}");
                drop(opened);
                go_on(&mut history.clone(), &older, config);
            }
            go_on(&mut history.clone(), &disk, config);
        }
    }
    assert!(
        states.len() == 5 && states.values().all(|count| *count > 1),
        "{states:?}"
    );
}

/// Damages the newest of two checkpoints; false if there are not two.
fn damage_newest_checkpoint(fs: &SimFileSystem) -> bool {
    let names = fs.list(Path::new("/log")).unwrap();
    let mut checkpoints: Vec<_> = names
        .into_iter()
        .filter(|name| name.starts_with("checkpoint-") && !name.ends_with(".tmp"))
        .collect();
    checkpoints.sort();
    let Some(newest) = checkpoints.pop().filter(|_| !checkpoints.is_empty()) else {
        return false;
    };
    fs.damage(&Path::new("/log").join(newest), |bytes| bytes[30] ^= 1)
        .unwrap();
    true
}

#[test]
fn every_operation_of_a_range_that_leaves_and_comes_back() {
    pull_the_plug(&small_config());
}

#[test]
fn every_operation_where_files_are_rewritten_for_nothing_else() {
    pull_the_plug(&LogConfig {
        compaction_percent: 0,
        checkpoint_bytes: 1 << 30,
        ..small_config()
    });
}

/// The bytes of the leaving range that any file has.
fn on_disk(fs: &SimFileSystem, life: u64) -> usize {
    let names = fs.list(Path::new("/log")).unwrap();
    let files = names
        .iter()
        .map(|name| fs.contents(&Path::new("/log").join(name)).unwrap());
    let files: Vec<_> = files.collect();
    let marked = entries_of(life)
        .iter()
        .map(bytes_of)
        .filter(|bytes| bytes.len() > 32)
        .collect::<Vec<_>>();
    let has = |bytes: &&Vec<u8>| {
        files
            .iter()
            .any(|file| file.windows(32).any(|window| window == &bytes[..32]))
    };
    marked.iter().filter(has).count()
}

#[test]
fn its_bytes_leave_the_disk_of_a_log_that_nobody_appends_to() {
    for helpers in [Helpers::Inline, Helpers::Threads] {
        let config = LogConfig {
            helpers,
            ..small_config()
        };
        let fs = SimFileSystem::new();
        let opened = open(&fs, &config).unwrap();
        let (log, _, acks) = &opened;
        for entry in entries_of(0).into_iter().take(4) {
            append(log, acks, entry).unwrap();
        }
        assert_eq!(on_disk(&fs, 0), 3);
        let gone = std::iter::repeat_with(|| log.clear(&[key(LEAVING)]).unwrap()).find(|gone| !gone.is_empty());
        assert_eq!(gone, Some(vec![key(LEAVING)]));
        assert_eq!(on_disk(&fs, 0), 0);
        assert!(!log.holds(key(LEAVING)) && log.ranges().is_empty());
        // What is known of its writer stays: the stream may go on elsewhere.
        assert_eq!(log.clear(&[key(LEAVING)]).unwrap(), [key(LEAVING)], "gone is gone");
        for entry in entries_of(1) {
            append(log, acks, entry).unwrap();
        }
        log.close().unwrap();
        drop(opened);
        let found = verify(&fs, &config);
        assert_eq!(found.faults, [], "{found:?}");
        let (log, recovered, _) = open(&fs, &config).unwrap();
        assert!(recovered.clean, "{recovered:?}");
        assert_eq!(read_from(&log, key(LEAVING), at(0, 0)).len(), 7);
    }
}

#[test]
fn what_was_queued_before_is_not_taken_for_what_comes_after() {
    let config = small_config();
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    // Nobody waits for them.
    let count = entries_of(0).len();
    log.append(entries_of(0)).unwrap();
    let gone = std::iter::repeat_with(|| log.clear(&[key(LEAVING)]).unwrap()).find(|gone| !gone.is_empty());
    assert_eq!(gone, Some(vec![key(LEAVING)]));
    acks.wait(count);
    assert_eq!(log.end_position(key(LEAVING)), None);
    log.append(entries_of(1)).unwrap();
    acks.wait(2 * count);
    assert!(acks.all().iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(log.end_position(key(LEAVING)), Some(Position::start(Offset(6))));
    assert_eq!(on_disk(&fs, 0), 0);
}

#[test]
fn a_disk_without_room_keeps_it_and_says_so() {
    let config = small_config();
    let fs = SimFileSystem::new();
    let opened = open(&fs, &config).unwrap();
    let mut history = History::default();
    history.hold(&opened, 0).unwrap();
    fs.set_capacity(Some(fs.used()));
    history.known = Known::Leaving;
    let gone = opened.0.clear(&[key(LEAVING)]).unwrap_or_default();
    assert_eq!(gone, []);
    assert!(opened.0.holds(key(LEAVING)));
    fs.set_capacity(None);
    // Appends are refused until the log knows that there is room again.
    opened.0.look_for_room();
    let deadline = Instant::now() + Duration::from_secs(20);
    while history.fill(&opened, 10).is_none() {
        assert!(Instant::now() < deadline, "appends are refused for ever");
        std::thread::yield_now();
    }
    history.leave(&opened).unwrap();
    history.hold(&opened, 1).unwrap();
    assert_eq!(history.complaint(&opened), None);
}

#[test]
fn several_leave_together_and_others_stay() {
    let config = small_config();
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let send = |stream: i64, number: u64| {
        let offset = log.synced_end(key(stream)).unwrap_or_default().0;
        append(&log, &acks, entry(stream, offset, 1, number, batch(number, 3_000))).unwrap();
    };
    for round in 0..8 {
        (1..=6).for_each(|stream| send(stream, 10 * round + stream.cast_unsigned()));
    }
    let leaving: Vec<RangeKey> = [5, 1, 3, 9].map(key).into();
    let mut gone: Vec<RangeKey> = Vec::new();
    for _ in 0..10 {
        gone.extend(log.clear(&leaving).unwrap());
    }
    gone.sort_unstable();
    gone.dedup();
    assert_eq!(gone, [1, 3, 5, 9].map(key));
    assert_eq!(log.ranges(), [2, 4, 6].map(key));
    for stream in [2, 4, 6] {
        assert_eq!(read_from(&log, key(stream), at(0, 0)).len(), 8);
    }
}

/// A range to leave and one to stay in the first file, of which a byte is damaged.
fn damaged(at: usize) -> (SimFileSystem, LogConfig, History) {
    let config = LogConfig {
        checkpoint_bytes: 64 << 20,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let mut history = History::default();
    let opened = open(&fs, &config).unwrap();
    history.hold(&opened, 0).unwrap();
    for _ in 0..20 {
        history.fill(&opened, 5_000).unwrap();
    }
    fs.power_off();
    drop(opened);
    let fs = fs.power_cut(Survival::Everything);
    let mut names = fs.list(Path::new("/log")).unwrap();
    names.retain(|name| name.starts_with("segment-"));
    names.sort();
    fs.damage(&Path::new("/log").join(&names[0]), |bytes| bytes[at] ^= 1)
        .unwrap();
    (fs, config, history)
}

/// Where the first batches of the two ranges are, behind a fence.
const STAYING_BATCH: usize = 2 * 4_096 + 64 + 96 + 7;
const LEAVING_BATCH: usize = 3 * 4_096 + 64 + 96 + 7;

#[test]
fn a_range_leaves_although_records_of_it_are_damaged() {
    let (fs, config, mut history) = damaged(LEAVING_BATCH);
    let opened = open(&fs, &config).unwrap();
    let of_leaving = opened
        .1
        .damage
        .intervals
        .iter()
        .all(|damage| damage.key == key(LEAVING));
    assert!(of_leaving && !opened.1.damage.intervals.is_empty(), "{:?}", opened.1);
    history.leave(&opened).unwrap();
    drop(opened);
    let fs = fs.power_cut(Survival::Nothing);
    go_on(&mut history, &fs, &config);
}

#[test]
fn while_needed_records_are_damaged_no_range_leaves_that_may_be_beside_them() {
    let (fs, config, mut history) = damaged(STAYING_BATCH);
    let opened = open(&fs, &config).unwrap();
    let of_staying = opened
        .1
        .damage
        .intervals
        .iter()
        .all(|damage| damage.key == key(STAYING));
    assert!(of_staying && !opened.1.damage.intervals.is_empty(), "{:?}", opened.1);
    for _ in 0..5 {
        assert_eq!(opened.0.clear(&[key(LEAVING)]).unwrap(), []);
    }
    let bytes = history.staying[&0].clone();
    assert!(opened.0.repair(key(STAYING), Offset(0), &bytes).unwrap());
    history.leave(&opened).unwrap();
    drop(opened);
    let fs = fs.power_cut(Survival::Nothing);
    go_on(&mut history, &fs, &config);
}
