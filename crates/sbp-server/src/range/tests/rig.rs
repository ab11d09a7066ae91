//! A range server on a disk that syncs when the test lets it.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sbp_frame::CallId;
use sbp_locks::{Condvar, Mutex};
use sbp_log::{File, FileLock, FileSystem, Helpers, Log, LogConfig, OpenMode};
use sbp_messages::ErrorCode;
use sbp_record::{EncodeOptions, encode_raw};
use sbp_replication::Replica;
use sbp_sim::{ManualClock, SimFileSystem};
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId, StreamId, TimestampMs, WriterId};
use smallvec::smallvec;

use super::listener::Listener;
use crate::range::{
    AppendDone, AppendEntry, AppendJob, CopyRecord, FollowJob, Followers, FoundCopy, HeadFacts, HeldRange, LogContext,
    RangeHub, RangeServer, RangeState, Repeated, ReplicaSet, StreamFacts, WriterSequence,
};
use crate::refusal::Refusal;

/// Longer than anything takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What the rig has: range 0 of one stream.
pub(super) const STREAM: StreamId = StreamId(1);
pub(super) const FIRST: RangeKey = RangeKey {
    stream: STREAM,
    range: RangeIndex(0),
};

pub(super) struct Rig {
    pub(super) server: Arc<RangeServer>,
    gate: Arc<Gate>,
    listener: Listener,
    disk: SimFileSystem,
    config: LogConfig,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(held(0, 0, None).fresh(), |config| config)
    }

    /// The rig has one of several copies of the range.
    pub(super) fn of_several(replica: Replica, change: impl FnOnce(LogConfig) -> LogConfig) -> Self {
        let range = RangeState {
            replica: Some(Box::new(replica)),
            ..held(0, 0, None).fresh()
        };
        let rig = Self::with(range, change);
        rig.compare_aside();
        rig
    }

    fn compare_aside(&self) {
        let compares = ComparesAside(Arc::downgrade(&self.server));
        self.server.hub.set_followers(Arc::new(compares));
    }

    /// The server `me` starts again with its copy of the range, of which the disk has lost the batches with these contents.
    pub(super) fn restart(&mut self, me: ServerId, range: &HeldRange, lost: &[Vec<u8>]) {
        self.server.log.close().unwrap();
        self.disk = self.disk.process_death();
        for content in lost {
            lose(&self.disk, &self.config.directory, content);
        }
        let of_copy = |log: &Log<LogContext>| {
            let found = FoundCopy {
                synced: log.end_position(range.key).unwrap(),
                first: log.first_position(range.key),
                writers_parts: 0,
            };
            RangeState {
                next: found.synced.offset,
                replica: range.recovered_replica(Some(me), &found),
                ..range.fresh()
            }
        };
        self.server = open(&self.disk, &self.gate, self.config.clone(), of_copy);
        self.server.note_damage();
        self.compare_aside();
    }

    fn with(range: RangeState, change: impl FnOnce(LogConfig) -> LogConfig) -> Self {
        let gate = Arc::new(Gate::default());
        let disk = SimFileSystem::new();
        let config = change(LogConfig {
            segment_bytes: 1 << 20,
            // Each part of the state of the writers has one of them.
            writers_part_bytes: 1,
            helpers: Helpers::Inline,
            ..LogConfig::new(Path::new("/data"))
        });
        Self {
            server: open(&disk, &gate, config.clone(), |_| range),
            gate,
            listener: Listener::new(),
            disk,
            config,
        }
    }

    /// Nothing is synced until [`resume`](Self::resume).
    pub(super) fn stall(&self) {
        *self.gate.closed.lock() = true;
    }

    /// The next sync of records fails.
    pub(super) fn fail_next_sync(&self) {
        self.gate.fails.store(true, Ordering::SeqCst);
    }

    pub(super) fn resume(&self) {
        *self.gate.closed.lock() = false;
        self.gate.opened.notify_all();
    }

    /// Appends one batch; what is answered at once.
    pub(super) fn append(&self, job: AppendJob) -> Option<AppendDone> {
        let mut done = Vec::new();
        self.server.append(&self.listener.requester, &mut vec![job], &mut done);
        assert!(done.len() <= 1);
        done.pop()
    }

    /// Appends these batches in one turn; what is answered at once.
    pub(super) fn append_all(&self, mut jobs: Vec<AppendJob>) -> Vec<AppendDone> {
        let mut done = Vec::new();
        self.server.append(&self.listener.requester, &mut jobs, &mut done);
        done
    }

    /// Entries that another server has sent; what is answered at once.
    pub(super) fn follow(&self, mut jobs: Vec<FollowJob>) -> Vec<AppendDone> {
        let mut done = Vec::new();
        self.server.follow(&self.listener.requester, &mut jobs, &mut done);
        done
    }

    /// Whoever sends the appends may do other things from now on; what is refused by that.
    pub(super) fn change_rights(&self, rights: Result<&crate::access::Gate, &Refusal>) -> Vec<AppendDone> {
        self.server.change_rights(&self.listener.requester, rights)
    }

    /// What has been answered already.
    pub(super) fn answered(&self) -> Vec<AppendDone> {
        self.listener.ended()
    }

    /// The next `count` answers.
    pub(super) fn wait(&self, count: usize) -> Vec<AppendDone> {
        let mut done = Vec::new();
        while done.len() < count {
            done.extend(self.listener.next());
        }
        assert_eq!(done.len(), count);
        done
    }
}

