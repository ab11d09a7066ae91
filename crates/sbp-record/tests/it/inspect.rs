//! What a server does with a batch before it stores it.

use bytes::{Bytes, BytesMut};
use sbp_record::{
    Batch, BatchError, Compression, EncodeOptions, FaultKind, WriterStamp, encode_raw, inspect, split_batches,
    stamp_base_offset, without_stamp,
};
use sbp_types::{Offset, WriterId};

use crate::support::{Row, encode_rows, options};

fn sample() -> Bytes {
    let rows: Vec<Row> = (0..5_u8).map(|n| Row::value(&[n; 7])).collect();
    encode_rows(&rows, &options(Compression::NONE)).freeze()
}

/// `bytes` with `with` at `at`.
fn patched(bytes: &[u8], at: usize, with: &[u8]) -> Bytes {
    let mut out = BytesMut::from(bytes);
    out[at..at + with.len()].copy_from_slice(with);
    out.freeze()
}

fn raw(body: &[u8], writer: Option<WriterStamp>) -> Bytes {
    let mut out = BytesMut::new();
    encode_raw(
        &EncodeOptions {
            writer,
            ..options(Compression::NONE)
        },
        body,
        &mut out,
    )
    .unwrap();
    out.freeze()
}

#[test]
fn chunks_may_be_cut_anywhere() {
    let batch = sample();
    let whole = inspect(std::slice::from_ref(&batch), true).unwrap();
    assert_eq!(whole.record_count, 5);
    assert_eq!(whole.total_length, batch.len());
    for first in 0..=batch.len() {
        for second in [first, (first + 1).min(batch.len()), (first + 14).min(batch.len())] {
            let chunks = [batch.slice(..first), batch.slice(first..second), batch.slice(second..)];
            assert_eq!(inspect(&chunks, true).unwrap(), whole, "cut at {first} and {second}");
        }
    }
    let bytes: Vec<Bytes> = (0..batch.len()).map(|at| batch.slice(at..=at)).collect();
    assert_eq!(inspect(&bytes, true).unwrap(), whole);
}

#[test]
fn every_missing_byte_is_noticed() {
    let batch = sample();
    let head = inspect(std::slice::from_ref(&batch), true).unwrap();
    let body_end = head.head_length + head.body_length;
    for length in 0..batch.len() {
        let found = inspect(&[batch.slice(..length)], false);
        // Fewer zeros behind the body are padding too.
        assert_eq!(found.is_ok(), length >= body_end, "{length} bytes");
    }
}

#[test]
fn padding_is_up_to_fifteen_zeros() {
    for body in [&b"x"[..], &[7; 15], &[7; 16], &[7; 17]] {
        let padded = raw(body, None);
        let body_end = inspect(std::slice::from_ref(&padded), true).unwrap();
        let body_end = body_end.head_length + body_end.body_length;
        for zeros in 0..40 {
            let batch = Bytes::from([&padded[..body_end], &vec![0; zeros]].concat());
            let found = inspect(std::slice::from_ref(&batch), true);
            if zeros < 16 {
                assert_eq!(found.unwrap().total_length, batch.len(), "{zeros} zeros");
                // A reader finds it, and the next one behind it.
                let two = Bytes::from([&batch[..], &batch[..]].concat());
                assert_eq!(
                    split_batches(&two).map(Result::unwrap).collect::<Vec<_>>(),
                    [&batch, &batch]
                );
                assert_eq!(Batch::decode(batch, None).unwrap().record_count(), 1);
            } else {
                let error = found.unwrap_err();
                assert!(matches!(error, BatchError::Padding { .. }), "{zeros} zeros: {error}");
                assert_eq!(error.kind(), FaultKind::Corrupt);
            }
        }
    }
}

