//! Values in a line of text that cannot be taken for something else.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::EncoderOptions;
use arrow_json::writer::make_encoder;
use arrow_schema::{ArrowError, FieldRef, Schema};

use super::floats::Floats;
use crate::error::CliError;

/// How bytes that are no text begin.
const HEX: &str = "hex:";

/// A value as it is, if it is text that stays in its line and cannot be mistaken; else as a JSON string, and bytes that
/// are no UTF-8 in base 16 behind `hex:`. A null is written as `null`, so that the text `null` is quoted. What stands where a
/// key may stand has no `=` in it outside of quotes.
pub(super) fn quoted(value: &[u8], may_be_a_key: bool) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) => quoted_text(text, |letter| may_be_a_key && letter == '='),
        Err(_not_text) => format!("{HEX}{}", hex::encode(value)).into(),
    }
}

/// Whether a letter would end the line, for some reader of it, or change what is shown.
fn breaks_lines(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// A text as it is, if nothing in it is `unclear`, else as a JSON string.
fn quoted_text(text: &str, unclear: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_clear = !text.is_empty()
        && text != "null"
        && !text.starts_with('"')
        && !text.starts_with(HEX)
        && !text.contains(|letter: char| breaks_lines(letter) || unclear(letter));
    if is_clear {
        text.into()
    } else {
        in_one_line(&serde_json::Value::from(text).to_string()).into()
    }
}

/// JSON with escapes for what it may have in its strings and a line may not have.
fn in_one_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for letter in json.chars() {
        if breaks_lines(letter) {
            line.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            line.push(letter);
        }
    }
    line
}

/// Each row as `column=value column=value`, with the columns' names in `names`.
pub(super) fn row_text(rows: &RecordBatch, names: &Schema) -> Result<Vec<String>, CliError> {
    let mut lines = vec![String::new(); rows.num_rows()];
    let columns = rows.columns().iter().zip(rows.schema_ref().fields());
    for ((column, field), named) in columns.zip(names.fields()) {
        let name = quoted_text(named.name(), |letter| letter.is_whitespace() || letter == '=');
        let cells = cells(column, field).map_err(CliError::columns)?;
        for (line, cell) in lines.iter_mut().zip(cells) {
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend([&*name, "=", &cell]);
        }
    }
    Ok(lines)
}

/// The values of a column: text as [`quoted_text`], what is nested as JSON.
fn cells(column: &ArrayRef, field: &FieldRef) -> Result<Vec<String>, ArrowError> {
    if field.data_type().is_nested() {
        let options = EncoderOptions::default()
            .with_explicit_nulls(true)
            .with_encoder_factory(Arc::new(Floats));
        let mut encoder = make_encoder(field, column.as_ref(), &options)?;
        let cell = |row| {
            if encoder.is_null(row) {
                return "null".to_owned();
            }
            let mut json = Vec::new();
            encoder.encode(row, &mut json);
            in_one_line(&String::from_utf8_lossy(&json))
        };
        return Ok((0..column.len()).map(cell).collect());
    }
    let options = FormatOptions::default().with_null("null");
    let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
    let is_text = field.data_type().is_string();
    let cell = |row| {
        let text = formatter.value(row).to_string();
        if is_text && column.is_valid(row) {
            quoted_text(&text, char::is_whitespace).into_owned()
        } else {
            text
        }
    };
    Ok((0..column.len()).map(cell).collect())
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
            ("a\u{2028}b\u{85}\u{7f}".as_bytes(), r#""a\u2028b\u0085\u007f""#),
            (b"a=b=c", r#""a=b=c""#),
        ] {
            assert_eq!(quoted(value, true), written);
        }
        assert_eq!(quoted(b"b=c", false), "b=c");
    }
}
