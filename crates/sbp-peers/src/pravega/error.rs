//! What goes wrong with Pravega's servers.

use std::fmt;

use sbp_pravega::{CloseReason, Fault, Reply, Violation};

/// What kind of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PravegaErrorKind {
    /// A server's bytes are not those of the protocol, or a segment's no events.
    Framing,
    /// Something is longer than it may be.
    Limit,
    /// A server answers what it should not.
    Peer,
    /// A server does not do what was asked.
    Refused,
    /// There is no connection, or it was lost, or the time was over.
    Lost,
    /// There is no such scope, stream or segment.
    UnknownName,
    /// A position is not between a segment's beginning and its end.
    OutOfRange,
}

impl PravegaErrorKind {
    /// Its number.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Framing => 9501,
            Self::Limit => 9502,
            Self::Peer => 9504,
            Self::Refused => 9505,
            Self::Lost => 9506,
            Self::UnknownName => 9507,
            Self::OutOfRange => 9508,
        }
    }

    /// What bytes that cannot be read are.
    pub(super) fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::TooLong { .. } | Fault::Count { .. } => Self::Limit,
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

/// Bytes of a segment that a reader wanted and that the server does not keep any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first byte that is missing.
    pub from: i64,
    /// The first byte that is kept, or the end of what is read if that comes before.
    pub to: i64,
}

/// An error of a call: what happened, where, and whether it may have been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PravegaError(Box<Details>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    kind: PravegaErrorKind,
    what: String,
    place: Option<String>,
    offset: Option<i64>,
    endpoint: Option<String>,
    is_certain: bool,
    is_retriable: bool,
    is_late: bool,
    gap: Option<Gap>,
}

impl PravegaError {
    /// An error of a call that has changed nothing.
    pub(super) fn new(kind: PravegaErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Details {
            kind,
            what: what.into(),
            place: None,
            offset: None,
            endpoint: None,
            is_certain: true,
            is_retriable: kind == PravegaErrorKind::Lost,
            is_late: false,
            gap: None,
        }))
    }

    /// Bytes that cannot be read.
    pub(super) fn of_fault(what: &str, fault: Fault) -> Self {
        Self::new(
            PravegaErrorKind::of_fault(fault),
            format!("{what} cannot be read: {fault}"),
        )
    }

    /// What a server answers where something went wrong, or where it answers something else than it should.
    pub(super) fn of_reply(reply: &Reply) -> Self {
        let (kind, what) = match reply {
            Reply::WrongHost { host, .. } if host.is_empty() => (
                PravegaErrorKind::Refused,
                String::from("another server has the segment"),
            ),
            Reply::WrongHost { host, .. } => (
                PravegaErrorKind::Refused,
                format!("the server at {host} has the segment, and not this one"),
            ),
            Reply::IsSealed { .. } => (PravegaErrorKind::Refused, String::from("the segment is sealed")),
            Reply::AlreadyExists(_) => (PravegaErrorKind::Refused, String::from("the segment exists")),
            Reply::NoSuchSegment { .. } => (
                PravegaErrorKind::UnknownName,
                String::from("the server has no such segment"),
            ),
            Reply::InvalidEventNumber { .. } => (
                PravegaErrorKind::Refused,
                String::from("the server has events of this writer with higher numbers"),
            ),
            Reply::IsTruncated { start, .. } => (
                PravegaErrorKind::OutOfRange,
                format!("the segment begins at byte {start} since it was truncated"),
            ),
            Reply::NotSupported(operation) => {
                (PravegaErrorKind::Refused, format!("the server does not do {operation}"))
            }
            Reply::AuthFailed { code: Some(1) } => (
                PravegaErrorKind::Refused,
                String::from("the delegation token has expired"),
            ),
            Reply::AuthFailed { .. } => (
                PravegaErrorKind::Refused,
                String::from("the server does not take the delegation token"),
            ),
            Reply::Error { message, code, .. } => (
                PravegaErrorKind::Refused,
                format!("the server has failed with code {code}: {message}"),
            ),
            other => (
                PravegaErrorKind::Peer,
                format!("the server answers something else: {other:?}"),
            ),
        };
        let error = Self::new(kind, what);
        match reply {
            Reply::WrongHost { .. } | Reply::Error { .. } => error.for_now(),
            _ => error,
        }
    }

    /// The same, where the call may have been carried out.
    pub(super) fn perhaps_done(mut self) -> Self {
        self.0.is_certain = false;
        self.0.is_retriable = false;
        self
    }

    /// The same, where a server may do it a little later.
    pub(super) fn for_now(mut self) -> Self {
        self.0.is_retriable = true;
        self
    }

    /// The same, where trying again does not help.
    pub(super) fn for_good(mut self) -> Self {
        self.0.is_retriable = false;
        self
    }

    /// The same, where a reply did not come in time.
    pub(super) fn late(mut self) -> Self {
        self.0.is_late = true;
        self
    }

    /// Says what it is about, where the error does not say it yet.
    pub(super) fn about(mut self, place: impl fmt::Display) -> Self {
        self.0.place.get_or_insert_with(|| place.to_string());
        self
    }

    /// Says which byte of a segment it is about, where the error does not say it yet.
    pub(super) fn with_offset(mut self, offset: i64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Says which server was asked, where the error does not say it yet.
    pub(super) fn at(mut self, endpoint: &str) -> Self {
        self.0.endpoint.get_or_insert_with(|| endpoint.to_owned());
        self
    }

    /// Says which bytes are gone.
    pub(super) fn with_gap(mut self, gap: Gap) -> Self {
        self.0.gap = Some(gap);
        self.with_offset(gap.from)
    }

    /// Whether a reply did not come in time.
    pub(super) fn is_late(&self) -> bool {
        self.0.is_late
    }

    /// Something of this side's that does not fit into what the protocol has room for.
    #[must_use]
    pub fn of_limit(what: String) -> Self {
        Self::new(PravegaErrorKind::Limit, what)
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> PravegaErrorKind {
        self.0.kind
    }

    /// Its number, from 9501 on.
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

    /// What it is about: `scope/stream`, or a segment.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// The byte of the segment concerned, if it is one.
    #[must_use]
    pub fn offset(&self) -> Option<i64> {
        self.0.offset
    }

    /// The address of the server that was asked last.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.0.endpoint.as_deref()
    }

    /// The bytes that are gone, where that is the error.
    #[must_use]
    pub fn gap(&self) -> Option<Gap> {
        self.0.gap
    }
}

impl fmt::Display for PravegaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        if let Some(place) = &self.0.place {
            write!(f, "; {place}")?;
        }
        if let Some(offset) = self.0.offset {
            write!(f, ", byte {offset}")?;
        }
        if let Some(endpoint) = &self.0.endpoint {
            write!(f, "; server {endpoint}")?;
        }
        f.write_str(match (self.0.is_certain, self.0.is_retriable) {
            (false, _) => "; whether it was done is not known",
            (true, true) => "; can be tried again",
            (true, false) => "",
        })
    }
}

impl std::error::Error for PravegaError {}
