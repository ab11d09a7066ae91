//! Why a request failed, and the exception that it becomes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use sbp_client::{ClientError, codes};
use sbp_record::{BatchError, SchemaError};

use super::key::Key;
use crate::errors;

/// Why a call failed: the client's reason, or something wrong with what it was given or got.
pub(crate) enum Failure {
    Client(ClientError),
    /// The same, about a stream whose name the caller used.
    Named(ClientError, Option<Arc<str>>),
    /// A tail had nothing to return for so long.
    NothingCame(Duration),
    /// A stream of this name exists already.
    Exists(String),
    /// Received data cannot be read.
    Corrupt(String),
}

impl Failure {
    /// Says which stream the call was about, where the error does not say it.
    pub(super) fn about(self, key: &Key) -> Self {
        match (self, key) {
            (Self::Client(error), Key::Name(name)) => Self::Client(error.with_stream_name(name)),
            (Self::Client(error), Key::Id(id)) => Self::Client(error.with_stream(*id)),
            (Self::Client(error), Key::Known(known)) => {
                Self::Client(error.with_stream(known.stream.stream_id).with_stream_name(&known.name))
            }
            (other, _) => other,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl Failure {
    /// The exception it becomes.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Client(error) => errors::from_client(py, error, None),
            Self::Named(error, name) => errors::from_client(py, error, name.as_deref()),
            Self::NothingCame(limit) => errors::nothing_came(py, limit),
            Self::Exists(name) => errors::already_exists(py, &name),
            Self::Corrupt(what) => errors::corrupt(py, &what),
        }
    }
}

/// The text of the exception it becomes, for where only text goes.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) | Self::Named(error, _) => error.fmt(f),
            Self::NothingCame(limit) => write!(f, "nothing was appended for {limit:?}"),
            Self::Exists(name) => write!(f, "stream {name} exists already"),
            Self::Corrupt(what) => ClientError::local(codes::CORRUPT_ON_ARRIVAL, what).fmt(f),
        }
    }
}
