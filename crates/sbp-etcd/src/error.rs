//! Why etcd did not do what it was asked.

use thiserror::Error;

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("etcd's member {member} did not {asked}: {failure}")]
pub struct EtcdError {
    /// `host:port` of the member that was asked last.
    pub member: String,
    /// What was asked, in words behind "did not".
    pub asked: &'static str,
    /// What happened.
    pub failure: Failure,
}

/// What happened to a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// The member was never asked: it cannot be reached. Certainly nothing happened.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The member was asked and did not answer, or answered that it does not know the outcome. What was asked may have
    /// happened, and may yet happen.
    #[error("no answer came ({0}), so that it may have happened")]
    NoAnswer(String),
    /// The member answered that it does not do this. Certainly nothing happened.
    #[error("it refuses: {0}")]
    Refused(String),
    /// What was asked for is not there.
    #[error("it says that there is no such thing: {0}")]
    Absent(String),
    /// The answer has more bytes than are taken at once.
    #[error("the answer is too large: {0}")]
    TooLarge(String),
}

impl EtcdError {
    /// Whether what was asked may have happened, or may yet happen.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self.failure, Failure::NoAnswer(_))
    }

    /// Whether another member may answer the same.
    #[must_use]
    pub fn is_of_the_member(&self) -> bool {
        matches!(self.failure, Failure::NoAnswer(_) | Failure::Unreachable(_))
    }
}
