//! What goes wrong with a broker.

use std::fmt;

use sbp_tank::{CloseReason, Fault, Violation};

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

    /// What bytes that cannot be read are.
    fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::TooLong { .. } | Fault::Count { .. } => Self::Limit,
            Fault::Compression => Self::Compression,
            _ => Self::Framing,
        }
    }

    /// What has ended a connection.
    pub(super) fn of_close(reason: &CloseReason) -> Self {
        match reason {
            CloseReason::Violation(Violation::Content { fault, .. }) => Self::of_fault(*fault),
            CloseReason::Violation(_) => Self::Peer,
            _ => Self::Lost,
        }
    }
}

/// Messages that a reader wanted and that the broker does not keep any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The partition.
    pub partition: u16,
    /// The first number that is missing.
    pub from: u64,
    /// The first number that is kept, or the end of what is read if that comes before.
    pub to: u64,
}

/// An error of a call: what happened, where, and whether it may have been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TankError(Box<Details>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    kind: TankErrorKind,
    what: String,
    topic: Option<String>,
    partition: Option<u16>,
    sequence: Option<u64>,
    endpoint: Option<String>,
    is_certain: bool,
    is_retriable: bool,
    gap: Option<Gap>,
}

impl TankError {
    /// An error of a call that has changed nothing.
    pub(super) fn new(kind: TankErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Details {
            kind,
            what: what.into(),
            topic: None,
            partition: None,
            sequence: None,
            endpoint: None,
            is_certain: true,
            is_retriable: kind == TankErrorKind::Lost,
            gap: None,
        }))
    }

    /// The same, where the call may have been carried out.
    pub(super) fn perhaps_done(mut self) -> Self {
        self.0.is_certain = false;
        self.0.is_retriable = false;
        self
    }

    /// The same, where the broker may do it a little later.
    pub(super) fn for_now(mut self) -> Self {
        self.0.is_retriable = true;
        self
    }

    /// The same, where trying again does not help.
    pub(super) fn for_good(mut self) -> Self {
        self.0.is_retriable = false;
        self
    }

    /// Says what it is about, where the error does not say it yet.
    pub(super) fn about(mut self, topic: &str, partition: Option<u16>) -> Self {
        self.0.topic.get_or_insert_with(|| topic.to_owned());
        self.0.partition = self.0.partition.or(partition);
        self
    }

    /// Says which message it is about, where the error does not say it yet.
    pub(super) fn with_sequence(mut self, sequence: u64) -> Self {
        self.0.sequence.get_or_insert(sequence);
        self
    }

    /// Says which broker was asked, where the error does not say it yet.
    pub(super) fn at(mut self, endpoint: String) -> Self {
        self.0.endpoint.get_or_insert(endpoint);
        self
    }

    /// Says which messages are gone.
    pub(super) fn with_gap(mut self, gap: Gap) -> Self {
        self.0.gap = Some(gap);
        self
    }

    /// Something of this side's that does not fit into what the protocol has room for.
    #[must_use]
    pub fn of_limit(what: String) -> Self {
        Self::new(TankErrorKind::Limit, what)
    }

    /// Bytes of the broker that cannot be read.
    pub(super) fn of_fault(what: &str, fault: Fault) -> Self {
        Self::new(
            TankErrorKind::of_fault(fault),
            format!("{what} cannot be read: {fault}"),
        )
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> TankErrorKind {
        self.0.kind
    }

    /// Its number, from 9301 on.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.0.kind.code()
    }

    /// What happened, in words, without the place.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Whether it is certain that the call has changed nothing.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.0.is_certain
    }

    /// Whether the same call may succeed later without anything being changed.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        self.0.is_retriable
    }

    /// What it is about: a topic, or `topic/partition`.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let topic = self.0.topic.as_ref()?;
        Some(match self.0.partition {
            Some(partition) => format!("{topic}/{partition}"),
            None => topic.clone(),
        })
    }

    /// The message concerned, if it is one.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.0.sequence
    }

    /// The address of the broker that was asked last.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.0.endpoint.as_deref()
    }

    /// The messages that are gone, where that is the error.
    #[must_use]
    pub fn gap(&self) -> Option<Gap> {
        self.0.gap
    }
}

impl fmt::Display for TankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        if let Some(place) = self.place() {
            write!(f, "; {place}")?;
        }
        if let Some(sequence) = self.0.sequence {
            write!(f, ", message {sequence}")?;
        }
        if let Some(endpoint) = &self.0.endpoint {
            write!(f, "; broker {endpoint}")?;
        }
        f.write_str(match (self.0.is_certain, self.0.is_retriable) {
            (false, _) => "; whether it was done is not known",
            (true, true) => "; can be tried again",
            (true, false) => "",
        })
    }
}

impl std::error::Error for TankError {}
