//! The queue of entries that wait to be written.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use sbp_locks::{Condvar, Mutex};
use sbp_types::{Offset, Position, RangeKey};

use crate::format::block_up;
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::segments::prepare::{NextRoom, Prepared};
use crate::segments::segment::Segment;
use crate::state::index::KeyMap;
use crate::state::shared::StateLock;
use crate::{LogConfig, LogEntry, LogError};

/// What the log is asked to write, or to wait for.
#[derive(Debug)]
pub(crate) enum Item<T> {
    Append(LogEntry<T>),
    Barrier(T),
    Roll(Roll),
}

/// A request to go on in another segment than `from`, if there is room for one; 0: to go on anywhere.
#[derive(Debug)]
pub(crate) struct Roll {
    pub(crate) from: u64,
    /// Told when everything queued before can be read, and dropped if the log has failed.
    pub(crate) told: mpsc::Sender<()>,
}

impl<T> Item<T> {
    /// The bytes that it adds to a group.
    pub(crate) fn stored_len(&self) -> usize {
        match self {
            Self::Append(entry) => RecordHead::stored_len(entry.batch_len()),
            Self::Barrier(_) | Self::Roll(_) => 0,
        }
    }

    pub(crate) fn batch_len(&self) -> usize {
        match self {
            Self::Append(entry) => entry.batch_len(),
            Self::Barrier(_) | Self::Roll(_) => 0,
        }
    }

    /// The most space that it can need on the disk: as a group of its own.
    fn bound(&self) -> u64 {
        match self {
            Self::Append(_) => block_up((GroupHeader::LEN + self.stored_len()) as u64),
            Self::Barrier(_) | Self::Roll(_) => 0,
        }
    }

    /// Whether it needs a directory whose groups may have marks.
    pub(crate) fn needs_marks(&self) -> bool {
        matches!(self, Self::Append(entry) if entry.head.is_mark() || entry.head.shared)
    }

    /// Whether the log is to go on in another segment than the one being written, if there is one.
    pub(crate) fn rolls_from(&self, active: Option<u64>) -> bool {
        matches!(self, Self::Roll(roll) if roll.from != 0 && active.is_none_or(|active| active == roll.from))
    }

    /// There is no room for another segment: what was to begin one goes on anywhere.
    pub(crate) fn stay(&mut self) {
        if let Self::Roll(roll) = self {
            roll.from = 0;
        }
    }

    pub(crate) fn tell_rolled(&self) {
        if let Self::Roll(roll) = self {
            roll.tell();
        }
    }

    /// What its sender is told by; nothing for a roll.
    pub(crate) fn into_context(self) -> Option<T> {
        match self {
            Self::Append(entry) => Some(entry.context),
            Self::Barrier(context) => Some(context),
            Self::Roll(_) => None,
        }
    }
}

impl Roll {
    pub(crate) fn tell(&self) {
        // Whoever asked waits, unless its thread has panicked.
        let _ = self.told.send(());
    }
}

/// Whether the queue accepts appends.
#[derive(Clone, Debug)]
enum Gate {
    Open,
    Closed,
    Failed(Arc<io::Error>),
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<Item<T>>,
    gate: Gate,
    /// Batch bytes queued or being written.
    pending: u64,
    /// The most space that the queued batches can need on the disk, if each became a group of its own.
    bound: u64,
    /// The space left in the segment being written.
    room: u64,
    /// The place of the next entry of every range that was appended to since the start.
    ends: KeyMap<Position>,
    /// The old values of `ends`, to be restored if the present call is refused half-way.
    undo: Vec<(RangeKey, Option<Position>)>,
    /// Where ranges end, as the owner has said.
    ended: KeyMap<Position>,
    /// Whether the writer has to try again to prepare a segment.
    retry: bool,
    /// Whether the writer thread sleeps.
    idle: bool,
}

/// The queue between callers and the thread that writes.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    /// The largest record a segment holds.
    largest: usize,
}

/// Why [`Queue::wait`] has returned.
pub(crate) enum Arrived {
    /// There is something to write, unless another thread takes it first.
    Items,
    /// There is nothing to write, but a segment is to be prepared again.
    Retry,
    /// The queue is empty and takes no more.
    End,
}

