//! Collects records into a RECORDS batch.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, StringArray};
use arrow_buffer::{ScalarBuffer, ToByteSlice};
use bytes::{BufMut, BytesMut};
use sbp_types::TimestampMs;

use super::column::{ColumnBuilder, to_offset};
use super::columns::RecordColumns;
use super::layout::{BUFFER_ALIGNMENT, INDEX_LENGTH, SLOTS, Slot, bitmap_length};
use super::view::{HeadersColumn, RecordsView};
use crate::compress::MAX_UNCOMPRESSED_LENGTH;
use crate::cursor::widen;
use crate::encode::{EncodeOptions, body_length, write_batch};
use crate::error::{BatchError, EncodeError};
use crate::fitting::largest_fitting;
use crate::meta::{BatchMeta, BodyEncoding, Compression};
use crate::offsets::{checked_offsets, item};
use crate::time::micros;

/// Collects records and writes them as one batch with a RECORDS body. Its memory is reused for the next batch.
///
/// Records are copied once, into the columns they have on the wire.
#[derive(Clone, Debug, Default)]
pub struct RecordsBuilder {
    rows: usize,
    /// Empty while no record has a time.
    timestamps: Vec<Option<i64>>,
    key: ColumnBuilder,
    value: ColumnBuilder,
    /// The number of headers before each record; empty while no record has headers.
    header_list: Vec<i32>,
    header_key: ColumnBuilder,
    header_value: ColumnBuilder,
}

