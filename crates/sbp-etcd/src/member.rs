//! One member of an etcd: calls of it.

use std::time::Duration;

use sbp_grpc::{CallError, Channel, Code};
use sbp_transport::LinkSettings;

use crate::error::Failure;
use crate::message::Operation;

/// A member.
#[derive(Debug)]
pub(crate) struct Member(Channel);

impl Member {
    /// `None` if the address cannot be one.
    pub(crate) fn new(address: &str, settings: LinkSettings) -> Option<Self> {
        // A member that knows no leader says so instead of waiting for one.
        Channel::new(address, settings, Some(("hasleader", "true"))).map(Self)
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        self.0.address()
    }

    /// Asks, and waits for the answer `within` this time, a connection included.
    pub(crate) async fn call<Q: Operation + Clone>(&self, request: &Q, within: Duration) -> Result<Q::Answer, Failure> {
        let answer = self.0.call(sbp_grpc::path(Q::PATH), request.clone(), within).await;
        answer.map_err(failure_of)
    }
}

/// What an error means for what was asked.
fn failure_of(error: CallError) -> Failure {
    let (code, message) = match error {
        CallError::Unreachable(why) => return Failure::Unreachable(why),
        CallError::NoAnswer(why) => return Failure::NoAnswer(why),
        CallError::Status { code, message } => (code, message),
    };
    match code {
        // Of etcd it says that a revision is compacted; of the library, that there are too many bytes.
        Code::OutOfRange if message.contains("message length") => Failure::TooLarge(message),
        Code::NotFound => Failure::Absent(message),
        Code::InvalidArgument
        | Code::OutOfRange
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::Unimplemented => Failure::Refused(message),
        // "Request timed out" and "leader changed" among them.
        code => Failure::NoAnswer(format!("{code:?}: {message}")),
    }
}
