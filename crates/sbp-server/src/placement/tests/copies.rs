//! Copies of sealed ranges: which are made, from whom and for whom, and when a server is done without.

use std::time::{Duration, Instant};

use sbp_types::Epoch;

use super::super::copies::{Copies, Copy, CopyStep, is_news};
use super::super::effects::{Action, Order};
use super::super::records::StreamRecord;
use super::super::registry::Registry;
use super::super::state::Change;
use super::*;

const SILENCE: Duration = Duration::from_secs(3);
const REPLACE_AFTER: Duration = Duration::from_secs(60);
const S: StreamId = StreamId(1);

/// A cluster in which time passes as the test says.
struct Scene {
    state: PlacementState,
    registry: Registry,
    copies: Copies,
    now: Instant,
}

fn key(index: i32) -> RangeKey {
    RangeKey {
        stream: S,
        range: RangeIndex(index),
    }
}

fn copy(index: i32, to: i32) -> Copy {
    Copy {
        key: key(index),
        to: ServerId(to),
    }
}

fn ids(servers: &[i32]) -> Vec<ServerId> {
    servers.iter().copied().map(ServerId).collect()
}

impl Scene {
    /// Range servers 1 to 5 that have been there for long, and a stream of so many replicas.
    fn new(replicas: i8) -> Self {
        let now = Instant::now();
        let mut scene = Self {
            state: PlacementState::default(),
            registry: Registry::new(None, SILENCE, now),
            copies: Copies::new(REPLACE_AFTER),
            now,
        };
        for id in 1..=5 {
            scene.state.install(Change::PutServer(Arc::new(ServerRecord::new(
                ServerId(id),
                format!("server-{id}:1"),
            ))));
        }
        scene.stream(replicas);
        scene.pass(10, &[1, 2, 3, 4, 5]);
        scene
    }

    /// What is to become of a server.
    fn drain(&mut self, server: i32, draining: bool) {
        let server = ServerId(server);
        let effects = apply(&self.state, &[], Command::Drain { server, draining }, NOW).unwrap();
        for change in effects.changes {
            self.state.install(change);
        }
    }

    fn stream(&mut self, replicas: i8) {
        let settings = Settings {
            replica_count: replicas,
            ack_count: 2,
            retention_period_ms: 0,
            retention_bytes: None,
            schema: None,
            properties: BTreeMap::new(),
        };
        self.state.install(Change::PutStream(Arc::new(StreamRecord {
            id: S,
            name: None,
            settings,
            created_at: NOW,
            identity: None,
            owner: None,
        })));
    }

    /// A range of ten records on these servers, of which some may lack something; open if it is `last`. What is on one server was
    /// to be.
    fn range(&mut self, index: i32, servers: &[i32], incomplete: &[i32], last: bool) {
        let start = Offset(i64::from(index) * 10);
        let (replica_count, ack_count) = if servers.len() == 1 { (1, 1) } else { (3, 2) };
        self.state.install(Change::PutRange(Arc::new(RangeRecord {
            key: key(index),
            epoch: Epoch(i64::from(index)),
            start_offset: start,
            opened_offset: start,
            end_offset: (!last).then_some(Offset(start.0 + 10)),
            end_marks: 2,
            servers: ids(servers),
            incomplete: ids(incomplete),
            let_go: Vec::new(),
            unknowing: Vec::new(),
            replica_count,
            ack_count,
        })));
    }

    /// Lets seconds pass in which these servers are heard, each second.
    fn pass(&mut self, seconds: u64, heard: &[i32]) {
        for _second in 0..seconds {
            self.now += Duration::from_secs(1);
            self.registry.go_on(self.now);
            for server in heard {
                self.registry.heard(ServerId(*server), (*server).into(), true, self.now);
            }
        }
    }

    fn due(&mut self) -> Vec<(Copy, CopyStep)> {
        self.copies.due(&self.state, &self.registry, true, self.now)
    }

    /// A server gets a copy of a sealed range.
    fn make(&mut self, index: i32, to: i32) -> Arc<RangeRecord> {
        self.apply(Command::AddCopy(copy(index, to)));
        self.finish(copy(index, to))
    }

