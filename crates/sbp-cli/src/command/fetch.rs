//! `sbp fetch`

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;
use sbp_client::{Decoded, FetchedBatch, Position, ReaderOptions, TailOptions};
use sbp_messages::Stream;
use sbp_record::{Records, StreamSchema, TimeWindow};
use sbp_types::{Offset, TimestampMs};
use serde_json::{Map, Value, json};

use crate::args::Fetch;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;
use crate::when::format_time;

pub(crate) fn run(fetch: &Fetch, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&fetch.connection)?;
    let stream = session.find(&fetch.stream)?;
    let schema = stream
        .schema
        .as_ref()
        .map(|schema| StreamSchema::from_ipc(schema))
        .transpose()?;
    let mut printer = Printer {
        session: &session,
        terminal,
        stream: Arc::clone(&stream),
        schema,
        json: fetch.json,
        left: fetch.max,
        times: TimeWindow::default(),
    };
    let timeout = Some(fetch.connection.timeout);
    if fetch.follow {
        let position = Position::from(fetch.from);
        let options = TailOptions {
            timeout,
            ..TailOptions::default()
        };
        let mut tail = session.wait(session.client.tail(&[(stream.stream_id, position)], options))?;
        while let Some(batches) = session.wait(tail.next_many()) {
            for batch in batches? {
                if !printer.print(&batch)? {
                    return Ok(());
                }
            }
            printer.terminal.flush()?;
        }
        return Ok(());
    }
    let wanted = [(stream.stream_id, fetch.from.into(), fetch.to.into())];
    let windows = session.wait(session.client.windows(&wanted, timeout))?;
    let spans = windows.iter().map(|window| window.span).collect();
    printer.times = windows.first().map(|window| window.times).unwrap_or_default();
    let options = ReaderOptions {
        timeout,
        ..ReaderOptions::default()
    };
    let mut reader = session.client.reader(spans, options);
    while let Some(batch) = session.wait(reader.next()) {
        if !printer.print(&batch?)? {
            break;
        }
    }
    printer.terminal.flush()
}

/// Prints records, and counts down those that are still wanted.
struct Printer<'a> {
    session: &'a Session,
    terminal: &'a mut Terminal,
    stream: Arc<Stream>,
    schema: Option<StreamSchema>,
    json: bool,
    left: Option<u64>,
    /// Records of other times are left out.
    times: TimeWindow,
}

