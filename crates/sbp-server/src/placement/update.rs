//! UPDATE_STREAMS.

use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_types::StreamId;

use super::effects::{Effects, Order, Outcome};
use super::name::check_name;
use super::records::StreamRecord;
use super::settings::RequestedSettings;
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

/// Changes settings and name, all or none.
pub(super) fn update_stream(state: &PlacementState, update: StreamUpdate) -> Result<Effects, Refusal> {
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