impl<T> Queue<T> {
    pub(crate) fn new(config: &LogConfig, room: u64) -> Self {
        let largest = usize::try_from(Segment::room(config.segment_bytes)).unwrap_or(usize::MAX);
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                gate: Gate::Open,
                pending: 0,
                bound: 0,
                room,
                ends: KeyMap::default(),
                undo: Vec::new(),
                ended: KeyMap::default(),
                retry: false,
                idle: false,
            }),
            arrived: Condvar::new(),
            largest: largest.saturating_sub(GroupHeader::LEN + RecordHead::LEN) & !15,
        }
    }

    /// Queues all entries or none. The writer thread is woken only by [`Self::announce`].
    pub(crate) fn append(
        &self,
        mut entries: Vec<LogEntry<T>>,
        log: &StateLock,
        prepared: &Prepared,
    ) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.check_gate()?;
        self.reserve(&mut state, &mut entries, log, prepared)?;
        state.items.extend(entries.into_iter().map(Item::Append));
        Ok(())
    }

    /// Queues each entry that can be, and nothing behind one of its range that cannot. Returns the others, in their order;
    /// each comes with what is known against it. The writer thread is woken only by [`Self::announce`].
    pub(crate) fn append_each(
        &self,
        entries: impl Iterator<Item = (LogEntry<T>, Result<(), LogError>)>,
        log: &StateLock,
        prepared: &Prepared,
    ) -> Vec<(LogEntry<T>, LogError)> {
        let mut state = self.state.lock();
        let mut refused: Vec<(LogEntry<T>, LogError)> = Vec::new();
        // By range, the place that the first refused entry should have got.
        let mut missing: KeyMap<Position> = KeyMap::default();
        for (mut entry, known) in entries {
            let key = entry.head.key;
            let given = entry.head.position(entry.head.marks.unwrap_or(0));
            // A range of which nothing is known begins wherever its first entry stands, so this is said here.
            let in_order = missing.get(&key).map_or(Ok(()), |expected| {
                let expected = *expected;
                Err(LogError::OutOfOrder { key, expected, given })
            });
            let checked = known.and(in_order).and_then(|()| state.check_gate());
            let checked =
                checked.and_then(|()| self.reserve(&mut state, std::slice::from_mut(&mut entry), log, prepared));
            match checked {
                Ok(()) => state.items.push_back(Item::Append(entry)),
                Err(error) => {
                    missing.entry(key).or_insert(given);
                    refused.push((entry, error));
                }
            }
        }
        refused
    }

    /// Gives entries their places and the room that they need, all or none of them.
    fn reserve(
        &self,
        state: &mut State<T>,
        entries: &mut [LogEntry<T>],
        log: &StateLock,
        prepared: &Prepared,
    ) -> Result<(), LogError> {
        state.undo.clear();
        let (mut bytes, mut bound) = (0, 0);
        for entry in entries {
            let length = entry.batch_len();
            let checked = if length > self.largest {
                Err(LogError::TooLarge {
                    bytes: length,
                    limit: self.largest,
                })
            } else {
                state.reserve_place(entry, log)
            };
            if let Err(error) = checked {
                state.put_back();
                return Err(error);
            }
            bytes += length as u64;
            bound += block_up((GroupHeader::LEN + RecordHead::stored_len(length)) as u64);
        }
        if state.bound + bound > state.room
            && let NextRoom::None { retry } = prepared.room()
        {
            state.put_back();
            if retry {
                state.retry = true;
                state.wake(&self.arrived);
            }
            return Err(LogError::DiskFull);
        }
        state.pending += bytes;
        state.bound += bound;
        Ok(())
    }

    /// Wakes the writer thread if it sleeps and something is queued.
    pub(crate) fn announce(&self) {
        let mut state = self.state.lock();
        if !state.items.is_empty() {
            state.wake(&self.arrived);
        }
    }

    pub(crate) fn barrier(&self, context: T) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.check_gate()?;
        state.items.push_back(Item::Barrier(context));
        state.wake(&self.arrived);
        Ok(())
    }

    /// Waits until everything queued before can be read, and the log goes on in another segment than `from`, if there is room
    /// for one; 0: anywhere.
    pub(crate) fn roll(&self, from: u64) -> Result<(), LogError> {
        let (told, rolled) = mpsc::channel();
        {
            let mut state = self.state.lock();
            state.check_gate()?;
            state.items.push_back(Item::Roll(Roll { from, told }));
            state.wake(&self.arrived);
        }
        // It is dropped where the log has failed.
        let ended = rolled.recv().map_err(|_| LogError::Closed);
        ended.or_else(|closed| self.state.lock().check_gate().and(Err(closed)))
    }

    /// Waits until there is something to do.
    pub(crate) fn wait(&self) -> Arrived {
        let mut state = self.state.lock();
        loop {
            if !state.items.is_empty() {
                return Arrived::Items;
            }
            if std::mem::take(&mut state.retry) {
                return Arrived::Retry;
            }
            if !matches!(state.gate, Gate::Open) {
                return Arrived::End;
            }
            state.idle = true;
            self.arrived.wait(&mut state);
            state.idle = false;
        }
    }

    /// Takes everything queued if it needs at most `limit` bytes on the disk and nothing in it requires a sync first: no
    /// barrier, no roll, and no mark unless the directory has some already; else nothing.
    pub(crate) fn take_few(&self, limit: u64, has_marks: bool) -> Vec<Item<T>> {
        let mut state = self.state.lock();
        let stored = state.items.iter().try_fold(GroupHeader::LEN, |sum, item| match item {
            Item::Append(_) if has_marks || !item.needs_marks() => Some(sum.saturating_add(item.stored_len())),
            Item::Append(_) | Item::Barrier(_) | Item::Roll(_) => None,
        });
        match stored {
            Some(stored) if block_up(stored as u64) <= limit => state.take(usize::MAX),
            _ => Vec::new(),
        }
    }

    /// Takes what is queued without waiting: at most `limit` bytes of records, but at least one item if there is any.
    pub(crate) fn try_take(&self, limit: usize) -> Vec<Item<T>> {
        self.state.lock().take(limit)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }

    /// Sets the space left in the segment after the last group.
    pub(crate) fn set_room(&self, room: u64) {
        self.state.lock().room = room;
    }

    /// Batches of this many bytes have been written or have failed.
    pub(crate) fn settle(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.pending = state.pending.saturating_sub(bytes);
    }

    /// Puts back what was taken last, before everything else.
    pub(crate) fn put_first(&self, items: Vec<Item<T>>) {
        let mut state = self.state.lock();
        for item in items.into_iter().rev() {
            state.bound += item.bound();
            state.items.push_front(item);
        }
    }

    /// Takes out what does not fit, unless something is queued before it in its range that does, and everything that is queued
    /// behind it in its range. The offsets of such a range then continue from the first that was taken out.
    pub(crate) fn refuse(&self, fits: impl Fn(&Item<T>) -> bool) -> Vec<Item<T>> {
        let mut state = self.state.lock();
        let mut refused = Vec::new();
        // By range, whether what is queued of it is refused.
        let mut ranges: KeyMap<bool> = KeyMap::default();
        let mut kept = VecDeque::with_capacity(state.items.len());
        for item in std::mem::take(&mut state.items) {
            let Item::Append(entry) = &item else {
                kept.push_back(item);
                continue;
            };
            let (key, at) = (entry.head.key, entry.head.position(entry.head.marks.unwrap_or(0)));
            let is_refused = match ranges.get(&key) {
                Some(is_refused) => *is_refused,
                None => {
                    let is_refused = !fits(&item);
                    ranges.insert(key, is_refused);
                    if is_refused {
                        state.ends.insert(key, at);
                    }
                    is_refused
                }
            };
            if is_refused {
                state.bound = state.bound.saturating_sub(item.bound());
                refused.push(item);
            } else {
                kept.push_back(item);
            }
        }
        state.items = kept;
        refused
    }

    /// The range ends here: nothing is taken behind it. `told` is called under the lock.
    pub(crate) fn end_range(&self, key: RangeKey, end: Position, told: impl FnOnce()) {
        let mut state = self.state.lock();
        state.ended.insert(key, end);
        if let Some(queued) = state.ends.get_mut(&key) {
            *queued = end.min(*queued);
        }
        told();
    }

    /// Forgets where ranges end.
    pub(crate) fn forget_ends(&self, gone: impl Fn(RangeKey) -> bool) {
        self.state.lock().ended.retain(|key, _| !gone(*key));
    }

    /// Forgets ranges of which nothing is queued and the log has nothing: they begin wherever their next entry stands.
    pub(crate) fn forget(&self, ranges: &[RangeKey]) {
        let mut state = self.state.lock();
        for key in ranges {
            state.ended.remove(key);
            state.ends.remove(key);
        }
    }

    /// Closes the queue; what is queued will still be written.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        if matches!(state.gate, Gate::Open) {
            state.gate = Gate::Closed;
        }
        self.arrived.notify_all();
    }

    /// Closes the queue after a failure; returns what was queued.
    pub(crate) fn fail(&self, cause: Arc<io::Error>) -> Vec<Item<T>> {
        let mut state = self.state.lock();
        if !matches!(state.gate, Gate::Failed(_)) {
            state.gate = Gate::Failed(cause);
        }
        self.arrived.notify_all();
        state.take(usize::MAX)
    }

    pub(crate) fn failure(&self) -> Option<Arc<io::Error>> {
        match &self.state.lock().gate {
            Gate::Failed(cause) => Some(cause.clone()),
            Gate::Open | Gate::Closed => None,
        }
    }

    pub(crate) fn pending(&self) -> u64 {
        self.state.lock().pending
    }
}

