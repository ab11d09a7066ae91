//! The batches that are appended to the log and read from it.

use bytes::{Bytes, BytesMut};
use sbp_types::{Epoch, Offset, RangeKey, TimestampMs, WriterId};
use smallvec::SmallVec;

/// What the log knows about a batch without looking into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryHead {
    /// The range the batch belongs to.
    pub key: RangeKey,
    /// The range's epoch when the batch was accepted.
    pub epoch: Epoch,
    /// The offset of the batch's first record. It must be the range's next offset, unless the batch is the range's
    /// first.
    pub base_offset: Offset,
    /// The number of records; 0: a fence, which has no bytes and takes no offset.
    pub count: i64,
    /// When the server accepted the batch.
    pub append_time: TimestampMs,
    /// The largest time among its records.
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
        self.count == 0
    }
}

/// One batch to append: its bytes are `prefix` followed by `chunks`, unjoined.
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

/// The bytes of one stored batch, in one piece or in the pieces they are kept in.
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
