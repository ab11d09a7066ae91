//! The requests that a range server in a process without the placement driver answers about its ranges.

use std::sync::Arc;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::{
    ClientRole, DeleteStreamResult, DeleteStreamsRequest, DeleteStreamsResponse, DescribeRangeResult,
    DescribeRangesRequest, DescribeRangesResponse, ErrorCode, Message, Range, RangeId, SealKind, SealRangesRequest,
    SealRangesResponse, SealRangesResult, Status, Stream, StreamRanges, SyncRangesRequest, SyncRangesResponse,
    SyncRangesResult,
};
use sbp_types::{Offset, RangeKey, StreamId};

use super::answer::Answer;
use super::fault::Fault;
use super::handle::{ConnectionCommand, ConnectionHandle};
use crate::node::Node;
use crate::range::HeldRange;
use crate::refusal::Refusal;
use crate::roles::{Job, RangeRole, held_range, is_on, wire_range};

/// Whether a range server in a process without the placement driver handles requests of this kind with
/// [`handle_request`].
pub(crate) fn answers(opcode: OpCode) -> bool {
    [
        OpCode::SEAL_RANGES,
        OpCode::SYNC_RANGES,
        OpCode::DELETE_STREAMS,
        OpCode::DESCRIBE_RANGES,
    ]
    .contains(&opcode)
}

/// Starts handling a request, which is answered through `handle`. `asker` is the role that the peer gave.
pub(crate) fn handle_request(
    role: &Arc<RangeRole>,
    node: &Node,
    handle: &Arc<ConnectionHandle>,
    asker: ClientRole,
    frame: &Frame,
) -> Result<(), Fault> {
    let later = Later {
        role: Arc::clone(role),
        me: node.identity.range_server().unwrap_or_default(),
        handle: Arc::clone(handle),
        call: frame.call_id,
    };
    match frame.opcode {
        OpCode::SEAL_RANGES => {
            let request = SealRangesRequest::decode(&frame.header)?;
            request.validate()?;
            if request.kind != SealKind::RANGE_SERVER {
                let message = "a range server seals on behalf of range servers only; ask its placement driver";
                return Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into());
            }
            tokio::spawn(later.seal(request));
        }
        OpCode::SYNC_RANGES => {
            let request = SyncRangesRequest::decode(&frame.header)?;
            request.validate()?;
            tokio::spawn(later.sync(request, asker == ClientRole::PLACEMENT_DRIVER));
        }
        OpCode::DELETE_STREAMS if asker == ClientRole::PLACEMENT_DRIVER => {
            let request = DeleteStreamsRequest::decode(&frame.header)?;
            request.validate()?;
            tokio::spawn(later.delete(request));
        }
        OpCode::DESCRIBE_RANGES => {
            let request = DescribeRangesRequest::decode(&frame.header)?;
            request.validate()?;
            let describe_responses = request.ranges.iter().map(|id| later.describe(id)).collect();
            later.answer(Answer::Described(DescribeRangesResponse {
                describe_responses,
                ..Default::default()
            }));
        }
        other => {
            let message = format!("{other} is not served by a range server; ask its placement driver");
            return Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into());
        }
    }
    Ok(())
}

/// A request that is answered later.
struct Later {
    role: Arc<RangeRole>,
    me: sbp_messages::RangeServer,
    handle: Arc<ConnectionHandle>,
    call: CallId,
}

impl Later {
    fn answer(&self, answer: Answer) {
        let call = self.call;
        self.handle.post(ConnectionCommand::Answered { call, answer });
    }

    async fn seal(self, request: SealRangesRequest) {
        let mut seal_responses = Vec::with_capacity(request.ranges.len());
        for range in request.ranges {
            let result = self.seal_one(&range).await;
            let (range_sealed, status) = match result {
                Ok(held) => (Some(self.wire(&held)), Status::success()),
                Err(refusal) => (None, refusal.into()),
            };
            seal_responses.push(SealRangesResult {
                stream_id: range.stream_id,
                range: range_sealed,
                status,
            });
        }
        self.answer(Answer::Sealed(SealRangesResponse {
            seal_responses,
            ..Default::default()
        }));
    }

