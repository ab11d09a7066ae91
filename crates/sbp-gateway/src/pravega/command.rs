//! What a connection is told.

use sbp_pravega::{Call, Reply};

/// What a connection is told.
#[derive(Debug)]
pub(super) enum Command {
    /// A request is answered.
    Answer(Call, Reply),
    /// A request has no answer that would be true: the connection ends.
    GiveUp,
}
