//! Writes groups one after the other, each after the sync of the one before it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::format::block_up;
use crate::format::clean::GroupMark;
use crate::format::group::GroupHeader;
use crate::format::segment::FIRST_GROUP;
use crate::fs::File;
use crate::segments::prepare::NoSegment;
use crate::segments::segment::Segment;
use crate::state::shared::{LiveSegment, Shared, count};
use crate::upkeep::jobs::{Job, JobSink};
use crate::write::group_builder::{EncodedGroup, GroupBuilder, GroupPosition};
use crate::write::queue::{Item, Queue};
use crate::{Durability, Helpers, LogError};

/// If less than this fraction of a segment is left, it stays empty instead of getting a small group.
const WORTH_FILLING: u64 = 64;

/// The callback for a group's outcome, with the contexts of its entries in order.
pub(crate) type Told<'a, T> = dyn FnMut(Vec<T>, Result<(), Arc<LogError>>) + 'a;

/// The state of the thread that writes.
pub(crate) struct Writer<T> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Arc<Queue<T>>,
    pub(crate) jobs: JobSink,
    pub(crate) syncer: Option<Syncer>,
    pub(crate) builder: GroupBuilder,
    /// The segment being written and the position of its next group. `None` before the first group, and when the last
    /// segment must not be continued.
    pub(crate) active: Option<(Arc<Segment>, u64)>,
    /// The last group that was given a position.
    pub(crate) last: GroupMark,
    /// Full segments, newest last. Each gets its footer once the first group after it is synced.
    pub(crate) full: Vec<u64>,
    /// Bytes of log since the last checkpoint.
    pub(crate) since_checkpoint: u64,
    /// Whether the directory's groups may have marks.
    pub(crate) has_marks: bool,
}

/// The next thing to do after the group being committed.
enum Next<T> {
    Nothing,
    Group(EncodedGroup<T>),
    /// Barriers without records: everything before them has to be synced.
    Barriers(Vec<Item<T>>),
    /// The disk has no room for all of these.
    Refused(Vec<Item<T>>, Fits),
    /// The log has failed to create a segment for these.
    Lost(Vec<T>, Arc<io::Error>),
}

/// What can still be written on a disk that has no room for more.
#[derive(Clone, Copy, Debug)]
struct Fits {
    /// The longest group.
    room: u64,
    /// Whether marks can, and entries of shared ranges: the first of them needs a change of the superblock.
    marks: bool,
}

impl Fits {
    fn has<T>(&self, item: &Item<T>) -> bool {
        (self.marks || !item.needs_marks()) && group_len(item.stored_len()) <= self.room
    }
}

