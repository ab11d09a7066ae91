//! Why a call to another server failed.

use std::time::Duration;

use sbp_messages::{DecodeError, ErrorCode, Status};

use crate::refusal::Refusal;

/// Why a call to another server has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeerError {
    /// Its time was up. It may have been carried out if it was sent.
    #[error("{peer} did not answer within {waited:?}{}", last.as_deref().map(|last| format!(" ({last})")).unwrap_or_default())]
    TimedOut {
        /// The addresses of the server that was asked.
        peer: String,
        /// How long.
        waited: Duration,
        /// What went wrong last, if a connection was lost or not made.
        last: Option<String>,
    },
    /// The peer said no to the call as a whole.
    #[error("{peer} refuses: {status}")]
    Refused {
        /// The addresses of the server that was asked.
        peer: String,
        /// Its words.
        status: Status,
    },
    /// The answer, or the request, is none.
    #[error("no usable answer of {peer}: {what}")]
    Unusable {
        /// The addresses of the server that was asked.
        peer: String,
        /// What is wrong.
        what: String,
    },
    /// This server is going down.
    #[error("this server is shutting down")]
    Closed,
}

impl PeerError {
    pub(super) fn undecodable(peer: &str, error: &DecodeError) -> Self {
        Self::Unusable {
            peer: peer.to_owned(),
            what: error.to_string(),
        }
    }

    /// What the one who needed the answer is told: where the peer has words of its own, those.
    pub(crate) fn to_refusal(&self) -> Refusal {
        let code = match self {
            Self::Refused { status, .. } => status.code,
            Self::TimedOut { .. } | Self::Unusable { .. } => ErrorCode::PD_NO_AVAILABLE_RS,
            Self::Closed => ErrorCode::SHUTTING_DOWN,
        };
        Refusal::new(code, self.to_string())
    }
}
