//! Reads a RECORDS body as Arrow buffers. All of it is checked here before any part is used.

use arrow_array::{BinaryArray, StringArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use super::layout::{BUFFER_ALIGNMENT, INDEX_LENGTH, SLOTS, Slot, bitmap_length};
use crate::error::BatchError;
use crate::offsets::checked_offsets;

/// The checked buffers of a body. They share the body's memory.
#[derive(Clone, Debug)]
pub(crate) struct RecordsView {
    /// Microseconds since the epoch; `None`: all records have the batch's base time.
    pub(crate) timestamps: Option<ScalarBuffer<i64>>,
    /// `None`: all keys are null.
    pub(crate) key: Option<BinaryArray>,
    /// `None`: all values are null.
    pub(crate) value: Option<BinaryArray>,
    /// `None`: no record has headers.
    pub(crate) headers: Option<HeadersColumn>,
}

/// The headers of all records: those of record i are the items from `list[i]` up to `list[i + 1]`.
#[derive(Clone, Debug)]
pub(crate) struct HeadersColumn {
    pub(crate) list: OffsetBuffer<i32>,
    /// The names; none is null.
    pub(crate) key: StringArray,
    /// `None`: all values are null.
    pub(crate) value: Option<BinaryArray>,
}

impl RecordsView {
    /// Reads a body that must hold `rows` records. `body` is aligned to 8 bytes.
    pub(crate) fn parse(body: &Buffer, rows: usize) -> Result<Self, BatchError> {
        let index = Index::parse(body, rows)?;
        let timestamps = index.timestamps(rows)?;
        let key = index.column([Slot::KeyValidity, Slot::KeyOffsets, Slot::KeyData], rows)?;
        let value = index.column([Slot::ValueValidity, Slot::ValueOffsets, Slot::ValueData], rows)?;
        let headers = index.headers(rows)?;
        Ok(Self {
            timestamps,
            key,
            value,
            headers,
        })
    }
}

impl HeadersColumn {
    /// The items that belong to the record at `row`.
    pub(crate) fn items(&self, row: usize) -> std::ops::Range<usize> {
        let at = |row: usize| self.list.get(row).and_then(|&at| usize::try_from(at).ok());
        match (at(row), row.checked_add(1).and_then(at)) {
            (Some(from), Some(to)) => from..to,
            _ => 0..0,
        }
    }
}

/// The index of a body. Each entry is within bounds and aligned.
struct Index<'a> {
    body: &'a Buffer,
    entries: [(usize, usize); SLOTS],
}

impl<'a> Index<'a> {
    fn parse(body: &'a Buffer, rows: usize) -> Result<Self, BatchError> {
        let head = body.get(..INDEX_LENGTH).ok_or_else(|| {
            BatchError::body(format!(
                "its {} bytes are less than the index of a RECORDS body",
                body.len()
            ))
        })?;
        let mut words = head.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut word = || words.next().unwrap_or_default();
        let told = word();
        if usize::try_from(told).ok() != Some(rows) {
            return Err(BatchError::body(format!("it has {told} records, the head says {rows}")));
        }
        let flags = word();
        if flags != 0 {
            return Err(BatchError::body(format!("its flags are {flags:#x}")));
        }
        let mut entries = [(0, 0); SLOTS];
        for entry in &mut entries {
            let offset = usize::try_from(word()).unwrap_or(usize::MAX);
            let length = usize::try_from(word()).unwrap_or(usize::MAX);
            let within = length == 0 || (offset >= INDEX_LENGTH && offset.saturating_add(length) <= body.len());
            if !within || !offset.is_multiple_of(BUFFER_ALIGNMENT) {
                return Err(BatchError::body(format!(
                    "a buffer lies at {offset} with {length} bytes"
                )));
            }
            *entry = (offset, length);
        }
        Ok(Self { body, entries })
    }

    fn entry(&self, slot: Slot) -> (usize, usize) {
        self.entries.get(slot as usize).copied().unwrap_or_default()
    }

