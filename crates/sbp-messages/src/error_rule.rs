//! What follows from an error code: may the call be repeated, may it have happened, what does the user see.

/// Whether, and how, the same call may be sent again.
///
/// This speaks of the refusal alone. Whether a repeat is safe also depends on [`ErrorRule::may_have_been_done`] and on
/// the call: a read can always be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same call gets the same answer.
    Never,
    /// At once, after the usual back-off.
    Now,
    /// After a longer wait: whoever refused is short of something.
    Later,
    /// At another server.
    Elsewhere,
    /// After asking anew where the range is.
    Refresh,
}

/// The row of the error table for one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRule {
    /// The name of the code, as the schema spells it.
    pub name: &'static str,
    /// Whether the same call may be sent again.
    pub retry: Retry,
    /// Whether the call may have had its effect in spite of the error.
    pub may_have_been_done: bool,
    /// The class of the exception in Python; see [`PYTHON_CLASSES`].
    pub python_class: &'static str,
    /// What happened, as a sentence without its end.
    pub meaning: &'static str,
    /// What the user can do, as a sentence without its end.
    pub advice: &'static str,
}

/// One class of the Python exception tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonClass {
    /// Its name.
    pub name: &'static str,
    /// The class of ours it derives from; empty for the root.
    pub base: &'static str,
    /// The built-in exception it also is, where Python has the word.
    pub builtin: Option<&'static str>,
}

const fn class(name: &'static str, base: &'static str, builtin: Option<&'static str>) -> PythonClass {
    PythonClass { name, base, builtin }
}

/// The Python exception tree, parents before children.
///
/// Below the root it has two halves, so that a caller can tell what became of an append: everything that was certainly
/// not done is a `RejectedError`, everything that may have been done an `IndeterminateError`.
pub const PYTHON_CLASSES: &[PythonClass] = &[
    class("SbpError", "", None),
    class("RejectedError", "SbpError", None),
    class("IndeterminateError", "SbpError", None),
    // Not done.
    class("InvalidRequestError", "RejectedError", Some("ValueError")),
    class("PayloadTooLargeError", "InvalidRequestError", None),
    class("SchemaMismatchError", "InvalidRequestError", None),
    class("BatchCorruptError", "InvalidRequestError", None),
    class("UnsupportedError", "RejectedError", None),
    class("AccessDeniedError", "RejectedError", Some("PermissionError")),
    class("NotFoundError", "RejectedError", Some("LookupError")),
    class("StreamNotFoundError", "NotFoundError", None),
    class("StreamReplacedError", "StreamNotFoundError", None),
    class("RangeNotFoundError", "NotFoundError", None),
    class("AlreadyExistsError", "RejectedError", None),
    class("PreconditionFailedError", "RejectedError", None),
    class("CursorTakenError", "PreconditionFailedError", None),
    class("SequenceError", "RejectedError", None),
    class("WriterFencedError", "RejectedError", None),
    class("RangeSealedError", "RejectedError", None),
    class("OffsetOutOfRangeError", "RejectedError", None),
    class("ThrottledError", "RejectedError", None),
    class("BackPressureError", "ThrottledError", None),
    class("UnavailableError", "RejectedError", None),
    class("ConnectionFailedError", "UnavailableError", Some("ConnectionError")),
    class("StorageFullError", "RejectedError", None),
    class("DataCorruptedError", "RejectedError", None),
    class("DataLossError", "RejectedError", None),
    class("DeadlineExceededError", "RejectedError", Some("TimeoutError")),
    class("ClosedError", "RejectedError", None),
    class("ForkedClientError", "ClosedError", None),
    class("ServerStartError", "RejectedError", None),
    class("PortTakenError", "ServerStartError", Some("OSError")),
    class("DirectoryLockedError", "ServerStartError", Some("OSError")),
    class("ServerConfigError", "ServerStartError", Some("ValueError")),
    // Perhaps done.
    class("ServerError", "IndeterminateError", None),
    class("LogFailedError", "ServerError", None),
    class("ProtocolError", "IndeterminateError", None),
    class("ConnectionLostError", "IndeterminateError", Some("ConnectionError")),
    class("OutcomeUnknownTimeoutError", "IndeterminateError", Some("TimeoutError")),
];
