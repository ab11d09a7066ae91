//! What goes wrong with a broker.

use sbp_tank::Fault;
use thiserror::Error;

/// What kind of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TankErrorKind {
    /// The broker's bytes are not those of the protocol.
    Framing,
    /// Something is longer than it may be.
    Limit,
    /// The compressed part of a bundle is damaged.
    Compression,
    /// The broker answers what it should not.
    Peer,
    /// The broker does not do what was asked.
    Refused,
    /// There is no connection, or it was lost, or the time was over.
    Lost,
    /// There is no such topic or partition.
    UnknownName,
    /// A position is not between a partition's first message and its end.
    OutOfRange,
}

impl TankErrorKind {
    /// Its number.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Framing => 9301,
            Self::Limit => 9302,
            Self::Compression => 9303,
            Self::Peer => 9304,
            Self::Refused => 9305,
            Self::Lost => 9306,
            Self::UnknownName => 9307,
            Self::OutOfRange => 9308,
        }
    }
}

/// An error of a call, in words: what happened, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TankError {
    kind: TankErrorKind,
    message: String,
    is_certain: bool,
}

impl TankError {
    /// An error of a call that has changed nothing.
    pub(super) fn new(kind: TankErrorKind, message: String) -> Self {
        Self {
            kind,
            message,
            is_certain: true,
        }
    }

    /// The same, where the call may have been carried out.
    pub(super) fn perhaps_done(self) -> Self {
        Self {
            is_certain: false,
            message: format!("{}; whether it was done is not known", self.message),
            ..self
        }
    }

    /// Bytes of the broker that cannot be read.
    pub(super) fn of_fault(place: &str, fault: Fault) -> Self {
        let kind = match fault {
            Fault::TooLong { .. } | Fault::Count { .. } => TankErrorKind::Limit,
            Fault::Compression => TankErrorKind::Compression,
            _ => TankErrorKind::Framing,
        };
        Self::new(kind, format!("{place} cannot be read: {fault}"))
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> TankErrorKind {
        self.kind
    }

    /// Its number, from 9301 on.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.kind.code()
    }

    /// Whether it is certain that the call has changed nothing.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.is_certain
    }
}
