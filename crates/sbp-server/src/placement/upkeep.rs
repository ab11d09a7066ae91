//! Which open ranges the placement driver seals of itself, so that their streams go on on other servers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use sbp_types::{Epoch, RangeKey, ServerId, StreamId};

use super::choose::Candidate;
use super::drain::Drain;
use super::records::RangeRecord;
use super::registry::Registry;
use super::settings::Settings;
use super::state::PlacementState;

/// The most ranges that go on on more servers at once: each writes the state of its writers and has them synced.
const MOST_RENEWALS: usize = 100;
/// The most ranges that are taken over at once. Each is some calls to its servers, which have their time from when they are made:
/// more of them would wait for each other until that is over.
const MOST_TAKEOVERS: usize = 500;
/// When a stream that was to leave a server and has not is sealed again.
const DRAIN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why a range is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its primary is gone, and others have it.
    PrimaryGone,
    /// It is on fewer servers than its stream is to have replicas, and there are more.
    FewReplicas,
    /// Its stream is to have another number of replicas, or of acknowledgements.
    OtherNumbers,
    /// It is on a server that is to be emptied.
    Draining,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrimaryGone => "its primary is gone",
            Self::FewReplicas => "it has fewer replicas than its stream is to have, and there are servers for more",
            Self::OtherNumbers => "its stream is to have another number of replicas or acknowledgements",
            Self::Draining => "it is on a server that is to be emptied",
        })
    }
}

/// A range to be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) key: RangeKey,
    pub(super) epoch: Epoch,
    pub(super) why: Why,
}

/// What the placement driver has begun to seal of itself, and when it did so last.
#[derive(Debug)]
pub(super) struct Upkeep {
    renew_after: Duration,
    under_way: BTreeMap<RangeKey, Why>,
    /// Until when a stream that was given other servers is not given others again: should that not have helped, its ranges would
    /// be sealed one after the other.
    renewed: HashMap<StreamId, Instant>,
    /// The ranges that were begun to be taken over since each of them had its turn: one that cannot be is not tried again before the
    /// others were.
    tried: HashSet<RangeKey>,
    /// Whether others wait until some of these have ended.
    others_wait: bool,
}

impl Upkeep {
    pub(super) fn new(renew_after: Duration) -> Self {
        Self {
            renew_after,
            under_way: BTreeMap::new(),
            renewed: HashMap::new(),
            tried: HashSet::new(),
            others_wait: false,
        }
    }

    /// The ranges to begin to seal now. Each is under way until it has [`ended`](Self::ended).
    pub(super) fn due(&mut self, state: &PlacementState, registry: &Registry, now: Instant) -> Vec<Due> {
        let mut candidates = registry.candidates(now);
        candidates.retain(|candidate| candidate.replicates);
        self.renewed.retain(|_, until| now < *until);
        let look = Look {
            state,
            registry,
            drain: Drain::new(state, registry, now),
            candidates,
            renew_after: self.renew_after,
            now,
        };
        let renewals = self.renewals();
        let mut room = MOST_RENEWALS.saturating_sub(renewals);
        let mut takeovers = MOST_TAKEOVERS.saturating_sub(self.under_way.len() - renewals);
        self.others_wait = false;
        let mut due = Vec::new();
        let on_draining = state.draining().flat_map(|server| state.open_ranges_with(server));
        for range in state.shared_ranges().chain(on_draining) {
            let Some(stream) = state.stream(range.key.stream) else {
                continue;
            };
            if self.under_way.contains_key(&range.key) {
                continue;
            }
            let Some(why) = look.why(range, &stream.settings) else {
                continue;
            };
            if why == Why::PrimaryGone {
                if self.tried.contains(&range.key) {
                    continue;
                }
                if takeovers == 0 {
                    self.others_wait = true;
                    continue;
                }
                takeovers -= 1;
                self.tried.insert(range.key);
            } else {
                if room == 0 || self.renewed.contains_key(&range.key.stream) {
                    continue;
                }
                room -= 1;
                let pause = match why {
                    // A range that one server alone has goes on on another one in two steps.
                    Why::Draining => DRAIN_AGAIN_AFTER.min(self.renew_after),
                    _ => self.renew_after,
                };
                self.renewed.insert(range.key.stream, now + pause);
            }
            self.under_way.insert(range.key, why);
            due.push(Due {
                key: range.key,
                epoch: range.epoch,
                why,
            });
        }
        if !self.others_wait {
            self.tried.clear();
        }
        due
    }

