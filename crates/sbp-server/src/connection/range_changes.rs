//! SEAL_RANGES, CREATE_RANGE and SYNC_RANGES: converts requests about ranges and builds their answers.

use sbp_frame::CallId;
use sbp_messages::{
    CreateRangeResponse, Range, RangeId, SealKind, SealRangesResponse, SealRangesResult, Status, StreamRanges,
    SyncRangesResponse, SyncRangesResult,
};
use sbp_session::Session;
use sbp_types::{Epoch, Offset, StreamId};

use super::replier::Replier;
use super::results::send_results;
use super::streams::failure;
use super::wire_range::range_weight;
use crate::placement::{NewRange, Outcome, Outcomes, PlacementState, RangeRecord, SealFor, SealTarget};
use crate::refusal::Refusal;

/// On whose behalf a request seals.
pub(super) fn seal_for(kind: SealKind) -> Result<SealFor, Refusal> {
    match kind {
        SealKind::UNSPECIFIED | SealKind::PLACEMENT_DRIVER => Ok(SealFor::PlacementDriver),
        SealKind::RANGE_SERVER => Ok(SealFor::RangeServer),
        SealKind(other) => Err(Refusal::invalid(format!("{other} is no kind of seal"))),
    }
}

/// The range that an entry of SEAL_RANGES names.
pub(super) fn seal_target(range: &RangeId) -> Result<SealTarget, Refusal> {
    if let Some(fault) = range.fault() {
        return Err(Refusal::new(fault.code, fault.message));
    }
    Ok(SealTarget {
        stream: range.stream_id,
        range: range.range_index,
        epoch: range.epoch,
        end: range.end_offset,
    })
}

/// The range that CREATE_RANGE describes.
pub(super) fn new_range(range: &Range) -> Result<NewRange, Refusal> {
    if !range.stream_id.is_valid() {
        return Err(Refusal::no_stream(range.stream_id));
    }
    let (index, start, epoch) = (range.range_index, range.start_offset, range.epoch);
    if index.0 < 0 || start.0 < -1 || epoch.0 < -1 {
        let message = format!("range {index} from offset {start} on with epoch {epoch} cannot be");
        return Err(Refusal::invalid(message));
    }
    Ok(NewRange {
        key: sbp_types::RangeKey {
            stream: range.stream_id,
            range: index,
        },
        start: (start != Offset(-1)).then_some(start),
        epoch: (epoch != Epoch(-1)).then_some(epoch),
    })
}

/// Answers SEAL_RANGES. `ids` are the streams asked for.
pub(super) fn answer_sealed(
    session: &mut Session,
    replier: &mut Replier,
    show: &dyn Fn(&RangeRecord) -> Range,
    call: CallId,
    ids: Vec<StreamId>,
    reply: Outcomes,
) {
    let results = reply.into_iter().zip(ids).map(|(result, stream_id)| {
        let (range, status) = range_result(show, result);
        SealRangesResult {
            stream_id,
            range,
            status,
        }
    });
    let weigh =
        |result: &SealRangesResult| 64 + result.range.as_ref().map_or(0, range_weight) + result.status.message.len();
    send_results(session, replier, call, results, weigh, |seal_responses, _| {
        SealRangesResponse {
            seal_responses,
            ..Default::default()
        }
    });
}

/// Answers CREATE_RANGE.
pub(super) fn answer_created(
    session: &mut Session,
    replier: &mut Replier,
    show: &dyn Fn(&RangeRecord) -> Range,
    call: CallId,
    result: Result<Outcome, Refusal>,
) {
    let (range, status) = range_result(show, result);
    replier.finish(
        session,
        call,
        &CreateRangeResponse {
            status,
            range,
            throttle_time_ms: 0,
        },
    );
}

fn range_result(show: &dyn Fn(&RangeRecord) -> Range, result: Result<Outcome, Refusal>) -> (Option<Range>, Status) {
    match result {
        Ok(Outcome::Range(range)) => (Some(show(&range)), Status::success()),
        other => (None, failure(other)),
    }
}

/// Answers SYNC_RANGES.
pub(super) fn answer_synced(
    session: &mut Session,
    replier: &mut Replier,
    call: CallId,
    results: impl Iterator<Item = SyncRangesResult>,
) {
    let weigh = |result: &SyncRangesResult| {
        64 + result.ranges.iter().map(range_weight).sum::<usize>() + result.status.message.len()
    };
    send_results(session, replier, call, results, weigh, |sync_responses, _| {
        SyncRangesResponse {
            sync_responses,
            ..Default::default()
        }
    });
}

/// The stored ranges of a stream that the request names; all of them if it names none.
pub(super) fn stored(
    state: &PlacementState,
    asked: &StreamRanges,
) -> Result<Vec<std::sync::Arc<RangeRecord>>, Refusal> {
    if state.stream(asked.stream_id).is_none() {
        return Err(Refusal::no_stream(asked.stream_id));
    }
    let named = |index| asked.ranges.iter().any(|range| range.range_index == index);
    let ranges = state.ranges_of(asked.stream_id);
    Ok(ranges
        .filter(|range| asked.ranges.is_empty() || named(range.key.range))
        .cloned()
        .collect())
}
