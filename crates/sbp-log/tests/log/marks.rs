//! Entries without offsets: they keep their places, are read with the batches, and are found again after everything that
//! moves or forgets files.

use std::path::Path;

use bytes::Bytes;
use sbp_log::{
    BackingUp, EntryHead, EntryKind, FileSystem, Log, LogConfig, LogEntry, LogError, ReadError, Verification, Verified,
};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

use crate::common::{Opened, batch, open, small_config};

pub(crate) const WRITER: WriterId = WriterId { high: 0, low: 7 };

pub(crate) fn range(stream: i64, index: i32) -> RangeKey {
    RangeKey {
        stream: StreamId(stream),
        range: RangeIndex(index),
    }
}

pub(crate) fn at(offset: i64, marks: u32) -> Position {
    Position {
        offset: Offset(offset),
        marks,
    }
}

/// What was appended to a range: where it stands, its head and its bytes.
type Sent = (Position, EntryHead, Vec<u8>);

/// A range that grows, and what is in it.
struct Growing {
    key: RangeKey,
    end: Position,
    sent: Vec<Sent>,
}

impl Growing {
    fn new(key: RangeKey, start: i64) -> Self {
        let end = Position::start(Offset(start));
        Self {
            key,
            end,
            sent: Vec::new(),
        }
    }

    fn head(&self, kind: EntryKind) -> EntryHead {
        EntryHead {
            key: self.key,
            kind,
            epoch: Epoch(4),
            base_offset: self.end.offset,
            marks: Some(self.end.marks),
            append_time: TimestampMs(1_000 + self.end.offset.0),
            ..EntryHead::default()
        }
    }

    fn add(&mut self, (log, _, acks): &Opened, head: EntryHead, bytes: Bytes) {
        let entry = LogEntry {
            head,
            prefix: Default::default(),
            chunks: std::iter::once(bytes.clone())
                .filter(|bytes| !bytes.is_empty())
                .collect(),
            context: 0,
        };
        let before = acks.all().len();
        log.append(vec![entry]).unwrap();
        acks.wait(before + 1);
        assert!(acks.all().iter().all(|(_, outcome)| outcome.is_ok()));
        self.sent.push((self.end, head, bytes.to_vec()));
        self.end = match head.kind {
            EntryKind::Batch => self.end.behind_records(head.count).unwrap(),
            _ => self.end.behind_mark().unwrap(),
        };
        assert_eq!(log.end_position(self.key), Some(self.end));
    }

    fn batch(&mut self, opened: &Opened, count: i64, length: usize) {
        let head = EntryHead {
            count,
            max_timestamp: TimestampMs(9),
            ..self.head(EntryKind::Batch)
        };
        self.add(opened, head, batch(self.sent.len() as u64, length));
    }

    fn fence(&mut self, opened: &Opened, epoch: i64) {
        let head = EntryHead {
            writer: WRITER,
            writer_epoch: epoch,
            ..self.head(EntryKind::Fence)
        };
        self.add(opened, head, Bytes::new());
    }

    /// The log has all of it, from every place on.
    fn check(&self, log: &Log<u64>) {
        assert_eq!(log.end_position(self.key), Some(self.end));
        for (number, (place, ..)) in self.sent.iter().enumerate() {
            assert_eq!(read_from(log, self.key, *place), self.sent[number..], "from {place}");
        }
        assert_eq!(log.entries(self.key, self.end, 1 << 20).unwrap(), []);
        // At least one, and no more than asked for.
        let first = log.entries(self.key, self.sent[0].0, 0).unwrap();
        assert_eq!(first.len(), 1);
    }
}

/// All entries from a place on, a few at a time.
pub(crate) fn read_from(log: &Log<u64>, key: RangeKey, from: Position) -> Vec<Sent> {
    let mut all = Vec::new();
    let mut next = from;
    loop {
        let entries = log.entries(key, next, 2_000).unwrap();
        let Some(last) = entries.last() else { return all };
        next = last.end();
        all.extend(entries.into_iter().map(|entry| {
            assert_eq!(entry.head.marks, Some(entry.position.marks));
            (entry.position, entry.head, entry.bytes.into_contiguous().to_vec())
        }));
    }
}

