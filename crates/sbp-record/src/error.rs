//! The errors of reading, writing and schemas.

use std::error::Error;

use arrow_schema::ArrowError;

/// The cause of an error, boxed so that the library it is from is not part of this crate's signatures.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why bytes cannot be read as a batch.
///
/// The bytes come from a peer or from a disk, so only [`BatchError::SchemaNeeded`] and [`BatchError::TypedColumns`] are
/// errors of the caller. [`BatchError::kind`] classifies the errors for layers that answer with codes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The bytes end inside the batch.
    #[error("the batch ends early: {needed} bytes are needed for {part}, {available} are there")]
    Truncated {
        /// The part that was being read.
        part: &'static str,
        /// The bytes needed, from the start of the batch.
        needed: u64,
        /// The bytes available.
        available: u64,
    },
    /// The first byte is not [`BATCH_MAGIC`](crate::BATCH_MAGIC).
    #[error("no record batch begins here: its first byte is {0:#04x} instead of 0x22")]
    Magic(u8),
    /// A number in the head, or the length it describes, is impossible.
    #[error("{what} of the batch is impossible: {value}")]
    Value {
        /// The field or length.
        what: &'static str,
        /// Its value.
        value: i64,
    },
    /// The metadata is no valid FlatBuffers table, or larger than a reader allows.
    #[error("the metadata of the batch is unreadable: {0}")]
    Meta(#[source] Cause),
    /// The bytes after the body are not fewer than 16 zeros.
    #[error("{length} bytes follow the body of the batch, which are not its padding")]
    Padding {
        /// Bytes between the end of the body and the end of the batch.
        length: u64,
    },
    /// The stored body does not have the checksum that the head states.
    #[error("the checksum of the body is {actual:#010x}, the head says {expected:#010x}")]
    Checksum {
        /// The CRC-32C that the head states.
        expected: u32,
        /// CRC-32C of the stored bytes.
        actual: u32,
    },
    /// The writer's epoch or sequence is negative, or the sequence overflows.
    #[error("{what} {value} of writer with {count} records is out of bounds")]
    Sequence {
        /// The field.
        what: &'static str,
        /// Its value.
        value: i64,
        /// The number of records in the batch.
        count: i64,
    },
    /// The body breaks a rule of its encoding.
    #[error("the body of the batch is corrupt: {0}")]
    Body(String),
    /// The body cannot be decompressed to the length that the head states.
    #[error("the body of the batch cannot be decompressed: {0}")]
    Decompress(#[source] Cause),
    /// A body encoding or a compression of a later revision, or one that this build does not include.
    #[error("{what} {value} is not supported by this build")]
    Unsupported {
        /// "body encoding" or "compression".
        what: &'static str,
        /// Its number.
        value: i8,
    },
    /// The batch has typed columns, and the caller gave no schema, or one that does not begin with these columns.
    #[error("the batch has columns of the schema with fingerprint {fingerprint:#018x}, {given}")]
    SchemaNeeded {
        /// The fingerprint that the head states.
        fingerprint: u64,
        /// What the caller gave, as text.
        given: &'static str,
    },
    /// Records were requested from a batch of typed columns, or columns from a batch of records.
    #[error("{0}")]
    TypedColumns(&'static str),
}

/// The kind of an error, which decides the error code of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The bytes are wrong: BATCH_CORRUPT.
    Corrupt,
    /// The head can be read, but a number in it is out of bounds: INVALID_REQUEST.
    Invalid,
    /// The batch does not fit the schema: SCHEMA_MISMATCH.
    Schema,
    /// The bytes may be right, but this build cannot read them.
    Unsupported,
}

impl SchemaError {
    /// A column, by its path, that differs from the stream's.
    pub(crate) fn column(
        path: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::Column {
            column: format!("\"{path}\""),
            expected: expected.into(),
            found: found.into(),
            advice: advice.into(),
        }
    }
}

impl BatchError {
    /// Classifies the error for layers that answer with codes.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Truncated { .. }
            | Self::Magic(_)
            | Self::Value { .. }
            | Self::Meta(_)
            | Self::Padding { .. }
            | Self::Checksum { .. }
            | Self::Body(_)
            | Self::Decompress(_) => FaultKind::Corrupt,
            Self::Sequence { .. } => FaultKind::Invalid,
            Self::SchemaNeeded { .. } | Self::TypedColumns(_) => FaultKind::Schema,
            Self::Unsupported { .. } => FaultKind::Unsupported,
        }
    }

    /// A corrupt body that breaks this rule.
    pub(crate) fn body(rule: impl Into<String>) -> Self {
        Self::Body(rule.into())
    }

    /// An impossible number in the head.
    pub(crate) fn value(what: &'static str, value: impl Into<i64>) -> Self {
        let value = value.into();
        Self::Value { what, value }
    }
}

impl From<ArrowError> for BatchError {
    fn from(error: ArrowError) -> Self {
        Self::body(error.to_string())
    }
}

/// Why a batch cannot be written. The cause is always the caller's data or options; nothing was written to the output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The batch would be larger than a server stores.
    #[error("a batch of {length} bytes is larger than a server stores ({limit} bytes)")]
    TooLarge {
        /// The bytes that the batch, or its body before compression, would have.
        length: u64,
        /// The most bytes allowed.
        limit: u64,
    },
    /// More records than a batch can count.
    #[error("{0} records do not fit into one batch")]
    TooManyRecords(u64),
    /// There is no record. Only [`encode_empty`](crate::encode_empty) writes a batch without records.
    #[error("there are no records to encode")]
    NoRecords,
    /// The compression is not part of this build, or cannot be used for a body sent by reference.
    #[error("{0}")]
    Compression(String),
    /// The columns do not have the stream's schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Arrow refused the columns.
    #[error("the columns cannot be encoded: {0}")]
    Arrow(#[source] ArrowError),
}

/// Why a schema, or a batch of columns, does not match a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The bytes are not an Arrow IPC schema message.
    #[error("the schema is unreadable: {0}")]
    Unreadable(String),
    /// A column has a type that streams cannot store.
    #[error("column {column}: {found} cannot be stored in a stream; {advice}")]
    Type {
        /// Path of the column, quoted; nested fields joined by dots.
        column: String,
        /// Its type, as Arrow calls it.
        found: String,
        /// The cast to use, as pyarrow calls it.
        advice: String,
    },
    /// The columns as a whole are not a valid schema: there are none, a name is used twice, or they are nested too
    /// deep.
    #[error("{0}")]
    Shape(String),
    /// The data has a column that the stream does not have, or did not have when its schema was read.
    #[error("{what}")]
    UnknownColumn {
        /// The column's name.
        column: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A batch's columns differ from the stream's.
    #[error("column {column}: {expected} is wanted, the data has {found}; {advice}")]
    Column {
        /// Path of the column, quoted.
        column: String,
        /// The type of the stream's column.
        expected: String,
        /// The type in the data.
        found: String,
        /// What to do.
        advice: String,
    },
}
