//! The types that streams can store, and the casts for others.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field, Fields, TimeUnit};

use crate::error::SchemaError;

/// The zone that timestamps with a zone have.
pub(crate) const UTC: &str = "UTC";

/// The name of an allowed type in the canonical form; empty for other types, which are refused before.
pub(super) fn type_word(data_type: &DataType) -> Cow<'static, str> {
    Cow::Borrowed(match data_type {
        DataType::Boolean => "bool",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::Float32 => "float32",
        DataType::Float64 => "float64",
        DataType::Decimal128(precision, scale) => return Cow::Owned(format!("decimal128({precision},{scale})")),
        DataType::Date32 => "date32",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp[us]",
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == UTC => "timestamp[us,UTC]",
        DataType::Utf8 => "string",
        DataType::Binary => "binary",
        DataType::List(_) => "list",
        DataType::Struct(_) => "struct",
        DataType::Map(_, _) => "map",
        _ => "",
    })
}

/// The fields nested in a type, in Arrow's order.
pub(crate) fn children(data_type: &DataType) -> &[Arc<Field>] {
    match data_type {
        DataType::List(child) | DataType::Map(child, _) => std::slice::from_ref(child),
        DataType::Struct(fields) => fields,
        _ => &[],
    }
}

/// The path of a nested column, for messages.
pub(crate) fn path_of(parent: &str, child: &str) -> String {
    format!("{parent}.{child}")
}

/// Refuses columns if there are none or two have the same name.
pub(super) fn check_names(what: &str, fields: &Fields) -> Result<(), SchemaError> {
    if fields.is_empty() {
        return Err(SchemaError::Shape(format!("{what} has no columns")));
    }
    let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    names.sort_unstable();
    match names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b) {
        Some((name, _)) => Err(SchemaError::Shape(format!("{what} has two columns named \"{name}\""))),
        None => Ok(()),
    }
}

/// Refuses a field if its type, or that of a nested field, cannot be stored.
pub(super) fn check_field(field: &Field, path: &str, depth: usize, budget: &mut usize) -> Result<(), SchemaError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(SchemaError::Shape(format!(
            "column \"{path}\" is nested deeper than {} levels",
            super::MAX_DEPTH
        )));
    };
    let Some(left) = budget.checked_sub(1) else {
        return Err(SchemaError::Shape(format!(
            "the schema has more than {} fields",
            super::MAX_FIELDS
        )));
    };
    *budget = left;
    let data_type = field.data_type();
    if let Some(advice) = refusal(data_type) {
        return Err(SchemaError::Type {
            column: format!("\"{path}\""),
            found: data_type.to_string(),
            advice: format!("cast it to {advice}"),
        });
    }
    if let DataType::Struct(fields) = data_type {
        check_names(&format!("the struct \"{path}\""), fields)?;
    }
    if let DataType::Map(entries, _) = data_type {
        check_entries(entries, path)?;
    }
    for child in children(data_type) {
        check_field(child, &path_of(path, child.name()), depth, budget)?;
    }
    Ok(())
}

/// Checks the entries of a map: a struct of two, where neither the struct nor the key is nullable. Arrow requires that
/// when arrays are built.
fn check_entries(entries: &Field, path: &str) -> Result<(), SchemaError> {
    let whole = match entries.data_type() {
        DataType::Struct(pair) => pair.len() == 2 && pair.first().is_some_and(|key| !key.is_nullable()),
        _ => false,
    };
    if whole && !entries.is_nullable() {
        return Ok(());
    }
    Err(SchemaError::Shape(format!(
        "map \"{path}\" needs entries that are a struct of a key and a value, neither the struct nor the key nullable"
    )))
}

