//! Arrow IPC schema messages. They come from peers, so the verified tables are read here field by field, and only a few
//! types are accepted.

use std::sync::Arc;

use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use flatbuffers::VerifierOptions;

use super::{MAX_DEPTH, MAX_FIELDS};
use crate::error::SchemaError;

const CONTINUATION: [u8; 4] = [0xff; 4];

/// Writes an encapsulated schema message: continuation marker, length, metadata padded to 8.
pub(super) fn write(schema: &Schema) -> Vec<u8> {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    let mut out = Vec::with_capacity(encoded.ipc_message.len() + 64);
    // Writing to a vector cannot fail, and a schema message has no body.
    let _written = write_message(&mut out, encoded, &options);
    out
}

pub(super) fn read(message: &[u8]) -> Result<Schema, SchemaError> {
    let short = || SchemaError::Unreadable(format!("{} bytes are no Arrow IPC schema message", message.len()));
    let prefixed = message.strip_prefix(&CONTINUATION).unwrap_or(message);
    let (length, rest) = prefixed.split_first_chunk::<4>().ok_or_else(short)?;
    let length = usize::try_from(i32::from_le_bytes(*length)).ok().ok_or_else(short)?;
    let metadata = rest.get(..length).ok_or_else(short)?;

    // Each field is a table with a type table and perhaps metadata. The limit is twice what valid schemas need, so that
    // too many fields are refused with an error that says so.
    let limits = VerifierOptions {
        max_depth: 4 * MAX_DEPTH,
        max_tables: 8 * MAX_FIELDS,
        max_apparent_size: 4 * 1024 * 1024,
        ignore_missing_null_terminator: true,
    };
    let table = arrow_ipc::root_as_message_with_opts(&limits, metadata)
        .map_err(|error| SchemaError::Unreadable(error.to_string()))?;
    let schema = table
        .header_as_schema()
        .ok_or_else(|| SchemaError::Unreadable(format!("it is a message of type {:?}", table.header_type())))?;
    if schema.endianness() != arrow_ipc::Endianness::Little {
        return Err(SchemaError::Unreadable("its data would be big-endian".to_owned()));
    }
    let fields = schema.fields().into_iter().flatten();
    Ok(Schema::new(
        fields
            .map(|field| read_field(field, 0))
            .collect::<Result<Vec<_>, _>>()?,
    ))
}

fn read_field(field: arrow_ipc::Field<'_>, depth: usize) -> Result<Field, SchemaError> {
    let name = field.name().unwrap_or_default();
    if depth >= MAX_DEPTH {
        return Err(SchemaError::Shape(format!(
            "column \"{name}\" is nested deeper than {MAX_DEPTH} levels"
        )));
    }
    let children = field.children().into_iter().flatten();
    let children = children
        .map(|child| read_field(child, depth + 1))
        .collect::<Result<Vec<_>, _>>()?;
    let plain = read_type(field, children).ok_or_else(|| {
        SchemaError::Unreadable(format!(
            "column \"{name}\" has the type {:?}, which is not read",
            field.type_type()
        ))
    })?;
    let data_type = match field.dictionary() {
        // Refused by a later check, whatever the type of the index.
        Some(_) => DataType::Dictionary(Box::new(DataType::Int32), Box::new(plain)),
        None => plain,
    };
    Ok(Field::new(name, data_type, field.nullable()))
}

/// The type of a field; `None` for types that errors cannot name.
fn read_type(field: arrow_ipc::Field<'_>, children: Vec<Field>) -> Option<DataType> {
    use arrow_ipc::Type;
    let only_child = |children: Vec<Field>| match <[Field; 1]>::try_from(children) {
        Ok([child]) => Some(Arc::new(child)),
        Err(_) => None,
    };
    Some(match field.type_type() {
        Type::Null => DataType::Null,
        Type::Bool => DataType::Boolean,
        Type::Utf8 => DataType::Utf8,
        Type::Binary => DataType::Binary,
        Type::LargeUtf8 => DataType::LargeUtf8,
        Type::LargeBinary => DataType::LargeBinary,
        Type::Utf8View => DataType::Utf8View,
        Type::BinaryView => DataType::BinaryView,
        Type::Int => integer(field.type_as_int()?)?,
        Type::FloatingPoint => match field.type_as_floating_point()?.precision() {
            arrow_ipc::Precision::HALF => DataType::Float16,
            arrow_ipc::Precision::SINGLE => DataType::Float32,
            arrow_ipc::Precision::DOUBLE => DataType::Float64,
            _ => return None,
        },
        Type::Decimal => decimal(field.type_as_decimal()?)?,
        Type::Date => match field.type_as_date()?.unit() {
            arrow_ipc::DateUnit::DAY => DataType::Date32,
            _ => DataType::Date64,
        },
        Type::Timestamp => {
            let timestamp = field.type_as_timestamp()?;
            DataType::Timestamp(time_unit(timestamp.unit())?, timestamp.timezone().map(Into::into))
        }
        Type::Time => DataType::Time64(TimeUnit::Microsecond),
        Type::Duration => DataType::Duration(time_unit(field.type_as_duration()?.unit())?),
        Type::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        Type::FixedSizeBinary => DataType::FixedSizeBinary(field.type_as_fixed_size_binary()?.byteWidth()),
        Type::FixedSizeList => {
            DataType::FixedSizeList(only_child(children)?, field.type_as_fixed_size_list()?.listSize())
        }
        Type::List => DataType::List(only_child(children)?),
        Type::LargeList => DataType::LargeList(only_child(children)?),
        Type::ListView => DataType::ListView(only_child(children)?),
        Type::LargeListView => DataType::LargeListView(only_child(children)?),
        Type::Struct_ => DataType::Struct(children.into()),
        Type::Map => DataType::Map(only_child(children)?, field.type_as_map()?.keysSorted()),
        _ => return None,
    })
}

fn integer(int: arrow_ipc::Int<'_>) -> Option<DataType> {
    Some(match (int.bitWidth(), int.is_signed()) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        _ => return None,
    })
}

fn decimal(decimal: arrow_ipc::Decimal<'_>) -> Option<DataType> {
    let precision = u8::try_from(decimal.precision()).ok()?;
    let scale = i8::try_from(decimal.scale()).ok()?;
    Some(match decimal.bitWidth() {
        32 => DataType::Decimal32(precision, scale),
        64 => DataType::Decimal64(precision, scale),
        128 => DataType::Decimal128(precision, scale),
        256 => DataType::Decimal256(precision, scale),
        _ => return None,
    })
}

fn time_unit(unit: arrow_ipc::TimeUnit) -> Option<TimeUnit> {
    Some(match unit {
        arrow_ipc::TimeUnit::SECOND => TimeUnit::Second,
        arrow_ipc::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
        arrow_ipc::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
        arrow_ipc::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
        _ => return None,
    })
}
