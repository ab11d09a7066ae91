//! A growing column of byte strings of a batch that is being collected.

use std::ops::Range;

use arrow_array::BinaryArray;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ToByteSlice};

use super::layout::bitmap_length;
use crate::error::BatchError;
use crate::offsets::{all_valid, checked_offsets, item, span};

/// A column of byte strings. It has no buffers while all items are null, and no validity bitmap while none is.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnBuilder {
    pub(super) rows: usize,
    offsets: Vec<i32>,
    data: Vec<u8>,
    validity: Vec<u8>,
}

impl ColumnBuilder {
    pub(super) fn push(&mut self, item: Option<&[u8]>) {
        match item {
            Some(bytes) => {
                if self.offsets.is_empty() {
                    self.offsets.resize(self.rows + 1, 0);
                    if self.rows > 0 {
                        self.validity.resize(bitmap_length(self.rows), 0);
                    }
                }
                self.data.extend_from_slice(bytes);
                self.offsets.push(to_offset(self.data.len()));
                if !self.validity.is_empty() {
                    self.push_bit(true);
                }
            }
            None if self.offsets.is_empty() => {}
            None => {
                self.offsets.push(to_offset(self.data.len()));
                if self.validity.is_empty() {
                    self.validity.resize(bitmap_length(self.rows), u8::MAX);
                    self.mask_last();
                }
                self.push_bit(false);
            }
        }
        self.rows += 1;
    }

    /// Adds `rows` of a column, all at once if none is null.
    pub(super) fn extend(&mut self, source: &BinaryArray, rows: &Range<usize>) {
        if !all_valid(source, rows) {
            rows.clone().for_each(|row| self.push(item(source, row)));
            return;
        }
        // Adding the first row alone creates the offsets, and the bitmap if rows before it were null.
        self.push(item(source, rows.start));
        let rest = rows.start + 1..rows.end;
        let bytes = span(source, &rest);
        let (from, shift) = (to_offset(bytes.start), to_offset(self.data.len()));
        self.data
            .extend_from_slice(source.value_data().get(bytes).unwrap_or_default());
        let ends = source
            .value_offsets()
            .get(rest.start + 1..=rest.end)
            .unwrap_or_default();
        self.offsets.extend(ends.iter().map(|&end| end - from + shift));
        if self.validity.is_empty() {
            self.rows += rest.len();
            return;
        }
        for _ in rest {
            self.push_bit(true);
            self.rows += 1;
        }
    }

    pub(super) fn extend_nulls(&mut self, count: usize) {
        if self.offsets.is_empty() {
            self.rows += count;
        } else {
            (0..count).for_each(|_| self.push(None));
        }
    }

    fn push_bit(&mut self, valid: bool) {
        self.validity.resize(bitmap_length(self.rows + 1), 0);
        if let Some(last) = self.validity.last_mut() {
            *last |= u8::from(valid) << (self.rows % 8);
        }
    }

    /// Clears the bits after the last record, so that equal records give equal bytes.
    fn mask_last(&mut self) {
        let used = self.rows % 8;
        if let Some(last) = self.validity.last_mut().filter(|_| used > 0) {
            *last &= (1 << used) - 1;
        }
    }

    /// The buffers: validity, offsets, data.
    pub(super) fn buffers(&self) -> [&[u8]; 3] {
        [&self.validity, self.offsets.to_byte_slice(), &self.data]
    }

    /// Takes the items out, with the memory that they lie in; `None` if all are null.
    pub(super) fn take(&mut self) -> Result<Option<BinaryArray>, BatchError> {
        let Self {
            rows,
            offsets,
            data,
            validity,
        } = std::mem::take(self);
        if offsets.is_empty() {
            return Ok(None);
        }
        let offsets = checked_offsets(offsets.into()).ok_or_else(|| BatchError::body("its offsets fall"))?;
        let nulls = (!validity.is_empty())
            .then(|| NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(validity), 0, rows)))
            .filter(|nulls| nulls.null_count() > 0);
        Ok(Some(BinaryArray::try_new(offsets, Buffer::from_vec(data), nulls)?))
    }

    pub(super) fn encoded_length(&self) -> usize {
        self.validity.len() + self.offsets.len() * 4 + self.data.len()
    }

    pub(super) fn clear(&mut self) {
        self.rows = 0;
        self.offsets.clear();
        self.data.clear();
        self.validity.clear();
    }
}

/// Converts an offset in a body. It fits, because columns stay below 64 MiB.
pub(super) fn to_offset(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
