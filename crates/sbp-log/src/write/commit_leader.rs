//! Chooses the thread that commits groups: the writer thread or, while that sleeps, a caller with few bytes to write.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use sbp_locks::Mutex;

use crate::GroupObserver;
use crate::write::queue::{Arrived, Item, Queue};
use crate::write::writer::{Told, Writer};
use crate::{Durability, Helpers, LogConfig, LogError};

/// The most bytes that a caller writes itself: handing so few to the operating system is faster than waking a thread.
const FEW: u64 = 8 << 10;

/// The thread that holds the lock on the writer commits. It writes what it takes from the queue before another thread
/// can take more, so the log keeps the queue's order.
pub(crate) struct CommitLeader<T> {
    queue: Arc<Queue<T>>,
    observer: Arc<dyn GroupObserver<T>>,
    /// Whether callers may write. False where they would have to wait for the disk.
    callers_may_write: bool,
    /// `None` when the writer thread has ended.
    writer: Mutex<Option<Writer<T>>>,
}

impl<T: Send + 'static> CommitLeader<T> {
    pub(crate) fn new(writer: Writer<T>, observer: Arc<dyn GroupObserver<T>>, config: &LogConfig) -> Self {
        Self {
            queue: Arc::clone(&writer.queue),
            observer,
            callers_may_write: config.durability == Durability::None && config.helpers == Helpers::Threads,
            writer: Mutex::new(Some(writer)),
        }
    }

    /// Runs the writer thread: writes until the queue is closed and empty, or the log has failed.
    pub(crate) fn run(&self) {
        loop {
            let told: &mut Told<'_, T> = &mut |contexts, outcome| self.observer.group_ended(contexts, outcome);
            self.guard(&mut self.writer.lock(), told, Writer::write_all);
            if self.queue.failure().is_some() {
                break;
            }
            match self.queue.wait() {
                Arrived::Items => {}
                Arrived::Retry => {
                    if let Some(writer) = &*self.writer.lock() {
                        writer.shared.prepared.retry();
                    }
                }
                Arrived::End => break,
            }
        }
        // The helper threads end when the writer is dropped.
        drop(self.writer.lock().take());
    }

    /// Writes what is queued if it is little and no other thread writes. Wakes the writer thread for what is left.
    pub(crate) fn write_here(&self, told: &mut Told<'_, T>) {
        if self.callers_may_write
            && let Some(mut writer) = self.writer.try_lock()
        {
            self.guard(&mut writer, told, |writer, told| writer.write_few(FEW, told));
        }
        self.queue.announce();
    }

    /// Runs `write`. If it panics, the log counts as failed, so that no caller waits for ever.
    fn guard(
        &self,
        held: &mut Option<Writer<T>>,
        told: &mut Told<'_, T>,
        write: impl FnOnce(&mut Writer<T>, &mut Told<'_, T>),
    ) {
        let Some(writer) = held else { return };
        if std::panic::catch_unwind(AssertUnwindSafe(|| write(writer, told))).is_ok() {
            return;
        }
        let cause = Arc::new(io::Error::other("the log's writer panicked"));
        let waiting: Vec<T> = self
            .queue
            .fail(Arc::clone(&cause))
            .into_iter()
            .filter_map(Item::into_context)
            .collect();
        if !waiting.is_empty() {
            told(waiting, Err(Arc::new(LogError::Indeterminate { cause })));
        }
    }
}
