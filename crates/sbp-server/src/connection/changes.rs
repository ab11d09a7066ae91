//! The requests that change metadata: what the metadata thread is asked, and how its outcomes are answered.

use sbp_frame::{Frame, OpCode};
use sbp_messages::{
    CreateRangeRequest, CreateRangeResponse, CreateStreamResult, CreateStreamsRequest, DecodeError, DeleteStreamResult,
    DeleteStreamsRequest, ErrorCode, IdAllocationRequest, IdAllocationResponse, Message, Range, RangeServer,
    ReportMetricsRequest, ReportMetricsResponse, SealKind, SealRangesRequest, SealRangesResult, ServerState, Status,
    Stream, TrimStreamResult, TrimStreamsRequest, UpdateStreamResult, UpdateStreamsRequest,
};
use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::ends::listed;
use super::fault::Fault;
use super::handle::{Answer, Turn};
use super::results::EntryResult;
use super::streams::{existing_stream, new_stream, stream_update, trimmed_stream, wire_stream, with_id, with_name};
use crate::access::Subject;
use crate::node::Node;
use crate::placement::{NewRange, Outcome, Outcomes, Request, SealFor, SealWish};
use crate::refusal::Refusal;

/// How a change is answered: with the outcomes of its entries.
pub(super) type ChangeAnswer = Answer<Outcomes>;

/// A request that changes metadata.
pub(super) struct Change {
    pub(super) timeout_ms: i32,
    pub(super) request: Request,
    pub(super) answer: ChangeAnswer,
    /// What each entry is about.
    pub(super) asked: Asked,
}

/// What the entries of a request are about, in their order.
#[derive(Debug)]
pub(super) enum Asked {
    /// Streams that are to be made.
    Names(Vec<String>),
    /// Streams that are there, or said to be.
    Ids(Vec<StreamId>),
    /// Streams of which ranges are sealed although records may be lost.
    Forced(Vec<StreamId>),
    /// A range server, and what is to become of it.
    Server(ServerId, &'static str),
}

/// Decodes a request, and refuses the entries that the peer may not ask for.
pub(super) fn read_change(turn: &Turn<'_>, frame: &Frame) -> Result<Change, Fault> {
    let (timeout_ms, request, answer, asked) = match frame.opcode {
        OpCode::SEAL_RANGES | OpCode::CREATE_RANGE | OpCode::ALLOCATE_ID => read_range_change(turn, frame)?,
        OpCode::REPORT_METRICS => read_server_change(turn, frame)?,
        _ => read_stream_change(turn, frame)?,
    };
    Ok(Change {
        timeout_ms,
        request,
        answer,
        asked,
    })
}

/// What a request says: its timeout in milliseconds, what is asked, how it is answered, and what its entries are about.
type Read = (i32, Request, ChangeAnswer, Asked);

fn read_stream_change(turn: &Turn<'_>, frame: &Frame) -> Result<Read, Fault> {
    let opcode = frame.opcode;
    let may = |stream: StreamId| turn.check_stream(opcode, stream);
    let may_name = |name: &str| turn.gate.check_name(opcode, Subject::NewName, name);
    let ids = |streams: &[Stream]| -> Vec<_> { streams.iter().map(|stream| stream.stream_id).collect() };
    Ok(match opcode {
        OpCode::CREATE_STREAMS => {
            let CreateStreamsRequest { timeout_ms, streams } = decode(frame, CreateStreamsRequest::validate)?;
            let names: Vec<_> = streams.iter().map(|stream| stream.name.clone()).collect();
            let wanted = streams.into_iter().map(|stream| {
                may_name(&stream.name)?;
                new_stream(stream, turn.gate.owner())
            });
            let wanted = wanted.collect();
            let answer = for_each(names.clone(), created);
            (timeout_ms, Request::CreateStreams(wanted), answer, Asked::Names(names))
        }
        OpCode::UPDATE_STREAMS => {
            let UpdateStreamsRequest { timeout_ms, streams } = decode(frame, UpdateStreamsRequest::validate)?;
            let ids = ids(&streams);
            let answer = for_each(ids.clone(), updated);
            let wanted = streams.into_iter().map(|stream| {
                may(stream.stream_id)?;
                if !stream.name.is_empty() {
                    may_name(&stream.name)?;
                }
                stream_update(stream)
            });
            let wanted = wanted.collect();
            (timeout_ms, Request::UpdateStreams(wanted), answer, Asked::Ids(ids))
        }
        OpCode::DELETE_STREAMS => {
            let DeleteStreamsRequest {
                timeout_ms, streams, ..
            } = decode(frame, DeleteStreamsRequest::validate)?;
            let wanted = streams.iter().map(|stream| {
                may(stream.stream_id)?;
                existing_stream(stream.stream_id)
            });
            let wanted = Request::DeleteStreams(wanted.collect());
            let ids = ids(&streams);
            (timeout_ms, wanted, for_each(ids.clone(), deleted), Asked::Ids(ids))
        }
        OpCode::TRIM_STREAMS => {
            let request = decode(frame, TrimStreamsRequest::validate)?;
            let ids: Vec<_> = request.trimmed_streams.iter().map(|trim| trim.stream_id).collect();
            let wanted = request.trimmed_streams.into_iter().map(|trim| {
                may(trim.stream_id)?;
                trimmed_stream(trim)
            });
            let wanted = wanted.collect();
            let answer = for_each(ids.clone(), trimmed);
            (
                request.timeout_ms,
                Request::TrimStreams(wanted),
                answer,
                Asked::Ids(ids),
            )
        }
        other => {
            let message = format!("{other} is not served by this version of the server");
            return Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into());
        }
    })
}