fn reopen(fs: &SimFileSystem, config: &LogConfig) -> (SimFileSystem, Opened) {
    let fs = fs.power_cut(Survival::Nothing);
    let opened = open(&fs, config).unwrap();
    assert_eq!(opened.1.damage, sbp_log::Damage::default());
    (fs, opened)
}

/// Fences at the beginning, between batches, several in one place, and at the end.
fn fill(growing: &mut Growing, opened: &Opened, length: usize) {
    growing.fence(opened, 1);
    growing.batch(opened, 3, length);
    growing.fence(opened, 2);
    growing.fence(opened, 3);
    growing.batch(opened, 1, length / 2);
    growing.batch(opened, 2, length);
    growing.fence(opened, 4);
}

#[test]
fn marks_are_read_between_batches_from_memory_from_disk_and_after_restarts() {
    for hot_tail_bytes in [0, 1 << 20] {
        let config = LogConfig {
            hot_tail_bytes,
            ..small_config()
        };
        let mut fs = SimFileSystem::new();
        let mut opened = open(&fs, &config).unwrap();
        let mut growing = Growing::new(range(1, 1), 100);
        assert_eq!(opened.0.end_position(growing.key), None);
        for life in 0..6 {
            // In every second life they cross segments.
            fill(&mut growing, &opened, if life % 2 == 0 { 300 } else { 9_000 });
            growing.check(&opened.0);
            if life % 3 == 1 {
                opened.0.checkpoint().unwrap();
            }
            if life % 3 == 2 {
                opened.0.shutdown().unwrap();
            } else {
                fs.power_off();
                drop(opened);
            }
            (fs, opened) = reopen(&fs, &config);
            growing.check(&opened.0);
            let (key, end) = opened.1.ranges[0];
            let found = at(end.next_offset.0, end.next_marks);
            assert_eq!((key, found, end.proven), (growing.key, growing.end, true));
        }
        assert!(opened.0.stats().segments > 2);
        // Nobody who reads batches sees them.
        let batches = crate::common::served(&opened.0).len();
        let sent = growing.sent.iter().filter(|sent| !sent.1.is_mark()).count();
        assert_eq!(batches, sent);
    }
}

#[test]
fn an_entry_continues_its_range_marks_included() {
    let fs = SimFileSystem::new();
    let opened = open(&fs, &small_config()).unwrap();
    let mut growing = Growing::new(range(1, 0), 0);
    growing.fence(&opened, 1);
    let (log, ..) = &opened;
    let sends = |head, bytes: &'static [u8]| {
        let entry = LogEntry {
            head,
            prefix: Default::default(),
            chunks: std::iter::once(Bytes::from_static(bytes))
                .filter(|bytes| !bytes.is_empty())
                .collect(),
            context: 0,
        };
        log.append(vec![entry])
    };
    let fence = EntryHead {
        writer: WRITER,
        ..growing.head(EntryKind::Fence)
    };
    let batch = EntryHead {
        count: 1,
        ..growing.head(EntryKind::Batch)
    };
    let writers = growing.head(EntryKind::Writers { part: 0, parts: 1 });
    // The state of no writers.
    const EMPTY: &[u8] = &[1, 0, 0, 0];
    for (wrong, bytes) in [
        (
            EntryHead {
                marks: Some(0),
                ..fence
            },
            &b""[..],
        ),
        (
            EntryHead {
                marks: Some(2),
                ..fence
            },
            b"",
        ),
        (
            EntryHead {
                marks: Some(0),
                ..batch
            },
            b"x",
        ),
        (
            EntryHead {
                writer: WriterId::NONE,
                ..fence
            },
            b"",
        ),
        (fence, b"x"),
        (EntryHead { count: 0, ..batch }, b"x"),
        (EntryHead { count: 1, ..fence }, b""),
        (EntryHead { count: 1, ..writers }, EMPTY),
        (
            EntryHead {
                writer: WRITER,
                ..writers
            },
            EMPTY,
        ),
        (
            EntryHead {
                kind: EntryKind::Writers { part: 2, parts: 2 },
                ..writers
            },
            EMPTY,
        ),
    ] {
        match sends(wrong, bytes) {
            Err(LogError::OutOfOrder { expected, .. }) => assert_eq!(expected, at(0, 1), "{wrong:?}"),
            other => panic!("{wrong:?}: {other:?}"),
        }
    }
    // Without a number it gets the next one.
    sends(EntryHead { marks: None, ..fence }, b"").unwrap();
    sends(
        EntryHead {
            marks: Some(2),
            ..batch
        },
        b"x",
    )
    .unwrap();
    sends(
        EntryHead {
            base_offset: Offset(1),
            marks: None,
            ..fence
        },
        b"",
    )
    .unwrap();
    opened.2.wait(4);
    assert_eq!(log.end_position(growing.key), Some(at(1, 1)));
    let places: Vec<_> = read_from(log, growing.key, at(0, 0))
        .iter()
        .map(|sent| sent.0)
        .collect();
    assert_eq!(places, [at(0, 0), at(0, 1), at(0, 2), at(1, 0)]);
}

