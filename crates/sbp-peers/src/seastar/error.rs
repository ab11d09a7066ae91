//! What goes wrong with a peer.

use std::fmt;

use sbp_seastar::{CloseReason, Exception, Fault, Refused};

/// What kind of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeastarErrorKind {
    /// The peer's bytes are not those of the protocol, or not what a verb returns.
    Framing,
    /// Something is longer than it may be.
    Limit,
    /// A compressed frame is damaged.
    Compression,
    /// The peer does what it should not: another fault than those.
    Peer,
    /// The verb's handler has failed, and says why.
    Refused,
    /// There is no connection, or it was lost, or the time was over.
    Lost,
    /// The server has no such verb.
    UnknownVerb,
    /// A number is none that its type can have.
    OutOfRange,
}

impl SeastarErrorKind {
    /// Its number.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Framing => 9401,
            Self::Limit => 9402,
            Self::Compression => 9403,
            Self::Peer => 9404,
            Self::Refused => 9405,
            Self::Lost => 9406,
            Self::UnknownVerb => 9407,
            Self::OutOfRange => 9408,
        }
    }

    /// What bytes that cannot be read are.
    fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::TooLong { .. } => Self::Limit,
            Fault::Compression(_) => Self::Compression,
            Fault::Codec | Fault::Id(_) | Fault::AfterEnd | Fault::NoParent(_) => Self::Peer,
            _ => Self::Framing,
        }
    }

    /// What has ended a connection.
    pub(super) fn of_close(reason: &CloseReason) -> Self {
        match reason {
            CloseReason::Violation(fault) => Self::of_fault(*fault),
            _ => Self::Lost,
        }
    }
}

/// An error of a call or a stream: what happened, where, and whether it may have been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeastarError(Box<Details>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    kind: SeastarErrorKind,
    what: String,
    verb: Option<u64>,
    endpoint: Option<String>,
    is_certain: bool,
    is_retriable: bool,
    is_timeout: bool,
}

impl SeastarError {
    pub(super) fn new(kind: SeastarErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Details {
            kind,
            what: what.into(),
            verb: None,
            endpoint: None,
            is_certain: true,
            is_retriable: kind == SeastarErrorKind::Lost,
            is_timeout: false,
        }))
    }

    /// What a verb has returned is not what it should return.
    #[must_use]
    pub fn of_reply(fault: Fault, verb: u64) -> Self {
        let what = format!("what the verb returned cannot be read: {fault}");
        Self::new(SeastarErrorKind::of_fault(fault), what)
            .of_verb(verb)
            .perhaps_done()
    }

    /// A number does not fit its type.
    #[must_use]
    pub fn of_range(what: String) -> Self {
        Self::new(SeastarErrorKind::OutOfRange, what)
    }

    /// Something is longer than a frame can be, or is not for this connection.
    pub(super) fn of_refused(refused: Refused) -> Self {
        let kind = match refused {
            Refused::Unfit(_) | Refused::Empty => SeastarErrorKind::Limit,
            _ => SeastarErrorKind::Lost,
        };
        Self::new(kind, refused.to_string())
    }

    pub(super) fn of_exception(exception: &Exception) -> Self {
        let kind = match exception {
            Exception::User(_) => SeastarErrorKind::Refused,
            Exception::UnknownVerb(_) => SeastarErrorKind::UnknownVerb,
            Exception::Other { .. } => SeastarErrorKind::Peer,
        };
        // The server says that the call has failed: what its handler did before it failed is between the two.
        Self::new(kind, exception.to_string())
    }

    pub(super) fn closed() -> Self {
        Self::new(SeastarErrorKind::Lost, "the client was closed").for_good()
    }

    /// It may have been carried out.
    pub(super) fn perhaps_done(mut self) -> Self {
        self.0.is_certain = false;
        self
    }

    /// The time was over.
    pub(super) fn timed_out(mut self) -> Self {
        self.0.is_timeout = true;
        self
    }

    /// The same call fails again.
    pub(super) fn for_good(mut self) -> Self {
        self.0.is_retriable = false;
        self
    }

    /// Says which verb it is about.
    pub(super) fn of_verb(mut self, verb: u64) -> Self {
        self.0.verb = Some(verb);
        self
    }

    /// Says which peer was asked, where the error does not say it yet.
    pub(super) fn at(mut self, endpoint: String) -> Self {
        self.0.endpoint.get_or_insert(endpoint);
        self
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> SeastarErrorKind {
        self.0.kind
    }

    /// Its number, from 9401 on.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.0.kind.code()
    }

    /// What happened, in words, without the place: of a handler that has failed, what it says.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The verb that was called.
    #[must_use]
    pub fn verb(&self) -> Option<u64> {
        self.0.verb
    }

    /// The address of the peer.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.0.endpoint.as_deref()
    }

    /// Whether the outcome is known: the call has failed, or was not sent.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.0.is_certain
    }

    /// Whether it is that the time was over.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.0.is_timeout
    }

    /// Whether the same call may succeed later without anything being changed.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        self.0.is_retriable
    }
}

impl fmt::Display for SeastarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        if let Some(verb) = self.0.verb {
            write!(f, "; verb {verb}")?;
        }
        if let Some(endpoint) = &self.0.endpoint {
            write!(f, "; at {endpoint}")?;
        }
        f.write_str(match (self.0.is_certain, self.0.is_retriable) {
            (false, _) => "; whether it was done is not known",
            (true, true) => "; can be tried again",
            (true, false) => "",
        })
    }
}

impl std::error::Error for SeastarError {}