impl<T> State<T> {
    fn wake(&mut self, arrived: &Condvar) {
        if std::mem::take(&mut self.idle) {
            arrived.notify_one();
        }
    }

    fn check_gate(&self) -> Result<(), LogError> {
        match &self.gate {
            Gate::Open => Ok(()),
            Gate::Closed => Err(LogError::Closed),
            Gate::Failed(cause) => Err(LogError::Failed { cause: cause.clone() }),
        }
    }

    /// Gives an entry the next place of its range.
    fn reserve_place(&mut self, entry: &mut LogEntry<T>, log: &StateLock) -> Result<(), LogError> {
        let bytes = entry.batch_len();
        let head = &mut entry.head;
        let queued = self.ends.get(&head.key).copied();
        let expected = match queued {
            Some(end) => Some(end),
            None => synced_end(head.key, log)?,
        };
        let at = expected.unwrap_or(head.position(head.marks.unwrap_or(0)));
        let continues = head.base_offset == at.offset && head.marks.is_none_or(|marks| marks == at.marks);
        let is_possible = head.is_whole(bytes) && head.base_offset >= Offset::ZERO;
        let Some(next) = head.behind(at).filter(|_| continues && is_possible) else {
            return Err(LogError::OutOfOrder {
                key: head.key,
                expected: at,
                given: head.position(head.marks.unwrap_or(at.marks)),
            });
        };
        if let Some(end) = self.ended.get(&head.key).filter(|end| **end < next) {
            return Err(LogError::Ended {
                key: head.key,
                end: *end,
            });
        }
        head.marks = Some(at.marks);
        self.ends.insert(head.key, next);
        self.undo.push((head.key, queued));
        Ok(())
    }

    fn put_back(&mut self) {
        while let Some((key, end)) = self.undo.pop() {
            match end {
                Some(end) => self.ends.insert(key, end),
                None => self.ends.remove(&key),
            };
        }
    }

    fn take(&mut self, limit: usize) -> Vec<Item<T>> {
        let (mut count, mut total) = (0, 0usize);
        for item in &self.items {
            let more = total.saturating_add(item.stored_len());
            if count > 0 && more > limit {
                break;
            }
            total = more;
            count += 1;
        }
        // Until the writer reports the group's position, it is assumed to take its space from the present segment.
        self.room = self
            .room
            .saturating_sub(block_up((GroupHeader::LEN.saturating_add(total)) as u64));
        let bound = &mut self.bound;
        let taken = self.items.drain(..count);
        let taken = taken.inspect(|item| *bound = bound.saturating_sub(item.bound()));
        taken.collect()
    }
}

fn synced_end(key: RangeKey, log: &StateLock) -> Result<Option<Position>, LogError> {
    let state = log.read();
    match state.index.get(key) {
        Some(range) if !range.proven => Err(LogError::EndUnknown { key }),
        Some(range) if range.known => Ok(Some(range.end_position())),
        _ => Ok(None),
    }
}
