//! Tables over the pure placement driver.

use std::collections::BTreeMap;
use std::sync::Arc;

use sbp_messages::{DescribeStreamsRequest, ErrorCode, RangeCriteria, RangeId};
use sbp_types::{Offset, Position, RangeIndex, RangeKey, ServerId, StreamId, StreamIdentity, TimestampMs};

use super::apply::{Command, apply};
use super::choose::{Candidate, Withheld};
use super::*;
use crate::access::Gate;
use crate::refusal::Refusal;

mod changes;
mod copies;
mod replicas;

const SERVER: ServerId = ServerId(1);
const CANDIDATES: [Candidate; 1] = [Candidate {
    id: SERVER,
    load: ServerLoad {
        free_bytes: None,
        appends: 0,
        fetches: 0,
        withheld: Withheld { ranges: 0, bytes: 0 },
    },
    replicates: false,
    avoided: false,
    zone: None,
}];
const IDENTITY: StreamIdentity = StreamIdentity([7; 16]);
const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

fn named(name: &str) -> NewStream {
    NewStream {
        name: name.to_owned(),
        ..NewStream::default()
    }
}

fn schema(canonical: &[u8]) -> Option<Arc<SchemaRecord>> {
    Some(Arc::new(SchemaRecord {
        ipc: vec![1],
        canonical: canonical.to_vec(),
        fingerprint: 7,
    }))
}

/// Applies and installs, as the shell does.
fn run(state: &mut PlacementState, command: Command) -> Result<Outcome, Refusal> {
    let effects = apply(state, &CANDIDATES, command, NOW)?;
    for change in effects.changes {
        state.install(change);
    }
    Ok(effects.outcome)
}

/// A stream with its range.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Created {
    stream: Arc<StreamRecord>,
    range: Arc<RangeRecord>,
}

fn create(state: &mut PlacementState, streams: Vec<NewStream>) -> Vec<Result<Created, Refusal>> {
    let created = |outcome| match outcome {
        Outcome::NewStream(stream, range) | Outcome::StreamRange(stream, range) => Created { stream, range },
        other => panic!("{other:?}"),
    };
    let made = streams
        .into_iter()
        .map(|stream| run(state, Command::CreateStream(stream, IDENTITY)).map(created));
    made.collect()
}

fn with_streams(count: usize) -> PlacementState {
    let mut state = PlacementState::default();
    let made = create(&mut state, (0..count).map(|n| named(&format!("s{n}"))).collect());
    assert!(made.iter().all(Result::is_ok));
    state
}

#[test]
fn a_new_stream_has_defaults_and_an_open_range_at_zero() {
    let mut state = PlacementState::default();
    let made = create(&mut state, vec![named("orders"), NewStream::default()]);
    let orders = made[0].as_ref().unwrap();
    assert_eq!(orders.stream.id, StreamId(1));
    assert_eq!(
        (orders.stream.created_at, orders.stream.identity),
        (NOW, Some(IDENTITY))
    );
    assert_eq!(
        (orders.stream.settings.replica_count, orders.stream.settings.ack_count),
        (1, 1)
    );
    assert_eq!(
        (
            orders.stream.settings.retention_period_ms,
            orders.stream.settings.retention_bytes
        ),
        (0, None)
    );
    assert_eq!(
        orders.range.key,
        RangeKey {
            stream: StreamId(1),
            range: RangeIndex(0)
        }
    );
    assert_eq!((orders.range.start_offset, orders.range.end_offset), (Offset(0), None));
    assert_eq!(orders.range.servers, [SERVER]);
    assert_eq!(made[1].as_ref().unwrap().stream.name, None);
    assert_eq!(state.next_stream_id(), StreamId(3));
    assert_eq!(state.stream_named("orders").unwrap().id, StreamId(1));
}

#[test]
fn nothing_is_visible_before_it_is_installed() {
    let state = PlacementState::default();
    let effects = apply(
        &state,
        &CANDIDATES,
        Command::CreateStream(named("orders"), IDENTITY),
        NOW,
    )
    .unwrap();
    assert!(!effects.changes.is_empty());
    assert!(state.stream_named("orders").is_none());
}

#[test]
fn the_same_name_with_the_same_settings_is_the_same_stream() {
    let mut state = with_streams(1);
    let explicit = RequestedSettings {
        replica_count: 1,
        ack_count: 1,
        retention_bytes: -1,
        ..Default::default()
    };
    let again = create(
        &mut state,
        vec![
            named("s0"),
            NewStream {
                name: "s0".to_owned(),
                settings: explicit,
                owner: None,
            },
        ],
    );
    assert!(again.iter().all(|made| made.as_ref().unwrap().stream.id == StreamId(1)));
    assert_eq!(state.stream_count(), 1);
    let effects = apply(&state, &CANDIDATES, Command::CreateStream(named("s0"), IDENTITY), NOW).unwrap();
    assert_eq!(effects.changes, vec![], "a repeat writes nothing");
}

