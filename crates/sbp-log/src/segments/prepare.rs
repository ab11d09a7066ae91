//! Prepares the next segment in advance, and the reserve file for when the disk is full.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sbp_locks::{Condvar, Mutex};

use crate::format::segment::SegmentHeader;
use crate::fs::{File, FileSystem, OpenMode};
use crate::segments::files::{RESERVE, SegmentId, create, is_full, remove_if_there};
use crate::segments::open_files::OpenFiles;
use crate::segments::segment::Segment;
use crate::{Clock, Durability, LogConfig};

/// How long to wait after a full disk before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The sizes of new segments and of the reserve: a segment is twice as large as the one before it, up to the configured
/// size.
#[derive(Debug)]
pub(crate) struct Sizes {
    next: AtomicU64,
    largest: u64,
    reserve: u64,
}

impl Sizes {
    /// `newest` is the size of the newest segment that has groups.
    pub(crate) fn new(config: &LogConfig, newest: Option<u64>) -> Self {
        let doubled = newest.map_or(0, |bytes| bytes.saturating_mul(2));
        Self {
            next: doubled.max(config.first_segment_bytes).min(config.segment_bytes).into(),
            largest: config.segment_bytes,
            reserve: config.reserve_bytes,
        }
    }

    /// What the next segment has at least.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The size of the next segment if groups have to fit into it up to byte `least`.
    fn with_room(&self, least: u64) -> u64 {
        let doubled = std::iter::successors(Some(self.next()), |bytes| bytes.checked_mul(2));
        let mut fitting = doubled.filter(|bytes| *bytes >= least.min(self.largest));
        fitting.next().unwrap_or(self.largest).min(self.largest)
    }

    /// A segment of this size is about to be written.
    fn taken(&self, bytes: u64) {
        self.next
            .store(bytes.saturating_mul(2).min(self.largest), Ordering::Relaxed);
    }

    /// Half of the next segment at most, so that the log cannot use the room of a reserve that was given up.
    fn reserve(&self) -> u64 {
        self.reserve.min(self.next() / 2)
    }
}

/// Creates segments.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) directory: PathBuf,
    pub(crate) sizes: Sizes,
    pub(crate) durability: Durability,
    pub(crate) boot_id: u64,
    /// The number of the next segment.
    pub(crate) next_number: AtomicU64,
}

impl Maker {
    /// Creates a segment with room for groups up to byte `least`, durably. The reserve file is created first, so that a
    /// full disk has room for it.
    fn make(&self, least: u64) -> io::Result<Segment> {
        self.fill_reserve(self.sizes.reserve())?;
        let header = self.header(self.sizes.with_room(least), self.durability);
        Segment::create(&*self.fs, &self.files, &self.directory, header)
    }

    /// Removes a segment that has no groups and will get none. Should it come back after a crash, or stay, it is one
    /// without groups between others, and the next start removes it.
    fn discard(&self, segment: &Segment) {
        let name = SegmentId::Chain(segment.number).file_name();
        if let Err(error) = remove_if_there(&*self.fs, &self.directory.join(&name)) {
            tracing::warn!(%error, name, "a segment that is too small could not be removed");
        }
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

    fn fill_reserve(&self, bytes: u64) -> io::Result<()> {
        let existing = self.fs.open(&self.directory.join(RESERVE), OpenMode::Existing);
        let length = existing.as_ref().map_or(Ok(0), |file| file.len())?;
        if length >= bytes {
            return Ok(());
        }
        let extend = |file: Arc<dyn File>| {
            file.preallocate(bytes)?;
            file.sync_data()
        };
        match existing {
            Ok(file) if length > 0 => extend(file),
            _ => create(&*self.fs, &self.directory, RESERVE, extend),
        }
    }

    /// Removes the reserve file, so that seals, metadata or a checkpoint can be written. It is smaller than a segment,
    /// so the log itself cannot use up its space.
    pub(crate) fn give_up_reserve(&self) {
        if self.sizes.reserve > 0 {
            let given = remove_if_there(&*self.fs, &self.directory.join(RESERVE));
            if let Err(error) = given.and_then(|()| self.fs.sync_dir(&self.directory)) {
                tracing::warn!(%error, "the reserve file could not be given up");
            }
        }
    }
}

#[derive(Debug)]
enum Slot {
    /// A segment is to be created, with room for groups up to byte `least`.
    Wanted {
        least: u64,
        /// The segment that is there and too small for that.
        instead_of: Option<Segment>,
    },
    Ready(Segment),
    /// The disk was full at the last attempt, at this time.
    Full {
        tried: Duration,
    },
    Failed(Arc<io::Error>),
    Closed,
}

impl Slot {
    /// A segment of the next size is to be created.
    const WANTED: Self = Self::Wanted {
        least: 0,
        instead_of: None,
    };
}

/// The slot for the next segment.
#[derive(Debug)]
pub(crate) struct Prepared {
    slot: Mutex<Slot>,
    changed: Condvar,
    clock: Arc<dyn Clock>,
    /// There was no room at the last attempt that has ended; one may be under way.
    full: AtomicBool,
    /// There is a segment, and the disk had no room for a larger one that groups fit into up to this byte; 0: it had.
    lacking: AtomicU64,
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
    Full {
        /// The longest group that fits into the segment that there is.
        room: u64,
    },
    Failed(Arc<io::Error>),
}

impl From<io::Error> for NoSegment {
    fn from(error: io::Error) -> Self {
        match is_full(&error) {
            true => Self::Full { room: 0 },
            false => Self::Failed(Arc::new(error)),
        }
    }
}

impl Prepared {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            slot: Mutex::new(Slot::WANTED),
            changed: Condvar::new(),
            clock,
            full: AtomicBool::new(false),
            lacking: AtomicU64::new(0),
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

