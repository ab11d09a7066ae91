//! Batches as plain v0.1 peers write them: records one after the other, no lengths in the head, no padding.

use bytes::{Bytes, BytesMut};
use flatbuffers::FlatBufferBuilder;
use sbp_record::{Batch, BodyEncoding, FaultKind, inspect, split_batches};
use sbp_schema::v01;
use sbp_types::Offset;

use crate::support::{Row, rows_of, stamp};

fn record(index: i32, body: &[u8], header: Option<(&str, &str)>) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let headers = header.map(|(key, value)| {
        let key = builder.create_string(key);
        let value = builder.create_string(value);
        let entry = v01::KeyValue::create(
            &mut builder,
            &v01::KeyValueArgs {
                key: Some(key),
                value: Some(value),
            },
        );
        builder.create_vector(&[entry])
    });
    let args = v01::RecordMetaArgs {
        offset_delta: index,
        timestamp_delta: 10 * index,
        headers,
        properties: None,
    };
    let root = v01::RecordMeta::create(&mut builder, &args);
    builder.finish(root, None);
    let meta = builder.finished_data();
    let mut out = Vec::new();
    out.extend_from_slice(&i32::try_from(meta.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&i32::try_from(body.len()).unwrap().to_be_bytes());
    out.extend_from_slice(meta);
    out.extend_from_slice(body);
    out
}

/// A batch whose head has only the fields of the specification.
fn batch(last_offset_delta: i32, records: &[Vec<u8>]) -> BytesMut {
    let mut builder = FlatBufferBuilder::new();
    let key = builder.create_string("k");
    let value = builder.create_string("v");
    let entry = v01::KeyValue::create(
        &mut builder,
        &v01::KeyValueArgs {
            key: Some(key),
            value: Some(value),
        },
    );
    let properties = Some(builder.create_vector(&[entry]));
    let args = v01::RecordBatchMetaArgs {
        stream_id: 3,
        base_offset: 999,
        last_offset_delta,
        base_timestamp: 1_000,
        properties,
        ..v01::RecordBatchMetaArgs::default()
    };
    let root = v01::RecordBatchMeta::create(&mut builder, &args);
    builder.finish(root, None);
    let meta = builder.finished_data();
    let mut out = BytesMut::from(&[0x22, 0, 0, 0, 0, 0, 0, 0, 0][..]);
    out.extend_from_slice(&i32::try_from(meta.len()).unwrap().to_be_bytes());
    out.extend_from_slice(meta);
    out.extend_from_slice(&records.concat());
    out
}

fn three() -> Vec<Vec<u8>> {
    vec![
        record(0, b"one", Some(("Tag", "t"))),
        record(1, b"", None),
        record(2, b"three", None),
    ]
}

fn expected() -> Vec<Row> {
    let row = |time, value: &[u8]| Row {
        time: Some(time),
        ..Row::value(value)
    };
    let mut rows = vec![row(1_000_000, b"one"), row(1_010_000, b""), row(1_020_000, b"three")];
    rows[0].headers = vec![("Tag".to_owned(), Some(b"t".to_vec()))];
    rows
}

#[test]
fn both_readings_of_last_offset_delta() {
    for delta in [2, 3] {
        let mut bytes = batch(delta, &three());
        stamp(&mut bytes, 40);
        let bytes = bytes.freeze();
        // Read, where a log holds it; but a server stores only the right number.
        match inspect(std::slice::from_ref(&bytes), true) {
            Ok(head) => {
                assert_eq!((delta, head.record_count, head.total_length), (2, 3, bytes.len()));
                assert_eq!(head.meta.body_encoding, BodyEncoding::RECORD_LIST);
                assert_eq!(head.meta.properties, [("k".to_owned(), "v".to_owned())]);
            }
            Err(error) => assert_eq!((delta, error.kind()), (3, FaultKind::Corrupt), "{error}"),
        }
        let batch = Batch::decode(bytes, None).unwrap();
        assert_eq!((batch.base_offset(), batch.end_offset()), (Offset(40), Offset(43)));
        assert_eq!(rows_of(&batch), expected());
        assert!(batch.copied_bytes() > 0);
    }
}

#[test]
fn batches_back_to_back_with_and_without_padding() {
    // One to three zeros before the next batch could be the length of another record, so a head that counts from one
    // is understood without them only.
    for (padding, deltas) in [
        (0, [2, 3, 2]),
        (1, [2, 2, 2]),
        (3, [2, 2, 2]),
        (4, [2, 3, 2]),
        (15, [3, 2, 3]),
    ] {
        let mut payload = BytesMut::new();
        for delta in deltas {
            payload.extend_from_slice(&batch(delta, &three()));
            payload.extend_from_slice(&vec![0; padding]);
        }
        let payload = payload.freeze();
        assert_eq!(split_batches(&payload).filter(Result::is_ok).count(), 3);
        let batches: Vec<Batch> = split_batches(&payload)
            .map(|bytes| Batch::decode(bytes.unwrap(), None).unwrap())
            .collect();
        assert!(
            batches.iter().all(|batch| rows_of(batch) == expected()),
            "{padding} zeros"
        );
    }
}

#[test]
fn chunks_may_be_cut_anywhere() {
    let bytes = batch(2, &three()).freeze();
    let whole = inspect(std::slice::from_ref(&bytes), false).unwrap();
    for cut in 0..=bytes.len() {
        assert_eq!(
            inspect(&[bytes.slice(..cut), bytes.slice(cut..)], false).unwrap(),
            whole
        );
    }
}

#[test]
fn lists_that_end_early_or_late_are_refused() {
    for (delta, records) in [(4, three()), (3, three()), (1, three()), (0, Vec::new())] {
        assert!(inspect(&[batch(delta, &records).freeze()], false).is_err(), "{delta}");
    }
    let mut swapped = three();
    swapped.swap(0, 1);
    assert!(Batch::decode(batch(2, &swapped).freeze(), None).is_err());
    // Shorter by each number of bytes.
    let bytes: Bytes = batch(2, &three()).freeze();
    for length in 0..bytes.len() {
        let cut = bytes.slice(..length);
        // A list that ends a record early is whole when the head counts from one.
        assert!(Batch::decode(cut.clone(), None).is_err() || rows_of(&Batch::decode(cut, None).unwrap()).len() == 2);
    }
}
