//! Prepares the next segment in advance, and the reserve file for when the disk is full.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sbp_locks::{Condvar, Mutex};

use crate::format::segment::SegmentHeader;
use crate::fs::{FileSystem, OpenMode};
use crate::segments::files::{RESERVE, create, is_full, remove_if_there};
use crate::segments::open_files::OpenFiles;
use crate::segments::segment::Segment;
use crate::{Clock, Durability};

/// How long to wait after a full disk before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Creates segments.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) directory: PathBuf,
    pub(crate) capacity: u64,
    pub(crate) reserve: u64,
    pub(crate) durability: Durability,
    pub(crate) boot_id: u64,
    /// The number of the next segment.
    pub(crate) next_number: AtomicU64,
}

impl Maker {
    /// Creates a segment, durably. The reserve file is created first, so that a full disk has room for it.
    pub(crate) fn make(&self) -> io::Result<Segment> {
        self.fill_reserve()?;
        let header = self.header(self.capacity, self.durability);
        Segment::create(&*self.fs, &self.files, &self.directory, header)
    }

    /// The header of a new file, with a number that no other has.
    pub(crate) fn header(&self, capacity: u64, durability: Durability) -> SegmentHeader {
        SegmentHeader {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            salt: fastrand::u64(..),
            capacity,
            created: self.clock.now().0,
            boot_id: self.boot_id,
            durability,
        }
    }

    fn fill_reserve(&self) -> io::Result<()> {
        let there = || self.fs.open(&self.directory.join(RESERVE), OpenMode::Existing);
        if self.reserve == 0 || there().is_ok_and(|file| file.len().is_ok_and(|length| length > 0)) {
            return Ok(());
        }
        create(&*self.fs, &self.directory, RESERVE, |file| {
            file.preallocate(self.reserve)?;
            file.sync_data()
        })
    }

    /// Removes the reserve file, so that seals, metadata or a checkpoint can be written. It is smaller than a segment,
    /// so the log itself cannot use up its space.
    pub(crate) fn give_up_reserve(&self) {
        if self.reserve > 0 {
            let given = remove_if_there(&*self.fs, &self.directory.join(RESERVE));
            if let Err(error) = given.and_then(|()| self.fs.sync_dir(&self.directory)) {
                tracing::warn!(%error, "the reserve file could not be given up");
            }
        }
    }
}

#[derive(Debug)]
enum Slot {
    /// A segment is to be created.
    Wanted,
    Ready(Segment),
    /// The disk was full at the last attempt, at this time.
    Full {
        tried: Duration,
    },
    Failed(Arc<io::Error>),
    Closed,
}

/// The slot for the next segment.
#[derive(Debug)]
pub(crate) struct Prepared {
    slot: Mutex<Slot>,
    changed: Condvar,
    clock: Arc<dyn Clock>,
    /// There was no room at the last attempt that has ended; one may be under way.
    full: AtomicBool,
}

/// Whether there is room after the segment being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRoom {
    /// A segment is ready or being created.
    Some,
    /// There is none. `retry`: the last attempt is long enough ago to try again.
    None { retry: bool },
}

/// Why the writer cannot get a segment.
#[derive(Debug)]
pub(crate) enum NoSegment {
    Full,
    Failed(Arc<io::Error>),
}

impl From<io::Error> for NoSegment {
    fn from(error: io::Error) -> Self {
        match is_full(&error) {
            true => Self::Full,
            false => Self::Failed(Arc::new(error)),
        }
    }
}

impl Prepared {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            slot: Mutex::new(Slot::Wanted),
            changed: Condvar::new(),
            clock,
            full: AtomicBool::new(false),
        }
    }

    pub(crate) fn room(&self) -> NextRoom {
        match &*self.slot.lock() {
            Slot::Full { tried } => NextRoom::None {
                retry: self.clock.elapsed().saturating_sub(*tried) >= RETRY_AFTER,
            },
            _ => NextRoom::Some,
        }
    }

    /// Has the creation tried again after a full disk.
    pub(crate) fn retry(&self) {
        let mut slot = self.slot.lock();
        if let Slot::Full { .. } = &*slot {
            *slot = Slot::Wanted;
            self.changed.notify_all();
        }
    }

    /// Takes the next segment, waiting for it, and has another one created.
    pub(crate) fn take(&self) -> Result<Segment, NoSegment> {
        let mut slot = self.slot.lock();
        loop {
            match std::mem::replace(&mut *slot, Slot::Wanted) {
                Slot::Ready(segment) => {
                    self.changed.notify_all();
                    return Ok(segment);
                }
                Slot::Wanted => self.changed.wait(&mut slot),
                Slot::Full { tried } => {
                    *slot = Slot::Full { tried };
                    return Err(NoSegment::Full);
                }
                Slot::Failed(error) => {
                    *slot = Slot::Failed(error.clone());
                    return Err(NoSegment::Failed(error));
                }
                Slot::Closed => {
                    *slot = Slot::Closed;
                    return Err(NoSegment::Failed(Arc::new(io::Error::other("the log is closed"))));
                }
            }
        }
    }

    /// Waits until a segment is wanted; false when the log is closed.
    pub(crate) fn wait_wanted(&self) -> bool {
        let mut slot = self.slot.lock();
        loop {
            match &*slot {
                Slot::Wanted => return true,
                Slot::Closed => return false,
                Slot::Ready(_) | Slot::Full { .. } | Slot::Failed(_) => self.changed.wait(&mut slot),
            }
        }
    }

    /// Creates a segment now if one is wanted.
    pub(crate) fn fill(&self, maker: &Maker) {
        if !matches!(&*self.slot.lock(), Slot::Wanted) {
            return;
        }
        let made = match maker.make() {
            Ok(segment) => {
                self.full.store(false, Ordering::Relaxed);
                Slot::Ready(segment)
            }
            Err(error) if is_full(&error) => {
                if !self.full.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the disk is full: appends that need another segment are refused until it has room");
                }
                maker.give_up_reserve();
                Slot::Full {
                    tried: self.clock.elapsed(),
                }
            }
            Err(error) => {
                tracing::error!(%error, "preparing a segment failed");
                Slot::Failed(Arc::new(error))
            }
        };
        let mut slot = self.slot.lock();
        if !matches!(&*slot, Slot::Closed) {
            *slot = made;
        }
        self.changed.notify_all();
    }

    /// Whether there was no room for another segment when one was last tried.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        *self.slot.lock() = Slot::Closed;
        self.changed.notify_all();
    }
}
