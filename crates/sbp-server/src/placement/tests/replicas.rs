//! Streams with several replicas: which servers a range is opened on, and who is told.

use super::super::effects::{Action, Effects, Order};
use super::*;
use crate::range::ReplicaSet;

fn candidates(replicating: &[i32], others: &[i32]) -> Vec<Candidate> {
    let candidate = |replicates| {
        move |id: &i32| Candidate {
            id: ServerId(*id),
            load: ServerLoad::default(),
            replicates,
        }
    };
    let replicating = replicating.iter().map(candidate(true));
    replicating.chain(others.iter().map(candidate(false))).collect()
}

fn wanted(replica_count: i8, ack_count: i8) -> NewStream {
    NewStream {
        settings: RequestedSettings {
            replica_count,
            ack_count,
            ..RequestedSettings::default()
        },
        ..NewStream::default()
    }
}

fn decide(state: &PlacementState, up: &[Candidate], stream: NewStream) -> Result<Effects, Refusal> {
    apply(state, up, Command::CreateStream(stream, IDENTITY), NOW)
}

fn open(state: &mut PlacementState, up: &[Candidate], stream: NewStream) -> (Arc<RangeRecord>, Vec<Order>) {
    let effects = decide(state, up, stream).unwrap();
    for change in effects.changes {
        state.install(change);
    }
    match effects.outcome {
        Outcome::NewStream(_, range) => (range, effects.orders),
        other => panic!("{other:?}"),
    }
}

fn servers(orders: &[Order]) -> Vec<i32> {
    orders.iter().map(|order| order.server.0).collect()
}

#[test]
fn a_range_is_opened_on_as_many_servers_as_wanted_and_each_is_told_of_all() {
    let mut state = PlacementState::default();
    let up = candidates(&[1, 2, 3, 4], &[5]);
    let (range, orders) = open(&mut state, &up, wanted(3, 0));
    assert_eq!(range.servers, [1, 2, 3].map(ServerId));
    assert_eq!(
        (range.replica_count, range.ack_count),
        (3, 2),
        "a majority acknowledges"
    );
    assert_eq!(servers(&orders), [1, 2, 3]);
    let set = ReplicaSet::new([1, 2, 3].map(ServerId), Some(2));
    for order in &orders {
        let Action::Install(facts, ranges) = &order.action else {
            panic!("{order:?}")
        };
        assert_eq!((facts.replicas, &ranges[0].set), (3, &set));
    }
    let (next, _) = open(&mut state, &up, wanted(3, 3));
    assert_eq!(next.servers[0], ServerId(2), "the primary is where least is to do");
    assert_eq!(next.ack_count, 3);
    let (alone, _) = open(&mut state, &up, wanted(1, 0));
    assert_eq!(
        (alone.servers.as_slice(), alone.held().set.is_alone()),
        (&[ServerId(3)][..], true)
    );
}

#[test]
fn with_fewer_servers_than_wanted_but_enough_to_acknowledge_it_opens_and_says_so() {
    let mut state = PlacementState::default();
    let (range, _) = open(&mut state, &candidates(&[1, 2], &[]), wanted(3, 2));
    assert_eq!(range.servers, [1, 2].map(ServerId));
    assert!(range.lacks_replicas());
    let lacking = |state: &PlacementState, server| state.ranges_lacking_replicas_on(ServerId(server));
    assert_eq!(
        (lacking(&state, 1), lacking(&state, 2)),
        (1, 0),
        "counted at the primary"
    );
    let (whole, _) = open(&mut state, &candidates(&[1, 2, 3], &[]), wanted(3, 2));
    assert!(!whole.lacks_replicas());
    assert_eq!(lacking(&state, whole.servers[0].0), 0);
    let (one, _) = open(&mut state, &candidates(&[7], &[]), wanted(3, 1));
    assert_eq!((one.servers.as_slice(), lacking(&state, 7)), (&[ServerId(7)][..], 1));
    assert!(one.held().set.is_alone());
    state.install(Change::PutTombstone(range.key.stream));
    assert_eq!(lacking(&state, 1), 0);
}

#[test]
fn what_the_servers_cannot_do_is_refused_in_words() {
    let state = PlacementState::default();
    let cases = [
        (
            candidates(&[1], &[]),
            wanted(3, 2),
            ErrorCode::PD_NO_AVAILABLE_RS,
            "3 replicas of which 2 acknowledge need at least 2 range servers; 1 are up",
        ),
        (
            candidates(&[], &[]),
            wanted(1, 1),
            ErrorCode::PD_NO_AVAILABLE_RS,
            "1 replicas of which 1 acknowledge need at least 1 range servers; 0 are up",
        ),
        (
            candidates(&[], &[1, 2, 3]),
            wanted(3, 2),
            ErrorCode::UNSUPPORTED_OPERATION,
            "3 replicas: this version of the server keeps one copy of each record",
        ),
        (
            candidates(&[1], &[2, 3]),
            wanted(3, 2),
            ErrorCode::UNSUPPORTED_OPERATION,
            "of 3 range servers that are up 1 keep copies for others; upgrade the rest",
        ),
        (
            candidates(&[1, 2, 3], &[]),
            wanted(2, 3),
            ErrorCode::INVALID_REQUEST,
            "3 acknowledgements cannot be had from 2 replicas: ask for 1 to 2",
        ),
    ];
    for (up, stream, code, message) in cases {
        let refusal = decide(&state, &up, stream).unwrap_err();
        assert_eq!(refusal.code, code);
        assert!(refusal.message.ends_with(message), "{}", refusal.message);
    }
}

#[test]
fn a_name_that_is_taken_is_compared_with_the_replicas_wanted() {
    let mut state = PlacementState::default();
    let up = candidates(&[1, 2, 3], &[]);
    let named = |replicas, acks| NewStream {
        name: "orders".to_owned(),
        ..wanted(replicas, acks)
    };
    open(&mut state, &up, named(3, 2));
    let again = decide(&state, &candidates(&[], &[]), named(3, 0)).unwrap();
    assert!(
        matches!(again.outcome, Outcome::StreamRange(..)),
        "servers do not matter any more"
    );
    for (replicas, acks) in [(3, 3), (1, 1), (0, 0)] {
        let refusal = decide(&state, &up, named(replicas, acks)).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::ALREADY_EXISTS, "{replicas} {acks}");
    }
}

#[test]
fn every_server_of_the_set_hears_of_changes_trims_ends_and_the_deletion() {
    let mut state = PlacementState::default();
    let (range, _) = open(&mut state, &candidates(&[1, 2, 3], &[]), wanted(3, 2));
    let stream = range.key.stream;
    let mut told = |command| {
        let effects = apply(&state, &[], command, NOW).unwrap();
        for change in effects.changes {
            state.install(change);
        }
        servers(&effects.orders)
    };
    let update = StreamUpdate {
        id: stream,
        settings: RequestedSettings {
            retention_period_ms: 5,
            ..RequestedSettings::default()
        },
        ..StreamUpdate::default()
    };
    assert_eq!(told(Command::UpdateStream(update)), [1, 2, 3]);
    let trim = Command::TrimStream {
        stream,
        start: Offset(4),
        end: Some(Offset(9)),
    };
    assert_eq!(told(trim), [1, 2, 3]);
    let sealed = Command::FinishSeal {
        key: range.key,
        end: Offset(9),
        open_next: true,
    };
    assert_eq!(told(sealed), [1, 2, 3]);
    assert_eq!(told(Command::DeleteStream(stream)), [1, 2, 3]);
}
