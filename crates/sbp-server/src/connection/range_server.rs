//! The requests that a range server in a process without the placement driver answers about its ranges.

use std::sync::Arc;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::{
    ClientRole, DeleteStreamResult, DeleteStreamsRequest, DescribeRangeResult, DescribeRangesRequest, ErrorCode, Range,
    RangeId, ReplicaState, SealKind, SealRangesRequest, SealRangesResult, Stream, StreamRanges, SyncRangesRequest,
    SyncRangesResult,
};
use sbp_replication::Term;
use sbp_types::{Offset, Position, RangeKey, StreamId};

use super::changes::decode;
use super::fault::Fault;
use super::handle::{Answer, ConnectionCommand, ConnectionHandle, Turn};
use super::results::EntryResult;
use super::streams::with_id;
use crate::range::{AddressBook, HeldRange};
use crate::refusal::{Refusal, value_and_status};
use crate::roles::{Job, RangeRole, held_range, is_on, located, voted, wire_range};

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

/// Starts handling a request, which is answered through the connection's handle.
pub(super) fn handle_request(role: &Arc<RangeRole>, turn: &Turn<'_>, frame: &Frame) -> Result<(), Fault> {
    let later = Later {
        role: Arc::clone(role),
        me: turn.node.identity.range_server().unwrap_or_default(),
        handle: Arc::clone(turn.handle),
        call: frame.call_id,
    };
    let from_placement_driver = turn.asker == ClientRole::PLACEMENT_DRIVER;
    match frame.opcode {
        OpCode::SEAL_RANGES => {
            let request = decode(frame, SealRangesRequest::validate)?;
            if request.kind != SealKind::RANGE_SERVER {
                let message = "a range server seals on behalf of range servers only; ask its placement driver";
                return Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into());
            }
            turn.gate.check_server()?;
            tokio::spawn(later.seal(request, from_placement_driver));
        }
        OpCode::SYNC_RANGES => {
            let request = decode(frame, SyncRangesRequest::validate)?;
            tokio::spawn(later.sync(request, from_placement_driver));
        }
        OpCode::DELETE_STREAMS if from_placement_driver => {
            let request = decode(frame, DeleteStreamsRequest::validate)?;
            // What it called itself once is not what it may do now.
            turn.gate.check_server()?;
            tokio::spawn(later.delete(request));
        }
        OpCode::DESCRIBE_RANGES => {
            let request = decode(frame, DescribeRangesRequest::validate)?;
            let describe = |id: &RangeId| later.describe(id, turn.check_stream(OpCode::DESCRIBE_RANGES, id.stream_id));
            later.answer(request.ranges.iter().map(describe).collect());
        }
        other => {
            let message = format!("{other} is not served by a range server; ask its placement driver");
            return Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message).into());
        }
    }
    Ok(())
}

/// Whether the order is to send a range that is being sealed to servers that lack some of it.
fn copies(range: &Range) -> bool {
    range.end().is_none() && range.servers.iter().any(|server| server.state == ReplicaState::COPYING)
}

/// The term that an order is followed by: that of the placement driver that gives it.
fn term(told: i64, from_placement_driver: bool) -> Term {
    let told = u64::try_from(told).unwrap_or(0);
    if from_placement_driver {
        Term(told)
    } else {
        Term::default()
    }
}

/// A request that is answered later.
struct Later {
    role: Arc<RangeRole>,
    me: sbp_messages::RangeServer,
    handle: Arc<ConnectionHandle>,
    call: CallId,
}

impl Later {
    fn answer<R: EntryResult>(&self, results: Vec<R>) {
        let (call, answer) = (
            self.call,
            Answer::new(|turn, call, ()| turn.send_results(call, results)),
        );
        self.handle.post(ConnectionCommand::Answered { call, answer });
    }

    async fn seal(self, request: SealRangesRequest, from_placement_driver: bool) {
        let term = term(request.term, from_placement_driver);
        let mut results = Vec::with_capacity(request.ranges.len());
        for range in request.ranges {
            if let Some(result) = self.fence_one(&range, term, from_placement_driver).await {
                results.push(result);
                continue;
            }
            let sealed = self.seal_one(&range, term).await;
            let (range_sealed, status) = value_and_status(sealed.map(|held| self.wire(&held)));
            results.push(SealRangesResult {
                stream_id: range.stream_id,
                range: range_sealed,
                status,
                ..SealRangesResult::default()
            });
        }
        self.answer(results);
    }

    /// Fences the copy of a range that other servers hold too, and says where it ends; `None` for other ranges. Only the
    /// placement driver may ask for that: who fences has to bring the seal to its end.
    async fn fence_one(&self, range: &RangeId, term: Term, from_placement_driver: bool) -> Option<SealRangesResult> {
        let key = self.key(range).ok()?;
        let held = self.role.held_of(key.stream).ok()?;
        let held = held.into_iter().find(|held| held.key == key && !held.set.is_alone())?;
        let epoch = range.epoch;
        let fenced = match from_placement_driver {
            true => {
                self.role
                    .keep_ordered(term, |done| Job::Fence { key, epoch, done })
                    .await
            }
            false => Err(Refusal::sealed_by_driver(key)),
        };
        let (fenced, status) = value_and_status(fenced);
        let Some(fenced) = fenced else {
            return Some(SealRangesResult {
                stream_id: range.stream_id,
                status,
                ..SealRangesResult::default()
            });
        };
        Some(voted(fenced, self.wire(&held)))
    }

