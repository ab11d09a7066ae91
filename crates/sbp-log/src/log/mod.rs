//! The public interface of the log.

mod read;
mod replicas;

pub use replicas::writers_in;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use sbp_locks::Mutex;
use sbp_types::{Offset, Position, RangeKey, ServerId, StreamId};

use crate::SyncObserver;
use crate::format::parts;
use crate::format::superblock::Groups;
use crate::recover;
use crate::recover::Recovery;
use crate::segments::claim::Claimed;
use crate::segments::files::{CLEAN, is_full, write_small_always};
use crate::segments::open_files::OpenFiles;
use crate::segments::prepare::{Maker, Prepared, Sizes};
use crate::segments::{claim, files};
use crate::state::shared::Shared;
use crate::upkeep::checkpoint::write_checkpoint;
use crate::upkeep::jobs::{Job, JobSink};
use crate::upkeep::{clear, compaction, jobs, repair, scrub};
use crate::write::commit_leader::CommitLeader;
use crate::write::queue::Queue;
use crate::write::writer::{Syncer, Writer};
use crate::{
    BatchBytes, Clock, Damage, DamagedInterval, EntryKind, FileSystem, GroupObserver, Helpers, LogConfig, LogEntry,
    LogError, LogStats, OpenError, RangeEnd, Recovered, Scrubbed, WriterKey, WriterState,
};

/// A durable log of batches, shared by all ranges of a data directory.
///
/// Appends are queued by any thread and written by one thread at a time: the writer thread, or a caller that has few
/// bytes and need not wait for the disk ([`Log::write_here`]). Any thread can read, and may block on the disk.
pub struct Log<T> {
    shared: Arc<Shared>,
    queue: Arc<Queue<T>>,
    commit_leader: Arc<CommitLeader<T>>,
    /// The writer thread first; empty once the threads have ended.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Proof that batches were queued and still have to be announced or written; see [`Log::queue`].
#[must_use = "nobody writes what is queued before `Log::announce` or `Log::write_here`"]
#[derive(Debug)]
pub struct Queued(());

impl<T> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("directory", &self.shared.config.directory)
            .finish_non_exhaustive()
    }
}

/// Builds the state that the log's threads and readers share, from what recovery found.
fn share(
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    files: Arc<OpenFiles>,
    config: LogConfig,
    claimed: Claimed,
    recovery: Recovery,
) -> Arc<Shared> {
    let newest = recovery.state.segments.iter().next_back();
    let (newest, newest_bytes) = newest.map_or((0, None), |(number, live)| (*number, Some(live.segment.capacity)));
    let maker = Maker {
        fs: fs.clone(),
        files,
        clock: clock.clone(),
        directory: config.directory.clone(),
        sizes: Sizes::new(&config, newest_bytes),
        durability: config.durability,
        boot_id: claimed.superblock.boot_id,
        next_number: AtomicU64::new(recovery.next_segment),
    };
    Arc::new(Shared {
        fs,
        prepared: Prepared::new(clock),
        maker,
        superblock: claimed.superblock.into(),
        checkpoints: recovery.checkpoints.into(),
        checkpoint_size: AtomicU64::new(recovery.checkpoint_size),
        footers: Default::default(),
        counters: Default::default(),
        read_buffers: crate::read::buffers(),
        compacting: Default::default(),
        moved: AtomicU64::new(0),
        synced_below: AtomicU64::new(newest),
        state: recovery.state.into(),
        config,
        sync_observer: OnceLock::new(),
        knows_its_ends: recovery.knows_its_ends,
        _lock: claimed.lock,
    })
}

/// A part of the state of the writers is one, so that it can count when its time comes.
fn check_writers<T>(entry: &LogEntry<T>) -> Result<(), LogError> {
    let EntryKind::Writers { .. } = entry.head.kind else {
        return Ok(());
    };
    let key = entry.head.key;
    let mut bytes = BatchBytes::from(Bytes::copy_from_slice(&entry.prefix));
    for chunk in &entry.chunks {
        bytes.push(chunk.clone());
    }
    let states = parts::parse(key.stream, &bytes.into_contiguous());
    states.map(drop).ok_or(LogError::NotWriters { key })
}

