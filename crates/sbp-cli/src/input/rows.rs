//! Rows of streams with a schema.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use bytes::BytesMut;
use sbp_client::{AppendOptions, Records};
use sbp_record::{StreamSchema, encode_arrow};
use sbp_types::StreamId;
use serde_json::value::RawValue;

use super::Lines;
use crate::json::{as_type, json_schema};

/// The member of a line of `sbp fetch --json` that holds the row.
const COLUMNS: &str = "columns";

/// A row for each line: a JSON object with the columns, or what `sbp fetch --json` writes of one.
pub(crate) struct RowLines {
    schema: StreamSchema,
    /// The columns as lines have them.
    written: Arc<Schema>,
    has_decimals: bool,
    rows: Vec<Vec<u8>>,
    bytes: usize,
}

impl RowLines {
    pub(crate) fn new(schema: StreamSchema) -> Self {
        let written = Arc::new(json_schema(schema.arrow()));
        let mut kinds = written.fields().iter().map(|field| field.data_type());
        Self {
            has_decimals: kinds.any(has_decimals),
            written,
            schema,
            rows: Vec::new(),
            bytes: 0,
        }
    }

    fn decoder(&self) -> Result<Decoder, ArrowError> {
        ReaderBuilder::new(Arc::clone(&self.written))
            .with_strict_mode(true)
            .with_batch_size(self.rows.len().max(1))
            .build_decoder()
    }

    /// The rows as columns.
    fn decode(&self, rows: &[Vec<u8>]) -> Result<RecordBatch, ArrowError> {
        let mut decoder = self.decoder()?;
        for row in rows {
            decoder.decode(row)?;
        }
        let columns = decoder.flush()?.ok_or(ArrowError::JsonError("no row".to_owned()))?;
        // With their own names again.
        let own = self.schema.arrow().fields();
        let named = columns.columns().iter().zip(own);
        let named: Result<Vec<_>, _> = named
            .map(|(column, field)| as_type(column, field.data_type()))
            .collect();
        let nullable = own.iter().map(|field| field.as_ref().clone().with_nullable(true));
        RecordBatch::try_new(Arc::new(Schema::new(nullable.collect::<Vec<_>>())), named?)
    }

    /// What is wrong with a row that has a number which its column would round.
    fn rounded(&self, row: &[u8]) -> Option<String> {
        let members: HashMap<String, &RawValue> = serde_json::from_slice(row).ok()?;
        let fields = self.written.fields().iter();
        fields.into_iter().find_map(|field| {
            let (number, kind) = rounded(field.data_type(), members.get(field.name())?)?;
            let name = field.name();
            Some(format!("column {name} holds {number}, which {kind} would round"))
        })
    }

    /// Why a row is refused, in words for who wrote it.
    fn explain(&self, row: &[u8], error: &ArrowError) -> String {
        let schema = self.schema.arrow();
        let members: HashMap<String, &RawValue> = serde_json::from_slice(row).unwrap_or_default();
        let mut renamed = schema.fields().iter().zip(self.written.fields());
        let bytes = renamed.find(|(own, written)| own.name() != written.name() && members.contains_key(own.name()));
        match bytes {
            Some((own, written)) => format!(
                "column {} holds bytes: write them in base 16, as {}",
                own.name(),
                written.name()
            ),
            None => error.to_string(),
        }
    }

    /// The row of a line.
    fn row<'a>(&self, line: &'a [u8]) -> Result<&'a [u8], String> {
        let members: HashMap<String, &RawValue> =
            serde_json::from_slice(line).map_err(|error| format!("no JSON object: {error}"))?;
        match members.get(COLUMNS) {
            Some(columns) if self.schema.arrow().column_with_name(COLUMNS).is_none() => Ok(columns.get().as_bytes()),
            _ => Ok(line),
        }
    }
}

/// Whether numbers with a fixed count of digits are in a type.
fn has_decimals(kind: &DataType) -> bool {
    match kind {
        DataType::Decimal128(..) => true,
        DataType::List(inner) | DataType::Map(inner, _) => has_decimals(inner.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_decimals(field.data_type())),
        _ => false,
    }
}

/// The first number in a value that has more digits than its type keeps, and that type.
fn rounded(kind: &DataType, value: &RawValue) -> Option<(String, String)> {
    let text = value.get();
    match kind {
        DataType::Decimal128(precision, scale) => {
            let number = text.trim_matches('"');
            let kind = || format!("decimal({precision},{scale})");
            (!keeps(number, *scale)).then(|| (number.to_owned(), kind()))
        }
        DataType::List(item) => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items.into_iter().find_map(|one| rounded(item.data_type(), one))
        }
        DataType::Struct(fields) => {
            let members: HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let of = |field: &Arc<Field>| rounded(field.data_type(), members.get(field.name())?);
            fields.iter().find_map(of)
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return None;
            };
            let values = pair.last()?.data_type();
            let members: HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            members.into_values().find_map(|one| rounded(values, one))
        }
        _ => None,
    }
}

