//! Column sets: the columns that a reader can ask for, in types that Spark accepts.

use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::SchemaError;
use crate::schema::{StreamSchema, UTC};

/// The source of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Stream,
    StreamId,
    Offset,
    Timestamp,
    Key,
    Value,
    Headers,
    /// Always 0: streams have no partitions.
    Partition,
    /// Always 0, which means that the time was set by the writer.
    TimestampType,
    /// A column of the stream's schema, by its index there.
    Typed(usize),
}

impl Column {
    fn data_type(self) -> DataType {
        match self {
            Self::Stream => DataType::Utf8,
            Self::StreamId | Self::Offset => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            Self::Key | Self::Value => DataType::Binary,
            Self::Headers => DataType::List(header_item()),
            Self::Partition | Self::TimestampType => DataType::Int32,
            Self::Typed(_) => DataType::Null,
        }
    }
}

/// The item of the headers column: `struct<key: string, value: binary>`.
pub(crate) fn header_item() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(header_fields()), true))
}

pub(crate) fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

/// The columns that a reader wants, in its order.
///
/// Every column is nullable, even those that never have a null, because Spark's own schemas are and it compares them.
/// Types are those that Spark accepts without a cast: `string`, `binary`, `int64`, `int32`, `timestamp[us, UTC]` and
/// `list<struct<key: string, value: binary>>`. The only exception is inside maps, where Arrow allows no null keys and
/// entries.
#[derive(Clone, Debug)]
pub struct ColumnSet {
    columns: Vec<Column>,
    schema: SchemaRef,
    typed: Option<StreamSchema>,
}

impl ColumnSet {
    /// `stream, stream_id, offset, timestamp, key, value`, and `headers` if asked for.
    #[must_use]
    pub fn records(include_headers: bool) -> Self {
        let mut columns = vec![
            ("stream", Column::Stream),
            ("stream_id", Column::StreamId),
            ("offset", Column::Offset),
            ("timestamp", Column::Timestamp),
            ("key", Column::Key),
            ("value", Column::Value),
        ];
        columns.extend(include_headers.then_some(("headers", Column::Headers)));
        Self::of(&columns)
    }

    /// The columns of Spark's Kafka source: `key, value, topic, partition, offset, timestamp, timestampType`, and
    /// `headers` when asked for. The topic is the stream's name; partition and timestamp type are 0.
    #[must_use]
    pub fn kafka(include_headers: bool) -> Self {
        let mut columns = vec![
            ("key", Column::Key),
            ("value", Column::Value),
            ("topic", Column::Stream),
            ("partition", Column::Partition),
            ("offset", Column::Offset),
            ("timestamp", Column::Timestamp),
            ("timestampType", Column::TimestampType),
        ];
        columns.extend(include_headers.then_some(("headers", Column::Headers)));
        Self::of(&columns)
    }

    /// The typed columns of streams with `schema`, and `_stream, _offset, _timestamp` when asked for.
    ///
    /// # Errors
    /// The stream's own schema has a column with one of these three names.
    pub fn arrow(schema: &StreamSchema, include_metadata: bool) -> Result<Self, SchemaError> {
        let mut fields = schema.spark_fields();
        let mut columns: Vec<Column> = (0..fields.len()).map(Column::Typed).collect();
        if include_metadata {
            let metadata = [
                ("_stream", Column::Stream),
                ("_offset", Column::Offset),
                ("_timestamp", Column::Timestamp),
            ];
            for (name, column) in metadata {
                if fields.iter().any(|field| field.name() == name) {
                    return Err(SchemaError::Shape(format!(
                        "the stream has a column \"{name}\" itself; read it without metadata columns"
                    )));
                }
                fields.push(Arc::new(Field::new(name, column.data_type(), true)));
                columns.push(column);
            }
        }
        Ok(Self {
            columns,
            schema: Arc::new(Schema::new(fields)),
            typed: Some(schema.clone()),
        })
    }

    /// Only the named columns, in this order. Other columns are not decoded.
    ///
    /// # Errors
    /// A name is not in this set, or is given twice.
    pub fn project<S: AsRef<str>>(&self, names: &[S]) -> Result<Self, SchemaError> {
        let mut columns = Vec::with_capacity(names.len());
        let mut fields: Vec<Arc<Field>> = Vec::with_capacity(names.len());
        for name in names.iter().map(AsRef::as_ref) {
            let have = self
                .schema
                .fields()
                .iter()
                .zip(&self.columns)
                .find(|(field, _)| field.name() == name);
            let Some((field, column)) = have else {
                let known: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Err(SchemaError::Shape(format!(
                    "there is no column \"{name}\"; there are {}",
                    known.join(", ")
                )));
            };
            if fields.iter().any(|field| field.name() == name) {
                return Err(SchemaError::Shape(format!("column \"{name}\" is asked for twice")));
            }
            fields.push(Arc::clone(field));
            columns.push(*column);
        }
        Ok(Self {
            columns,
            schema: Arc::new(Schema::new(fields)),
            typed: self.typed.clone(),
        })
    }

    /// The Arrow schema of the record batches with these columns.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The schema that batches must be decoded with; `None` for sets of records.
    #[must_use]
    pub fn stream_schema(&self) -> Option<&StreamSchema> {
        self.typed.as_ref()
    }

    pub(crate) fn has(&self, column: Column) -> bool {
        self.columns.contains(&column)
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn of(columns: &[(&str, Column)]) -> Self {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.data_type(), true))
            .collect();
        Self {
            columns: columns.iter().map(|(_, column)| *column).collect(),
            schema: Arc::new(Schema::new(fields)),
            typed: None,
        }
    }
}

/// The columns of a single batch of records: `offset, timestamp, key, value, headers`.
pub(crate) fn plain_columns() -> &'static ColumnSet {
    static SET: OnceLock<ColumnSet> = OnceLock::new();
    SET.get_or_init(|| {
        ColumnSet::of(&[
            ("offset", Column::Offset),
            ("timestamp", Column::Timestamp),
            ("key", Column::Key),
            ("value", Column::Value),
            ("headers", Column::Headers),
        ])
    })
}
