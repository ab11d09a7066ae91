//! Why a copy of a range takes nothing, in words.

use sbp_messages::ErrorCode;
use sbp_replication::NotTaken;
use sbp_types::{RangeKey, ServerId};

use crate::refusal::Refusal;

/// The refusal of an append, or of a fetch that waits, by a server that may be cut off from the others.
pub(crate) fn cut_off(key: RangeKey) -> Refusal {
    Refusal::new(
        ErrorCode::RANGE_NOT_FOUND,
        format!(
            "this server has not heard lately from enough of the servers that hold range {key} too: it may be cut off from \
             them; list the stream's ranges again"
        ),
    )
}

/// The refusal to say where a stream ends, by a primary that too few other servers have told that they are not fenced.
pub(crate) fn end_not_told(key: RangeKey) -> Refusal {
    Refusal::new(
        ErrorCode::RANGE_NOT_FOUND,
        format!(
            "too few of the servers that hold range {key} too have said that it is not being sealed, so the stream may go on \
             elsewhere; list its ranges again"
        ),
    )
}

/// The refusal of an append, or of an entry that another server sends, by a copy that does not take it.
pub(crate) fn not_taken(key: RangeKey, why: NotTaken, primary: Option<ServerId>) -> Refusal {
    let elsewhere = |message| Refusal::new(ErrorCode::RANGE_NOT_FOUND, message);
    match why {
        NotTaken::NotPrimary => elsewhere(match primary {
            Some(primary) => format!(
                "this server has a copy of range {key}, but server {primary} takes its appends; list the stream's ranges again"
            ),
            None => format!("range {key} has no primary; list the stream's ranges again"),
        }),
        NotTaken::NeedsSeal => elsewhere(format!(
            "this server does not go on with range {key} after what has happened to it: the range has to be sealed, and the \
             next one takes appends; list the stream's ranges again"
        )),
        NotTaken::Fenced => elsewhere(format!(
            "range {key} is being sealed, and the next one takes appends; list the stream's ranges again"
        )),
        NotTaken::WritersMissing => elsewhere(format!(
            "range {key} is being opened: the state of its writers is not here yet; list the stream's ranges again"
        )),
        NotTaken::TooManyUnconfirmed => Refusal::new(
            ErrorCode::TOO_MANY_REQUESTS,
            format!("as many entries of range {key} as may be wait to be confirmed by other servers; try again"),
        ),
        NotTaken::OtherEpoch => Refusal::new(
            ErrorCode::EXPIRED_RANGE_EPOCH,
            format!("range {key} has another epoch here; list the stream's ranges again"),
        ),
        NotTaken::Damaged => Refusal::new(
            ErrorCode::RS_DATA_CORRUPTED,
            format!("the end of range {key} is damaged on disk"),
        ),
        NotTaken::TrimUnknown => elsewhere(format!("this server was not told how far range {key} is trimmed")),
        NotTaken::EndUnknown => elsewhere(format!("this server was not told where range {key} ends")),
        NotTaken::OutOfPlace => Refusal::invalid(format!("no such entry can stand there in range {key}")),
        NotTaken::Sealed => Refusal::new(ErrorCode::RANGE_ALREADY_SEALED, format!("range {key} is sealed")),
    }
}
