//! SEAL_RANGES and CREATE_RANGE: ending a range and opening the next one.

use std::sync::Arc;

use sbp_messages::{ErrorCode, RangeId};
use sbp_types::{Epoch, Offset, RangeKey, ServerId};

use super::choose::Candidate;
use super::effects::{Action, Effects, Order, Outcome};
use super::next_range::{known_range, next_epoch, next_key, opened_behind, orders};
use super::records::RangeRecord;
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// On whose behalf a range is sealed (`kind` of SEAL_RANGES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealFor {
    /// A range server: the range ends, and no other is opened.
    RangeServer,
    /// The placement driver: the next range is opened as well.
    PlacementDriver,
}

/// How ranges are to be sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealWish {
    pub(crate) on_behalf: SealFor,
    /// The servers that the next range is better without.
    pub(crate) avoid: Arc<[ServerId]>,
    /// Whether too few votes suffice too, although records may be lost.
    pub(crate) force: bool,
}

impl From<SealFor> for SealWish {
    fn from(on_behalf: SealFor) -> Self {
        Self {
            on_behalf,
            avoid: Arc::default(),
            force: false,
        }
    }
}

/// The next step of a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SealPlan {
    /// No step: the range was sealed before, and this range is the answer.
    Done(Arc<RangeRecord>),
    /// Have the range server seal the range.
    Seal {
        server: ServerId,
        key: RangeKey,
        epoch: Epoch,
    },
    /// Have the servers of a range that several hold vote on its end.
    SealShared(Arc<RangeRecord>),
    /// The range is sealed: open the next one.
    OpenNext(RangeKey),
}

/// Decides the next step of a seal from what the placement driver knows of the range. Without an index `target` is the
/// open range, or the last one if none is open.
pub(crate) fn plan_seal(state: &PlacementState, target: RangeId, on_behalf: SealFor) -> Result<SealPlan, Refusal> {
    let Some(last) = state.last_range(target.stream_id) else {
        return Err(Refusal::no_stream(target.stream_id));
    };
    let index = target.range_index.unwrap_or(last.key.range);
    let key = RangeKey {
        stream: target.stream_id,
        range: index,
    };
    let next = next_key(key).and_then(|next| state.range(next));
    let Some(range) = state.range(key) else {
        return match (next, on_behalf) {
            // The sealed range was trimmed away since; the range after it still is the answer.
            (Some(next), SealFor::PlacementDriver) => Ok(SealPlan::Done(Arc::clone(next))),
            _ => Err(Refusal::new(
                ErrorCode::RANGE_NOT_FOUND,
                format!("stream {} has no range {index}", target.stream_id),
            )),
        };
    };
    Refusal::check_epoch(key, range.epoch, target.epoch)?;
    let Some(end) = range.end_offset else {
        let Some(server) = range.appends_go_to() else {
            return Err(Refusal::new(
                ErrorCode::PD_NO_AVAILABLE_RS,
                format!("no range server holds range {key}"),
            ));
        };
        if range.servers.len() > 1 {
            return match on_behalf {
                SealFor::PlacementDriver => Ok(SealPlan::SealShared(Arc::clone(range))),
                SealFor::RangeServer => Err(Refusal::sealed_by_driver(key)),
            };
        }
        return Ok(SealPlan::Seal {
            server,
            key,
            epoch: range.epoch,
        });
    };
    Refusal::check_end(key, end, target.end_offset)?;
    Ok(match (on_behalf, next) {
        (SealFor::RangeServer, _) => SealPlan::Done(Arc::clone(range)),
        (SealFor::PlacementDriver, Some(next)) => SealPlan::Done(Arc::clone(next)),
        (SealFor::PlacementDriver, None) => SealPlan::OpenNext(key),
    })
}

/// Refuses to seal a range that is on one server if the next one could not be opened: appends would have nowhere to go.
pub(crate) fn check_successor(state: &PlacementState, candidates: &[Candidate], key: RangeKey) -> Result<(), Refusal> {
    let range = known_range(state, key)?;
    let sealed = RangeRecord {
        end_offset: Some(range.start_offset),
        ..RangeRecord::clone(range)
    };
    opened_behind(state, candidates, &sealed, range.start_offset).map(drop)
}