impl Printer<'_> {
    /// Returns whether more is wanted.
    fn print(&mut self, fetched: &FetchedBatch) -> Result<bool, CliError> {
        let stream = Arc::clone(&self.stream);
        let broken = |source| CliError::Batch {
            stream: stream.name.clone(),
            offset: fetched.base_offset.0,
            source,
        };
        let client = &self.session.client;
        let decoding = client.decode(fetched, fetched.bytes.clone(), self.schema.as_ref(), None);
        let Decoded { batch, newer } = self.session.wait(decoding)?;
        if let Some(message) = newer.and_then(|newer| newer.schema.clone()) {
            self.schema = Some(StreamSchema::from_ipc(&message)?);
        }
        for (from, to) in batch.runs_within(fetched.from, fetched.to, self.times) {
            let more = if batch.is_typed() {
                let rows = batch.to_record_batch(from, to).map_err(broken)?;
                self.print_rows(&rows, from, batch.head().meta.base_timestamp)?
            } else {
                self.print_records(batch.records().map_err(broken)?.between(from, to))?
            };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn print_records(&mut self, records: Records<'_>) -> Result<bool, CliError> {
        for record in records {
            let time = TimestampMs(record.timestamp_us.div_euclid(1_000));
            if self.json {
                let mut line = Map::new();
                line.insert("offset".to_owned(), record.offset.0.into());
                line.insert("timestamp".to_owned(), format_time(time).into());
                insert_bytes(&mut line, "key", record.key);
                insert_bytes(&mut line, "value", record.value);
                let mut headers = Map::new();
                for (name, value) in record.headers {
                    insert_bytes(&mut headers, name, value);
                }
                if !headers.is_empty() {
                    line.insert("headers".to_owned(), headers.into());
                }
                self.terminal.line(Value::from(line))?;
            } else {
                let key = record
                    .key
                    .map(|key| format!("{}=", String::from_utf8_lossy(key)))
                    .unwrap_or_default();
                let value = record.value.map(String::from_utf8_lossy).unwrap_or_default();
                self.terminal
                    .line(format_args!("{} {} {key}{value}", record.offset, format_time(time)))?;
            }
            if !self.count() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn print_rows(&mut self, rows: &RecordBatch, from: Offset, time: TimestampMs) -> Result<bool, CliError> {
        let options = FormatOptions::default().with_null("null");
        let formatters: Result<Vec<_>, _> = rows
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect();
        let formatters = formatters.map_err(|error| CliError::Usage(error.to_string()))?;
        let schema = rows.schema();
        for (row, offset) in (0..rows.num_rows()).zip(from.0..) {
            let cells = schema.fields().iter().zip(&formatters);
            let line = if self.json {
                let columns = cells.zip(rows.columns());
                let columns = columns.map(|((field, texts), column)| (field.name().clone(), cell(column, texts, row)));
                let columns: Map<_, _> = columns.collect();
                json!({ "offset": offset, "timestamp": format_time(time), "columns": columns }).to_string()
            } else {
                let columns: Vec<_> = cells
                    .map(|(field, column)| format!("{}={}", field.name(), column.value(row)))
                    .collect();
                format!("{offset} {} {}", format_time(time), columns.join(" "))
            };
            self.terminal.line(line)?;
            if !self.count() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn count(&mut self) -> bool {
        match &mut self.left {
            None => true,
            Some(left) => {
                *left = left.saturating_sub(1);
                *left > 0
            }
        }
    }
}

/// A row of a column: numbers and truth values as such, everything else as text.
fn cell(column: &ArrayRef, texts: &ArrayFormatter<'_>, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    let text = texts.value(row).to_string();
    let is_plain = column.data_type().is_numeric() || *column.data_type() == DataType::Boolean;
    let plain = is_plain.then(|| text.parse().ok()).flatten();
    plain.unwrap_or(Value::from(text))
}

/// Text as text, other bytes in base 16 under a name that says so.
fn insert_bytes(line: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => drop(line.insert(name.to_owned(), Value::Null)),
        Some(Ok(text)) => drop(line.insert(name.to_owned(), text.into())),
        Some(Err(_not_text)) => {
            let hex: String = bytes
                .unwrap_or_default()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            line.insert(format!("{name}_hex"), hex.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
    use arrow_cast::display::{ArrayFormatter, FormatOptions};
    use serde_json::{Value, json};

    fn cells(column: ArrayRef) -> Vec<Value> {
        let options = FormatOptions::default().with_null("null");
        let texts = ArrayFormatter::try_new(&column, &options).expect("a column that can be shown");
        (0..column.len()).map(|row| super::cell(&column, &texts, row)).collect()
    }

    #[test]
    fn a_text_is_never_taken_for_a_null_or_a_number() {
        let texts = StringArray::from(vec![Some("null"), None, Some("1"), Some("true")]);
        let shown = [json!("null"), Value::Null, json!("1"), json!("true")];
        assert_eq!(cells(Arc::new(texts)), shown);
        assert_eq!(
            cells(Arc::new(Int64Array::from(vec![Some(-1), None]))),
            [json!(-1), Value::Null]
        );
        assert_eq!(cells(Arc::new(BooleanArray::from(vec![true]))), [json!(true)]);
        assert_eq!(
            cells(Arc::new(Float64Array::from(vec![1.5, f64::NAN]))),
            [json!(1.5), json!("NaN")]
        );
    }
}
