//! CREATE_STREAMS.

use std::sync::Arc;

use sbp_messages::ErrorCode;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, StreamIdentity, TimestampMs};

use super::choose::{Candidate, choose};
use super::effects::{Effects, Order, Outcome};
use super::name::check_name;
use super::records::{RangeRecord, StreamRecord};
use super::settings::{RequestedSettings, Settings};
use super::state::{Change, PlacementState};
use crate::access::Owner;
use crate::refusal::Refusal;

/// A stream that is to be created.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewStream {
    /// Empty: the stream has no name.
    pub(crate) name: String,
    pub(crate) settings: RequestedSettings,
    /// Who makes it, where that is known.
    pub(crate) owner: Option<Owner>,
}

/// What a stream gets when it is created and keeps for ever.
struct Born {
    owner: Option<Owner>,
    identity: StreamIdentity,
    at: TimestampMs,
}

/// Creates the stream with its first range, or returns the existing one of the same name and settings.
pub(super) fn create_stream(
    state: &PlacementState,
    candidates: &[Candidate],
    wanted: NewStream,
    identity: StreamIdentity,
    now: TimestampMs,
) -> Result<Effects, Refusal> {
    let NewStream { name, settings, owner } = wanted;
    let born = Born {
        owner,
        identity,
        at: now,
    };
    let settings = settings.resolve()?;
    if name.is_empty() {
        return make(state, candidates, None, settings, born);
    }
    check_name(&name)?;
    let Some(existing) = state.stream_named(&name) else {
        return make(state, candidates, Some(Arc::from(name)), settings, born);
    };
    // The number of servers that are up does not matter to a stream that exists already.
    let same = settings == existing.settings;
    match state.last_range(existing.id) {
        Some(range) if same => Ok(Effects::nothing(Outcome::StreamRange(
            Arc::clone(existing),
            Arc::clone(range),
        ))),
        _ => Err(Refusal::new(
            ErrorCode::ALREADY_EXISTS,
            format!(
                "\"{name}\" is stream {} with other settings: use it as it is, or another name",
                existing.id
            ),
        )),
    }
}

/// Refuses a stream to somebody who has made as many as its quota allows. Final: it does not help to try again.
fn check_quota(state: &PlacementState, owner: &Owner) -> Result<(), Refusal> {
    let made = state.streams_made_by(&owner.name);
    match owner.most {
        Some(most) if made >= most => Err(Refusal::new(
            ErrorCode::FORBIDDEN,
            format!(
                "{} may not create another stream: it has made {made} that exist, and its quota is {most} (streams); delete \
                 one, or ask the server's operator for more",
                owner.name
            ),
        )),
        _ => Ok(()),
    }
}

/// Checks that the servers that are up can hold a range with these settings.
pub(super) fn check_servers(settings: &Settings, candidates: &[Candidate]) -> Result<(), Refusal> {
    let Settings {
        replica_count,
        ack_count,
        ..
    } = settings;
    let up = candidates.len();
    let replicating = candidates.iter().filter(|candidate| candidate.replicates).count();
    let needed = usize::try_from(*ack_count).unwrap_or(usize::MAX);
    if up < needed {
        return Err(Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!(
                "{replica_count} replicas of which {ack_count} acknowledge need at least {ack_count} range servers; \
                 {up} are up"
            ),
        ));
    }
    let message = match replicating {
        _ if *replica_count == 1 || replicating >= needed => return Ok(()),
        0 => format!("{replica_count} replicas: this version of the server keeps one copy of each record"),
        some => format!(
            "{replica_count} replicas of which {ack_count} acknowledge: of {up} range servers that are up {some} keep \
             copies for others; upgrade the rest"
        ),
    };
    Err(Refusal::new(ErrorCode::UNSUPPORTED_OPERATION, message))
}

fn make(
    state: &PlacementState,
    candidates: &[Candidate],
    name: Option<Arc<str>>,
    settings: Settings,
    born: Born,
) -> Result<Effects, Refusal> {
    if let Some(owner) = &born.owner {
        check_quota(state, owner)?;
    }
    let id = state.next_stream_id();
    let Some(next) = id.0.checked_add(1) else {
        return Err(Refusal::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            "there are no stream ids left",
        ));
    };
    check_servers(&settings, candidates)?;
    let count = |count: i8| usize::try_from(count).unwrap_or(0);
    let (replicas, acks) = (count(settings.replica_count), count(settings.ack_count));
    let Some(servers) = choose(state, candidates, replicas, acks) else {
        return Err(Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            "too few range servers are up",
        ));
    };
    let range = Arc::new(RangeRecord {
        key: RangeKey {
            stream: id,
            range: RangeIndex(0),
        },
        epoch: Epoch(0),
        start_offset: Offset::ZERO,
        opened_offset: Offset::ZERO,
        end_offset: None,
        end_marks: 0,
        servers,
        incomplete: Vec::new(),
        let_go: Vec::new(),
        unknowing: Vec::new(),
        replica_count: settings.replica_count,
        ack_count: settings.ack_count,
    });
    let stream = Arc::new(StreamRecord {
        id,
        name,
        settings,
        created_at: born.at,
        identity: Some(born.identity),
        owner: born.owner.map(|owner| owner.name),
    });
    Ok(Effects {
        changes: vec![
            Change::PutStream(Arc::clone(&stream)),
            Change::PutRange(Arc::clone(&range)),
            Change::NextStreamId(StreamId(next)),
        ],
        orders: Order::install(&stream, &range.servers, &[&range]),
        outcome: Outcome::NewStream(stream, range),
    })
}