    /// The buffer's bytes; `None` if it is absent.
    fn buffer(&self, slot: Slot) -> Option<Buffer> {
        let (offset, length) = self.entry(slot);
        (length > 0).then(|| self.body.slice_with_length(offset, length))
    }

    /// The buffer, which must either be absent or have exactly `expected` bytes.
    fn sized(&self, slot: Slot, expected: usize) -> Result<Option<Buffer>, BatchError> {
        let (_, length) = self.entry(slot);
        if length != 0 && length != expected {
            return Err(BatchError::body(format!(
                "{} have {length} bytes instead of {expected}",
                slot.name()
            )));
        }
        Ok(self.buffer(slot))
    }

    /// The offsets of `items` items, which must begin at 0 and never decrease.
    fn offsets(&self, slot: Slot, items: usize) -> Result<Option<OffsetBuffer<i32>>, BatchError> {
        let expected = items.saturating_add(1).saturating_mul(4);
        let Some(buffer) = self.sized(slot, expected)? else {
            return Ok(None);
        };
        let offsets = ScalarBuffer::<i32>::from(buffer);
        checked_offsets(offsets)
            .map(Some)
            .ok_or_else(|| BatchError::body(format!("{} do not begin at 0, or fall", slot.name())))
    }

    fn column(&self, [validity, offsets, data]: [Slot; 3], rows: usize) -> Result<Option<BinaryArray>, BatchError> {
        let bits = self.sized(validity, bitmap_length(rows))?;
        let (_, data_length) = self.entry(data);
        let Some(checked) = self.offsets(offsets, rows)? else {
            return match (bits, data_length) {
                (None, 0) => Ok(None),
                _ => Err(BatchError::body(format!(
                    "{} are there, {} are not",
                    data.name(),
                    offsets.name()
                ))),
            };
        };
        if usize::try_from(checked.last()).ok() != Some(data_length) {
            return Err(BatchError::body(format!(
                "{} end at {}, the data has {data_length} bytes",
                offsets.name(),
                checked.last()
            )));
        }
        let nulls = bits
            .map(|bits| NullBuffer::new(BooleanBuffer::new(bits, 0, rows)))
            .filter(|nulls| nulls.null_count() > 0);
        let data = self.buffer(data).unwrap_or_default();
        Ok(Some(BinaryArray::try_new(checked, data, nulls)?))
    }

    fn timestamps(&self, rows: usize) -> Result<Option<ScalarBuffer<i64>>, BatchError> {
        Ok(self
            .sized(Slot::Timestamp, rows.saturating_mul(8))?
            .map(ScalarBuffer::from))
    }

    fn headers(&self, rows: usize) -> Result<Option<HeadersColumn>, BatchError> {
        let key_slots = [Slot::HeaderKeyOffsets, Slot::HeaderKeyData];
        let value_slots = [
            Slot::HeaderValueValidity,
            Slot::HeaderValueOffsets,
            Slot::HeaderValueData,
        ];
        let Some(list) = self.offsets(Slot::HeaderList, rows)? else {
            return match key_slots
                .iter()
                .chain(&value_slots)
                .find(|slot| self.entry(**slot).1 > 0)
            {
                None => Ok(None),
                Some(slot) => Err(BatchError::body(format!("{} are there without a list", slot.name()))),
            };
        };
        let items = usize::try_from(list.last()).unwrap_or_default();
        let [offsets, data] = key_slots;
        let (key_offsets, data_length) = (self.offsets(offsets, items)?, self.entry(data).1);
        let key_offsets = match key_offsets {
            Some(offsets) => offsets,
            None if items == 0 => OffsetBuffer::new_empty(),
            None => return Err(BatchError::body("headers have no keys")),
        };
        if usize::try_from(key_offsets.last()).ok() != Some(data_length) {
            return Err(BatchError::body("header key offsets do not end where the data does"));
        }
        let key = StringArray::try_new(key_offsets, self.buffer(data).unwrap_or_default(), None)
            .map_err(|error| BatchError::body(format!("header keys are not UTF-8: {error}")))?;
        let value = self.column(value_slots, items)?;
        Ok(Some(HeadersColumn { list, key, value }))
    }
}