/// How the entries of one range are spread over many files, with others between them.
fn spread(config: &LogConfig) -> (SimFileSystem, Opened, Growing, Growing) {
    let fs = SimFileSystem::new();
    let opened = open(&fs, config).unwrap();
    let (mut one, mut two) = (Growing::new(range(1, 1), 40), Growing::new(range(2, 0), 0));
    for _ in 0..6 {
        fill(&mut one, &opened, 700);
        fill(&mut two, &opened, 11_000);
    }
    (fs, opened, one, two)
}

#[test]
fn marks_move_with_their_range_when_files_are_rewritten() {
    let config = small_config();
    let (fs, opened, mut one, two) = spread(&config);
    let log = &opened.0;
    let files = log.stats().segments;
    // Everything but the marks at its end.
    log.release(two.key, two.end.offset);
    for _ in 0..3 {
        log.reclaim().unwrap();
        log.checkpoint().unwrap();
    }
    assert!(log.stats().compacted_bytes > 0 && log.stats().segments < files / 2);
    one.check(log);
    let left = &two.sent[two.sent.len() - 1..];
    assert_eq!(read_from(log, two.key, Position::start(two.end.offset)), left);
    fs.power_off();
    let (fs, opened) = reopen(&fs, &config);
    one.check(&opened.0);
    assert_eq!(read_from(&opened.0, two.key, Position::start(two.end.offset)), left);
    // They go on where they stood, and a file with nothing but marks is not forgotten.
    fill(&mut one, &opened, 700);
    assert!(opened.0.holds(two.key));
    opened.0.release(two.key, Offset(i64::MAX));
    for _ in 0..3 {
        opened.0.reclaim().unwrap();
        opened.0.checkpoint().unwrap();
    }
    drop(opened.0.shutdown());
    let (_, opened) = reopen(&fs, &config);
    one.check(&opened.0);
    assert!(!opened.0.holds(two.key), "{:?}", opened.0.ranges());
}

#[test]
fn what_is_trimmed_says_where_the_range_goes_on() {
    let config = small_config();
    let (_, opened, one, two) = spread(&config);
    let log = &opened.0;
    log.release(two.key, Offset(20));
    let first = match log.entries(two.key, at(0, 0), 1 << 20) {
        Err(ReadError::Released { first, .. }) => first,
        other => panic!("{other:?}"),
    };
    assert!(first > Offset(0) && first <= Offset(20), "{first}");
    let rest = read_from(log, two.key, Position::start(first));
    let expected: Vec<_> = two.sent.iter().filter(|sent| sent.0.offset >= first).cloned().collect();
    assert_eq!(rest, expected);
    one.check(log);
    assert_eq!(log.entries(range(9, 9), at(0, 0), 100).unwrap(), []);
}

#[test]
fn the_older_checkpoint_finds_them_too() {
    let config = small_config();
    let (fs, opened, one, two) = spread(&config);
    opened.0.release(two.key, Offset(30));
    opened.0.reclaim().unwrap();
    let mut one = one;
    fill(&mut one, &opened, 200);
    opened.0.shutdown().unwrap();
    let mut names = fs.list(&config.directory).unwrap();
    names.retain(|name| name.starts_with("checkpoint-"));
    names.sort();
    let newest = config.directory.join(names.last().unwrap());
    fs.damage(&newest, |bytes| bytes[20] ^= 1).unwrap();
    let (_, opened) = reopen(&fs, &config);
    assert!(
        opened
            .1
            .notes
            .iter()
            .any(|note| note.contains("the one before is used"))
    );
    one.check(&opened.0);
}

