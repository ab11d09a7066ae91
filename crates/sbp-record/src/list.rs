//! RECORD_LIST bodies, which plain v0.1 peers write: records one after the other, each with its own metadata. Read only.

use bytes::Bytes;

use crate::cursor::ChunkCursor;
use crate::error::BatchError;
use crate::framing::BATCH_MAGIC;
use crate::meta::{MAX_META_LENGTH, RecordListMeta};

/// The lengths before each record.
struct Lengths {
    meta: usize,
    body: usize,
}

fn lengths(cursor: &mut ChunkCursor<'_>) -> Result<Lengths, BatchError> {
    let meta = i32::from_be_bytes(cursor.array("a record's metadata length")?);
    let body = i32::from_be_bytes(cursor.array("a record's body length")?);
    Ok(Lengths {
        // A root table has at least 8 bytes, so zeros, which may be padding, are never taken for a record.
        meta: usize::try_from(meta)
            .ok()
            .filter(|length| (8..=MAX_META_LENGTH).contains(length))
            .ok_or(BatchError::value("a record's metadata length", meta))?,
        body: usize::try_from(body).map_err(|_negative| BatchError::value("a record's body length", body))?,
    })
}

/// Measures a list whose length is not stated: returns (bytes, records) and moves the cursor past the last record.
///
/// `count` is `last_offset_delta` + 1. Some writers store the number of records in that field. So for a reader, a list
/// is complete as well if it ends one record early, at the end of the bytes, at zeros or at the next batch: a log may
/// have accepted it once. Batches to be stored must state the right number ([`inspect`](crate::inspect)).
pub(crate) fn measure(cursor: &mut ChunkCursor<'_>, count: i64) -> Result<(usize, i64), BatchError> {
    let start = cursor.position();
    let mut walked = 0_i64;
    while walked < count {
        if walked > 0 && walked == count - 1 && ends_here(*cursor) {
            break;
        }
        let lengths = lengths(cursor)?;
        cursor.skip(lengths.meta, "a record's metadata")?;
        cursor.skip(lengths.body, "a record's body")?;
        walked += 1;
    }
    Ok((cursor.position() - start, walked))
}

/// Whether no record can follow: the first byte of a record's length is never the magic, and its four bytes are never
/// all zero.
fn ends_here(mut cursor: ChunkCursor<'_>) -> bool {
    let available = cursor.remaining().min(4);
    let mut next = [0_u8; 4];
    for (slot, byte) in next.iter_mut().zip(
        cursor
            .pieces(available, "the next record")
            .into_iter()
            .flatten()
            .flatten(),
    ) {
        *slot = *byte;
    }
    available < 4 || next == [0; 4] || next.first() == Some(&BATCH_MAGIC)
}

/// One record of a list.
#[derive(Clone, Debug)]
pub(crate) struct ListRecord {
    pub(crate) meta: RecordListMeta,
    pub(crate) body: Bytes,
}

/// The records of a complete list of `count` records, which must fill the body.
pub(crate) fn records(body: &Bytes, count: i64) -> Result<Vec<ListRecord>, BatchError> {
    let mut cursor = ChunkCursor::contiguous(body);
    let mut out = Vec::new();
    let mut scratch = Vec::new();
    while cursor.remaining() > 0 {
        let lengths = lengths(&mut cursor)?;
        let meta = RecordListMeta::parse(cursor.together(lengths.meta, &mut scratch, "a record's metadata")?)?;
        let from = cursor.position();
        cursor.skip(lengths.body, "a record's body")?;
        let expected = i32::try_from(out.len()).ok();
        if Some(meta.offset_delta) != expected {
            return Err(BatchError::body(format!(
                "record {} of the list says that it is record {}",
                out.len(),
                meta.offset_delta
            )));
        }
        out.push(ListRecord {
            meta,
            body: body.slice(from..cursor.position()),
        });
    }
    if i64::try_from(out.len()).ok() != Some(count) {
        return Err(BatchError::body(format!(
            "the list has {} records instead of {count}",
            out.len()
        )));
    }
    Ok(out)
}
