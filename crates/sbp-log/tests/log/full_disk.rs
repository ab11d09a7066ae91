//! A disk with little room: what does not fit is refused, what does is stored.

use std::sync::Arc;

use sbp_log::{Helpers, Log, LogConfig, LogError};
use sbp_sim::{Held, Operation, SimFileSystem, Survival};

use crate::common::{Acks, batch, entry, key, open, served, small_config};

/// Segments that begin small and grow to what holds any batch of these tests. A segment begins with a block of 4 KiB, and each
/// group takes blocks of that.
fn growing(helpers: Helpers) -> LogConfig {
    LogConfig {
        first_segment_bytes: 32 << 10,
        segment_bytes: 128 << 10,
        group_bytes: 128 << 10,
        helpers,
        ..small_config()
    }
}

/// A log whose disk has no room left and does not answer, so that everything is queued.
struct Queued {
    fs: SimFileSystem,
    log: Log<u64>,
    acks: Arc<Acks>,
    held: Held,
    asked: u64,
}

impl Queued {
    /// With the segment that is written, in which 20 KiB are left, and the next one, of 64 KiB.
    fn new(config: &LogConfig) -> Self {
        let fs = SimFileSystem::new();
        let (log, _, acks) = open(&fs, config).unwrap();
        log.append(vec![entry(1, 0, 1, 0, batch(0, 100))]).unwrap();
        acks.wait(1);
        let held = fs.hold(Operation::Sync, "segment-");
        log.append(vec![entry(1, 1, 1, 1, batch(1, 100))]).unwrap();
        held.wait_until_reached();
        fs.set_capacity(Some(fs.used()));
        let asked = 2;
        Self {
            fs,
            log,
            acks,
            held,
            asked,
        }
    }

    /// Queues a batch of this length, and returns its number.
    fn append(&mut self, stream: i64, offset: i64, length: usize) -> Result<u64, LogError> {
        let number = self.asked;
        self.log
            .append(vec![entry(stream, offset, 1, number, batch(number, length))])?;
        self.asked += 1;
        Ok(number)
    }

    /// Lets the disk go on; returns the log, and the numbers of what was stored.
    fn release(self) -> (SimFileSystem, Log<u64>, Arc<Acks>, Vec<u64>) {
        drop(self.held);
        self.acks.wait(usize::try_from(self.asked).unwrap());
        let mut stored = self.acks.acknowledged();
        stored.sort_unstable();
        for (number, outcome) in self.acks.all() {
            let full = |error: Arc<LogError>| matches!(*error, LogError::DiskFull) && !error.may_have_been_done();
            assert!(outcome.is_ok() || outcome.is_err_and(full), "{number}");
        }
        (self.fs, self.log, self.acks, stored)
    }
}

#[test]
fn only_what_does_not_fit_is_refused_and_what_comes_behind_it_in_its_range() {
    let config = growing(Helpers::Inline);
    let mut queued = Queued::new(&config);
    queued.append(2, 0, 200).unwrap();
    let large = queued.append(3, 0, 70_000).unwrap();
    let behind = queued.append(3, 1, 100).unwrap();
    queued.append(4, 0, 100).unwrap();
    queued.append(1, 2, 5_000).unwrap();
    let barrier = queued.asked;
    queued.log.barrier(barrier).unwrap();
    queued.asked += 1;
    queued.append(4, 1, 100).unwrap();
    let (fs, log, acks, stored) = queued.release();
    let expected: Vec<u64> = (0..=barrier + 1)
        .filter(|number| ![large, behind].contains(number))
        .collect();
    assert_eq!(stored, expected);
    assert!(
        !log.disk_is_full() && log.disk_is_nearly_full(),
        "that something is refused is told"
    );

    // The range continues where it was, and larger ones go on being refused.
    let mut asked = acks.all().len();
    let mut append = |stream, offset, length| {
        log.append(vec![entry(
            stream,
            offset,
            1,
            asked as u64,
            batch(asked as u64, length),
        )])
        .unwrap();
        asked += 1;
        acks.wait(asked);
        acks.all().last().unwrap().1.clone()
    };
    append(3, 0, 100).unwrap();
    assert!(append(3, 1, 70_000).is_err());
    append(2, 1, 100).unwrap();

    // There is room again, which is noticed although nobody appends anything large.
    fs.set_capacity(None);
    log.look_for_room();
    append(2, 2, 100).unwrap();
    assert!(!log.disk_is_nearly_full());
    append(3, 1, 70_000).unwrap();
    let all = served(&log);
    assert_eq!(all.len(), acks.acknowledged().len() - 1, "all but the barrier");
    fs.power_off();
    drop(log);
    let (log, ..) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
    assert_eq!(served(&log), all);
}

#[test]
fn on_a_full_disk_each_range_keeps_what_came_before_its_first_refusal() {
    for helpers in [Helpers::Inline, Helpers::Threads] {
        for seed in 0..60 {
            let config = growing(helpers);
            let mut random = fastrand::Rng::with_seed(seed);
            let mut queued = Queued::new(&config);
            let more = random.u64(0..150_000);
            queued.fs.set_capacity(Some(queued.fs.used() + more));
            let mut ends = [2, 0, 0, 0];
            let mut sent = vec![(1, 0), (1, 1)];
            for _ in 0..random.usize(1..40) {
                let stream = random.usize(0..4);
                let length = [50, 500, 5_000, 14_000, 70_000][random.usize(0..5)];
                let name = i64::try_from(stream).unwrap() + 1;
                if queued.append(name, ends[stream], length).is_ok() {
                    sent.push((name, ends[stream]));
                    ends[stream] += 1;
                }
            }
            let (fs, log, acks, stored) = queued.release();
            assert_eq!(acks.all().len(), sent.len(), "each is told once");
            for stream in 1..=4 {
                let of_it = stored.iter().filter_map(|number| {
                    let (name, offset) = sent[usize::try_from(*number).unwrap()];
                    (name == stream).then_some(offset)
                });
                let of_it: Vec<i64> = of_it.collect();
                let expected: Vec<i64> = (0..of_it.len() as i64).collect();
                assert_eq!(of_it, expected, "seed {seed}, stream {stream}: without a gap");
                let end = log.synced_end(key(stream)).unwrap_or_default();
                assert_eq!(end.0, expected.len() as i64, "seed {seed}, stream {stream}");
            }
            let all = served(&log);
            assert_eq!(all.len(), stored.len());
            // All of them go on from there.
            fs.set_capacity(None);
            log.look_for_room();
            let mut asked = sent.len();
            for stream in 1..=4 {
                let end = log.synced_end(key(stream)).unwrap_or_default().0;
                let again = vec![entry(stream, end, 1, asked as u64, batch(asked as u64, 60))];
                let mut tries = 0;
                while log.append(again.clone()).is_err() {
                    tries += 1;
                    assert!(tries < 1_000_000, "seed {seed}, stream {stream}: never accepted again");
                    std::thread::yield_now();
                }
                asked += 1;
            }
            acks.wait(asked);
            assert_eq!(acks.acknowledged().len(), stored.len() + 4, "seed {seed}");
            drop(log);
            let (log, ..) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
            assert_eq!(served(&log).len(), all.len() + 4, "seed {seed}");
        }
    }
}
