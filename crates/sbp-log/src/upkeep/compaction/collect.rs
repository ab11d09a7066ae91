//! Collects what is needed of some files: each range's batches in the order of their offsets, one range after the
//! other.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use sbp_types::{Epoch, Position, RangeKey, TimestampMs};

use crate::ReadError;
use crate::format::crc32c;
use crate::format::footer::IndexEntry;
use crate::format::record::RecordHead;
use crate::fs::File;
use crate::read::Load;
use crate::segments::segment::Segment;
use crate::state::index::RangeState;
use crate::state::shared::Shared;

/// Why no compacted file was written.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// A record of this source cannot be read.
    Damaged {
        source: u64,
    },
    Io(io::Error),
}

impl From<io::Error> for NotWritten {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReadError> for NotWritten {
    fn from(error: ReadError) -> Self {
        Self::Io(io::Error::other(error))
    }
}

/// A batch or a mark, and the file it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The index of the file in the sources.
    pub(crate) source: usize,
    /// A mark takes no offset.
    pub(crate) entry: IndexEntry,
    /// Where a mark stands; `None` for a batch.
    pub(crate) mark: Option<Position>,
}

impl Piece {
    /// Reads the record; `None` unless head and batch match the index and their checksums are right.
    pub(crate) fn read(&self, segment: &Segment) -> io::Result<Option<(RecordHead, Bytes)>> {
        let mut stored = vec![0; RecordHead::LEN + self.entry.length as usize];
        segment.file.read_at(u64::from(self.entry.position), &mut stored)?;
        let whole = Bytes::from(stored);
        let (entry, batch) = (&self.entry, whole.slice(RecordHead::LEN..));
        let record = RecordHead::parse(&whole, segment.mask).filter(|record| {
            record.head.base_offset == entry.base
                && record.head.end_offset() == Some(entry.end)
                && record.batch_len == entry.length
                && record.head.is_mark() == self.mark.is_some()
                && record.batch_crc == crc32c(&batch)
        });
        Ok(record.map(|record| (record, batch)))
    }
}

/// The batches of one range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangePart {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// How many of the pieces belong to it.
    pub(crate) pieces: usize,
}

/// Files that are to be put into one.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The largest of their places in the order; the new file takes it.
    pub(crate) order: u64,
    /// The largest group number in them.
    pub(crate) last_group: u64,
    /// Ordered by key.
    pub(crate) parts: Vec<RangePart>,
    /// The pieces of all parts, one part after the other.
    pub(crate) pieces: Vec<Piece>,
}

/// The result of adding a range.
enum Added {
    /// All of its pieces were added.
    Whole,
    /// Its entries have to be loaded from the disk first.
    Load(Load),
    /// The entries of this file are incomplete.
    Incomplete { source: u64 },
}

/// Collects what is needed of these files, and loads footers from the disk if needed. `None` if one of the files is not
/// live any more.
pub(crate) fn collect(shared: &Shared, numbers: &[u64]) -> Result<Option<Sources>, NotWritten> {
    let (mut sources, keys) = {
        let state = shared.state.read();
        let Some(files) = numbers
            .iter()
            .map(|number| state.live(*number))
            .collect::<Option<Vec<_>>>()
        else {
            return Ok(None);
        };
        let sources = Sources {
            segments: files.iter().map(|live| live.segment.clone()).collect(),
            order: files.iter().map(|live| live.order).max().unwrap_or(0),
            last_group: files.iter().map(|live| live.last.number).max().unwrap_or(0),
            parts: Vec::new(),
            pieces: Vec::new(),
        };
        let mut keys: Vec<RangeKey> = files.iter().flat_map(|live| live.keys.iter().copied()).collect();
        keys.sort_unstable();
        keys.dedup();
        (sources, keys)
    };
    for key in keys {
        loop {
            match sources.add(shared, key) {
                Added::Whole => break,
                Added::Load(load) => shared.load(key, &load)?,
                Added::Incomplete { source } => return Err(NotWritten::Damaged { source }),
            }
        }
    }
    Ok(Some(sources))
}

impl Sources {
    fn add(&mut self, shared: &Shared, key: RangeKey) -> Added {
        let state = shared.state.read();
        let Some(range) = state.index.get(key) else {
            return Added::Whole;
        };
        let before = self.pieces.len();
        for run in &range.runs {
            let of_run = |segment: &Arc<Segment>| segment.number == run.segment;
            let Some(source) = self.segments.iter().position(of_run) else {
                continue;
            };
            let Some(entries) = shared.entries_of(run) else {
                self.pieces.truncate(before);
                let incomplete = Added::Incomplete { source: run.segment };
                return state.load_of(run).map_or(incomplete, Added::Load);
            };
            let from = run.first.max(range.released);
            let mut next = from;
            let mark = None;
            for entry in entries.from(from) {
                if entry.base > next {
                    return Added::Incomplete { source: run.segment };
                }
                next = entry.end;
                self.pieces.push(Piece { source, entry, mark });
            }
            if next < run.end {
                return Added::Incomplete { source: run.segment };
            }
        }
        self.add_marks(range, before);
        let pieces = self.pieces.len() - before;
        if pieces > 0 {
            let epoch = range.epoch;
            self.parts.push(RangePart { key, epoch, pieces });
        }
        Added::Whole
    }

    /// Puts a range's marks between its batches, which are the pieces from `first` on.
    fn add_marks(&mut self, range: &RangeState, first: usize) {
        let numbers: Vec<u64> = self.segments.iter().map(|segment| segment.number).collect();
        let batches = self.pieces.len();
        for mark in &range.marks {
            let Some(source) = numbers.iter().position(|number| *number == mark.segment) else {
                continue;
            };
            let entry = IndexEntry {
                base: mark.position.offset,
                end: mark.position.offset,
                max_timestamp: TimestampMs::default(),
                position: mark.place,
                length: mark.length,
            };
            self.pieces.push(Piece {
                source,
                entry,
                mark: Some(mark.position),
            });
        }
        if self.pieces.len() > batches {
            // A mark stands before the batch at its offset.
            let place = |piece: &Piece| (piece.entry.base, piece.mark.is_none(), piece.mark);
            self.pieces.get_mut(first..).unwrap_or_default().sort_by_key(place);
        }
    }
}
