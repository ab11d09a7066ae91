//! Which range servers are up, and the load they last reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sbp_types::ServerId;

use super::choose::{Candidate, ServerLoad, Zone};
use super::life::Life;
use super::records::ServerRecord;
use crate::refusal::Refusal;
use crate::running_time::RunningTime;

/// It is looked so many times at the clock while a server may be silent.
const LOOKS: u32 = 6;

/// Bytes of a zone's name.
const LONGEST_ZONE: usize = 255;

/// How many range servers a placement driver notes that does not know which ids were given out: anybody may make up ids.
const MOST_ON_TRUST: usize = 10_000;

/// The range servers as they are now. Nothing here is durable: after a restart the servers report again.
///
/// A server is up from its first HEARTBEAT until it was silent for too long, or its last connection is gone and dialling it
/// is refused. A connection that is gone says little by itself: the server may be about to connect again.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The range server in the same process, which is always up.
    always_up: Option<ServerId>,
    /// A server that has sent nothing for this long is down, even if its connection is open.
    silence: Duration,
    time: RunningTime,
    /// When that began.
    origin: Instant,
    /// When this placement driver began to listen.
    since: Instant,
    servers: BTreeMap<ServerId, Presence>,
    /// The zones that servers have named, each once: a [`Zone`] is a place in it.
    zones: Vec<String>,
    /// What is known of each that is registered, or that has said where it is.
    lives: BTreeMap<ServerId, Life>,
}

#[derive(Debug, Default)]
struct Presence {
    /// The connections on which the server has sent a HEARTBEAT.
    connections: BTreeSet<i64>,
    /// Where it says that it is, on each of them that has said so.
    addresses: BTreeMap<i64, String>,
    /// `None`: it has sent no HEARTBEAT yet.
    last_heard: Option<Instant>,
    /// When it came up for the last time.
    up_since: Option<Instant>,
    /// Nobody listened at its address after its last connection was gone.
    is_refused: bool,
    /// Whether it was told that the server is down.
    is_missed: bool,
    /// It has sent no HEARTBEAT, and was asked and has not answered.
    is_unanswered: bool,
    load: ServerLoad,
    /// Whether its last HEARTBEAT said that it replicates ranges.
    replicates: bool,
    /// Where it said that it stands.
    zone: Option<Zone>,
}

impl Presence {
    /// When it counts as down if nothing more is heard; `None` if it is down.
    fn up_until(&self, silence: Duration) -> Option<Instant> {
        self.last_heard
            .filter(|_| !self.is_refused)
            .map(|heard| heard + silence)
    }

    fn is_up(&self, silence: Duration, now: Instant) -> bool {
        self.up_until(silence).is_some_and(|until| now < until)
    }
}

impl Registry {
    /// Nobody was heard yet, except the server in the same process.
    pub(crate) fn new(always_up: Option<ServerId>, silence: Duration, now: Instant) -> Self {
        Self {
            always_up,
            silence,
            time: RunningTime::new(now, silence / LOOKS),
            origin: now,
            since: now,
            servers: BTreeMap::new(),
            zones: Vec::new(),
            lives: BTreeMap::new(),
        }
    }

    /// How often it has to be looked at, so that time in which this process was stopped is not taken for the silence of others.
    pub(crate) fn pause(&self) -> Duration {
        self.silence / LOOKS
    }

    /// The regular look. What passes without one counts little: nobody could be heard.
    pub(crate) fn go_on(&mut self, now: Instant) {
        self.time.go_on(now);
    }

    /// A time as far as this process ran until then. All times that are kept here are such.
    fn running(&self, now: Instant) -> Instant {
        self.origin + self.time.at(now)
    }

    /// This placement driver leads from now on: servers of which it has heard nothing have the time to report, unless they do not
    /// [answer](Self::unanswered) either, and those with ids that were never given out are none.
    pub(crate) fn begin(&mut self, next_id: ServerId, now: Instant) {
        self.since = self.running(now);
        self.servers.retain(|id, _| *id < next_id);
        self.lives.retain(|id, _| *id < next_id);
        for presence in self.servers.values_mut() {
            presence.is_unanswered = false;
        }
    }