    /// Carries out a command as the worker does. Returns the range afterwards.
    fn apply(&mut self, command: Command) -> (Arc<RangeRecord>, Vec<Order>) {
        let effects = apply(&self.state, &[], command, NOW).unwrap();
        for change in effects.changes {
            self.state.install(change);
        }
        match effects.outcome {
            Outcome::Range(range) => (range, effects.orders),
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self, copy: Copy) -> Arc<RangeRecord> {
        let (range, _) = self.apply(Command::FinishCopy(copy));
        self.copies.ended(copy, true, self.now);
        range
    }

    /// Carries out a step that does without servers.
    fn release(&mut self, copy: Copy, away: &[i32]) -> Arc<RangeRecord> {
        let away = ids(away);
        let (range, _) = self.apply(Command::ReleaseCopies {
            key: copy.key,
            away,
            notes_copies: true,
        });
        self.copies.ended(copy, true, self.now);
        range
    }
}

fn releases(away: &[i32]) -> CopyStep {
    CopyStep::Release { away: ids(away) }
}

fn sends(source: i32, index: i32) -> CopyStep {
    CopyStep::Send {
        source: ServerId(source),
        epoch: Epoch(index.into()),
        end: Position {
            offset: Offset(i64::from(index) * 10 + 10),
            marks: 2,
        },
    }
}

#[test]
fn a_server_that_lacks_some_of_a_sealed_range_is_sent_it_when_it_is_there() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[1], false);
    scene.range(1, &[2, 3, 4], &[], true);
    scene.pass(3, &[2, 3, 4]);
    assert_eq!(scene.due(), [], "it is away");
    scene.pass(1, &[1, 2, 3, 4]);
    assert_eq!(scene.due(), [(copy(0, 1), sends(2, 0))]);
    assert_eq!(scene.due(), [], "it is under way");
    scene.copies.ended(copy(0, 1), false, scene.now);
    assert_eq!(scene.due(), [], "not at once again");
    scene.pass(1, &[1, 3, 4]);
    scene.pass(2, &[1, 3, 4]);
    assert_eq!(scene.due(), [(copy(0, 1), sends(3, 0))], "from one that is up");
    let range = scene.finish(copy(0, 1));
    assert_eq!(
        (range.servers.clone(), range.incomplete.clone()),
        (ids(&[1, 2, 3]), vec![])
    );
    assert_eq!(scene.due(), []);
}

#[test]
fn a_server_that_says_that_it_lacks_some_of_a_sealed_range_counts_again_when_it_was_sent_that() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[], false);
    scene.range(1, &[1, 2, 3], &[], true);
    let lacks = |scene: &Scene, index: i32, server: i32, epoch: i64| {
        is_news(&scene.state, ServerId(server), key(index), Epoch(epoch))
    };
    assert!(lacks(&scene, 0, 1, 0));
    assert!(!lacks(&scene, 0, 1, 1), "of another range");
    assert!(!lacks(&scene, 0, 4, 0) && !lacks(&scene, 1, 1, 1) && !lacks(&scene, 7, 1, 0));
    for _time in 0..2 {
        let (range, orders) = scene.apply(Command::LacksSome(copy(0, 1)));
        assert_eq!((range.incomplete.clone(), orders), (ids(&[1]), vec![]));
    }
    assert!(!lacks(&scene, 0, 1, 0), "it is known");
    assert_eq!(scene.due(), [(copy(0, 1), sends(2, 0))]);
    let range = scene.finish(copy(0, 1));
    assert_eq!((range.incomplete.clone(), range.unknowing.clone()), (vec![], vec![]));
    // Of the last range, of which records were trimmed, it would not count any more as one that knows the writers.
    let last = Arc::new(RangeRecord {
        start_offset: Offset(15),
        end_offset: Some(Offset(20)),
        ..RangeRecord::clone(scene.state.range(key(1)).unwrap())
    });
    scene.state.install(Change::PutRange(last));
    assert!(!lacks(&scene, 1, 1, 1));
    assert_eq!(scene.apply(Command::LacksSome(copy(1, 1))).0.incomplete, []);
}

