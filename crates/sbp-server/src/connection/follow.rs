//! Entries of APPENDs by which another range server sends what it has of ranges that this one holds too.

use bytes::{Buf, Bytes};
use sbp_frame::CallId;
use sbp_messages::{AppendInfo, ClientRole, ErrorCode, ReplicaEntry};
use sbp_record::inspect;
use sbp_replication::{Entry, Offered};
use sbp_types::{Position, RangeKey, ServerId, TimestampMs};
use smallvec::SmallVec;

use super::batch_head::{claim_of, head_refusal, largest_time};
use super::handle::Turn;
use crate::range::FollowJob;
use crate::refusal::Refusal;

/// Reads one entry that is no client's.
///
/// # Errors
///
/// The peer is no range server, or the entry is none.
pub(super) fn read_entry(
    turn: &Turn<'_>,
    call: CallId,
    info: &AppendInfo,
    chunks: SmallVec<[Bytes; 1]>,
) -> Result<FollowJob, Refusal> {
    let from = sender(turn)?;
    let missing = |what| {
        let stream = info.stream_id;
        Refusal::invalid(format!(
            "an entry of stream {stream} from server {from} does not say {what}"
        ))
    };
    let range = info.range_index.ok_or_else(|| missing("which range it is of"))?;
    let epoch = info.epoch.ok_or_else(|| missing("the epoch of its range"))?;
    let at = info.expected_position().ok_or_else(|| missing("where it stands"))?;
    let confirmed = info.confirmed.ok_or_else(|| missing("what is confirmed"))?;
    let mut chunks = chunks;
    let mut part = None;
    let head = match info.entry {
        ReplicaEntry::BATCH => Some(inspect(&chunks, true).map_err(|error| head_refusal(info, &error))?),
        ReplicaEntry::WRITERS => {
            let mut bytes = match <[Bytes; 1]>::try_from(chunks.into_vec()) {
                Ok([whole]) => whole,
                Err(pieces) => pieces.concat().into(),
            };
            let numbers = take_numbers(&mut bytes);
            part = Some(numbers.ok_or_else(|| missing("which part of the writers' state it is"))?);
            chunks = SmallVec::from_elem(bytes, 1);
            None
        }
        ReplicaEntry::CONFIRMED => None,
        other => {
            let message = format!("entries of kind {other:?} are not taken");
            return Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message));
        }
    };
    let head = head.as_ref();
    let entry = match head {
        Some(head) if !head.is_fence() && head.record_count == 0 => {
            return Err(Refusal::invalid("an empty batch that is no fence is not stored"));
        }
        Some(head) if !head.is_fence() => Entry::Records(head.record_count),
        _ => part.map_or(Entry::Mark, |(part, parts)| Entry::Writers {
            part: u32::from(part),
            parts: u32::from(parts),
        }),
    };
    Ok(FollowJob {
        call,
        request_index: info.request_index,
        arrived: turn.now,
        key: RangeKey {
            stream: info.stream_id,
            range,
        },
        epoch,
        offered: Offered {
            from,
            epoch,
            at,
            entry,
            confirmed: confirmed.max(Position::default()),
            sealed_end: info.sealed_end,
        },
        has_entry: info.entry != ReplicaEntry::CONFIRMED,
        append_time: info.append_time_ms,
        max_timestamp: head.map_or(TimestampMs(0), largest_time),
        claim: head.and_then(claim_of),
        part: part.unwrap_or_default(),
        chunks,
    })
}

/// Takes the number of a part of the writers' state, and the number of parts, from in front of its bytes.
fn take_numbers(bytes: &mut Bytes) -> Option<(u16, u16)> {
    let part = bytes.try_get_u16().ok()?;
    let parts = bytes.try_get_u16().ok()?;
    (part < parts).then_some((part, parts))
}

/// The range server that the peer is, if it may be one.
fn sender(turn: &Turn<'_>) -> Result<ServerId, Refusal> {
    turn.gate.check_server()?;
    match turn.asking_server {
        Some(server) if turn.asker == ClientRole::RANGE_SERVER => Ok(server),
        _ => Err(Refusal::invalid(
            "only a range server, which says so in its HEARTBEAT, sends entries of ranges that are held elsewhere too",
        )),
    }
}
