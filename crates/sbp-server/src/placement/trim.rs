//! TRIM_STREAMS.

use std::collections::BTreeSet;
use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::effects::{Action, Effects, Order, Outcome};
use super::records::RangeRecord;
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// What the placement driver has to know before it can judge a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrimPlan {
    /// Nothing more: the metadata is enough.
    Judge,
    /// The confirmed end of the open range, which its server knows.
    AskEnd(ServerId, RangeKey),
}

/// Says whether the metadata alone can tell if the stream may begin at `start`.
pub(crate) fn plan_trim(state: &PlacementState, stream: StreamId, start: Offset) -> Result<TrimPlan, Refusal> {
    let Some(last) = state.last_range(stream) else {
        return Err(Refusal::no_stream(stream));
    };
    Ok(match last.appends_go_to() {
        Some(server) if start > last.start_offset => TrimPlan::AskEnd(server, last.key),
        _ => TrimPlan::Judge,
    })
}

/// Lets the stream begin at `start`. Ranges that end at or before `start` are removed, except the last one. A `start`
/// at or below the present one changes nothing.
pub(super) fn trim_stream(
    state: &PlacementState,
    id: StreamId,
    start: Offset,
    end: Option<Offset>,
) -> Result<Effects, Refusal> {
    let (Some(stream), Some(last)) = (state.stream(id), state.last_range(id)) else {
        return Err(Refusal::no_stream(id));
    };
    let end = last.end_offset.or(end).unwrap_or(last.start_offset);
    if start.0 < 0 || start > end {
        return Err(Refusal::new(
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
            format!("stream {id} has records up to offset {end}; it cannot begin at {start}"),
        ));
    }
    let goes = |range: &Arc<RangeRecord>| range.key != last.key && range.end_offset.is_some_and(|end| end <= start);
    let (gone, left): (Vec<_>, Vec<_>) = state.ranges_of(id).partition(|range| goes(range));
    let first = left.first().copied().unwrap_or(last);
    let raised = start > first.start_offset;
    if gone.is_empty() && !raised {
        return Ok(Effects::nothing(Outcome::StreamRange(
            Arc::clone(stream),
            Arc::clone(first),
        )));
    }
    let mut changes: Vec<_> = gone.iter().map(|range| Change::RemoveRange(range.key)).collect();
    // Also who has not said yet that it has nothing of a range that goes.
    let told = gone.iter().chain([&first]);
    let servers: BTreeSet<_> = told
        .flat_map(|range| range.servers.iter().chain(&range.let_go))
        .collect();
    let orders = servers.into_iter().map(|server| Order {
        server: *server,
        stream: id,
        action: Action::Trim(start),
    });
    let orders = orders.collect();
    let first = if raised {
        let first = Arc::new(RangeRecord {
            start_offset: start,
            ..RangeRecord::clone(first)
        });
        changes.push(Change::PutRange(Arc::clone(&first)));
        first
    } else {
        Arc::clone(first)
    };
    Ok(Effects {
        changes,
        orders,
        outcome: Outcome::StreamRange(Arc::clone(stream), first),
    })
}
