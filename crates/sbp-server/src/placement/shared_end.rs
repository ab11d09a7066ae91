//! The end of a range that several servers hold, and the servers of the next one.

use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_replication::{Holder, NoSuccessor, Rules, choose_next};
use sbp_types::{Position, RangeKey, ServerId};

use super::choose::{Candidate, choose};
use super::effects::{Effects, Order, Outcome};
use super::records::RangeRecord;
use super::seal::{known_range, successor};
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// The end of a range, as its servers' votes decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedEnd {
    pub(crate) key: RangeKey,
    pub(crate) end: Position,
    /// The servers that have everything up to the end.
    pub(crate) complete: Vec<ServerId>,
    /// Whether these know the writers at the end.
    pub(crate) knows_writers: bool,
    /// Whether the next range is opened.
    pub(crate) open_next: bool,
}

/// Stores the end of a range and, where it is asked for, opens the next one.
pub(super) fn finish_shared_seal(
    state: &PlacementState,
    candidates: &[Candidate],
    sealed: &SharedEnd,
) -> Result<Effects, Refusal> {
    let range = known_range(state, sealed.key)?;
    if range.end_offset.is_some() {
        // Another seal was first, and its end is the range's.
        return Ok(Effects::nothing(Outcome::Range(Arc::clone(range))));
    }
    let ended = Arc::new(RangeRecord {
        end_offset: Some(sealed.end.offset.max(range.start_offset)),
        end_marks: sealed.end.marks,
        ..RangeRecord::clone(range)
    });
    let mut changes = vec![Change::PutRange(Arc::clone(&ended))];
    let mut told = vec![Arc::clone(&ended)];
    let mut outcome = Outcome::Range(Arc::clone(&ended));
    if sealed.open_next {
        let next = successor(state, &ended, sealed.end.offset)?;
        let servers = next_servers(state, candidates, sealed, &next)?;
        let next = Arc::new(RangeRecord {
            servers,
            ..RangeRecord::clone(&next)
        });
        changes.push(Change::PutRange(Arc::clone(&next)));
        told.push(Arc::clone(&next));
        outcome = Outcome::Range(next);
    }
    Ok(Effects {
        changes,
        orders: orders(state, &told)?,
        outcome,
    })
}

/// The servers of the next range, the primary first.
pub(super) fn next_servers(
    state: &PlacementState,
    candidates: &[Candidate],
    sealed: &SharedEnd,
    next: &RangeRecord,
) -> Result<Vec<ServerId>, Refusal> {
    let ranked = choose(state, candidates, candidates.len(), 1).unwrap_or_default();
    let has_all = |server: &ServerId| sealed.complete.contains(server);
    // Those that have the records come first: readers find all of the stream there.
    let (complete, others): (Vec<ServerId>, Vec<ServerId>) = ranked.into_iter().partition(has_all);
    let holder = |server: ServerId| Holder {
        server,
        is_complete: has_all(&server),
        knows_writers: has_all(&server) && sealed.knows_writers,
    };
    let alive: Vec<_> = complete.into_iter().chain(others).map(holder).collect();
    let count = |count: i8| usize::try_from(count).unwrap_or(0);
    let (replicas, acks) = (count(next.replica_count), count(next.ack_count));
    match choose_next(&alive, replicas, acks, Rules::default()) {
        Ok(servers) => Ok(servers.into_vec()),
        Err(NoSuccessor::NobodyKnows) => Err(Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "none of the servers that have everything of range {} can be reached; the next range is opened when one is back",
                sealed.key
            ),
        )),
        Err(NoSuccessor::TooFew) => Err(Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "{} range servers are up, and {acks} of them have to acknowledge what is appended behind range {}",
                alive.len(),
                sealed.key
            ),
        )),
    }
}

/// The orders that tell the servers of these ranges about them, the primary of the last one last: by then the others know
/// it.
pub(super) fn orders(state: &PlacementState, ranges: &[Arc<RangeRecord>]) -> Result<Vec<Order>, Refusal> {
    let Some(last) = ranges.last() else {
        return Ok(Vec::new());
    };
    let Some(stream) = state.stream(last.key.stream) else {
        return Err(Refusal::no_stream(last.key.stream));
    };
    let mut servers: Vec<ServerId> = ranges.iter().flat_map(|range| range.servers.iter().copied()).collect();
    servers.sort_unstable();
    servers.dedup();
    servers.sort_by_key(|server| last.servers.first() == Some(server));
    let of_server = |server: ServerId| {
        let held = ranges.iter().filter(|range| range.servers.contains(&server));
        let held: Vec<&RangeRecord> = held.map(|range| &**range).collect();
        Order::install(stream, &[server], &held)
    };
    Ok(servers.into_iter().flat_map(of_server).collect())
}