impl RecordsBuilder {
    /// A builder without records.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one record. `timestamp_us` is in microseconds since the epoch; `None`: the time in the options.
    ///
    /// # Errors
    /// A column would exceed 2 GiB; the builder is unchanged then.
    pub fn push(
        &mut self,
        value: Option<&[u8]>,
        key: Option<&[u8]>,
        timestamp_us: Option<i64>,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<(), EncodeError> {
        let added = headers
            .iter()
            .fold(widen(value.map_or(0, <[u8]>::len)), |sum, (name, value)| {
                sum.saturating_add(widen(name.len()))
                    .saturating_add(widen(value.map_or(0, <[u8]>::len)))
            });
        let length = added
            .saturating_add(widen(key.map_or(0, <[u8]>::len)))
            .saturating_add(widen(self.body_length()));
        let limit = widen(MAX_UNCOMPRESSED_LENGTH);
        if length > limit {
            return Err(EncodeError::TooLarge { length, limit });
        }
        if timestamp_us.is_some() && self.timestamps.is_empty() {
            self.timestamps.resize(self.rows, None);
        }
        if timestamp_us.is_some() || !self.timestamps.is_empty() {
            self.timestamps.push(timestamp_us);
        }
        self.key.push(key);
        self.value.push(value);
        self.push_headers(headers);
        self.rows += 1;
        Ok(())
    }

    /// Adds as many of the first `rows` as fit until the body has `max_bytes`, and returns their number.
    ///
    /// An empty builder takes at least one row, so a loop that finishes the batch and goes on always ends. Rows without
    /// headers are copied column by column.
    ///
    /// # Errors
    ///
    /// A single row is larger than a body may be. Nothing was added then.
    pub fn push_rows(
        &mut self,
        columns: &RecordColumns,
        rows: Range<usize>,
        max_bytes: usize,
    ) -> Result<usize, EncodeError> {
        let rows = rows.start.min(columns.len())..rows.end.min(columns.len());
        if rows.is_empty() {
            return Ok(0);
        }
        if columns.has_headers() {
            return self.push_rows_with_headers(columns, rows, max_bytes);
        }
        let count = self.fitting(columns, &rows, max_bytes);
        let taken = rows.start..rows.start + count;
        match count {
            0 => return Ok(0),
            1 => {
                let time = columns.time(taken.start);
                let key = columns.key.as_ref().and_then(|key| item(key, taken.start));
                self.push(item(&columns.value, taken.start), key, time, &[])?;
            }
            _ => {
                self.extend_times(columns, &taken);
                match &columns.key {
                    Some(key) => self.key.extend(key, &taken),
                    None => self.key.extend_nulls(count),
                }
                self.value.extend(&columns.value, &taken);
                if let Some(&end) = self.header_list.last() {
                    self.header_list.resize(self.header_list.len() + count, end);
                }
                self.rows += count;
            }
        }
        Ok(count)
    }

    /// How many of the first `rows` fit. The length of the body grows with each.
    fn fitting(&self, columns: &RecordColumns, rows: &Range<usize>, max_bytes: usize) -> usize {
        let limit = max_bytes.min(MAX_UNCOMPRESSED_LENGTH);
        let have = self.body_length();
        let offsets = if columns.key.is_some() { 8 } else { 4 };
        let time = if columns.timestamp.is_some() || !self.timestamps.is_empty() {
            8
        } else {
            0
        };
        let fits = |count: usize| {
            let bytes = columns.byte_length(&(rows.start..rows.start + count));
            let fixed = count
                .saturating_mul(offsets + time)
                .saturating_add(2 * bitmap_length(count));
            have.saturating_add(bytes).saturating_add(fixed) <= limit
        };
        largest_fitting(usize::from(self.is_empty()), rows.len(), fits)
    }

    fn extend_times(&mut self, columns: &RecordColumns, rows: &Range<usize>) {
        let any = columns
            .timestamp
            .as_ref()
            .is_some_and(|times| times.null_count() < times.len());
        if !any && self.timestamps.is_empty() {
            return;
        }
        self.timestamps.resize(self.rows, None);
        self.timestamps.extend(rows.clone().map(|row| columns.time(row)));
    }

    fn push_rows_with_headers(
        &mut self,
        columns: &RecordColumns,
        rows: Range<usize>,
        max_bytes: usize,
    ) -> Result<usize, EncodeError> {
        let mut taken = 0;
        for row in rows {
            if !self.is_empty() && self.body_length() >= max_bytes {
                break;
            }
            let items = columns
                .headers
                .as_ref()
                .filter(|lists| lists.is_valid(row))
                .map(|lists| lists.value(row));
            let items = items.as_ref().map(|items| items.as_struct());
            let mut headers: Vec<(&str, Option<&[u8]>)> = items.map_or_else(Vec::new, |items| {
                let names = items.column(0).as_string::<i32>().iter();
                let values = items.column(1).as_binary::<i32>().iter();
                names
                    .zip(values)
                    .map(|(name, value)| (name.unwrap_or_default(), value))
                    .collect()
            });
            let own = headers.len();
            for (name, value) in columns.shared.iter() {
                if !headers.iter().take(own).any(|(other, _)| *other == &**name) {
                    headers.push((name, value.as_deref()));
                }
            }
            let key = columns.key.as_ref().and_then(|key| item(key, row));
            self.push(item(&columns.value, row), key, columns.time(row), &headers)?;
            taken += 1;
        }
        Ok(taken)
    }

    fn push_headers(&mut self, headers: &[(&str, Option<&[u8]>)]) {
        if headers.is_empty() && self.header_list.is_empty() {
            return;
        }
        if self.header_list.is_empty() {
            self.header_list.resize(self.rows + 1, 0);
        }
        for (name, value) in headers {
            self.header_key.push(Some(name.as_bytes()));
            self.header_value.push(*value);
        }
        self.header_list.push(to_offset(self.header_key.rows));
    }

    /// The number of records so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The most bytes that the body can have before compression. A writer finishes the batch before this reaches its
    /// limit.
    #[must_use]
    pub fn body_length(&self) -> usize {
        let times = if self.timestamps.is_empty() { 0 } else { self.rows * 8 };
        INDEX_LENGTH
            + times
            + self.key.encoded_length()
            + self.value.encoded_length()
            + self.header_list.len() * 4
            + self.header_key.encoded_length()
            + self.header_value.encoded_length()
            + SLOTS * BUFFER_ALIGNMENT
    }

    /// Removes the records and keeps the memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.timestamps.clear();
        self.header_list.clear();
        for column in [
            &mut self.key,
            &mut self.value,
            &mut self.header_key,
            &mut self.header_value,
        ] {
            column.clear();
        }
    }

    /// Appends the records to `out` as one batch and removes them; returns the batch's length in bytes.
    ///
    /// # Errors
    ///
    /// There are no records, or the batch would be too large for a server. The records are kept then.
    pub fn finish(&mut self, options: &EncodeOptions, out: &mut BytesMut) -> Result<usize, EncodeError> {
        if self.rows == 0 {
            return Err(EncodeError::NoRecords);
        }
        let mut meta = options.meta(BodyEncoding::RECORDS, self.rows)?;
        let timestamps = self.filled_timestamps(micros(options.timestamp));
        if let Some(&latest) = timestamps.iter().max() {
            meta.max_timestamp = TimestampMs(latest.div_euclid(1_000));
        }
        let expected = self.body_length();
        let length = write_batch(meta, options.compression, out, expected, |out| {
            self.write_body(&timestamps, out);
            Ok(())
        })?;
        self.clear();
        Ok(length)
    }

