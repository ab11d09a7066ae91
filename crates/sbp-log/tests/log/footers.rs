//! A footer lists every batch of its segment, whatever was released before it was written.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sbp_log::{Damage, EntryHead, EntryKind, Helpers, Log, LogConfig, LogEntry};
use sbp_sim::{Operation, SimFileSystem, Survival};
use sbp_types::{Offset, Position, StreamId, WriterId};

use crate::common::{Acks, SEGMENT, batch, entry, key, open, served, small_config};

/// The stream that is released, and another that fills segments.
const RELEASED: i64 = 1;
const FILLER: i64 = 2;

/// No checkpoints but those that a test asks for.
fn quiet(helpers: Helpers) -> LogConfig {
    LogConfig {
        helpers,
        checkpoint_bytes: 1 << 30,
        ..small_config()
    }
}

/// A log in the simulated disk, with appends that wait.
struct Bench {
    fs: SimFileSystem,
    config: LogConfig,
    log: Log<u64>,
    acks: Arc<Acks>,
}

impl Bench {
    fn new(helpers: Helpers) -> Self {
        Self::start(SimFileSystem::new(), quiet(helpers))
    }

    /// Opens the log, which finds no damage.
    fn start(fs: SimFileSystem, config: LogConfig) -> Self {
        let (log, recovered, acks) = open(&fs, &config).unwrap();
        assert_eq!(recovered.damage, Damage::default(), "{:?}", recovered.notes);
        Self { fs, config, log, acks }
    }

    fn shut_down_and_start(self) -> Self {
        self.log.shutdown().unwrap();
        Self::start(self.fs, self.config)
    }

    fn cut_power_and_start(self) -> Self {
        let fs = self.fs.power_cut(Survival::Nothing);
        drop(self.log);
        Self::start(fs, self.config)
    }

    /// Appends one batch with one record, as a group of its own.
    fn append(&self, stream: i64, length: usize) {
        self.write(
            |end, number| entry(stream, end, 1, number, batch(number, length)),
            stream,
        );
    }

    fn fence(&self, stream: i64) {
        let fence = |end, number| {
            let entry = entry(stream, end, 0, number, Bytes::new());
            let head = EntryHead {
                kind: EntryKind::Fence,
                writer: WriterId { high: 1, low: 1 },
                ..entry.head
            };
            LogEntry { head, ..entry }
        };
        self.write(fence, stream);
    }

    fn write(&self, make: impl FnOnce(i64, u64) -> LogEntry<u64>, stream: i64) {
        let number = self.acks.all().len();
        let end = self.log.synced_end(key(stream)).unwrap_or_default();
        self.log.append(vec![make(end.0, number as u64)]).unwrap();
        self.acks.wait(number + 1);
    }

    /// Fills the segment, of whose eight blocks `used` are used, its header among them.
    fn fill(&self, used: usize) {
        for _ in used..8 {
            self.append(FILLER, 3_000);
        }
    }

    /// The offsets that are served of the stream that is released.
    fn left(&self) -> Vec<i64> {
        let all = served(&self.log).into_keys();
        all.filter(|(at, _)| *at == key(RELEASED))
            .map(|(_, base)| base)
            .collect()
    }
}

fn segment(number: u64) -> String {
    format!("segment-{number:016x}")
}

/// The footer is written late: after a checkpoint, and after a release that this checkpoint does not know.
#[test]
fn a_footer_written_after_a_release_has_what_an_earlier_checkpoint_lists() {
    let bench = Bench::new(Helpers::Threads);
    bench.fill(1);
    // The thread that writes footers is busy with the first segment's when the second one is full.
    let busy = bench.fs.hold(Operation::Sync, &segment(1));
    bench.append(RELEASED, 3_000);
    busy.wait_until_reached();
    bench.fill(2);
    bench.append(RELEASED, 3_000);
    bench.log.checkpoint().unwrap();
    bench.log.release(key(RELEASED), Offset(1));
    let written = bench.fs.hold(Operation::Sync, &segment(2));
    drop(busy);
    written.wait_until_reached();

    // No checkpoint knows of the release, so everything is found again.
    let next = Bench::start(bench.fs.power_cut(Survival::Everything), bench.config.clone());
    assert_eq!(next.left(), [0, 1]);
}

/// As above without a race: a start that does not know of the release writes the checkpoint.
#[test]
fn a_start_that_has_forgotten_a_release_finds_no_damage_later() {
    let bench = Bench::new(Helpers::Inline);
    bench.append(RELEASED, 3_000);
    bench.log.release(key(RELEASED), Offset(1));
    bench.fill(2);
    bench.append(RELEASED, 3_000);
    let bench = bench.cut_power_and_start();
    bench.log.checkpoint().unwrap();
    let bench = bench.cut_power_and_start();
    assert_eq!(bench.left(), [0, 1]);
}