impl<T: Send + 'static> Writer<T> {
    /// Writes until the queue is empty or the log has failed.
    pub(crate) fn write_all(&mut self, told: &mut Told<'_, T>) {
        // The group that another thread syncs.
        let mut under_way: Option<EncodedGroup<T>> = None;
        while self.queue.failure().is_none() {
            if under_way.is_none() && self.shared.config.helpers == Helpers::Inline {
                self.shared.prepared.fill(&self.shared.maker);
            }
            // The next group is built while the disk syncs the one before it.
            let items = self.queue.try_take(self.limit());
            if under_way.is_none() && items.is_empty() {
                return;
            }
            let next = self.form_next(items);
            if let Some(group) = under_way.take() {
                if let Err(error) = self.syncer.as_ref().map_or(Ok(()), Syncer::wait) {
                    let contexts = group.contexts.into_iter().chain(next.into_contexts()).collect();
                    self.fail(contexts, &Arc::new(error), told);
                    continue;
                }
                self.end_group(group, told);
            }
            under_way = self.go_on(next, told);
        }
    }

    /// Writes what is queued as one group, if it is at most `limit` bytes and needs to wait neither for the disk nor
    /// for the next segment.
    pub(crate) fn write_few(&mut self, limit: u64, told: &mut Told<'_, T>) {
        let Some((segment, position)) = &self.active else {
            return;
        };
        let left = segment.capacity.saturating_sub(*position);
        let items = self.queue.take_few(
            limit.min(left).min(self.shared.config.group_bytes as u64),
            self.has_marks,
        );
        let next = self.form_next(items);
        // Nothing is synced on behalf of a caller, so no commit stays under way.
        let _done = self.go_on(next, told);
    }

    /// The most bytes for the next group: what is left of the segment, if that is worth a group, else what the next
    /// segment has room for.
    fn limit(&self) -> usize {
        let group = self.shared.config.group_bytes;
        let left = self.active.as_ref().map(|(segment, position)| {
            let left = segment.capacity.saturating_sub(*position);
            (left, left >= segment.capacity / WORTH_FILLING)
        });
        let room = match left {
            Some((left, true)) => left,
            _ => Segment::room(self.shared.maker.sizes.next()),
        };
        group.min(usize::try_from(room).unwrap_or(group).saturating_sub(GroupHeader::LEN))
    }

    /// Finds the position of a group and builds it.
    fn form_next(&mut self, mut items: Vec<Item<T>>) -> Next<T> {
        if items.is_empty() {
            return Next::Nothing;
        }
        let active = self.active.as_ref().map(|(segment, _)| segment.number);
        let rolls = items.iter().any(|item| item.rolls_from(active));
        if !items.iter().any(|item| matches!(item, Item::Append(_))) {
            return self.form_without_records(items, rolls);
        }
        if !self.has_marks && items.iter().any(Item::needs_marks) {
            if let Err(error) = self.shared.admit_marks() {
                let room = u64::MAX;
                return match NoSegment::from(error) {
                    NoSegment::Full { .. } => self.form_less(items, Fits { room, marks: false }),
                    NoSegment::Failed(cause) => Next::lost(items, cause),
                };
            }
            self.has_marks = true;
        }
        let length = GroupHeader::LEN + items.iter().map(Item::stored_len).sum::<usize>();
        let place = match self.place(length as u64, rolls) {
            Ok(place) => place,
            // There may be room where the log is.
            Err(NoSegment::Full { .. }) if rolls => {
                items.iter_mut().for_each(Item::stay);
                return self.form_next(items);
            }
            Err(NoSegment::Full { room }) => {
                let room = room.max(self.left());
                return self.form_less(items, Fits { room, marks: true });
            }
            Err(NoSegment::Failed(cause)) => return Next::lost(items, cause),
        };
        Next::Group(self.build(place, items))
    }

    fn build(&mut self, place: GroupPosition, items: Vec<Item<T>>) -> EncodedGroup<T> {
        let group = self.builder.build(place, items);
        self.last = group.mark;
        self.active = Some((group.segment.clone(), group.end()));
        self.queue.set_room(group.segment.capacity.saturating_sub(group.end()));
        group
    }

    /// Barriers need no group. A roll does: only its first group proves that there is another segment.
    fn form_without_records(&mut self, items: Vec<Item<T>>, rolls: bool) -> Next<T> {
        if rolls {
            match self.place(GroupHeader::LEN as u64, rolls) {
                Ok(place) => return Next::Group(self.build(place, items)),
                Err(NoSegment::Full { .. }) => {}
                Err(NoSegment::Failed(cause)) => return Next::lost(items, cause),
            }
        }
        Next::Barriers(items)
    }

    /// Forms a smaller group of the first of these items, which have no room together: the others go back to the queue. What
    /// has no room alone is refused.
    fn form_less(&mut self, mut items: Vec<Item<T>>, fits: Fits) -> Next<T> {
        let left = self.left();
        let mut length = GroupHeader::LEN;
        let leading = items.iter().take_while(|item| {
            length += item.stored_len();
            block_up(length as u64) <= left && (fits.marks || !item.needs_marks())
        });
        // The first one alone may fit into the next segment.
        let count = leading.count().max(1);
        if count < items.len() {
            self.queue.put_first(items.split_off(count));
            return self.form_next(items);
        }
        Next::Refused(items, fits)
    }

    /// The bytes left in the segment being written.
    fn left(&self) -> u64 {
        let active = self.active.as_ref();
        active.map_or(0, |(segment, position)| segment.capacity.saturating_sub(*position))
    }

    /// Does what comes next; returns a group that another thread syncs.
    fn go_on(&mut self, next: Next<T>, told: &mut Told<'_, T>) -> Option<EncodedGroup<T>> {
        match next {
            Next::Nothing => {}
            Next::Group(group) => return self.commit(group, told),
            Next::Barriers(items) => match self.sync_before_barrier() {
                Ok(()) => {
                    items.iter().for_each(Item::tell_rolled);
                    told(contexts_of(items), Ok(()));
                }
                Err(error) => self.fail(contexts_of(items), &Arc::new(error), told),
            },
            Next::Refused(items, fits) => self.refuse(items, fits, told),
            Next::Lost(contexts, cause) => self.fail(contexts, &cause, told),
        }
        None
    }

    /// The place of a group of this length; with `rolls` in another segment.
    fn place(&mut self, length: u64, rolls: bool) -> Result<GroupPosition, NoSegment> {
        let fits =
            |(segment, position): &&(Arc<Segment>, u64)| !rolls && position + block_up(length) <= segment.capacity;
        let (segment, position) = match self.active.as_ref().filter(fits) {
            Some((segment, position)) => (segment.clone(), *position),
            None => {
                let shared = &self.shared;
                let inline = shared.config.helpers == Helpers::Inline;
                let least = FIRST_GROUP + block_up(length);
                let next = Arc::new(shared.prepared.take(least, &shared.maker, inline)?);
                self.full.extend(self.active.take().map(|(full, _)| full.number));
                (next, FIRST_GROUP)
            }
        };
        Ok(GroupPosition {
            segment,
            position,
            number: self.last.number.saturating_add(1),
            previous: self.last.checksum,
        })
    }

    /// Writes a group and syncs it, or has it synced while the next one is built, and returns it then.
    fn commit(&mut self, group: EncodedGroup<T>, told: &mut Told<'_, T>) -> Option<EncodedGroup<T>> {
        let done = group
            .write()
            .and_then(|()| match (self.shared.config.durability, &self.syncer) {
                (Durability::None, _) if group.barrier => self.sync_with(&group).map(|()| true),
                (Durability::None, _) => Ok(true),
                (Durability::Fsync, Some(syncer)) if !self.queue.is_empty() => {
                    syncer.begin(group.segment.clone());
                    Ok(false)
                }
                (Durability::Fsync, _) => timed_sync(&self.shared, &group.segment).map(|()| true),
            });
        match done {
            Ok(true) => self.end_group(group, told),
            Ok(false) => return Some(group),
            Err(error) => self.fail(group.contexts, &Arc::new(error), told),
        }
        None
    }

    /// Syncs everything before barriers without records. With `fsync` it is synced already.
    fn sync_before_barrier(&self) -> io::Result<()> {
        match self.shared.config.durability {
            Durability::Fsync => Ok(()),
            Durability::None => self.shared.sync_all(),
        }
    }

    fn sync_with(&self, group: &EncodedGroup<T>) -> io::Result<()> {
        self.shared.sync_all()?;
        // The group's segment may not be among those just synced, because readers see no group of it yet.
        timed_sync(&self.shared, &group.segment)
    }

    /// Makes a synced group visible and tells its senders.
    fn end_group(&mut self, mut group: EncodedGroup<T>, told: &mut Told<'_, T>) {
        self.publish(&mut group);
        self.queue.settle(group.bytes);
        group.rolled.drain(..).for_each(|roll| roll.tell());
        told(group.contexts, Ok(()));
        if self.since_checkpoint >= self.checkpoint_due() {
            self.since_checkpoint = 0;
            self.jobs.send(&self.shared, Job::Checkpoint);
        }
    }

    fn checkpoint_due(&self) -> u64 {
        let size = self.shared.checkpoint_size.load(Ordering::Relaxed);
        self.shared.config.checkpoint_bytes.max(size.saturating_mul(4))
    }

    fn publish(&mut self, group: &mut EncodedGroup<T>) {
        let mut evicted = Vec::new();
        let mut out_of_order = None;
        let batches = group.records.iter().filter(|(record, _)| !record.head.is_mark());
        let batches = batches.count();
        {
            let mut state = self.shared.state.write();
            let state = &mut *state;
            let new = || LiveSegment::new(group.segment.clone(), group.mark.number, group.mark, FIRST_GROUP);
            let live = state.segments.entry(group.mark.segment).or_insert_with(new);
            live.last = group.mark;
            live.end = group.end();
            live.batches += batches;
            let hot = group.take_hot();
            for (record, position) in &group.records {
                match state.index.add(record, group.mark.segment, *position) {
                    Ok(Some(added)) => {
                        if added.is_first {
                            live.keys.push(record.head.key);
                        }
                        let bytes = || hot.bytes_of(record, *position);
                        state.folds.store(&mut state.writers, &record.head, added.end, bytes);
                    }
                    // It lies behind the range's end, and is in the file all the same.
                    Ok(None) => live.keys.push(record.head.key),
                    Err(overlap) => out_of_order = Some(overlap),
                }
            }
            state.last = group.mark;
            state.tail.push(hot, &mut evicted);
        }
        drop(evicted);
        // The queue accepts only offsets that continue their range, so this is a bug that must be noticed.
        assert!(out_of_order.is_none(), "the log's order was broken: {out_of_order:?}");
        let counters = &self.shared.counters;
        count(&counters.groups, 1);
        count(&counters.batches, batches as u64);
        count(&counters.batch_bytes, group.bytes);
        count(&counters.written_bytes, group.disk_len());
        count(&counters.copied_bytes, std::mem::take(&mut self.builder.copied));
        self.since_checkpoint += group.disk_len();
        while let Some(full) = self.full.pop_if(|full| *full < group.mark.segment) {
            self.jobs.send(&self.shared, Job::Seal(full));
        }
    }

    /// Refuses what the disk has no room for, of these items and of what is queued, and what comes behind it in the same
    /// ranges. Nothing of it was written; everything else goes on.
    fn refuse(&mut self, items: Vec<Item<T>>, fits: Fits, told: &mut Told<'_, T>) {
        self.queue.put_first(items);
        let refused = self.queue.refuse(|item| fits.has(item));
        self.queue.set_room(self.left());
        let needed = refused
            .iter()
            .filter(|item| !fits.has(item))
            .map(Item::stored_len)
            .max();
        let needed = needed.filter(|_| fits.marks).map(group_len);
        if let Some(needed) = needed {
            self.shared.prepared.lacks(FIRST_GROUP + needed);
        }
        let bytes: usize = refused.iter().map(Item::batch_len).sum();
        self.queue.settle(bytes as u64);
        told(contexts_of(refused), Err(Arc::new(LogError::DiskFull)));
    }

    /// A write or sync has failed, for good. All that wait are told that their appends may have been written.
    fn fail(&mut self, mut contexts: Vec<T>, cause: &Arc<io::Error>, told: &mut Told<'_, T>) {
        tracing::error!(error = %cause, "the log has failed");
        let waiting = self.queue.fail(cause.clone());
        self.queue.settle(u64::MAX);
        contexts.extend(waiting.into_iter().filter_map(Item::into_context));
        told(
            contexts,
            Err(Arc::new(LogError::Indeterminate { cause: cause.clone() })),
        );
    }
}