    async fn seal_one(&self, range: &RangeId) -> Result<HeldRange, Refusal> {
        let key = self.key(range)?;
        let (epoch, end) = (range.epoch, range.end_offset);
        self.role.seal(|done| Job::Seal { key, epoch, end, done }).await
    }

    async fn sync(self, request: SyncRangesRequest, from_placement_driver: bool) {
        let mut sync_responses = Vec::with_capacity(request.stream_ranges.len());
        for StreamRanges { stream_id, ranges } in request.stream_ranges {
            let result = if from_placement_driver {
                let mine = ranges.iter().filter(|range| is_on(range, self.role.server_id));
                let told = mine.map(held_range).filter(|held| held.key.stream == stream_id);
                self.role.sync(stream_id, told.collect()).await
            } else {
                self.held(stream_id)
            };
            let (ranges, status) = match result {
                Ok(held) => (held.iter().map(|held| self.wire(held)).collect(), Status::success()),
                Err(refusal) => (Vec::new(), refusal.into()),
            };
            sync_responses.push(SyncRangesResult {
                stream_id,
                ranges,
                status,
            });
        }
        self.answer(Answer::Synced(SyncRangesResponse {
            sync_responses,
            ..Default::default()
        }));
    }

    async fn delete(self, request: DeleteStreamsRequest) {
        let mut delete_responses = Vec::with_capacity(request.streams.len());
        for Stream { stream_id, .. } in request.streams {
            let result = self.role.delete(stream_id).await;
            delete_responses.push(DeleteStreamResult {
                deleted_stream: Some(Stream {
                    stream_id,
                    ..Stream::default()
                }),
                status: result.map_or_else(Status::from, |()| Status::success()),
            });
        }
        self.answer(Answer::Deleted(DeleteStreamsResponse {
            delete_responses,
            ..Default::default()
        }));
    }

    fn describe(&self, id: &RangeId) -> DescribeRangeResult {
        let described = self.key(id).and_then(|key| {
            let held = self.held(key.stream)?;
            let missing = || Refusal::new(ErrorCode::RANGE_NOT_FOUND, format!("range {key} is not here"));
            let held = held.into_iter().find(|held| held.key == key).ok_or_else(missing)?;
            if let Some(epoch) = id.epoch.filter(|epoch| *epoch != held.epoch) {
                let message = format!("range {key} has epoch {}, not {epoch}", held.epoch);
                return Err(Refusal::new(ErrorCode::EXPIRED_RANGE_EPOCH, message));
            }
            Ok(held)
        });
        let (range, status) = match described {
            Ok(held) => (Some(self.wire(&held)), Status::success()),
            Err(refusal) => (None, refusal.into()),
        };
        DescribeRangeResult {
            stream_id: id.stream_id,
            range,
            status,
        }
    }

    /// The range that an entry names; without an index, the stream's last range here.
    fn key(&self, id: &RangeId) -> Result<RangeKey, Refusal> {
        if let Some(fault) = id.fault() {
            return Err(Refusal::new(fault.code, fault.message));
        }
        let stream = id.stream_id;
        match id.range_index {
            None => match self.held(stream)?.last() {
                Some(last) => Ok(last.key),
                None => Err(Refusal::no_stream(stream)),
            },
            Some(range) => Ok(RangeKey { stream, range }),
        }
    }

    /// The ranges of a stream that this server holds; a refusal if there are none.
    fn held(&self, stream: StreamId) -> Result<Vec<HeldRange>, Refusal> {
        self.role.held_of(stream)
    }

    fn wire(&self, held: &HeldRange) -> Range {
        let next: Option<Offset> = self.role.next_offset(held.key);
        wire_range(held, next.unwrap_or(held.start), self.me.clone())
    }
}
