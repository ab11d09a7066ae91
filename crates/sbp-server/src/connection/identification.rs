//! Who the peer of a connection is: told in HEARTBEAT, looked at again when the file of names changes, and asked for again
//! when a token is about to expire.

use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, Status};

use crate::access::{Denied, TokenDigest};
use crate::refusal::Refusal;

/// So many HEARTBEATs that are not believed close the connection.
const MOST_REFUSED: u8 = 3;
/// How long before its token expires a peer is asked for another.
pub(super) const ASK_BEFORE: Duration = Duration::from_secs(10);
/// How long after that it is asked once more, where the server believes the token for longer than it says.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(10);

/// So many tokens in so long are looked at; each may cost the check of a signature.
const MOST_TOKENS: u8 = 20;
const TOKENS_IN: Duration = Duration::from_secs(20);

/// What a connection keeps about who its peer is.
#[derive(Debug, Default)]
pub(super) struct Identification {
    /// HEARTBEATs that were not believed since one was.
    pub(super) refused: u8,
    /// The token that was believed last.
    pub(super) believed: Option<Box<TokenDigest>>,
    /// Since when tokens are counted that were looked at, and how many these were.
    looked_at: Option<(Instant, u8)>,
    /// Why the last one was not.
    pub(super) denied: Option<Refusal>,
    /// `None`: it does not by itself. Apart, because peers that are not known have none, and cost as little as can be.
    pub(super) expiry: Option<Box<Expiry>>,
}

/// When the peer stops being known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expiry {
    /// When it is asked for another token, unless that is after `end`.
    pub(super) ask: Instant,
    pub(super) end: Instant,
}

impl Identification {
    /// Counts a token that is to be looked at; refuses it where too many were.
    pub(super) fn count_token(&mut self, now: Instant) -> Result<(), Refusal> {
        let (since, count) = self
            .looked_at
            .filter(|(since, _)| now.saturating_duration_since(*since) < TOKENS_IN)
            .unwrap_or((now, 0));
        if count == MOST_TOKENS {
            let message = format!(
                "this connection has shown {MOST_TOKENS} tokens within {} s: show one until it expires",
                TOKENS_IN.as_secs()
            );
            return Err(Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message));
        }
        self.looked_at = Some((since, count + 1));
        Ok(())
    }

    /// What the peer says from now on changes nothing.
    pub(super) fn give_up(&mut self) {
        self.refused = MOST_REFUSED;
    }

    /// Whether the peer has tried often enough.
    pub(super) fn is_hopeless(&self) -> bool {
        self.refused >= MOST_REFUSED
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.expiry.as_ref().map(|expiry| expiry.ask.min(expiry.end))
    }
}

pub(super) fn unauthorized(denied: &Denied) -> Refusal {
    Refusal::new(ErrorCode::UNAUTHORIZED, denied.to_string())
}

/// What is said to a peer before its connection is closed because it did not say who it is.
pub(crate) fn goodbye() -> Status {
    unauthorized(&Denied::NoToken).into()
}
