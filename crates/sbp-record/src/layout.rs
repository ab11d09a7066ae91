//! The Arrow layouts that streams store, and conversion from the other layouts of the same values.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

/// The same type in the layout that streams store: `large_string`, `string_view` and dictionaries of text become
/// `string`, and so on, also in nested types. A type whose values streams cannot store is returned unchanged.
#[must_use]
pub fn plain_type(data_type: &DataType) -> DataType {
    use DataType as T;
    match data_type {
        T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Dictionary(_, value) => plain_type(value),
        T::RunEndEncoded(_, value) => plain_type(value.data_type()),
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) | T::ListView(item) | T::LargeListView(item) => {
            T::List(plain_field(item))
        }
        T::Struct(fields) => T::Struct(fields.iter().map(plain_field).collect()),
        T::Map(entries, sorted) => T::Map(plain_field(entries), *sorted),
        other => other.clone(),
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(
        field.name(),
        plain_type(field.data_type()),
        field.is_nullable(),
    ))
}

/// The same values in the layout that streams store. An array that has it already is returned as it is.
pub(crate) fn plain_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let plain = plain_type(array.data_type());
    if is_same(&plain, array.data_type()) {
        return Ok(Arc::clone(array));
    }
    recast(array, &plain)
}

/// Casts the array to another type. A value that does not fit is an error, and never becomes null.
pub(crate) fn recast(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, wanted, &options)
}

/// Whether the types are equal, apart from metadata of nested fields.
fn is_same(one: &DataType, other: &DataType) -> bool {
    one == other || one.equals_datatype(other)
}
