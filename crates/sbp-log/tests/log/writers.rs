//! Idempotent writers, seals and trims under power cuts: the invariants I1 to I8 of a range, all at once.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use sbp_log::{EntryHead, EntryKind, ForgetWriters, Log, LogConfig, LogEntry, Recovered, WriterKey, WriterState};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Offset, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

use crate::common::{batch, open, served, small_config};

/// What a script does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One call: stream, range, writer (0 for none), length.
    Append(&'static [(i64, i32, u64, usize)]),
    /// The writer is opened again: stream, range, writer.
    Fence(i64, i32, u64),
    /// Until everything has ended.
    Wait,
    /// Nothing follows in this range.
    Seal(i64, i32),
    /// Everything but so many of the last records.
    Release(i64, i32, i64),
    Checkpoint,
    /// Rewrite what is left, and checkpoints.
    Reclaim,
}

use Step::{Append, Checkpoint, Fence, Reclaim, Release, Seal, Wait};

/// Four writers; two streams that are trimmed to nothing, one that goes on in another range after a seal. Writers are
/// opened again behind what they have on its way, in a segment of its own, right behind a seal, and without ever writing.
const SCRIPT: &[Step] = &[
    Append(&[(1, 0, 7, 3_000), (2, 0, 8, 100), (1, 0, 0, 50)]),
    Wait,
    Append(&[(1, 0, 7, 9_000)]),
    Fence(1, 0, 7),
    Append(&[(1, 0, 7, 2_000), (2, 0, 8, 500)]),
    Fence(1, 0, 7),
    Fence(2, 0, 6),
    Wait,
    Append(&[(3, 0, 9, 14_000)]),
    Append(&[(3, 0, 0, 12_000)]),
    Wait,
    Release(1, 0, 1),
    Release(2, 0, 0),
    Append(&[(3, 0, 9, 20_000)]),
    Append(&[(1, 0, 7, 300)]),
    Seal(1, 0),
    Fence(1, 0, 7),
    Append(&[(1, 1, 7, 10_000), (3, 0, 0, 15_000)]),
    Wait,
    Release(1, 0, 0),
    Release(3, 0, 0),
    Reclaim,
    Append(&[(1, 1, 7, 25_000)]),
    Wait,
    Append(&[(1, 1, 0, 25_000)]),
    Wait,
    Checkpoint,
    Append(&[(1, 1, 0, 28_000)]),
    Fence(3, 0, 9),
    Append(&[(1, 1, 7, 28_000), (1, 1, 7, 10)]),
    Wait,
    Checkpoint,
];

fn key(stream: i64, range: i32) -> RangeKey {
    RangeKey {
        stream: StreamId(stream),
        range: RangeIndex(range),
    }
}

/// Bytes that tell which they are and have no sector of zeros; cheap, because thousands of lives make them.
fn payload(number: u64, length: usize) -> Bytes {
    let mut bytes = vec![u8::try_from(number % 251 + 1).unwrap(); length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes.into()
}

/// A batch that was handed to the log.
#[derive(Clone, Debug)]
struct Sent {
    head: EntryHead,
    /// Numbers what is in it: a batch that is sent again has the same.
    payload: u64,
    bytes: Bytes,
    acknowledged: bool,
}

/// A batch that a writer has made.
#[derive(Clone, Debug)]
struct Made {
    range: RangeKey,
    base_sequence: i64,
    payload: u64,
    bytes: Bytes,
    acknowledged: bool,
}

/// All that the world outside the log knows.
#[derive(Clone, Debug, Default)]
struct History {
    sent: Vec<Sent>,
    made: BTreeMap<WriterKey, Vec<Made>>,
    sealed: BTreeMap<RangeKey, Offset>,
    released: BTreeMap<RangeKey, Offset>,
    payloads: u64,
}

/// What a server does with a writer's batch.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Append,
    Repeat,
    Refuse,
}

fn judge(state: Option<&WriterState>, base_sequence: i64, count: i64) -> Verdict {
    let Some(state) = state else { return Verdict::Append };
    let same = |batch: &sbp_log::WriterBatch| (batch.base_sequence, batch.count) == (base_sequence, count);
    if state.window.iter().any(same) {
        Verdict::Repeat
    } else if state.next_sequence == base_sequence {
        Verdict::Append
    } else {
        Verdict::Refuse
    }
}

