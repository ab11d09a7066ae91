//! How long calls to peers that speak other protocols may take.

use std::time::Duration;

use sbp_client::{ClientError, PeerOutcome, codes};

use super::failure::Failure;

/// What a call does to its peer, which says what it means that its time is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It changes nothing.
    None,
    /// It may have been carried out.
    Perhaps,
}

/// Bounds a call to `who` (as errors call it) at `address`.
pub(crate) async fn within<T, E>(
    limit: Duration,
    effect: Effect,
    who: &str,
    address: &str,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure>
where
    Failure: From<E>,
{
    match tokio::time::timeout(limit, call).await {
        Ok(ended) => Ok(ended?),
        Err(_) => Err(late(limit, effect, who, address)),
    }
}

/// `who` at `address` has not answered for so long.
pub(crate) fn late(limit: Duration, effect: Effect, who: &str, address: &str) -> Failure {
    let (code, outcome) = match effect {
        Effect::None => (codes::DEADLINE_BEFORE_SEND, PeerOutcome::RefusedForNow),
        Effect::Perhaps => (codes::DEADLINE_AFTER_SEND, PeerOutcome::Unknown),
    };
    let what = format!("the {who} has not answered within {limit:?}");
    Failure::Client(ClientError::of_peer(code, what, outcome, Some(address)))
}