fn read_range_change(turn: &Turn<'_>, frame: &Frame) -> Result<Read, Fault> {
    let opcode = frame.opcode;
    let may = |stream: StreamId| turn.check_stream(opcode, stream);
    Ok(match opcode {
        OpCode::SEAL_RANGES => {
            let request = decode(frame, SealRangesRequest::validate)?;
            let ids: Vec<_> = request.ranges.iter().map(|range| range.stream_id).collect();
            let wanted = request.ranges.iter().map(|range| {
                may(range.stream_id)?;
                if request.force {
                    turn.check_forced(opcode, range.stream_id)?;
                }
                Refusal::check(range.fault()).map(|()| *range)
            });
            let wish = SealWish {
                on_behalf: seal_for(request.kind)?,
                avoid: request.avoid.as_slice().into(),
                force: request.force,
            };
            let wanted = Request::SealRanges(wish, wanted.collect());
            let answer = for_each(ids.clone(), sealed);
            let asked = match request.force {
                true => Asked::Forced(ids),
                false => Asked::Ids(ids),
            };
            (request.timeout_ms, wanted, answer, asked)
        }
        OpCode::CREATE_RANGE => {
            let CreateRangeRequest { timeout_ms, range } = decode(frame, CreateRangeRequest::validate)?;
            let range = range.unwrap_or_default();
            let wanted = may(range.stream_id).and_then(|()| new_range(&range));
            let asked = Asked::Ids(vec![range.stream_id]);
            (timeout_ms, Request::CreateRange(wanted), answer_range_created(), asked)
        }
        _ => {
            let request = decode(frame, IdAllocationRequest::validate)?;
            let asked = Asked::Ids(Vec::new());
            (
                request.timeout_ms,
                Request::AllocateServerId,
                answer_id_allocated(),
                asked,
            )
        }
    })
}

/// Reads what an administrator says is to become of a range server.
fn read_server_change(turn: &Turn<'_>, frame: &Frame) -> Result<Read, Fault> {
    let request = ReportMetricsRequest::decode(&frame.header)?;
    let Some(server) = request.range_server else {
        return Err(Refusal::invalid("the request does not say which range server it is about").into());
    };
    let id = server.server_id;
    let (wanted, how) = match request.wanted {
        ServerState::DRAINING => (Ok((id, true)), "drain"),
        ServerState::IN_USE => (Ok((id, false)), "use"),
        ServerState(other) => {
            let refusal = Refusal::invalid(format!("{other} is no state of a range server"));
            (Err(refusal), "unknown")
        }
    };
    let wanted = turn.gate.check_cluster(frame.opcode).and_then(|()| {
        let keeps_no_copies = turn.node.identity.server_id == Some(id) && turn.node.range_role.is_none();
        if !keeps_no_copies {
            return wanted;
        }
        let message = format!(
            "range server {id} is in the process of its placement driver, which keeps no copies for others: it cannot be emptied"
        );
        Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message))
    });
    let answer = answer_server_changed(server);
    Ok((0, Request::Drain(wanted), answer, Asked::Server(id, how)))
}

/// Decodes a request and validates it as a whole.
pub(super) fn decode<M: Message>(
    frame: &Frame,
    validate: impl FnOnce(&M) -> Result<(), sbp_messages::Refusal>,
) -> Result<M, Fault> {
    let request = M::decode(&frame.header)?;
    validate(&request).map_err(DecodeError::from)?;
    Ok(request)
}

/// On whose behalf a request seals.
fn seal_for(kind: SealKind) -> Result<SealFor, Refusal> {
    match kind {
        SealKind::UNSPECIFIED | SealKind::PLACEMENT_DRIVER => Ok(SealFor::PlacementDriver),
        SealKind::RANGE_SERVER => Ok(SealFor::RangeServer),
        SealKind(other) => Err(Refusal::invalid(format!("{other} is no kind of seal"))),
    }
}

/// The range that CREATE_RANGE describes.
fn new_range(range: &Range) -> Result<NewRange, Refusal> {
    let stream = existing_stream(range.stream_id)?;
    let (index, start, epoch) = (range.range_index, range.start_offset, range.epoch);
    if index.0 < 0 || start.0 < -1 || epoch.is_some_and(|epoch| epoch.0 < 0) {
        let epoch = epoch.map_or(-1, |epoch| epoch.0);
        let message = format!("range {index} from offset {start} on with epoch {epoch} cannot be");
        return Err(Refusal::invalid(message));
    }
    Ok(NewRange {
        key: RangeKey { stream, range: index },
        start: (start != Offset(-1)).then_some(start),
        epoch,
    })
}

