//! The one door through which metadata changes.

use sbp_types::{ServerId, TimestampMs};

use super::create::{self, Created, NewStream};
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// A change somebody asks for. Sealing, trimming, updating and deleting become further variants.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Create streams, each with its first range. What was refused while it was read stays refused.
    CreateStreams(Vec<Result<NewStream, Refusal>>),
}

/// What a command comes to.
#[derive(Debug)]
pub(crate) struct Effects {
    /// What has to become durable, all or nothing, before anybody hears of it. Empty when nothing changes.
    pub(crate) changes: Vec<Change>,
    /// What to answer then.
    pub(crate) reply: Reply,
}

/// The answer to a command, entry by entry in the order of the command.
#[derive(Debug)]
pub(crate) enum Reply {
    /// To [`Command::CreateStreams`].
    Created(Vec<Result<Created, Refusal>>),
}

/// Decides what `command` does to `state`, and changes nothing.
///
/// `servers` are the range servers that new ranges can be placed on.
pub(crate) fn apply(state: &PlacementState, servers: &[ServerId], command: Command, now: TimestampMs) -> Effects {
    match command {
        Command::CreateStreams(streams) => {
            let (changes, results) = create::create_streams(state, servers, streams, now);
            Effects {
                changes,
                reply: Reply::Created(results),
            }
        }
    }
}
