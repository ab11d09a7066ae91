//! What follows from an error code: may the call be repeated, may it have happened, what is the user told.

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
    /// What happened, as a sentence without its end.
    pub meaning: &'static str,
    /// What the user can do, as a sentence without its end.
    pub advice: &'static str,
}