#[test]
fn what_cannot_be_put_back_is_tried_less_and_less_often_and_keeps_no_others_from_their_turn() {
    let mut scene = Scene::new(3);
    scene.copies = Copies::new(Duration::from_hours(1));
    let lacking = 20;
    for index in 0..lacking {
        scene.range(index, &[1, 2, 3], &[1], false);
    }
    scene.range(lacking, &[2, 3, 4], &[], true);
    assert_eq!(scene.due().len(), 16);
    for index in 0..16 {
        scene.copies.is_refused(copy(index, 1), scene.now);
    }
    let others: Vec<_> = scene.due().into_iter().map(|(copy, _)| copy.key.range.0).collect();
    assert_eq!(others, [16, 17, 18, 19]);
    for index in 16..lacking {
        scene.finish(copy(index, 1));
    }
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        scene.pass(pause - 1, &[1, 2, 3, 4]);
        assert_eq!(scene.due(), [], "{pause}");
        scene.pass(1, &[1, 2, 3, 4]);
        assert_eq!(scene.due().len(), 16, "{pause}");
        for index in 0..16 {
            scene.copies.is_refused(copy(index, 1), scene.now);
        }
    }
}

#[test]
fn a_copy_that_cannot_be_made_whole_is_removed_where_enough_others_are_whole_and_then_made_anew() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[1], false);
    scene.range(1, &[1, 2, 3], &[], true);
    scene.drain(4, true);
    scene.drain(5, true);
    scene.due();
    // It has refused something once, and is sent more than one call takes.
    scene.copies.is_refused(copy(0, 1), scene.now);
    scene.copies.ended(copy(0, 1), false, scene.now);
    scene.pass(60, &[1, 2, 3]);
    assert_eq!(scene.due(), [(copy(0, 1), sends(2, 0))]);
    scene.copies.is_refused(copy(0, 1), scene.now);
    scene.pass(59, &[1, 2, 3]);
    assert_eq!(scene.due(), [(copy(0, 1), sends(2, 0))]);
    scene.copies.is_refused(copy(0, 1), scene.now);
    scene.pass(1, &[1, 2, 3]);
    assert_eq!(scene.due(), [(copy(0, 1), CopyStep::Replace)]);
    let (range, orders) = scene.apply(Command::ReplaceCopy(copy(0, 1)));
    assert_eq!(
        (range.servers.clone(), range.incomplete.clone(), range.let_go.clone()),
        (ids(&[2, 3]), vec![], ids(&[1]))
    );
    let [order] = &orders[..] else { panic!("{orders:?}") };
    assert!(order.server == ServerId(1) && matches!(&order.action, Action::LetGo(held) if held.len() == 1));
    scene.copies.ended(copy(0, 1), true, scene.now);
    assert_eq!(scene.due(), [], "it may have something of it still");
    let cleared = Command::ClearedOn {
        server: ServerId(1),
        keys: vec![key(0)],
    };
    let effects = apply(&scene.state, &[], cleared, NOW).unwrap();
    effects
        .changes
        .into_iter()
        .for_each(|change| scene.state.install(change));
    assert_eq!(scene.due(), [(copy(0, 1), CopyStep::Add)]);
    // Not where too few others are whole, nor one that is.
    for incomplete in [&[1, 2][..], &[2], &[]] {
        scene.range(0, &[1, 2, 3], incomplete, false);
        let (range, orders) = scene.apply(Command::ReplaceCopy(copy(0, 1)));
        assert_eq!(
            (range.servers.clone(), orders),
            (ids(&[1, 2, 3]), vec![]),
            "{incomplete:?}"
        );
    }
    // Nor where nobody else has begun what follows.
    scene.range(0, &[1, 2, 3], &[1], false);
    scene.state.install(Change::RemoveRange(key(1)));
    assert_eq!(scene.apply(Command::ReplaceCopy(copy(0, 1))).0.servers, ids(&[1, 2, 3]));
}

