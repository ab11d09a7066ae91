use bytes::{Bytes, BytesMut};
use sbp_record::{EncodeOptions, RecordsBuilder, stamp_base_offset};
use sbp_types::{Offset, StreamId};

use super::batches;
use crate::pinned::FrameMemory;

/// A batch of `records` records from offset `base` on.
pub(in crate::read) fn batch(base: i64, records: usize) -> Vec<u8> {
    let mut builder = RecordsBuilder::new();
    for _ in 0..records {
        builder.push(Some(b"value"), None, None, &[]).unwrap();
    }
    let mut out = BytesMut::new();
    builder.finish(&EncodeOptions::default(), &mut out).unwrap();
    out[..9].copy_from_slice(&stamp_base_offset(Offset(base)));
    out.to_vec()
}

fn read(parts: &[Vec<u8>], next: i64, end: Option<i64>) -> Result<(Vec<(i64, i64)>, i64), String> {
    let mut out = Vec::new();
    let bytes = Bytes::from(parts.concat());
    let place = batches(
        StreamId(1),
        (&bytes, &FrameMemory::new(&bytes)),
        Offset(100),
        Offset(next),
        end.map(Offset),
        &mut out,
    )
    .map_err(|error| error.to_string())?;
    Ok((out.iter().map(|batch| (batch.from.0, batch.to.0)).collect(), place.0))
}

#[test]
fn bounds_are_trimmed_at_both_ends() {
    let parts = [batch(0, 10), batch(10, 10), batch(20, 10)];
    assert_eq!(read(&parts, 0, None).unwrap(), (vec![(0, 10), (10, 20), (20, 30)], 30));
    assert_eq!(
        read(&parts, 5, Some(25)).unwrap(),
        (vec![(5, 10), (10, 20), (20, 25)], 25)
    );
    assert_eq!(read(&parts, 5, Some(10)).unwrap(), (vec![(5, 10)], 10));
    assert_eq!(read(&[], 5, Some(10)).unwrap(), (vec![], 5));
}

#[test]
fn a_gap_or_a_repeat_is_an_error_and_not_a_skip() {
    assert!(
        read(&[batch(0, 10), batch(11, 1)], 0, None)
            .unwrap_err()
            .contains("missing")
    );
    assert!(
        read(&[batch(0, 10), batch(9, 1)], 0, None)
            .unwrap_err()
            .contains("missing")
    );
    assert!(read(&[batch(3, 10)], 2, None).unwrap_err().contains("missing"));
}

#[test]
fn what_is_no_batch_is_damage() {
    let mut broken = batch(0, 10);
    broken[0] = 9;
    assert!(read(&[broken], 0, None).unwrap_err().contains("SBP-9011"));
}
