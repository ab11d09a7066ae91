//! Data directories to damage: files as a real log leaves them, and checksums put right after damage was done.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use sbp_locks::{Condvar, Mutex};
use sbp_log::{
    EntryHead, EntryKind, FileSystem, GroupObserver, Helpers, Log, LogConfig, LogEntry, LogError, OpenError, OpenMode,
    Recovered,
};
use sbp_sim::{ManualClock, SimFileSystem, Survival};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

/// Where the log is.
const DIRECTORY: &str = "/log";
/// Where the first group of a segment begins, and what groups are aligned to.
const BLOCK: usize = 4096;
/// Bytes of a segment's header, of a group's, of a record's head.
const SEGMENT_HEADER: usize = 64;
const GROUP_HEADER: usize = 64;
const RECORD_HEAD: usize = 96;

/// The files of a directory by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Directories to begin with: properly shut down, and cut off by a power cut; then the same with ranges that other servers
/// have copies of, fences, states of writers and an end that was told.
pub(crate) static IMAGES: LazyLock<[Files; 4]> = LazyLock::new(|| {
    let [shut_down, cut] = images(|_, _| {});
    let [shared_shut_down, shared_cut] = images(share);
    [shut_down, cut, shared_shut_down, shared_cut]
});

fn images(more: impl Fn(&Log<()>, &Ended)) -> [Files; 2] {
    let fs = SimFileSystem::new();
    let (log, _, ended) = open(&fs).expect("an empty directory");
    fill(&log, &ended);
    more(&log, &ended);
    let cut = fs.power_cut(Survival::Nothing);
    log.shutdown().expect("room on the disk");
    [take(&fs), take(&cut)]
}

/// A range with fences that ends before its last entries, and the one behind it with a batch that waits.
fn share(log: &Log<()>, ended: &Ended) {
    let stream = StreamId(2);
    let key = |range| RangeKey {
        stream,
        range: RangeIndex(range),
    };
    let mut stored = 24;
    let mut add = |entry: LogEntry<()>, kind| {
        let head = EntryHead {
            kind,
            shared: true,
            ..entry.head
        };
        log.append(vec![LogEntry { head, ..entry }]).expect("room on the disk");
        stored += 1;
        ended.wait(stored);
    };
    for number in 0..4 {
        add(entry(key(1), Offset(10 + number), 1, vec![9; 300]), EntryKind::Batch);
        let mut fence = entry(key(1), Offset(11 + number), 0, Vec::new());
        fence.head.writer_epoch = number;
        add(fence, EntryKind::Fence);
        log.confirm(key(1), Position::start(Offset(12)));
        if number == 2 {
            log.checkpoint().expect("room on the disk");
        }
    }
    let end = Position::start(Offset(13));
    log.end_range(key(1), end);
    for part in log.writers_of(stream) {
        let mut state = entry(key(2), end.offset, 0, part.to_vec());
        (state.head.writer, state.head.base_sequence) = (WriterId::NONE, 0);
        add(state, EntryKind::Writers { part: 0, parts: 1 });
    }
    add(entry(key(2), end.offset, 3, vec![5; 300]), EntryKind::Batch);
    log.confirm(key(2), Position { marks: 1, ..end });
}

/// Counts appends that have ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    count: Mutex<usize>,
    changed: Condvar,
}

impl GroupObserver<()> for Ended {
    fn group_ended(&self, contexts: Vec<()>, _outcome: Result<(), Arc<LogError>>) {
        *self.count.lock() += contexts.len();
        self.changed.notify_all();
    }
}

impl Ended {
    /// Waits until this many have.
    pub(crate) fn wait(&self, count: usize) {
        let mut ended = self.count.lock();
        while *ended < count {
            let late = self.changed.wait_for(&mut ended, Duration::from_secs(20));
            assert!(!late.timed_out(), "only {ended} of {count} appends ended");
        }
    }
}

pub(crate) type Opened = (Log<()>, Recovered, Arc<Ended>);

/// Opens the log on a disk, small and without threads of its own but the writer's.
pub(crate) fn open(fs: &SimFileSystem) -> Result<Opened, OpenError> {
    let config = LogConfig {
        segment_bytes: 16 << 10,
        group_bytes: 8 << 10,
        hot_tail_bytes: 0,
        reserve_bytes: 4 << 10,
        checkpoint_bytes: 24 << 10,
        helpers: Helpers::Inline,
        ..LogConfig::new(DIRECTORY)
    };
    let ended = Arc::new(Ended::default());
    let (log, recovered) = Log::open(
        Arc::new(fs.clone()),
        Arc::new(ManualClock::default()),
        config,
        ended.clone(),
    )?;
    Ok((log, recovered, ended))
}

