//! The range that is opened behind a sealed one: its numbers, its servers, and who is told.

use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_replication::{Holder, NoSuccessor, Rules, choose_next};
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId};

use super::choose::{Candidate, over_zones, rank_behind};
use super::effects::Order;
use super::records::RangeRecord;
use super::state::PlacementState;
use crate::refusal::Refusal;

/// The servers that have everything of a sealed range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders<'a> {
    /// The sealed range.
    pub(super) key: RangeKey,
    pub(super) complete: &'a [ServerId],
    /// Who knows the writers at its end.
    pub(super) knowing: &'a [ServerId],
}

/// The open range that follows a sealed one. Where one server alone has that one and is to have the next one, it is the same,
/// because it has the state of the writers and the order of the appends; else the primary is one of those that have all of the
/// sealed range.
pub(super) fn opened_behind(
    state: &PlacementState,
    candidates: &[Candidate],
    sealed: &RangeRecord,
    end: Offset,
) -> Result<Arc<RangeRecord>, Refusal> {
    let next = successor(state, sealed, end)?;
    let stays = |server: &ServerId| !is_avoided(candidates, *server);
    if next.replica_count == 1 && sealed.servers.len() == 1 && sealed.servers.iter().all(stays) {
        return Ok(next);
    }
    let complete: Vec<ServerId> = sealed.complete().collect();
    let knowing: Vec<ServerId> = sealed.knowing().collect();
    let holders = Holders {
        key: sealed.key,
        complete: &complete,
        knowing: &knowing,
    };
    match on_next_servers(state, candidates, &holders, &next) {
        // A server in the process of its placement driver is no candidate for copies.
        Err(_) if next.replica_count == 1 && sealed.servers.len() == 1 => Ok(next),
        opened => opened,
    }
}

fn is_avoided(candidates: &[Candidate], server: ServerId) -> bool {
    let candidate = candidates.iter().find(|candidate| candidate.id == server);
    candidate.is_some_and(|candidate| candidate.avoided)
}

/// The next range on its servers. A range that is to be on one server, and better not on the only one that can begin it, is
/// opened on that one and on another: it is sealed again, and goes on there.
pub(super) fn on_next_servers(
    state: &PlacementState,
    candidates: &[Candidate],
    behind: &Holders<'_>,
    next: &RangeRecord,
) -> Result<Arc<RangeRecord>, Refusal> {
    let mut opened = RangeRecord {
        servers: next_servers(state, candidates, behind, next)?,
        ..RangeRecord::clone(next)
    };
    if let [only] = opened.servers[..]
        && next.replica_count == 1
        && is_avoided(candidates, only)
    {
        let ranked = rank_behind(state, candidates, behind.key).into_iter();
        let mut others = ranked.filter(|server| *server != only && !is_avoided(candidates, *server));
        if let Some(other) = others.next() {
            opened.servers.push(other);
            (opened.replica_count, opened.ack_count) = (2, 2);
        }
    }
    Ok(Arc::new(opened))
}

/// The open range that follows a sealed one, on the same servers.
pub(super) fn successor(
    state: &PlacementState,
    sealed: &RangeRecord,
    end: Offset,
) -> Result<Arc<RangeRecord>, Refusal> {
    let Some(stream) = state.stream(sealed.key.stream) else {
        return Err(Refusal::no_stream(sealed.key.stream));
    };
    let (Some(key), Some(epoch)) = (next_key(sealed.key), next_epoch(sealed)) else {
        return Err(Refusal::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            format!("there are no numbers left behind range {}", sealed.key),
        ));
    };
    Ok(Arc::new(RangeRecord {
        key,
        epoch,
        start_offset: end,
        opened_offset: end,
        end_offset: None,
        end_marks: 0,
        servers: sealed.servers.clone(),
        incomplete: Vec::new(),
        let_go: Vec::new(),
        unknowing: Vec::new(),
        replica_count: stream.settings.replica_count,
        ack_count: stream.settings.ack_count,
    }))
}

/// The servers of the next range, the primary first.
fn next_servers(
    state: &PlacementState,
    candidates: &[Candidate],
    behind: &Holders<'_>,
    next: &RangeRecord,
) -> Result<Vec<ServerId>, Refusal> {
    let ranked = rank_behind(state, candidates, behind.key);
    let has_all = |server: &ServerId| behind.complete.contains(server);
    let (avoided, ranked): (Vec<ServerId>, Vec<ServerId>) =
        ranked.into_iter().partition(|server| is_avoided(candidates, *server));
    // Those that have the records come first: readers find all of the stream there.
    let (complete, others): (Vec<ServerId>, Vec<ServerId>) = ranked.into_iter().partition(has_all);
    let holder = |server: ServerId| Holder {
        server,
        is_complete: has_all(&server),
        knows_writers: behind.knowing.contains(&server),
    };
    let alive: Vec<_> = complete.into_iter().chain(others).chain(avoided).map(holder).collect();
    let count = |count: i8| usize::try_from(count).unwrap_or(0);
    let (replicas, acks) = (count(next.replica_count), count(next.ack_count));
    let too_few = || {
        Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "{} range servers are up, and {acks} of them have to acknowledge what is appended behind range {}",
                alive.len(),
                behind.key
            ),
        )
    };
    // All of them in their order, of whom those are taken that stand in different zones.
    match choose_next(&alive, alive.len(), acks, Rules::default()) {
        Ok(_) if replicas < acks => Err(too_few()),
        Ok(servers) => {
            let mut servers = over_zones(candidates, servers.into_vec());
            servers.truncate(replicas.max(1));
            Ok(servers)
        }
        Err(NoSuccessor::NobodyKnows) => Err(Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "none of the servers that have everything of range {} can be reached; the next range is opened when one is back",
                behind.key
            ),
        )),
        Err(NoSuccessor::TooFew) => Err(too_few()),
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

pub(super) fn known_range(state: &PlacementState, key: RangeKey) -> Result<&Arc<RangeRecord>, Refusal> {
    if state.stream(key.stream).is_none() {
        return Err(Refusal::no_stream(key.stream));
    }
    state
        .range(key)
        .ok_or_else(|| Refusal::new(ErrorCode::RANGE_NOT_FOUND, format!("there is no range {key}")))
}

pub(super) fn next_key(key: RangeKey) -> Option<RangeKey> {
    let range = RangeIndex(key.range.0.checked_add(1)?);
    Some(RangeKey { range, ..key })
}

pub(super) fn next_epoch(range: &RangeRecord) -> Option<Epoch> {
    range.epoch.0.checked_add(1).map(Epoch)
}
