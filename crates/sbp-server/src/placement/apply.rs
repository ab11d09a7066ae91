//! The one function through which metadata changes.

use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey, ServerId, StreamId, StreamIdentity, TimestampMs};

use super::choose::Candidate;
use super::copies::{Copy, add_copy, cleared_on, finish_copy, lacks_some, release_copies, replace_copy};
use super::create::{NewStream, create_stream};
use super::delete::{delete_stream, removed_from};
use super::effects::{Effects, Outcome};
use super::records::ServerRecord;
use super::seal::{NewRange, create_range, finish_seal, open_next};
use super::shared_end::{SharedEnd, finish_shared_seal};
use super::state::{Change, PlacementState};
use super::trim::trim_stream;
use super::update::{StreamUpdate, update_stream};
use crate::refusal::Refusal;

/// A change of the metadata.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Create a stream with its first range and this identity. A stream of the same name and settings that exists is
    /// returned instead.
    CreateStream(NewStream, StreamIdentity),
    /// Change a stream's settings or its name.
    UpdateStream(StreamUpdate),
    /// Delete a stream.
    DeleteStream(StreamId),
    /// Let a stream begin at `start`. `end` is the confirmed end of the open range, where
    /// [`plan_trim`](super::trim::plan_trim) asks for it.
    TrimStream {
        stream: StreamId,
        start: Offset,
        end: Option<Offset>,
    },
    /// A range server has sealed the range: store its end and, with `open_next`, open the next range.
    FinishSeal {
        key: RangeKey,
        end: Offset,
        open_next: bool,
    },
    /// The servers of a range that several hold have decided its end.
    FinishSharedSeal(SharedEnd),
    /// Open the range after this one, which is sealed.
    OpenNext(RangeKey),
    /// Have a server get a copy of a sealed range.
    AddCopy(Copy),
    /// A server has all of a sealed range.
    FinishCopy(Copy),
    /// A server that counted as one with all of a sealed range lacks some of it.
    LacksSome(Copy),
    /// A server whose copy of a sealed range cannot be made whole is to remove it.
    ReplaceCopy(Copy),
    /// The servers that are `away` are not counted on any more for a sealed range. They are to remove what they have of it, where
    /// that can be kept.
    ReleaseCopies {
        key: RangeKey,
        away: Vec<ServerId>,
        notes_copies: bool,
    },
    /// A server has nothing any more of these ranges, which it was let go of.
    ClearedOn { server: ServerId, keys: Vec<RangeKey> },
    /// Open a range as a CREATE_RANGE request describes it.
    CreateRange(NewRange),
    /// Allocate an id for a range server.
    AllocateServerId,
    /// A range server reports its address.
    RegisterServer(ServerRecord),
    /// A range server is to be emptied, or to be used again.
    Drain { server: ServerId, draining: bool },
    /// A server has nothing of a deleted stream any more, also after restarts.
    RemovedFrom { stream: StreamId, server: ServerId },
    /// No restart can find records of the deleted stream any more: forget that it was deleted.
    DropTombstone(StreamId),
}

/// Decides what `command` changes. `state` itself is not changed.
///
/// `candidates` are the range servers that new ranges can be placed on.
pub(crate) fn apply(
    state: &PlacementState,
    candidates: &[Candidate],
    command: Command,
    now: TimestampMs,
) -> Result<Effects, Refusal> {
    match command {
        Command::CreateStream(stream, identity) => create_stream(state, candidates, stream, identity, now),
        Command::UpdateStream(update) => update_stream(state, candidates, update),
        Command::DeleteStream(stream) => delete_stream(state, candidates, stream),
        Command::TrimStream { stream, start, end } => trim_stream(state, stream, start, end),
        Command::FinishSeal { key, end, open_next } => finish_seal(state, candidates, key, end, open_next),
        Command::FinishSharedSeal(end) => finish_shared_seal(state, candidates, &end),
        Command::OpenNext(key) => open_next(state, candidates, key),
        Command::AddCopy(copy) => add_copy(state, copy),
        Command::FinishCopy(copy) => finish_copy(state, copy),
        Command::LacksSome(copy) => lacks_some(state, copy),
        Command::ReplaceCopy(copy) => replace_copy(state, copy),
        Command::ReleaseCopies {
            key,
            away,
            notes_copies,
        } => release_copies(state, key, &away, notes_copies),
        Command::ClearedOn { server, keys } => Ok(cleared_on(state, server, &keys)),
        Command::CreateRange(range) => create_range(state, candidates, range),
        Command::AllocateServerId => allocate_server_id(state),
        Command::RegisterServer(server) => register_server(state, server),
        Command::Drain { server, draining } => drain_server(state, server, draining),
        Command::RemovedFrom { stream, server } => Ok(removed_from(state, stream, server)),
        Command::DropTombstone(stream) => Ok(Effects {
            changes: vec![Change::DropTombstone(stream)],
            orders: Vec::new(),
            outcome: Outcome::Done,
        }),
    }
}

fn allocate_server_id(state: &PlacementState) -> Result<Effects, Refusal> {
    let id = state.next_server_id();
    let Some(next) = id.0.checked_add(1) else {
        return Err(Refusal::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            "there are no server ids left",
        ));
    };
    Ok(Effects {
        changes: vec![Change::NextServerId(ServerId(next))],
        orders: Vec::new(),
        outcome: Outcome::Server(id),
    })
}

fn drain_server(state: &PlacementState, server: ServerId, draining: bool) -> Result<Effects, Refusal> {
    let Some(known) = state.server(server) else {
        let message =
            format!("no range server with number {server} has ever registered: `sbp cluster status` lists them");
        return Err(Refusal::new(ErrorCode::NOT_FOUND, message));
    };
    if known.draining == draining {
        return Ok(Effects::nothing(Outcome::Done));
    }
    let server = ServerRecord {
        draining,
        ..ServerRecord::clone(known)
    };
    Ok(Effects {
        changes: vec![Change::PutServer(Arc::new(server))],
        orders: Vec::new(),
        outcome: Outcome::Done,
    })
}

/// What an administrator wants of the server stays as it was.
fn register_server(state: &PlacementState, mut server: ServerRecord) -> Result<Effects, Refusal> {
    if let Some(known) = state.server(server.id) {
        known.life().check(server.id, &server.life())?;
        server.draining = known.draining;
        server.starts = server.starts.max(known.starts);
    }
    if state.server(server.id).is_some_and(|known| **known == server) {
        return Ok(Effects::nothing(Outcome::Done));
    }
    let mut changes = Vec::new();
    // A server may report an id that this placement driver did not allocate; the id must not be allocated again.
    if server.id >= state.next_server_id() {
        changes.push(Change::NextServerId(ServerId(server.id.0.saturating_add(1))));
    }
    changes.push(Change::PutServer(Arc::new(server)));
    Ok(Effects {
        changes,
        orders: Vec::new(),
        outcome: Outcome::Done,
    })
}