#[test]
fn a_server_that_is_to_be_emptied_sends_its_copies_and_is_then_done_without() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[2, 3], false);
    scene.range(1, &[2, 3, 4], &[], true);
    scene.drain(1, true);
    scene.drain(5, true);
    let due = scene.due();
    assert_eq!(
        due,
        [
            (copy(0, 2), sends(1, 0)),
            (copy(0, 3), sends(1, 0)),
            (copy(0, 4), CopyStep::Add)
        ],
        "it alone has everything; 5 gets nothing"
    );
    assert_eq!(scene.copies.counts(), (3, 0));
    scene.finish(copy(0, 2));
    scene.finish(copy(0, 3));
    assert_eq!(scene.due(), [], "two are whole elsewhere, and three are wanted");
    scene.apply(Command::AddCopy(copy(0, 4)));
    scene.copies.ended(copy(0, 4), true, scene.now);
    assert_eq!(scene.due().len(), 1);
    scene.finish(copy(0, 4));
    assert_eq!(scene.due(), [(copy(0, 1), releases(&[1]))]);
    assert_eq!(scene.release(copy(0, 1), &[1]).servers, ids(&[2, 3, 4]));
    assert_eq!((scene.due(), scene.copies.counts()), (vec![], (0, 0)));
}

#[test]
fn a_server_that_is_taken_back_before_its_copies_were_made_keeps_them() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[], false);
    scene.range(1, &[1, 2, 3], &[], true);
    scene.drain(4, true);
    scene.drain(5, true);
    scene.drain(1, true);
    assert_eq!(
        (scene.due(), scene.copies.counts()),
        (vec![], (0, 1)),
        "nobody is left to copy to"
    );
    scene.drain(1, false);
    assert_eq!((scene.due(), scene.copies.counts()), (vec![], (0, 0)));
}

#[test]
fn copies_of_a_server_that_is_away_for_long_are_made_on_another_one_which_takes_its_place() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[], false);
    scene.range(1, &[1, 2, 3], &[], false);
    scene.range(2, &[2, 3, 4], &[], true);
    scene.pass(59, &[2, 3, 4, 5]);
    assert_eq!(scene.due(), [], "it may come back");
    scene.pass(1, &[2, 3, 4, 5]);
    assert_eq!(
        scene.due(),
        [(copy(0, 4), CopyStep::Add), (copy(1, 4), CopyStep::Add)],
        "the best of those that have been there for long"
    );
    let (range, orders) = scene.apply(Command::AddCopy(copy(0, 4)));
    assert_eq!(
        (range.servers.clone(), range.incomplete.clone()),
        (ids(&[1, 2, 3, 4]), ids(&[4]))
    );
    let [order] = &orders[..] else { panic!("{orders:?}") };
    assert!(order.server == ServerId(4) && matches!(&order.action, Action::Install(_, held) if held.len() == 1));
    scene.copies.ended(copy(0, 4), true, scene.now);
    assert_eq!(scene.due(), [(copy(0, 4), sends(2, 0))]);
    let range = scene.finish(copy(0, 4));
    assert_eq!(range.servers, ids(&[1, 2, 3, 4]));
    scene.copies.ended(copy(1, 4), false, scene.now);
    assert_eq!(
        scene.due(),
        [(copy(0, 1), releases(&[1])), (copy(1, 5), CopyStep::Add)],
        "what is away is done without; what was not written down is decided anew: 5 has fewer"
    );
    assert_eq!(scene.release(copy(0, 1), &[1]).servers, ids(&[2, 3, 4]));
}

#[test]
fn nobody_is_done_without_before_there_are_as_many_whole_copies_as_wanted() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3, 4, 5], &[1, 4, 5], false);
    scene.range(1, &[3, 4, 5], &[], true);
    scene.pass(60, &[3, 4, 5]);
    assert_eq!(scene.due(), [(copy(0, 4), sends(3, 0)), (copy(0, 5), sends(3, 0))]);
    scene.finish(copy(0, 4));
    assert_eq!(scene.due(), [], "2 has it, and only 3 and 4 of those that are there");
    let range = scene.release(copy(0, 1), &[1, 2]);
    assert_eq!(range.servers, ids(&[1, 2, 3, 4, 5]), "nor if it was ordered before");
    scene.finish(copy(0, 5));
    assert_eq!(scene.due(), [(copy(0, 1), releases(&[1, 2]))]);
    let range = scene.release(copy(0, 1), &[1, 2]);
    assert_eq!(
        (range.servers.clone(), range.incomplete.clone()),
        (ids(&[3, 4, 5]), vec![])
    );
    // A placement driver that has started finds it too, and a server that is back keeps its place.
    scene.range(0, &[1, 3, 4, 5], &[1], false);
    assert_eq!(scene.due(), [(copy(0, 1), releases(&[1]))]);
    scene.copies.ended(copy(0, 1), false, scene.now);
    scene.pass(2, &[1, 2, 3, 4, 5]);
    assert_eq!(scene.due(), [(copy(0, 1), sends(3, 0))]);
}

