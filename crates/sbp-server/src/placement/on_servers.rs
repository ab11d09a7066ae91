//! Which ranges count on which servers.

use std::collections::{BTreeSet, HashMap};

use sbp_types::{RangeKey, ServerId};

use super::records::RangeRecord;

/// The ranges by the servers that hold them, and those that need another copy.
#[derive(Clone, Debug, Default)]
pub(super) struct OnServers {
    servers: HashMap<ServerId, OnServer>,
    /// The sealed ranges that a server may lack some of, or that are on fewer servers than their stream is to have replicas.
    wanting: BTreeSet<RangeKey>,
}

/// What one server holds, as far as it counts.
#[derive(Clone, Debug, Default)]
pub(super) struct OnServer {
    /// The open ranges, whether it takes their appends or follows.
    pub(super) open: BTreeSet<RangeKey>,
    /// The sealed ranges, whole or not.
    pub(super) sealed: BTreeSet<RangeKey>,
    /// The ranges of which its copies are done without, and of which it may still have something.
    pub(super) let_go: BTreeSet<RangeKey>,
    /// How many of the open ranges send their appends to it.
    pub(super) primary: usize,
    /// How many of those are on fewer servers than their stream is to have replicas.
    pub(super) lacking: usize,
    /// How many of the sealed ranges it may lack some of.
    pub(super) incomplete: usize,
}

impl OnServers {
    /// Notes a range of a stream that is to have so many replicas.
    pub(super) fn add(&mut self, range: &RangeRecord, replicas: i8) {
        for server in &range.servers {
            let on = self.servers.entry(*server).or_default();
            if range.end_offset.is_some() {
                on.sealed.insert(range.key);
                on.incomplete += usize::from(range.incomplete.contains(server));
            } else {
                on.open.insert(range.key);
            }
        }
        for server in &range.let_go {
            self.servers.entry(*server).or_default().let_go.insert(range.key);
        }
        if let Some(primary) = range.appends_go_to() {
            let on = self.servers.entry(primary).or_default();
            on.primary += 1;
            on.lacking += usize::from(range.lacks_replicas());
        }
        self.judge(range, replicas);
    }

    /// Forgets a range as it was noted.
    pub(super) fn remove(&mut self, range: &RangeRecord) {
        for server in &range.servers {
            let Some(on) = self.servers.get_mut(server) else {
                continue;
            };
            if range.end_offset.is_some() {
                on.sealed.remove(&range.key);
                on.incomplete = on
                    .incomplete
                    .saturating_sub(usize::from(range.incomplete.contains(server)));
            } else {
                on.open.remove(&range.key);
            }
        }
        for server in &range.let_go {
            if let Some(on) = self.servers.get_mut(server) {
                on.let_go.remove(&range.key);
            }
        }
        if let Some(on) = range.appends_go_to().and_then(|primary| self.servers.get_mut(&primary)) {
            on.primary = on.primary.saturating_sub(1);
            on.lacking = on.lacking.saturating_sub(usize::from(range.lacks_replicas()));
        }
        self.wanting.remove(&range.key);
    }

    /// Notes whether a sealed range needs another copy, whose stream is to have so many replicas.
    pub(super) fn judge(&mut self, range: &RangeRecord, replicas: i8) {
        let has_few = usize::try_from(replicas).is_ok_and(|replicas| range.servers.len() < replicas);
        if range.end_offset.is_some() && (has_few || !range.incomplete.is_empty()) {
            self.wanting.insert(range.key);
        } else {
            self.wanting.remove(&range.key);
        }
    }

    /// What a server holds; `None`: nothing, and it never did.
    pub(super) fn on(&self, server: ServerId) -> Option<&OnServer> {
        self.servers.get(&server)
    }

    /// The servers that may still have something of a range that they were let go of.
    pub(super) fn with_let_go(&self) -> impl Iterator<Item = ServerId> {
        let servers = self.servers.iter().filter(|(_, on)| !on.let_go.is_empty());
        servers.map(|(server, _)| *server)
    }

    /// The sealed ranges that may need another copy: they are wanting, or on one of `gone`.
    pub(super) fn sealed_and_wanting(&self, gone: &[ServerId]) -> impl Iterator<Item = RangeKey> {
        let on_those = gone.iter().filter_map(|server| self.servers.get(server));
        let on_those = on_those.flat_map(|on| &on.sealed);
        let on_those = on_those.filter(|key| !self.wanting.contains(key));
        let mut keys: Vec<_> = on_those.copied().collect();
        keys.sort_unstable();
        keys.dedup();
        self.wanting.iter().copied().chain(keys)
    }
}
