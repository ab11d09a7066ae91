//! UPDATE_STREAMS.

use std::sync::Arc;

use sbp_messages::{ErrorCode, RangeId};
use sbp_types::StreamId;

use super::choose::Candidate;
use super::create::check_servers;
use super::effects::{Effects, Order, Outcome};
use super::name::check_name;
use super::records::StreamRecord;
use super::settings::{RequestedSettings, Settings};
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// A change of a stream's settings or name.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamUpdate {
    pub(crate) id: StreamId,
    /// Empty: the stream keeps its name, or its lack of one.
    pub(crate) name: String,
    pub(crate) settings: RequestedSettings,
}

/// Changes settings and name, all or none. Other numbers of replicas or acknowledgements are those of the next range, which
/// is opened then: see [`range_with_other_numbers`].
pub(super) fn update_stream(
    state: &PlacementState,
    candidates: &[Candidate],
    update: StreamUpdate,
) -> Result<Effects, Refusal> {
    let StreamUpdate { id, name, settings } = update;
    let Some(old) = state.stream(id) else {
        return Err(Refusal::no_stream(id));
    };
    let name = new_name(state, old, name)?;
    let stream = Arc::new(StreamRecord {
        name,
        settings: settings.merge(&old.settings)?,
        ..StreamRecord::clone(old)
    });
    if numbers(&stream.settings) != numbers(&old.settings) {
        check_servers(&stream.settings, candidates)?;
        check_present_server(state, candidates, &stream)?;
    }
    if same_to_the_byte(&stream, old) {
        return Ok(Effects::nothing(Outcome::Stream(Arc::clone(old))));
    }
    let orders = match state.last_range(id) {
        Some(last) if stream.facts() != old.facts() => Order::install(&stream, &last.servers, &[last]),
        _ => Vec::new(),
    };
    Ok(Effects {
        changes: vec![Change::PutStream(Arc::clone(&stream))],
        orders,
        outcome: Outcome::Stream(stream),
    })
}

/// How many replicas a stream is to have, and how many of them acknowledge.
fn numbers(settings: &Settings) -> (i8, i8) {
    (settings.replica_count, settings.ack_count)
}

/// The open range of a stream that was opened with other numbers of replicas and acknowledgements than the stream is to have:
/// it has to be sealed, and the next one opened with them.
pub(crate) fn range_with_other_numbers(state: &PlacementState, stream: StreamId) -> Option<RangeId> {
    let settings = &state.stream(stream)?.settings;
    let last = state.last_range(stream)?;
    let differs = last.end_offset.is_none() && (last.replica_count, last.ack_count) != numbers(settings);
    differs.then_some(RangeId {
        stream_id: stream,
        range_index: Some(last.key.range),
        epoch: Some(last.epoch),
        end_offset: None,
    })
}

/// Refuses several replicas to a stream whose present server keeps no copies for others: the next range has to begin there.
fn check_present_server(
    state: &PlacementState,
    candidates: &[Candidate],
    stream: &StreamRecord,
) -> Result<(), Refusal> {
    let Some(last) = state.last_range(stream.id).filter(|last| last.servers.len() == 1) else {
        return Ok(());
    };
    let alone = candidates.iter().find(|candidate| last.servers.contains(&candidate.id));
    match alone {
        Some(server) if stream.settings.replica_count > 1 && !server.replicates => Err(Refusal::new(
            ErrorCode::UNSUPPORTED_OPERATION,
            format!(
                "stream {} is on range server {}, which keeps no copies for others, as it is in the process of its                  placement driver or of an older version: create another stream",
                stream.id, server.id
            ),
        )),
        _ => Ok(()),
    }
}

fn new_name(state: &PlacementState, old: &StreamRecord, wanted: String) -> Result<Option<Arc<str>>, Refusal> {
    if wanted.is_empty() || old.name.as_deref() == Some(wanted.as_str()) {
        return Ok(old.name.clone());
    }
    check_name(&wanted)?;
    match state.stream_named(&wanted) {
        None => Ok(Some(Arc::from(wanted))),
        Some(other) => Err(Refusal::new(
            ErrorCode::ALREADY_EXISTS,
            format!("\"{wanted}\" is the name of stream {}: choose another one", other.id),
        )),
    }
}

/// Whether nothing has to be stored. Schemas that are equal may still differ in their bytes, and those are stored.
fn same_to_the_byte(new: &StreamRecord, old: &StreamRecord) -> bool {
    let ipc = |stream: &StreamRecord| stream.settings.schema.as_ref().map(|schema| schema.ipc.clone());
    new == old && ipc(new) == ipc(old)
}
