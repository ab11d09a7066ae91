//! Streams with several replicas: which servers a range is opened on, and who is told.

use super::super::copies::Copy;
use super::super::effects::{Action, Effects, Order};
use super::super::seal::check_successor;
use super::super::shared_end::SharedEnd;
use super::super::update::range_with_other_numbers;
use super::*;
use crate::range::ReplicaSet;

fn candidates(replicating: &[i32], others: &[i32]) -> Vec<Candidate> {
    let candidate = |replicates| {
        move |id: &i32| Candidate {
            id: ServerId(*id),
            load: ServerLoad::default(),
            replicates,
            ..Candidate::default()
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
    let up = candidates(&[1, 2, 3], &[]);
    let mut told = |command| {
        let effects = apply(&state, &up, command, NOW).unwrap();
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
    assert_eq!(told(sealed), [2, 3, 1], "the primary of the next range last");
    assert_eq!(told(Command::DeleteStream(stream)), [1, 2, 3]);
}

#[test]
fn a_stream_is_buried_in_the_names_of_its_servers_and_of_those_that_may_have_an_old_copy() {
    let mut state = PlacementState::default();
    let (range, _) = open(&mut state, &candidates(&[1, 2, 3], &[]), wanted(3, 2));
    let stream = range.key.stream;
    let up = candidates(&[2, 9], &[]);
    let deleted = apply(&state, &up, Command::DeleteStream(stream), NOW).unwrap();
    let names = [1, 2, 3, 9].map(ServerId).into();
    assert_eq!(
        deleted.changes,
        [Change::PutTombstone(stream), Change::BuriedOn(stream, names)]
    );
    assert_eq!(servers(&deleted.orders), [1, 2, 3], "nobody waits for the others");
}

#[test]
fn the_next_primary_has_everything_and_knows_the_writers() {
    let mut state = PlacementState::default();
    let up = candidates(&[1, 2, 3], &[]);
    let (range, _) = open(&mut state, &up, wanted(3, 2));
    let sealed = |complete: &[i32], knowing: &[i32]| {
        let ids = |ids: &[i32]| ids.iter().copied().map(ServerId).collect();
        let end = Command::FinishSharedSeal(SharedEnd {
            key: range.key,
            end: Position::start(Offset(9)),
            complete: ids(complete),
            knowing: ids(knowing),
            open_next: true,
            lost: Vec::new(),
        });
        apply(&state, &up, end, NOW)
    };
    let primary = |effects: Effects| match effects.outcome {
        Outcome::Range(next) => next.servers[0].0,
        other => panic!("{other:?}"),
    };
    assert_eq!(primary(sealed(&[1, 2, 3], &[3]).unwrap()), 3);
    assert_eq!(primary(sealed(&[2, 3], &[1, 2]).unwrap()), 2);
    for knowing in [&[][..], &[1]] {
        let refusal = sealed(&[2, 3], knowing).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::PD_NO_AVAILABLE_RS, "{knowing:?}");
    }
}

#[test]
fn a_trim_changes_where_a_range_begins_and_not_where_it_began() {
    let mut state = PlacementState::default();
    let (range, _) = open(&mut state, &candidates(&[1, 2, 3], &[]), wanted(3, 2));
    let trim = Command::TrimStream {
        stream: range.key.stream,
        start: Offset(4),
        end: Some(Offset(9)),
    };
    for change in apply(&state, &[], trim, NOW).unwrap().changes {
        state.install(change);
    }
    let trimmed = state.range(range.key).unwrap();
    assert_eq!((trimmed.start_offset, trimmed.opened_offset), (Offset(4), Offset(0)));
    assert_eq!(trimmed.held().opened_at(), Offset(0));
}

fn numbers(replica_count: i8, ack_count: i8) -> Command {
    Command::UpdateStream(StreamUpdate {
        id: StreamId(1),
        settings: RequestedSettings {
            replica_count,
            ack_count,
            ..RequestedSettings::default()
        },
        ..StreamUpdate::default()
    })
}

/// Applies and installs; the outcome, and who is told.
fn run_with(state: &mut PlacementState, up: &[Candidate], command: Command) -> Result<(Outcome, Vec<i32>), Refusal> {
    let effects = apply(state, up, command, NOW)?;
    for change in effects.changes {
        state.install(change);
    }
    Ok((effects.outcome, servers(&effects.orders)))
}

#[test]
fn other_numbers_of_replicas_are_those_of_the_next_range() {
    let up = candidates(&[1, 2, 3, 4], &[]);
    let mut state = PlacementState::default();
    let (alone, _) = open(&mut state, &up, wanted(1, 0));
    assert_eq!(range_with_other_numbers(&state, StreamId(1)), None);
    run_with(&mut state, &up, numbers(3, 0)).unwrap();
    let settings = &state.stream(StreamId(1)).unwrap().settings;
    assert_eq!((settings.replica_count, settings.ack_count), (3, 2), "a majority");
    let target = range_with_other_numbers(&state, StreamId(1)).unwrap();
    assert_eq!(
        (target.range_index, target.epoch),
        (Some(alone.key.range), Some(alone.epoch))
    );
    let sealed = Command::FinishSeal {
        key: alone.key,
        end: Offset(7),
        open_next: true,
    };
    let (outcome, told) = run_with(&mut state, &up, sealed).unwrap();
    let Outcome::Range(next) = outcome else { panic!() };
    assert_eq!(next.servers, [1, 2, 3].map(ServerId), "it begins where the records are");
    assert_eq!(
        (next.replica_count, next.ack_count, next.start_offset),
        (3, 2, Offset(7))
    );
    assert_eq!(told, [2, 3, 1], "the primary last");
    assert_eq!(range_with_other_numbers(&state, StreamId(1)), None);
    // The numbers are given one by one, too.
    run_with(&mut state, &up, numbers(0, 3)).unwrap();
    assert!(range_with_other_numbers(&state, StreamId(1)).is_some());
    run_with(&mut state, &up, numbers(0, 2)).unwrap();
    assert_eq!(range_with_other_numbers(&state, StreamId(1)), None, "as it is");
    run_with(&mut state, &up, numbers(1, 0)).unwrap();
    assert_eq!(state.stream(StreamId(1)).unwrap().settings.ack_count, 1);
}

#[test]
fn other_numbers_that_the_servers_cannot_do_are_refused_before_anything_is_sealed() {
    let mut state = PlacementState::default();
    let up = candidates(&[1], &[9]);
    let (range, _) = open(&mut state, &up, wanted(1, 0));
    assert_eq!(range.servers, [ServerId(1)]);
    let few = run_with(&mut state, &up, numbers(3, 2)).unwrap_err();
    assert_eq!(few.code, ErrorCode::UNSUPPORTED_OPERATION, "{}", few.message);
    let nobody = run_with(&mut state, &candidates(&[1], &[]), numbers(3, 2)).unwrap_err();
    assert_eq!(nobody.code, ErrorCode::PD_NO_AVAILABLE_RS);
    let mut state = PlacementState::default();
    let (range, _) = open(&mut state, &candidates(&[], &[9]), wanted(1, 0));
    assert_eq!(range.servers, [ServerId(9)]);
    let refused = run_with(&mut state, &candidates(&[1, 2], &[9]), numbers(2, 2)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::UNSUPPORTED_OPERATION);
    assert!(
        refused.message.contains("is on range server 9, which keeps no copies"),
        "{}",
        refused.message
    );
}

#[test]
fn a_range_is_not_sealed_when_the_next_one_could_not_be_opened() {
    let mut state = PlacementState::default();
    let up = candidates(&[1, 2], &[]);
    let (range, _) = open(&mut state, &up, wanted(1, 0));
    run_with(&mut state, &up, numbers(2, 2)).unwrap();
    let check = |up: &[Candidate]| check_successor(&state, up, range.key).map_err(|refusal| refusal.code);
    assert_eq!(check(&up), Ok(()));
    assert_eq!(check(&candidates(&[1], &[])), Err(ErrorCode::PD_NO_AVAILABLE_RS));
    assert_eq!(
        check(&candidates(&[2], &[])),
        Err(ErrorCode::PD_NO_AVAILABLE_RS),
        "the records are on 1"
    );
}

#[test]
fn a_range_that_its_primary_never_began_is_passed_over_to_those_who_have_the_one_before() {
    let mut state = PlacementState::default();
    let up = candidates(&[1, 2, 3], &[]);
    let (first, _) = open(&mut state, &up, wanted(3, 2));
    let ids = |ids: &[i32]| -> Vec<ServerId> { ids.iter().copied().map(ServerId).collect() };
    let seal = |state: &mut PlacementState,
                up: &[Candidate],
                key,
                end,
                complete: &[i32],
                knowing: &[i32]|
     -> Result<_, Refusal> {
        let end = Command::FinishSharedSeal(SharedEnd {
            key,
            end,
            complete: ids(complete),
            knowing: ids(knowing),
            open_next: true,
            lost: Vec::new(),
        });
        let effects = apply(state, up, end, NOW)?;
        for change in effects.changes {
            state.install(change);
        }
        match effects.outcome {
            Outcome::Range(range) => Ok(range),
            other => panic!("{other:?}"),
        }
    };
    let end = Position::start(Offset(9));
    let second = seal(&mut state, &up, first.key, end, &[1, 2], &[1, 2]).unwrap();
    // Its primary is gone before it has begun it; 3 lacks some of the range before.
    let left = candidates(&[2, 3], &[]);
    let third = seal(&mut state, &left, second.key, end, &[2, 3], &[]).unwrap();
    assert_eq!((third.key.range, third.start_offset), (RangeIndex(2), Offset(9)));
    assert_eq!(third.servers, ids(&[2, 3]), "2 has all of the first range, and leads");
    // Not so where something of it is there, or where only those are left who lack some of the one before.
    let begun = Position { marks: 1, ..end };
    let refused = seal(&mut state.clone(), &left, third.key, begun, &[2, 3], &[]).unwrap_err();
    assert_eq!(refused.code, ErrorCode::PD_NO_AVAILABLE_RS);
    let lacking = candidates(&[3, 4], &[]);
    let refused = seal(&mut state.clone(), &lacking, third.key, end, &[3], &[]).unwrap_err();
    assert_eq!(
        refused.code,
        ErrorCode::PD_NO_AVAILABLE_RS,
        "3 has all of the second range, which is nothing"
    );
    let back = candidates(&[1, 3], &[]);
    let fourth = seal(&mut state, &back, third.key, end, &[3], &[]).unwrap();
    assert_eq!(
        fourth.servers,
        ids(&[1, 3]),
        "also behind several that were never begun"
    );
}

#[test]
fn a_copy_of_what_one_server_alone_had_begins_no_range() {
    let mut state = PlacementState::default();
    let up = candidates(&[1, 2, 3], &[]);
    let (first, _) = open(&mut state, &up, wanted(1, 0));
    let key = first.key;
    let run = |state: &mut PlacementState, up: &[Candidate], command| -> Result<_, Refusal> {
        let effects = apply(state, up, command, NOW)?;
        for change in effects.changes {
            state.install(change);
        }
        match effects.outcome {
            Outcome::Range(range) => Ok(range),
            other => panic!("{other:?}"),
        }
    };
    let end = Command::FinishSeal {
        key,
        end: Offset(5),
        open_next: false,
    };
    run(&mut state, &up, end).unwrap();
    for command in [Command::AddCopy, Command::FinishCopy] {
        run(&mut state, &up, command(Copy { key, to: ServerId(2) })).unwrap();
    }
    // The stream ends there: who had it alone opens what follows, also where others have all of it.
    let others = candidates(&[2, 3], &[]);
    let refused = run(&mut state.clone(), &others, Command::OpenNext(key)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::PD_NO_AVAILABLE_RS);
    run_with(&mut state, &up, numbers(3, 2)).unwrap();
    let second = run(&mut state, &up, Command::OpenNext(key)).unwrap();
    assert_eq!((second.servers[0], second.servers.len()), (ServerId(1), 3));
    // Its primary is gone before it has begun the next one.
    let seal = || {
        Command::FinishSharedSeal(SharedEnd {
            key: second.key,
            end: Position::start(Offset(5)),
            complete: second.servers.clone(),
            knowing: Vec::new(),
            open_next: true,
            lost: Vec::new(),
        })
    };
    let refused = run(&mut state.clone(), &others, seal()).unwrap_err();
    assert_eq!(
        refused.code,
        ErrorCode::PD_NO_AVAILABLE_RS,
        "2 has the records, and not the writers"
    );
    let third = run(&mut state, &candidates(&[1, 2], &[]), seal()).unwrap();
    assert_eq!(third.servers, [1, 2].map(ServerId));
}

#[test]
fn a_range_leaves_the_only_server_that_has_it_in_two_steps() {
    let mut state = PlacementState::default();
    let mut up = candidates(&[1, 2], &[]);
    let (first, _) = open(&mut state, &up, wanted(1, 0));
    assert_eq!(first.servers, [ServerId(1)]);
    up[0].avoided = true;
    let run = |state: &mut PlacementState, command| {
        let effects = apply(state, &up, command, NOW).unwrap();
        for change in effects.changes {
            state.install(change);
        }
        match effects.outcome {
            Outcome::Range(range) => range,
            other => panic!("{other:?}"),
        }
    };
    let (key, end) = (first.key, Offset(5));
    let between = run(
        &mut state,
        Command::FinishSeal {
            key,
            end,
            open_next: true,
        },
    );
    assert_eq!(
        between.servers,
        [1, 2].map(ServerId),
        "only the first one knows the writers"
    );
    assert_eq!((between.replica_count, between.ack_count), (2, 2));
    assert!(
        range_with_other_numbers(&state, key.stream).is_some(),
        "so it is sealed again"
    );
    let last = run(
        &mut state,
        Command::FinishSharedSeal(SharedEnd {
            key: between.key,
            end: Position::start(end),
            complete: [1, 2].map(ServerId).to_vec(),
            knowing: [1, 2].map(ServerId).to_vec(),
            open_next: true,
            lost: Vec::new(),
        }),
    );
    assert_eq!(last.servers, [ServerId(2)]);
    assert_eq!((last.replica_count, last.ack_count), (1, 1));
}

#[test]
fn servers_that_are_avoided_come_last_and_get_no_new_stream() {
    let mut state = PlacementState::default();
    let mut up = candidates(&[1, 2, 3, 4], &[]);
    let (first, _) = open(&mut state, &up, wanted(3, 2));
    assert_eq!(first.servers, [1, 2, 3].map(ServerId));
    up[0].avoided = true;
    let seal = |state: &PlacementState, up: &[Candidate]| {
        let complete = first.servers.clone();
        let command = Command::FinishSharedSeal(SharedEnd {
            key: first.key,
            end: Position::start(Offset(5)),
            knowing: complete.clone(),
            complete,
            open_next: true,
            lost: Vec::new(),
        });
        match apply(state, up, command, NOW).unwrap().outcome {
            Outcome::Range(range) => range.servers.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seal(&state, &up), [2, 3, 4].map(ServerId));
    assert_eq!(
        seal(&state, &up[..3]),
        [2, 3, 1].map(ServerId),
        "rather it than too few"
    );
    assert_eq!(open(&mut state, &up, wanted(3, 2)).0.servers, [2, 3, 4].map(ServerId));
    let refused = decide(&state, &up[..3], wanted(3, 3)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::PD_NO_AVAILABLE_RS);
}
