//! The one error type of the client: what happened, where, whether it took effect, and what to do about it.

use std::fmt;
use std::sync::Arc;

use sbp_messages::{ErrorCode, Retry, Status, Stream};
use sbp_types::{Offset, RangeIndex, StreamId, StreamIdentity};

use crate::codes;
use crate::failure::{Cause, Failure, fencing_epoch, words};
use crate::gap::Gap;
use crate::retry::Repeat;

/// Who is at fault, and whether the call may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server refused; nothing was done.
    Rejected,
    /// The deadline passed; nothing was done, or the call changes nothing.
    TimedOut,
    /// The call may have taken effect and may not have: the answer was not seen.
    Indeterminate,
    /// No server could be reached; nothing was done.
    Unreachable,
    /// The connection was lost under a call that changes nothing.
    ConnectionLost,
    /// The client holds as much unfinished work as it is allowed to; nothing was done.
    Backpressure,
    /// The server's answer breaks the protocol.
    Protocol,
    /// The server lacks a feature that the call needs; nothing was done.
    Unsupported,
    /// The call itself is wrong; nothing was sent.
    Invalid,
    /// What was read is damaged, or not everything that was planned could be read.
    Incomplete,
    /// The client was closed; nothing was done.
    Closed,
}

/// What became of a call to a peer that speaks another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerOutcome {
    /// It was not done, and would not be if it were made again.
    Refused,
    /// It was not done, and may be if it is made again.
    RefusedForNow,
    /// It may have been done.
    Unknown,
}

/// Why a call failed. Cheap to move, and to clone for the many calls that one lost connection fails.
#[derive(Clone)]
pub struct ClientError(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    kind: ErrorKind,
    code: ErrorCode,
    retriable: bool,
    what: String,
    stream: Option<StreamId>,
    stream_name: Option<Arc<str>>,
    range: Option<RangeIndex>,
    offset: Option<Offset>,
    endpoint: Option<Arc<str>>,
    attempts: u32,
    next_sequence: Option<i64>,
    fenced_by: Option<i64>,
    gap: Option<Gap>,
}

impl ClientError {
    pub(crate) fn new(kind: ErrorKind, code: ErrorCode, what: impl Into<String>) -> Self {
        let retriable = kind != ErrorKind::Indeterminate && codes::rule(code).retry != Retry::Never;
        Self(Box::new(Details {
            kind,
            code,
            retriable,
            what: what.into(),
            stream: None,
            stream_name: None,
            range: None,
            offset: None,
            endpoint: None,
            attempts: 0,
            next_sequence: None,
            fenced_by: None,
            gap: None,
        }))
    }

    /// An error that arose on this side, outside of any call to a server.
    pub fn local(code: ErrorCode, what: impl Into<String>) -> Self {
        let kind = match code {
            codes::CLOSED | codes::FORKED_CLIENT => ErrorKind::Closed,
            codes::CORRUPT_ON_ARRIVAL | codes::DATA_LOSS => ErrorKind::Incomplete,
            codes::DEADLINE_BEFORE_SEND => ErrorKind::TimedOut,
            codes::BACK_PRESSURE => ErrorKind::Backpressure,
            codes::FEATURE_NOT_OFFERED => ErrorKind::Unsupported,
            code if codes::rule(code).may_have_been_done => ErrorKind::Indeterminate,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, code, what)
    }