    /// Takes the records out, with the memory that they lie in. `default_us`: the time of those without one.
    pub(crate) fn take_view(&mut self, default_us: i64) -> Result<RecordsView, BatchError> {
        let timestamps = self.filled_timestamps(default_us);
        let headers = match checked_offsets(ScalarBuffer::from(std::mem::take(&mut self.header_list))) {
            None => None,
            Some(list) => {
                let names = self.header_key.take()?.unwrap_or_else(|| BinaryArray::new_null(0));
                Some(HeadersColumn {
                    list,
                    key: StringArray::try_from_binary(names)?,
                    value: self.header_value.take()?,
                })
            }
        };
        let view = RecordsView {
            timestamps: (!timestamps.is_empty()).then(|| timestamps.into()),
            key: self.key.take()?,
            value: self.value.take()?,
            headers,
        };
        self.clear();
        Ok(view)
    }

    fn filled_timestamps(&self, default: i64) -> Vec<i64> {
        self.timestamps.iter().map(|time| time.unwrap_or(default)).collect()
    }

    fn write_body(&self, timestamps: &[i64], out: &mut BytesMut) {
        let [key_validity, key_offsets, key_data] = self.key.buffers();
        let [validity, offsets, data] = self.value.buffers();
        let [_, name_offsets, name_data] = self.header_key.buffers();
        let [header_validity, header_offsets, header_data] = self.header_value.buffers();
        let buffers: [&[u8]; SLOTS] = [
            timestamps.to_byte_slice(),
            key_validity,
            key_offsets,
            key_data,
            validity,
            offsets,
            data,
            self.header_list.to_byte_slice(),
            name_offsets,
            name_data,
            header_validity,
            header_offsets,
            header_data,
        ];
        write_pieces(self.rows, &buffers.each_ref().map(std::slice::from_ref), out);
    }
}

/// The pieces of each buffer of a body, in the order of the index.
pub(super) type Pieces<'a> = [&'a [&'a [u8]]; SLOTS];

/// Sets the pieces of a buffer.
pub(super) fn put<'a>(pieces: &mut Pieces<'a>, slot: Slot, buffer: &'a [&'a [u8]]) {
    if let Some(place) = pieces.get_mut(slot as usize) {
        *place = buffer;
    }
}

fn length_of(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// Appends the index and the buffers of a body of `rows` records to `out`.
fn write_pieces(rows: usize, pieces: &Pieces<'_>, out: &mut BytesMut) {
    let lengths = pieces.map(length_of);
    write_index(rows, &lengths, out);
    let mut padding = 0;
    for (pieces, length) in pieces.iter().zip(lengths).filter(|(_, length)| *length > 0) {
        out.put_bytes(0, padding);
        for piece in *pieces {
            out.extend_from_slice(piece);
        }
        padding = length.next_multiple_of(BUFFER_ALIGNMENT) - length;
    }
}

/// Appends a batch of `rows` records with these pieces to `out`; returns its length in bytes.
pub(super) fn write_records(
    meta: BatchMeta,
    compression: Compression,
    rows: usize,
    pieces: &Pieces<'_>,
    out: &mut BytesMut,
) -> Result<usize, EncodeError> {
    let buffers = pieces.iter().map(|pieces| length_of(pieces));
    let most = buffers.fold(INDEX_LENGTH + SLOTS * BUFFER_ALIGNMENT, usize::saturating_add);
    body_length(most, MAX_UNCOMPRESSED_LENGTH)?;
    write_batch(meta, compression, out, most, |out| {
        write_pieces(rows, pieces, out);
        Ok(())
    })
}

fn write_index(rows: usize, lengths: &[usize; SLOTS], out: &mut BytesMut) {
    out.put_u32_le(narrow(rows));
    out.put_u32_le(0);
    let mut place = INDEX_LENGTH;
    for &length in lengths {
        // The position of an absent buffer is 0, which is a multiple of 16 and within every body.
        out.put_u32_le(if length == 0 { 0 } else { narrow(place) });
        out.put_u32_le(narrow(length));
        place += length.next_multiple_of(BUFFER_ALIGNMENT);
    }
}

/// Converts a length in a body. It fits, because the builder does not grow beyond 64 MiB.
fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