/// A server in one of its lives: the log and what it keeps in memory.
struct Server {
    log: Log<u64>,
    acks: std::sync::Arc<crate::common::Acks>,
    ends: HashMap<RangeKey, Offset>,
    writers: HashMap<WriterKey, WriterState>,
    asked: usize,
    /// Numbers of what is on its way: context to index in `History::sent`.
    numbers: Vec<usize>,
}

const COUNT: i64 = 3;

impl Server {
    fn start(fs: &SimFileSystem, config: &LogConfig) -> Option<(Self, Recovered)> {
        let (log, recovered, acks) = open(fs, config).ok()?;
        let ends = recovered
            .ranges
            .iter()
            .map(|(key, end)| (*key, end.next_offset))
            .collect();
        let server = Self {
            log,
            acks,
            ends,
            writers: recovered.writers.iter().cloned().collect(),
            asked: 0,
            numbers: Vec::new(),
        };
        Some((server, recovered))
    }

    /// Hands batches to the log, unless their writers are known to have stored them. None for no batch.
    fn append(&mut self, history: &mut History, batches: &[(RangeKey, WriterId, Made)]) {
        let mut entries = Vec::new();
        for (range, writer, made) in batches {
            let writer_key = WriterKey {
                stream: range.stream,
                writer: *writer,
            };
            if writer.is_some() && judge(self.writers.get(&writer_key), made.base_sequence, COUNT) != Verdict::Append {
                continue;
            }
            let end = self.ends.entry(*range).or_default();
            let head = EntryHead {
                key: *range,
                base_offset: *end,
                count: COUNT,
                append_time: TimestampMs(1_000),
                max_timestamp: TimestampMs(1_000),
                writer: *writer,
                writer_epoch: self.writers.get(&writer_key).map_or(0, |state| state.epoch),
                base_sequence: made.base_sequence,
                ..EntryHead::default()
            };
            *end = head.end_offset().unwrap();
            if writer.is_some() {
                self.writers.entry(writer_key).or_default().record(&head);
            }
            entries.push(LogEntry {
                head,
                prefix: smallvec::SmallVec::new(),
                chunks: std::iter::once(made.bytes.clone()).collect(),
                context: self.numbers.len() as u64,
            });
            self.numbers.push(history.sent.len());
            history.sent.push(Sent {
                head,
                payload: made.payload,
                bytes: made.bytes.clone(),
                acknowledged: false,
            });
        }
        let more = entries.len();
        if self.log.append(entries).is_ok() {
            self.asked += more;
        }
    }

    /// Makes the next epoch of a writer current.
    fn fence(&mut self, history: &mut History, range: RangeKey, writer: WriterId) {
        let writer_key = WriterKey {
            stream: range.stream,
            writer,
        };
        let state = self.writers.entry(writer_key).or_default();
        let head = EntryHead {
            key: range,
            kind: EntryKind::Fence,
            base_offset: self.ends.get(&range).copied().unwrap_or_default(),
            append_time: TimestampMs(1_000),
            writer,
            writer_epoch: state.epoch.max(0) + 1,
            base_sequence: state.next_sequence,
            ..EntryHead::default()
        };
        state.record(&head);
        let entry = LogEntry {
            head,
            prefix: smallvec::SmallVec::new(),
            chunks: smallvec::SmallVec::new(),
            context: self.numbers.len() as u64,
        };
        history.payloads += 1;
        self.numbers.push(history.sent.len());
        history.sent.push(Sent {
            head,
            payload: history.payloads,
            bytes: Bytes::new(),
            acknowledged: false,
        });
        if self.log.append(vec![entry]).is_ok() {
            self.asked += 1;
        }
    }

    /// Waits for what is on its way and tells the writers.
    fn wait(&self, history: &mut History) {
        self.acks.wait(self.asked);
        for number in self.acks.acknowledged() {
            let Some(index) = self.numbers.get(usize::try_from(number).unwrap()) else {
                continue;
            };
            let sent = &mut history.sent[*index];
            sent.acknowledged = true;
            let writer_key = WriterKey {
                stream: sent.head.key.stream,
                writer: sent.head.writer,
            };
            for made in history.made.get_mut(&writer_key).into_iter().flatten() {
                made.acknowledged |= made.payload == sent.payload;
            }
        }
    }
}

