//! The requests that change metadata. The metadata thread carries them out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::{
    CreateRangeRequest, CreateStreamsRequest, DeleteStreamsRequest, ErrorCode, IdAllocationRequest,
    IdAllocationResponse, Message, SealRangesRequest, Status, Stream, TrimStreamsRequest, UpdateStreamsRequest,
    requested_timeout,
};
use sbp_session::Session;
use sbp_types::{Offset, RangeKey, StreamId};

use super::ends::Ends;
use super::fault::Fault;
use super::handle::{ConnectionCommand, ConnectionHandle};
use super::range_changes;
use super::replier::Replier;
use super::streams;
use super::turn::RangeTurn;
use crate::node::Node;
use crate::placement::{MetadataJob, Outcome, Outcomes, RangeRecord, Request};
use crate::refusal::Refusal;

/// The changes that a connection has asked for and that are not answered.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pending: HashMap<CallId, ChangeAnswer>,
    /// Changes that are done. Their answers wait for the ends of the ranges that they show.
    done: HashMap<CallId, Done>,
}

#[derive(Debug)]
struct Done {
    pending: ChangeAnswer,
    reply: Outcomes,
    ends: Ends,
}

/// The kind of a request and what its answer repeats of it: names or ids for entries that end in an error.
#[derive(Debug)]
enum ChangeAnswer {
    Created(Vec<String>),
    Updated(Vec<StreamId>),
    Deleted(Vec<StreamId>),
    Trimmed(Vec<StreamId>),
    Sealed(Vec<StreamId>),
    RangeCreated,
    IdAllocated,
}

/// A change request, decoded.
struct Change {
    timeout_ms: i32,
    request: Request,
    pending: ChangeAnswer,
}

impl Changes {
    /// Decodes a request and hands it to the metadata thread.
    pub(super) fn handle_request(
        &mut self,
        node: &Node,
        handle: &Arc<ConnectionHandle>,
        now: Instant,
        frame: &Frame,
    ) -> Result<(), Fault> {
        let placement = node.placement()?;
        let Change {
            timeout_ms,
            request,
            pending,
        } = read_change(frame)?;
        let (handle, call) = (Arc::clone(handle), frame.call_id);
        let job = MetadataJob {
            done: Box::new(move |answer| handle.post(ConnectionCommand::Changed { call, answer })),
            deadline: now + requested_timeout(timeout_ms).unwrap_or(node.limits.default_timeout),
            request,
        };
        if !placement.submit(job) {
            return Err(Refusal::new(ErrorCode::SHUTTING_DOWN, "the server is shutting down").into());
        }
        self.pending.insert(frame.call_id, pending);
        Ok(())
    }

    /// Answers a change that the metadata thread has done, or first asks the servers of open ranges for their ends.
    pub(super) fn handle_changed(&mut self, turn: &mut RangeTurn<'_>, call: CallId, answer: Result<Outcomes, Refusal>) {
        let Some(pending) = self.pending.remove(&call) else {
            return;
        };
        let asked = answer.and_then(|reply| {
            let outcomes = reply.iter().filter_map(|result| result.as_ref().ok());
            let ranges = outcomes.filter_map(Outcome::range_that_may_have_grown);
            let ends = Ends::ask(turn, call, ranges)?;
            Ok((reply, ends))
        });
        match asked {
            Err(refusal) => turn.replier.refuse_call(turn.session, call, pending.opcode(), refusal),
            Ok((reply, ends)) if ends.are_known() => pending.answer(turn, call, reply, &ends),
            Ok((reply, ends)) => {
                self.done.insert(call, Done { pending, reply, ends });
            }
        }
    }

    /// Takes a range server's answer about the ends of ranges, or its failure to answer.
    pub(super) fn handle_ends(
        &mut self,
        turn: &mut RangeTurn<'_>,
        call: CallId,
        keys: &[RangeKey],
        ends: &Result<Vec<Option<Offset>>, Refusal>,
    ) {
        let Some(done) = self.done.get_mut(&call) else {
            return;
        };
        done.ends.take(keys, ends);
        if done.ends.are_known()
            && let Some(Done { pending, reply, ends }) = self.done.remove(&call)
        {
            pending.answer(turn, call, reply, &ends);
        }
    }
}

impl ChangeAnswer {
    fn answer(self, turn: &mut RangeTurn<'_>, call: CallId, reply: Outcomes, ends: &Ends) {
        let RangeTurn {
            session, replier, node, ..
        } = turn;
        let show = |range: &RangeRecord| ends.shown(node, range);
        match self {
            Self::Created(names) => streams::answer_created(session, replier, &show, call, names, reply),
            Self::Updated(ids) => streams::answer_updated(session, replier, call, ids, reply),
            Self::Deleted(ids) => streams::answer_deleted(session, replier, call, ids, reply),
            Self::Trimmed(ids) => streams::answer_trimmed(session, replier, &show, call, ids, reply),
            Self::Sealed(ids) => range_changes::answer_sealed(session, replier, &show, call, ids, reply),
            Self::RangeCreated => range_changes::answer_created(session, replier, &show, call, only(reply)),
            Self::IdAllocated => answer_allocated(session, replier, call, only(reply)),
        }
    }

