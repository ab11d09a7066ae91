//! Replaces the writer's stamp in the head of a batch.

use bytes::BytesMut;

use crate::cursor::ChunkCursor;
use crate::encode::WriterStamp;
use crate::error::BatchError;
use crate::head::read_head;
use crate::meta::BatchMeta;
use crate::template::write_head;

/// The result of [`stamp_writer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// The position of the body in the original batch.
    pub body_from: usize,
    /// Records in the batch.
    pub records: i64,
}

/// Appends to `out` the head of `batch` with `stamp` in it; `batch` need have no more than its head. The body and its
/// padding can follow unchanged, because heads that this crate writes end at a multiple of 16.
///
/// # Errors
/// The head cannot be read, or has properties, which heads that this crate writes cannot have.
pub fn stamp_writer(batch: &[u8], stamp: &WriterStamp, out: &mut BytesMut) -> Result<Stamped, BatchError> {
    let (_, meta, body_from) = read_head(&mut ChunkCursor::contiguous(batch))?;
    if !meta.properties.is_empty() {
        return Err(BatchError::Unsupported {
            what: "properties of a writer's batch:",
            value: i8::try_from(meta.properties.len()).unwrap_or(i8::MAX),
        });
    }
    let records = i64::from(meta.last_offset_delta) + 1;
    let meta = BatchMeta {
        writer_id: stamp.id,
        writer_epoch: stamp.epoch,
        base_sequence: stamp.base_sequence,
        ..meta
    };
    write_head(&meta, out);
    Ok(Stamped { body_from, records })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use sbp_types::{StreamId, TimestampMs, WriterId};

    use super::stamp_writer;
    use crate::{EncodeOptions, WriterStamp, encode_raw, inspect};

    fn stamp(sequence: i64) -> WriterStamp {
        WriterStamp {
            id: WriterId { high: 1, low: 2 },
            epoch: 3,
            base_sequence: sequence,
        }
    }

    #[test]
    fn only_the_stamp_changes_whether_there_was_one_or_not() {
        for writer in [None, Some(stamp(7))] {
            let options = EncodeOptions {
                stream_id: StreamId(9),
                timestamp: TimestampMs(5),
                writer,
                ..EncodeOptions::default()
            };
            let mut before = BytesMut::new();
            encode_raw(&options, b"the body", &mut before).unwrap();
            let mut after = BytesMut::new();
            let found = stamp_writer(&before, &stamp(100), &mut after).unwrap();
            assert_eq!(found.records, 1);
            after.extend_from_slice(&before[found.body_from..]);
            let mut direct = BytesMut::new();
            let options = EncodeOptions {
                writer: Some(stamp(100)),
                ..options
            };
            encode_raw(&options, b"the body", &mut direct).unwrap();
            assert_eq!(after, direct);
            assert_eq!(inspect(&[after.freeze()], true).unwrap().meta.base_sequence, 100);
        }
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let mut out = BytesMut::new();
        for bytes in [&b""[..], &[0x22; 12], &[0x21; 200], &[0x22; 200]] {
            assert!(stamp_writer(bytes, &stamp(0), &mut out).is_err());
        }
        assert!(out.is_empty());
    }
}
