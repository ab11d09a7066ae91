//! Which range servers are up, and the load they last reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sbp_types::ServerId;

use super::choose::{Candidate, ServerLoad};

/// A server that has sent nothing for this long counts as down, even if its connection is open.
const SILENCE: Duration = Duration::from_secs(90);

/// The range servers as they are now. Nothing here is durable: after a restart the servers report again.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// The range server in the same process, which is always up.
    always_up: Option<ServerId>,
    servers: BTreeMap<ServerId, Presence>,
}

#[derive(Debug)]
struct Presence {
    /// The connections on which the server has sent a HEARTBEAT.
    connections: BTreeSet<i64>,
    last_heard: Instant,
    load: ServerLoad,
    /// Whether its last HEARTBEAT said that it replicates ranges.
    replicates: bool,
}

impl Presence {
    fn is_up(&self, now: Instant) -> bool {
        !self.connections.is_empty() && now.saturating_duration_since(self.last_heard) < SILENCE
    }
}

impl Registry {
    pub(crate) fn new(always_up: Option<ServerId>) -> Self {
        Self {
            always_up,
            ..Self::default()
        }
    }

    /// Notes a HEARTBEAT of the server. Returns true if the server was not up before.
    pub(crate) fn heard(&mut self, server: ServerId, connection: i64, replicates: bool, now: Instant) -> bool {
        let presence = self.presence(server, now);
        let was_up = presence.is_up(now);
        presence.connections.insert(connection);
        presence.last_heard = now;
        presence.replicates = replicates;
        !was_up
    }

    /// Notes the load that the server reported.
    pub(crate) fn report(&mut self, server: ServerId, load: ServerLoad, now: Instant) {
        let presence = self.presence(server, now);
        presence.load = load;
        presence.last_heard = now;
    }

    /// Notes that a connection has closed. Without its last connection the server is down.
    /// Returns true if this was its last one.
    pub(crate) fn closed(&mut self, server: ServerId, connection: i64) -> bool {
        let Some(presence) = self.servers.get_mut(&server) else {
            return false;
        };
        presence.connections.remove(&connection) && presence.connections.is_empty()
    }

    /// The load that the server last reported.
    pub(crate) fn load(&self, server: ServerId) -> ServerLoad {
        self.servers
            .get(&server)
            .map(|presence| presence.load)
            .unwrap_or_default()
    }

    /// Whether the server is up.
    pub(crate) fn is_up(&self, server: ServerId, now: Instant) -> bool {
        self.always_up == Some(server) || self.servers.get(&server).is_some_and(|presence| presence.is_up(now))
    }

    /// The servers that are up, on which new ranges can be placed.
    pub(crate) fn candidates(&self, now: Instant) -> Vec<Candidate> {
        let load_of = |id: &ServerId| self.servers.get(id).map(|presence| presence.load).unwrap_or_default();
        let own = self.always_up.map(|id| Candidate {
            id,
            load: load_of(&id),
            // Its ranges are stored with the placement driver's records, which have no fences.
            replicates: false,
        });
        let others = self
            .servers
            .iter()
            .filter(|(id, presence)| self.always_up != Some(**id) && presence.is_up(now))
            .map(|(id, presence)| Candidate {
                id: *id,
                load: presence.load,
                replicates: presence.replicates,
            });
        own.into_iter().chain(others).collect()
    }

    fn presence(&mut self, server: ServerId, now: Instant) -> &mut Presence {
        self.servers.entry(server).or_insert_with(|| Presence {
            connections: BTreeSet::new(),
            last_heard: now,
            load: ServerLoad::default(),
            replicates: false,
        })
    }

    /// How long ago the server was last heard; `None`: never since this placement driver's start.
    pub(crate) fn silence(&self, server: ServerId, now: Instant) -> Option<Duration> {
        if self.always_up == Some(server) {
            return Some(Duration::ZERO);
        }
        let presence = self.servers.get(&server)?;
        Some(now.saturating_duration_since(presence.last_heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ServerId = ServerId(7);
    const OWN: ServerId = ServerId(1);

    fn ids(registry: &Registry, now: Instant) -> Vec<i32> {
        registry
            .candidates(now)
            .iter()
            .map(|candidate| candidate.id.0)
            .collect()
    }

    #[test]
    fn a_server_is_up_while_it_has_a_connection_and_is_heard() {
        let start = Instant::now();
        let mut registry = Registry::new(None);
        assert!(!registry.is_up(A, start));
        assert!(registry.heard(A, 1, false, start));
        assert!(!registry.heard(A, 2, false, start), "it was up already");
        registry.closed(A, 1);
        assert_eq!(ids(&registry, start), [7], "the other connection stands");
        registry.closed(A, 2);
        assert_eq!(ids(&registry, start), [0; 0]);
        assert!(registry.heard(A, 3, false, start), "it is back");
        let later = start + SILENCE;
        assert!(!registry.is_up(A, later), "silent for too long");
        registry.report(A, ServerLoad::default(), later);
        assert!(registry.is_up(A, later), "a report is a sign of life");
    }

    #[test]
    fn the_server_in_this_process_is_always_up_and_listed_once() {
        let now = Instant::now();
        let mut registry = Registry::new(Some(OWN));
        assert!(registry.is_up(OWN, now));
        let load = ServerLoad {
            appends: 5,
            ..ServerLoad::default()
        };
        registry.report(OWN, load, now);
        let own = Candidate {
            id: OWN,
            load,
            replicates: false,
        };
        assert_eq!(registry.candidates(now), [own]);
        registry.heard(A, 1, true, now);
        assert_eq!(ids(&registry, now), [1, 7]);
        assert!(registry.candidates(now)[1].replicates, "it said so");
        let later = now + Duration::from_millis(70);
        assert_eq!(registry.silence(A, later), Some(Duration::from_millis(70)));
        assert_eq!(registry.silence(OWN, later), Some(Duration::ZERO));
        assert_eq!(registry.silence(ServerId(99), later), None);
    }

    #[test]
    fn a_report_alone_does_not_bring_a_server_up() {
        let now = Instant::now();
        let mut registry = Registry::new(None);
        registry.report(A, ServerLoad::default(), now);
        assert!(!registry.is_up(A, now));
    }
}