#[test]
fn padding_is_nothing_but_zeros() {
    let batch = raw(b"x", None);
    assert_eq!(batch.len(), 128);
    for refused in [
        patched(&batch, 127, &[1]),                     // at the end
        patched(&batch, 113, &[1]),                     // right behind the body
        Bytes::from([&batch[..114], &[1]].concat()),    // before a multiple of 16
        Bytes::from([&batch[..], &batch[..]].concat()), // two batches
    ] {
        let error = inspect(&[refused], true).unwrap_err();
        assert!(matches!(error, BatchError::Padding { .. }), "{error}");
        assert_eq!(error.kind(), FaultKind::Corrupt);
    }
}

#[test]
fn impossible_numbers_are_corrupt() {
    let batch = sample();
    let table = 53;
    for (what, bytes) in [
        ("magic", patched(&batch, 0, &[0x23])),
        ("negative metadata length", patched(&batch, 9, &[0x80])),
        ("metadata beyond the cap", patched(&batch, 9, &[0, 1, 0, 1])),
        ("delta below -1", patched(&batch, table + 4, &(-2_i32).to_le_bytes())),
        ("empty with a body", patched(&batch, table + 4, &(-1_i32).to_le_bytes())),
        (
            "negative body length",
            patched(&batch, table + 32, &(-1_i32).to_le_bytes()),
        ),
        (
            "body beyond the end",
            patched(&batch, table + 32, &i32::MAX.to_le_bytes()),
        ),
        ("RAW with five records", patched(&batch, table + 46, &[1])),
        ("root outside", patched(&batch, 13, &[0xff, 0xff])),
        ("vtable outside", patched(&batch, table, &i32::MAX.to_le_bytes())),
    ] {
        let error = inspect(&[bytes], true).expect_err(what);
        assert_eq!(error.kind(), FaultKind::Corrupt, "{what}: {error}");
    }
}

#[test]
fn the_body_is_read_only_when_asked() {
    let batch = raw(b"some body", None);
    let damaged = patched(&batch, 112, b"S");
    assert!(inspect(std::slice::from_ref(&damaged), false).is_ok());
    assert!(matches!(inspect(&[damaged], true), Err(BatchError::Checksum { .. })));
}

#[test]
fn unknown_encodings_are_not_judged() {
    let batch = sample();
    let head = inspect(&[patched(&batch, 53 + 46, &[77, 99])], true).unwrap();
    assert_eq!((head.meta.body_encoding.0, head.meta.compression.0), (77, 99));
}

#[test]
fn sequences_stay_within_the_number() {
    let id = WriterId { high: 0, low: 1 };
    let stamp = |epoch, base_sequence| {
        Some(WriterStamp {
            id,
            epoch,
            base_sequence,
        })
    };
    assert!(inspect(&[raw(b"x", stamp(0, i64::MAX - 1))], true).is_ok());
    for (epoch, base_sequence) in [(0, i64::MAX), (0, -1), (-1, 0)] {
        let error = inspect(&[raw(b"x", stamp(epoch, base_sequence))], true).unwrap_err();
        assert_eq!(error.kind(), FaultKind::Invalid, "{error}");
    }
    // Without a writer nobody looks at them.
    let nobody = WriterStamp {
        id: WriterId::NONE,
        epoch: -1,
        base_sequence: -1,
    };
    assert!(inspect(&[raw(b"x", Some(nobody))], true).is_ok());
}

#[test]
fn a_stamp_replaces_the_first_nine_bytes() {
    let batch = sample();
    for cut in 0..20 {
        let chunks = [batch.slice(..cut), batch.slice(cut..)];
        let rest = without_stamp(&chunks);
        assert_eq!(rest.concat(), batch[9..]);
        let mut stored = vec![Bytes::copy_from_slice(&stamp_base_offset(Offset(
            0x0102_0304_0506_0708,
        )))];
        stored.extend(rest);
        let head = inspect(&stored, true).unwrap();
        assert_eq!(head.base_offset, Offset(0x0102_0304_0506_0708));
        assert_eq!(head.end_offset(), Some(Offset(0x0102_0304_0506_070d)));
    }
}
