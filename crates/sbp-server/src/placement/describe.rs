//! DESCRIBE_STREAMS.

use std::sync::Arc;

use sbp_frame::OpCode;
use sbp_messages::{DescribeStreamsRequest, ErrorCode};
use sbp_types::StreamId;

use super::name::quoted;
use super::page_size;
use super::records::StreamRecord;
use super::state::PlacementState;
use super::token::{read_stream_token, write_stream_token};
use crate::access::{Gate, Subject};
use crate::refusal::Refusal;

/// The answer for one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Described {
    /// The stream exists.
    Found(Arc<StreamRecord>),
    /// There is no stream with this id, or the peer may not know of it.
    UnknownId(StreamId, Refusal),
    /// There is no stream with this name, or the peer may not know of it.
    UnknownName(String, Refusal),
}

/// Answers a query, as far as `gate` lets its sender see. With ids or names: these, ids first, in request order. Otherwise: a page of all streams, ordered by
/// id, and the token of the next page, which is empty after the last one.
pub(crate) fn describe_streams(
    state: &PlacementState,
    query: DescribeStreamsRequest,
    gate: &Gate,
) -> Result<(Vec<Described>, Vec<u8>), Refusal> {
    if query.is_list() {
        return page(state, query.limit, &query.continuation, gate);
    }
    let opcode = OpCode::DESCRIBE_STREAMS;
    let mut found = Vec::with_capacity(query.stream_ids.len() + query.names.len());
    for id in query.stream_ids {
        if let Err(refusal) = gate.check_id(opcode, id, |id, allowed| allowed(state.name_of(id))) {
            found.push(Described::UnknownId(id, refusal));
            continue;
        }
        found.push(match state.stream(id) {
            Some(stream) => Described::Found(Arc::clone(stream)),
            None => Described::UnknownId(id, Refusal::no_stream(id)),
        });
    }
    for name in query.names {
        if let Err(refusal) = gate.check_name(opcode, Subject::Stream, &name) {
            found.push(Described::UnknownName(name, refusal));
            continue;
        }
        found.push(match state.stream_named(&name) {
            Some(stream) => Described::Found(Arc::clone(stream)),
            None => {
                let message = format!("there is no stream {}", quoted(&name));
                let refusal = Refusal::new(ErrorCode::NOT_FOUND, message);
                Described::UnknownName(name, refusal)
            }
        });
    }
    Ok((found, Vec::new()))
}

fn page(state: &PlacementState, limit: i32, token: &[u8], gate: &Gate) -> Result<(Vec<Described>, Vec<u8>), Refusal> {
    let after = read_stream_token(token)?;
    let size = page_size(limit);
    let listed = |stream: &&Arc<StreamRecord>| gate.lists(stream.name.as_deref());
    let mut streams = state.streams_after(after).filter(listed);
    let shown: Vec<_> = streams.by_ref().take(size).cloned().collect();
    let next = match (shown.last(), streams.next()) {
        (Some(last), Some(_)) => write_stream_token(last.id),
        _ => Vec::new(),
    };
    Ok((shown.into_iter().map(Described::Found).collect(), next))
}
