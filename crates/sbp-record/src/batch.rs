//! A batch that was read and checked, with its records.

use std::ops::Range;

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::Bytes;
use sbp_types::{Offset, TimestampMs};

use crate::checksum::crc32c;
use crate::compress::{MAX_RECORDS, MAX_UNCOMPRESSED_LENGTH, decompress};
use crate::cursor::widen;
use crate::error::BatchError;
use crate::framing::ALIGNMENT;
use crate::head::BatchHead;
use crate::list;
use crate::meta::{BatchMeta, BodyEncoding, Compression};
use crate::positions::Positions;
use crate::records::{RecordsBuilder, RecordsView};
use crate::schema::StreamSchema;
use crate::split::take_batch;
use crate::time::micros;
use crate::typed::TypedView;

/// A checked batch. Records and columns are views of the bytes it was read from, where these are aligned and not
/// compressed; [`Batch::copied_bytes`] tells how much had to be copied.
#[derive(Clone, Debug)]
pub struct Batch {
    head: BatchHead,
    body: Body,
    positions: Positions,
    copied: usize,
}

/// The body, by how it can be read. A RECORD_LIST is converted to records when it is read.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// No records.
    Empty,
    /// One record.
    Raw(Bytes),
    /// Many records. The view's values refer to the memory of `bytes`.
    Records { view: Box<RecordsView>, bytes: Bytes },
    /// Typed columns of a stream with this schema.
    Typed { view: TypedView, schema: StreamSchema },
}

impl Batch {
    /// Reads one whole batch. A batch of typed columns needs the stream's schema.
    ///
    /// # Errors
    /// The bytes are not exactly one batch, its body breaks a rule, or `schema` is missing or is not that of the batch.
    pub fn decode(bytes: Bytes, schema: Option<&StreamSchema>) -> Result<Self, BatchError> {
        let mut rest = bytes;
        let (head, batch) = take_batch(&mut rest)?;
        if !rest.is_empty() {
            return Err(BatchError::Padding {
                length: widen(rest.len()),
            });
        }
        Self::from_parts(head, &batch, schema)
    }

    fn from_parts(head: BatchHead, batch: &Bytes, schema: Option<&StreamSchema>) -> Result<Self, BatchError> {
        if head.base_offset.0 < 0 || head.end_offset().is_none() {
            return Err(BatchError::value("base offset", head.base_offset.0));
        }
        let positions = Positions::dense(head.base_offset);
        if head.record_count == 0 {
            return Ok(Self {
                head,
                body: Body::Empty,
                positions,
                copied: 0,
            });
        }
        let end = head.head_length.saturating_add(head.body_length);
        let stored = batch.slice(head.head_length.min(batch.len())..end.min(batch.len()));
        if let Some(expected) = head.meta.body_crc32c {
            let actual = crc32c(&stored);
            if actual != expected {
                return Err(BatchError::Checksum { expected, actual });
            }
        }
        let mut copied = 0;
        let plain = uncompressed(&head, stored, &mut copied)?;
        check_count(&head, plain.len())?;
        let body = read_body(&head, plain, schema, &mut copied)?;
        Ok(Self {
            head,
            body,
            positions,
            copied,
        })
    }

    /// The records of a builder as a batch that was never encoded, at these offsets; the builder has none then. They stay
    /// where the builder has copied them to. `time` is that of records without one of their own.
    ///
    /// # Errors
    /// There are no records, or another number of them than of offsets, or a header's name is not UTF-8.
    pub fn from_builder(
        builder: &mut RecordsBuilder,
        positions: Positions,
        time: TimestampMs,
    ) -> Result<Self, BatchError> {
        let (rows, length) = (builder.len(), builder.body_length());
        let count = i32::try_from(rows).ok().filter(|count| *count > 0);
        let Some(count) = count.filter(|_| positions.fits(rows)) else {
            return Err(BatchError::value(
                "record count",
                i64::try_from(rows).unwrap_or(i64::MAX),
            ));
        };
        let meta = BatchMeta {
            last_offset_delta: count - 1,
            base_timestamp: time,
            max_timestamp: time,
            body_encoding: BodyEncoding::RECORDS,
            ..BatchMeta::default()
        };
        let head = BatchHead {
            base_offset: positions.first(),
            meta,
            head_length: 0,
            body_length: length,
            total_length: length,
            record_count: i64::from(count),
        };
        Ok(Self {
            head,
            body: collected_body(builder, time)?,
            positions,
            copied: length,
        })
    }

