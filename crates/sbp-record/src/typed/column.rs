//! Builds an Arrow array from the nodes and buffers of a message, all of which are checked.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};

/// The rule that the bytes break, as text.
type Rule = String;

/// The number of nodes of a field, including nested fields.
pub(super) fn node_count(data_type: &DataType) -> usize {
    1 + nested(data_type, node_count)
}

/// The number of buffers of a field, including nested fields.
pub(super) fn buffer_count(data_type: &DataType) -> usize {
    let own = match data_type {
        DataType::Struct(_) => 1,
        DataType::Utf8 | DataType::Binary => 3,
        _ => 2,
    };
    own + nested(data_type, buffer_count)
}

fn nested(data_type: &DataType, count: impl Fn(&DataType) -> usize) -> usize {
    match data_type {
        DataType::List(child) | DataType::Map(child, _) => count(child.data_type()),
        DataType::Struct(fields) => fields.iter().map(|field| count(field.data_type())).sum(),
        _ => 0,
    }
}

/// The nodes and buffers that are not used yet.
pub(super) struct Parts<'a> {
    body: &'a Buffer,
    nodes: &'a [usize],
    buffers: &'a [(usize, usize)],
    copied: usize,
}

impl<'a> Parts<'a> {
    pub(super) fn new(body: &'a Buffer, nodes: &'a [usize], buffers: &'a [(usize, usize)]) -> Self {
        Self {
            body,
            nodes,
            buffers,
            copied: 0,
        }
    }

    /// The bytes copied because they were not aligned.
    pub(super) fn copied(&self) -> usize {
        self.copied
    }

    fn node(&mut self) -> Result<usize, Rule> {
        let (&length, rest) = self.nodes.split_first().ok_or("a field is missing")?;
        self.nodes = rest;
        Ok(length)
    }

    fn buffer(&mut self) -> Result<Buffer, Rule> {
        let (&(offset, length), rest) = self.buffers.split_first().ok_or("a buffer is missing")?;
        self.buffers = rest;
        let end = offset.checked_add(length).filter(|&end| end <= self.body.len());
        end.map(|_| self.body.slice_with_length(offset, length))
            .ok_or_else(|| "a buffer lies outside".to_owned())
    }

    /// The validity of `rows` items. A bitmap that is present is used, whatever the node says about nulls.
    fn validity(&mut self, rows: usize) -> Result<Option<NullBuffer>, Rule> {
        let bits = self.buffer()?;
        if bits.is_empty() {
            return Ok(None);
        }
        if bits.len() < rows.div_ceil(8) {
            return Err(format!("its validity has {} bytes for {rows} rows", bits.len()));
        }
        Ok(Some(NullBuffer::new(BooleanBuffer::new(bits, 0, rows))).filter(|nulls| nulls.null_count() > 0))
    }

    /// The first `items` numbers of the next buffer.
    fn scalars<T: ArrowNativeType>(&mut self, items: usize) -> Result<ScalarBuffer<T>, Rule> {
        let buffer = self.buffer()?;
        let wanted = items
            .checked_mul(size_of::<T>())
            .filter(|&wanted| wanted <= buffer.len());
        let wanted = wanted.ok_or_else(|| format!("its {} bytes are too few for {items} rows", buffer.len()))?;
        let mut values = buffer.slice_with_length(0, wanted);
        if values.as_ptr().align_offset(align_of::<T>()) != 0 {
            self.copied += values.len();
            values = Buffer::from_slice_ref(values.as_slice());
        }
        Ok(ScalarBuffer::from(values))
    }

    /// The offsets of `rows` items, which must begin at 0 and never decrease.
    fn offsets(&mut self, rows: usize) -> Result<OffsetBuffer<i32>, Rule> {
        if rows == 0 {
            self.buffer()?;
            return Ok(OffsetBuffer::new_empty());
        }
        let items = rows.checked_add(1).ok_or("too many rows")?;
        let offsets = self.scalars::<i32>(items)?;
        crate::offsets::checked_offsets(offsets).ok_or_else(|| "its offsets do not begin at 0, or fall".to_owned())
    }
}

