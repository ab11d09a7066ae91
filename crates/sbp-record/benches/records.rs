//! How fast batches are written, inspected, and turned into Arrow columns. Throughput is in records.

#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark stops at the first error, and criterion's macros make items"
)]

use std::hint::black_box;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sbp_record::{
    Batch, ColumnSet, Compression, EncodeOptions, RecordsBuilder, RowAssembler, Source, StreamSchema, encode_arrow,
    encode_raw, inspect, split_batches,
};
use sbp_types::{Offset, StreamId, TimestampMs};

const VALUE: [u8; 100] = [0x5a; 100];
const ROWS: usize = 100_000;

fn options() -> EncodeOptions {
    EncodeOptions {
        stream_id: StreamId(1),
        timestamp: TimestampMs(1_700_000_000_000),
        ..EncodeOptions::default()
    }
}

fn source() -> Source {
    Source {
        name: "flights/UA".into(),
        id: StreamId(1),
    }
}

fn records(rows: usize, out: &mut BytesMut) {
    let mut builder = RecordsBuilder::new();
    for row in 0..rows {
        let time = 1_700_000_000_000_000 + i64::try_from(row).unwrap();
        builder.push(Some(&VALUE), Some(b"key"), Some(time), &[]).unwrap();
    }
    builder.finish(&options(), out).unwrap();
}

/// A FETCH payload of `ROWS` records in batches of `rows`, aligned as the client receives it.
fn payload(rows: usize) -> Bytes {
    let mut out = BytesMut::new();
    for _ in 0..ROWS / rows {
        match rows {
            1 => drop(encode_raw(&options(), &VALUE, &mut out).unwrap()),
            _ => records(rows, &mut out),
        }
    }
    aligned(&out)
}

fn aligned(bytes: &[u8]) -> Bytes {
    let mut buffer = arrow_buffer::MutableBuffer::new(bytes.len());
    buffer.extend_from_slice(bytes);
    Bytes::from(arrow_buffer::Buffer::from(buffer))
}

fn assemble(set: &ColumnSet, payload: &Bytes, schema: Option<&StreamSchema>) -> usize {
    let mut assembler = RowAssembler::new(set.clone());
    let mut rows = 0;
    for batch in split_batches(payload).map(|bytes| Batch::decode(bytes?, schema)) {
        assembler
            .push(&source(), &batch.unwrap(), Offset(0), Offset(i64::MAX))
            .unwrap();
        while let Some(out) = assembler.poll_batch() {
            rows += black_box(out).num_rows();
        }
    }
    assembler.flush().unwrap();
    rows + assembler.poll_batch().map_or(0, |out| out.num_rows())
}

fn to_arrow(c: &mut Criterion) {
    let mut group = c.benchmark_group("to_arrow");
    group.throughput(Throughput::Elements(ROWS as u64)).sample_size(20);
    let set = ColumnSet::records(false);
    for rows in [1, 10, 100, 1_000, 10_000, 50_000] {
        let payload = payload(rows);
        group.bench_with_input(BenchmarkId::new("rows_in_a_batch", rows), &payload, |b, payload| {
            b.iter(|| assert_eq!(assemble(&set, payload, None), ROWS));
        });
    }
    let offsets = ColumnSet::records(false).project(&["offset"]).unwrap();
    let payload = payload(1_000);
    group.bench_function("only_the_offset", |b| b.iter(|| assemble(&offsets, &payload, None)));
    group.finish();
}

fn typed(rows: usize) -> RecordBatch {
    let numbers = 0..i64::try_from(rows).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(numbers.clone()))),
        (
            "price",
            Arc::new(Float64Array::from_iter_values(numbers.clone().map(|n| n as f64))),
        ),
        (
            "name",
            Arc::new(StringArray::from_iter_values(numbers.map(|n| format!("name {n}")))),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn typed_to_arrow(c: &mut Criterion) {
    let mut group = c.benchmark_group("typed_to_arrow");
    group.throughput(Throughput::Elements(ROWS as u64)).sample_size(20);
    for rows in [100, 10_000] {
        let columns = typed(rows);
        let schema = StreamSchema::from_arrow(columns.schema_ref()).unwrap();
        let mut out = BytesMut::new();
        for _ in 0..ROWS / rows {
            encode_arrow(&options(), &schema, &columns, &mut out).unwrap();
        }
        let payload = aligned(&out);
        let set = ColumnSet::arrow(&schema, true).unwrap();
        group.bench_with_input(BenchmarkId::new("rows_in_a_batch", rows), &payload, |b, payload| {
            b.iter(|| assert_eq!(assemble(&set, payload, Some(&schema)), ROWS));
        });
    }
    group.finish();
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(1));
    group.bench_function("raw_100_bytes", |b| {
        let mut out = BytesMut::with_capacity(1 << 16);
        b.iter(|| {
            out.clear();
            encode_raw(&options(), black_box(&VALUE), &mut out)
        });
    });
    group.throughput(Throughput::Elements(1_000));
    for compression in [Compression::NONE, Compression::LZ4, Compression::ZSTD] {
        group.bench_function(BenchmarkId::new("thousand_records", compression), |b| {
            let mut builder = RecordsBuilder::new();
            let mut out = BytesMut::with_capacity(1 << 20);
            b.iter(|| {
                out.clear();
                for _ in 0..1_000 {
                    builder.push(Some(black_box(&VALUE)), None, None, &[]).unwrap();
                }
                builder
                    .finish(
                        &EncodeOptions {
                            compression,
                            ..options()
                        },
                        &mut out,
                    )
                    .unwrap()
            });
        });
    }
    let columns = typed(1_000);
    let schema = StreamSchema::from_arrow(columns.schema_ref()).unwrap();
    group.bench_function("thousand_typed_rows", |b| {
        b.iter_batched_ref(
            BytesMut::new,
            |out| encode_arrow(&options(), &schema, &columns, out).unwrap(),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn server(c: &mut Criterion) {
    let mut group = c.benchmark_group("inspect");
    for (name, rows) in [("one_record", 1), ("thousand_records", 1_000)] {
        let mut out = BytesMut::new();
        match rows {
            1 => drop(encode_raw(&options(), &VALUE, &mut out).unwrap()),
            _ => records(rows, &mut out),
        }
        let chunks = [out.freeze()];
        group.throughput(Throughput::Bytes(chunks[0].len() as u64));
        group.bench_function(name, |b| b.iter(|| inspect(black_box(&chunks), true).unwrap()));
        group.bench_function(format!("{name}_head_only"), |b| {
            b.iter(|| inspect(black_box(&chunks), false).unwrap())
        });
    }
    group.finish();
}

criterion_group!(benches, to_arrow, typed_to_arrow, encode, server);
criterion_main!(benches);
