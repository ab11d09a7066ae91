//! The log's public face.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_types::{Offset, RangeKey, ServerId, StreamId, TimestampMs};

use crate::claim::Claimed;
use crate::commit_leader::CommitLeader;
use crate::files::{CLEAN, is_full, write_small_always};
use crate::handle::OpenFiles;
use crate::prepare::{Maker, Prepared};
use crate::queue::Queue;
use crate::recover::Recovery;
use crate::shared::{Shared, State};
use crate::tail::HotTail;
use crate::upkeep::{Job, JobSink, write_checkpoint};
use crate::writer::{Syncer, Writer};
use crate::{
    Clock, Damage, DamagedInterval, FileSystem, Helpers, LogConfig, LogEntry, LogError, LogStats, OpenError, RangeEnd,
    ReadError, Recovered, Scrubbed, StoredBatch, WriterKey, WriterState, claim, compaction, files, read, recover,
    scrub, upkeep,
};

/// Told how each group of appends ended, by the writer thread.
pub trait GroupObserver<T>: Send + Sync + 'static {
    /// Called once per group, in the order in which its entries were queued: after the sync, when readers see them, or
    /// when it is known that they never will. Must not block: the next group waits.
    ///
    /// After [`LogError::DiskFull`], offsets of the ranges concerned go on from [`Log::synced_end`].
    fn group_ended(&self, contexts: Vec<T>, outcome: Result<(), Arc<LogError>>);
}

