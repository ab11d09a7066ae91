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

use crate::error::Cause;
use crate::offsets::checked_offsets;
use crate::schema::children;

/// The rule that the bytes break.
type Rule = Cause;

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
    children(data_type).iter().map(|field| count(field.data_type())).sum()
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
        end.ok_or("a buffer lies outside")?;
        Ok(self.body.slice_with_length(offset, length))
    }

    /// The validity of `rows` items. A bitmap that is present is used, whatever the node says about nulls.
    fn validity(&mut self, rows: usize) -> Result<Option<NullBuffer>, Rule> {
        let bits = self.buffer()?;
        if bits.is_empty() {
            return Ok(None);
        }
        if bits.len() < rows.div_ceil(8) {
            return Err(format!("its validity has {} bytes for {rows} rows", bits.len()).into());
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
        Ok(checked_offsets(offsets).ok_or("its offsets do not begin at 0, or fall")?)
    }
}

/// Builds the array of `field` from the next nodes and buffers.
pub(super) fn build(field: &Field, parts: &mut Parts<'_>) -> Result<ArrayRef, Rule> {
    let rows = parts.node()?;
    let nulls = parts.validity(rows)?;
    Ok(match field.data_type() {
        DataType::Boolean => {
            let bits = parts.buffer()?;
            if bits.len() < rows.div_ceil(8) {
                return Err(format!("its {} bytes are too few for {rows} rows", bits.len()).into());
            }
            erase(BooleanArray::new(BooleanBuffer::new(bits, 0, rows), nulls))
        }
        DataType::Int8 => erase(primitive::<Int8Type>(parts, rows, nulls)?),
        DataType::Int16 => erase(primitive::<Int16Type>(parts, rows, nulls)?),
        DataType::Int32 => erase(primitive::<Int32Type>(parts, rows, nulls)?),
        DataType::Int64 => erase(primitive::<Int64Type>(parts, rows, nulls)?),
        DataType::Float32 => erase(primitive::<Float32Type>(parts, rows, nulls)?),
        DataType::Float64 => erase(primitive::<Float64Type>(parts, rows, nulls)?),
        DataType::Date32 => erase(primitive::<Date32Type>(parts, rows, nulls)?),
        DataType::Timestamp(_, zone) => {
            let array = primitive::<TimestampMicrosecondType>(parts, rows, nulls)?;
            erase(array.with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(precision, scale) => {
            let array = primitive::<Decimal128Type>(parts, rows, nulls)?;
            let array = array.with_precision_and_scale(*precision, *scale)?;
            array.validate_decimal_precision(*precision)?;
            erase(array)
        }
        DataType::Utf8 => erase(StringArray::try_new(parts.offsets(rows)?, parts.buffer()?, nulls)?),
        DataType::Binary => erase(BinaryArray::try_new(parts.offsets(rows)?, parts.buffer()?, nulls)?),
        DataType::List(item) => {
            let offsets = parts.offsets(rows)?;
            let items = build(item, parts)?;
            erase(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?)
        }
        DataType::Struct(fields) => erase(structure(fields, parts, rows, nulls)?),
        DataType::Map(entries, sorted) => {
            let offsets = parts.offsets(rows)?;
            let DataType::Struct(pair) = entries.data_type() else {
                return Err("a map without entries".into());
            };
            let items = parts.node()?;
            let item_nulls = parts.validity(items)?;
            let items = structure(pair, parts, items, item_nulls)?;
            erase(MapArray::try_new(Arc::clone(entries), offsets, items, nulls, *sorted)?)
        }
        other => return Err(format!("streams do not carry {other}").into()),
    })
}

fn erase(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

fn primitive<T: ArrowPrimitiveType>(
    parts: &mut Parts<'_>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<PrimitiveArray<T>, Rule> {
    Ok(PrimitiveArray::try_new(parts.scalars::<T::Native>(rows)?, nulls)?)
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
    Ok(StructArray::try_new_with_length(fields.clone(), children, nulls, rows)?)
}