impl<T> Next<T> {
    fn into_contexts(self) -> Vec<T> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Group(group) => group.contexts,
            Self::Lost(contexts, _) => contexts,
            Self::Barriers(items) | Self::Refused(items, _) => contexts_of(items),
        }
    }

    fn lost(items: Vec<Item<T>>, cause: Arc<io::Error>) -> Self {
        Self::Lost(contexts_of(items), cause)
    }
}

/// What the senders of these items are told by.
fn contexts_of<T>(items: Vec<Item<T>>) -> Vec<T> {
    items.into_iter().filter_map(Item::into_context).collect()
}

/// What records of this length need as a group of their own.
fn group_len(records: usize) -> u64 {
    block_up((GroupHeader::LEN + records) as u64)
}

/// Syncs a segment and counts it.
fn timed_sync(shared: &Shared, segment: &Segment) -> io::Result<()> {
    let clock = &shared.maker.clock;
    let started = clock.elapsed();
    let result = segment.file.sync_data();
    let took = clock.elapsed().saturating_sub(started);
    count(&shared.counters.syncs, 1);
    count(
        &shared.counters.sync_nanos,
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
    );
    if let Some(observer) = shared.sync_observer.get() {
        observer.sync_ended(took);
    }
    result
}

/// A thread that syncs while the writer builds the next group. Ends when this is dropped.
pub(crate) struct Syncer {
    requests: Option<mpsc::SyncSender<Arc<Segment>>>,
    results: mpsc::Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(crate) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (requests, incoming) = mpsc::sync_channel::<Arc<Segment>>(1);
        let (outgoing, results) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("sbp-log-sync".to_owned())
            .spawn(move || {
                for segment in incoming {
                    if outgoing.send(timed_sync(&shared, &segment)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            requests: Some(requests),
            results,
            thread: Some(thread),
        })
    }

    fn begin(&self, segment: Arc<Segment>) {
        if let Some(requests) = &self.requests {
            // If the thread has ended, waiting for its result fails.
            let _ = requests.send(segment);
        }
    }

    fn wait(&self) -> io::Result<()> {
        self.results.recv().map_err(io::Error::other).flatten()
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the writer has noticed that its result is missing.
            let _ = thread.join();
        }
    }
}
