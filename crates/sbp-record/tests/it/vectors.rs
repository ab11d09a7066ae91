//! Batches laid out by somebody else, in `tests/vectors/batches`: read, and where we can write such a batch, written again.

use std::slice;

use bytes::{Bytes, BytesMut};
use sbp_record::{
    Batch, BatchHead, BodyEncoding, Compression, EncodeOptions, WriterStamp, encode_empty, encode_fence, encode_raw,
    inspect, stamp_base_offset,
};
use sbp_types::{Offset, StreamId, TimestampMs, WriterId};

use crate::reader;
use crate::support::{Row, builder, rows_of};

const TIME: i64 = 1_700_000_000_123;
const WRITER: WriterStamp = WriterStamp {
    id: WriterId {
        high: 0x0102_0304_0506_0708,
        low: 0x090a_0b0c_0d0e_0f10,
    },
    epoch: 5,
    base_sequence: 77,
};

/// What a vector says, written down.
#[derive(Debug)]
struct Expected {
    base_offset: Offset,
    encoding: BodyEncoding,
    compression: Compression,
    writer: Option<WriterStamp>,
    rows: Vec<Row>,
}

fn row(time_us: i64, value: &[u8]) -> Row {
    Row {
        time: Some(time_us),
        ..Row::value(value)
    }
}

fn expected(name: &str) -> Expected {
    let raw = |value: &[u8]| Expected {
        base_offset: Offset(40),
        encoding: BodyEncoding::RAW,
        compression: Compression::NONE,
        writer: None,
        rows: vec![row(TIME * 1_000, value)],
    };
    let text = b"sbp".repeat(10);
    match name {
        "raw" => raw(b"hello"),
        "raw-writer" => Expected {
            base_offset: Offset(1 << 40),
            writer: Some(WRITER),
            ..raw(b"hello")
        },
        "empty" | "fence" => Expected {
            writer: Some(WRITER),
            rows: Vec::new(),
            ..raw(b"")
        },
        "records" => Expected {
            encoding: BodyEncoding::RECORDS,
            rows: three_rows(),
            ..raw(b"")
        },
        "lz4" => Expected {
            compression: Compression::LZ4,
            ..raw(&text)
        },
        "zstd" => Expected {
            compression: Compression::ZSTD,
            ..raw(&text)
        },
        "list" => Expected {
            encoding: BodyEncoding::RECORD_LIST,
            rows: listed_rows(),
            ..raw(b"")
        },
        other => panic!("no test knows the batch {other}"),
    }
}

fn three_rows() -> Vec<Row> {
    let mut rows = vec![row(1_000_001, b"one"), row(2_000_002, b""), row(3_000_003, b"")];
    rows[0].key = Some(b"k1".to_vec());
    rows[1].headers = vec![("a".to_owned(), Some(b"xy".to_vec())), ("bc".to_owned(), None)];
    rows[2].key = Some(b"k".to_vec());
    rows[2].value = None;
    rows
}

fn listed_rows() -> Vec<Row> {
    let mut rows = vec![row(TIME * 1_000, b"one"), row((TIME + 10) * 1_000, b"second")];
    for row in &mut rows {
        row.headers = vec![("Tag".to_owned(), Some(b"t".to_vec()))];
    }
    rows
}

/// The same batch as our writer lays it out; `None` where there is no such writer.
fn written(head: &BatchHead, expected: &Expected) -> Option<BytesMut> {
    let options = EncodeOptions {
        stream_id: StreamId(3),
        timestamp: head.meta.base_timestamp,
        compression: expected.compression,
        writer: expected.writer,
    };
    let mut out = BytesMut::new();
    match (expected.encoding, expected.rows.as_slice()) {
        (BodyEncoding::RAW, []) if head.is_fence() => encode_fence(&options, &mut out).unwrap(),
        (BodyEncoding::RAW, []) => encode_empty(&options, &mut out).unwrap(),
        (BodyEncoding::RAW, [only]) => encode_raw(&options, only.value.as_deref().unwrap(), &mut out).unwrap(),
        (BodyEncoding::RECORDS, rows) => builder(rows).finish(&options, &mut out).unwrap(),
        _ => return None,
    };
    out[..9].copy_from_slice(&stamp_base_offset(expected.base_offset));
    Some(out)
}

/// The body as it is stored.
fn body<'a>(bytes: &'a [u8], head: &BatchHead) -> &'a [u8] {
    &bytes[head.head_length..head.head_length + head.body_length]
}

#[test]
fn every_batch() {
    let mut seen = 0;
    for (_, vectors) in reader::files("batches") {
        for vector in vectors {
            let name = vector.name.as_str();
            let bytes = Bytes::copy_from_slice(vector.by("python").unwrap());
            let expected = expected(name);
            let head = inspect(slice::from_ref(&bytes), true).unwrap();
            assert_eq!(head.base_offset, expected.base_offset, "{name}");
            assert_eq!(head.meta.body_encoding, expected.encoding, "{name}");
            assert_eq!(head.meta.compression, expected.compression, "{name}");
            assert_eq!(head.meta.stream_id, StreamId(3), "{name}");
            assert_eq!(head.total_length, bytes.len(), "{name}");
            let writer = expected.writer.unwrap_or_default();
            let stamp = (head.meta.writer_id, head.meta.writer_epoch, head.meta.base_sequence);
            assert_eq!(stamp, (writer.id, writer.epoch, writer.base_sequence), "{name}");
            assert_eq!(head.is_fence(), name == "fence", "{name}");

            let batch = Batch::decode(bytes.clone(), None).unwrap();
            assert_eq!(rows_of(&batch), expected.rows, "{name}");
            if let Some(ours) = written(&head, &expected) {
                let again = inspect(&[ours.clone().freeze()], true).unwrap();
                // An encoder of LZ4 or Zstandard has choices; what is not compressed has none.
                if expected.compression == Compression::NONE {
                    assert_eq!(again.meta, head.meta, "{name}: the heads say the same");
                    assert_eq!(body(&ours, &again), body(&bytes, &head), "{name}: the bodies are equal");
                }
                let read = Batch::decode(ours.freeze(), None).unwrap();
                assert_eq!(rows_of(&read), expected.rows, "{name}");
            } else {
                assert_eq!(name, "list", "everything else is written by us too");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 8, "batches were read");
}

#[test]
fn times_of_the_batch() {
    let files = reader::files("batches");
    let vector = files
        .iter()
        .flat_map(|(_, vectors)| vectors)
        .find(|vector| vector.name == "records");
    let bytes = Bytes::copy_from_slice(vector.unwrap().by("python").unwrap());
    let batch = Batch::decode(bytes, None).unwrap();
    assert_eq!(batch.first_offset_at(TimestampMs(1_000)), Offset(40));
    assert_eq!(batch.first_offset_at(TimestampMs(1_001)), Offset(41));
    assert_eq!(batch.first_offset_at(TimestampMs(3_000)), Offset(42));
}
