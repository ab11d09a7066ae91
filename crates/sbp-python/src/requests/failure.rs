//! Why a request failed, and the exception that it becomes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use sbp_client::{ClientError, PeerOutcome, codes};
use sbp_messages::ErrorCode;
use sbp_peers::pravega::{PravegaError, PravegaErrorKind};
use sbp_peers::seastar::{SeastarError, SeastarErrorKind};
use sbp_peers::tank::{TankError, TankErrorKind};
use sbp_record::{BatchError, SchemaError};
use sbp_types::Offset;

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

impl From<PravegaError> for Failure {
    fn from(error: PravegaError) -> Self {
        let code = match error.kind() {
            PravegaErrorKind::Framing => codes::PRAVEGA_FRAMING,
            PravegaErrorKind::Limit => codes::PRAVEGA_LIMIT,
            PravegaErrorKind::Refused => codes::PRAVEGA_REFUSED,
            PravegaErrorKind::Lost => codes::PRAVEGA_LOST,
            PravegaErrorKind::UnknownName => codes::PRAVEGA_UNKNOWN_NAME,
            PravegaErrorKind::OutOfRange => codes::PRAVEGA_OUT_OF_RANGE,
            _ => codes::PRAVEGA_PEER,
        };
        let outcome = outcome_of(error.is_certain(), error.is_retriable());
        let mut told = ClientError::of_peer(code, error.what(), outcome, error.endpoint());
        if let Some(place) = error.place() {
            told = told.with_stream_name(place);
        }
        if let Some(offset) = error.offset() {
            told = told.with_offset(Offset(offset));
        }
        Self::Client(told)
    }
}

impl From<TankError> for Failure {
    fn from(error: TankError) -> Self {
        let outcome = outcome_of(error.is_certain(), error.is_retriable());
        let mut told = ClientError::of_peer(code_of(error.kind()), error.what(), outcome, error.endpoint());
        if let Some(place) = error.place() {
            told = told.with_stream_name(&place);
        }
        if let Some(sequence) = error.sequence().and_then(|sequence| i64::try_from(sequence).ok()) {
            told = told.with_offset(Offset(sequence));
        }
        Self::Client(told)
    }
}

impl From<SeastarError> for Failure {
    fn from(error: SeastarError) -> Self {
        // Handlers of our own servers say what became of the call.
        let said = error.verb().filter(|_| error.kind() == SeastarErrorKind::Refused);
        let said = said.and_then(|verb| sbp_gateway::seastar::outcome(verb, error.what()));
        let outcome = said.unwrap_or_else(|| outcome_of(error.is_certain(), error.is_retriable()));
        let what = match error.verb() {
            Some(verb) => format!("{} (verb {verb})", error.what()),
            None => error.what().to_owned(),
        };
        let code = match (error.is_timeout(), error.is_certain()) {
            (true, true) => codes::DEADLINE_BEFORE_SEND,
            (true, false) => codes::DEADLINE_AFTER_SEND,
            (false, _) => code_of_seastar(error.kind()),
        };
        Self::Client(ClientError::of_peer(code, what, outcome, error.endpoint()))
    }
}

/// What is known of a call that has failed.
fn outcome_of(is_certain: bool, is_retriable: bool) -> PeerOutcome {
    match (is_certain, is_retriable) {
        (false, _) => PeerOutcome::Unknown,
        (true, true) => PeerOutcome::RefusedForNow,
        (true, false) => PeerOutcome::Refused,
    }
}

/// The number of an error of a Seastar RPC peer, which has a row in the table of all.
fn code_of_seastar(kind: SeastarErrorKind) -> ErrorCode {
    match kind {
        SeastarErrorKind::Framing => codes::SEASTAR_FRAMING,
        SeastarErrorKind::Limit => codes::SEASTAR_LIMIT,
        SeastarErrorKind::Compression => codes::SEASTAR_COMPRESSION,
        SeastarErrorKind::Refused => codes::SEASTAR_REFUSED,
        SeastarErrorKind::Lost => codes::SEASTAR_LOST,
        SeastarErrorKind::UnknownVerb => codes::SEASTAR_UNKNOWN_VERB,
        SeastarErrorKind::OutOfRange => codes::SEASTAR_OUT_OF_RANGE,
        _ => codes::SEASTAR_PEER,
    }
}

/// The number of an error of a TANK broker, which has a row in the table of all.
fn code_of(kind: TankErrorKind) -> ErrorCode {
    match kind {
        TankErrorKind::Framing => codes::TANK_FRAMING,
        TankErrorKind::Limit => codes::TANK_LIMIT,
        TankErrorKind::Compression => codes::TANK_COMPRESSION,
        TankErrorKind::Refused => codes::TANK_REFUSED,
        TankErrorKind::Lost => codes::TANK_LOST,
        TankErrorKind::UnknownName => codes::TANK_UNKNOWN_NAME,
        TankErrorKind::OutOfRange => codes::TANK_OUT_OF_RANGE,
        _ => codes::TANK_PEER,
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
