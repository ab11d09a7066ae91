//! The rules of an error code: whether to retry, whether the call may have been carried out, and what to tell the user.

/// Whether and when the same call may be sent again.
///
/// This follows from the error code alone. Whether a retry is safe depends also on [`ErrorRule::may_have_been_done`]
/// and on the call: a read can always be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Never: the same call would get the same answer.
    Never,
    /// At once, after the usual back-off.
    Now,
    /// After a longer wait: the server is short of a resource.
    Later,
    /// On another server.
    Elsewhere,
    /// After asking again where the range is.
    Refresh,
}

/// The row of the error table for one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRule {
    /// The name of the code, as the schema spells it.
    pub name: &'static str,
    /// Whether and when the same call may be sent again.
    pub retry: Retry,
    /// Whether the call may have been carried out in spite of the error.
    pub may_have_been_done: bool,
    /// What has happened, as a sentence without a full stop.
    pub meaning: &'static str,
    /// What the user can do, as a sentence without a full stop.
    pub advice: &'static str,
}
