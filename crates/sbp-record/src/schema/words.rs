//! The names of types in errors: those of pyarrow, which readers of the errors know best.

use arrow_schema::{DataType, TimeUnit};

use super::types::type_word;

/// The type as `str(pyarrow_type)` shows it, or almost.
pub(crate) fn words(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Utf8View => "string_view".to_owned(),
        T::LargeUtf8 => "large_string".to_owned(),
        T::BinaryView => "binary_view".to_owned(),
        T::LargeBinary => "large_binary".to_owned(),
        T::Float16 => "halffloat".to_owned(),
        T::List(item) => format!("list<{}>", words(item.data_type())),
        T::LargeList(item) => format!("large_list<{}>", words(item.data_type())),
        T::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{}: {}", field.name(), words(field.data_type())))
                .collect();
            format!("struct<{}>", fields.join(", "))
        }
        T::Map(entries, _) => match entries.data_type() {
            T::Struct(pair) => {
                let pair: Vec<String> = pair.iter().map(|field| words(field.data_type())).collect();
                format!("map<{}>", pair.join(", "))
            }
            _ => "map".to_owned(),
        },
        T::Dictionary(_, value) => format!("dictionary<{}>", words(value)),
        T::Timestamp(unit, zone) => {
            let unit = match unit {
                TimeUnit::Second => "s",
                TimeUnit::Millisecond => "ms",
                TimeUnit::Microsecond => "us",
                TimeUnit::Nanosecond => "ns",
            };
            match zone {
                Some(zone) => format!("timestamp[{unit}, tz={zone}]"),
                None => format!("timestamp[{unit}]"),
            }
        }
        other => match type_word(other) {
            word if word.is_empty() => other.to_string().to_lowercase(),
            word => word.into_owned(),
        },
    }
}
