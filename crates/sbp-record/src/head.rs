//! The head of a batch: magic, base offset, metadata, and the lengths that follow from them.

use bytes::Bytes;
use sbp_types::Offset;
use smallvec::SmallVec;

use crate::checksum::crc32c_of;
use crate::cursor::{ChunkCursor, widen};
use crate::error::BatchError;
use crate::framing::{ALIGNMENT, BATCH_MAGIC, FIXED_LENGTH, STAMP_LENGTH};
use crate::list;
use crate::meta::{BatchMeta, BodyEncoding, MAX_META_LENGTH};
use crate::template::read_meta;

/// A flag of empty batches: the writer's epoch becomes current. The flags of other batches are stored without effect.
pub const FENCE: i16 = 1;
/// The largest batch that a server stores: any stored batch must fit into one frame.
pub const MAX_BATCH_LENGTH: usize = 16 * 1024 * 1024 - 64 * 1024;

/// The head of a batch, with the lengths that follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// Offset of the first record, given by the server.
    pub base_offset: Offset,
    /// The metadata.
    pub meta: BatchMeta,
    /// Bytes before the body: 13 + metadata. A multiple of 16 in heads that this crate writes.
    pub head_length: usize,
    /// Bytes of the stored body. For a RECORD_LIST without a length in its head they are counted.
    pub body_length: usize,
    /// Bytes of head, body and padding.
    pub total_length: usize,
    /// Records in the batch, 0 for an empty one.
    pub record_count: i64,
}

impl BatchHead {
    /// Whether this is a fence: an empty batch with [`FENCE`], which only makes its writer's epoch current.
    #[must_use]
    pub fn is_fence(&self) -> bool {
        self.record_count == 0 && self.meta.flags & FENCE != 0
    }

    /// One past the offset of the last record; `None` if that overflows.
    #[must_use]
    pub fn end_offset(&self) -> Option<Offset> {
        self.base_offset.checked_add(self.record_count)
    }

    /// Reads the head and leaves the cursor after the body; `total_length` does not include the padding yet.
    pub(crate) fn parse(cursor: &mut ChunkCursor<'_>) -> Result<Self, BatchError> {
        let start = cursor.position();
        let (base_offset, meta, head_length) = read_head(cursor)?;
        let (body_length, record_count) = measure_body(&meta, cursor)?;
        let total_length = cursor.position() - start;
        Ok(Self {
            base_offset,
            meta,
            head_length,
            body_length,
            total_length,
            record_count,
        })
    }
}

/// Reads magic, base offset and metadata; returns base offset, metadata and the length of all.
pub(crate) fn read_head(cursor: &mut ChunkCursor<'_>) -> Result<(Offset, BatchMeta, usize), BatchError> {
    let [magic] = cursor.array("the magic")?;
    if magic != BATCH_MAGIC {
        return Err(BatchError::Magic(magic));
    }
    let base_offset = Offset(i64::from_be_bytes(cursor.array("the base offset")?));
    let told = i32::from_be_bytes(cursor.array("the length of the metadata")?);
    let meta_length = usize::try_from(told)
        .ok()
        .filter(|&length| length <= MAX_META_LENGTH)
        .ok_or(BatchError::value("metadata length", told))?;
    let mut scratch = Vec::new();
    let meta = read_meta(cursor.together(meta_length, &mut scratch, "the metadata")?)?;
    Ok((base_offset, meta, FIXED_LENGTH + meta_length))
}

/// The length of the body and the number of records; moves the cursor from the start of the body to its end.
fn measure_body(meta: &BatchMeta, cursor: &mut ChunkCursor<'_>) -> Result<(usize, i64), BatchError> {
    let told =
        usize::try_from(meta.body_length).map_err(|_negative| BatchError::value("body length", meta.body_length))?;
    let count = i64::from(meta.last_offset_delta) + 1;
    if count < 0 {
        return Err(BatchError::value("last offset delta", meta.last_offset_delta));
    }
    if count == 0 && told != 0 {
        return Err(BatchError::value("body length of an empty batch", meta.body_length));
    }
    if count > 1 && meta.body_encoding == BodyEncoding::RAW {
        return Err(BatchError::value("record count of a RAW body", count));
    }
    if meta.body_encoding == BodyEncoding::RECORD_LIST && told == 0 && count > 0 {
        return list::measure(cursor, count);
    }
    cursor.skip(told, "the body")?;
    Ok((told, count))
}

/// Reads the head of the one batch in `chunks`, and checks its lengths.
///
/// Refused are: bytes that are not a batch; lengths that do not add up to exactly these chunks; padding that is not
/// fewer than 16 zero bytes (its alignment is up to the writer); a RECORD_LIST whose number of records is not that of
/// its head; a writer's epoch or sequence out of bounds. With `verify_body` the stored body is compared with its
/// checksum, if it has one. Otherwise the body is not read, and the chunks are not joined. Schemas are not checked.
///
/// # Errors
///
/// The first fault found; [`BatchError::kind`] tells which error code to answer.
pub fn inspect(chunks: &[Bytes], verify_body: bool) -> Result<BatchHead, BatchError> {
    let mut cursor = ChunkCursor::new(chunks);
    let mut head = BatchHead::parse(&mut cursor)?;
    let padding = cursor.remaining();
    let zeros = padding < ALIGNMENT
        && cursor
            .pieces(padding, "the padding")?
            .all(|piece| piece.iter().all(|&byte| byte == 0));
    head.total_length = head.total_length.saturating_add(padding);
    if !zeros {
        return Err(BatchError::Padding { length: widen(padding) });
    }
    if head.record_count != i64::from(head.meta.last_offset_delta) + 1 {
        return Err(BatchError::value(
            "last offset delta of a list",
            head.meta.last_offset_delta,
        ));
    }
    judge_sequence(&head)?;
    if verify_body {
        verify_checksum(&head, chunks)?;
    }
    Ok(head)
}

fn judge_sequence(head: &BatchHead) -> Result<(), BatchError> {
    let meta = &head.meta;
    if !meta.writer_id.is_some() {
        return Ok(());
    }
    let refuse = |what, value| {
        Err(BatchError::Sequence {
            what,
            value,
            count: head.record_count,
        })
    };
    if meta.writer_epoch < 0 {
        return refuse("epoch", meta.writer_epoch);
    }
    if meta.base_sequence < 0 || meta.base_sequence.checked_add(head.record_count).is_none() {
        return refuse("sequence", meta.base_sequence);
    }
    Ok(())
}

fn verify_checksum(head: &BatchHead, chunks: &[Bytes]) -> Result<(), BatchError> {
    let Some(expected) = head.meta.body_crc32c else {
        return Ok(());
    };
    let mut cursor = ChunkCursor::new(chunks);
    cursor.skip(head.head_length, "the head")?;
    let actual = crc32c_of(cursor.pieces(head.body_length, "the body")?);
    if actual == expected {
        Ok(())
    } else {
        Err(BatchError::Checksum { expected, actual })
    }
}

/// The chunks of a batch without its first [`STAMP_LENGTH`] bytes, to be sent after a new stamp. Nothing is copied.
#[must_use]
pub fn without_stamp(chunks: &[Bytes]) -> SmallVec<[Bytes; 1]> {
    let mut left = STAMP_LENGTH;
    let mut out = SmallVec::with_capacity(chunks.len());
    for chunk in chunks {
        let drop = left.min(chunk.len());
        left -= drop;
        if drop < chunk.len() {
            out.push(chunk.slice(drop..));
        }
    }
    out
}