    /// The head of the batch.
    #[must_use]
    pub fn head(&self) -> &BatchHead {
        &self.head
    }

    /// Offset of the first record.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.positions.first()
    }

    /// One past the offset of the last record.
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        match self.record_count().checked_sub(1) {
            Some(last) => Offset(self.positions.at(last).0.saturating_add(1)),
            None => self.base_offset(),
        }
    }

    /// The offset of a row; [`Offset`] of `i64::MAX` where there is no such row in a batch with gaps.
    #[must_use]
    pub fn offset_of(&self, row: usize) -> Offset {
        self.positions.at(row)
    }

    /// The offsets of the records.
    pub(crate) fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Number of records.
    #[must_use]
    pub fn record_count(&self) -> usize {
        usize::try_from(self.head.record_count).unwrap_or_default()
    }

    /// Whether the batch has typed columns instead of records.
    #[must_use]
    pub fn is_typed(&self) -> bool {
        matches!(self.body, Body::Typed { .. })
    }

    /// Bytes copied while reading: decompressed, or moved because they were not aligned. 0 for a body that is used in
    /// place.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        self.copied
    }

    /// The offset of the first record whose time is `time` or later; [`Batch::end_offset`] when there is none.
    ///
    /// Rows of typed columns all have the time of the batch.
    #[must_use]
    pub fn first_offset_at(&self, time: TimestampMs) -> Offset {
        let wanted = micros(time);
        let row = match &self.body {
            Body::Records { view, .. } => match &view.timestamps {
                Some(times) => times.iter().position(|&at| at >= wanted),
                None => (self.base_micros() >= wanted).then_some(0),
            },
            _ => (self.base_micros() >= wanted).then_some(0),
        };
        row.map_or_else(|| self.end_offset(), |row| self.positions.at(row))
    }

    /// The rows of the batch whose offsets lie in [from, to).
    #[must_use]
    pub fn rows_between(&self, from: Offset, to: Offset) -> Range<usize> {
        self.positions.between(self.record_count(), from, to)
    }

    /// The offsets of the records in [from, to), if they follow each other without a gap.
    #[must_use]
    pub fn run_between(&self, from: Offset, to: Offset) -> Option<Range<i64>> {
        self.positions.run(&self.rows_between(from, to))
    }

    /// The offsets of the records in [from, to).
    #[must_use]
    pub fn offsets_between(&self, from: Offset, to: Offset) -> Vec<i64> {
        self.positions.column(&self.rows_between(from, to)).to_vec()
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// The time, in microseconds, of records without a time of their own.
    pub(crate) fn base_micros(&self) -> i64 {
        micros(self.head.meta.base_timestamp)
    }
}

pub(crate) const TYPED: BatchError = BatchError::TypedColumns("the batch has typed columns; read it as Arrow data");

/// How many records a body without any bytes may have: all their fields are null.
const FREE_RECORDS: usize = 64 * 1024;

/// Refuses a record count that is too large for the body, so that a few bytes cannot cause columns of gigabytes.
///
/// The smallest record takes one bit of a column. Bodies without even that are limited by a constant.
fn check_count(head: &BatchHead, body: usize) -> Result<(), BatchError> {
    let limit = body.saturating_mul(8).saturating_add(FREE_RECORDS).min(MAX_RECORDS);
    match usize::try_from(head.record_count) {
        Ok(count) if count <= limit => Ok(()),
        _ => Err(BatchError::value("record count", head.record_count)),
    }
}