/// Stores the marks of damage, because the same damage might not be found again.
fn note_damage(shared: &Shared) -> std::io::Result<()> {
    match write_checkpoint(shared) {
        Err(error) if is_full(&error) => {
            tracing::warn!("the disk is full: what is damaged is not noted; the next start finds it again");
            Ok(())
        }
        written => written,
    }
}

impl<T: Send + 'static> Log<T> {
    /// Locks the directory, recovers its contents and starts the writer thread.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        config: LogConfig,
        observer: Arc<dyn GroupObserver<T>>,
    ) -> Result<(Self, Recovered), OpenError> {
        config.check()?;
        let claimed = claim::claim(&*fs, &config.directory)?;
        let files = OpenFiles::new(fs.clone());
        let mut recovery = recover::recover(&*fs, &files, &config, claimed.superblock.boot_id <= 1)?;
        let resume = std::mem::take(&mut recovery.resume);
        let last = recovery.state.last;

        let mut recovered = Recovered {
            notes: std::mem::take(&mut recovery.notes),
            clean: recovery.clean,
            boot_id: claimed.superblock.boot_id,
            ..Recovered::default()
        };
        let room = resume
            .active
            .as_ref()
            .map_or(0, |(segment, end)| segment.capacity.saturating_sub(*end));
        let shared = share(fs, clock, files, config, claimed, recovery);
        #[cfg(feature = "testing")]
        shared.forget_at_start();
        describe(&shared, &mut recovered);
        if resume.damaged || resume.doubted {
            note_damage(&shared).map_err(files::at(&shared.config.directory))?;
        }

        let queue = Arc::new(Queue::new(&shared.config, room));
        for (key, range) in shared.state.read().index.iter() {
            if let Some(end) = range.ended {
                queue.end_range(key, end, || {});
            }
        }
        let mut writer = Writer {
            shared: shared.clone(),
            queue: queue.clone(),
            jobs: JobSink::Inline,
            syncer: None,
            builder: Default::default(),
            active: resume.active,
            last,
            full: resume.full,
            has_marks: shared.superblock.lock().groups == Groups::Marks,
            since_checkpoint: if resume.damaged { 0 } else { resume.replayed },
        };
        let at = &shared.config.directory;
        let mut threads = start_helpers(&mut writer).map_err(files::at(at))?;
        for number in resume.unsealed {
            writer.jobs.send(&shared, Job::Seal(number));
        }
        let commit_leader = Arc::new(CommitLeader::new(writer, observer, &shared.config));
        let writer = Arc::clone(&commit_leader);
        threads.insert(0, spawn("sbp-log-writer", move || writer.run()).map_err(files::at(at))?);
        let log = Self {
            shared,
            queue,
            commit_leader,
            threads: threads.into(),
        };
        Ok((log, recovered))
    }

    /// Queues batches in this order. Never waits for the disk: the observer is told their outcome. After an error none
    /// was queued.
    pub fn append(&self, entries: Vec<LogEntry<T>>) -> Result<(), LogError> {
        self.announce(self.queue(entries)?);
        Ok(())
    }

    /// As [`append`](Self::append), but does not have the batches written. The caller passes the result to
    /// [`announce`](Self::announce), or to [`write_here`](Self::write_here) once it holds no lock that the receiver of
    /// the outcome needs.
    pub fn queue(&self, entries: Vec<LogEntry<T>>) -> Result<Queued, LogError> {
        for entry in &entries {
            check_writers(entry)?;
        }
        self.queue.append(entries, &self.shared.state, &self.shared.prepared)?;
        Ok(Queued(()))
    }

    /// As [`queue`](Self::queue), but one entry that is refused keeps only those behind it in its range from being queued.
    /// Returns what was refused, and why, in its order.
    pub fn queue_each(&self, entries: Vec<LogEntry<T>>) -> (Queued, Vec<(LogEntry<T>, LogError)>) {
        let known: Vec<_> = entries.iter().map(check_writers).collect();
        let shared = &self.shared;
        let refused = self
            .queue
            .append_each(entries.into_iter().zip(known), &shared.state, &shared.prepared);
        (Queued(()), refused)
    }

    /// Has the writer thread write queued batches.
    pub fn announce(&self, queued: Queued) {
        let Queued(()) = queued;
        self.queue.announce();
    }

    /// Has queued batches written. With durability [`none`](crate::Durability::None) this thread writes them itself if
    /// they are few and no other thread is writing, and calls `told` instead of the observer, which saves a lone append
    /// two thread switches. Otherwise the writer thread writes them. Waits neither for the disk nor for another thread.
    pub fn write_here(&self, queued: Queued, told: &mut dyn FnMut(Vec<T>, Result<(), Arc<LogError>>)) {
        let Queued(()) = queued;
        self.commit_leader.write_here(told);
    }

    /// Queues a barrier: when the observer gets `context` back, everything queued before is on stable storage, whatever
    /// the durability. A seal waits for this.
    pub fn barrier(&self, context: T) -> Result<(), LogError> {
        self.queue.barrier(context)
    }

    /// One past the offset of the range's last synced record; `None` for a range without records.
    #[must_use]
    pub fn synced_end(&self, key: RangeKey) -> Option<Offset> {
        let state = self.shared.state.read();
        state.index.get(key).filter(|range| range.known).map(|range| range.end)
    }

    /// The place behind the range's last synced entry, marks included; `None` for a range without entries.
    #[must_use]
    pub fn end_position(&self, key: RangeKey) -> Option<Position> {
        let state = self.shared.state.read();
        let range = state.index.get(key).filter(|range| range.known)?;
        Some(range.end_position())
    }

    /// The state of an idempotent writer by its synced batches, if the log remembers it.
    #[must_use]
    pub fn writer(&self, key: WriterKey) -> Option<WriterState> {
        self.shared.state.read().writers.get(&key).cloned()
    }

    /// The ranges of which the log has records or remembers the end, ordered.
    #[must_use]
    pub fn ranges(&self) -> Vec<RangeKey> {
        self.shared.state.read().index.keys_where(|range| range.known)
    }

    /// The bytes of batches that are queued or being written. A server limits them before it accepts more.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.queue.pending()
    }

    /// Tells the log that records of `key` below `below` are not needed any more: batches that end at or below it
    /// cannot be read from now on. Their space is freed when their whole segment is not needed and no kept checkpoint
    /// lists it. `Offset(i64::MAX)` releases the whole range, but keeps its writers, because their stream may go on
    /// elsewhere. Remembered only by the next checkpoint, so the owner repeats the call after a restart.
    pub fn release(&self, key: RangeKey, below: Offset) {
        let mut state = self.shared.state.write();
        if let Some(range) = state.index.get_mut(key) {
            range.release(below);
        }
        state.reclaimable = true;
        if below == Offset(i64::MAX) {
            state.folds.forget(key);
        }
        #[cfg(feature = "testing")]
        self.shared.forget_released(&mut state, key, below);
    }

    /// Has ranges leave the disk, of which nothing is needed any more and nothing more is appended: releases them, rewrites the
    /// files that have records of them, and writes checkpoints. Returns those of which a start finds nothing any more. They are
    /// forgotten but for their writers, and can be appended to again, from any offset on; until then they are to be neither
    /// appended to nor read. The owner remembers by itself which of them have not been returned yet, and asks for these again:
    /// later, because a segment leaves the disk only when it has its footer, and after a restart. None is while damage that was found
    /// when the log was opened hides records that are needed.
    ///
    /// Blocks on the disk until everything queued before is written, and for as long as files are rewritten.
    pub fn clear(&self, ranges: &[RangeKey]) -> std::io::Result<Vec<RangeKey>> {
        let release = || {
            for key in ranges {
                self.release(*key, Offset(i64::MAX));
            }
        };
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        release();
        // Everything that was queued is in the index then, and not in the segment being written.
        self.queue.roll(0).map_err(std::io::Error::other)?;
        let newest = clear::being_written(&self.shared, ranges);
        if newest > 0 {
            self.queue.roll(newest).map_err(std::io::Error::other)?;
        }
        release();
        let gone = clear::clear(&self.shared, ranges)?;
        self.queue.forget(&gone);
        Ok(gone)
    }

    /// Releases all ranges of a stream and forgets its writers. As with [`release`](Self::release), the owner of a
    /// deleted stream repeats the call after a restart, as long as the log [`holds`](Self::holds) any of it.
    pub fn release_stream(&self, stream: StreamId) {
        let mut state = self.shared.state.write();
        for (_, range) in state.index.iter_mut().filter(|(key, _)| key.stream == stream) {
            range.release(Offset(i64::MAX));
        }
        state.writers.forget_stream(stream);
        state.folds.forget_stream(stream);
        state.reclaimable = true;
        drop(state);
        self.queue.forget_ends(|key| key.stream == stream);
    }

    /// Whether any segment still has records of this range, released or not. As long as one does, a restart may find
    /// them.
    #[must_use]
    pub fn holds(&self, key: RangeKey) -> bool {
        self.shared.state.read().keys_on_disk().any(|held| held == key)
    }

    /// Whether any segment still has records of the stream, released or not, or the log remembers the end of one of its
    /// ranges. An older checkpoint may list more.
    #[must_use]
    pub fn holds_stream(&self, stream: StreamId) -> bool {
        let state = self.shared.state.read();
        let mut known = state.index.iter().filter(|(_, range)| range.known);
        let remembered = known.any(|(key, _)| key.stream == stream);
        remembered || state.keys_on_disk().any(|held| held.stream == stream)
    }

    /// Writes a checkpoint now and removes segments that are not needed. Blocks on the disk.
    pub fn checkpoint(&self) -> std::io::Result<()> {
        write_checkpoint(&self.shared)
    }

    /// Frees released space now: rewrites mostly released segments, and writes checkpoints until unused files are
    /// removed, if there is enough to free. Returns the bytes freed. Blocks on the disk; cheap when there is nothing to
    /// do.
    pub fn reclaim(&self) -> std::io::Result<u64> {
        compaction::reclaim(&self.shared)
    }

    /// Reads one sealed file, the first whose number is larger than `after`, and checks all its batches that are still
    /// needed; `None` if there is no such file. Damaged batches are marked, durably. Blocks on the disk until done, so
    /// the caller decides how much of the disk's time is used.
    pub fn scrub(&self, after: u64) -> std::io::Result<Option<Scrubbed>> {
        scrub::scrub(&self.shared, after)
    }

    /// Puts a batch in its place that is damaged here and was read from another copy of its range: the one that begins at
    /// `base`. Returns whether it can be read now: not if these are other bytes than those that were here, if its head is
    /// damaged too, or while its file is being written. A start that finds no checkpoint since takes it for damaged until it
    /// is repaired again. Blocks on the disk.
    pub fn repair(&self, key: RangeKey, base: Offset, batch: &[u8]) -> std::io::Result<bool> {
        repair::repair(&self.shared, key, base, batch)
    }

    /// The first record of this range that was not released has the offset `begin`, or did: the log itself does not know where a
    /// range began of which no checkpoint tells. If damage hides records, those before the first one that can be read are
    /// marked as damaged. Returns which.
    pub fn begins_at(&self, key: RangeKey, begin: Offset) -> Option<DamagedInterval> {
        let state = &mut *self.shared.state.write();
        if !state.index.unlisted_damage {
            return None;
        }
        let range = state.index.get_mut(key).filter(|range| range.known)?;
        let (from, to) = (begin.max(range.released), range.first());
        range.mark(from, to);
        (from < to).then_some(DamagedInterval { key, from, to })
    }

    /// The damaged offsets of a range, ordered. Reads may find more.
    #[must_use]
    pub fn damage(&self, key: RangeKey) -> Vec<DamagedInterval> {
        let state = self.shared.state.read();
        let damage = state.index.get(key).into_iter().flat_map(|range| &range.damage);
        damage.map(|&(from, to)| DamagedInterval { key, from, to }).collect()
    }

    /// The names of the files that hold a range's records from `from` to `to`, or the records next to these where damage
    /// hides which file that is. For people.
    #[must_use]
    pub fn files_of(&self, key: RangeKey, from: Offset, to: Offset) -> Vec<String> {
        let state = self.shared.state.read();
        let runs = state.index.get(key).into_iter().flat_map(|range| &range.runs);
        let near = runs.filter(|run| run.first <= to && from <= run.end);
        let mut files: Vec<_> = near
            .map(|run| match state.compacted.contains_key(&run.segment) {
                true => files::SegmentId::Compacted(run.segment).file_name(),
                false => files::SegmentId::Chain(run.segment).file_name(),
            })
            .collect();
        files.dedup();
        files
    }

    /// The first `limit` damaged intervals of all ranges, ordered.
    #[must_use]
    pub fn all_damage(&self, limit: usize) -> Vec<DamagedInterval> {
        let state = self.shared.state.read();
        let damaged = state.index.iter().filter(|(_, range)| !range.damage.is_empty());
        let each = damaged.flat_map(|(key, range)| range.damage.iter().map(move |&(from, to)| (key, from, to)));
        let mut all: Vec<_> = each.map(|(key, from, to)| DamagedInterval { key, from, to }).collect();
        all.sort_unstable();
        all.truncate(limit);
        all
    }

    /// The number of ranges with damaged offsets.
    #[must_use]
    pub fn damaged_ranges(&self) -> usize {
        let state = self.shared.state.read();
        state.index.iter().filter(|(_, range)| !range.damage.is_empty()).count()
    }

    /// Whether the range's end is certain. If not, the range can be neither appended to nor sealed.
    ///
    /// A range without records counts as certain, even if [`Damage::unlisted_ranges`] says that damage may hide records
    /// of such ranges: only the owner knows which ranges are new, and has to check that.
    #[must_use]
    pub fn end_is_proven(&self, key: RangeKey) -> bool {
        self.shared.state.read().index.get(key).is_none_or(|range| range.proven)
    }

    /// The server's id that is stored in the directory.
    #[must_use]
    pub fn server_id(&self) -> Option<ServerId> {
        self.shared.superblock.lock().server_id
    }

    /// Whether the directory was made from a backup of a server with an id, and has lost the id by that.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.shared.superblock.lock().restored
    }

    /// Stores the server's id in the directory, durably.
    pub fn set_server_id(&self, id: ServerId) -> std::io::Result<()> {
        self.shared
            .change_superblock(|superblock| crate::format::superblock::Superblock {
                server_id: Some(id),
                ..superblock
            })
    }

    /// Has `observer` told of every sync from now on. The first observer stays.
    pub fn observe_syncs(&self, observer: Arc<dyn SyncObserver>) {
        let _first = self.shared.sync_observer.set(observer);
    }

    /// Tries again to make the next segment, if the disk had no room for it. Appends that need it try by themselves, once
    /// a second.
    pub fn look_for_room(&self) {
        self.shared.prepared.retry();
    }

    /// Whether the disk had no room for the next segment when it was last tried: appends that need it are refused.
    #[must_use]
    pub fn disk_is_full(&self) -> bool {
        self.shared.prepared.is_full()
    }

    /// Whether an append was refused because the disk has no room for a segment that it fits into, although there is a smaller
    /// one, which other appends go to; until there is such room.
    #[must_use]
    pub fn disk_is_nearly_full(&self) -> bool {
        self.shared.prepared.is_nearly_full()
    }

    /// Why the log takes no more appends, if it has failed. Final.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<LogError>> {
        self.queue.failure().map(|cause| Arc::new(LogError::Failed { cause }))
    }

    /// Counts since the log was opened.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let counters = &self.shared.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let segments = {
            let state = self.shared.state.read();
            state.segments.len() + state.compacted.len()
        };
        LogStats {
            durability: self.shared.config.durability,
            groups: load(&counters.groups),
            batches: load(&counters.batches),
            batch_bytes: load(&counters.batch_bytes),
            written_bytes: load(&counters.written_bytes),
            copied_bytes: load(&counters.copied_bytes),
            syncs: load(&counters.syncs),
            sync_time: Duration::from_nanos(load(&counters.sync_nanos)),
            hot_reads: load(&counters.hot_reads),
            cold_reads: load(&counters.cold_reads),
            segments: segments as u64,
            checkpoints: load(&counters.checkpoints),
            disk_reads: load(&counters.disk_reads),
            compacted_bytes: load(&counters.compacted_bytes),
        }
    }

    /// Writes what is queued, syncs, and writes a checkpoint and the mark of a clean end. Dropping the log instead
    /// loses nothing, but the next start has more to replay.
    pub fn shutdown(self) -> Result<(), LogError> {
        self.close()
    }

    /// As [`shutdown`](Self::shutdown), while others still hold the log: they can read, but not append. The directory
    /// is unlocked when the last of them drops the log.
    pub fn close(&self) -> Result<(), LogError> {
        self.stop();
        if let Some(cause) = self.queue.failure() {
            return Err(LogError::Failed { cause });
        }
        let failed = |error| LogError::Failed { cause: Arc::new(error) };
        self.shared.sync_all().map_err(failed)?;
        match self.mark_end() {
            Err(error) if is_full(&error) => {
                // Everything is on the disk; only the next start takes longer.
                tracing::warn!("the disk is full: the log ends without a last checkpoint");
                Ok(())
            }
            marked => marked.map_err(failed),
        }
    }

    /// Writes the last checkpoint and the mark of a clean end.
    fn mark_end(&self) -> std::io::Result<()> {
        write_checkpoint(&self.shared)?;
        let last = self.shared.state.read().last;
        let directory = &self.shared.config.directory;
        write_small_always(&*self.shared.fs, directory, CLEAN, &last.encode_clean())
    }
}