#[test]
fn more_replicas_for_a_stream_reach_its_sealed_ranges_and_fewer_take_none_away() {
    let mut scene = Scene::new(2);
    scene.range(0, &[1, 2], &[], false);
    scene.range(1, &[1, 2], &[], true);
    assert_eq!(scene.due(), []);
    scene.stream(3);
    assert_eq!(scene.due(), [(copy(0, 3), CopyStep::Add)]);
    scene.apply(Command::AddCopy(copy(0, 3)));
    scene.copies.ended(copy(0, 3), true, scene.now);
    assert_eq!(scene.due().len(), 1);
    let range = scene.finish(copy(0, 3));
    assert_eq!(range.servers, ids(&[1, 2, 3]));
    scene.stream(2);
    assert_eq!(scene.due(), []);
}

#[test]
fn what_one_server_alone_had_is_copied_and_the_copies_do_not_know_the_writers_until_a_later_range_does() {
    let mut scene = Scene::new(1);
    scene.range(0, &[1], &[], false);
    scene.range(1, &[1], &[], false);
    scene.range(2, &[1, 2, 3], &[], true);
    assert_eq!(scene.due(), []);
    scene.stream(2);
    let added: Vec<_> = scene.due().into_iter().map(|(copy, step)| (copy.key, step)).collect();
    assert_eq!(added, [(key(0), CopyStep::Add), (key(1), CopyStep::Add)]);
    scene.apply(Command::AddCopy(copy(0, 4)));
    scene.copies.ended(copy(0, 4), true, scene.now);
    assert!(scene.due().contains(&(copy(0, 4), sends(1, 0))));
    let first = scene.finish(copy(0, 4));
    assert_eq!((first.servers.clone(), first.unknowing.clone()), (ids(&[1, 4]), vec![]));
    for (to, unknowing) in [(2, &[2][..]), (3, &[2, 3])] {
        assert_eq!(scene.make(1, to).unknowing, ids(unknowing));
        assert_eq!(
            scene.finish(copy(1, to)).unknowing,
            ids(unknowing),
            "the second time too"
        );
    }
    let second = Arc::clone(scene.state.range(key(1)).unwrap());
    assert_eq!(second.complete().collect::<Vec<_>>(), ids(&[1, 2, 3]));
    assert_eq!(second.knowing().collect::<Vec<_>>(), ids(&[1]));
    // Range 1 is the one that others may have to go on behind: range 2 may not have been begun.
    scene.drain(1, true);
    scene.stream(1);
    assert_eq!(scene.due(), [(copy(0, 1), releases(&[1]))]);
    assert_eq!(scene.release(copy(0, 1), &[1]).servers, ids(&[4]));
    assert_eq!(
        scene.release(copy(1, 1), &[1]).servers,
        ids(&[1, 2, 3]),
        "nor if it was ordered before"
    );
    scene.range(2, &[1, 2, 3], &[], false);
    scene.range(3, &[2, 3], &[], true);
    let due = scene.due();
    assert!(due.contains(&(copy(1, 1), releases(&[1]))), "{due:?}");
    let released = scene.release(copy(1, 1), &[1]);
    assert_eq!(
        (released.servers.clone(), released.unknowing.clone()),
        (ids(&[2, 3]), ids(&[2, 3]))
    );
}

