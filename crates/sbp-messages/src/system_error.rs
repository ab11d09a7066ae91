//! The answer to a call that was not understood or not started.

use crate::Status;

/// The header of a system error: any operation's answer, with the flag that says so, and the last of its call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemErrorResponse {
    /// Why.
    pub status: Status,
}
