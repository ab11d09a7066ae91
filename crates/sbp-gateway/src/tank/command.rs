//! What a connection is told.

use sbp_tank::{Answer, Call};

/// What a connection is told.
#[derive(Debug)]
pub(super) enum Command {
    /// A request is answered.
    Answer(Call, Answer),
    /// A request has no answer that would be true: the connection ends.
    GiveUp,
}