/// As above with what lies behind a range's end.
#[test]
fn a_start_that_has_forgotten_an_end_finds_no_damage_later() {
    let bench = Bench::new(Helpers::Inline);
    for _ in 0..3 {
        bench.append(RELEASED, 1_000);
    }
    bench.log.end_range(key(RELEASED), Position::start(Offset(1)));
    bench.fill(4);
    bench.append(FILLER, 10);
    bench.log.scrub(0).unwrap();
    let read = bench.log.read(key(RELEASED), Offset(0), usize::MAX, true).unwrap();
    assert_eq!((read.len(), bench.left()), (1, vec![0]), "the footer lists more");
    assert_eq!(bench.log.stored_bytes(key(RELEASED)), 1_000);
    let bench = bench.cut_power_and_start();
    assert_eq!(bench.left(), [0, 1, 2]);
    bench.log.checkpoint().unwrap();
    let bench = bench.cut_power_and_start();
    assert_eq!(bench.left(), [0, 1, 2]);
    bench.log.end_range(key(RELEASED), Position::start(Offset(1)));
    assert_eq!(bench.left(), [0]);
}

#[test]
fn a_range_that_goes_on_behind_a_release_is_listed_once() {
    let bench = Bench::new(Helpers::Inline);
    for released in 1..4 {
        bench.append(RELEASED, 1_000);
        bench.log.release(key(RELEASED), Offset(released));
    }
    bench.append(RELEASED, 1_000);
    bench.fill(5);
    bench.append(FILLER, 10);
    let bench = bench.shut_down_and_start();
    // All entries of the footer are in memory then.
    bench.log.scrub(0).unwrap();
    let read = bench.log.read(key(RELEASED), Offset(3), usize::MAX, true).unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(bench.left(), [3]);
    // Exact where the footer is known, else in proportion: one batch of four.
    assert_eq!(bench.log.stored_bytes(key(RELEASED)), 1_000);
}

#[test]
fn what_is_released_and_still_in_a_segment_is_held_after_a_restart() {
    let bench = Bench::new(Helpers::Inline);
    bench.append(RELEASED, 3_000);
    bench.log.release_stream(StreamId(RELEASED));
    bench.fill(2);
    bench.append(FILLER, 10);
    let bench = bench.shut_down_and_start();
    for _ in 0..3 {
        assert!(bench.log.holds(key(RELEASED)), "its segment is still there");
        bench.log.checkpoint().unwrap();
    }

    // Nothing comes back when the footer is lost.
    let path = Path::new("/log").join(segment(1));
    bench.fs.damage(&path, |bytes| *bytes.last_mut().unwrap() ^= 1).unwrap();
    let bench = bench.cut_power_and_start();
    assert_eq!(bench.left(), []);
    assert!(bench.log.holds(key(RELEASED)));
}

#[test]
fn a_footer_that_cannot_list_everything_is_not_written() {
    let bench = Bench::new(Helpers::Inline);
    bench.append(RELEASED, 3_000);
    bench.log.release(key(RELEASED), Offset(1));
    let path = Path::new("/log").join(segment(1));
    let flip = |bytes: &mut Vec<u8>| bytes[4_096] ^= 1;
    bench.fs.damage(&path, flip).unwrap();
    bench.fill(2);
    bench.append(RELEASED, 3_000);
    assert_eq!(bench.fs.contents(&path).unwrap().len() as u64, SEGMENT);
    assert_eq!(bench.left(), [1]);
    let (log, recovered, _) = open(&bench.fs.power_cut(Survival::Nothing), &bench.config).unwrap();
    assert_ne!(recovered.damage, Damage::default(), "it is not hidden");
    assert!(log.end_is_proven(key(RELEASED)));
}

#[test]
fn entries_read_from_the_groups_have_no_fences() {
    let bench = Bench::new(Helpers::Inline);
    bench.append(RELEASED, 1_000);
    bench.fence(RELEASED);
    bench.append(RELEASED, 1_000);
    bench.fill(4);
    bench.append(FILLER, 10);
    let bench = bench.shut_down_and_start();
    let path = Path::new("/log").join(segment(1));
    // Entries come first in a footer.
    bench.fs.damage(&path, |bytes| bytes[SEGMENT as usize] ^= 1).unwrap();
    let read = bench.log.read(key(RELEASED), Offset(0), usize::MAX, true).unwrap();
    let read: Vec<_> = read.iter().map(|stored| (stored.base_offset.0, stored.count)).collect();
    assert_eq!(read, [(0, 1), (1, 1)]);
}