    /// An error of a call to a peer that speaks another protocol.
    pub fn of_peer(code: ErrorCode, what: impl Into<String>, outcome: PeerOutcome, endpoint: Option<&str>) -> Self {
        let kind = match outcome {
            PeerOutcome::Unknown => ErrorKind::Indeterminate,
            PeerOutcome::Refused | PeerOutcome::RefusedForNow => ErrorKind::Rejected,
        };
        let mut error = Self::new(kind, code, what);
        error.0.retriable = outcome == PeerOutcome::RefusedForNow;
        error.0.endpoint = endpoint.map(Arc::from);
        error
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, codes::PROTOCOL_VIOLATION, what)
    }

    /// An error of the caller's own making: an argument that no server could accept.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, codes::BAD_ARGUMENT, what)
    }

    /// A stream is not the one that was meant, although it has its number. `meant` says what knows the other one.
    pub(crate) fn replaced(stream: &Stream, meant: StreamIdentity, what: &str) -> Self {
        let identity = stream
            .identity
            .map_or_else(|| "unknown".to_owned(), |identity| identity.to_string());
        let what = format!("{what} had identity {meant}, and the stream of its number has {identity}");
        Self::new(ErrorKind::Rejected, codes::STREAM_REPLACED, what)
            .with_stream(stream.stream_id)
            .with_stream_name(&stream.name)
    }

    pub(crate) fn incomplete(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Incomplete, codes::DATA_LOSS, what)
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Incomplete, codes::CORRUPT_ON_ARRIVAL, what)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, codes::CLOSED, Cause::Closed.to_string())
    }

    pub(crate) fn backpressure(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Backpressure, codes::BACK_PRESSURE, what)
    }

    /// What a final failure is to the caller.
    pub(crate) fn from_failure(failure: &Failure, repeat: Repeat, may_have_been_done: bool, attempts: u32) -> Self {
        let doubtful = may_have_been_done && repeat != Repeat::Harmless;
        let sure = |kind| if doubtful { ErrorKind::Indeterminate } else { kind };
        let (kind, code) = match &failure.cause {
            Cause::Refused { code, .. } if *code == ErrorCode::REQUEST_TIMEOUT => (sure(ErrorKind::TimedOut), *code),
            Cause::Refused { code, .. } => (sure(ErrorKind::Rejected), *code),
            Cause::Deadline { .. } if doubtful => (ErrorKind::Indeterminate, codes::DEADLINE_AFTER_SEND),
            Cause::Deadline { .. } => (ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND),
            Cause::ConnectionLost { .. } | Cause::Silent { .. } if doubtful => {
                (ErrorKind::Indeterminate, codes::CONNECTION_LOST)
            }
            Cause::ConnectionLost { .. } | Cause::Silent { .. } => {
                (ErrorKind::ConnectionLost, codes::CONNECTION_FAILED)
            }
            Cause::Protocol { .. } => (sure(ErrorKind::Protocol), codes::PROTOCOL_VIOLATION),
            // The last attempt did nothing for certain, one before it may have: its answer was lost.
            Cause::NotStarted
            | Cause::Unreachable { .. }
            | Cause::Tls { .. }
            | Cause::Unsupported { .. }
            | Cause::Invalid { .. }
            | Cause::Closed
                if doubtful =>
            {
                (ErrorKind::Indeterminate, codes::CONNECTION_LOST)
            }
            Cause::NotStarted => (ErrorKind::Rejected, ErrorCode::SHUTTING_DOWN),
            Cause::Unreachable { .. } => (ErrorKind::Unreachable, codes::CONNECTION_FAILED),
            Cause::Tls { .. } => (ErrorKind::Unreachable, codes::TLS_FAILED),
            Cause::Unsupported { .. } => (ErrorKind::Unsupported, codes::FEATURE_NOT_OFFERED),
            Cause::Invalid { .. } => (ErrorKind::Invalid, codes::BAD_ARGUMENT),
            Cause::Closed => (ErrorKind::Closed, codes::CLOSED),
        };
        let what = match &failure.cause {
            // The code is said in any case.
            Cause::Refused { message, .. } => message.clone(),
            cause => cause.to_string(),
        };
        let mut error = Self::new(kind, code, what);
        error.0.endpoint = failure.endpoint.clone();
        error.0.offset = failure.offset;
        error.0.fenced_by = failure.fenced_by;
        error.0.attempts = attempts;
        error
    }

    /// The refusal of one entry of a request that as a whole was answered.
    pub(crate) fn entry(status: &Status, endpoint: Option<&Arc<str>>) -> Self {
        let kind = if codes::rule(status.code).may_have_been_done {
            ErrorKind::Indeterminate
        } else {
            ErrorKind::Rejected
        };
        let mut error = Self::new(kind, status.code, words(status));
        error.0.fenced_by = fencing_epoch(status);
        error.0.endpoint = endpoint.cloned();
        error.0.attempts = 1;
        error
    }

    /// That the call changes nothing, whatever its server went through.
    pub(crate) fn of_a_read(mut self) -> Self {
        let details = &mut *self.0;
        if details.kind == ErrorKind::Indeterminate {
            details.kind = ErrorKind::Rejected;
            details.retriable = codes::rule(details.code).retry != Retry::Never;
        }
        self
    }

    /// That what is damaged is the only copy: the damage is there however often one asks.
    pub(crate) fn of_the_only_copy(mut self) -> Self {
        self.0.retriable = false;
        self
    }

    /// That an earlier attempt of the same append may have been stored, whatever became of the last one.
    pub(crate) fn in_doubt(mut self) -> Self {
        let details = &mut *self.0;
        details.kind = ErrorKind::Indeterminate;
        details.retriable = false;
        if !codes::rule(details.code).may_have_been_done {
            details.code = codes::CONNECTION_LOST;
        }
        self
    }

    /// Adds what the attempt before failed of.
    pub(crate) fn after(mut self, before: &Failure) -> Self {
        self.0.what = format!("{}; the attempt before: {}", self.0.what, before.cause);
        self.with_endpoint(before.endpoint.as_ref())
    }

    /// Says which stream it is about, where the error does not say it yet.
    #[must_use]
    pub fn with_stream(mut self, stream: StreamId) -> Self {
        self.0.stream.get_or_insert(stream);
        self
    }

    /// Names the stream, where the caller used its name and the error does not say it yet.
    #[must_use]
    pub fn with_stream_name(mut self, name: &str) -> Self {
        self.0.stream_name.get_or_insert_with(|| Arc::from(name));
        self
    }

    pub(crate) fn with_next_sequence(mut self, sequence: Option<i64>) -> Self {
        self.0.next_sequence = self.0.next_sequence.or(sequence.filter(|&sequence| sequence >= 0));
        self
    }

    pub(crate) fn with_gap(mut self, gap: Option<Gap>) -> Self {
        self.0.gap = gap;
        self
    }

    /// That records are gone which were to be read next.
    pub(crate) fn trimmed(gap: Gap) -> Self {
        let what = format!(
            "{} records are gone: the stream begins at {} now, and offset {} was to be read next",
            gap.records(),
            gap.to,
            gap.from
        );
        let error = Self::new(ErrorKind::Incomplete, codes::DATA_LOSS, what);
        error.with_stream(gap.stream).with_offset(gap.from).with_gap(Some(gap))
    }

    /// Adds what can be done about it in this place.
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        self.0.what.push_str("; ");
        self.0.what.push_str(remedy);
        self
    }

    /// What those are told who come to a writer that has stopped for this reason: of theirs nothing was done. One with a
    /// name can be opened again.
    pub(crate) fn into_stopped_writer(mut self, is_named: bool) -> Self {
        let details = &mut *self.0;
        if codes::rule(details.code).may_have_been_done {
            details.code = codes::CLOSED;
        }
        details.kind = match details.kind {
            ErrorKind::Indeterminate | ErrorKind::Protocol => ErrorKind::Closed,
            kind => kind,
        };
        details.retriable = false;
        let goes_on = if is_named && details.code != ErrorCode::WRITER_FENCED {
            "; open the writer again, and go on at its next_sequence"
        } else {
            ""
        };
        details.what = format!(
            "the writer has stopped and this was not stored: {}{goes_on}",
            details.what
        );
        self
    }

    pub(crate) fn with_range(mut self, range: RangeIndex) -> Self {
        self.0.range.get_or_insert(range);
        self
    }

    /// Says which offset it is about, where the error does not say it yet.
    #[must_use]
    pub fn with_offset(mut self, offset: Offset) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    pub(crate) fn with_endpoint(mut self, endpoint: Option<&Arc<str>>) -> Self {
        if self.0.endpoint.is_none() {
            self.0.endpoint = endpoint.cloned();
        }
        self
    }

    /// Whether the call may have taken effect. False: it certainly has not, or it changes nothing.
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        self.0.kind == ErrorKind::Indeterminate
    }

    /// Whether a deadline passed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let code = self.0.code;
        code == codes::DEADLINE_BEFORE_SEND || code == codes::DEADLINE_AFTER_SEND || code == ErrorCode::REQUEST_TIMEOUT
    }

    /// What happened, in words, without the place.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        codes::rule(self.0.code).advice
    }

    /// The stream's name, where the call used it.
    #[must_use]
    pub fn stream_name(&self) -> Option<&str> {
        self.0.stream_name.as_deref()
    }

    /// The address of the server that was asked last.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.0.endpoint.as_deref()
    }
}

