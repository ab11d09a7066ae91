//! Encodes rows of Arrow columns without collecting them first.

use std::borrow::Cow;
use std::ops::Range;

use arrow_array::{Array, BinaryArray};
use arrow_buffer::ToByteSlice;
use bytes::BytesMut;
use sbp_types::TimestampMs;
use smallvec::SmallVec;

use super::builder::{Pieces, put, write_records};
use super::column::to_offset;
use super::columns::RecordColumns;
use super::layout::Slot;
use crate::compress::MAX_UNCOMPRESSED_LENGTH;
use crate::encode::{EncodeOptions, body_length};
use crate::error::EncodeError;
use crate::meta::{BatchMeta, BodyEncoding, Compression};
use crate::offsets::{all_valid, span};

/// Rows of columns, in the order in which they are stored. No range is empty or exceeds its columns.
type Parts<'a> = SmallVec<[(&'a RecordColumns, Range<usize>); 1]>;

/// Appends to `out` one batch of the rows of several columns; returns its length in bytes, padding included. `None` if
/// a [`RecordsBuilder`](crate::RecordsBuilder) has to collect the rows: rows with nulls or headers, or if only some of
/// the columns have keys or times. The bytes are those that a builder writes, and are copied once.
///
/// # Errors
/// There are no rows, or the batch would be too large for a server.
pub fn encode_rows(
    options: &EncodeOptions,
    rows: &[(&RecordColumns, Range<usize>)],
    out: &mut BytesMut,
) -> Result<Option<usize>, EncodeError> {
    let parts: Parts<'_> = rows
        .iter()
        .map(|(columns, rows)| (*columns, rows.start.min(columns.len())..rows.end.min(columns.len())))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let count = parts.iter().map(|(_, rows)| rows.len()).sum();
    if count == 0 {
        return Err(EncodeError::NoRecords);
    }
    let Some(direct) = Direct::of(&parts) else {
        return Ok(None);
    };
    let mut meta = options.meta(BodyEncoding::RECORDS, count)?;
    if let Some(latest) = direct.times.iter().flat_map(|times| times.iter()).max() {
        meta.max_timestamp = TimestampMs(latest.div_euclid(1_000));
    }
    let length = direct.write(meta, options.compression, count, out)?;
    Ok(Some(length))
}

/// Rows that can be copied as they are: every row has a value, and either all have a key and a time or none has.
struct Direct<'a> {
    times: SmallVec<[&'a [i64]; 1]>,
    keys: Column<'a>,
    values: Column<'a>,
}

/// Rows of a column of byte strings, without nulls.
type Column<'a> = SmallVec<[(&'a BinaryArray, Range<usize>); 1]>;

impl<'a> Direct<'a> {
    fn of(parts: &Parts<'a>) -> Option<Self> {
        let mut direct = Self {
            times: SmallVec::new(),
            keys: SmallVec::new(),
            values: SmallVec::new(),
        };
        for (columns, rows) in parts {
            if columns.has_headers() || !all_valid(&columns.value, rows) {
                return None;
            }
            direct.values.push((&columns.value, rows.clone()));
            if let Some(keys) = &columns.key {
                if !all_valid(keys, rows) {
                    return None;
                }
                direct.keys.push((keys, rows.clone()));
            }
            if let Some(times) = columns
                .timestamp
                .as_ref()
                .filter(|times| times.null_count() < times.len())
            {
                if times.null_count() > 0 {
                    return None;
                }
                direct.times.push(times.values().get(rows.clone())?);
            }
        }
        let is_whole = |have: usize| have == 0 || have == parts.len();
        (is_whole(direct.keys.len()) && is_whole(direct.times.len())).then_some(direct)
    }

    fn write(
        &self,
        meta: BatchMeta,
        compression: Compression,
        rows: usize,
        out: &mut BytesMut,
    ) -> Result<usize, EncodeError> {
        // Checked before the offsets are computed, which cannot exceed 2 GiB.
        let data = length_of(&self.keys).saturating_add(length_of(&self.values));
        body_length(data, MAX_UNCOMPRESSED_LENGTH)?;
        let (key_offsets, value_offsets) = (offsets_of(&self.keys), offsets_of(&self.values));
        let (key_offsets, value_offsets) = ([key_offsets.to_byte_slice()], [value_offsets.to_byte_slice()]);
        let (keys, values) = (data_of(&self.keys), data_of(&self.values));
        let times: SmallVec<[&[u8]; 1]> = self.times.iter().map(|times| times.to_byte_slice()).collect();
        let mut pieces = Pieces::default();
        put(&mut pieces, Slot::Timestamp, &times);
        put(&mut pieces, Slot::KeyOffsets, &key_offsets);
        put(&mut pieces, Slot::KeyData, &keys);
        put(&mut pieces, Slot::ValueOffsets, &value_offsets);
        put(&mut pieces, Slot::ValueData, &values);
        write_records(meta, compression, rows, &pieces, out)
    }
}

fn length_of(column: &Column<'_>) -> usize {
    column.iter().map(|(source, rows)| span(source, rows).len()).sum()
}