impl<T> Log<T> {
    /// Ends the threads once everything queued is written.
    fn stop(&self) {
        self.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let mut threads = threads.into_iter();
        // If the observer drops the log's last owner, this runs on the writer thread, which cannot join itself.
        if let Some(writer) = threads
            .next()
            .filter(|writer| writer.thread().id() != std::thread::current().id())
        {
            let _ = writer.join();
        }
        self.shared.prepared.close();
        for helper in threads {
            let _ = helper.join();
        }
    }
}

impl<T> Drop for Log<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start_helpers<T: Send + 'static>(writer: &mut Writer<T>) -> std::io::Result<Vec<JoinHandle<()>>> {
    if writer.shared.config.helpers == Helpers::Inline {
        return Ok(Vec::new());
    }
    let shared = writer.shared.clone();
    let preparer = spawn("sbp-log-prepare", move || {
        while shared.prepared.wait_wanted() {
            shared.prepared.fill(&shared.maker);
        }
    })?;
    let (sender, jobs) = mpsc::channel();
    let shared = writer.shared.clone();
    let upkeep = spawn("sbp-log-upkeep", move || {
        jobs.into_iter().for_each(|job| jobs::run(&shared, job));
    })?;
    writer.jobs = JobSink::Thread(sender);
    writer.syncer = Some(Syncer::start(writer.shared.clone())?);
    Ok(vec![preparer, upkeep])
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Describes the recovered state for the owner.
fn describe(shared: &Shared, recovered: &mut Recovered) {
    let state = shared.state.read();
    let mut damage = Damage {
        intervals: Vec::new(),
        unlisted_ranges: state.index.unlisted_damage,
    };
    for (key, range) in state.index.iter().filter(|(_, range)| range.known) {
        let end = RangeEnd {
            first_offset: range.first(),
            next_offset: range.end,
            next_marks: range.end_marks,
            epoch: range.epoch,
            proven: range.proven,
        };
        recovered.ranges.push((key, end));
        damage
            .intervals
            .extend(range.damage.iter().map(|&(from, to)| DamagedInterval { key, from, to }));
    }
    recovered.ranges.sort_unstable_by_key(|(key, _)| *key);
    damage.intervals.sort_unstable();
    recovered.damage = damage;
    recovered.writers = state.writers.ordered();
}