/// Whether all digits of a number are kept that has so many behind the point. What is no number is looked at by others.
fn keeps(number: &str, scale: i8) -> bool {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let Ok(exponent) = exponent.parse::<i64>() else {
        return true;
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let last = match (fraction.trim_end_matches('0'), whole.trim_end_matches('0')) {
        ("", "" | "-" | "+") => return true,
        ("", rest) => length(rest) - length(whole),
        (fraction, _) => length(fraction),
    };
    last.saturating_sub(exponent) <= i64::from(scale)
}

impl Lines for RowLines {
    fn push(&mut self, line: &[u8]) -> Result<(), String> {
        let row = self.row(line)?.to_vec();
        if let Some(wrong) = self.has_decimals.then(|| self.rounded(&row)).flatten() {
            return Err(wrong);
        }
        self.bytes += row.len();
        self.rows.push(row);
        Ok(())
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, stream: StreamId, options: &AppendOptions) -> Result<Records, (usize, String)> {
        let columns = self.decode(&self.rows).map_err(|of_all| {
            let wrong = self
                .rows
                .iter()
                .map(|row| Some((row, self.decode(std::slice::from_ref(row)).err()?)));
            let first = wrong.enumerate().find_map(|(line, wrong)| Some((line, wrong?)));
            let of_all = (0, of_all.to_string());
            first.map_or(of_all, |(line, (row, error))| (line, self.explain(row, &error)))
        })?;
        let mut batch = BytesMut::new();
        encode_arrow(&options.encode_options(stream), &self.schema, &columns, &mut batch)
            .map_err(|error| (0, error.to_string()))?;
        let count = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.clear();
        self.bytes = 0;
        Ok(Records::Encoded {
            batch: batch.freeze(),
            count,
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, Schema};
    use sbp_record::StreamSchema;

    use super::{Lines, RowLines, keeps};

    fn lines(columns: &[(&str, DataType)]) -> RowLines {
        let fields = columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true));
        RowLines::new(StreamSchema::from_arrow(&Schema::new(fields.collect::<Vec<_>>())).unwrap())
    }

    #[test]
    fn a_row_is_an_object_or_what_was_fetched() {
        let mut rows = lines(&[("photo", DataType::Binary), ("price", DataType::Decimal128(10, 2))]);
        rows.push(br#"{"photo_hex": "ff00", "price": 1.50}"#).unwrap();
        rows.push(br#"{"offset": 7, "timestamp": "?", "columns": {"price": 2, "photo_hex": null}}"#)
            .unwrap();
        let columns = rows.decode(&rows.rows).unwrap();
        assert_eq!(columns.schema_ref().field(0).name(), "photo");
        assert_eq!((columns.num_rows(), columns.column(0).null_count()), (2, 1));
        assert!(
            rows.take(sbp_types::StreamId(1), &sbp_client::AppendOptions::default())
                .is_ok()
        );
        assert_eq!(rows.len(), 0);
    }

    #[test]
    fn bytes_under_their_own_name_are_told_how_to_be_written() {
        let mut rows = lines(&[("photo", DataType::Binary), ("price", DataType::Int32)]);
        rows.push(br#"{"price": 1}"#).unwrap();
        rows.push(br#"{"photo": null, "price": 2}"#).unwrap();
        let refused = rows.take(sbp_types::StreamId(1), &sbp_client::AppendOptions::default());
        let said = "column photo holds bytes: write them in base 16, as photo_hex".to_owned();
        assert_eq!(refused.err(), Some((1, said)));
    }

    #[test]
    fn a_number_that_would_be_rounded_is_refused() {
        for kept in [
            "0", "-0.00", "1.50", "1.500", "15e-1", "1500e-3", "0.1e1", "2", "much", "null", "120",
        ] {
            assert!(keeps(kept, 2), "{kept}");
        }
        for lost in ["1.505", "-0.001", "1e-3", "1505e-3", "1.5051e1"] {
            assert!(!keeps(lost, 2), "{lost}");
        }
        assert!(keeps("1200", -2) && !keeps("1250", -2));
        let prices = DataType::new_list(DataType::Decimal128(10, 2), true);
        let mut rows = lines(&[("price", DataType::Decimal128(10, 2)), ("prices", prices)]);
        let refused = rows.push(br#"{"price": 1.505}"#);
        let said = "column price holds 1.505, which decimal(10,2) would round".to_owned();
        assert_eq!(refused, Err(said));
        let refused = rows
            .push(br#"{"price": 1.50, "prices": [1, null, "1.001"]}"#)
            .unwrap_err();
        assert!(refused.contains("column prices holds 1.001"), "{refused}");
        assert_eq!(rows.len(), 0);
        rows.push(br#"{"price": null, "prices": [1.10]}"#).unwrap();
    }

    #[test]
    fn a_column_may_be_called_columns() {
        let mut rows = lines(&[("columns", DataType::Utf8)]);
        rows.push(br#"{"columns": "x"}"#).unwrap();
        assert_eq!(rows.decode(&rows.rows).unwrap().num_rows(), 1);
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        let mut rows = lines(&[("delay", DataType::Int32)]);
        for line in [
            r#"{"delay": 1}"#,
            r#"{"delay": 2}"#,
            r#"{"delay": "late"}"#,
            r#"{"delay": 4}"#,
        ] {
            rows.push(line.as_bytes()).unwrap();
        }
        let (line, said) = rows
            .take(sbp_types::StreamId(1), &sbp_client::AppendOptions::default())
            .unwrap_err();
        assert_eq!(line, 2);
        assert!(said.contains("late") || said.contains("delay"), "{said}");
        let mut rows = lines(&[("delay", DataType::Int32)]);
        rows.push(br#"{"delya": 1}"#).unwrap();
        let (_, said) = rows
            .take(sbp_types::StreamId(1), &sbp_client::AppendOptions::default())
            .unwrap_err();
        assert!(said.contains("delya"), "{said}");
        assert!(rows.push(b"delay").unwrap_err().contains("no JSON object"));
    }
}