    fn opcode(&self) -> OpCode {
        match self {
            Self::Created(_) => OpCode::CREATE_STREAMS,
            Self::Updated(_) => OpCode::UPDATE_STREAMS,
            Self::Deleted(_) => OpCode::DELETE_STREAMS,
            Self::Trimmed(_) => OpCode::TRIM_STREAMS,
            Self::Sealed(_) => OpCode::SEAL_RANGES,
            Self::RangeCreated => OpCode::CREATE_RANGE,
            Self::IdAllocated => OpCode::ALLOCATE_ID,
        }
    }
}

fn read_change(frame: &Frame) -> Result<Change, Fault> {
    let ids = |streams: &[Stream]| streams.iter().map(|stream| stream.stream_id).collect();
    let (timeout_ms, request, pending) = match frame.opcode {
        OpCode::CREATE_STREAMS => {
            let CreateStreamsRequest { timeout_ms, streams } = decode(frame, CreateStreamsRequest::validate)?;
            let names = streams.iter().map(|stream| stream.name.clone()).collect();
            let wanted = streams.into_iter().map(streams::new_stream).collect();
            (timeout_ms, Request::CreateStreams(wanted), ChangeAnswer::Created(names))
        }
        OpCode::UPDATE_STREAMS => {
            let UpdateStreamsRequest { timeout_ms, streams } = decode(frame, UpdateStreamsRequest::validate)?;
            let pending = ChangeAnswer::Updated(ids(&streams));
            let wanted = streams.into_iter().map(streams::stream_update).collect();
            (timeout_ms, Request::UpdateStreams(wanted), pending)
        }
        OpCode::DELETE_STREAMS => {
            let DeleteStreamsRequest { timeout_ms, streams } = decode(frame, DeleteStreamsRequest::validate)?;
            let existing = |stream: &Stream| streams::existing_stream(stream.stream_id);
            let wanted = streams.iter().map(existing).collect();
            let pending = ChangeAnswer::Deleted(ids(&streams));
            (timeout_ms, Request::DeleteStreams(wanted), pending)
        }
        OpCode::TRIM_STREAMS => {
            let request = decode(frame, TrimStreamsRequest::validate)?;
            let ids = request.trimmed_streams.iter().map(|trim| trim.stream_id).collect();
            let wanted = request.trimmed_streams.into_iter().map(streams::trimmed_stream);
            let wanted = Request::TrimStreams(wanted.collect());
            (request.timeout_ms, wanted, ChangeAnswer::Trimmed(ids))
        }
        OpCode::SEAL_RANGES => {
            let request = decode(frame, SealRangesRequest::validate)?;
            let on_behalf = range_changes::seal_for(request.kind)?;
            let ids = request.ranges.iter().map(|range| range.stream_id).collect();
            let wanted = request.ranges.iter().map(range_changes::seal_target).collect();
            let wanted = Request::SealRanges(on_behalf, wanted);
            (request.timeout_ms, wanted, ChangeAnswer::Sealed(ids))
        }
        OpCode::CREATE_RANGE => {
            let CreateRangeRequest { timeout_ms, range } = decode(frame, CreateRangeRequest::validate)?;
            let wanted = range_changes::new_range(&range.unwrap_or_default());
            (timeout_ms, Request::CreateRange(wanted), ChangeAnswer::RangeCreated)
        }
        OpCode::ALLOCATE_ID => {
            let request = decode(frame, IdAllocationRequest::validate)?;
            (request.timeout_ms, Request::AllocateServerId, ChangeAnswer::IdAllocated)
        }
        other => {
            let message = format!("{other} is no change of metadata");
            return Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into());
        }
    };
    Ok(Change {
        timeout_ms,
        request,
        pending,
    })
}

/// Decodes a request and validates it as a whole.
pub(super) fn decode<M: Message>(
    frame: &Frame,
    validate: impl FnOnce(&M) -> Result<(), sbp_messages::Refusal>,
) -> Result<M, Fault> {
    let request = M::decode(&frame.header)?;
    validate(&request)?;
    Ok(request)
}

/// The result of a request's only entry.
fn only(reply: Outcomes) -> Result<Outcome, Refusal> {
    reply.into_iter().next().unwrap_or_else(|| Err(Refusal::unanswered()))
}

fn answer_allocated(session: &mut Session, replier: &mut Replier, call: CallId, result: Result<Outcome, Refusal>) {
    let response = match result {
        Ok(Outcome::Server(id)) => IdAllocationResponse {
            id: id.0,
            status: Status::success(),
        },
        other => IdAllocationResponse {
            id: 0,
            status: streams::failure(other),
        },
    };
    replier.finish(session, call, &response);
}