#[test]
fn what_one_server_alone_had_waits_while_a_placement_driver_lives_that_could_not_read_who_knows_the_writers() {
    let mut scene = Scene::new(2);
    scene.range(0, &[1], &[], false);
    scene.range(1, &[1, 2], &[], false);
    scene.range(2, &[1, 2], &[], true);
    scene.stream(3);
    let due = scene.copies.due(&scene.state, &scene.registry, false, scene.now);
    assert!(
        due.iter().all(|(copy, _)| copy.key == key(1)) && due.len() == 1,
        "{due:?}"
    );
    assert!(scene.due().iter().any(|(copy, _)| copy.key == key(0)));
}

#[test]
fn the_last_range_of_a_stream_is_copied_too_and_its_servers_stay_until_another_one_follows() {
    let mut scene = Scene::new(1);
    scene.range(0, &[1], &[], false);
    scene.stream(2);
    let to = scene.due()[0].0.to.0;
    assert_eq!(scene.make(0, to).unknowing, ids(&[to]));
    scene.drain(1, true);
    let other = scene.due()[0].0.to.0;
    let range = scene.make(0, other);
    assert_eq!(range.knowing().collect::<Vec<_>>(), ids(&[1]));
    assert_eq!((scene.due(), scene.copies.counts()), (vec![], (0, 0)));
    // Its server needed nothing to begin it, being the only one.
    scene.range(1, &[1], &[], true);
    assert_eq!(scene.due(), [(copy(0, 1), releases(&[1]))]);
}

#[test]
fn a_copy_that_begins_where_its_range_is_trimmed_does_not_know_the_writers_behind_a_stream_that_ends_there() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[3], false);
    let trim = Command::TrimStream {
        stream: S,
        start: Offset(4),
        end: Some(Offset(10)),
    };
    for change in apply(&scene.state, &[], trim, NOW).unwrap().changes {
        scene.state.install(change);
    }
    assert_eq!(scene.finish(copy(0, 3)).unknowing, ids(&[3]));
}

#[test]
fn nothing_is_copied_where_nobody_has_all_of_it() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3], &[2, 3], false);
    scene.range(1, &[2, 3, 4], &[2], false);
    scene.pass(3, &[2, 3, 4]);
    assert_eq!(scene.due(), [(copy(1, 2), sends(3, 1))], "1 alone has range 0");
    scene.state.install(Change::PutTombstone(S));
    scene.copies.ended(copy(1, 2), false, scene.now);
    scene.pass(2, &[1, 2, 3, 4]);
    assert_eq!(scene.due(), []);
    let gone = apply(&scene.state, &[], Command::AddCopy(copy(1, 2)), NOW);
    assert_eq!(gone.unwrap_err().code, ErrorCode::NOT_FOUND);
}

#[test]
fn sixteen_copies_are_made_at_once_and_those_that_lack_something_come_first() {
    let mut scene = Scene::new(3);
    for index in 0..40 {
        let incomplete: &[i32] = if index >= 20 { &[2] } else { &[] };
        scene.range(index, &[1, 2, 3], incomplete, false);
    }
    scene.range(40, &[2, 3, 4], &[], true);
    scene.pass(60, &[2, 3, 4, 5]);
    let due = scene.due();
    assert_eq!(due.len(), 16);
    assert!(due.iter().all(|(copy, _)| copy.to == ServerId(2)), "{due:?}");
    assert_eq!(scene.due(), []);
    for (copy, _) in &due[..10] {
        scene.finish(*copy);
    }
    let due = scene.due();
    assert_eq!(due.len(), 10);
    let lacking = due.iter().filter(|(copy, _)| copy.to == ServerId(2)).count();
    assert_eq!(lacking, 4, "the rest of the twenty");
}

