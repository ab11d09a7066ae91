//! The schema of a stream: its typed columns, their canonical form, and which batches match it.

mod canonical;
mod fit;
mod ipc;
mod types;
mod words;

use std::sync::Arc;

use arrow_schema::{Field, Fields, Schema, SchemaRef};

use crate::error::SchemaError;
pub(crate) use fit::{mismatch, unknown_column};
pub(crate) use types::{UTC, children, path_of, same_layout};
pub(crate) use words::words;

/// The deepest nesting of columns.
const MAX_DEPTH: usize = 16;
/// The most fields of a schema, including nested ones.
const MAX_FIELDS: usize = 4_096;

/// The typed columns of a stream. Cheap to clone.
///
/// Only types that Spark can read are allowed. Schemas are equal when their canonical forms are; metadata of schema and
/// fields is dropped and does not matter.
#[derive(Clone, Debug)]
pub struct StreamSchema {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    arrow: SchemaRef,
    canonical: Vec<u8>,
    /// The fingerprints of the first column, the first two, and so on up to all.
    prefixes: Vec<u64>,
}

impl StreamSchema {
    /// Takes the schema of Arrow data.
    ///
    /// # Errors
    /// A column has a type that streams cannot store (the error names the cast to use), there are no columns, two have
    /// the same name, or they are nested too deep.
    pub fn from_arrow(schema: &Schema) -> Result<Self, SchemaError> {
        let fields = schema.fields();
        let mut budget = MAX_FIELDS;
        types::check_names("the schema", fields)?;
        for field in fields {
            types::check_field(field, field.name(), MAX_DEPTH, &mut budget)?;
        }
        let plain: Fields = fields
            .iter()
            .map(|field| Arc::new(types::without_metadata(field)))
            .collect();
        let (canonical, prefixes) = canonical::encode(&plain);
        Ok(Self {
            inner: Arc::new(Inner {
                arrow: Arc::new(Schema::new(plain)),
                canonical,
                prefixes,
            }),
        })
    }

    /// Reads an Arrow IPC schema message, with or without the continuation marker before it.
    ///
    /// # Errors
    /// The bytes are not such a message, or [`StreamSchema::from_arrow`] refuses the schema.
    pub fn from_ipc(message: &[u8]) -> Result<Self, SchemaError> {
        Self::from_arrow(&ipc::read(message)?)
    }

    /// The schema as an encapsulated Arrow IPC schema message, as CREATE_STREAMS carries it.
    #[must_use]
    pub fn to_ipc(&self) -> Vec<u8> {
        ipc::write(&self.inner.arrow)
    }

    /// The canonical form: schemas are equal when these bytes are.
    #[must_use]
    pub fn canonical(&self) -> &[u8] {
        &self.inner.canonical
    }

    /// The first 8 bytes, big-endian, of the canonical form's SHA-256.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.inner.prefixes.last().copied().unwrap_or_default()
    }

    /// Whether this is `older`, or `older` with nullable columns added at the end.
    #[must_use]
    pub fn is_extension_of(&self, older: &Self) -> bool {
        self.inner.canonical.starts_with(&older.inner.canonical) && self.rest_is_nullable(older.column_count())
    }

    /// Whether one of the two schemas extends the other, so that both can be schemas of one stream at different times.
    #[must_use]
    pub fn goes_with(&self, other: &Self) -> bool {
        self.is_extension_of(other) || other.is_extension_of(self)
    }

    /// The number of columns in a batch with this fingerprint: the stream's first ones; the others are read as nulls.
    ///
    /// `None`: the batch does not match this schema.
    #[must_use]
    pub fn prefix_with_fingerprint(&self, fingerprint: u64) -> Option<usize> {
        let last = self.inner.prefixes.iter().rposition(|&prefix| prefix == fingerprint)?;
        let columns = last.checked_add(1)?;
        self.rest_is_nullable(columns).then_some(columns)
    }

    /// Every fingerprint that a batch for this schema may have, beginning with that of all columns.
    pub fn accepted_fingerprints(&self) -> impl Iterator<Item = u64> + '_ {
        (1..=self.column_count())
            .rev()
            .map_while(|columns| self.fingerprint_of_prefix(columns))
    }

    /// The fingerprint of the first `columns` columns; `None` if a batch of only these does not match the schema.
    pub(crate) fn fingerprint_of_prefix(&self, columns: usize) -> Option<u64> {
        let fingerprint = self.inner.prefixes.get(columns.checked_sub(1)?).copied()?;
        self.rest_is_nullable(columns).then_some(fingerprint)
    }

    /// The Arrow schema, without metadata.
    #[must_use]
    pub fn arrow(&self) -> &SchemaRef {
        &self.inner.arrow
    }

    /// The number of columns, at least one.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.inner.arrow.fields().len()
    }

    /// The columns with Spark's names and types: all nullable, also nested ones, with Spark's names for the children of
    /// lists and maps. The values are the same.
    #[must_use]
    pub fn spark_fields(&self) -> Vec<Arc<Field>> {
        self.inner
            .arrow
            .fields()
            .iter()
            .map(|field| types::for_spark(field))
            .collect()
    }

    fn rest_is_nullable(&self, from: usize) -> bool {
        self.inner
            .arrow
            .fields()
            .iter()
            .skip(from)
            .all(|field| field.is_nullable())
    }
}

impl PartialEq for StreamSchema {
    fn eq(&self, other: &Self) -> bool {
        self.inner.canonical == other.inner.canonical
    }
}

impl Eq for StreamSchema {}

#[cfg(test)]
mod tests;
