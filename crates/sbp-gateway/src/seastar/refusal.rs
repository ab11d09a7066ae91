//! What a verb that has failed says, and what a client can tell from it.

use std::ops::RangeInclusive;

use sbp_client::{ClientError, PeerOutcome, codes};
use sbp_messages::{ErrorCode, Retry};
use sbp_peers::seastar::Exception;

/// The verbs of a [`SeastarServer`](super::SeastarServer).
const VERBS: RangeInclusive<u64> = super::APPEND..=super::INGEST;

/// Why a call has failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The service says so.
    Client(ClientError),
    /// The arguments are not what the verb takes.
    Arguments(String),
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl Failed {
    /// What the client is told: `SBP-nnnn`, from which [`outcome`] tells what became of the call, and what happened.
    pub(super) fn exception(self) -> Exception {
        match self {
            Self::Client(error) => {
                // It begins with the number, in brackets.
                let text = error.to_string();
                let what = text.split_once("] ").map_or(&*text, |(_, what)| what);
                Exception::user(format!("SBP-{:04} {what}", told_code(&error).0))
            }
            Self::Arguments(what) => Exception::user(format!("SBP-{:04} {what}", ErrorCode::INVALID_REQUEST.0)),
        }
    }
}

/// The number by which an error is told. One whose outcome is not known has one that says so.
fn told_code(error: &ClientError) -> ErrorCode {
    match error.is_indeterminate() && !codes::rule(error.code()).may_have_been_done {
        true => codes::CONNECTION_LOST,
        false => error.code(),
    }
}

/// What became of a call of one of our verbs that has failed with this text. `None`: the verb is not ours, or somebody else's
/// with the same number.
#[must_use]
pub fn outcome(verb: u64, what: &str) -> Option<PeerOutcome> {
    let text = what.strip_prefix("SBP-").filter(|_| VERBS.contains(&verb))?;
    let (number, _) = text.split_once(' ')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let rule = codes::rule(ErrorCode(number.parse().ok().filter(|_| is_number)?));
    Some(match (rule.may_have_been_done, rule.retry) {
        (true, _) => PeerOutcome::Unknown,
        (false, Retry::Never) => PeerOutcome::Refused,
        (false, _) => PeerOutcome::RefusedForNow,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: ClientError) -> Option<PeerOutcome> {
        match Failed::from(error).exception() {
            Exception::User(text) => outcome(1001, std::str::from_utf8(text.as_ref()).expect("text")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_became_of_a_call_is_told_by_the_number() {
        let of = |code, outcome| told(ClientError::of_peer(code, "it did not go well", outcome, None));
        assert_eq!(
            of(codes::DEADLINE_AFTER_SEND, PeerOutcome::Unknown),
            Some(PeerOutcome::Unknown)
        );
        assert_eq!(
            of(codes::CONNECTION_LOST, PeerOutcome::Unknown),
            Some(PeerOutcome::Unknown)
        );
        assert_eq!(
            of(ErrorCode::NOT_FOUND, PeerOutcome::Refused),
            Some(PeerOutcome::Refused)
        );
        // Refused now, and perhaps done by an attempt before.
        assert_eq!(
            of(ErrorCode::NOT_FOUND, PeerOutcome::Unknown),
            Some(PeerOutcome::Unknown)
        );
        assert_eq!(
            of(ErrorCode::SHUTTING_DOWN, PeerOutcome::RefusedForNow),
            Some(PeerOutcome::RefusedForNow)
        );
    }

    #[test]
    fn texts_of_others_say_nothing() {
        assert_eq!(outcome(1000, "SBP-9004 x"), None);
        assert_eq!(outcome(1008, "SBP-9004 x"), None);
        for text in [
            "",
            "boom",
            "SBP-",
            "SBP-9004",
            "SBP-+904 x",
            "SBP-99999 x",
            "SBP-904 x",
            "sbp-9004 x",
        ] {
            assert_eq!(outcome(1001, text), None, "{text}");
        }
    }
}