/// What is told as it is kept.
macro_rules! details {
    ($($(#[$meta:meta])* $name:ident = $field:ident: $kind:ty;)*) => {
        impl ClientError {
            $($(#[$meta])* #[must_use] pub fn $name(&self) -> $kind { self.0.$field })*
        }
    };
}

details! {
    /// The kind of error.
    kind = kind: ErrorKind;
    /// The server's code, or one of this side's own from [`ErrorCode::FIRST_LOCAL`] on.
    code = code: ErrorCode;
    /// Whether the same call may succeed later without anything being changed.
    is_retriable = retriable: bool;
    /// The stream concerned, if it is one.
    stream = stream: Option<StreamId>;
    /// The range concerned, if it is known.
    range = range: Option<RangeIndex>;
    /// The offset concerned, if it is one.
    offset = offset: Option<Offset>;
    /// The records that are gone, where that is the error.
    gap = gap: Option<Gap>;
    /// The sequence that the server expects next from a writer, where it said so.
    next_sequence = next_sequence: Option<i64>;
    /// The epoch of the writer's instance that has taken over, where the server said so.
    fenced_by = fenced_by: Option<i64>;
    /// How many attempts were made; 0 when none could be.
    attempts = attempts: u32;
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &*self.0;
        write!(f, "[SBP-{:04}] ", details.code.0)?;
        f.write_str(&details.what)?;
        match (&details.stream_name, details.stream) {
            (Some(name), Some(id)) => write!(f, "; stream {name} ({id})")?,
            (Some(name), None) => write!(f, "; stream {name}")?,
            (None, Some(id)) => write!(f, "; stream {id}")?,
            (None, None) => {}
        }
        if let Some(range) = details.range {
            write!(f, ", range {range}")?;
        }
        if let Some(offset) = details.offset {
            write!(f, ", offset {offset}")?;
        }
        if let Some(endpoint) = &details.endpoint {
            write!(f, "; server {endpoint}")?;
        }
        if let Some(sequence) = details.next_sequence {
            write!(f, "; next sequence {sequence}")?;
        }
        match details.attempts {
            0 => {}
            1 => f.write_str("; 1 attempt")?,
            more => write!(f, "; {more} attempts")?,
        }
        f.write_str(match (details.kind, details.retriable) {
            (ErrorKind::Indeterminate, _) => "; it may have been done: read the stream to find out",
            (_, true) => "; can be tried again",
            (_, false) => "; not worth trying again unchanged",
        })?;
        write!(f, "; {}", codes::rule(details.code).advice)
    }
}

impl std::error::Error for ClientError {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sbp_messages::{ErrorCode, Status};
    use sbp_types::StreamId;

    use super::{ClientError, ErrorKind};
    use crate::codes;
    use crate::failure::{Cause, Failure};
    use crate::retry::Repeat;

    #[test]
    fn the_message_names_everything_that_is_known() {
        let endpoint: Arc<str> = Arc::from("127.0.0.1:1");
        let cause = Cause::ConnectionLost {
            sent: true,
            reason: "reset".into(),
        };
        let error = ClientError::from_failure(&Failure::new(cause, Some(&endpoint)), Repeat::Twice, true, 2)
            .with_stream(StreamId(7))
            .with_stream_name("orders");
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(error.code(), codes::CONNECTION_LOST);
        assert!(error.is_indeterminate() && !error.is_retriable());
        let text = error.to_string();
        for part in [
            "[SBP-9002]",
            "reset",
            "orders (7)",
            "127.0.0.1:1",
            "2 attempts",
            "may have been done",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn a_deadline_is_definite_only_when_nothing_was_sent() {
        let before = Failure::from(Cause::deadline(false));
        let after = Failure::from(Cause::deadline(true));
        let before = ClientError::from_failure(&before, Repeat::Twice, false, 1);
        let after = ClientError::from_failure(&after, Repeat::Twice, true, 1);
        assert_eq!((before.kind(), before.is_timeout()), (ErrorKind::TimedOut, true));
        assert_eq!((after.kind(), after.is_timeout()), (ErrorKind::Indeterminate, true));
    }

    #[test]
    fn a_servers_code_and_words_survive() {
        let error = ClientError::entry(&Status::error(ErrorCode(1404), "stream 9 does not exist"), None)
            .with_stream(StreamId(9));
        assert_eq!(error.code(), ErrorCode(1404));
        assert!(error.to_string().contains("stream 9 does not exist"));
        assert!(!error.is_retriable());
    }
}