/// The decompressed body.
fn uncompressed(head: &BatchHead, stored: Bytes, copied: &mut usize) -> Result<Bytes, BatchError> {
    let meta = &head.meta;
    let told = usize::try_from(meta.uncompressed_length)
        .ok()
        .filter(|&length| length <= MAX_UNCOMPRESSED_LENGTH);
    let told = told.ok_or(BatchError::value("uncompressed length", meta.uncompressed_length))?;
    if meta.compression != Compression::NONE {
        let plain = decompress(&stored, meta.compression, told)?;
        *copied = copied.saturating_add(plain.len());
        return Ok(Bytes::from(Buffer::from(plain)));
    }
    if told != 0 && told != stored.len() {
        return Err(BatchError::value("uncompressed length", meta.uncompressed_length));
    }
    Ok(stored)
}

fn read_body(
    head: &BatchHead,
    plain: Bytes,
    schema: Option<&StreamSchema>,
    copied: &mut usize,
) -> Result<Body, BatchError> {
    let rows = usize::try_from(head.record_count).unwrap_or_default();
    match head.meta.body_encoding {
        BodyEncoding::RAW => Ok(Body::Raw(plain)),
        BodyEncoding::RECORDS => records_body(aligned(plain, copied), rows),
        BodyEncoding::RECORD_LIST => read_list(head, &plain, copied),
        BodyEncoding::ARROW => {
            let fingerprint = head.meta.schema_fingerprint;
            let schema = schema.ok_or(BatchError::SchemaNeeded {
                fingerprint,
                given: "and none was given",
            })?;
            let columns = schema
                .prefix_with_fingerprint(fingerprint)
                .ok_or(BatchError::SchemaNeeded {
                    fingerprint,
                    given: "and another was given",
                })?;
            let bytes = aligned(plain, copied);
            let view = TypedView::parse(&Buffer::from(bytes), rows, schema, columns)?;
            Ok(Body::Typed {
                view,
                schema: schema.clone(),
            })
        }
        BodyEncoding(value) => Err(BatchError::Unsupported {
            what: "body encoding",
            value,
        }),
    }
}

/// Returns the bytes if they are aligned to 16, else an aligned copy.
fn aligned(bytes: Bytes, copied: &mut usize) -> Bytes {
    if bytes.as_ptr().align_offset(ALIGNMENT) == 0 {
        return bytes;
    }
    *copied = copied.saturating_add(bytes.len());
    let mut buffer = MutableBuffer::with_capacity(bytes.len());
    buffer.extend_from_slice(&bytes);
    Bytes::from(Buffer::from(buffer))
}

fn records_body(bytes: Bytes, rows: usize) -> Result<Body, BatchError> {
    let view = RecordsView::parse(&Buffer::from(bytes.clone()), rows)?;
    Ok(Body::Records {
        view: Box::new(view),
        bytes,
    })
}

/// Converts a record list to RECORDS, so that one kind of view serves both.
fn read_list(head: &BatchHead, plain: &Bytes, copied: &mut usize) -> Result<Body, BatchError> {
    let mut builder = RecordsBuilder::new();
    for record in list::records(plain, head.record_count)? {
        let time = head
            .meta
            .base_timestamp
            .0
            .saturating_add(record.meta.timestamp_delta.into());
        let headers: Vec<_> = record
            .meta
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref().map(String::as_bytes)))
            .collect();
        builder
            .push(Some(&record.body), None, Some(micros(TimestampMs(time))), &headers)
            .map_err(|error| BatchError::body(error.to_string()))?;
    }
    *copied = copied.saturating_add(builder.body_length());
    collected_body(&mut builder, TimestampMs(0))
}

/// The records of a builder, where it has them.
fn collected_body(builder: &mut RecordsBuilder, time: TimestampMs) -> Result<Body, BatchError> {
    let view = Box::new(builder.take_view(micros(time))?);
    let bytes = view.value.as_ref().map(|value| Bytes::from(value.values().clone()));
    Ok(Body::Records {
        view,
        bytes: bytes.unwrap_or_default(),
    })
}
