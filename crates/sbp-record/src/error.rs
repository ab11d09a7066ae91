//! What can be wrong with a batch, one enum for each direction.

use std::error::Error;

/// Boxed cause of an error, from a library that must not show in this crate's signatures.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why bytes are not a batch that this crate reads.
///
/// The bytes come from a peer or from a disk; nothing here is the caller's fault except [`BatchError::SchemaNeeded`]
/// and [`BatchError::TypedColumns`]. [`BatchError::kind`] sorts the reasons for the layers that answer with codes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The bytes end inside the batch.
    #[error("the batch ends early: {needed} bytes are needed for {part}, {available} are there")]
    Truncated {
        /// What was being read.
        part: &'static str,
        /// Bytes from the batch's start that it needs.
        needed: u64,
        /// Bytes that are there.
        available: u64,
    },
    /// The first byte is not the magic.
    #[error("no record batch begins here: its first byte is {0:#04x} instead of 0x22")]
    Magic(u8),
    /// A number in the head, or the length it describes, is impossible.
    #[error("{what} of the batch is impossible: {value}")]
    Value {
        /// The field or length.
        what: &'static str,
        /// What it says.
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
    /// The stored body does not have the checksum that the head tells.
    #[error("the checksum of the body is {actual:#010x}, the head says {expected:#010x}")]
    Checksum {
        /// CRC-32C told by the head.
        expected: u32,
        /// CRC-32C of the stored bytes.
        actual: u32,
    },
    /// The writer's epoch or sequence is negative, or the sequence passes the end of the number.
    #[error("{what} {value} of writer with {count} records is out of bounds")]
    Sequence {
        /// The field.
        what: &'static str,
        /// What it says.
        value: i64,
        /// Records of the batch.
        count: i64,
    },
    /// The body breaks a rule of its encoding.
    #[error("the body of the batch is corrupt: {0}")]
    Body(String),
    /// The body cannot be decompressed to the length that the head tells.
    #[error("the body of the batch cannot be decompressed: {0}")]
    Decompress(#[source] Cause),
    /// A body encoding or a compression of a later revision, or one that this build leaves out.
    #[error("{what} {value} is not supported by this build")]
    Unsupported {
        /// "body encoding" or "compression".
        what: &'static str,
        /// Its number.
        value: i8,
    },
    /// The batch has columns, and the caller gave no schema, or one that has no such prefix.
    #[error("the batch has columns of the schema with fingerprint {fingerprint:#018x}, {given}")]
    SchemaNeeded {
        /// What the head tells.
        fingerprint: u64,
        /// What the caller gave, in words.
        given: &'static str,
    },
    /// Records were asked of a batch of columns, or columns of a batch of records.
    #[error("{0}")]
    TypedColumns(&'static str),
}

/// Which answer an unreadable batch deserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The bytes are wrong: BATCH_CORRUPT.
    Corrupt,
    /// The head is readable, but what it asks for is out of bounds: INVALID_REQUEST.
    Invalid,
    /// The batch does not fit the schema: SCHEMA_MISMATCH.
    Schema,
    /// The bytes may be right, this build cannot read them.
    Unsupported,
}

impl BatchError {
    /// Sorts the reason for layers that answer with codes.
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

    /// A corrupt body, with the rule that it breaks.
    pub(crate) fn body(rule: impl Into<String>) -> Self {
        Self::Body(rule.into())
    }
}

/// Why a batch cannot be written. Always the caller's data or options; nothing was written to the output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The batch would be larger than a server stores.
    #[error("a batch of {length} bytes is larger than a server stores ({limit} bytes)")]
    TooLarge {
        /// Bytes the batch, or the body before compression, would have.
        length: u64,
        /// The most it may have.
        limit: u64,
    },
    /// More records than a batch can count.
    #[error("{0} records do not fit into one batch")]
    TooManyRecords(u64),
    /// A batch of records needs at least one; only [`encode_empty`](crate::encode_empty) writes none.
    #[error("there are no records to encode")]
    NoRecords,
    /// The compression is not part of this build, or does not go with shared bodies.
    #[error("{0}")]
    Compression(String),
    /// The columns do not have the stream's schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Arrow refused the columns.
    #[error("the columns cannot be encoded: {0}")]
    Arrow(#[source] arrow_schema::ArrowError),
}

/// Why a schema, or a batch of columns, does not go with a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The bytes are no Arrow IPC schema message.
    #[error("the schema is unreadable: {0}")]
    Unreadable(String),
    /// A column has a type that streams do not carry.
    #[error("column {column}: {found} cannot be stored in a stream; {advice}")]
    Type {
        /// Path of the column, quoted; nested fields joined by dots.
        column: String,
        /// Its type, in Arrow's words.
        found: String,
        /// The cast to use, in pyarrow's words.
        advice: String,
    },
    /// The columns as a whole cannot be a schema: none, a name twice, nested too deep.
    #[error("{0}")]
    Shape(String),
    /// The data has a column that the stream has not, or did not have when its schema was read.
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
        /// What the stream has.
        expected: String,
        /// What the data has.
        found: String,
        /// What to do.
        advice: String,
    },
}