/// A durable log of batches, shared by all ranges of a data directory.
///
/// Appends are queued by any thread and written by one at a time: the writer thread, or a caller with little to write and
/// no disk to wait for ([`Log::write_here`]). Reads come from any thread and may block on the disk.
pub struct Log<T> {
    shared: Arc<Shared>,
    queue: Arc<Queue<T>>,
    commit_leader: Arc<CommitLeader<T>>,
    /// The writer first; empty when they have ended.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Batches in the queue that nobody has been told to write; see [`Log::queue`].
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

/// What the log's threads and its readers share, of what recovery found.
fn share(
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    files: Arc<OpenFiles>,
    config: LogConfig,
    claimed: Claimed,
    recovery: &mut Recovery,
) -> Arc<Shared> {
    let boot_id = claimed.superblock.boot_id;
    let maker = Maker::new(
        fs.clone(),
        files,
        clock.clone(),
        &config,
        boot_id,
        recovery.next_segment,
    );
    let newest = recovery.segments.keys().next_back().copied().unwrap_or(0);
    Arc::new(Shared {
        fs,
        prepared: Prepared::new(clock),
        maker,
        superblock: claimed.superblock.into(),
        checkpoints: std::mem::take(&mut recovery.checkpoints).into(),
        checkpoint_size: AtomicU64::new(recovery.checkpoint_size),
        footers: Default::default(),
        counters: Default::default(),
        read_buffers: read::buffers(),
        compacting: Default::default(),
        moved: AtomicU64::new(0),
        synced_below: AtomicU64::new(newest),
        state: State {
            index: std::mem::take(&mut recovery.index),
            tail: HotTail::new(config.hot_tail_bytes),
            writers: std::mem::take(&mut recovery.writers),
            segments: std::mem::take(&mut recovery.segments),
            compacted: std::mem::take(&mut recovery.compacted),
            retired: std::mem::take(&mut recovery.retired),
            reclaimable: true,
            last: recovery.last,
        }
        .into(),
        config,
        _lock: claimed.lock,
    })
}

/// Writes down what is damaged: the marks must not depend on finding the same damage again.
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
    /// Takes the directory, recovers what it holds and starts the writer thread.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        config: LogConfig,
        observer: Arc<dyn GroupObserver<T>>,
    ) -> Result<(Self, Recovered), OpenError> {
        config.check()?;
        let claimed = claim::claim(&*fs, &config.directory)?;
        let files = OpenFiles::new(fs.clone());
        let mut recovery = recover::recover(&*fs, &files, &config)?;

        let mut recovered = Recovered {
            notes: std::mem::take(&mut recovery.notes),
            clean: recovery.clean,
            boot_id: claimed.superblock.boot_id,
            ..Recovered::default()
        };
        let room = recovery
            .active
            .as_ref()
            .map_or(0, |(segment, end)| segment.capacity.saturating_sub(*end));
        let shared = share(fs, clock, files, config, claimed, &mut recovery);
        #[cfg(feature = "testing")]
        shared.forget_at_start();
        describe(&shared, &mut recovered);
        if recovery.damaged {
            note_damage(&shared).map_err(files::at(&shared.config.directory))?;
        }

        let queue = Arc::new(Queue::new(&shared.config, room));
        let mut writer = Writer {
            shared: shared.clone(),
            queue: queue.clone(),
            jobs: JobSink::Inline,
            syncer: None,
            builder: Default::default(),
            active: recovery.active,
            last: recovery.last,
            full: recovery.full,
            since_checkpoint: if recovery.damaged { 0 } else { recovery.replayed },
        };
        let at = &shared.config.directory;
        let mut threads = start_helpers(&mut writer).map_err(files::at(at))?;
        for number in recovery.unsealed {
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

    /// Queues batches, in this order. Never waits for the disk: the observer tells how they ended. On an error none of
    /// them was queued.
    pub fn append(&self, entries: Vec<LogEntry<T>>) -> Result<(), LogError> {
        self.announce(self.queue(entries)?);
        Ok(())
    }

    /// As [`append`](Self::append), but nobody is told to write them: the caller gives what it gets to
    /// [`announce`](Self::announce), or to [`write_here`](Self::write_here) once it holds no lock that whoever is told of
    /// a group's end needs.
    pub fn queue(&self, entries: Vec<LogEntry<T>>) -> Result<Queued, LogError> {
        self.queue.append(entries, &self.shared.state, &self.shared.prepared)?;
        Ok(Queued(()))
    }

    /// Has the writer thread write queued batches.
    pub fn announce(&self, queued: Queued) {
        let Queued(()) = queued;
        self.queue.announce();
    }

    /// Has queued batches written. With durability [`none`](crate::Durability::None) this thread writes them itself when
    /// they are few and nobody else is writing, and tells `told` instead of the observer: two changes of threads less for
    /// a lone append. Otherwise the writer thread does. Waits neither for the disk nor for another thread.
    pub fn write_here(&self, queued: Queued, told: &mut dyn FnMut(Vec<T>, Result<(), Arc<LogError>>)) {
        let Queued(()) = queued;
        self.commit_leader.write_here(told);
    }

    /// Queues a point in the log: when the observer gets `context` back, everything queued before is on stable storage,
    /// whatever the durability. A seal waits for this.
    pub fn barrier(&self, context: T) -> Result<(), LogError> {
        self.queue.barrier(context)
    }

    /// Synced batches from the one that holds `from` on, whole ones, together at most `max_bytes`; with `at_least_one`
    /// the first is returned whatever its size. Empty at and beyond the synced end, and for an unknown range. What lies
    /// before damage is returned; a read that begins in it is [`ReadError::Damaged`].
    pub fn read(
        &self,
        key: RangeKey,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<StoredBatch>, ReadError> {
        self.shared.read(key, from, max_bytes, at_least_one)
    }

    /// The same from memory alone: `None` if the first batch, or where it is, has to come from the disk; then
    /// [`read`](Self::read) gives it. Never touches the disk.
    #[must_use]
    pub fn read_hot(
        &self,
        key: RangeKey,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Option<Result<Vec<StoredBatch>, ReadError>> {
        self.shared.read_hot(key, from, max_bytes, at_least_one)
    }

    /// The base offset of the first synced batch that ends behind `from` and whose `max_timestamp` reaches `time`.
    pub fn find_timestamp(&self, key: RangeKey, from: Offset, time: TimestampMs) -> Result<Option<Offset>, ReadError> {
        self.shared.find_timestamp(key, from, time)
    }

    /// The offset behind the range's last synced record; `None` for a range without records.
    #[must_use]
    pub fn synced_end(&self, key: RangeKey) -> Option<Offset> {
        let state = self.shared.state.read();
        state.index.get(key).filter(|range| range.known).map(|range| range.end)
    }

    /// How many bytes of synced batches a read from `from` on could return: exact, but in
    /// proportion within an older segment whose footer is not in memory. Never touches the disk.
    #[must_use]
    pub fn bytes_from(&self, key: RangeKey, from: Offset) -> u64 {
        self.shared.bytes_from(key, from)
    }

    /// Batch bytes of a range that are synced and not released: exact, but in proportion around the released
    /// offset where an older segment's footer is not in memory. Never touches the disk.
    #[must_use]
    pub fn stored_bytes(&self, key: RangeKey) -> u64 {
        self.shared.stored_bytes(key)
    }

    /// The base offset of the first batch that was appended at or after `cutoff`; the synced end when none was. Batches
    /// that cannot be read stay. May touch the disk.
    ///
    /// Append times are taken to grow with the offsets. Where the server's clock stepped back, the answer is some batch
    /// that is young enough with one before it that is not.
    pub fn offset_appended_since(&self, key: RangeKey, cutoff: TimestampMs) -> Result<Offset, ReadError> {
        self.shared.offset_appended_since(key, cutoff)
    }

    /// The base offset of the newest batch from which on at least `keep` bytes of batches are stored; the first offset
    /// when there are fewer. So nothing goes that a limit of `keep` bytes promises, and less than a batch more stays. May
    /// touch the disk; if that cannot be read, more stays.
    #[must_use]
    pub fn offset_keeping_bytes(&self, key: RangeKey, keep: u64) -> Offset {
        self.shared.offset_keeping_bytes(key, keep)
    }

    /// Where an idempotent writer stands by its synced batches, if the log remembers it.
    #[must_use]
    pub fn writer(&self, key: WriterKey) -> Option<WriterState> {
        self.shared.state.read().writers.get(&key).cloned()
    }

    /// The ranges the log holds records of or remembers the end of, ordered.
    #[must_use]
    pub fn ranges(&self) -> Vec<RangeKey> {
        self.shared.state.read().index.keys_where(|range| range.known)
    }

    /// Bytes of batches queued or being written: what a server limits before it accepts more.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.queue.pending()
    }

    /// Tells the log that nothing of `key` below `below` is needed any more: batches wholly below it cannot be read from
    /// now on. Their bytes go when the whole segment they are in holds nothing needed and no kept checkpoint lists it.
    /// `Offset(i64::MAX)` gives up the range; writers are not forgotten with it, because their stream may go on
    /// elsewhere. Remembered by the next checkpoint, so an owner repeats it after a restart.
    pub fn release(&self, key: RangeKey, below: Offset) {
        let mut state = self.shared.state.write();
        if let Some(range) = state.index.get_mut(key) {
            range.release(below);
        }
        state.reclaimable = true;
        #[cfg(feature = "testing")]
        self.shared.forget_released(&mut state, key, below);
    }

    /// Gives up a stream: releases all of its ranges and forgets its writers. As with [`release`](Self::release), the
    /// owner of a deleted stream repeats it after a restart, for as long as the log [`holds`](Self::holds) any of it.
    pub fn release_stream(&self, stream: StreamId) {
        let mut state = self.shared.state.write();
        for (_, range) in state.index.iter_mut().filter(|(key, _)| key.stream == stream) {
            range.release(Offset(i64::MAX));
        }
        state.writers.forget_stream(stream);
        state.reclaimable = true;
    }

    /// Whether any segment still holds records of this range, released or not: until none does, a restart may find them.
    #[must_use]
    pub fn holds(&self, key: RangeKey) -> bool {
        self.shared.state.read().keys_on_disk().any(|held| held == key)
    }

    /// Whether any segment still holds records of any range of this stream, released or not, or the end of one is
    /// remembered. A checkpoint older than the newest may tell of more.
    #[must_use]
    pub fn holds_stream(&self, stream: StreamId) -> bool {
        let state = self.shared.state.read();
        let remembered = state.index.iter().any(|(key, _)| key.stream == stream);
        remembered || state.keys_on_disk().any(|held| held.stream == stream)
    }

    /// Writes a checkpoint now and removes segments that nothing needs. Blocks on the disk.
    pub fn checkpoint(&self) -> std::io::Result<()> {
        write_checkpoint(&self.shared)
    }

    /// Gives released room back now rather than after some more log: rewrites what is left of mostly released segments, and
    /// writes checkpoints until files without use are gone, if they are worth it. How many bytes went. Blocks on the disk;
    /// cheap when there is nothing to do.
    pub fn reclaim(&self) -> std::io::Result<u64> {
        compaction::reclaim(&self.shared)
    }

    /// Reads one sealed file whole, the first whose number is larger than `after`, and checks every batch that is still
    /// needed; `None` when there is none. Batches that are damaged are marked and remembered. Blocks on the disk for as
    /// long as that takes: whoever calls it file by file decides how much of the disk's time it gets.
    pub fn scrub(&self, after: u64) -> std::io::Result<Option<Scrubbed>> {
        scrub::scrub(&self.shared, after)
    }

    /// The damaged offsets of a range, ordered. Grows when a read finds more.
    #[must_use]
    pub fn damage(&self, key: RangeKey) -> Vec<DamagedInterval> {
        let state = self.shared.state.read();
        let damage = state
            .index
            .get(key)
            .map(|range| range.damage.as_slice())
            .unwrap_or_default();
        damage
            .iter()
            .map(|&(from, to)| DamagedInterval { key, from, to })
            .collect()
    }

    /// How many ranges have damaged offsets.
    #[must_use]
    pub fn damaged_ranges(&self) -> usize {
        let state = self.shared.state.read();
        state.index.iter().filter(|(_, range)| !range.damage.is_empty()).count()
    }

    /// Whether it is certain where the range ends. If not, it can be neither appended to nor sealed.
    ///
    /// A range without any record is certain to have none, unless [`Damage::unlisted_ranges`] says otherwise; that one
    /// is for the owner to heed, who knows which ranges are new.
    #[must_use]
    pub fn end_is_proven(&self, key: RangeKey) -> bool {
        self.shared.state.read().index.get(key).is_none_or(|range| range.proven)
    }

    /// The server's number as the directory remembers it.
    #[must_use]
    pub fn server_id(&self) -> Option<ServerId> {
        self.shared.superblock.lock().server_id
    }

    /// Writes the server's number into the directory, durably.
    pub fn set_server_id(&self, id: ServerId) -> std::io::Result<()> {
        self.shared
            .change_superblock(|superblock| crate::format::superblock::Superblock {
                server_id: Some(id),
                ..superblock
            })
    }

    /// Why the log takes no appends any more, if it does not. Final.
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

    /// Writes what is queued, syncs, writes a checkpoint and the mark of a clean end. Dropping the log without this is
    /// as safe, but the next start has more to replay.
    pub fn shutdown(self) -> Result<(), LogError> {
        self.close()
    }

    /// As [`shutdown`](Self::shutdown), where others may still hold the log: they can read, and append nothing. The
    /// directory is free when the last of them drops it.
    pub fn close(&self) -> Result<(), LogError> {
        self.stop();
        if let Some(cause) = self.queue.failure() {
            return Err(LogError::Failed { cause });
        }
        let failed = |error| LogError::Failed { cause: Arc::new(error) };
        self.shared.sync_all().map_err(failed)?;
        match self.mark_end() {
            Err(error) if is_full(&error) => {
                // All of it is on the disk; the next start reads more of it.
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
    /// Ends the threads when everything queued is written.
    fn stop(&self) {
        self.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let mut threads = threads.into_iter();
        // The last owner may be something that the observer dropped, on the writer thread itself.
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
    let (jobs, upkeep) = upkeep::start(writer.shared.clone())?;
    writer.jobs = jobs;
    writer.syncer = Some(Syncer::start(writer.shared.clone())?);
    Ok(vec![preparer, upkeep])
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Tells the owner what there is.
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
