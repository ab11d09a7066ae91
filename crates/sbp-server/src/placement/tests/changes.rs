//! Tables over what happens to streams and ranges that are there.

use arrow_schema::{DataType, Field, Schema};
use sbp_record::StreamSchema;
use sbp_types::Epoch;

use super::super::effects::{Action, Effects, Order};
use super::super::seal::{SealPlan, plan_seal};
use super::super::trim::{TrimPlan, plan_trim};
use super::*;

const S: StreamId = StreamId(1);

fn key(range: i32) -> RangeKey {
    RangeKey {
        stream: S,
        range: RangeIndex(range),
    }
}

fn effects(state: &PlacementState, command: Command) -> Result<Effects, Refusal> {
    apply(state, &CANDIDATES, command, NOW)
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> ErrorCode {
    result.unwrap_err().code
}

fn range_of(outcome: Outcome) -> RangeRecord {
    match outcome {
        Outcome::Range(range) | Outcome::NewStream(_, range) | Outcome::StreamRange(_, range) => {
            RangeRecord::clone(&range)
        }
        other => panic!("{other:?}"),
    }
}

/// One stream with ranges that end at these offsets, and an open one behind them.
fn with_ranges(ends: &[i64]) -> PlacementState {
    let mut state = with_streams(1);
    for (range, end) in ends.iter().enumerate() {
        let command = Command::FinishSeal {
            key: key(i32::try_from(range).unwrap()),
            end: Offset(*end),
            open_next: true,
        };
        run(&mut state, command).unwrap();
    }
    state
}

/// Index, start, end (-1: open) and epoch of each range; they must tile the stream's offsets.
fn ranges(state: &PlacementState) -> Vec<(i32, i64, i64, i64)> {
    let ranges: Vec<_> = state.ranges_of(S).collect();
    for pair in ranges.windows(2) {
        assert_eq!(pair[0].end_offset, Some(pair[1].start_offset), "no gap and no overlap");
        assert!(pair[0].epoch < pair[1].epoch, "epochs grow");
    }
    let end = |range: &RangeRecord| range.end_offset.map_or(-1, |end| end.0);
    let row = |range: &Arc<RangeRecord>| (range.key.range.0, range.start_offset.0, end(range), range.epoch.0);
    ranges.into_iter().map(row).collect()
}

fn update(settings: RequestedSettings) -> Command {
    Command::UpdateStream(StreamUpdate {
        id: S,
        name: String::new(),
        settings,
    })
}

fn rename(name: &str) -> Command {
    Command::UpdateStream(StreamUpdate {
        id: S,
        name: name.to_owned(),
        ..Default::default()
    })
}

fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn an_update_leaves_what_is_zero_or_absent_but_always_takes_the_retention_period() {
    let mut state = PlacementState::default();
    let settings = RequestedSettings {
        retention_period_ms: 60_000,
        retention_bytes: 5_000,
        properties: Some(properties(&[("team", "a")])),
        ..Default::default()
    };
    let name = "s".to_owned();
    create(
        &mut state,
        vec![NewStream {
            name,
            settings,
            ..NewStream::default()
        }],
    );
    let old = StreamRecord::clone(state.stream(S).unwrap());
    let cases = [
        (
            "nothing given: the period falls back to its default",
            RequestedSettings::default(),
            Settings {
                retention_period_ms: 0,
                ..old.settings.clone()
            },
        ),
        (
            "a bound is lifted",
            RequestedSettings {
                retention_period_ms: 60_000,
                retention_bytes: -1,
                ..Default::default()
            },
            Settings {
                retention_bytes: None,
                ..old.settings.clone()
            },
        ),
        (
            "properties are replaced as a whole",
            RequestedSettings {
                retention_period_ms: 60_000,
                properties: Some(properties(&[("owner", "b")])),
                ..Default::default()
            },
            Settings {
                properties: properties(&[("owner", "b")]),
                ..old.settings.clone()
            },
        ),
        (
            "also by none",
            RequestedSettings {
                retention_period_ms: 60_000,
                properties: Some(BTreeMap::new()),
                ..Default::default()
            },
            Settings {
                properties: BTreeMap::new(),
                ..old.settings.clone()
            },
        ),
    ];
    for (what, change, expected) in cases {
        let Outcome::Stream(stream) = effects(&state, update(change)).unwrap().outcome else {
            panic!("{what}")
        };
        assert_eq!(stream.settings, expected, "{what}");
        assert_eq!(
            (stream.id, &stream.name, stream.created_at, stream.identity),
            (S, &old.name, old.created_at, Some(IDENTITY))
        );
    }
    let same = RequestedSettings {
        retention_period_ms: 60_000,
        ..Default::default()
    };
    assert_eq!(effects(&state, update(same)).unwrap().changes, []);
}

#[test]
fn an_update_is_judged_by_the_settings_that_result() {
    let state = with_streams(1);
    let cases = [
        (
            RequestedSettings {
                ack_count: 2,
                ..Default::default()
            },
            ErrorCode::INVALID_REQUEST,
        ),
        (
            RequestedSettings {
                replica_count: 3,
                ..Default::default()
            },
            ErrorCode::PD_NO_AVAILABLE_RS,
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
    ];
    for (change, expected) in cases {
        assert_eq!(code(effects(&state, update(change.clone()))), expected, "{change:?}");
    }
    let unknown = Command::UpdateStream(StreamUpdate {
        id: StreamId(9),
        ..Default::default()
    });
    assert_eq!(code(effects(&state, unknown)), ErrorCode::NOT_FOUND);
    let nobody_up = apply(&state, &[], update(RequestedSettings::default()), NOW);
    assert!(nobody_up.is_ok(), "a stream that is there does not move");
}

#[test]
fn a_new_name_renames_and_frees_the_old_one() {
    let mut state = with_streams(2);
    assert_eq!(code(effects(&state, rename("s1"))), ErrorCode::ALREADY_EXISTS);
    assert_eq!(code(effects(&state, rename("9"))), ErrorCode::INVALID_REQUEST);
    assert_eq!(effects(&state, rename("s0")).unwrap().changes, [], "its own name");
    run(&mut state, rename("new")).unwrap();
    assert_eq!(state.stream_named("new").unwrap().id, S);
    assert!(state.stream_named("s0").is_none());
    assert_eq!(
        create(&mut state, vec![named("s0")])[0].as_ref().unwrap().stream.id,
        StreamId(3)
    );
}

fn columns(columns: &[(&str, bool)]) -> Arc<SchemaRecord> {
    let field = |(name, nullable): &(&str, bool)| Field::new(*name, DataType::Int64, *nullable);
    let fields: Vec<_> = columns.iter().map(field).collect();
    let schema = StreamSchema::from_arrow(&Schema::new(fields)).unwrap();
    Arc::new(SchemaRecord {
        ipc: schema.to_ipc(),
        canonical: schema.canonical().to_vec(),
        fingerprint: schema.fingerprint(),
    })
}

#[test]
fn a_schema_grows_by_nullable_columns_at_its_end_only() {
    let mut state = PlacementState::default();
    let settings = RequestedSettings {
        schema: Some(columns(&[("a", false)])),
        ..Default::default()
    };
    let typed = NewStream {
        settings,
        ..Default::default()
    };
    create(&mut state, vec![typed, NewStream::default()]);
    let with = |schema| RequestedSettings {
        schema: Some(schema),
        ..Default::default()
    };
    for refused in [
        columns(&[("a", false), ("b", false)]),
        columns(&[("b", true), ("a", false)]),
        columns(&[("a", true)]),
    ] {
        assert_eq!(code(effects(&state, update(with(refused)))), ErrorCode::INVALID_REQUEST);
    }
    let grown = columns(&[("a", false), ("b", true)]);
    let Effects { orders, .. } = effects(&state, update(with(Arc::clone(&grown)))).unwrap();
    let Action::Install(facts, held) = &orders[0].action else {
        panic!("{orders:?}")
    };
    assert_eq!(
        facts.fingerprints.to_vec(),
        [grown.fingerprint, columns(&[("a", false)]).fingerprint],
        "batches without the new column go on"
    );
    assert_eq!((orders.len(), held.len()), (1, 1));
    run(&mut state, update(with(Arc::clone(&grown)))).unwrap();
    let shrunk = with(columns(&[("a", false)]));
    assert_eq!(code(effects(&state, update(shrunk))), ErrorCode::INVALID_REQUEST);
    let opaque = Command::UpdateStream(StreamUpdate {
        id: StreamId(2),
        settings: with(grown),
        ..Default::default()
    });
    assert_eq!(code(effects(&state, opaque)), ErrorCode::INVALID_REQUEST);
}

#[test]
fn range_servers_hear_of_an_update_that_concerns_them_only() {
    let state = with_streams(1);
    let labelled = RequestedSettings {
        properties: Some(BTreeMap::from([("team".to_owned(), "blue".to_owned())])),
        ..Default::default()
    };
    assert_eq!(effects(&state, update(labelled)).unwrap().orders, []);
    let orders = effects(&state, rename("new")).unwrap().orders;
    assert!(
        matches!(&orders[..], [Order { action: Action::Install(facts, _), .. }] if facts.name.as_deref() == Some("new")),
        "grants are judged by names: {orders:?}"
    );
    let kept = RequestedSettings {
        retention_period_ms: 5,
        ..Default::default()
    };
    let orders = effects(&state, update(kept)).unwrap().orders;
    assert!(
        matches!(&orders[..], [Order { server: SERVER, stream: S, action: Action::Install(facts, _) }]
            if facts.retention_period_ms == 5),
        "{orders:?}"
    );
}

#[test]
fn a_deleted_stream_is_gone_and_deleting_it_again_is_not_found() {
    let mut state = with_ranges(&[10]);
    let Effects { orders, outcome, .. } = effects(&state, Command::DeleteStream(S)).unwrap();
    assert!(matches!(outcome, Outcome::Stream(stream) if stream.id == S));
    assert_eq!(
        orders,
        [Order {
            server: SERVER,
            stream: S,
            action: Action::Delete
        }]
    );
    run(&mut state, Command::DeleteStream(S)).unwrap();
    assert_eq!(code(effects(&state, Command::DeleteStream(S))), ErrorCode::NOT_FOUND);
    assert_eq!(state.open_ranges_on(SERVER), 0);
    assert!(state.has_tombstone(S));
    assert_eq!(
        state.buried_in_the_name_of(SERVER).collect::<Vec<_>>(),
        [S],
        "until it says that it has nothing of it"
    );
    let removed = |server| Command::RemovedFrom { stream: S, server };
    run(&mut state, removed(ServerId(77))).unwrap();
    assert_eq!(state.buried_on(S).count(), 1, "another one has said so");
    run(&mut state, removed(SERVER)).unwrap();
    assert_eq!(state.buried_on(S).count(), 0);
    assert!(effects(&state, removed(SERVER)).unwrap().changes.is_empty(), "twice");
    run(&mut state, Command::DropTombstone(S)).unwrap();
    assert!(!state.has_tombstone(S));
    assert_eq!(
        create(&mut state, vec![named("s0")])[0].as_ref().unwrap().stream.id,
        StreamId(2)
    );
}

fn trim(start: i64, end: i64) -> Command {
    Command::TrimStream {
        stream: S,
        start: Offset(start),
        end: Some(Offset(end)),
    }
}

#[test]
fn a_trim_drops_ranges_moves_the_start_and_keeps_the_last_range() {
    // Ranges 0..10, 10..20, 20.. of which 30 can be read.
    let whole = vec![(0, 0, 10, 0), (1, 10, 20, 1), (2, 20, -1, 2)];
    let cases = [
        (0, whole.clone()),
        (4, vec![(0, 4, 10, 0), (1, 10, 20, 1), (2, 20, -1, 2)]),
        (10, vec![(1, 10, 20, 1), (2, 20, -1, 2)]),
        (11, vec![(1, 11, 20, 1), (2, 20, -1, 2)]),
        (20, vec![(2, 20, -1, 2)]),
        (25, vec![(2, 25, -1, 2)]),
        (30, vec![(2, 30, -1, 2)]),
    ];
    for (start, expected) in cases {
        let mut state = with_ranges(&[10, 20]);
        let Effects { changes, orders, .. } = effects(&state, trim(start, 30)).unwrap();
        let moves = expected != whole;
        assert_eq!((!changes.is_empty(), !orders.is_empty()), (moves, moves), "{start}");
        assert!(orders.iter().all(|order| order.action == Action::Trim(Offset(start))));
        let first = range_of(run(&mut state, trim(start, 30)).unwrap());
        assert_eq!(ranges(&state), expected, "{start}");
        assert_eq!(
            first.key.range.0, expected[0].0,
            "{start}: the first range left is told"
        );
        let again = effects(&state, trim(start, 30)).unwrap();
        assert_eq!(again.changes, [], "{start}: a second time changes nothing");
        let below = effects(&state, trim(start.min(3), 30)).unwrap();
        assert_eq!(below.changes, [], "{start}: below the start nothing changes");
    }
}

#[test]
fn a_trim_beyond_what_can_be_read_or_below_zero_is_out_of_bounds() {
    let state = with_ranges(&[10]);
    for (start, end) in [(31, 30), (i64::MAX, 30), (-1, 30), (i64::MIN, 30)] {
        assert_eq!(
            code(effects(&state, trim(start, end))),
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
            "{start}"
        );
    }
    let mut sealed = with_streams(1);
    seal(&mut sealed, 10, false);
    assert_eq!(
        code(effects(&sealed, trim(11, 99))),
        ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS
    );
    run(&mut sealed, trim(10, 99)).unwrap();
    assert_eq!(ranges(&sealed), [(0, 10, 10, 0)], "the last range stays, empty");
}

#[test]
fn an_empty_range_goes_with_what_lies_before_it() {
    let mut state = with_ranges(&[10, 10, 10]);
    assert_eq!(ranges(&state).len(), 4);
    run(&mut state, trim(10, 10)).unwrap();
    assert_eq!(ranges(&state), [(3, 10, -1, 3)]);
}

#[test]
fn a_trim_asks_for_the_end_only_where_the_open_range_is_cut() {
    let state = with_ranges(&[10]);
    let ask = TrimPlan::AskEnd(SERVER, key(1));
    for (start, expected) in [(-1, TrimPlan::Judge), (10, TrimPlan::Judge), (11, ask)] {
        assert_eq!(plan_trim(&state, S, Offset(start)).unwrap(), expected, "{start}");
    }
    assert_eq!(code(plan_trim(&state, StreamId(9), Offset(0))), ErrorCode::NOT_FOUND);
}

fn seal(state: &mut PlacementState, end: i64, open_next: bool) -> RangeRecord {
    let key = state.last_range(S).unwrap().key;
    let end = Offset(end);
    range_of(run(state, Command::FinishSeal { key, end, open_next }).unwrap())
}

/// A range by its index, or with -1 the open one.
fn target(range: i32) -> RangeId {
    RangeId {
        stream_id: S,
        range_index: (range >= 0).then_some(RangeIndex(range)),
        epoch: None,
        end_offset: None,
    }
}

#[test]
fn a_seal_ends_the_range_and_opens_the_next_one_where_that_is_wanted() {
    let mut state = with_streams(1);
    let next = seal(&mut state, 7, true);
    assert_eq!(
        (next.key, next.epoch, next.start_offset, next.end_offset, next.servers),
        (key(1), Epoch(1), Offset(7), None, vec![SERVER]),
        "on the server of the last"
    );
    assert_eq!(ranges(&state), [(0, 0, 7, 0), (1, 7, -1, 1)]);
    let sealed = seal(&mut state, 9, false);
    assert_eq!((sealed.key, sealed.end_offset), (key(1), Some(Offset(9))));
    assert_eq!(ranges(&state), [(0, 0, 7, 0), (1, 7, 9, 1)]);
    assert_eq!(state.open_ranges_on(SERVER), 0);
}

#[test]
fn range_servers_hear_of_the_sealed_range_and_the_next_one_together() {
    let state = with_streams(1);
    let finish = |open_next| Command::FinishSeal {
        key: key(0),
        end: Offset(5),
        open_next,
    };
    let orders = effects(&state, finish(true)).unwrap().orders;
    let Action::Install(_, held) = &orders[0].action else {
        panic!("{orders:?}")
    };
    let ends: Vec<_> = held.iter().map(|held| (held.key, held.start, held.end)).collect();
    assert_eq!(ends, [(key(0), Offset(0), Some(Offset(5))), (key(1), Offset(5), None)]);
    let orders = effects(&state, finish(false)).unwrap().orders;
    assert_eq!(orders[0].action, Action::Publish(key(0), Offset(5)));
}

#[test]
fn what_a_seal_needs_depends_on_what_is_there() {
    let open = with_ranges(&[10]);
    let mut ended = open.clone();
    seal(&mut ended, 20, false);
    let mut trimmed = with_ranges(&[10, 20]);
    run(&mut trimmed, trim(10, 20)).unwrap();
    let (both, rs, pd) = (
        [SealFor::RangeServer, SealFor::PlacementDriver],
        [SealFor::RangeServer],
        [SealFor::PlacementDriver],
    );
    let needs_server = |range: i32| SealPlan::Seal {
        server: SERVER,
        key: key(range),
        epoch: Epoch(range.into()),
    };
    let done = |state: &PlacementState, range| SealPlan::Done(Arc::clone(state.range(key(range)).unwrap()));
    let cases = [
        ("the open range", &open, target(1), &both[..], Ok(needs_server(1))),
        ("-1 is the open range", &open, target(-1), &both, Ok(needs_server(1))),
        ("again: the next range", &open, target(0), &pd, Ok(done(&open, 1))),
        ("again: the sealed range", &open, target(0), &rs, Ok(done(&open, 0))),
        ("sealed without a next", &ended, target(1), &rs, Ok(done(&ended, 1))),
        ("opens the next", &ended, target(1), &pd, Ok(SealPlan::OpenNext(key(1)))),
        (
            "-1 is the last where none is open",
            &ended,
            target(-1),
            &pd,
            Ok(SealPlan::OpenNext(key(1))),
        ),
        (
            "not there yet",
            &open,
            target(2),
            &both,
            Err(ErrorCode::RANGE_NOT_FOUND),
        ),
        (
            "trimmed away, answered by the next",
            &trimmed,
            target(0),
            &pd,
            Ok(done(&trimmed, 1)),
        ),
        (
            "trimmed away",
            &trimmed,
            target(0),
            &rs,
            Err(ErrorCode::RANGE_NOT_FOUND),
        ),
        (
            "another epoch",
            &open,
            RangeId {
                epoch: Some(Epoch(0)),
                ..target(1)
            },
            &both,
            Err(ErrorCode::EXPIRED_RANGE_EPOCH),
        ),
        (
            "the right epoch",
            &open,
            RangeId {
                epoch: Some(Epoch(1)),
                ..target(1)
            },
            &both,
            Ok(needs_server(1)),
        ),
        (
            "the end of a sealed range is another one",
            &open,
            RangeId {
                end_offset: Some(Offset(9)),
                ..target(0)
            },
            &both,
            Err(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS),
        ),
        (
            "the right end",
            &open,
            RangeId {
                end_offset: Some(Offset(10)),
                ..target(0)
            },
            &rs,
            Ok(done(&open, 0)),
        ),
        (
            "an unknown stream",
            &open,
            RangeId {
                stream_id: StreamId(9),
                ..target(0)
            },
            &both,
            Err(ErrorCode::NOT_FOUND),
        ),
    ];
    for (what, state, target, on_behalf, expected) in cases {
        for on_behalf in on_behalf {
            let plan = plan_seal(state, target, *on_behalf).map_err(|refusal| refusal.code);
            assert_eq!(plan, expected, "{what}, {on_behalf:?}");
        }
    }
}

#[test]
fn the_end_that_a_sealer_saw_moves_nothing() {
    assert!(Refusal::check_end(key(0), Offset(5), None).is_ok());
    assert!(Refusal::check_end(key(0), Offset(5), Some(Offset(5))).is_ok());
    for seen in [0, 4, 6] {
        assert_eq!(
            code(Refusal::check_end(key(0), Offset(5), Some(Offset(seen)))),
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS
        );
    }
}

#[test]
fn a_range_is_made_behind_a_sealed_one_and_nowhere_else() {
    let open = with_streams(1);
    let mut sealed = with_streams(1);
    seal(&mut sealed, 10, false);
    let going_on = with_ranges(&[10]);
    let wanted = |range, start: i64, epoch| NewRange {
        key: key(range),
        start: (start >= 0).then_some(Offset(start)),
        epoch: Some(Epoch(epoch)).filter(|epoch| epoch.0 >= 0),
    };
    let before_seal = Err(ErrorCode::CREATE_RANGE_BEFORE_SEAL);
    let other_epoch = Err(ErrorCode::EXPIRED_RANGE_EPOCH);
    let cases = [
        ("open", &open, wanted(1, -1, -1), before_seal),
        ("the next one", &sealed, wanted(1, 10, 1), Ok(1)),
        ("whatever start and epoch", &sealed, wanted(1, -1, -1), Ok(1)),
        ("another start", &sealed, wanted(1, 11, 1), before_seal),
        ("start 0 is a start", &sealed, wanted(1, 0, 1), before_seal),
        ("another epoch", &sealed, wanted(1, 10, 2), other_epoch),
        ("further on", &sealed, wanted(2, -1, -1), before_seal),
        ("there already", &going_on, wanted(1, 10, 1), Ok(1)),
        ("there already, sealed", &going_on, wanted(0, 0, 0), Ok(0)),
        ("there with another start", &going_on, wanted(1, 9, 1), before_seal),
        ("there with another epoch", &going_on, wanted(1, 10, 0), other_epoch),
    ];
    for (what, state, wanted, expected) in cases {
        let made = effects(state, Command::CreateRange(wanted));
        let changes = made.as_ref().map_or(0, |made| made.changes.len());
        let made = made
            .map(|made| range_of(made.outcome).key.range.0)
            .map_err(|refusal| refusal.code);
        assert_eq!(made, expected, "{what}");
        let is_new = made.is_ok() && state.range(wanted.key).is_none();
        assert_eq!(changes, usize::from(is_new), "{what}: a repeat writes nothing");
    }
    let unknown = NewRange {
        key: RangeKey {
            stream: StreamId(9),
            ..key(0)
        },
        start: None,
        epoch: None,
    };
    assert_eq!(
        code(effects(&open, Command::CreateRange(unknown))),
        ErrorCode::NOT_FOUND
    );
}

#[test]
fn the_last_index_and_epoch_are_not_wrapped() {
    let mut state = with_streams(1);
    let last = RangeRecord {
        key: key(i32::MAX),
        end_offset: Some(Offset(3)),
        end_marks: 0,
        ..RangeRecord::clone(state.last_range(S).unwrap())
    };
    state.install(Change::PutRange(Arc::new(last)));
    assert_eq!(
        code(effects(&state, Command::OpenNext(key(i32::MAX)))),
        ErrorCode::PD_INTERNAL_SERVER_ERROR
    );
}

#[test]
fn server_ids_grow_from_one_and_are_never_given_twice() {
    let mut state = PlacementState::default();
    for expected in 1..4 {
        let given = run(&mut state, Command::AllocateServerId).unwrap();
        assert_eq!(given, Outcome::Server(ServerId(expected)));
    }
    let known = ServerRecord::new(ServerId(9), "host:1");
    run(&mut state, Command::RegisterServer(known.clone())).unwrap();
    assert_eq!(
        run(&mut state, Command::AllocateServerId).unwrap(),
        Outcome::Server(ServerId(10)),
        "a number that somebody has is not given out"
    );
    let again = effects(&state, Command::RegisterServer(known)).unwrap();
    assert_eq!(again.changes, []);
    let started = |starts, address: &str| ServerRecord {
        starts,
        ..ServerRecord::new(ServerId(9), address)
    };
    run(&mut state, Command::RegisterServer(started(3, "host:1"))).unwrap();
    for copy in [started(2, "host:1"), started(3, "host:2")] {
        let refused = effects(&state, Command::RegisterServer(copy));
        assert_eq!(code(refused), ErrorCode::INVALID_REQUEST);
    }
    // An earlier version, which does not say how often it was started.
    run(&mut state, Command::RegisterServer(started(0, "host:2"))).unwrap();
    assert_eq!(**state.server(ServerId(9)).unwrap(), started(3, "host:2"));
    state.install(Change::NextServerId(ServerId(i32::MAX)));
    assert_eq!(
        code(effects(&state, Command::AllocateServerId)),
        ErrorCode::PD_INTERNAL_SERVER_ERROR
    );
}

#[test]
fn new_streams_are_spread_over_the_servers_that_are_up() {
    let mut state = PlacementState::default();
    let candidates = [1, 2].map(|id| Candidate {
        id: ServerId(id),
        load: ServerLoad::default(),
        replicates: false,
        ..Candidate::default()
    });
    let mut placed = Vec::new();
    for _stream in 0..4 {
        let command = Command::CreateStream(NewStream::default(), IDENTITY);
        let effects = apply(&state, &candidates, command, NOW).unwrap();
        for change in effects.changes {
            state.install(change);
        }
        placed.push(range_of(effects.outcome).servers[0].0);
    }
    assert_eq!(placed, [1, 2, 1, 2]);
    let nobody = apply(&state, &[], Command::CreateStream(NewStream::default(), IDENTITY), NOW);
    assert_eq!(code(nobody), ErrorCode::PD_NO_AVAILABLE_RS);
}