const BARRIER: u64 = u64::MAX;

impl History {
    /// One life: writers send again what they have no answer for, and the last that was answered; then the script.
    fn live(&mut self, fs: &SimFileSystem, config: &LogConfig) -> Option<()> {
        let (mut server, _) = Server::start(fs, config)?;
        for (range, below) in self.released.clone() {
            server.log.release(range, below);
        }
        for (writer_key, made) in self.made.clone() {
            let last_answered = made.iter().rposition(|made| made.acknowledged);
            for (number, made) in made.iter().enumerate() {
                if !made.acknowledged || Some(number) == last_answered {
                    let open = self.open_range(made.range);
                    server.append(self, &[(open, writer_key.writer, made.clone())]);
                }
            }
        }
        server.wait(self);
        for step in SCRIPT {
            self.step(&mut server, *step)?;
        }
        let asked = server.asked;
        server.acks.wait(asked);
        server.log.shutdown().ok()
    }

    /// Where a writer's batch goes now.
    fn open_range(&self, range: RangeKey) -> RangeKey {
        if self.sealed.contains_key(&range) {
            key(range.stream.0, range.range.0 + 1)
        } else {
            range
        }
    }

    fn step(&mut self, server: &mut Server, step: Step) -> Option<()> {
        match step {
            Append(batches) => {
                let mut entries = Vec::new();
                for (stream, range, writer, length) in batches {
                    let range = self.open_range(key(*stream, *range));
                    let writer = WriterId { high: 0, low: *writer };
                    let made = self.make(range, writer, *length);
                    entries.push((range, writer, made));
                }
                server.append(self, &entries);
            }
            Fence(stream, range, writer) => {
                let range = self.open_range(key(stream, range));
                server.fence(self, range, WriterId { high: 0, low: writer });
            }
            Wait => server.wait(self),
            Seal(stream, range) => {
                let range = key(stream, range);
                server.log.barrier(BARRIER).ok()?;
                server.asked += 1;
                server.wait(self);
                let ended = server.acks.all();
                let done = ended
                    .iter()
                    .any(|(number, outcome)| *number == BARRIER && outcome.is_ok());
                done.then_some(())?;
                let end = server.log.synced_end(range).unwrap_or_default();
                self.sealed.entry(range).or_insert(end);
            }
            Release(stream, range, keep) => {
                let range = key(stream, range);
                let end = server.log.synced_end(range).unwrap_or_default().0;
                let below = Offset((end - keep).max(0));
                let below = below.max(self.released.get(&range).copied().unwrap_or_default());
                self.released.insert(range, below);
                server.log.release(range, below);
            }
            Checkpoint => server.log.checkpoint().ok()?,
            Reclaim => drop(server.log.reclaim().ok()?),
        }
        Some(())
    }

    fn make(&mut self, range: RangeKey, writer: WriterId, length: usize) -> Made {
        let writer_key = WriterKey {
            stream: range.stream,
            writer,
        };
        self.payloads += 1;
        let made = Made {
            range,
            base_sequence: 0,
            payload: self.payloads,
            bytes: payload(self.payloads, length),
            acknowledged: false,
        };
        if !writer.is_some() {
            return made;
        }
        let all = self.made.entry(writer_key).or_default();
        let base_sequence = all.last().map_or(0, |last| last.base_sequence + COUNT);
        let made = Made { base_sequence, ..made };
        all.push(made.clone());
        made
    }

    /// Opens what a crash left, twice; in words what is wrong.
    fn check(&mut self, fs: &SimFileSystem, config: &LogConfig) -> Result<(), String> {
        let (server, recovered) = Server::start(fs, config).ok_or("refused")?;
        if recovered.damage != sbp_log::Damage::default() {
            return Err(format!("called damage: {:?}", recovered.damage));
        }
        let now = served(&server.log);
        self.complain(&now, &recovered)?;
        drop(server);
        let again = fs.power_cut(Survival::Nothing);
        let (_, twice) = Server::start(&again, config).ok_or("refused again")?;
        if twice.ranges != recovered.ranges || twice.writers != recovered.writers {
            return Err("I7: recovery twice is not recovery once".to_owned());
        }
        Ok(())
    }