fn data_of<'a>(column: &Column<'a>) -> SmallVec<[&'a [u8]; 1]> {
    let data = |(source, rows): &(&'a BinaryArray, Range<usize>)| source.value_data().get(span(source, rows));
    column.iter().filter_map(data).collect()
}

/// The offsets of the rows beginning at 0: the column's own if they do.
fn offsets_of<'a>(column: &Column<'a>) -> Cow<'a, [i32]> {
    let ends = |(source, rows): &(&'a BinaryArray, Range<usize>)| source.value_offsets().get(rows.start..=rows.end);
    if let [only] = column.as_slice()
        && let Some(ends) = ends(only)
        && ends.first() == Some(&0)
    {
        return Cow::Borrowed(ends);
    }
    let rows: usize = column.iter().map(|(_, rows)| rows.len()).sum();
    let mut made = Vec::new();
    if rows > 0 {
        made.reserve_exact(rows + 1);
        made.push(0);
    }
    let mut base = 0;
    for part in column {
        let shift = to_offset(base) - to_offset(span(part.0, &part.1).start);
        made.extend(ends(part).unwrap_or_default().iter().skip(1).map(|end| end + shift));
        base += span(part.0, &part.1).len();
    }
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use arrow_array::types::TimestampMicrosecondType;
    use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};
    use bytes::BytesMut;
    use sbp_types::TimestampMs;

    use super::encode_rows;
    use crate::{Compression, EncodeError, EncodeOptions, RecordColumns, RecordsBuilder};

    fn values(rows: Range<usize>) -> ArrayRef {
        Arc::new(BinaryArray::from_iter_values(rows.map(|row| vec![7; row * 5 % 23])))
    }

    fn keys(rows: Range<usize>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.map(|row| format!("key {row}"))))
    }

    fn times(rows: Range<usize>) -> ArrayRef {
        let times = rows.map(|row| i64::try_from(row).unwrap() * 1_001 - 5_000);
        Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_iter_values(times).with_timezone("UTC"))
    }

    /// The batch that is written directly, and the one that a builder makes.
    fn both(parts: &[(&RecordColumns, Range<usize>)], compression: Compression) -> (Option<BytesMut>, BytesMut) {
        let options = EncodeOptions {
            timestamp: TimestampMs(77),
            compression,
            ..EncodeOptions::default()
        };
        let mut builder = RecordsBuilder::new();
        for (columns, rows) in parts {
            builder.push_rows(columns, rows.clone(), usize::MAX).unwrap();
        }
        let (mut collected, mut direct) = (BytesMut::new(), BytesMut::from(&b"before"[..]));
        builder.finish(&options, &mut collected).unwrap();
        let written = encode_rows(&options, parts, &mut direct).unwrap();
        let direct = direct.split_off(6);
        assert_eq!(written.unwrap_or_default(), direct.len());
        (written.map(|_| direct), collected)
    }

    #[test]
    fn the_bytes_are_those_of_the_builder() {
        let plain = RecordColumns::new(&values(0..100), None, None, None).unwrap();
        let other = RecordColumns::new(&values(3..8).slice(1, 4), None, None, None).unwrap();
        let empty = RecordColumns::new(&values(0..1), None, None, None).unwrap();
        let full = |rows: Range<usize>| {
            RecordColumns::new(
                &values(rows.clone()),
                Some(&keys(rows.clone())),
                Some(&times(rows)),
                None,
            )
            .unwrap()
        };
        let (full, more) = (full(0..50), full(50..60));
        let cases: [&[(&RecordColumns, Range<usize>)]; 8] = [
            &[(&plain, 0..100)],
            &[(&plain, 17..19)],
            &[(&plain, 0..100), (&other, 0..4), (&plain, 99..200)],
            &[(&empty, 0..1)],
            &[(&empty, 0..1), (&plain, 5..5), (&empty, 0..9)],
            &[(&full, 0..50)],
            &[(&full, 1..2)],
            &[(&full, 1..50), (&more, 0..10), (&full, 0..3)],
        ];
        for parts in cases {
            for compression in [Compression::NONE, Compression::LZ4] {
                let (direct, collected) = both(parts, compression);
                assert_eq!(direct, Some(collected), "{parts:?}");
            }
        }
    }

    #[test]
    fn what_is_not_as_regular_is_left_to_the_builder() {
        let plain = RecordColumns::new(&values(0..10), None, None, None).unwrap();
        let keyed = RecordColumns::new(&values(0..10), Some(&keys(0..10)), None, None).unwrap();
        let nulls: ArrayRef = Arc::new(BinaryArray::from_iter([Some(&b"a"[..]), None, Some(b"c")]));
        let nulls = RecordColumns::new(&nulls, None, None, None).unwrap();
        let written = |parts: &[(&RecordColumns, Range<usize>)]| both(parts, Compression::NONE).0.is_some();
        assert!(!written(&[(&plain, 0..10), (&keyed, 0..10)]));
        assert!(!written(&[(&nulls, 0..3)]));
        assert!(written(&[(&nulls, 2..3)]));
    }

    #[test]
    fn none_and_too_many() {
        let mut out = BytesMut::new();
        let options = EncodeOptions::default();
        let large: ArrayRef = Arc::new(BinaryArray::from_iter_values([vec![0; 1 << 20]]));
        let large = RecordColumns::new(&large, None, None, None).unwrap();
        assert!(matches!(
            encode_rows(&options, &[(&large, 1..1)], &mut out),
            Err(EncodeError::NoRecords)
        ));
        let parts = vec![(&large, 0..1); 64];
        assert!(matches!(
            encode_rows(&options, &parts, &mut out),
            Err(EncodeError::TooLarge { .. })
        ));
        assert!(out.is_empty());
    }
}
