//! Why a copy of a range takes nothing, in words.

use sbp_messages::ErrorCode;
use sbp_replication::NotTaken;
use sbp_types::{RangeKey, ServerId};

use crate::refusal::Refusal;

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
        NotTaken::Sealed => Refusal::new(ErrorCode::RANGE_ALREADY_SEALED, format!("range {key} is sealed")),
    }
}
