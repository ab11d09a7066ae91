//! The records of a batch, one by one.

use std::ops::Range;

use arrow_array::Array;
use bytes::Bytes;
use sbp_types::Offset;

use crate::batch::{Batch, Body, TYPED};
use crate::error::BatchError;
use crate::offsets::item;
use crate::records::HeadersColumn;

impl Batch {
    /// The records, in order.
    ///
    /// # Errors
    /// The batch has typed columns.
    pub fn records(&self) -> Result<Records<'_>, BatchError> {
        match self.body() {
            Body::Typed { .. } => Err(TYPED),
            _ => Ok(Records {
                batch: self,
                rows: 0..self.record_count(),
            }),
        }
    }

    /// The values of the records, in order; `None` for null ones. They share the batch's memory.
    ///
    /// # Errors
    /// The batch has typed columns.
    pub fn payloads(&self) -> Result<Payloads<'_>, BatchError> {
        self.records().map(Payloads)
    }
}

impl Batch {
    /// The values of the records as they lie behind each other, if each record has one: batches of records without null values, which
    /// are neither [raw](crate::BodyEncoding::RAW) nor empty.
    #[must_use]
    pub fn values(&self) -> Option<Values<'_>> {
        let Body::Records { view, .. } = self.body() else {
            return None;
        };
        let column = view.value.as_ref().filter(|column| column.null_count() == 0)?;
        Some(Values {
            ends: column.value_offsets(),
            data: column.value_data(),
        })
    }

    /// All headers of the records, in their order, each with the row of its record.
    pub fn headers(&self) -> impl Iterator<Item = (usize, &str, Option<&[u8]>)> {
        let column = match self.body() {
            Body::Records { view, .. } => view.headers.as_ref(),
            _ => None,
        };
        column.into_iter().flat_map(|column| {
            let all = Headers {
                column: Some(column),
                items: 0..column.key.len(),
            };
            // Behind the list's begin of a record lie its headers, so it is the last one that begins at the header or in front of it.
            let row = |place: usize| {
                column
                    .list
                    .partition_point(|&begin| usize::try_from(begin).is_ok_and(|begin| begin <= place))
            };
            all.enumerate()
                .map(move |(place, (name, value))| (row(place).saturating_sub(1), name, value))
        })
    }
}

/// The values of a batch, none of which is null.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// Where each begins, and where the last one ends.
    ends: &'a [i32],
    data: &'a [u8],
}

impl<'a> Values<'a> {
    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len().saturating_sub(1)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all of them together.
    #[must_use]
    pub fn byte_length(&self) -> usize {
        let at = |place: Option<&i32>| place.and_then(|&at| usize::try_from(at).ok()).unwrap_or(0);
        at(self.ends.last()).saturating_sub(at(self.ends.first()))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let data = self.data;
        let ends = self.ends.iter().zip(self.ends.iter().skip(1));
        ends.map(move |(&from, &to)| {
            let at = |place: i32| usize::try_from(place).unwrap_or(0);
            data.get(at(from)..at(to)).unwrap_or_default()
        })
    }
}

/// One record. It borrows from its batch.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Its offset in the stream.
    pub offset: Offset,
    /// Microseconds since 1970-01-01T00:00:00Z.
    pub timestamp_us: i64,
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// The value, unless it is null.
    pub value: Option<&'a [u8]>,
    /// Its headers, in the writer's order.
    pub headers: Headers<'a>,
}

/// Iterator of [`Batch::records`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    batch: &'a Batch,
    rows: Range<usize>,
}

impl<'a> Records<'a> {
    /// Only the records whose offsets lie in [from, to).
    #[must_use]
    pub fn between(mut self, from: Offset, to: Offset) -> Self {
        let wanted = self.batch.rows_between(from, to);
        self.rows = self.rows.start.max(wanted.start)..self.rows.end.min(wanted.end);
        self
    }

    fn record(&self, row: usize) -> Record<'a> {
        let batch = self.batch;
        let mut record = Record {
            offset: batch.positions().at(row),
            timestamp_us: batch.base_micros(),
            key: None,
            value: None,
            headers: Headers {
                column: None,
                items: 0..0,
            },
        };
        match batch.body() {
            Body::Empty | Body::Typed { .. } => {}
            Body::Raw(bytes) => record.value = Some(bytes),
            Body::Records { view, .. } => {
                record.key = view.key.as_ref().and_then(|column| item(column, row));
                record.value = view.value.as_ref().and_then(|column| item(column, row));
                if let Some(&time) = view.timestamps.as_ref().and_then(|times| times.get(row)) {
                    record.timestamp_us = time;
                }
                if let Some(column) = &view.headers {
                    record.headers = Headers {
                        column: Some(column),
                        items: column.items(row),
                    };
                }
            }
        }
        record
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let row = self.rows.next()?;
        Some(self.record(row))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl ExactSizeIterator for Records<'_> {}

/// The headers of a record: (name, value), the value `None` when it is null.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    column: Option<&'a HeadersColumn>,
    items: Range<usize>,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let column = self.column?;
        let place = self.items.next().filter(|place| *place < column.key.len())?;
        let value = column.value.as_ref().and_then(|values| item(values, place));
        Some((column.key.value(place), value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

/// Iterator of [`Batch::payloads`].
#[derive(Clone, Debug)]
pub struct Payloads<'a>(Records<'a>);

impl Payloads<'_> {
    /// Only the payloads whose offsets lie in [from, to).
    #[must_use]
    pub fn between(self, from: Offset, to: Offset) -> Self {
        Self(self.0.between(from, to))
    }
}

impl Iterator for Payloads<'_> {
    type Item = Option<Bytes>;

    fn next(&mut self) -> Option<Option<Bytes>> {
        let row = self.0.rows.next()?;
        Some(match self.0.batch.body() {
            Body::Empty | Body::Typed { .. } => None,
            Body::Raw(bytes) => Some(bytes.clone()),
            // `slice_ref` returns the slice of the body that has this memory.
            Body::Records { view, bytes } => {
                let value = view.value.as_ref().and_then(|column| item(column, row));
                value.map(|value| bytes.slice_ref(value))
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Payloads<'_> {}