    fn complain(
        &mut self,
        served: &BTreeMap<(RangeKey, i64), (i64, Vec<u8>)>,
        recovered: &Recovered,
    ) -> Result<(), String> {
        let epoch = |sent: &Sent| {
            let key = WriterKey::of(&sent.head);
            let found = recovered.writers.iter().find(|(found, _)| Some(*found) == key);
            found.map(|(_, state)| state.epoch)
        };
        let stands = |sent: &Sent| {
            if sent.head.is_fence() {
                return epoch(sent) >= Some(sent.head.writer_epoch);
            }
            let got = served.get(&(sent.head.key, sent.head.base_offset.0));
            got.is_some_and(|(count, bytes)| *count == COUNT && *bytes == sent.bytes)
        };
        for sent in self.sent.iter().filter(|sent| sent.acknowledged) {
            let released = self.released.get(&sent.head.key).copied().unwrap_or_default();
            // Lost fences are found below: what is left of them is in the writers alone.
            if !stands(sent) && !sent.head.is_fence() && sent.head.end_offset().unwrap() > released {
                return Err(format!("I1, I3: lost {:?}", sent.head));
            }
        }
        let batches = self.sent.iter().filter(|sent| !sent.head.is_fence());
        let known: usize = batches.filter(|sent| stands(sent)).count();
        if known < served.len() {
            return Err("I5: something nobody sent".to_owned());
        }
        for (range, end) in &self.sealed {
            let now = recovered.ranges.iter().find(|(key, _)| key == range);
            if now.is_some_and(|(_, now)| now.next_offset != *end) {
                return Err(format!("I4: {range} was sealed at {end} and ends at {now:?}"));
            }
        }
        // What never made it is no part of the log any more; what did will stay.
        self.sent.retain(|sent| sent.acknowledged || stands(sent));
        for sent in &mut self.sent {
            sent.acknowledged = true;
        }
        let mut writers: BTreeMap<WriterKey, WriterState> = BTreeMap::new();
        let mut stored: HashMap<u64, u32> = HashMap::new();
        for sent in self.sent.iter().filter(|sent| sent.head.writer.is_some()) {
            writers
                .entry(WriterKey::of(&sent.head).unwrap())
                .or_default()
                .record(&sent.head);
            let times = stored.entry(sent.payload).or_default();
            *times += 1;
            if *times > 1 {
                return Err(format!("I5: stored twice for one writer and sequence: {:?}", sent.head));
            }
        }
        let rebuilt: Vec<_> = writers.into_iter().collect();
        if rebuilt != recovered.writers {
            return Err(format!("I8: {:?} instead of {rebuilt:?}", recovered.writers));
        }
        Ok(())
    }
}

fn operations(config: &LogConfig) -> u64 {
    let fs = SimFileSystem::new();
    let mut history = History::default();
    history.live(&fs, config).expect("the script runs");
    assert!(history.sent.iter().all(|sent| sent.acknowledged));
    history.check(&fs, config).unwrap();
    let before = fs.operations();
    history.live(&fs, config).expect("and once more");
    assert!(fs.operations() > before + 20);
    fs.operations()
}

/// Two lives with the power going at one operation; what the disks hold that may be left; and a life on the last.
fn crash(at: u64, config: &LogConfig, ways: usize) -> Result<(), String> {
    let fs = SimFileSystem::new();
    fs.power_off_at(at);
    let mut history = History::default();
    if history.live(&fs, config).is_some() {
        let _ = history.live(&fs, config);
    }
    for (way, disk) in fs.power_cuts(ways, at * 1_000).into_iter().enumerate() {
        let tell = |complaint| format!("cut at {at}, way {way}: {complaint}");
        let mut history = history.clone();
        history.check(&disk, config).map_err(tell)?;
        if way + 1 < ways {
            continue;
        }
        let _ = history.live(&disk, config);
        let later = disk.power_cut(Survival::Nothing);
        let tell = |complaint| format!("cut at {at}, way {way}, one life later: {complaint}");
        history.check(&later, config).map_err(tell)?;
    }
    Ok(())
}

#[test]
fn every_operation_of_a_load_with_writers_seals_and_trims() {
    let config = small_config();
    for at in 1..=operations(&config) {
        crash(at, &config, 3).unwrap();
    }
}