pub(crate) fn verify(fs: &SimFileSystem, config: &LogConfig) -> Verified {
    let begun = Verification::begin(fs, &config.directory).unwrap();
    begun.run(&mut |_| {}).unwrap()
}

#[test]
fn a_backup_and_a_check_have_them() {
    let config = small_config();
    let (fs, opened, one, two) = spread(&config);
    opened.0.release(two.key, Offset(30));
    opened.0.reclaim().unwrap();
    let mut one = one;
    fill(&mut one, &opened, 200);
    let target = Path::new("/backup");
    fs.create_dir_all(target).unwrap();
    let begun = BackingUp::begin(&fs, &config.directory, target, true).unwrap().unwrap();
    begun.finish(&|_| true).unwrap().unwrap();
    let copied = LogConfig {
        directory: target.to_owned(),
        ..config.clone()
    };
    for config in [copied, config] {
        fs.power_off();
        let fs = fs.power_cut(Survival::Everything);
        let found = verify(&fs, &config);
        assert_eq!(found.faults, []);
        assert!(found.batches > one.sent.len() as u64);
        let (_, opened) = reopen(&fs, &config);
        one.check(&opened.0);
    }
}

#[test]
fn a_check_misses_a_mark_that_a_checkpoint_knows_of() {
    let config = small_config();
    let fs = SimFileSystem::new();
    let opened = open(&fs, &config).unwrap();
    let mut growing = Growing::new(range(1, 0), 0);
    fill(&mut growing, &opened, 300);
    opened.0.checkpoint().unwrap();
    drop(opened);
    let name = config.directory.join("checkpoint-0000000000000001");
    let place = head_of_mark(&fs.contents(&config.directory.join("segment-0000000000000001")).unwrap()) as u32;
    fs.damage(&name, |bytes| {
        let at = bytes.windows(4).position(|four| four == place.to_le_bytes()).unwrap();
        bytes[at] ^= 16;
        let (body, sum) = bytes.split_last_chunk_mut::<4>().unwrap();
        *sum = crc_fast::crc32_iscsi(body).to_le_bytes();
    })
    .unwrap();
    let found = verify(&fs, &config);
    assert_eq!(found.faults.len(), 1, "{found:?}");
    assert!(found.faults[0].what.contains("missing"), "{found:?}");
}

/// The place of a mark's head in the only segment, by its writer.
fn head_of_mark(image: &[u8]) -> usize {
    let writer = WRITER.low.to_le_bytes();
    let places = (4_096..image.len() - 96).step_by(16);
    let mut marks =
        places.filter(|place| image[place + 64..place + 72] == writer && image[place + 32..place + 40] == [0; 8]);
    marks.nth(1).unwrap()
}