/// A disk with these files.
pub(crate) fn disk(files: &Files) -> SimFileSystem {
    let fs = SimFileSystem::new();
    fs.create_dir_all(Path::new(DIRECTORY)).expect("an empty disk");
    for (name, bytes) in files {
        let path = Path::new(DIRECTORY).join(name);
        let file = fs.open(&path, OpenMode::Truncate).expect("an empty disk");
        file.write_at(0, bytes).expect("an empty disk");
    }
    fs
}

fn take(fs: &SimFileSystem) -> Files {
    let names = fs.list(Path::new(DIRECTORY)).expect("a directory");
    names
        .into_iter()
        .filter_map(|name| {
            let bytes = fs.contents(&Path::new(DIRECTORY).join(&name)).ok()?;
            Some((name, bytes))
        })
        .collect()
}

/// A batch of `count` records behind `offset`, from a writer for every other stream.
pub(crate) fn entry(key: RangeKey, offset: Offset, count: i64, bytes: Vec<u8>) -> LogEntry<()> {
    let writes = key.stream.0 % 2 == 0;
    LogEntry {
        head: EntryHead {
            key,
            epoch: Epoch(0),
            base_offset: offset,
            count,
            append_time: TimestampMs(1_000),
            max_timestamp: TimestampMs(1_000 + offset.0),
            writer: if writes {
                WriterId { high: 1, low: 2 }
            } else {
                WriterId::NONE
            },
            writer_epoch: 0,
            base_sequence: if writes { offset.0 } else { 0 },
            ..EntryHead::default()
        },
        prefix: Default::default(),
        chunks: std::iter::once(Bytes::from(bytes)).collect(),
        context: (),
    }
}

/// A few segments and remains of others: three streams, small and large batches, a release, checkpoints in the middle.
fn fill(log: &Log<()>, ended: &Ended) {
    let mut offsets = [0; 3];
    for number in 0_u8..24 {
        let stream = usize::from(number % 3);
        let key = RangeKey {
            stream: StreamId(i64::from(number % 3) + 1),
            range: RangeIndex(0),
        };
        let length = if number % 7 == 0 { 3_000 } else { 200 };
        let count = i64::from(number % 4) + 1;
        let batch = vec![number | 1; length];
        log.append(vec![entry(key, Offset(offsets[stream]), count, batch)])
            .expect("room on the disk");
        ended.wait(usize::from(number) + 1);
        offsets[stream] += count;
        if number == 12 {
            log.release(key, Offset(1));
            log.checkpoint().expect("room on the disk");
        }
        if number == 17 {
            // Most of a small batch's segment is padding: what is sealed becomes remains.
            log.reclaim().expect("room on the disk");
        }
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn get(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

/// Puts right the checksums of a damaged file, so that what is behind them is reached.
pub(crate) fn mend(name: &str, bytes: &mut [u8]) {
    if name.starts_with("segment-") || name.starts_with("remains-") {
        mend_segment(bytes);
    } else if let Some(at) = bytes.len().checked_sub(4) {
        let sum = crc32c(&bytes[..at]);
        put(bytes, at, sum);
    }
}

fn mend_segment(bytes: &mut [u8]) {
    if bytes.len() < BLOCK {
        return;
    }
    let sum = crc32c(&bytes[..SEGMENT_HEADER - 4]);
    put(bytes, SEGMENT_HEADER - 4, sum);
    let mask = crc32c(&bytes[24..32]);
    let (mut at, mut previous) = (BLOCK, None);
    while let Some(group) = bytes.get_mut(at..).filter(|group| group.starts_with(b"SBPG")) {
        let length = usize::try_from(get(group, 24)).unwrap_or(usize::MAX);
        if length < GROUP_HEADER || length > group.len() {
            return;
        }
        let (group, _) = group.split_at_mut(length);
        if let Some(previous) = previous {
            put(group, 28, previous);
        }
        mend_records(&mut group[GROUP_HEADER..], mask);
        let sum = crc32c(&[&group[GROUP_HEADER..], &group[..56]].concat());
        put(group, 56, sum);
        let own = crc32c(&group[..60]);
        put(group, 60, own);
        previous = Some(sum);
        at += length.next_multiple_of(BLOCK);
    }
}

fn mend_records(mut records: &mut [u8], mask: u32) {
    while records.len() >= RECORD_HEAD {
        let length = usize::try_from(get(records, 0)).unwrap_or(usize::MAX);
        let Some(stored) = length
            .checked_next_multiple_of(16)
            .and_then(|length| length.checked_add(RECORD_HEAD))
        else {
            return;
        };
        if let Some(batch) = records.get(RECORD_HEAD..RECORD_HEAD.saturating_add(length)) {
            let sum = crc32c(batch);
            put(records, 88, sum);
        }
        let own = crc32c(&records[..92]) ^ mask;
        put(records, 92, own);
        let Some((_, rest)) = records.split_at_mut_checked(stored) else {
            return;
        };
        records = rest;
    }
}