#[test]
fn a_log_that_forgets_writers_is_found_out() {
    for forget in [ForgetWriters::AtStart, ForgetWriters::OnRelease] {
        let honest = small_config();
        let config = LogConfig {
            forget_writers: forget,
            ..honest.clone()
        };
        let total = operations(&honest);
        let mut found = [0, 0];
        for at in (1..=total).step_by(3) {
            if let Err(complaint) = crash(at, &config, 2) {
                found[usize::from(complaint.contains("I5: stored twice"))] += 1;
            }
        }
        assert!(found[0] > 5, "{forget:?}: seen {found:?} times of {}", total / 3);
    }
}

#[test]
fn duplicates_are_found_where_writers_are_forgotten() {
    // I8 is found first above; without it, the second copy of a batch is.
    let config = LogConfig {
        forget_writers: ForgetWriters::AtStart,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let mut history = History::default();
    history.live(&fs, &config).unwrap();
    history.live(&fs, &config).unwrap();
    let complaint = history.check(&fs, &config).unwrap_err();
    assert!(complaint.contains("stored twice"), "{complaint}");
}

#[test]
fn writers_are_forgotten_when_they_are_trimmed_and_silent_and_not_before() {
    let config = LogConfig {
        writer_retention: Duration::from_secs(10),
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let (log, _, acks) = open(&fs, &config).unwrap();
    let head = |stream, offset, time| EntryHead {
        key: key(stream, 0),
        base_offset: Offset(offset),
        count: 1,
        append_time: TimestampMs(time),
        writer: WriterId { high: 0, low: 5 },
        base_sequence: offset,
        ..EntryHead::default()
    };
    let mut number = 0;
    let mut store = |log: &Log<u64>, acks: &crate::common::Acks, head: EntryHead| {
        let entry = LogEntry {
            head,
            prefix: smallvec::SmallVec::new(),
            chunks: std::iter::once(batch(number, 9_000)).collect(),
            context: number,
        };
        log.append(vec![entry]).unwrap();
        number += 1;
        acks.wait(usize::try_from(number).unwrap());
    };
    for offset in 0..6 {
        store(&log, &acks, head(1, offset, 1_000));
        store(&log, &acks, head(2, offset, 1_000));
    }
    let one = WriterKey::of(&head(1, 0, 0)).unwrap();
    let two = WriterKey::of(&head(2, 0, 0)).unwrap();
    log.release(key(1, 0), Offset(6));
    log.checkpoint().unwrap();
    assert_eq!(log.writer(one).unwrap().next_sequence, 6, "trimmed, but not silent");
    // Time is what others append.
    store(&log, &acks, head(3, 0, 12_000));
    log.checkpoint().unwrap();
    assert_eq!(log.writer(one), None);
    assert_eq!(log.writer(two).unwrap().next_sequence, 6, "silent, but not trimmed");
    log.release_stream(StreamId(2));
    assert_eq!(log.writer(two), None);
    log.shutdown().unwrap();
    let (_, recovered, _) = open(&fs, &config).unwrap();
    let left: Vec<_> = recovered.writers.iter().map(|(key, _)| key.stream.0).collect();
    assert_eq!(left, [3]);
}

#[test]
fn the_older_checkpoint_gives_the_same_writers() {
    let config = small_config();
    let fs = SimFileSystem::new();
    let mut history = History::default();
    history.live(&fs, &config).unwrap();
    history.live(&fs, &config).unwrap();
    let (server, recovered) = Server::start(&fs, &config).unwrap();
    drop(server);
    let mut names = sbp_log::FileSystem::list(&fs, &config.directory).unwrap();
    names.sort();
    let newest = names.iter().rfind(|name| name.starts_with("checkpoint-")).unwrap();
    fs.damage(&config.directory.join(newest), |bytes| bytes[20] ^= 1)
        .unwrap();
    let (_, older) = Server::start(&fs, &config).unwrap();
    assert_eq!(older.damage, sbp_log::Damage::default());
    assert_eq!(older.writers, recovered.writers);
    assert!(older.notes.iter().any(|note| note.contains("the one before is used")));
}

/// The superblock's format version.
fn version(fs: &SimFileSystem, config: &LogConfig) -> u32 {
    let name = config.directory.join("superblock");
    let file = sbp_log::FileSystem::open(fs, &name, sbp_log::OpenMode::Existing).unwrap();
    let mut bytes = [0; 12];
    sbp_log::File::read_at(&*file, 0, &mut bytes).unwrap();
    u32::from_le_bytes(bytes[8..].try_into().unwrap())
}

#[test]
fn a_fence_takes_no_offset_outlives_its_segment_and_marks_the_directory() {
    let config = small_config();
    let fs = SimFileSystem::new();
    let mut history = History::default();
    let (mut server, _) = Server::start(&fs, &config).unwrap();
    let (range, writer) = (key(1, 0), WriterId { high: 0, low: 7 });
    let made = history.make(range, writer, 500);
    server.append(&mut history, &[(range, writer, made)]);
    server.wait(&mut history);
    drop(server.log.shutdown());
    assert_eq!(version(&fs, &config), 1, "without fences any release opens it");

    let (mut server, recovered) = Server::start(&fs, &config).unwrap();
    assert_eq!(recovered.writers[0].1.epoch, 0);
    server.fence(&mut history, range, writer);
    server.wait(&mut history);
    assert!(history.sent.iter().all(|sent| sent.acknowledged));
    assert_eq!(version(&fs, &config), 3);
    let known = server.log.writer(recovered.writers[0].0).unwrap();
    assert_eq!((known.epoch, known.next_sequence, known.window.len()), (1, COUNT, 1));
    assert_eq!(server.log.synced_end(range), Some(Offset(COUNT)));
    assert_eq!(server.log.stats().batches, 0);
    drop(server);

    // Behind a power cut, behind a checkpoint, and when nothing of its segment is left.
    let fs = fs.power_cut(Survival::Nothing);
    let (mut server, recovered) = Server::start(&fs, &config).unwrap();
    assert_eq!(recovered.writers[0].1, known);
    assert_eq!(served(&server.log).len(), 1);
    for _ in 0..6 {
        let made = history.make(key(2, 0), WriterId::NONE, 14_000);
        server.append(&mut history, &[(key(2, 0), WriterId::NONE, made)]);
        server.wait(&mut history);
    }
    server.log.release(range, Offset(COUNT));
    server.log.release(key(2, 0), Offset(6 * COUNT));
    for _ in 0..2 {
        server.log.reclaim().unwrap();
        server.log.checkpoint().unwrap();
    }
    drop(server.log.shutdown());
    let names = sbp_log::FileSystem::list(&fs, &config.directory).unwrap();
    assert!(!names.contains(&"segment-0000000000000001".to_owned()), "{names:?}");
    let (_, recovered) = Server::start(&fs, &config).unwrap();
    assert_eq!(recovered.writers[0].1, known);
}

#[test]
fn a_fence_between_batches_that_are_lost_counts_none_of_them() {
    let head = |count, epoch, offset, sequence| EntryHead {
        key: key(1, 0),
        kind: if count == 0 { EntryKind::Fence } else { EntryKind::Batch },
        base_offset: Offset(offset),
        count,
        append_time: TimestampMs(1),
        writer: WriterId { high: 0, low: 7 },
        writer_epoch: epoch,
        base_sequence: sequence,
        ..EntryHead::default()
    };
    let mut state = WriterState::default();
    assert!(state.is_unknown());
    state.record(&head(0, 1, 0, 0));
    assert!(!state.is_unknown());
    state.record(&head(4, 1, 0, 0));
    state.record(&head(2, 1, 4, 4));
    state.record(&head(0, 2, 6, 6));
    // The next epoch goes on where the last one stood, and knows what that has stored.
    assert_eq!((state.epoch, state.next_sequence, state.window.len()), (2, 6, 2));
    assert_eq!((state.last_offset, state.last_range), (Offset(6), key(1, 0)));
    // The end of the range was lost behind offset 4, and is written again in the next one.
    state.record(&head(0, 3, 4, 4));
    assert_eq!((state.epoch, state.next_sequence, state.window.len()), (3, 4, 1));
    state.record(&head(3, 3, 4, 4));
    assert_eq!((state.next_sequence, state.window.len()), (7, 2));
    // A late fence moves nobody back; an epoch that begins anew forgets what was numbered before.
    state.record(&head(0, 2, 7, 7));
    assert_eq!((state.epoch, state.next_sequence), (3, 7));
    state.record(&head(1, 9, 7, 0));
    assert_eq!((state.epoch, state.next_sequence, state.window.len()), (9, 1, 1));
}
