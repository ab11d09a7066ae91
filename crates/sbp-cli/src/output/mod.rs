//! Records and rows as people and programs read them: text, JSON, or bytes as they are.

mod floats;
mod text;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use sbp_record::Record;
use sbp_types::{Offset, TimestampMs};
use serde_json::{Map, Value};

use self::floats::Floats;
use self::text::{quoted, row_text};
use crate::error::CliError;
use crate::json::{headers, in_json_schema, insert_bytes};
use crate::terminal::Terminal;
use crate::when::format_time;

/// How records are written.
#[derive(Debug)]
pub(crate) enum Format {
    /// A line for each record: offset, time, key and value.
    Text,
    /// A JSON object in a line for each record.
    Json,
    /// The values alone, byte for byte, each followed by these bytes.
    Raw { delimiter: Vec<u8> },
}

impl Format {
    /// Writes one record of a stream without a schema.
    pub(crate) fn record(&self, record: &Record<'_>, terminal: &mut Terminal) -> Result<(), CliError> {
        let time = format_time(TimestampMs(record.timestamp_us.div_euclid(1_000)));
        match self {
            Self::Text => {
                let key = record
                    .key
                    .map(|key| format!("{}=", quoted(key, true)))
                    .unwrap_or_default();
                // A value without a key may not look like a key and a value.
                let value = record
                    .value
                    .map_or("null".into(), |value| quoted(value, record.key.is_none()));
                terminal.line(format_args!("{} {time} {key}{value}", record.offset))
            }
            Self::Json => {
                let mut line = Map::new();
                line.insert("offset".to_owned(), record.offset.0.into());
                line.insert("timestamp".to_owned(), time.into());
                insert_bytes(&mut line, "key", record.key);
                insert_bytes(&mut line, "value", record.value);
                if record.headers.clone().next().is_some() {
                    line.insert("headers".to_owned(), headers(record.headers.clone()));
                }
                terminal.line(Value::from(line))
            }
            Self::Raw { delimiter } => {
                terminal.bytes(record.value.unwrap_or_default())?;
                terminal.bytes(delimiter)
            }
        }
    }

    /// Writes rows of a stream with a schema, the first of which has this offset and all of which have this time.
    pub(crate) fn rows(
        &self,
        rows: &RecordBatch,
        first: Offset,
        time: TimestampMs,
        terminal: &mut Terminal,
    ) -> Result<(), CliError> {
        let time = format_time(time);
        match self {
            Self::Text => {
                let lines = row_text(&in_json_schema(rows)?, rows.schema_ref())?;
                for (text, offset) in lines.into_iter().zip(first.0..) {
                    terminal.line(format_args!("{offset} {time} {text}"))?;
                }
            }
            Self::Json => {
                let mut writer = WriterBuilder::new()
                    .with_explicit_nulls(true)
                    .with_encoder_factory(Arc::new(Floats))
                    .build::<_, LineDelimited>(Vec::new());
                let outcome = writer.write(&in_json_schema(rows)?).and_then(|()| writer.finish());
                outcome.map_err(CliError::columns)?;
                let written = writer.into_inner();
                let text = String::from_utf8_lossy(&written);
                // Put together as text: a decimal keeps the digits that it was written with.
                for (columns, offset) in text.lines().zip(first.0..) {
                    terminal.line(format_args!(
                        r#"{{"offset":{offset},"timestamp":"{time}","columns":{columns}}}"#
                    ))?;
                }
            }
            Self::Raw { .. } => {
                return Err(CliError::Usage(
                    "the stream's records are rows of columns, which have no bytes of their own: use --format json"
                        .into(),
                ));
            }
        }
        Ok(())
    }
}