    /// Has the creation tried again after a full disk, also that of a segment larger than the one that there is.
    pub(crate) fn retry(&self) {
        let mut slot = self.slot.lock();
        let least = self.lacking.load(Ordering::Relaxed);
        *slot = match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Full { .. } => Slot::WANTED,
            Slot::Ready(small) if small.capacity < least => Slot::Wanted {
                least,
                instead_of: Some(small),
            },
            other => other,
        };
        self.changed.notify_all();
    }

    /// The disk has no room for a segment that a group fits into up to byte `least`, although there is a smaller one.
    pub(crate) fn lacks(&self, least: u64) {
        if self.is_full() {
            // That none is made is told already.
            return;
        }
        if !self.is_nearly_full() {
            tracing::warn!(
                bytes = least,
                "the disk has no room for a segment that an append fits into: it is refused, smaller ones are stored"
            );
        }
        self.lacking.store(least, Ordering::Relaxed);
    }

    /// A segment of this size was made.
    fn has_room(&self, capacity: u64) {
        let was_full = self.full.swap(false, Ordering::Relaxed);
        let was_lacking =
            capacity >= self.lacking.load(Ordering::Relaxed) && self.lacking.swap(0, Ordering::Relaxed) > 0;
        if (was_full || was_lacking) && !self.is_nearly_full() {
            tracing::info!("the disk has room again: appends are stored");
        }
    }

    /// Takes the next segment, waiting for it, and has another one created. Groups fit into it up to byte `least`: where
    /// a smaller one was prepared, a larger one replaces it, if there is room for both. `inline`: nobody else creates
    /// segments.
    pub(crate) fn take(&self, least: u64, maker: &Maker, inline: bool) -> Result<Segment, NoSegment> {
        let mut asked = false;
        let mut slot = self.slot.lock();
        loop {
            match std::mem::replace(&mut *slot, Slot::WANTED) {
                Slot::Ready(small) if small.capacity < least && asked => {
                    let room = Segment::room(small.capacity);
                    *slot = Slot::Ready(small);
                    return Err(NoSegment::Full { room });
                }
                Slot::Ready(small) if small.capacity < least => {
                    asked = true;
                    *slot = Slot::Wanted {
                        least,
                        instead_of: Some(small),
                    };
                    self.changed.notify_all();
                }
                Slot::Ready(segment) => {
                    maker.sizes.taken(segment.capacity);
                    self.changed.notify_all();
                    return Ok(segment);
                }
                wanted @ Slot::Wanted { .. } => {
                    *slot = wanted;
                    if inline {
                        drop(slot);
                        self.fill(maker);
                        slot = self.slot.lock();
                    } else {
                        self.changed.wait(&mut slot);
                    }
                }
                Slot::Full { tried } => {
                    *slot = Slot::Full { tried };
                    return Err(NoSegment::Full { room: 0 });
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
                Slot::Wanted { .. } => return true,
                Slot::Closed => return false,
                Slot::Ready(_) | Slot::Full { .. } | Slot::Failed(_) => self.changed.wait(&mut slot),
            }
        }
    }

    /// Creates a segment now if one is wanted.
    pub(crate) fn fill(&self, maker: &Maker) {
        let (least, small) = match &mut *self.slot.lock() {
            Slot::Wanted { least, instead_of } => (*least, instead_of.take()),
            _ => return,
        };
        let made = match (maker.make(least), small) {
            (Ok(segment), small) => {
                if let Some(small) = small {
                    maker.discard(&small);
                }
                self.has_room(segment.capacity);
                Slot::Ready(segment)
            }
            // What fits into it can still be written.
            (Err(error), Some(small)) if is_full(&error) => Slot::Ready(small),
            (Err(error), None) if is_full(&error) => {
                if !self.full.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the disk is full: appends that need another segment are refused until it has room");
                }
                maker.give_up_reserve();
                Slot::Full {
                    tried: self.clock.elapsed(),
                }
            }
            (Err(error), _) => {
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

    /// Whether there is another segment, and was no room for one as large as an append needs.
    pub(crate) fn is_nearly_full(&self) -> bool {
        !self.is_full() && self.lacking.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn close(&self) {
        *self.slot.lock() = Slot::Closed;
        self.changed.notify_all();
    }
}