/// What an answer shows of the outcome of an entry.
#[derive(Default)]
struct Shown {
    stream: Option<Stream>,
    range: Option<Range>,
    status: Status,
    /// From and to of records that nobody can read, one behind the other.
    lost: Vec<Offset>,
}

impl Shown {
    fn new(outcome: Result<Outcome, Refusal>, node: &Node) -> Self {
        let show = |range| listed(node, range);
        let (stream, range) = match outcome {
            Ok(Outcome::Stream(stream)) => (Some(wire_stream(&stream)), None),
            Ok(Outcome::NewStream(stream, range) | Outcome::StreamRange(stream, range)) => {
                (Some(wire_stream(&stream)), Some(show(&range)))
            }
            Ok(Outcome::Range(range)) => (None, Some(show(&range))),
            Ok(Outcome::RangeBehindLoss(range, lost)) => {
                return Self {
                    range: Some(show(&range)),
                    status: Status::success(),
                    lost: lost.into_iter().flat_map(|(from, to)| [from, to]).collect(),
                    ..Self::default()
                };
            }
            other => {
                return Self {
                    status: failure(other),
                    ..Self::default()
                };
            }
        };
        Self {
            stream,
            range,
            status: Status::success(),
            lost: Vec::new(),
        }
    }

    /// The stream, or what the request said of it.
    fn stream_or(stream: Option<Stream>, asked: StreamId) -> Option<Stream> {
        Some(stream.unwrap_or_else(|| with_id(asked)))
    }
}

/// Answers with a result for each entry. `asked` is what the results repeat of their entries: names or ids of those that
/// end in an error.
fn for_each<A: Send + 'static, R: EntryResult>(asked: Vec<A>, result: fn(A, Shown) -> R) -> ChangeAnswer {
    Answer::new(move |turn, call, reply: Outcomes| {
        let node = turn.node;
        let outcomes = reply.into_iter().zip(asked);
        let results = outcomes.map(|(outcome, asked)| result(asked, Shown::new(outcome, node)));
        turn.send_results(call, results);
    })
}

fn created(
    name: String,
    Shown {
        stream, range, status, ..
    }: Shown,
) -> CreateStreamResult {
    CreateStreamResult {
        stream: Some(stream.unwrap_or_else(|| with_name(name))),
        range,
        status,
    }
}

fn updated(id: StreamId, Shown { stream, status, .. }: Shown) -> UpdateStreamResult {
    let stream = Shown::stream_or(stream, id);
    UpdateStreamResult { stream, status }
}

fn deleted(id: StreamId, Shown { stream, status, .. }: Shown) -> DeleteStreamResult {
    let deleted_stream = Shown::stream_or(stream, id);
    DeleteStreamResult {
        deleted_stream,
        status,
        ..DeleteStreamResult::default()
    }
}

fn trimmed(
    id: StreamId,
    Shown {
        stream, range, status, ..
    }: Shown,
) -> TrimStreamResult {
    TrimStreamResult {
        trimmed_stream: Shown::stream_or(stream, id),
        range,
        status,
    }
}

fn sealed(stream_id: StreamId, shown: Shown) -> SealRangesResult {
    SealRangesResult {
        stream_id,
        range: shown.range,
        status: shown.status,
        lost_offsets: shown.lost,
        ..SealRangesResult::default()
    }
}

fn answer_range_created() -> ChangeAnswer {
    Answer::new(|turn, call, reply: Outcomes| {
        let Shown { range, status, .. } = Shown::new(only(reply), turn.node);
        let response = CreateRangeResponse {
            status,
            range,
            throttle_time_ms: 0,
        };
        turn.finish(call, &response);
    })
}

fn answer_id_allocated() -> ChangeAnswer {
    Answer::new(|turn, call, reply: Outcomes| {
        let (id, status) = match only(reply) {
            Ok(Outcome::Server(id)) => (id.0, Status::success()),
            other => (0, failure(other)),
        };
        turn.finish(call, &IdAllocationResponse { id, status });
    })
}

fn answer_server_changed(server: RangeServer) -> ChangeAnswer {
    Answer::new(|turn, call, reply: Outcomes| {
        let status = match only(reply) {
            Ok(Outcome::Done) => Status::success(),
            other => failure(other),
        };
        let range_server = Some(server);
        turn.finish(call, &ReportMetricsResponse { range_server, status });
    })
}

/// The result of a request's only entry.
fn only(reply: Outcomes) -> Result<Outcome, Refusal> {
    reply.into_iter().next().unwrap_or_else(|| Err(Refusal::unanswered()))
}

/// The status of an entry whose result is an error or has the wrong type.
fn failure(result: Result<Outcome, Refusal>) -> Status {
    match result {
        Err(refusal) => refusal.into(),
        Ok(outcome) => {
            let message = "an operation ended with the result of another kind of operation";
            tracing::error!(?outcome, "{message}");
            Status::error(
                ErrorCode::PD_INTERNAL_SERVER_ERROR,
                "the operation ended in an unexpected way",
            )
        }
    }
}