    /// The seal of a range has ended, well or not. Returns whether it is time for others that wait for that.
    pub(super) fn ended(&mut self, key: RangeKey) -> bool {
        self.under_way.remove(&key);
        self.others_wait && self.under_way.len() - self.renewals() <= MOST_TAKEOVERS / 2
    }

    fn renewals(&self) -> usize {
        let renewals = self.under_way.values().filter(|why| **why != Why::PrimaryGone);
        renewals.count()
    }
}

/// The range servers at one moment.
struct Look<'a> {
    state: &'a PlacementState,
    drain: Drain<'a>,
    registry: &'a Registry,
    /// The servers that are up and keep copies for others.
    candidates: Vec<Candidate>,
    renew_after: Duration,
    now: Instant,
}

impl Look<'_> {
    fn why(&self, range: &RangeRecord, settings: &Settings) -> Option<Why> {
        let primary = range.appends_go_to()?;
        let is_shared = range.servers.len() > 1;
        if is_shared && self.registry.away_for(primary, self.now).is_some() {
            return Some(Why::PrimaryGone);
        }
        // Without its only server a range cannot be sealed.
        if !self.registry.is_up(primary, self.now) {
            return None;
        }
        let is_draining = |server: &ServerId| self.state.is_draining(*server);
        if range.servers.iter().any(is_draining) && self.drain.why_stuck(range).is_none() {
            return Some(Why::Draining);
        }
        let count = |count: i8| usize::try_from(count).unwrap_or(0);
        let (wanted, acks) = (count(settings.replica_count), count(settings.ack_count));
        if (range.replica_count, range.ack_count) != (settings.replica_count, settings.ack_count) {
            let up = self.candidates.len();
            return (wanted == 1 || up >= acks).then_some(Why::OtherNumbers);
        }
        let staying = range.servers.iter().filter(|server| !self.is_away(**server)).count();
        let new = self.candidates.iter().filter(|candidate| self.is_new(range, candidate));
        (staying < wanted && new.count() > 0).then_some(Why::FewReplicas)
    }

    /// Whether a server has been away for so long that another one is to take its place.
    fn is_away(&self, server: ServerId) -> bool {
        let away = self.registry.away_for(server, self.now);
        away.is_some_and(|away| away >= self.renew_after)
    }

    /// Whether a server could hold the next range, does not hold this one, and has been there long enough to be relied on.
    fn is_new(&self, range: &RangeRecord, candidate: &Candidate) -> bool {
        let up_for = self.registry.up_for(candidate.id, self.now);
        let could = !range.servers.contains(&candidate.id) && !self.state.is_draining(candidate.id);
        could && up_for.is_some_and(|up_for| up_for >= self.renew_after)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use sbp_types::{Offset, RangeIndex, TimestampMs};

    use super::super::records::{ServerRecord, StreamRecord};
    use super::super::state::Change;
    use super::*;

    const SILENCE: Duration = Duration::from_secs(3);
    const RENEW_AFTER: Duration = Duration::from_secs(30);

    /// A cluster in which time passes as the test says.
    struct Scene {
        state: PlacementState,
        registry: Registry,
        upkeep: Upkeep,
        start: Instant,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                state: PlacementState::default(),
                registry: Registry::new(None, SILENCE, now),
                upkeep: Upkeep::new(RENEW_AFTER),
                start: now,
                now,
            }
        }

        fn settings(replica_count: i8, ack_count: i8) -> Settings {
            Settings {
                replica_count,
                ack_count,
                retention_period_ms: 0,
                retention_bytes: None,
                schema: None,
                properties: Default::default(),
            }
        }

        fn stream(&mut self, stream: i64, settings: Settings) {
            self.state.install(Change::PutStream(Arc::new(StreamRecord {
                id: StreamId(stream),
                name: None,
                settings,
                created_at: TimestampMs(0),
                identity: None,
                owner: None,
            })));
        }

        /// The stream's open range on these servers, as it was opened with these numbers.
        fn range(&mut self, stream: i64, index: i32, servers: &[i32], (replica_count, ack_count): (i8, i8)) {
            self.state.install(Change::PutRange(Arc::new(RangeRecord {
                key: key(stream, index),
                epoch: Epoch(0),
                start_offset: Offset(0),
                opened_offset: Offset(0),
                end_offset: None,
                end_marks: 0,
                servers: servers.iter().copied().map(ServerId).collect(),
                incomplete: Vec::new(),
                let_go: Vec::new(),
                unknowing: Vec::new(),
                replica_count,
                ack_count,
            })));
        }

        /// A stream with an open range.
        fn open(&mut self, stream: i64, servers: &[i32], numbers: (i8, i8)) {
            self.stream(stream, Self::settings(numbers.0, numbers.1));
            self.range(stream, 0, servers, numbers);
        }

        /// Lets seconds pass in which these servers are heard, each second.
        fn pass(&mut self, seconds: u64, heard: &[i32]) {
            for _second in 0..seconds {
                self.now += Duration::from_secs(1);
                self.registry.go_on(self.now);
                self.hear(heard);
            }
        }

        fn hear(&mut self, servers: &[i32]) {
            for server in servers {
                self.registry.heard(ServerId(*server), (*server).into(), true, self.now);
            }
        }

        fn due(&mut self) -> Vec<(RangeKey, Why)> {
            let due = self.upkeep.due(&self.state, &self.registry, self.now);
            due.into_iter().map(|due| (due.key, due.why)).collect()
        }
    }

    fn key(stream: i64, index: i32) -> RangeKey {
        RangeKey {
            stream: StreamId(stream),
            range: RangeIndex(index),
        }
    }

    #[test]
    fn a_range_whose_primary_is_silent_or_refuses_to_be_dialled_is_sealed_once_at_a_time() {
        let mut scene = Scene::new();
        scene.open(1, &[1, 2, 3], (3, 2));
        scene.open(2, &[2, 1, 3], (3, 2));
        scene.open(3, &[1], (1, 1));
        scene.hear(&[1, 2, 3]);
        scene.pass(2, &[2, 3]);
        assert_eq!(scene.due(), [], "silent for two seconds");
        assert_eq!(
            scene.registry.next_silence(scene.now),
            Some(scene.start + SILENCE),
            "then it is time to look again"
        );
        scene.pass(1, &[2, 3]);
        assert_eq!(scene.due(), [(key(1, 0), Why::PrimaryGone)]);
        assert_eq!(scene.due(), [], "it is under way");
        let _ = scene.upkeep.ended(key(1, 0));
        assert_eq!(scene.due(), [(key(1, 0), Why::PrimaryGone)], "it is open still");
        scene.registry.closed(ServerId(2), 2);
        assert_eq!(scene.due(), [], "it may be about to connect again");
        scene.registry.refused(ServerId(2), scene.now);
        assert_eq!(scene.due(), [(key(2, 0), Why::PrimaryGone)]);
    }

    #[test]
    fn many_ranges_of_a_lost_primary_are_taken_over_some_at_a_time_and_each_has_its_turn() {
        const RANGES: usize = 2 * MOST_TAKEOVERS + 10;
        let mut scene = Scene::new();
        for stream in (1..).take(RANGES) {
            scene.open(stream, &[1, 2, 3], (3, 2));
        }
        scene.hear(&[1, 2, 3]);
        scene.pass(3, &[2, 3]);
        let mut seen = HashSet::new();
        let mut under_way = VecDeque::new();
        for round in [MOST_TAKEOVERS, MOST_TAKEOVERS / 2, MOST_TAKEOVERS / 2, 10] {
            let due = scene.due();
            assert_eq!(due.len(), round);
            let before = seen.len();
            seen.extend(due.iter().map(|(key, _)| *key));
            assert_eq!(seen.len(), before + round, "no range has a second turn");
            under_way.extend(due.into_iter().map(|(key, _)| key));
            if seen.len() < RANGES {
                assert_eq!(scene.due(), [], "as many are under way as there may be");
                // None of them succeeds.
                while !scene.upkeep.ended(under_way.pop_front().unwrap()) {}
                assert_eq!(under_way.len(), MOST_TAKEOVERS / 2);
            }
        }
        for key in under_way {
            assert!(!scene.upkeep.ended(key), "nobody waits");
        }
        assert_eq!(scene.due().len(), MOST_TAKEOVERS, "all had their turn");
    }

    #[test]
    fn after_its_start_a_placement_driver_waits_for_servers_to_report_before_it_misses_them() {
        let mut scene = Scene::new();
        scene.open(1, &[1, 2, 3], (3, 2));
        scene.pass(2, &[2, 3]);
        assert_eq!(scene.due(), []);
        scene.pass(1, &[2, 3]);
        assert_eq!(scene.due(), [(key(1, 0), Why::PrimaryGone)]);
    }

    #[test]
    fn a_range_goes_on_on_more_servers_when_one_has_been_there_long_enough() {
        let mut scene = Scene::new();
        scene.open(1, &[1, 2], (3, 2));
        scene.pass(100, &[1, 2]);
        assert_eq!(scene.due(), [], "there is nobody");
        scene.pass(30, &[1, 2, 3]);
        assert_eq!(scene.due(), [], "there for 29 seconds");
        scene.pass(1, &[1, 2, 3]);
        assert_eq!(scene.due(), [(key(1, 0), Why::FewReplicas)]);
        let _ = scene.upkeep.ended(key(1, 0));
        assert_eq!(scene.due(), [], "not again at once, should it have failed");
        scene.pass(30, &[1, 2, 3]);
        assert_eq!(scene.due(), [(key(1, 0), Why::FewReplicas)]);
    }

    #[test]
    fn a_follower_that_is_away_for_long_is_replaced_where_there_is_another_server() {
        let mut scene = Scene::new();
        scene.open(1, &[1, 2, 3], (3, 2));
        scene.pass(40, &[1, 2, 3]);
        scene.pass(29, &[1, 2, 4]);
        assert_eq!(scene.due(), [], "it may come back");
        scene.pass(1, &[1, 2]);
        assert_eq!(scene.due(), [], "the other one has not been there for long enough");
        scene.pass(1, &[1, 2, 4]);
        assert_eq!(scene.due(), [(key(1, 0), Why::FewReplicas)]);
    }

    #[test]
    fn a_range_with_other_numbers_than_its_stream_is_sealed_when_enough_servers_are_there() {
        let mut scene = Scene::new();
        scene.open(1, &[1], (1, 1));
        scene.pass(5, &[1]);
        assert_eq!(scene.due(), []);
        scene.stream(1, Scene::settings(3, 2));
        assert_eq!(scene.due(), [], "two would have to acknowledge");
        scene.pass(1, &[1, 2]);
        assert_eq!(scene.due(), [(key(1, 0), Why::OtherNumbers)]);
        let _ = scene.upkeep.ended(key(1, 0));
        scene.range(1, 0, &[1, 2, 3], (3, 2));
        scene.pass(60, &[1, 2, 3]);
        scene.stream(1, Scene::settings(1, 1));
        assert_eq!(scene.due(), [(key(1, 0), Why::OtherNumbers)]);
    }

    #[test]
    fn a_hundred_ranges_are_renewed_at_once_and_lost_ones_do_not_wait_for_them() {
        let mut scene = Scene::new();
        for stream in 1..=150 {
            scene.open(stream, &[1, 2], (3, 2));
        }
        scene.open(151, &[4, 2, 1], (3, 2));
        scene.pass(40, &[1, 2, 3]);
        let due = scene.due();
        assert_eq!(due.iter().filter(|(_, why)| *why == Why::FewReplicas).count(), 100);
        assert_eq!(due.last(), Some(&(key(151, 0), Why::PrimaryGone)));
        assert_eq!(scene.due(), []);
        for stream in 1..=10 {
            let _ = scene.upkeep.ended(key(stream, 0));
            scene.range(stream, 0, &[1, 2, 3], (3, 2));
        }
        assert_eq!(scene.due().len(), 10);
    }

    #[test]
    fn open_ranges_leave_a_server_that_is_to_be_emptied_where_enough_others_are_there() {
        let mut scene = Scene::new();
        scene.open(1, &[1, 2, 3], (3, 2));
        scene.open(2, &[2, 3], (2, 2));
        scene.open(3, &[2], (1, 1));
        scene.open(4, &[1, 3], (2, 2));
        scene.pass(5, &[1, 2, 3]);
        assert_eq!(scene.due(), []);
        scene.state.install(Change::PutServer(Arc::new(ServerRecord {
            draining: true,
            ..ServerRecord::new(ServerId(2), "b:1")
        })));
        let due = [(key(2, 0), Why::Draining), (key(3, 0), Why::Draining)];
        assert_eq!(scene.due(), due, "for the first one, there are too few others");
        for (key, _) in &due {
            let _ = scene.upkeep.ended(*key);
        }
        assert_eq!(scene.due(), [], "not again at once, should it have failed");
        scene.pass(1, &[1, 2, 3, 4]);
        assert_eq!(
            scene.due(),
            [
                (key(1, 0), Why::Draining),
                (key(2, 0), Why::Draining),
                (key(3, 0), Why::Draining)
            ]
        );
    }
}
