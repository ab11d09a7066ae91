//! Encodes batches: what all encodings have in common, and RAW.

use bytes::{BufMut, Bytes, BytesMut};
use sbp_types::{StreamId, TimestampMs, WriterId};

use crate::checksum::crc32c;
use crate::compress::{MAX_RECORDS, MAX_UNCOMPRESSED_LENGTH, compress};
use crate::cursor::widen;
use crate::error::EncodeError;
use crate::framing::padding_after;
use crate::head::{FENCE, MAX_BATCH_LENGTH};
use crate::meta::{BatchMeta, BodyEncoding, Compression};
use crate::template::{head_length, write_head};

/// A batch's writer, with its epoch and sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStamp {
    /// The writer.
    pub id: WriterId,
    /// The writer's epoch.
    pub epoch: i64,
    /// Sequence of the batch's first record, counted in records.
    pub base_sequence: i64,
}

/// The fields of a batch's metadata that its writer chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// The stream the batch is meant for. Servers go by the request instead.
    pub stream_id: StreamId,
    /// Time of the records without a time of their own.
    pub timestamp: TimestampMs,
    /// Compression of the body. A body that does not get smaller is stored as it is.
    pub compression: Compression,
    /// The idempotent writer, if there is one.
    pub writer: Option<WriterStamp>,
}

impl EncodeOptions {
    /// The metadata of a batch of `count` records, without the fields of the body.
    pub(crate) fn meta(&self, body_encoding: BodyEncoding, count: usize) -> Result<BatchMeta, EncodeError> {
        let too_many = || EncodeError::TooManyRecords(widen(count));
        let count = i32::try_from(count)
            .ok()
            .filter(|_| count <= MAX_RECORDS)
            .ok_or_else(too_many)?;
        let writer = self.writer.unwrap_or_default();
        Ok(BatchMeta {
            stream_id: self.stream_id,
            last_offset_delta: count.checked_sub(1).ok_or_else(too_many)?,
            base_timestamp: self.timestamp,
            max_timestamp: self.timestamp,
            body_encoding,
            writer_id: writer.id,
            writer_epoch: writer.epoch,
            base_sequence: writer.base_sequence,
            ..BatchMeta::default()
        })
    }
}

/// Zeros for the padding after a body sent by reference: `&PADDING[..n]`, with n from [`encode_raw_head`].
pub const PADDING: [u8; 16] = [0; 16];

/// Appends to `out` a batch of one record, `body`; returns its length in bytes, padding included.
///
/// # Errors
/// The batch would be too large for a server, or the compression is not part of this build.
pub fn encode_raw(options: &EncodeOptions, body: &[u8], out: &mut BytesMut) -> Result<usize, EncodeError> {
    let meta = options.meta(BodyEncoding::RAW, 1)?;
    write_batch(meta, options.compression, out, body.len(), |out| {
        out.put_slice(body);
        Ok(())
    })
}

/// Appends to `out` the head of a batch of one record whose body is sent by reference; returns the number of zero bytes
/// that must follow the body.
///
/// The body is read once, for its checksum. It cannot be compressed.
///
/// # Errors
/// The batch would be too large for a server, or the options ask for compression.
pub fn encode_raw_head(options: &EncodeOptions, body: &Bytes, out: &mut BytesMut) -> Result<usize, EncodeError> {
    if options.compression != Compression::NONE {
        return Err(EncodeError::Compression(
            "a body sent by reference cannot be compressed".to_owned(),
        ));
    }
    let mut meta = options.meta(BodyEncoding::RAW, 1)?;
    let length = body_length(body.len(), MAX_BATCH_LENGTH)?;
    meta.body_length = length;
    meta.uncompressed_length = length;
    meta.body_crc32c = Some(crc32c(body));
    let padding = padding_after(body.len());
    check_total(head_length(&meta) + body.len() + padding)?;
    out.reserve(head_length(&meta));
    write_head(&meta, out);
    Ok(padding)
}

/// Appends to `out` a batch without records, with which a writer asks for its next sequence; returns its length in
/// bytes.
///
/// # Errors
/// None today; the signature is that of the other encoders.
pub fn encode_empty(options: &EncodeOptions, out: &mut BytesMut) -> Result<usize, EncodeError> {
    let meta = BatchMeta {
        last_offset_delta: -1,
        ..options.meta(BodyEncoding::RAW, 1)?
    };
    write_batch(meta, Compression::NONE, out, 0, |_out| Ok(()))
}

/// As [`encode_empty`], with [`FENCE`]: the writer's epoch becomes current, and lower ones are refused from then on.
///
/// # Errors
/// None today; the signature is that of the other encoders.
pub fn encode_fence(options: &EncodeOptions, out: &mut BytesMut) -> Result<usize, EncodeError> {
    let meta = BatchMeta {
        last_offset_delta: -1,
        flags: FENCE,
        ..options.meta(BodyEncoding::RAW, 1)?
    };
    write_batch(meta, Compression::NONE, out, 0, |_out| Ok(()))
}

/// Appends head, body and padding. The body is written in place after room for the head, which is filled in last.
///
/// After an error `out` is unchanged.
pub(crate) fn write_batch(
    mut meta: BatchMeta,
    compression: Compression,
    out: &mut BytesMut,
    expected_body: usize,
    write_body: impl FnOnce(&mut BytesMut) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    let head = head_length(&meta);
    let start = out.len();
    let body_from = start + head;
    out.reserve(head + expected_body.next_multiple_of(16));
    out.put_bytes(0, head);
    let result = write_body(out).and_then(|()| seal_body(&mut meta, compression, out, body_from));
    let total = out.len() - start;
    if let Err(error) = result.and_then(|()| check_total(total)) {
        out.truncate(start);
        return Err(error);
    }
    if let Some(mut room) = out.get_mut(start..body_from) {
        write_head(&meta, &mut room);
    }
    Ok(total)
}

/// Compresses and pads the body that begins at `body_from`, and sets its fields in the metadata.
fn seal_body(
    meta: &mut BatchMeta,
    compression: Compression,
    out: &mut BytesMut,
    body_from: usize,
) -> Result<(), EncodeError> {
    let body = out.get(body_from..).unwrap_or_default();
    meta.uncompressed_length = body_length(body.len(), MAX_UNCOMPRESSED_LENGTH)?;
    let (stored, used) = compress(body, compression)?;
    meta.compression = used;
    meta.body_length = body_length(stored.len(), MAX_BATCH_LENGTH)?;
    meta.body_crc32c = Some(crc32c(&stored));
    let padding = padding_after(stored.len());
    if let std::borrow::Cow::Owned(packed) = stored {
        out.truncate(body_from);
        out.extend_from_slice(&packed);
    }
    out.put_bytes(0, padding);
    Ok(())
}

/// The length for a head, if it is within the limit.
pub(crate) fn body_length(length: usize, limit: usize) -> Result<i32, EncodeError> {
    i32::try_from(length)
        .ok()
        .filter(|_| length <= limit)
        .ok_or(EncodeError::TooLarge {
            length: widen(length),
            limit: widen(limit),
        })
}

fn check_total(total: usize) -> Result<(), EncodeError> {
    body_length(total, MAX_BATCH_LENGTH).map(drop)
}