#[test]
fn the_same_name_twice_in_one_request_is_one_stream() {
    let mut state = PlacementState::default();
    let made = create(&mut state, vec![named("a"), named("a")]);
    assert_eq!(made[0], made[1]);
    assert_eq!(state.stream_count(), 1);
}

#[test]
fn the_same_name_with_other_settings_is_refused() {
    let other = [
        RequestedSettings {
            retention_period_ms: 1,
            ..Default::default()
        },
        RequestedSettings {
            retention_bytes: 1,
            ..Default::default()
        },
        RequestedSettings {
            schema: schema(b"a"),
            ..Default::default()
        },
        RequestedSettings {
            properties: Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])),
            ..Default::default()
        },
    ];
    for settings in other {
        let mut state = with_streams(1);
        let made = create(
            &mut state,
            vec![NewStream {
                name: "s0".to_owned(),
                settings: settings.clone(),
                owner: None,
            }],
        );
        assert_eq!(
            made[0].as_ref().unwrap_err().code,
            ErrorCode::ALREADY_EXISTS,
            "{settings:?}"
        );
    }
}

#[test]
fn schemas_are_compared_by_their_canonical_form() {
    let mut state = PlacementState::default();
    let with = |canonical: &[u8], ipc: u8| {
        let schema = SchemaRecord {
            ipc: vec![ipc],
            canonical: canonical.to_vec(),
            fingerprint: 7,
        };
        let settings = RequestedSettings {
            schema: Some(Arc::new(schema)),
            ..Default::default()
        };
        vec![NewStream {
            name: "typed".to_owned(),
            settings,
            owner: None,
        }]
    };
    assert!(create(&mut state, with(b"x", 1))[0].is_ok());
    assert!(create(&mut state, with(b"x", 2))[0].is_ok());
    assert!(create(&mut state, with(b"y", 1))[0].is_err());
    assert_eq!(
        state
            .stream_named("typed")
            .unwrap()
            .settings
            .schema
            .as_ref()
            .unwrap()
            .ipc,
        vec![1]
    );
}

#[test]
fn bad_settings_are_refused_and_the_other_entries_go_on() {
    let cases = [
        (
            RequestedSettings {
                replica_count: -1,
                ..Default::default()
            },
            ErrorCode::INVALID_REQUEST,
        ),
        (
            RequestedSettings {
                replica_count: 1,
                ack_count: 2,
                ..Default::default()
            },
            ErrorCode::INVALID_REQUEST,
        ),
        (
            RequestedSettings {
                ack_count: -1,
                ..Default::default()
            },
            ErrorCode::INVALID_REQUEST,
        ),
        (
            RequestedSettings {
                retention_period_ms: -1,
                ..Default::default()
            },
            ErrorCode::INVALID_REQUEST,
        ),
        (
            RequestedSettings {
                retention_bytes: -2,
                ..Default::default()
            },
            ErrorCode::INVALID_REQUEST,
        ),
        (
            RequestedSettings {
                replica_count: 2,
                ..Default::default()
            },
            ErrorCode::PD_NO_AVAILABLE_RS,
        ),
    ];
    for (settings, code) in cases {
        let mut state = PlacementState::default();
        let bad = NewStream {
            name: "bad".to_owned(),
            settings,
            owner: None,
        };
        let made = create(&mut state, vec![bad.clone(), named("good")]);
        assert_eq!(made[0].as_ref().unwrap_err().code, code, "{bad:?}");
        assert_eq!(made[1].as_ref().unwrap().stream.id, StreamId(1));
        assert!(state.stream_named("bad").is_none());
    }
}

#[test]
fn a_deleted_stream_leaves_its_name_and_keeps_its_id() {
    let mut state = with_streams(1);
    state.install(Change::PutTombstone(StreamId(1)));
    assert!(state.stream(StreamId(1)).is_none());
    assert!(state.has_tombstone(StreamId(1)));
    assert_eq!(state.ranges_of(StreamId(1)).count(), 0);
    let made = create(&mut state, vec![named("s0")]);
    assert_eq!(made[0].as_ref().unwrap().stream.id, StreamId(2));
}

#[test]
fn streams_are_described_by_id_then_name_in_request_order() {
    let state = with_streams(3);
    let query = DescribeStreamsRequest {
        stream_ids: vec![StreamId(3), StreamId(9)],
        names: vec!["s0".to_owned(), "nope".to_owned()],
        limit: 1,
        continuation: b"ignored".as_slice().into(),
        ..Default::default()
    };
    let (found, next) = describe_streams(&state, query, &Gate::default()).unwrap();
    assert!(matches!(&found[0], Described::Found(stream) if stream.id == StreamId(3)));
    assert!(matches!(&found[1], Described::UnknownId(StreamId(9), refusal) if refusal.code == ErrorCode::NOT_FOUND));
    assert!(matches!(&found[2], Described::Found(stream) if stream.id == StreamId(1)));
    assert!(matches!(&found[3], Described::UnknownName(name, _) if name == "nope"));
    assert_eq!((found.len(), next.len()), (4, 0));
}

