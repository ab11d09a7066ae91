//! Values in a line of text that cannot be taken for something else.

use std::borrow::Cow;

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Schema};

use crate::error::CliError;

/// How bytes that are no text begin.
const HEX: &str = "hex:";

/// A value as it is, if it is text that stays in its line and cannot be mistaken; else as a JSON string, and bytes that
/// are no UTF-8 in base 16 behind `hex:`. A null is written as `null`, so that the text `null` is quoted.
pub(super) fn quoted(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) => quoted_text(text, false),
        Err(_not_text) => format!("{HEX}{}", hex::encode(value)).into(),
    }
}

fn quoted_text(text: &str, among_others: bool) -> Cow<'_, str> {
    let is_clear = !text.is_empty()
        && text != "null"
        && !text.starts_with('"')
        && !text.starts_with(HEX)
        && !text.contains(|letter: char| letter.is_control() || (among_others && letter.is_whitespace()));
    if is_clear {
        text.into()
    } else {
        serde_json::Value::from(text).to_string().into()
    }
}

/// Each row as `column=value column=value`, with the columns' names in `schema`.
pub(super) fn row_text<'a>(
    rows: &'a RecordBatch,
    schema: &'a Schema,
) -> Result<impl Iterator<Item = String> + 'a, CliError> {
    let options = FormatOptions::default().with_null("null");
    let columns = rows.columns().iter().zip(schema.fields());
    let columns: Result<Vec<_>, _> = columns
        .map(|(column, field)| {
            let is_text = matches!(
                field.data_type(),
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
            );
            let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
            Ok((field.name(), column, formatter, is_text))
        })
        .collect();
    let columns = columns.map_err(CliError::columns)?;
    Ok((0..rows.num_rows()).map(move |row| {
        let cells = columns.iter().map(|(name, column, formatter, is_text)| {
            let text = formatter.value(row).to_string();
            let text = if *is_text && column.is_valid(row) {
                quoted_text(&text, true).into_owned()
            } else {
                text
            };
            format!("{name}={text}")
        });
        cells.collect::<Vec<_>>().join(" ")
    }))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_value_stays_in_its_line_and_is_not_mistaken() {
        for (value, written) in [
            (&b"two words"[..], "two words"),
            (b"", r#""""#),
            (b"null", r#""null""#),
            (b"a\nb", r#""a\nb""#),
            (br#""a""#, r#""\"a\"""#),
            (b"hex:00", r#""hex:00""#),
            (b"\xff\x00", "hex:ff00"),
        ] {
            assert_eq!(quoted(value), written);
        }
    }
}