/// A server with one range, as its log is found.
fn open(
    disk: &SimFileSystem,
    gate: &Arc<Gate>,
    config: LogConfig,
    range: impl FnOnce(&Log<LogContext>) -> RangeState,
) -> Arc<RangeServer> {
    let files = GatedFiles {
        disk: disk.clone(),
        gate: Arc::clone(gate),
    };
    let hub = RangeHub::new(Arc::default(), Arc::default());
    let clock = Arc::new(ManualClock::default());
    let observer = Arc::clone(&hub);
    let (log, _) = Log::open(Arc::new(files), Arc::clone(&clock) as _, config, observer).unwrap();
    hub.open(STREAM, StreamFacts::default(), range(&log));
    hub.set_knows_all(true);
    Arc::new(RangeServer::new(hub, log, clock))
}

/// Turns over a bit of the first batch with this content.
fn lose(disk: &SimFileSystem, directory: &Path, content: &[u8]) {
    for name in disk.list(directory).unwrap() {
        let path = directory.join(name);
        let found = disk.contents(&path).unwrap();
        if let Some(at) = found.windows(content.len()).position(|bytes| bytes == content) {
            return disk.damage(&path, |bytes| bytes[at] ^= 1).unwrap();
        }
    }
    panic!("the record is in no file");
}

/// The test carries what is sent; entries are compared on a thread of their own.
#[derive(Debug)]
struct ComparesAside(Weak<RangeServer>);

impl Followers for ComparesAside {
    fn wake(&self, _: ServerId) {}

    fn compare(&self, repeated: Vec<Repeated>) {
        if let Some(server) = self.0.upgrade() {
            std::thread::spawn(move || server.compare(repeated));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The log's writer thread is joined next.
        self.resume();
    }
}

/// The code, base offset and next sequence of an answer; -1 for what it does not have.
pub(super) fn short(done: &AppendDone) -> (ErrorCode, i64, i64) {
    match &done.outcome {
        Ok(stored) => (
            ErrorCode::NONE,
            stored.base_offset.map_or(-1, |offset| offset.0),
            stored.next_sequence.unwrap_or(-1),
        ),
        Err(refused) => (refused.refusal.code, -1, refused.next_sequence.unwrap_or(-1)),
    }
}

/// A range of the rig's stream.
pub(super) fn held(index: i32, start: i64, end: Option<i64>) -> HeldRange {
    HeldRange {
        key: RangeKey {
            stream: STREAM,
            range: RangeIndex(index),
        },
        epoch: Epoch(index.into()),
        start: Offset(start),
        end: end.map(Offset),
        set: ReplicaSet::alone(),
        copy: CopyRecord::default(),
    }
}

/// An append of one record of `bytes`, numbered by its request index.
pub(super) fn job(request_index: i32, bytes: usize) -> AppendJob {
    job_with(request_index, vec![7; bytes])
}

/// An append of this record.
pub(super) fn job_with(request_index: i32, record: Vec<u8>) -> AppendJob {
    let mut batch = BytesMut::new();
    encode_raw(&EncodeOptions::default(), &Bytes::from(record), &mut batch).unwrap();
    AppendJob {
        call: CallId::FIRST,
        request_index,
        entry: AppendEntry {
            stream: STREAM,
            range: None,
            epoch: None,
            expected_offset: None,
            length: batch.len(),
            head: Ok(HeadFacts {
                record_count: 1,
                is_fence: false,
                columns: None,
                claim: None,
            }),
        },
        max_timestamp: TimestampMs(0),
        arrived: Instant::now(),
        expires: None,
        gate: crate::access::Gate::default(),
        chunks: smallvec![batch.freeze()],
    }
}

/// The same by a writer, with `record_count` records as far as anybody looks.
pub(super) fn of_writer(request_index: i32, epoch: i64, sequence: i64, record_count: i64) -> AppendJob {
    let mut job = job(request_index, 10);
    job.entry.head = Ok(HeadFacts {
        record_count,
        is_fence: false,
        columns: None,
        claim: Some(WriterSequence {
            writer: WriterId { high: 0, low: 9 },
            epoch,
            sequence,
        }),
    });
    job
}

#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    fails: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        let mut closed = self.closed.lock();
        while *closed {
            self.opened.wait(&mut closed);
        }
    }
}

#[derive(Debug)]
struct GatedFiles {
    disk: SimFileSystem,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn File>,
    gate: Arc<Gate>,
    /// Groups are written in pieces, everything else at once.
    has_records: AtomicBool,
}

impl FileSystem for GatedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, mode)?;
        let gate = Arc::clone(&self.gate);
        let has_records = AtomicBool::new(false);
        Ok(Arc::new(GatedFile {
            file,
            gate,
            has_records,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        self.disk.create_dir_all(directory)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.disk.sync_dir(directory)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.disk.lock(path)
    }
}

impl File for GatedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(position, buffer)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(position, bytes)
    }

    fn write_vectored_at(&self, position: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.has_records.store(true, Ordering::SeqCst);
        self.file.write_vectored_at(position, parts)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        self.file.preallocate(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        if self.has_records.load(Ordering::SeqCst) && self.gate.fails.swap(false, Ordering::SeqCst) {
            return Err(io::ErrorKind::Other.into());
        }
        self.file.sync_data()
    }
}
