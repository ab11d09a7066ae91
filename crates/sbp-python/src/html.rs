//! The first rows of columns as an HTML table, for notebooks.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};

/// Rows that are shown.
pub(crate) const ROWS: i64 = 10;
/// Columns that are shown.
const COLUMNS: usize = 20;
/// Characters of a cell that are shown.
const CELL: usize = 80;

/// A table of `shown`, which are the first of `total` rows.
///
/// # Errors
///
/// A value cannot be written, such as a time beyond the calendar.
pub(crate) fn table(caption: &str, shown: &RecordBatch, total: usize) -> Result<String, ArrowError> {
    let mut out = format!("<table><caption>{}</caption><thead><tr>", escaped(caption));
    let schema = shown.schema();
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .zip(shown.columns())
        .filter(|(_, array)| array.null_count() < array.len())
        .collect();
    for (field, _) in columns.iter().take(COLUMNS) {
        put(&mut out, format_args!("<th>{}</th>", escaped(field.name())));
    }
    let options = FormatOptions::default().with_display_error(true);
    let formats = columns
        .iter()
        .take(COLUMNS)
        .map(|(_, array)| ArrayFormatter::try_new(array.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    if columns.len() > COLUMNS {
        out.push_str("<th>&hellip;</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in 0..shown.num_rows() {
        out.push_str("<tr>");
        for ((_, array), format) in columns.iter().zip(&formats) {
            put(&mut out, format_args!("<td>{}</td>", cell(array.as_ref(), format, row)));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    if total > shown.num_rows() {
        put(&mut out, format_args!("<p>{} rows more</p>", total - shown.num_rows()));
    }
    Ok(out)
}

fn cell(array: &dyn Array, format: &ArrayFormatter<'_>, row: usize) -> String {
    let text = match array.data_type() {
        _ if array.is_null(row) => return "<i>null</i>".to_owned(),
        DataType::Binary => {
            let bytes = array.as_binary::<i32>().value(row);
            match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains(char::is_control) => text.to_owned(),
                _ => bytes.escape_ascii().to_string(),
            }
        }
        _ => format.value(row).to_string(),
    };
    match text.char_indices().nth(CELL) {
        Some((end, _)) => format!("{}&hellip;", escaped(text.get(..end).unwrap_or_default())),
        None => escaped(&text),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}
