//! Records of streams without a schema.

use sbp_client::{AppendOptions, Records};
use sbp_record::RecordsBuilder;
use sbp_types::StreamId;
use serde_json::{Map, Value};

use super::Lines;
use crate::json::{Headers, take_bytes, take_headers};
use crate::when::parse_time;

/// A record for each line, all with the same key and headers where lines do not bring their own.
pub(crate) struct RecordLines {
    json: bool,
    key: Option<Vec<u8>>,
    headers: Vec<(String, String)>,
    builder: RecordsBuilder,
}

/// What a JSON object says of a record.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    value: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    timestamp_us: Option<i64>,
    headers: Headers,
}

impl RecordLines {
    /// `json`: a line is a JSON object, not a value.
    pub(crate) fn new(json: bool, key: Option<String>, headers: Vec<(String, String)>) -> Self {
        Self {
            json,
            key: key.map(String::into_bytes),
            headers,
            builder: RecordsBuilder::new(),
        }
    }

    fn push_record(&mut self, said: &Said) -> Result<(), String> {
        let own = said
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()));
        let all = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), Some(value.as_bytes())));
        let headers: Vec<_> = all.chain(own).collect();
        let key = said.key.as_deref().or(self.key.as_deref());
        let pushed = self
            .builder
            .push(said.value.as_deref(), key, said.timestamp_us, &headers);
        pushed.map_err(|error| error.to_string())
    }
}

impl Lines for RecordLines {
    fn push(&mut self, line: &[u8]) -> Result<(), String> {
        let said = if self.json {
            read(line)?
        } else {
            Said {
                value: Some(line.to_vec()),
                ..Said::default()
            }
        };
        self.push_record(&said)
    }

    fn len(&self) -> usize {
        self.builder.len()
    }

    fn bytes(&self) -> usize {
        self.builder.body_length()
    }

    fn take(&mut self, _stream: StreamId, _options: &AppendOptions) -> Result<Records, (usize, String)> {
        Ok(std::mem::take(&mut self.builder).into())
    }
}

/// A record as `sbp fetch --json` writes it. Its offset is not looked at: the record gets a new one.
fn read(line: &[u8]) -> Result<Said, String> {
    let mut line: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("no JSON object: {error}"))?;
    let value = take_bytes(&mut line, "value")?.ok_or("a record needs \"value\", which may be null")?;
    let key = take_bytes(&mut line, "key")?.flatten();
    let timestamp_us = match line.remove("timestamp") {
        None => None,
        Some(Value::String(text)) => {
            let time = parse_time(&text)
                .ok_or_else(|| format!("{text:?} is no time; write for example 2026-01-31T10:00:00Z"))?;
            Some(time.0.saturating_mul(1_000))
        }
        Some(_) => return Err("\"timestamp\" is no text".to_owned()),
    };
    let headers = match line.remove("headers") {
        None => Vec::new(),
        Some(said) => take_headers(said)?,
    };
    line.remove("offset");
    match line.keys().next() {
        Some(other) => Err(format!(
            "records have no {other:?}: they have value, key, timestamp and headers"
        )),
        None => Ok(Said {
            value,
            key,
            timestamp_us,
            headers,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Said, read};

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let line = br#"{"offset": 7, "timestamp": "1970-01-01T00:00:01.500Z", "key": "k", "value_hex": "ff00",
            "headers": {"a": "b", "c_hex": "ff", "d": null, "e_hex_hex": "00"}}"#;
        let said = Said {
            value: Some(vec![0xff, 0]),
            key: Some(b"k".to_vec()),
            timestamp_us: Some(1_500_000),
            headers: vec![
                ("a".to_owned(), Some(b"b".to_vec())),
                ("c".to_owned(), Some(vec![0xff])),
                ("d".to_owned(), None),
                ("e_hex".to_owned(), Some(vec![0])),
            ],
        };
        assert_eq!(read(line), Ok(said));
        assert_eq!(read(br#"{"value": null}"#), Ok(Said::default()));
    }

    #[test]
    fn other_lines_are_refused_with_what_is_wrong() {
        for (line, wrong) in [
            (r#"{"value": 1}"#, "neither text nor null"),
            (r#"{"key": "k"}"#, "needs \"value\""),
            (r#"{"value": "v", "origin": "SFO"}"#, "\"origin\""),
            (r#"{"value": "v", "timestamp": "soon"}"#, "no time"),
            (r#"{"value": "v", "headers": 1}"#, "neither an object"),
            ("[1]", "no JSON object"),
            ("value", "no JSON object"),
        ] {
            let said = read(line.as_bytes()).unwrap_err();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
