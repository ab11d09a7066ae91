//! What the tests share: records as plain data, and ways to build and break batches.

use bytes::{Bytes, BytesMut};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use sbp_record::{Batch, BatchError, Compression, EncodeOptions, RecordsBuilder, encode_raw};
use sbp_types::{Offset, StreamId, TimestampMs};

/// The same cases in every run.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x5b9),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A record as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) time: Option<i64>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Row {
    pub(crate) fn value(bytes: &[u8]) -> Self {
        Self {
            value: Some(bytes.to_vec()),
            ..Self::default()
        }
    }
}

pub(crate) const BASE_MS: i64 = 1_700_000_000_123;

pub(crate) fn options(compression: Compression) -> EncodeOptions {
    EncodeOptions {
        stream_id: StreamId(7),
        timestamp: TimestampMs(BASE_MS),
        compression,
        writer: None,
    }
}

/// Rows as a builder collects them.
pub(crate) fn builder(rows: &[Row]) -> RecordsBuilder {
    let mut builder = RecordsBuilder::new();
    for row in rows {
        let headers: Vec<_> = row
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        builder
            .push(row.value.as_deref(), row.key.as_deref(), row.time, &headers)
            .unwrap();
    }
    builder
}

/// Rows as one batch with a RECORDS body.
pub(crate) fn encode_rows(rows: &[Row], options: &EncodeOptions) -> BytesMut {
    let mut builder = builder(rows);
    let mut out = BytesMut::new();
    let length = builder.finish(options, &mut out).unwrap();
    assert_eq!(length, out.len());
    assert!(builder.is_empty());
    out
}

/// The records of a batch as plain data; every one has a time.
pub(crate) fn rows_of(batch: &Batch) -> Vec<Row> {
    let records = batch.records().unwrap();
    assert_eq!(records.len(), batch.record_count());
    records
        .map(|record| Row {
            time: Some(record.timestamp_us),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)))
                .collect(),
        })
        .collect()
}

/// The rows with the batch's base time where they have none.
pub(crate) fn with_times(rows: &[Row]) -> Vec<Row> {
    rows.iter()
        .cloned()
        .map(|row| Row {
            time: row.time.or(Some(BASE_MS * 1_000)),
            ..row
        })
        .collect()
}

pub(crate) fn stamp(batch: &mut BytesMut, offset: i64) {
    batch[..9].copy_from_slice(&sbp_record::stamp_base_offset(Offset(offset)));
}

/// Uses everything of a batch, as a consumer would.
pub(crate) fn consume(batch: &Batch) -> Result<(), BatchError> {
    let columns = batch.to_record_batch(Offset(0), Offset(i64::MAX))?;
    assert_eq!(columns.num_rows(), batch.record_count());
    for column in columns.columns() {
        column
            .to_data()
            .validate_full()
            .expect("what is handed out is valid Arrow data");
    }
    if !batch.is_typed() {
        let values: Vec<Option<Bytes>> = batch.payloads()?.collect();
        for (record, value) in batch.records()?.zip(values) {
            assert_eq!(record.value, value.as_deref());
            record.headers.for_each(drop);
        }
    }
    Ok(())
}

/// A batch of any body: right lengths and checksum, whatever the body is.
pub(crate) fn wrap(body: &[u8], encoding: i8, count: i32, fingerprint: u64) -> Bytes {
    let mut out = BytesMut::new();
    encode_raw(&options(Compression::NONE), body, &mut out).unwrap();
    // Places of the fields in the head that this crate writes; the table begins at byte 53.
    out[53 + 46] = encoding.to_le_bytes()[0];
    out[53 + 4..53 + 8].copy_from_slice(&(count - 1).to_le_bytes());
    out[53 + 48..53 + 56].copy_from_slice(&fingerprint.to_le_bytes());
    out.freeze()
}

/// CRC-32C bit by bit, written down from the polynomial.
pub(crate) fn slow_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}