    /// Whether a server may be noted of which nobody has said that there is one.
    pub(crate) fn has_room_for(&self, server: ServerId) -> bool {
        self.servers.len() < MOST_ON_TRUST || self.servers.contains_key(&server)
    }

    /// The range servers that are registered. What was heard of others that have one of these numbers counts for nothing.
    pub(crate) fn know_servers<'a>(&mut self, servers: impl Iterator<Item = &'a ServerRecord>) {
        for record in servers {
            let life = record.life();
            match self.lives.get(&record.id) {
                // It was started again, which is not registered yet.
                Some(known) if known.address == life.address && known.starts >= life.starts => {}
                _ => {
                    self.lives.insert(record.id, life);
                }
            }
            let Some(presence) = self.servers.get_mut(&record.id) else {
                continue;
            };
            let elsewhere = presence.addresses.extract_if(.., |_, at| *at != record.address);
            let elsewhere: Vec<_> = elsewhere.map(|(connection, _)| connection).collect();
            if !elsewhere.is_empty() {
                presence
                    .connections
                    .retain(|connection| !elsewhere.contains(connection));
                if presence.connections.is_empty() {
                    *presence = Presence::default();
                }
            }
        }
    }

    /// Notes what a server says of itself on this connection. One that has moved has closed its connections, or is silent there;
    /// whether it has is for the placement driver that `leads` to say.
    ///
    /// # Errors
    ///
    /// There are two servers with this number, or it is not known yet that there are not.
    pub(crate) fn admit(
        &mut self,
        server: ServerId,
        connection: i64,
        said: &Life,
        leads: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let now = self.running(now);
        let (silence, since) = (self.silence, self.since);
        let presence = self.servers.entry(server).or_default();
        if let Some(known) = self.lives.get(&server) {
            known.check(server, said)?;
            if known.address != said.address {
                let mut others = presence.addresses.iter();
                let is_heard = others.any(|(other, at)| *other != connection && *at != said.address);
                if presence.is_up(silence, now) && is_heard {
                    return Err(known.is_copied(server, &said.address));
                }
                if !leads {
                    let until = "when the placement driver that leads has registered it";
                    return Err(known.may_be_there(server, &said.address, until));
                }
                if presence.last_heard.is_none() && now < since + silence {
                    let until = "when this placement driver has listened for long enough";
                    return Err(known.may_be_there(server, &said.address, until));
                }
            }
        }
        let starts = self.lives.get(&server).map_or(0, |known| known.starts);
        let life = Life {
            starts: said.starts.max(starts),
            address: said.address.clone(),
        };
        self.lives.insert(server, life);
        presence.addresses.insert(connection, said.address.clone());
        Ok(())
    }

    /// Notes a HEARTBEAT of the server. Returns true if the server was not up before.
    pub(crate) fn heard(&mut self, server: ServerId, connection: i64, replicates: bool, now: Instant) -> bool {
        let now = self.running(now);
        let silence = self.silence;
        let presence = self.servers.entry(server).or_default();
        let was_up = presence.is_up(silence, now);
        presence.connections.insert(connection);
        presence.last_heard = Some(now);
        presence.is_refused = false;
        presence.is_missed = false;
        presence.is_unanswered = false;
        presence.replicates = replicates;
        if !was_up {
            presence.up_since = Some(now);
        }
        !was_up
    }

    /// Notes where a server says that it stands; nothing, if it says nothing.
    pub(crate) fn stands_in(&mut self, server: ServerId, zone: &str) {
        let zone = self.zone(zone);
        self.servers.entry(server).or_default().zone = zone;
    }

    /// The zone of that name. `None`: it has none, or more names were given than there can be servers.
    fn zone(&mut self, name: &str) -> Option<Zone> {
        if name.is_empty() || name.len() > LONGEST_ZONE {
            return None;
        }
        let place = match self.zones.iter().position(|zone| zone == name) {
            Some(place) => place,
            None if self.zones.len() < MOST_ON_TRUST => {
                self.zones.push(name.to_owned());
                self.zones.len() - 1
            }
            None => return None,
        };
        u32::try_from(place).ok().map(Zone)
    }

    /// Where a server stands, as it said; empty if it did not.
    pub(crate) fn zone_of(&self, server: ServerId) -> &str {
        let zone = self.servers.get(&server).and_then(|presence| presence.zone);
        let place = zone.and_then(|zone| usize::try_from(zone.0).ok());
        place.and_then(|place| self.zones.get(place)).map_or("", String::as_str)
    }

    /// Notes the load that the server reported, which is a sign of life too.
    pub(crate) fn report(&mut self, server: ServerId, load: ServerLoad, now: Instant) {
        let now = self.running(now);
        let silence = self.silence;
        let presence = self.servers.entry(server).or_default();
        presence.load = load;
        if !presence.connections.is_empty() {
            if !presence.is_up(silence, now) {
                presence.up_since = Some(now);
            }
            presence.last_heard = Some(now);
        }
    }

    /// Notes that a connection has closed. Returns true if it was the server's last one.
    pub(crate) fn closed(&mut self, server: ServerId, connection: i64) -> bool {
        let Some(presence) = self.servers.get_mut(&server) else {
            return false;
        };
        presence.addresses.remove(&connection);
        presence.connections.remove(&connection) && presence.connections.is_empty()
    }

    /// Notes that nobody listens at the server's address. Returns true if the server is down by that.
    pub(crate) fn refused(&mut self, server: ServerId, now: Instant) -> bool {
        let now = self.running(now);
        let silence = self.silence;
        let Some(presence) = self.servers.get_mut(&server) else {
            return false;
        };
        // It has connected since.
        if !presence.connections.is_empty() {
            return false;
        }
        let was_up = presence.is_up(silence, now);
        presence.is_refused = true;
        was_up
    }

    /// Whether it is worth asking if anybody listens at the server's address: it counts as up and has no connection.
    pub(crate) fn is_in_doubt(&self, server: ServerId, now: Instant) -> bool {
        let now = self.running(now);
        let presence = self.servers.get(&server);
        presence.is_some_and(|presence| presence.connections.is_empty() && presence.is_up(self.silence, now))
    }

    /// The servers of which that is so.
    pub(crate) fn all_in_doubt(&self, now: Instant) -> Vec<ServerId> {
        let ids = self.servers.keys().copied();
        ids.filter(|id| self.is_in_doubt(*id, now)).collect()
    }

    /// The load that the server last reported.
    pub(crate) fn load(&self, server: ServerId) -> ServerLoad {
        self.servers
            .get(&server)
            .map(|presence| presence.load)
            .unwrap_or_default()
    }

    /// Whether this server has said nothing yet.
    pub(crate) fn is_unheard(&self, server: ServerId) -> bool {
        let heard = self.servers.get(&server).and_then(|presence| presence.last_heard);
        self.always_up != Some(server) && heard.is_none()
    }

    /// Notes that a server that has said nothing was asked, and has not answered.
    pub(crate) fn unanswered(&mut self, server: ServerId) {
        if self.is_unheard(server) {
            self.servers.entry(server).or_default().is_unanswered = true;
        }
    }

    /// Since when nothing is heard of a server of which this placement driver has never heard anything. One that was asked and
    /// has not answered either was silent before this placement driver began to lead, as long as that could listen.
    fn unheard_since(&self, presence: Option<&Presence>) -> Instant {
        if presence.is_some_and(|presence| presence.is_unanswered) {
            let before = self.since.checked_sub(self.silence);
            return before.unwrap_or(self.origin).max(self.origin);
        }
        self.since
    }

    /// Whether the server is up.
    pub(crate) fn is_up(&self, server: ServerId, now: Instant) -> bool {
        self.was_up(server, self.running(now))
    }

    fn was_up(&self, server: ServerId, at: Instant) -> bool {
        let presence = self.servers.get(&server);
        self.always_up == Some(server) || presence.is_some_and(|presence| presence.is_up(self.silence, at))
    }

    /// How long the server has been up; `None` if it is down.
    pub(crate) fn up_for(&self, server: ServerId, now: Instant) -> Option<Duration> {
        let now = self.running(now);
        if !self.was_up(server, now) {
            return None;
        }
        let since = self.servers.get(&server).and_then(|presence| presence.up_since);
        Some(now.saturating_duration_since(since.unwrap_or(self.since)))
    }

    /// For how long nothing was heard of a server that is down; `None` if it is up, or if it may only not have had the time
    /// to report to a placement driver that was just started.
    pub(crate) fn away_for(&self, server: ServerId, now: Instant) -> Option<Duration> {
        let now = self.running(now);
        if self.was_up(server, now) {
            return None;
        }
        let presence = self.servers.get(&server);
        let heard = presence.and_then(|presence| presence.last_heard);
        let away = now.saturating_duration_since(heard.unwrap_or_else(|| self.unheard_since(presence)));
        (heard.is_some() || away >= self.silence).then_some(away)
    }

    /// The servers that were up and are not any more, each once.
    pub(crate) fn take_lost(&mut self, now: Instant) -> Vec<ServerId> {
        let now = self.running(now);
        let silence = self.silence;
        let is_new = |presence: &mut Presence| {
            let is_down = presence.last_heard.is_some() && !presence.is_up(silence, now);
            is_down && !std::mem::replace(&mut presence.is_missed, true)
        };
        let servers = self.servers.iter_mut();
        servers
            .filter_map(|(id, presence)| is_new(presence).then_some(*id))
            .collect()
    }

    /// When the next server counts as down, if nothing more is heard of it.
    pub(crate) fn next_silence(&self, now: Instant) -> Option<Instant> {
        let known = self
            .servers
            .values()
            .filter_map(|presence| presence.up_until(self.silence));
        let running = self.running(now);
        let until = known
            .chain([self.since, self.origin].map(|since| since + self.silence))
            .filter(|until| *until > running)
            .min();
        until.map(|until| now + until.saturating_duration_since(running))
    }

    /// The servers that are up, on which new ranges can be placed.
    pub(crate) fn candidates(&self, now: Instant) -> Vec<Candidate> {
        let now = self.running(now);
        let load_of = |id: &ServerId| self.servers.get(id).map(|presence| presence.load).unwrap_or_default();
        let own = self.always_up.map(|id| Candidate {
            id,
            load: load_of(&id),
            // Its ranges are stored with the placement driver's records, which have no fences.
            replicates: false,
            avoided: false,
            zone: None,
        });
        let others = self
            .servers
            .iter()
            .filter(|(id, presence)| self.always_up != Some(**id) && presence.is_up(self.silence, now))
            .map(|(id, presence)| Candidate {
                id: *id,
                load: presence.load,
                replicates: presence.replicates,
                avoided: false,
                zone: presence.zone,
            });
        own.into_iter().chain(others).collect()
    }

    /// How long ago the server was last heard; `None`: never since this placement driver's start.
    pub(crate) fn silence(&self, server: ServerId, now: Instant) -> Option<Duration> {
        let now = self.running(now);
        if self.always_up == Some(server) {
            return Some(Duration::ZERO);
        }
        let heard = self.servers.get(&server)?.last_heard?;
        Some(now.saturating_duration_since(heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ServerId = ServerId(7);
    const OWN: ServerId = ServerId(1);
    const SILENCE: Duration = Duration::from_secs(3);

    /// Lets time pass in which it is looked at the clock as it should be. Returns the time then.
    fn pass(registry: &mut Registry, mut now: Instant, long: Duration) -> Instant {
        let end = now + long;
        while now < end {
            now = end.min(now + registry.pause());
            registry.go_on(now);
        }
        now
    }

    fn ids(registry: &Registry, now: Instant) -> Vec<i32> {
        registry
            .candidates(now)
            .iter()
            .map(|candidate| candidate.id.0)
            .collect()
    }

    /// What is said to a server with the number of `A`; `None`: it is noted.
    fn said(registry: &mut Registry, (connection, leads): (i64, bool), life: &Life, now: Instant) -> Option<String> {
        let admitted = registry.admit(A, connection, life, leads, now);
        admitted.err().map(|refusal| refusal.message)
    }

    fn life(starts: u64, address: &str) -> Life {
        let address = address.to_owned();
        Life { starts, address }
    }

    fn record(starts: u64, address: &str) -> ServerRecord {
        ServerRecord {
            starts,
            ..ServerRecord::new(A, address)
        }
    }

    #[test]
    fn a_second_server_with_the_number_of_one_that_is_up_is_told_where_that_is() {
        let start = Instant::now();
        let mut registry = Registry::new(None, SILENCE, start);
        // Of each it is not told how often it was started.
        let (a, b, c) = (life(0, "a:1"), life(0, "b:1"), life(0, "c:1"));
        let names = |said: Option<String>, what: &str| said.is_some_and(|said| said.contains(what));
        assert_eq!(said(&mut registry, (1, true), &a, start), None);
        registry.heard(A, 1, true, start);
        assert_eq!(said(&mut registry, (2, true), &a, start), None, "the same one");
        assert!(names(said(&mut registry, (3, true), &b, start), "a:1"));
        registry.closed(A, 1);
        assert!(names(said(&mut registry, (3, true), &b, start), "a:1"));
        registry.closed(A, 2);
        assert_eq!(said(&mut registry, (3, true), &b, start), None, "it has moved");
        registry.heard(A, 3, true, start);
        let later = pass(&mut registry, start, SILENCE);
        assert_eq!(
            said(&mut registry, (4, true), &c, later),
            None,
            "the other one is silent"
        );
    }

    #[test]
    fn a_copy_that_is_heard_before_the_original_is_refused_all_the_same() {
        let start = Instant::now();
        for leads in [true, false] {
            let mut registry = Registry::new(None, SILENCE, start);
            registry.know_servers([record(4, "a:1")].iter());
            // The original was started once more since it was registered, as was the copy.
            for (copy, why) in [
                (3, "an older copy"),
                (4, "a copy of"),
                (5, "may still be there"),
                (0, "may still"),
            ] {
                let refused = said(&mut registry, (1, leads), &life(copy, "b:1"), start).unwrap();
                assert!(refused.contains("a:1") && refused.contains(why), "{copy}: {refused}");
            }
            assert!(!registry.is_up(A, start));
            assert_eq!(said(&mut registry, (2, leads), &life(5, "a:1"), start), None);
            registry.heard(A, 2, true, start);
            let refused = said(&mut registry, (1, leads), &life(6, "b:1"), start);
            assert!(
                refused.is_some_and(|said| said.contains("a copy of")),
                "the original is up"
            );
            registry.closed(A, 2);
            let later = pass(&mut registry, start, SILENCE);
            let refused = said(&mut registry, (1, leads), &life(5, "b:1"), later);
            assert!(refused.is_some_and(|said| said.contains("a copy of")), "that is known");
            let moved = said(&mut registry, (1, leads), &life(6, "b:1"), later);
            assert_eq!(
                moved.is_none(),
                leads,
                "who leads says first that it has moved: {moved:?}"
            );
            registry.know_servers([record(6, "b:1")].iter());
            assert_eq!(said(&mut registry, (1, leads), &life(6, "b:1"), later), None);
            registry.heard(A, 1, true, later);
            let refused = said(&mut registry, (3, leads), &life(6, "a:1"), later);
            assert!(refused.is_some_and(|said| said.contains("b:1")));
        }
    }

    #[test]
    fn a_copy_that_was_taken_on_trust_counts_for_nothing_once_the_records_are_read() {
        let start = Instant::now();
        let mut registry = Registry::new(None, SILENCE, start);
        assert_eq!(said(&mut registry, (1, false), &life(5, "b:1"), start), None);
        registry.heard(A, 1, true, start);
        registry.know_servers([record(5, "a:1")].iter());
        assert!(!registry.is_up(A, start));
        assert!(said(&mut registry, (1, false), &life(5, "b:1"), start).is_some());
        assert_eq!(said(&mut registry, (2, false), &life(5, "a:1"), start), None);
        assert!(registry.heard(A, 2, true, start), "it is up since now");
        assert!(!registry.closed(A, 1), "that connection was another one's");
        assert!(registry.is_up(A, start));
    }

    #[test]
    fn a_server_is_up_until_it_is_silent_or_refuses_to_be_dialled() {
        let start = Instant::now();
        let mut registry = Registry::new(None, SILENCE, start);
        assert!(!registry.is_up(A, start));
        assert!(registry.heard(A, 1, false, start));
        assert!(!registry.heard(A, 2, false, start), "it was up already");
        assert!(!registry.closed(A, 1), "the other connection stands");
        assert!(!registry.is_in_doubt(A, start) && !registry.refused(A, start));
        assert!(registry.closed(A, 2));
        assert_eq!(ids(&registry, start), [7], "it may be about to connect again");
        assert!(registry.is_in_doubt(A, start));
        assert_eq!(registry.all_in_doubt(start), [A]);
        assert!(registry.refused(A, start));
        assert_eq!(ids(&registry, start), [0; 0]);
        assert!(!registry.refused(A, start), "that is known");
        assert!(registry.heard(A, 3, false, start), "it is back");
        let later = start + SILENCE;
        assert_eq!(registry.next_silence(start), Some(later));
        let pause = registry.pause();
        pass(&mut registry, start, SILENCE - pause);
        assert!(registry.is_up(A, later - Duration::from_millis(1)));
        assert!(
            !registry.is_up(A, later),
            "silent for too long, although its connection stands"
        );
        assert_eq!(
            (registry.take_lost(later), registry.take_lost(later)),
            (vec![A], vec![])
        );
        registry.report(A, ServerLoad::default(), later);
        assert!(registry.is_up(A, later), "a report is a sign of life");
        assert_eq!(registry.next_silence(later), Some(later + SILENCE));
    }

    #[test]
    fn how_long_a_server_is_there_or_away_is_known() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seconds = Duration::from_secs;
        let mut registry = Registry::new(Some(OWN), SILENCE, start);
        let early = pass(&mut registry, start, Duration::from_millis(2_999));
        assert_eq!(registry.away_for(A, early), None, "it had no time to report yet");
        pass(&mut registry, early, Duration::from_millis(1));
        assert_eq!(registry.away_for(A, at(3)), Some(seconds(3)));
        pass(&mut registry, at(3), seconds(7));
        assert_eq!(registry.up_for(OWN, at(10)), Some(seconds(10)));
        registry.heard(A, 1, true, at(10));
        pass(&mut registry, at(10), seconds(2));
        registry.heard(A, 1, true, at(12));
        pass(&mut registry, at(12), seconds(2));
        assert_eq!(
            (registry.up_for(A, at(14)), registry.away_for(A, at(14))),
            (Some(seconds(4)), None)
        );
        assert_eq!(
            (registry.up_for(A, at(15)), registry.away_for(A, at(15))),
            (None, Some(seconds(3)))
        );
        pass(&mut registry, at(14), seconds(6));
        registry.heard(A, 1, true, at(20));
        assert_eq!(registry.up_for(A, at(21)), Some(seconds(1)), "from the beginning again");
        pass(&mut registry, at(20), seconds(1));
        registry.closed(A, 1);
        registry.refused(A, at(21));
        assert_eq!(registry.away_for(A, at(22)), Some(seconds(2)), "since it was heard");
    }

    #[test]
    fn who_was_never_heard_and_does_not_answer_was_silent_before_this_placement_driver_led() {
        let start = Instant::now();
        let next = ServerId(A.0 + 1);
        let led = |listened: Duration| {
            let mut registry = Registry::new(None, SILENCE, start);
            let now = pass(&mut registry, start, listened);
            registry.begin(next, now);
            (registry, now)
        };
        let (mut registry, now) = led(10 * SILENCE);
        assert_eq!(registry.away_for(A, now), None, "it may not know of this one yet");
        registry.unanswered(A);
        assert_eq!(
            registry.away_for(A, now),
            Some(SILENCE),
            "and not for longer than is known"
        );
        assert_eq!(ids(&registry, now), [0; 0]);
        registry.heard(A, 1, true, now);
        assert_eq!(registry.away_for(A, now), None);
        registry.unanswered(A);
        assert_eq!(registry.away_for(A, now), None, "it was heard before it could answer");
        // Who has begun to listen a moment ago has missed nothing yet.
        let second = Duration::from_secs(1);
        let (mut registry, now) = led(second);
        registry.unanswered(A);
        assert_eq!(registry.away_for(A, now), None);
        assert_eq!(
            registry.next_silence(now),
            Some(start + SILENCE),
            "then it is time to look"
        );
        let later = pass(&mut registry, now, SILENCE - second);
        assert_eq!(registry.away_for(A, later), Some(SILENCE));
    }

    #[test]
    fn while_this_process_was_stopped_nobody_was_silent() {
        let start = Instant::now();
        let mut registry = Registry::new(None, SILENCE, start);
        registry.heard(A, 1, true, start);
        let stopped = pass(&mut registry, start, Duration::from_secs(1));
        let goes_on = stopped + Duration::from_secs(3_600);
        assert!(
            registry.is_up(A, goes_on),
            "also to who asks before it was looked at the clock"
        );
        registry.go_on(goes_on);
        assert_eq!(
            (registry.is_up(A, goes_on), registry.take_lost(goes_on)),
            (true, vec![])
        );
        let since = Duration::from_secs(1) + 2 * registry.pause();
        assert_eq!(registry.silence(A, goes_on), Some(since));
        assert_eq!(registry.next_silence(goes_on), Some(goes_on + SILENCE - since));
        let lost = pass(&mut registry, goes_on, SILENCE);
        assert_eq!(registry.take_lost(lost), [A], "now it could have been heard");
    }

    #[test]
    fn the_server_in_this_process_is_always_up_and_listed_once() {
        let now = Instant::now();
        let mut registry = Registry::new(Some(OWN), SILENCE, now);
        assert!(registry.is_up(OWN, now));
        let load = ServerLoad {
            appends: 5,
            ..ServerLoad::default()
        };
        registry.report(OWN, load, now);
        let own = Candidate {
            id: OWN,
            load,
            ..Candidate::default()
        };
        assert_eq!(registry.candidates(now), [own]);
        registry.heard(A, 1, true, now);
        assert_eq!(ids(&registry, now), [1, 7]);
        assert!(registry.candidates(now)[1].replicates, "it said so");
        for (zone, expected) in [("a", "a"), ("b", "b"), ("a", "a"), ("", ""), (&"z".repeat(256), "")] {
            registry.stands_in(A, zone);
            assert_eq!(registry.zone_of(A), expected);
            let told = registry.candidates(now)[1].zone;
            assert_eq!(
                told.map(|zone| registry.zones[zone.0 as usize].as_str()),
                Some(expected).filter(|name| !name.is_empty())
            );
        }
        assert_eq!(registry.zones, ["a", "b"]);
        let later = now + Duration::from_millis(70);
        assert_eq!(registry.silence(A, later), Some(Duration::from_millis(70)));
        assert_eq!(registry.silence(OWN, later), Some(Duration::ZERO));
        assert_eq!(registry.silence(ServerId(99), later), None);
    }

    #[test]
    fn a_report_alone_does_not_bring_a_server_up() {
        let now = Instant::now();
        let mut registry = Registry::new(None, SILENCE, now);
        registry.report(A, ServerLoad::default(), now);
        assert!(!registry.is_up(A, now));
    }
}