    async fn seal_one(&self, range: &RangeId, term: Term) -> Result<HeldRange, Refusal> {
        let key = self.key(range)?;
        let (epoch, end) = (range.epoch, range.end_offset);
        let sealed = self.role.keep_ordered(term, |done| Job::Seal { key, epoch, end, done });
        sealed.await
    }

    async fn sync(self, request: SyncRangesRequest, from_placement_driver: bool) {
        let term = term(request.term, from_placement_driver);
        let mut results = Vec::with_capacity(request.stream_ranges.len());
        for StreamRanges { stream_id, ranges } in request.stream_ranges {
            let (orders, ranges): (Vec<Range>, Vec<Range>) = ranges.into_iter().partition(copies);
            let written_back = match from_placement_driver {
                true => self.write_back(&orders, term).await,
                false => Ok(()),
            };
            let held = if let Err(refusal) = written_back {
                Err(refusal)
            } else if from_placement_driver && (!ranges.is_empty() || orders.is_empty()) {
                self.role.locate(ranges.iter().flat_map(located));
                self.told(stream_id, &ranges, term).await
            } else {
                self.role.held_of(stream_id)
            };
            let ranges = held.map(|held| held.iter().map(|held| self.wire(held)).collect());
            let (ranges, status) = value_and_status(ranges);
            results.push(SyncRangesResult {
                stream_id,
                ranges: ranges.unwrap_or_default(),
                status,
            });
        }
        self.answer(results);
    }

    /// Takes over what the placement driver has said about ranges of a stream: those on this server, which it is to hold; or, where
    /// nothing else is said, sealed ones on others alone, of which it is to have nothing. Returns the stream's ranges that are held
    /// here, or those of the latter of which something is here.
    async fn told(&self, stream: StreamId, ranges: &[Range], term: Term) -> Result<Vec<HeldRange>, Refusal> {
        let (mine, others): (Vec<&Range>, Vec<&Range>) =
            ranges.iter().partition(|range| is_on(range, self.role.server_id));
        let of_stream = |ranges: Vec<&Range>| -> Vec<HeldRange> {
            let held = ranges.into_iter().map(held_range);
            held.filter(|held| held.key.stream == stream).collect()
        };
        let (mine, mut others) = (of_stream(mine), of_stream(others));
        others.retain(|range| range.end.is_some());
        // The end of a range is told together with the next one also to servers of that one alone.
        if !mine.is_empty() || others.is_empty() {
            return self.role.sync(stream, mine, term).await;
        }
        let left = self.role.let_go(stream, &others, term).await?;
        others.retain(|range| left.contains(&range.key));
        Ok(others)
    }

    /// Sends ranges that are being sealed to servers that lack some of them.
    async fn write_back(&self, orders: &[Range], term: Term) -> Result<(), Refusal> {
        if !orders.is_empty() {
            self.role.follow(term).await?;
        }
        for order in orders {
            let key = held_range(order).key;
            let targets = order
                .servers
                .iter()
                .filter(|server| server.state == ReplicaState::COPYING);
            let targets = targets.filter_map(|server| server.range_server.as_ref());
            let to: Vec<_> = targets.map(|server| server.server_id).collect();
            let end = Position {
                offset: order.next_offset,
                marks: order.next_marks,
            };
            self.role.locate(located(order));
            self.role.write_back(key, &to, end).await?;
        }
        Ok(())
    }

    async fn delete(self, request: DeleteStreamsRequest) {
        let term = term(request.term, true);
        let mut results = Vec::with_capacity(request.streams.len());
        for Stream { stream_id, .. } in request.streams {
            let (deleted, status) = value_and_status(self.role.delete(stream_id, term).await);
            results.push(DeleteStreamResult {
                deleted_stream: Some(with_id(stream_id)),
                status,
                gone: deleted.is_some(),
            });
        }
        self.answer(results);
    }

    fn describe(&self, id: &RangeId, allowed: Result<(), Refusal>) -> DescribeRangeResult {
        let described = allowed.and_then(|()| self.key(id)).and_then(|key| {
            let held = self.role.held_of(key.stream)?;
            let held = held.into_iter().find(|held| held.key == key);
            let held = held.ok_or_else(|| Refusal::range_not_here(key))?;
            Refusal::check_epoch(key, held.epoch, id.epoch)?;
            Ok(self.wire(&held))
        });
        let (range, status) = value_and_status(described);
        DescribeRangeResult {
            stream_id: id.stream_id,
            range,
            status,
        }
    }

    /// The range that an entry names; without an index, the stream's last range here.
    fn key(&self, id: &RangeId) -> Result<RangeKey, Refusal> {
        Refusal::check(id.fault())?;
        let stream = id.stream_id;
        match id.range_index {
            None => match self.role.held_of(stream)?.last() {
                Some(last) => Ok(last.key),
                None => Err(Refusal::no_stream(stream)),
            },
            Some(range) => Ok(RangeKey { stream, range }),
        }
    }

    fn wire(&self, held: &HeldRange) -> Range {
        let next: Option<Offset> = self.role.next_offset(held.key);
        let next = next.unwrap_or(held.start);
        match self.role.ranges.upgrade() {
            Some(ranges) => wire_range(held, next, self.me.clone(), &ranges.addresses),
            None => wire_range(held, next, self.me.clone(), &AddressBook::default()),
        }
    }
}
