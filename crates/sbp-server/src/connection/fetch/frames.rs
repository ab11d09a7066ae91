//! Sends the results of a FETCH in frames.

use sbp_frame::{CallId, PayloadPart};
use sbp_messages::{FetchResponse, FetchResult};
use sbp_session::Session;
use smallvec::SmallVec;

use super::call::ReadyResult;
use crate::connection::replier::Replier;

/// The most bytes of results in a frame: the largest frame, less room for the parts of the answer of fixed size.
const MAX_FRAME_WEIGHT: usize = (16 << 20) - (16 << 10);
/// The most bytes of a result without its data and its message.
const RESULT_WEIGHT: usize = 160;

/// Sends results in as few frames as they fit into. With `end`, the last frame ends the call and asks the peer to wait
/// so many milliseconds before its next FETCH.
pub(super) fn send_results(
    session: &mut Session,
    replier: &mut Replier,
    call: CallId,
    ready: &mut Vec<ReadyResult>,
    end: Option<i32>,
) {
    let mut results: SmallVec<[FetchResult; 1]> = SmallVec::new();
    let mut payload: Vec<PayloadPart<'_>> = Vec::new();
    let mut weight = 0_usize;
    for ReadyResult { result, length, chunks } in ready.drain(..) {
        let added = RESULT_WEIGHT + result.status.message.len() + length;
        if !results.is_empty() && weight + added > MAX_FRAME_WEIGHT {
            let response = FetchResponse {
                fetch_responses: std::mem::take(&mut results),
                ..Default::default()
            };
            replier.send(session, call, &response, false, &payload);
            payload.clear();
            weight = 0;
        }
        weight += added;
        results.push(result);
        payload.extend(chunks.into_iter().map(PayloadPart::Share));
    }
    if end.is_some() || !results.is_empty() {
        replier.send(
            session,
            call,
            &FetchResponse {
                fetch_responses: results,
                throttle_time_ms: end.unwrap_or(0),
                ..Default::default()
            },
            end.is_some(),
            &payload,
        );
    }
}