/// Stores the end of a sealed range and, with `open_next`, opens the next one.
pub(super) fn finish_seal(
    state: &PlacementState,
    candidates: &[Candidate],
    key: RangeKey,
    end: Offset,
    open_next: bool,
) -> Result<Effects, Refusal> {
    let range = known_range(state, key)?;
    let sealed = Arc::new(RangeRecord {
        end_offset: Some(end.max(range.start_offset)),
        end_marks: 0,
        ..RangeRecord::clone(range)
    });
    if open_next {
        let next = opened_behind(state, candidates, &sealed, end)?;
        return Ok(Effects {
            orders: orders(state, &[Arc::clone(&sealed), Arc::clone(&next)])?,
            changes: vec![Change::PutRange(sealed), Change::PutRange(Arc::clone(&next))],
            outcome: Outcome::Range(next),
        });
    }
    let publish = |server: &ServerId| Order {
        server: *server,
        stream: key.stream,
        action: Action::Publish(key, end),
    };
    Ok(Effects {
        orders: sealed.servers.iter().map(publish).collect(),
        changes: vec![Change::PutRange(Arc::clone(&sealed))],
        outcome: Outcome::Range(sealed),
    })
}

/// Opens the range after `key`, which is the last one of its stream and sealed.
pub(super) fn open_next(state: &PlacementState, candidates: &[Candidate], key: RangeKey) -> Result<Effects, Refusal> {
    let last = known_range(state, key)?;
    let Some(end) = last.end_offset else {
        return Err(before_seal(key));
    };
    let next = opened_behind(state, candidates, last, end)?;
    Ok(Effects {
        changes: vec![Change::PutRange(Arc::clone(&next))],
        orders: orders(state, &[Arc::clone(&next)])?,
        outcome: Outcome::Range(next),
    })
}

/// A range to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewRange {
    pub(crate) key: RangeKey,
    /// `None`: the end of the range before it.
    pub(crate) start: Option<Offset>,
    /// `None`: one more than the epoch of the range before it.
    pub(crate) epoch: Option<Epoch>,
}

/// Opens the described range after the last one, which must be sealed, or returns it if it exists already.
pub(super) fn create_range(
    state: &PlacementState,
    candidates: &[Candidate],
    wanted: NewRange,
) -> Result<Effects, Refusal> {
    let NewRange { key, start, epoch } = wanted;
    let Some(last) = state.last_range(key.stream) else {
        return Err(Refusal::no_stream(key.stream));
    };
    if let Some(existing) = state.range(key) {
        if start.is_some_and(|start| start != existing.start_offset) {
            return Err(Refusal::new(
                ErrorCode::CREATE_RANGE_BEFORE_SEAL,
                format!("range {key} is there and begins at {}", existing.start_offset),
            ));
        }
        Refusal::check_epoch(key, existing.epoch, epoch)?;
        return Ok(Effects::nothing(Outcome::Range(Arc::clone(existing))));
    }
    let Some(end) = last.end_offset else {
        return Err(before_seal(last.key));
    };
    if next_key(last.key) != Some(key) || start.is_some_and(|start| start != end) {
        return Err(Refusal::new(
            ErrorCode::CREATE_RANGE_BEFORE_SEAL,
            format!(
                "the range behind {}, which ends at {end}, is the only one that can be made",
                last.key
            ),
        ));
    }
    if let Some(epoch) = epoch.filter(|epoch| Some(*epoch) != next_epoch(last)) {
        return Err(Refusal::new(
            ErrorCode::EXPIRED_RANGE_EPOCH,
            format!(
                "the range behind {}, of epoch {}, has one more, not {epoch}",
                last.key, last.epoch
            ),
        ));
    }
    open_next(state, candidates, last.key)
}

fn before_seal(last: RangeKey) -> Refusal {
    let message = format!("range {last} is open: seal it before the next one is made");
    Refusal::new(ErrorCode::CREATE_RANGE_BEFORE_SEAL, message)
}
