//! The log's public face.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use parking_lot::{Mutex, RwLock};
use sbp_types::{Offset, RangeKey, ServerId, TimestampMs};

use crate::{
    Clock, DamagedInterval, FileSystem, LogConfig, LogEntry, LogError, LogStats, OpenError, ReadError, Recovered,
    StoredBatch,
};

/// Told by the writer thread how each group of appends ended.
pub trait GroupObserver<T>: Send + Sync + 'static {
    /// Called once per group, in the order in which its entries were queued: after the sync, when readers see them, or
    /// when it is known that they never will. Must not block: the next group waits.
    fn group_ended(&self, contexts: Vec<T>, outcome: Result<(), Arc<LogError>>);
}

type Ranges = BTreeMap<RangeKey, Vec<StoredBatch>>;

enum Command<T> {
    Append(Vec<LogEntry<T>>),
    Barrier(T),
}

/// A durable log of batches, shared by all ranges of a data directory.
pub struct Log<T> {
    ranges: Arc<RwLock<Ranges>>,
    queue: Mutex<Option<mpsc::Sender<Command<T>>>>,
    thread: Option<JoinHandle<()>>,
    server_id: Mutex<Option<ServerId>>,
    marker: PhantomData<fn(T)>,
}

impl<T> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Log<T> {
    /// Takes the directory, recovers what it holds and starts the writer thread.
    pub fn open(
        _fs: Arc<dyn FileSystem>,
        _clock: Arc<dyn Clock>,
        _config: LogConfig,
        observer: Arc<dyn GroupObserver<T>>,
    ) -> Result<(Self, Recovered), OpenError> {
        let ranges = Arc::new(RwLock::new(Ranges::new()));
        let (sender, receiver) = mpsc::channel::<Command<T>>();
        let shared = ranges.clone();
        let thread = std::thread::spawn(move || {
            for command in receiver {
                let mut contexts = Vec::new();
                match command {
                    Command::Barrier(context) => contexts.push(context),
                    Command::Append(entries) => {
                        let mut ranges = shared.write();
                        for entry in entries {
                            let mut bytes = crate::BatchBytes::default();
                            bytes.push(bytes::Bytes::copy_from_slice(&entry.prefix));
                            entry.chunks.into_iter().for_each(|c| bytes.push(c));
                            ranges.entry(entry.head.key).or_default().push(StoredBatch {
                                base_offset: entry.head.base_offset,
                                count: entry.head.count,
                                max_timestamp: entry.head.max_timestamp,
                                bytes,
                            });
                            contexts.push(entry.context);
                        }
                    }
                }
                observer.group_ended(contexts, Ok(()));
            }
        });
        let log = Self {
            ranges,
            queue: Mutex::new(Some(sender)),
            thread: Some(thread),
            server_id: Mutex::new(None),
            marker: PhantomData,
        };
        Ok((log, Recovered::default()))
    }

    /// Queues batches, in this order. Never waits for the disk: the observer tells how they ended. On an error none of
    /// them was queued.
    pub fn append(&self, entries: Vec<LogEntry<T>>) -> Result<(), LogError> {
        match self.queue.lock().as_ref() {
            Some(queue) => queue.send(Command::Append(entries)).map_err(|_closed| LogError::Closed),
            None => Err(LogError::Closed),
        }
    }

    /// Queues a point in the log: when the observer gets `context` back, everything queued before is on stable storage,
    /// whatever the durability. A seal waits for this.
    pub fn barrier(&self, context: T) -> Result<(), LogError> {
        match self.queue.lock().as_ref() {
            Some(queue) => queue
                .send(Command::Barrier(context))
                .map_err(|_closed| LogError::Closed),
            None => Err(LogError::Closed),
        }
    }

    /// Synced batches from the one that holds `from` on, whole ones, together at most `max_bytes`; with `at_least_one`
    /// the first is returned whatever its size. Empty at and beyond the synced end.
    pub fn read(
        &self,
        key: RangeKey,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<StoredBatch>, ReadError> {
        let mut taken = 0;
        let mut result = Vec::new();
        for batch in self.ranges.read().get(&key).into_iter().flatten() {
            if batch.base_offset.0 + batch.count > from.0 {
                taken += batch.bytes.len();
                if taken > max_bytes && !(at_least_one && result.is_empty()) {
                    break;
                }
                result.push(batch.clone());
            }
        }
        Ok(result)
    }

    /// The base offset of the first synced batch that ends behind `from` and whose `max_timestamp` reaches `time`.
    pub fn find_timestamp(&self, key: RangeKey, from: Offset, time: TimestampMs) -> Result<Option<Offset>, ReadError> {
        let ranges = self.ranges.read();
        let mut batches = ranges.get(&key).into_iter().flatten();
        let found = batches.find(|b| b.base_offset.0 + b.count > from.0 && b.max_timestamp >= time);
        Ok(found.map(|b| b.base_offset))
    }

    /// The offset behind the range's last synced record; `None` for a range without records.
    #[must_use]
    pub fn synced_end(&self, key: RangeKey) -> Option<Offset> {
        self.ranges
            .read()
            .get(&key)?
            .last()
            .map(|b| Offset(b.base_offset.0 + b.count))
    }

    /// How many bytes of synced batches a read from `from` on could return.
    #[must_use]
    pub fn bytes_from(&self, key: RangeKey, from: Offset) -> u64 {
        let ranges = self.ranges.read();
        let batches = ranges.get(&key).into_iter().flatten();
        batches
            .filter(|b| b.base_offset.0 + b.count > from.0)
            .map(|b| b.bytes.len() as u64)
            .sum()
    }

    /// The ranges the log holds records of, ordered.
    #[must_use]
    pub fn ranges(&self) -> Vec<RangeKey> {
        self.ranges.read().keys().copied().collect()
    }

    /// Bytes queued or being written: what a server limits before it accepts more.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        0
    }

    /// Tells the log that nothing of `key` below `below` is needed any more. Records go when the whole segment they are
    /// in holds nothing needed and no kept checkpoint lists it. `Offset(i64::MAX)` gives up the range.
    pub fn release(&self, _key: RangeKey, _below: Offset) {}

    /// Whether any segment still holds records of this range, released or not.
    #[must_use]
    pub fn holds(&self, key: RangeKey) -> bool {
        self.ranges.read().contains_key(&key)
    }

    /// The damaged offsets of a range, ordered.
    #[must_use]
    pub fn damage(&self, _key: RangeKey) -> Vec<DamagedInterval> {
        Vec::new()
    }

    /// Whether it is certain where the range ends. If not, it can be neither appended to nor sealed.
    #[must_use]
    pub fn end_is_proven(&self, _key: RangeKey) -> bool {
        true
    }

    /// The server's number as the directory remembers it.
    #[must_use]
    pub fn server_id(&self) -> Option<ServerId> {
        *self.server_id.lock()
    }

    /// Writes the server's number into the directory, durably.
    pub fn set_server_id(&self, id: ServerId) -> std::io::Result<()> {
        *self.server_id.lock() = Some(id);
        Ok(())
    }

    /// Why the log takes no appends any more, if it does not. Final.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<LogError>> {
        None
    }

    /// Counts since the log was opened.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        LogStats::default()
    }

    /// Writes what is queued, syncs, writes a checkpoint and the mark of a clean end. Dropping the log without this is
    /// as safe, but the next start has more to replay.
    pub fn shutdown(mut self) -> Result<(), LogError> {
        self.queue.lock().take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        Ok(())
    }
}