#[test]
fn a_damaged_mark_is_named_and_costs_no_offset() {
    let config = LogConfig {
        hot_tail_bytes: 0,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let opened = open(&fs, &config).unwrap();
    let mut growing = Growing::new(range(1, 0), 0);
    fill(&mut growing, &opened, 300);
    let name = config.directory.join("segment-0000000000000001");
    fs.damage(&name, |bytes| {
        let place = head_of_mark(bytes);
        bytes[place + 41] ^= 1;
    })
    .unwrap();
    let log = &opened.0;
    let before = log.entries(growing.key, at(0, 0), 1 << 20).unwrap();
    assert_eq!(before.len(), 2, "the fence and the batch before it");
    match log.entries(growing.key, at(3, 0), 1 << 20) {
        Err(ReadError::Damaged { from, to, .. }) => assert_eq!((from, to), (Offset(3), Offset(3))),
        other => panic!("{other:?}"),
    }
    assert_eq!(read_from(log, growing.key, at(3, 1)), growing.sent[3..]);
    assert_eq!(crate::common::served(log).len(), 3);
    drop(opened);
    let found = verify(&fs, &config);
    assert_eq!((found.faults.len(), found.batches), (1, 6), "{found:?}");
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Makes of a segment what a release wrote that did not number fences: zeros where the numbers are, and checksums to that.
fn without_numbers(bytes: &mut [u8]) {
    let mask = crc(&bytes[24..32]);
    let (mut group, mut previous) = (4_096, 0);
    while bytes[group..].starts_with(b"SBPG") {
        let (length, records) = (word(bytes, group + 24), word(bytes, group + 32));
        let mut at = group + 64;
        for _ in 0..records {
            if bytes[at + 32..at + 40] == [0; 8] {
                bytes[at + 48..at + 56].fill(0);
                let sum = crc(&bytes[at..at + 92]) ^ mask;
                put(bytes, at + 92, sum);
            }
            at += 96 + word(bytes, at).next_multiple_of(16);
        }
        put(bytes, group + 28, previous);
        let summed = [&bytes[group + 64..group + length], &bytes[group..group + 56]].concat();
        previous = crc(&summed);
        put(bytes, group + 56, previous);
        let own = crc(&bytes[group..group + 60]);
        put(bytes, group + 60, own);
        group += length.next_multiple_of(4_096);
    }
}

fn set_version(bytes: &mut [u8], version: u32) {
    put(bytes, 8, version);
    let (body, sum) = bytes.split_last_chunk_mut::<4>().unwrap();
    *sum = crc(body).to_le_bytes();
}

fn version(fs: &SimFileSystem, config: &LogConfig) -> usize {
    word(&fs.contents(&config.directory.join("superblock")).unwrap(), 8)
}

#[test]
fn a_directory_gets_its_version_from_the_first_entry_that_needs_it() {
    let config = small_config();
    let fs = SimFileSystem::new();
    let opened = open(&fs, &config).unwrap();
    let mut growing = Growing::new(range(1, 0), 0);
    growing.batch(&opened, 3, 500);
    opened.0.checkpoint().unwrap();
    assert_eq!(version(&fs, &config), 1);
    for batch in crate::common::served(&opened.0).values() {
        assert_eq!(batch.0, 3);
    }
    growing.fence(&opened, 1);
    assert_eq!(version(&fs, &config), 3);

    // An entry of a range with copies elsewhere is one, and so is a state of writers; the version is durable before it.
    for kind in [EntryKind::Batch, EntryKind::Writers { part: 0, parts: 1 }] {
        let fs = SimFileSystem::new();
        let opened = open(&fs, &config).unwrap();
        let mut growing = Growing::new(range(1, 0), 0);
        let is_batch = kind == EntryKind::Batch;
        let head = EntryHead {
            shared: is_batch,
            count: i64::from(is_batch),
            ..growing.head(kind)
        };
        growing.add(&opened, head, Bytes::from_static(&[1, 0, 0, 0]));
        growing.check(&opened.0);
        let trace = fs.trace();
        let renamed = trace
            .iter()
            .rposition(|line| line.contains("Rename superblock"))
            .unwrap();
        let written = trace
            .iter()
            .rposition(|line| line.contains("Write segment-0000000000000001"))
            .unwrap();
        assert!(renamed < written, "{trace:#?}");
        assert_eq!(version(&fs.power_cut(Survival::Nothing), &config), 3);
    }
}

#[test]
fn fences_without_numbers_are_counted_as_they_are_replayed() {
    let config = LogConfig {
        segment_bytes: 256 << 10,
        first_segment_bytes: 256 << 10,
        ..small_config()
    };
    let fs = SimFileSystem::new();
    let opened = open(&fs, &config).unwrap();
    let mut growing = Growing::new(range(1, 0), 0);
    for _ in 0..2 {
        fill(&mut growing, &opened, 300);
    }
    fs.power_off();
    drop(opened);
    let fs = fs.power_cut(Survival::Everything);
    fs.damage(&config.directory.join("segment-0000000000000001"), |bytes| {
        without_numbers(bytes)
    })
    .unwrap();
    fs.damage(&config.directory.join("superblock"), |bytes| set_version(bytes, 2))
        .unwrap();
    let found = verify(&fs, &config);
    assert_eq!((found.faults, found.batches), (Vec::new(), 14));

    let (mut fs, mut opened) = reopen(&fs, &config);
    growing.check(&opened.0);
    growing.batch(&opened, 1, 100);
    opened.0.checkpoint().unwrap();
    assert_eq!(version(&fs, &config), 2, "a batch needs nothing new");
    growing.fence(&opened, 9);
    assert_eq!(version(&fs, &config), 3);
    for _ in 0..2 {
        growing.check(&opened.0);
        fs.power_off();
        (fs, opened) = reopen(&fs, &config);
    }
    growing.check(&opened.0);
    assert_eq!(opened.1.writers[0].1.epoch, 9);
}