#[test]
fn a_server_that_was_let_go_of_a_range_gets_it_again_only_when_it_has_said_that_it_has_nothing_of_it() {
    let mut scene = Scene::new(3);
    scene.range(0, &[1, 2, 3, 4], &[4], false);
    scene.range(1, &[2, 3, 4], &[], true);
    let finished = scene.finish(copy(0, 4));
    assert_eq!(finished.let_go, []);
    let away = ids(&[1]);
    let release = |away| Command::ReleaseCopies {
        key: key(0),
        away,
        notes_copies: true,
    };
    let (released, orders) = scene.apply(release(away));
    assert_eq!((&released.servers, &released.let_go), (&ids(&[2, 3, 4]), &ids(&[1])));
    let [order] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!((order.server, order.stream), (ServerId(1), S));
    assert_eq!(order.action, Action::LetGo(vec![released.held()]));
    let waiting = |scene: &Scene| {
        scene
            .state
            .let_go_on(ServerId(1), None)
            .map(|range| range.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(waiting(&scene), [key(0)]);
    let (again, orders) = scene.apply(release(ids(&[1])));
    assert_eq!((again, orders), (released, Vec::new()), "twice is once");

    let refused = apply(&scene.state, &[], Command::AddCopy(copy(0, 1)), NOW).unwrap_err();
    assert!(refused.message.contains("still removes"), "{}", refused.message);
    // Another one is gone, and 5 is the only one that can have the range.
    scene.drain(2, true);
    assert_eq!(scene.due(), [(copy(0, 5), CopyStep::Add)]);
    scene.copies.ended(copy(0, 5), true, scene.now);
    scene.drain(5, true);
    assert_eq!(scene.due(), [], "1 still has something");
    let cleared = |server| Command::ClearedOn {
        server: ServerId(server),
        keys: vec![key(0), key(9)],
    };
    for server in [3, 1] {
        let effects = apply(&scene.state, &[], cleared(server), NOW).unwrap();
        assert_eq!(effects.changes.len(), usize::from(server == 1));
        effects
            .changes
            .into_iter()
            .for_each(|change| scene.state.install(change));
    }
    assert_eq!((waiting(&scene), scene.state.with_let_go().count()), (Vec::new(), 0));
    assert_eq!(scene.due(), [(copy(0, 1), CopyStep::Add)]);
    let (added, _) = scene.apply(Command::AddCopy(copy(0, 1)));
    assert_eq!(added.incomplete, ids(&[1]));
}

#[test]
fn a_deleted_stream_is_buried_in_the_names_of_those_that_were_let_go_of_its_ranges_too() {
    let mut scene = Scene::new(1);
    scene.range(0, &[1, 2], &[], false);
    scene.range(1, &[2], &[], true);
    scene.apply(Command::ReleaseCopies {
        key: key(0),
        away: ids(&[1]),
        notes_copies: true,
    });
    let deleted = apply(&scene.state, &[], Command::DeleteStream(S), NOW).unwrap();
    let ordered: Vec<_> = deleted.orders.iter().map(|order| order.server.0).collect();
    assert_eq!(ordered, [1, 2]);
    for change in deleted.changes {
        scene.state.install(change);
    }
    assert_eq!(scene.state.buried_on(S).count(), 2);
    assert_eq!(scene.state.with_let_go().count(), 0);
}

#[test]
fn servers_are_asked_about_all_ranges_in_turn() {
    let mut scene = Scene::new(1);
    for index in 0..5 {
        scene.range(index, &[1, 2], &[], false);
    }
    scene.range(5, &[2], &[], true);
    for index in 0..5 {
        scene.apply(Command::ReleaseCopies {
            key: key(index),
            away: ids(&[1]),
            notes_copies: true,
        });
    }
    let from = |after| {
        let ranges = scene.state.let_go_on(ServerId(1), after);
        ranges.map(|range| range.key.range.0).collect::<Vec<_>>()
    };
    assert_eq!(from(None), [0, 1, 2, 3, 4]);
    assert_eq!(from(Some(key(2))), [3, 4, 0, 1, 2]);
    assert_eq!(from(Some(key(4))), [0, 1, 2, 3, 4]);
}

#[test]
fn where_it_cannot_be_kept_who_was_let_go_of_a_range_nobody_is_told_to_remove_it() {
    let mut scene = Scene::new(1);
    scene.range(0, &[1, 2], &[], false);
    scene.range(1, &[2], &[], true);
    let release = Command::ReleaseCopies {
        key: key(0),
        away: ids(&[1]),
        notes_copies: false,
    };
    let (released, orders) = scene.apply(release);
    assert_eq!((&released.servers, &released.let_go), (&ids(&[2]), &Vec::new()));
    assert_eq!(orders, []);
}
