//! Record batches, made and looked into.

use bytes::{Bytes, BytesMut};
use sbp_client::Records;
use sbp_record::{EncodeOptions, RecordsBuilder, encode_raw, split_batches, stamp_base_offset};
use sbp_types::{Offset, TimestampMs};

/// A batch with this as its one record, of the time 1,000.
pub fn raw_batch(body: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    let options = EncodeOptions {
        timestamp: TimestampMs(1_000),
        ..EncodeOptions::default()
    };
    encode_raw(&options, body, &mut out).unwrap();
    out.freeze()
}

/// The base offset and the body of each RAW batch in a payload.
pub fn bodies(payload: &Bytes) -> Vec<(i64, Bytes)> {
    split_batches(payload)
        .map(|batch| {
            let bytes = batch.unwrap();
            let head = sbp_record::inspect(std::slice::from_ref(&bytes), true).unwrap();
            let body = bytes.slice(head.head_length..head.head_length + head.body_length);
            (head.base_offset.0, body)
        })
        .collect()
}

/// One batch of records as a server returns it.
pub fn batch(base: i64, records: usize) -> Vec<u8> {
    let mut builder = RecordsBuilder::new();
    for _ in 0..records {
        builder.push(Some(b"value"), None, None, &[]).unwrap();
    }
    let mut out = BytesMut::new();
    builder.finish(&EncodeOptions::default(), &mut out).unwrap_or_default();
    if let Some(stamp) = out.get_mut(..9) {
        stamp.copy_from_slice(&stamp_base_offset(Offset(base)));
    }
    out.to_vec()
}

/// Records with these values, for a client to append.
pub fn records(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Records {
    let mut builder = RecordsBuilder::new();
    for value in values {
        builder.push(Some(value.as_ref()), None, None, &[]).unwrap();
    }
    builder.into()
}

/// An offset as a number; -1 where a peer says none.
pub fn told(offset: Option<Offset>) -> i64 {
    offset.map_or(-1, |offset| offset.0)
}