/// The type to cast a refused type to, as pyarrow calls it; `None` for an allowed type.
fn refusal(data_type: &DataType) -> Option<Cow<'static, str>> {
    use DataType as T;
    let advice = match data_type {
        T::Decimal128(precision, scale) => {
            let fits = (1..=DECIMAL128_MAX_PRECISION).contains(precision)
                && u8::try_from(*scale).is_ok_and(|scale| scale <= *precision);
            if fits {
                return None;
            }
            "decimal128 with 1 <= precision <= 38 and 0 <= scale <= precision"
        }
        T::Timestamp(TimeUnit::Microsecond, None) => return None,
        T::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == UTC => return None,
        T::Timestamp(_, Some(_)) => "timestamp('us', tz='UTC')",
        T::Timestamp(_, None) => "timestamp('us')",
        T::LargeUtf8 | T::Utf8View => "string",
        T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => "binary",
        T::LargeList(child) | T::ListView(child) | T::LargeListView(child) | T::FixedSizeList(child, _) => {
            return Some(Cow::Owned(format!("list_({})", child.data_type())));
        }
        T::Dictionary(_, value) => return Some(Cow::Owned(format!("its value type, {}", advised(value)))),
        T::RunEndEncoded(_, value) => {
            return Some(Cow::Owned(format!("its value type, {}", advised(value.data_type()))));
        }
        T::UInt8 => "int16",
        T::UInt16 => "int32",
        T::UInt32 => "int64",
        T::UInt64 => "decimal128(20, 0)",
        T::Float16 => "float32",
        T::Date64 => "date32, or timestamp('us')",
        T::Time32(_) | T::Time64(_) | T::Duration(_) => "int64",
        T::Decimal32(precision, scale) | T::Decimal64(precision, scale) => {
            return Some(Cow::Owned(format!("decimal128({precision}, {scale})")));
        }
        T::Decimal256(_, _) => "decimal128, whose precision is at most 38",
        T::Interval(_) => "int64 columns of its parts",
        T::Union(_, _) => "a struct of its alternatives",
        T::Null => "the type its values will have",
        _ => {
            return type_word(data_type)
                .is_empty()
                .then_some(Cow::Borrowed("a type that streams carry"));
        }
    };
    Some(Cow::Borrowed(advice))
}

/// The type itself if it is allowed, else the type to cast it to.
fn advised(data_type: &DataType) -> Cow<'static, str> {
    refusal(data_type).unwrap_or_else(|| type_word(data_type))
}

/// The field without its metadata and that of its children.
pub(super) fn without_metadata(field: &Field) -> Field {
    let data_type = map_children(field.data_type(), |_, child| Arc::new(without_metadata(child)));
    Field::new(field.name(), data_type, field.is_nullable())
}

/// The field as Spark derives it from its own types.
pub(super) fn for_spark(field: &Field) -> Arc<Field> {
    spark_field(field, field.name(), true)
}

fn spark_field(field: &Field, name: &str, nullable: bool) -> Arc<Field> {
    let data_type = match field.data_type() {
        DataType::List(child) => DataType::List(spark_field(child, "element", true)),
        DataType::Map(entries, _) => DataType::Map(spark_entries(entries), false),
        other => map_children(other, |_, child| spark_field(child, child.name(), true)),
    };
    Arc::new(Field::new(name, data_type, nullable))
}

fn spark_entries(entries: &Field) -> Arc<Field> {
    let pair = map_children(entries.data_type(), |index, child| match index {
        0 => spark_field(child, "key", false),
        _ => spark_field(child, "value", true),
    });
    Arc::new(Field::new("entries", pair, false))
}

fn map_children(data_type: &DataType, change: impl Fn(usize, &Field) -> Arc<Field>) -> DataType {
    match data_type {
        DataType::List(child) => DataType::List(change(0, child)),
        DataType::Map(entries, sorted) => DataType::Map(change(0, entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .enumerate()
                .map(|(index, child)| change(index, child))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Whether data of type `found` has the layout of a column of type `expected`, so that its buffers can be stored
/// unchanged. Names inside lists and maps, the zone of timestamps and nullability are not part of the layout.
pub(crate) fn same_layout(expected: &DataType, found: &DataType) -> bool {
    use DataType as T;
    match (expected, found) {
        (T::Timestamp(TimeUnit::Microsecond, Some(_)), T::Timestamp(TimeUnit::Microsecond, Some(_))) => true,
        (T::List(a), T::List(b)) => same_layout(a.data_type(), b.data_type()),
        (T::Map(a, _), T::Map(b, _)) => match (a.data_type(), b.data_type()) {
            (T::Struct(a), T::Struct(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_layout(a.data_type(), b.data_type()))
            }
            _ => false,
        },
        (T::Struct(a), T::Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.name() == b.name() && same_layout(a.data_type(), b.data_type()))
        }
        (expected, found) => expected == found,
    }
}
