//! What keeps ranges on a server that is to be emptied.

use std::time::Instant;

use sbp_types::{RangeKey, ServerId};

use super::choose::Candidate;
use super::next_range::next_key;
use super::records::RangeRecord;
use super::registry::Registry;
use super::state::PlacementState;

/// The most ranges that are named.
const MOST_NAMED: usize = 20;

/// The cluster at one moment, for servers that are to be emptied.
#[derive(Debug)]
pub(super) struct Drain<'a> {
    state: &'a PlacementState,
    registry: &'a Registry,
    /// The servers that are up and keep copies for others.
    candidates: Vec<Candidate>,
    now: Instant,
}

/// The ranges that cannot be moved from a server as things are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stuck {
    pub(super) count: usize,
    /// The first of them, and why each stays.
    pub(super) named: Vec<(RangeKey, String)>,
}

impl<'a> Drain<'a> {
    pub(super) fn new(state: &'a PlacementState, registry: &'a Registry, now: Instant) -> Self {
        let mut candidates = registry.candidates(now);
        candidates.retain(|candidate| candidate.replicates);
        Self {
            state,
            registry,
            candidates,
            now,
        }
    }

    /// The ranges on a server that cannot be moved from it as things are.
    pub(super) fn stuck(&self, server: ServerId) -> Stuck {
        let mut stuck = Stuck::default();
        for range in self.state.ranges_on(server) {
            let Some(reason) = self.why_stuck(range) else { continue };
            stuck.count += 1;
            if stuck.named.len() < MOST_NAMED {
                stuck.named.push((range.key, reason));
            }
        }
        stuck
    }

    /// Why a range cannot leave a server that is to be emptied; `None` if it can.
    pub(super) fn why_stuck(&self, range: &RangeRecord) -> Option<String> {
        let replicates = |server: &ServerId| self.candidates.iter().any(|candidate| candidate.id == *server);
        let is_up = |server: &ServerId| self.registry.is_up(*server, self.now);
        if range.end_offset.is_none() {
            let alone = range.servers.first().filter(|_| range.servers.len() == 1);
            match alone {
                Some(server) if !is_up(server) => {
                    return Some(format!(
                        "range server {server} alone has it, and is down: start that again"
                    ));
                }
                Some(server) if !replicates(server) => {
                    return Some(format!(
                        "range server {server} alone has it, and keeps no copies for others, as it is in the process of its \
                         placement driver or of an older version: copy the records to another stream"
                    ));
                }
                _ => {}
            }
        } else {
            if !range.complete().any(|server| is_up(&server)) {
                return Some("no server that has all of it is up: start one of them again".to_owned());
            }
            if let [server] = range.servers[..]
                && !replicates(&server)
            {
                return Some(format!(
                    "range server {server} alone has it, and keeps no copies for others, as it is in the process of its placement \
                     driver or of an older version: it stays until it is trimmed, or the stream deleted"
                ));
            }
            if next_key(range.key).is_none_or(|next| self.state.range(next).is_none()) {
                return Some("no range follows it: have the next one made (`create_range`)".to_owned());
            }
        }
        let wanted = self.state.stream(range.key.stream)?.settings.replica_count;
        let others = self.candidates.iter();
        let others = others.filter(|candidate| !self.state.is_draining(candidate.id)).count();
        let is_enough = usize::try_from(wanted).is_ok_and(|wanted| others >= wanted.max(1));
        (!is_enough).then(|| {
            format!(
                "its stream is to have {wanted} replicas, and {others} range servers are up that are not to be emptied: start \
                 another one, or ask for fewer replicas (`sbp stream update --replicas`)"
            )
        })
    }
}
