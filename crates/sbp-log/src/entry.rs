//! The entries that are appended to the log and read from it.

use bytes::{Bytes, BytesMut};
use sbp_types::{Epoch, Offset, Position, RangeKey, TimestampMs, WriterId};
use smallvec::SmallVec;

/// What an entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryKind {
    /// Records: at least one, with bytes.
    #[default]
    Batch,
    /// A mark that makes a writer's epoch current. It has a writer and no bytes.
    Fence,
    /// A mark with a part of the state of all writers of the stream ([`Log::writers_of`](crate::Log::writers_of)). It has
    /// bytes and no writer. Together the parts replace what was known of the writers.
    Writers {
        /// Which part, from 0.
        part: u16,
        /// How many parts there are. They follow each other in their order.
        parts: u16,
    },
}

/// What the log knows about an entry without looking into its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryHead {
    /// The range the entry belongs to.
    pub key: RangeKey,
    /// What it is.
    pub kind: EntryKind,
    /// Whether other servers have copies of the range. Such an entry counts for its writer when it is confirmed, every
    /// other one when it is synced.
    pub shared: bool,
    /// The range's epoch when the entry was accepted.
    pub epoch: Epoch,
    /// The offset of the first record; of a mark, that of the next record. It must be the range's next offset, unless the
    /// entry is the range's first.
    pub base_offset: Offset,
    /// How many marks stand at that offset before this entry. An append with another number than the range's is refused;
    /// without one it gets the range's. What is read has one, but for batches of which nobody asked for the position.
    pub marks: Option<u32>,
    /// The number of records; 0 for a mark, which takes no offset.
    pub count: i64,
    /// When the server accepted the entry.
    pub append_time: TimestampMs,
    /// The largest time among its records; without meaning for a mark.
    pub max_timestamp: TimestampMs,
    /// The idempotent writer, or [`WriterId::NONE`].
    pub writer: WriterId,
    /// The writer's epoch; 0 without a writer.
    pub writer_epoch: i64,
    /// The sequence number of the first record; of a fence, that of the writer's next record; 0 without a writer.
    pub base_sequence: i64,
}

impl EntryHead {
    /// One past the offset of the last record, unless that exceeds the largest offset.
    #[must_use]
    pub fn end_offset(&self) -> Option<Offset> {
        self.base_offset.checked_add(self.count)
    }

    /// Whether this is a fence, which only makes a writer's epoch current and has no record, no bytes and no offset. It
    /// keeps its place among the batches of its range.
    #[must_use]
    pub fn is_fence(&self) -> bool {
        self.kind == EntryKind::Fence
    }

    /// Whether this is a mark: an entry without an offset of its own.
    #[must_use]
    pub fn is_mark(&self) -> bool {
        self.kind != EntryKind::Batch
    }

    /// The place where the entry stands if so many marks stand before it at its offset.
    pub(crate) fn position(&self, marks: u32) -> Position {
        Position {
            offset: self.base_offset,
            marks,
        }
    }

    /// The place behind the entry if it stands at `at`; `None` if there is no such place.
    pub(crate) fn behind(&self, at: Position) -> Option<Position> {
        match self.kind {
            EntryKind::Batch => at.behind_records(self.count),
            EntryKind::Fence | EntryKind::Writers { .. } => at.behind_mark(),
        }
    }

    /// Whether the fields go together with bytes of this length.
    pub(crate) fn is_whole(&self, bytes: usize) -> bool {
        match self.kind {
            EntryKind::Batch => self.count >= 1,
            EntryKind::Fence => self.count == 0 && self.writer.is_some() && bytes == 0,
            EntryKind::Writers { part, parts } => {
                self.count == 0 && !self.writer.is_some() && part < parts && (1..=MOST_PART_BYTES).contains(&bytes)
            }
        }
    }
}

/// The most bytes of one part of the writers' state.
pub(crate) const MOST_PART_BYTES: usize = 4 << 20;

/// One entry to append: its bytes are `prefix` followed by `chunks`, unjoined.
#[derive(Clone, Debug)]
pub struct LogEntry<T> {
    /// The typed fields beside the opaque bytes.
    pub head: EntryHead,
    /// The first bytes, typically the rewritten base offset; may be empty.
    pub prefix: SmallVec<[u8; 16]>,
    /// The other bytes. Small chunks are copied when the group is built; large ones are written from where they are,
    /// and stay referenced while they are part of the hot tail.
    pub chunks: SmallVec<[Bytes; 1]>,
    /// Given back to the [`GroupObserver`](crate::GroupObserver) when the group has ended.
    pub context: T,
}

impl<T> LogEntry<T> {
    /// The length of the batch in bytes.
    #[must_use]
    pub fn batch_len(&self) -> usize {
        self.prefix.len() + self.chunks.iter().map(Bytes::len).sum::<usize>()
    }
}

/// The bytes of one stored entry, in one piece or in the pieces they are kept in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchBytes(SmallVec<[Bytes; 2]>);

impl BatchBytes {
    /// The pieces, in order, none of them empty. Only recent large batches have more than one.
    #[must_use]
    pub fn chunks(&self) -> &[Bytes] {
        &self.0
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The batch in one piece; copies only if there is more than one.
    #[must_use]
    pub fn into_contiguous(mut self) -> Bytes {
        match self.0.len() {
            0 => Bytes::new(),
            1 => self.0.remove(0),
            _ => {
                let mut whole = BytesMut::with_capacity(self.len());
                for chunk in &self.0 {
                    whole.extend_from_slice(chunk);
                }
                whole.freeze()
            }
        }
    }

    /// Adds a piece at the end; empty ones are left out.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.0.push(chunk);
        }
    }
}

impl From<Bytes> for BatchBytes {
    fn from(bytes: Bytes) -> Self {
        let mut whole = Self::default();
        whole.push(bytes);
        whole
    }
}

/// One batch as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The number of records, at least 1.
    pub count: i64,
    /// The largest time among its records.
    pub max_timestamp: TimestampMs,
    /// The batch.
    pub bytes: BatchBytes,
}

/// One entry as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Where it stands.
    pub position: Position,
    /// Its typed fields.
    pub head: EntryHead,
    /// Its bytes; none for a fence.
    pub bytes: BatchBytes,
}

impl StoredEntry {
    /// The place behind it.
    #[must_use]
    pub fn end(&self) -> Position {
        self.head.behind(self.position).unwrap_or(self.position)
    }
}