/// Builds the array of `field` from the next nodes and buffers.
pub(super) fn build(field: &Field, parts: &mut Parts<'_>) -> Result<ArrayRef, Rule> {
    let rows = parts.node()?;
    let nulls = parts.validity(rows)?;
    match field.data_type() {
        DataType::Boolean => {
            let bits = parts.buffer()?;
            if bits.len() < rows.div_ceil(8) {
                return Err(format!("its {} bytes are too few for {rows} rows", bits.len()));
            }
            Ok(Arc::new(BooleanArray::new(BooleanBuffer::new(bits, 0, rows), nulls)))
        }
        DataType::Int8 => primitive::<Int8Type>(parts, rows, nulls).map(erase),
        DataType::Int16 => primitive::<Int16Type>(parts, rows, nulls).map(erase),
        DataType::Int32 => primitive::<Int32Type>(parts, rows, nulls).map(erase),
        DataType::Int64 => primitive::<Int64Type>(parts, rows, nulls).map(erase),
        DataType::Float32 => primitive::<Float32Type>(parts, rows, nulls).map(erase),
        DataType::Float64 => primitive::<Float64Type>(parts, rows, nulls).map(erase),
        DataType::Date32 => primitive::<Date32Type>(parts, rows, nulls).map(erase),
        DataType::Timestamp(_, zone) => {
            let array = primitive::<TimestampMicrosecondType>(parts, rows, nulls)?;
            Ok(Arc::new(array.with_timezone_opt(zone.clone())))
        }
        DataType::Decimal128(precision, scale) => {
            let array = primitive::<Decimal128Type>(parts, rows, nulls)?;
            let array = array
                .with_precision_and_scale(*precision, *scale)
                .map_err(|error| error.to_string())?;
            array
                .validate_decimal_precision(*precision)
                .map_err(|error| error.to_string())?;
            Ok(erase(array))
        }
        DataType::Utf8 => {
            let offsets = parts.offsets(rows)?;
            StringArray::try_new(offsets, parts.buffer()?, nulls)
                .map(erase)
                .map_err(|error| error.to_string())
        }
        DataType::Binary => {
            let offsets = parts.offsets(rows)?;
            BinaryArray::try_new(offsets, parts.buffer()?, nulls)
                .map(erase)
                .map_err(|error| error.to_string())
        }
        DataType::List(item) => {
            let offsets = parts.offsets(rows)?;
            let items = build(item, parts)?;
            ListArray::try_new(Arc::clone(item), offsets, items, nulls)
                .map(erase)
                .map_err(|error| error.to_string())
        }
        DataType::Struct(fields) => structure(fields, parts, rows, nulls).map(erase),
        DataType::Map(entries, sorted) => map(entries, *sorted, parts, rows, nulls),
        other => Err(format!("streams do not carry {other}")),
    }
}

fn erase(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

fn primitive<T: ArrowPrimitiveType>(
    parts: &mut Parts<'_>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<PrimitiveArray<T>, Rule> {
    PrimitiveArray::try_new(parts.scalars::<T::Native>(rows)?, nulls).map_err(|error| error.to_string())
}

fn structure(
    fields: &Fields,
    parts: &mut Parts<'_>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<StructArray, Rule> {
    let children = fields
        .iter()
        .map(|field| build(field, parts))
        .collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new_with_length(fields.clone(), children, nulls, rows).map_err(|error| error.to_string())
}

fn map(
    entries: &Arc<Field>,
    sorted: bool,
    parts: &mut Parts<'_>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, Rule> {
    let offsets = parts.offsets(rows)?;
    let DataType::Struct(pair) = entries.data_type() else {
        return Err("a map without entries".to_owned());
    };
    let items = parts.node()?;
    let item_nulls = parts.validity(items)?;
    let items = structure(pair, parts, items, item_nulls)?;
    MapArray::try_new(Arc::clone(entries), offsets, items, nulls, sorted)
        .map(erase)
        .map_err(|error| error.to_string())
}