#[test]
fn all_streams_come_in_pages() {
    for (streams, limit, pages) in [(0, 2, 1), (4, 2, 2), (5, 2, 3), (1_001, 0, 2), (1_001, 5_000, 2)] {
        let state = with_streams(streams);
        let (mut ids, mut continuation, mut seen) = (vec![], vec![], 0);
        loop {
            let query = DescribeStreamsRequest {
                limit,
                continuation: continuation.into(),
                ..Default::default()
            };
            let (found, next) = describe_streams(&state, query, &Gate::default()).unwrap();
            ids.extend(found.into_iter().map(|described| match described {
                Described::Found(stream) => stream.id.0,
                other => panic!("{other:?}"),
            }));
            seen += 1;
            continuation = next;
            if continuation.is_empty() {
                break;
            }
        }
        assert_eq!(seen, pages, "{streams} streams, limit {limit}");
        assert_eq!(ids, (1..=i64::try_from(streams).unwrap()).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_no_token_is_refused() {
    let state = with_streams(1);
    let foreign = Refusal::invalid("the continuation is not one that this server gave for such a request");
    for token in [
        b"x".to_vec(),
        vec![0x51],
        vec![0x51, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![0x61, 0, 0, 0, 0],
        vec![0x51; 10],
    ] {
        let query = DescribeStreamsRequest {
            continuation: token.clone().into(),
            ..Default::default()
        };
        assert_eq!(
            describe_streams(&state, query, &Gate::default()).unwrap_err(),
            foreign,
            "{token:?}"
        );
    }
    let by_stream = [criteria(Some(StreamId(1)), None)];
    for token in [
        vec![0x61],
        vec![0x61, 0, 0, 0, 1],
        vec![0x61, 0, 0, 0, 0, 1],
        vec![0x51; 9],
    ] {
        assert_eq!(
            list_ranges(&state, &by_stream, 0, &token, &Gate::default()).unwrap_err(),
            foreign,
            "{token:?}"
        );
    }
}

#[test]
fn ranges_are_listed_by_stream_by_server_and_by_both() {
    let state = with_streams(2);
    let (one, here, there) = (Some(StreamId(1)), Some(ServerId(1)), Some(ServerId(8)));
    let cases = [
        (criteria(one, None), Ok(1)),
        (criteria(None, here), Ok(2)),
        (criteria(one, here), Ok(1)),
        (criteria(one, there), Ok(0)),
        (criteria(None, there), Ok(0)),
        (criteria(None, None), Err(ErrorCode::INVALID_REQUEST)),
        (criteria(Some(StreamId(9)), here), Err(ErrorCode::NOT_FOUND)),
    ];
    for (criterion, expected) in cases {
        let page = list_ranges(&state, std::slice::from_ref(&criterion), 0, b"", &Gate::default()).unwrap();
        let got = page.results[0]
            .ranges
            .as_ref()
            .map(Vec::len)
            .map_err(|refusal| refusal.code);
        assert_eq!(got, expected, "{criterion:?}");
    }
}

#[test]
fn listed_ranges_go_on_on_the_next_page_whatever_its_size() {
    let state = with_streams(5);
    let all = criteria(None, Some(ServerId(1)));
    let second = criteria(Some(StreamId(2)), None);
    let criteria = [all.clone(), second, all];
    let whole = collect(&state, &criteria, 0);
    assert_eq!(whole.len(), 11);
    for limit in 1..=12 {
        assert_eq!(collect(&state, &criteria, limit), whole, "limit {limit}");
    }
}

fn criteria(stream_id: Option<StreamId>, server: Option<ServerId>) -> RangeCriteria {
    let range_server = server.map(|server_id| sbp_messages::RangeServer {
        server_id,
        ..Default::default()
    });
    RangeCriteria {
        stream_id,
        range_server,
    }
}

/// All ranges of all pages, each with the criterion it came under; no page may be over its limit.
fn collect(state: &PlacementState, criteria: &[RangeCriteria], limit: i32) -> Vec<(usize, RangeKey)> {
    let (mut all, mut token) = (vec![], vec![]);
    for _page in 0..100 {
        let page = list_ranges(state, criteria, limit, &token, &Gate::default()).unwrap();
        let before = all.len();
        for listed in page.results {
            all.extend(listed.ranges.unwrap().iter().map(|range| (listed.criterion, range.key)));
        }
        assert!(limit == 0 || all.len() - before <= usize::try_from(limit).unwrap());
        if page.continuation.is_empty() {
            return all;
        }
        token = page.continuation;
    }
    panic!("the pages do not end");
}
