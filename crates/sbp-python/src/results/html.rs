//! The first rows of columns as an HTML table, for notebooks.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;

/// Rows that are shown.
pub(crate) const ROWS: usize = 10;
/// Columns that are shown.
const COLUMNS: usize = 20;
/// Characters of a cell that are shown.
const CELL: usize = 80;

/// A table of `shown`, which are the first of `total` rows.
pub(crate) fn table(caption: &str, shown: &RecordBatch, total: usize) -> String {
    let mut out = format!("<table><caption>{}</caption><thead><tr>", escaped(caption));
    let schema = shown.schema();
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .zip(shown.columns())
        .filter(|(_, array)| !is_bare(array))
        .map(|(field, array)| (field, without_zone(array)))
        .collect();
    for (field, _) in columns.iter().take(COLUMNS) {
        put(&mut out, format_args!("<th>{}</th>", escaped(field.name())));
    }
    let options = FormatOptions::default().with_display_error(true);
    let formats = columns
        .iter()
        .take(COLUMNS)
        .map(|(_, array)| ArrayFormatter::try_new(array.as_ref(), &options).ok())
        .collect::<Vec<_>>();
    if columns.len() > COLUMNS {
        out.push_str("<th>&hellip;</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in 0..shown.num_rows() {
        out.push_str("<tr>");
        for ((_, array), format) in columns.iter().zip(&formats) {
            put(
                &mut out,
                format_args!("<td>{}</td>", cell(array.as_ref(), format.as_ref(), row)),
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    if total > shown.num_rows() {
        put(&mut out, format_args!("<p>{} rows more</p>", total - shown.num_rows()));
    }
    out
}

/// Whether a column has nothing to show: nulls, or empty lists.
fn is_bare(array: &ArrayRef) -> bool {
    let is_empty = |list: &ListArray| list.value_offsets().first() == list.value_offsets().last();
    array.null_count() == array.len() || array.as_list_opt().is_some_and(is_empty)
}

/// Instants as dates and times of UTC: the formatter knows no zones by name.
fn without_zone(array: &ArrayRef) -> ArrayRef {
    match array.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(times) => Arc::new(times.clone().with_timezone_opt(None::<Arc<str>>)),
        None => Arc::clone(array),
    }
}

fn cell(array: &dyn Array, format: Option<&ArrayFormatter<'_>>, row: usize) -> String {
    let text = match array.data_type() {
        _ if array.is_null(row) => return "<i>null</i>".to_owned(),
        DataType::Binary => {
            let bytes = array.as_binary::<i32>().value(row);
            match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains(char::is_control) => text.to_owned(),
                _ => bytes.escape_ascii().to_string(),
            }
        }
        _ => match format {
            Some(format) => format.value(row).to_string(),
            None => return "&hellip;".to_owned(),
        },
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
