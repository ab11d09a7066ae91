//! Encodes typed columns.

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::{ArrowError, DataType, Field};
use bytes::{BufMut, BytesMut};

use crate::encode::{EncodeOptions, write_batch};
use crate::error::{EncodeError, SchemaError};
use crate::framing::ALIGNMENT;
use crate::meta::BodyEncoding;
use crate::schema::{StreamSchema, mismatch, path_of, same_layout, unknown_column};

/// Appends to `out` a batch of typed columns; returns its length in bytes, padding included.
///
/// `columns` are the stream's, or its first ones if the others are nullable, with the stream's names and in its order.
/// Nothing is cast: the buffers are stored as they are. Only names inside lists and maps, and the zone of timestamps
/// with a zone, may differ, because they are not part of the data.
///
/// # Errors
/// The columns differ from the schema (the error names the column and the cast to use), there are no rows, or the batch
/// would be too large for a server and has to be written in smaller parts.
pub fn encode_arrow(
    options: &EncodeOptions,
    schema: &StreamSchema,
    columns: &RecordBatch,
    out: &mut BytesMut,
) -> Result<usize, EncodeError> {
    if columns.num_rows() == 0 {
        return Err(EncodeError::NoRecords);
    }
    let mut meta = options.meta(BodyEncoding::ARROW, columns.num_rows())?;
    meta.schema_fingerprint = check_columns(schema, columns)?;
    let expected = columns
        .columns()
        .iter()
        .map(|column| column.get_buffer_memory_size())
        .sum::<usize>();
    write_batch(
        meta,
        options.compression,
        out,
        expected.min(crate::head::MAX_BATCH_LENGTH),
        |out| write_columns(columns, out).map_err(EncodeError::Arrow),
    )
}

/// Compares the columns with the schema, and returns the fingerprint of these columns.
fn check_columns(schema: &StreamSchema, columns: &RecordBatch) -> Result<u64, SchemaError> {
    let found = columns.schema_ref().fields();
    let expected = schema.arrow().fields();
    if let Some(extra) = found.get(expected.len()) {
        return Err(unknown_column(extra.name()));
    }
    for ((expected, found), array) in expected.iter().zip(found).zip(columns.columns()) {
        if expected.name() != found.name() {
            return Err(SchemaError::Shape(format!(
                "where the stream has column \"{}\", the data has \"{}\"; select the stream's columns in its order",
                expected.name(),
                found.name()
            )));
        }
        check_column(expected, found.data_type(), array, expected.name())?;
    }
    schema.fingerprint_of_prefix(found.len()).ok_or_else(|| {
        let missing = expected.iter().skip(found.len()).find(|field| !field.is_nullable());
        let name = missing.map_or("", |field| field.name());
        SchemaError::Shape(format!(
            "column \"{name}\" is missing, and the stream does not allow nulls in it"
        ))
    })
}

fn check_column(expected: &Field, found: &DataType, array: &ArrayRef, path: &str) -> Result<(), SchemaError> {
    if !same_layout(expected.data_type(), found) {
        return Err(mismatch(expected, path, found));
    }
    if !expected.is_nullable() && array.null_count() > 0 {
        let nulls = format!("{} nulls", array.null_count());
        return Err(SchemaError::column(
            path,
            "a value in every row",
            nulls,
            "fill or drop them",
        ));
    }
    check_nested_nulls(expected.data_type(), array, path)
}

/// Refuses nulls inside lists, structs and maps where the schema allows none.
fn check_nested_nulls(expected: &DataType, array: &ArrayRef, path: &str) -> Result<(), SchemaError> {
    use arrow_array::cast::AsArray;
    let child =
        |field: &Field, array: &ArrayRef| check_column(field, array.data_type(), array, &path_of(path, field.name()));
    match expected {
        DataType::List(field) => match array.as_list_opt::<i32>() {
            Some(list) => child(field, list.values()),
            None => Ok(()),
        },
        DataType::Map(field, _) => match array.as_map_opt() {
            Some(map) => {
                let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
                check_nested_nulls(field.data_type(), &entries, path)
            }
            None => Ok(()),
        },
        DataType::Struct(fields) => match array.as_struct_opt() {
            Some(parts) => fields
                .iter()
                .zip(parts.columns())
                .try_for_each(|(field, array)| child(field, array)),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Appends the message. Its body begins at a multiple of 16 from the present end of `out`. Every buffer is copied once.
fn write_columns(columns: &RecordBatch, out: &mut BytesMut) -> Result<(), ArrowError> {
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, arrow_ipc::MetadataVersion::V5)?;
    let buffers = StreamEncoder::try_new_with_options(columns.schema_ref(), options)?.encode(columns)?;
    // The encoder writes the schema first, which is not part of a batch.
    let mut schema = buffers.first().map_or(0, |first| message_length(first));
    for buffer in &buffers {
        if schema > 0 {
            schema = schema.saturating_sub(buffer.len());
        } else {
            out.put_slice(buffer);
        }
    }
    Ok(())
}

/// The length of a message without a body: continuation marker, length of the metadata, metadata.
fn message_length(message: &[u8]) -> usize {
    let told = message.get(4..).and_then(|rest| rest.first_chunk::<4>());
    told.map_or(0, |told| {
        usize::try_from(u32::from_le_bytes(*told))
            .unwrap_or_default()
            .saturating_add(8)
    })
}
