//! Why a request has no ordinary reply.

use sbp_client::ClientError;
use sbp_messages::ErrorCode;
use sbp_pravega::Reply;

/// The code of an error that has no meaning of its own to clients.
const UNSPECIFIED: i32 = 0;

/// Why there is no ordinary answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The service says so.
    Client(ClientError),
    /// The client is told this.
    Told(String),
    /// No client asks for this, and there is no answer to it: the connection ends.
    Nonsense(&'static str),
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// That there is no such segment.
pub(super) fn no_such(segment: String, offset: Option<i64>) -> Reply {
    Reply::NoSuchSegment { segment, offset }
}

/// `None`: no answer would be true.
pub(super) fn reply_of(outcome: Result<Reply, Failed>, segment: String) -> Option<Reply> {
    match outcome {
        Ok(reply) => Some(reply),
        Err(Failed::Client(error)) if error.code() == ErrorCode::NOT_FOUND => Some(no_such(segment, None)),
        Err(Failed::Client(error)) => {
            tracing::warn!(%error, segment, "a client of Pravega cannot be answered");
            None
        }
        Err(Failed::Told(message)) => Some(Reply::Error {
            segment,
            message,
            code: UNSPECIFIED,
        }),
        Err(Failed::Nonsense(what)) => {
            tracing::debug!(segment, what, "the connection of a client of Pravega ends");
            None
        }
    }
}
