//! Chooses the range servers of a new range.

use std::collections::BTreeSet;

use sbp_messages::ReportMetricsRequest;
use sbp_types::{RangeKey, ServerId};

use super::state::PlacementState;

/// A range server that is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: ServerId,
    pub(crate) load: ServerLoad,
    /// Whether it can be one of several servers with a range.
    pub(crate) replicates: bool,
    /// Whether the range is better without it: it is to be emptied, or somebody cannot reach it.
    pub(crate) avoided: bool,
    /// Where it stands. `None`: it does not say.
    pub(crate) zone: Option<Zone>,
}

/// A zone that range servers name, such as a rack or a room: what is lost together. A number for the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Zone(pub(crate) u32);

/// The load of a range server, as it last reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerLoad {
    /// Free bytes on its disk; `None` until it has reported.
    pub(crate) free_bytes: Option<u64>,
    /// Appends per second.
    pub(crate) appends: u64,
    /// Fetches per second.
    pub(crate) fetches: u64,
    /// What it keeps and does not serve; it decides nothing.
    pub(crate) withheld: Withheld,
}

/// Ranges that a range server keeps and does not serve, because its placement driver does not know their streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Withheld {
    pub(crate) ranges: i32,
    pub(crate) bytes: i64,
}

impl From<&ReportMetricsRequest> for ServerLoad {
    /// The load that a report gives. Negative figures mean "unknown".
    fn from(report: &ReportMetricsRequest) -> Self {
        let figure = |figure: i16| u64::try_from(figure).unwrap_or(0);
        Self {
            free_bytes: u64::try_from(report.disk_free_space).ok(),
            appends: figure(report.network_append_rate),
            fetches: figure(report.network_fetch_rate),
            withheld: Withheld {
                ranges: report.withheld_range_cnt.max(0),
                bytes: report.withheld_bytes.max(0),
            },
        }
    }
}

/// A server with less free space than this is chosen only if the others have as little.
const LITTLE_ROOM: u64 = 1 << 30;
/// This many appends and fetches per second count as much as one open range.
const CALLS_PER_RANGE: u64 = 100;

/// The servers for a new range that is to have `replicas` copies, the primary first: so many, or as many as there are, but
/// `least` of them. `None` when there are fewer.
///
/// Servers with room on their disk come first. Among those the load decides: open ranges plus calls. Among equals the
/// lowest id wins, so that the same state always gives the same choice. Several copies go to servers that replicate, and to other
/// [zones](over_zones) as far as there are such. None go to servers that are avoided.
pub(crate) fn choose(
    state: &PlacementState,
    candidates: &[Candidate],
    replicas: usize,
    least: usize,
) -> Option<Vec<ServerId>> {
    let fitting = candidates
        .iter()
        .filter(|candidate| !candidate.avoided && (replicas == 1 || candidate.replicates));
    if replicas == 0 || fitting.clone().count() < least.max(1) {
        return None;
    }
    let mut ranked: Vec<_> = fitting
        .map(|candidate| (rank(state, candidate, None), candidate.id))
        .collect();
    ranked.sort_unstable();
    let mut chosen = over_zones(candidates, ranked.into_iter().map(|(_, id)| id).collect());
    chosen.truncate(replicas);
    Some(chosen)
}

/// Servers, of which the first stays the first, in an order in which each stands in a zone where none of those before it does, while
/// there are such. Those that are avoided come last whatever their zone is, and before them those with little room.
pub(super) fn over_zones(candidates: &[Candidate], ranked: Vec<ServerId>) -> Vec<ServerId> {
    let known = |id: ServerId| candidates.iter().find(|candidate| candidate.id == id);
    let zone = |id: ServerId| known(id)?.zone;
    let burden = |id: ServerId| known(id).map(|candidate| (candidate.avoided, has_little_room(&candidate.load)));
    let mut left = ranked;
    let mut ordered = Vec::with_capacity(left.len());
    let mut used = BTreeSet::new();
    while !left.is_empty() {
        let is_used = |id: ServerId| zone(id).is_some_and(|zone| used.contains(&zone));
        let next = match ordered.is_empty() {
            true => 0,
            // Of equals the first.
            false => (0..left.len())
                .min_by_key(|place| left.get(*place).map(|id| (burden(*id), is_used(*id))))
                .unwrap_or(0),
        };
        let id = left.remove(next);
        used.extend(zone(id));
        ordered.push(id);
    }
    ordered
}

fn has_little_room(load: &ServerLoad) -> bool {
    load.free_bytes.is_some_and(|free| free < LITTLE_ROOM)
}

/// All servers that replicate, the best first for the range behind `ended`: that one counts as work of nobody. Those that are
/// avoided come last.
pub(super) fn rank_behind(state: &PlacementState, candidates: &[Candidate], ended: RangeKey) -> Vec<ServerId> {
    let fitting = candidates.iter().filter(|candidate| candidate.replicates);
    let mut ranked: Vec<_> = fitting
        .map(|candidate| (candidate.avoided, rank(state, candidate, Some(ended)), candidate.id))
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(.., id)| id).collect()
}

fn rank(state: &PlacementState, candidate: &Candidate, ended: Option<RangeKey>) -> (bool, u64) {
    let ServerLoad { appends, fetches, .. } = candidate.load;
    let little_room = has_little_room(&candidate.load);
    let ended = ended.and_then(|key| state.range(key)?.appends_go_to());
    let ranges = state.open_ranges_on(candidate.id);
    let ranges = ranges.saturating_sub(usize::from(ended == Some(candidate.id)));
    let ranges = u64::try_from(ranges).unwrap_or(u64::MAX);
    let calls = appends.saturating_add(fetches) / CALLS_PER_RANGE;
    (little_room, ranges.saturating_add(calls))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sbp_types::{Epoch, Offset, RangeIndex, StreamId};

    use super::super::records::RangeRecord;
    use super::super::state::Change;
    use super::*;

    fn candidate(id: i32, free_gib: Option<u64>, calls: u64) -> Candidate {
        Candidate {
            id: ServerId(id),
            load: ServerLoad {
                free_bytes: free_gib.map(|gib| gib << 30),
                withheld: Withheld::default(),
                appends: calls,
                fetches: 0,
            },
            replicates: true,
            avoided: false,
            zone: None,
        }
    }

    /// Servers by id, each in a zone, or in none where that is 0.
    fn in_zones(zones: &[u32]) -> Vec<Candidate> {
        let stands = |(id, zone): (i32, &u32)| Candidate {
            zone: Some(Zone(*zone)).filter(|_| *zone > 0),
            ..candidate(id, None, 0)
        };
        (1..).zip(zones).map(stands).collect()
    }

    #[test]
    fn copies_go_to_different_zones_while_there_are_such() {
        // The zones of servers 1, 2, and so on, the open ranges on each, the copies, and who gets them.
        let table = [
            (vec![0, 0, 0], vec![], 3, vec![1, 2, 3]),
            (vec![1, 1, 2, 2, 3], vec![], 3, vec![1, 3, 5]),
            (vec![1, 1, 2, 2, 3], vec![0, 0, 5, 4, 9], 3, vec![1, 4, 5]),
            (vec![1, 1, 1], vec![], 3, vec![1, 2, 3]),
            (vec![1, 1, 2], vec![], 3, vec![1, 3, 2]),
            (vec![1, 0, 0, 1], vec![], 3, vec![1, 2, 3]),
            (vec![1, 1, 0], vec![3], 2, vec![2, 3]),
            (vec![1, 2], vec![], 1, vec![1]),
        ];
        for (zones, open, replicas, expected) in table {
            let state = with_open_ranges(&open);
            let chosen = choose(&state, &in_zones(&zones), replicas, 1).unwrap();
            let chosen: Vec<_> = chosen.into_iter().map(|id| id.0).collect();
            assert_eq!(chosen, expected, "{zones:?} {open:?}");
        }
        // Another zone does not make up for a full disk, and not for being avoided.
        let mut candidates = in_zones(&[1, 1, 2, 3]);
        candidates[2].load.free_bytes = Some(1);
        candidates[3].avoided = true;
        let order = |candidates: &[Candidate]| {
            let ordered = over_zones(candidates, [1, 2, 3, 4].map(ServerId).to_vec());
            ordered.into_iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(order(&candidates), [1, 2, 3, 4]);
        candidates[2].load.free_bytes = None;
        assert_eq!(order(&candidates), [1, 3, 2, 4]);
        candidates[3].avoided = false;
        assert_eq!(order(&candidates), [1, 3, 4, 2]);
    }

    /// A state in which server n has as many open ranges as the n-th number says.
    fn with_open_ranges(counts: &[usize]) -> PlacementState {
        let mut state = PlacementState::default();
        let mut stream = 0;
        for (place, count) in counts.iter().enumerate() {
            for _range in 0..*count {
                stream += 1;
                state.install(Change::PutRange(Arc::new(RangeRecord {
                    key: RangeKey {
                        stream: StreamId(stream),
                        range: RangeIndex(0),
                    },
                    epoch: Epoch(0),
                    start_offset: Offset(0),
                    opened_offset: Offset(0),
                    end_offset: None,
                    end_marks: 0,
                    servers: vec![ServerId(i32::try_from(place).unwrap() + 1)],
                    incomplete: Vec::new(),
                    let_go: Vec::new(),
                    unknowing: Vec::new(),
                    replica_count: 1,
                    ack_count: 1,
                })));
            }
        }
        state
    }

    #[test]
    fn room_decides_first_then_work_then_the_number() {
        let cases = [
            ("nobody", vec![], vec![], None),
            ("one", vec![9], vec![candidate(1, None, 0)], Some(1)),
            (
                "the lowest of equals",
                vec![2, 2],
                vec![candidate(2, None, 0), candidate(1, None, 0)],
                Some(1),
            ),
            (
                "fewer ranges",
                vec![3, 2],
                vec![candidate(1, None, 0), candidate(2, None, 0)],
                Some(2),
            ),
            (
                "fewer calls",
                vec![0, 2],
                vec![candidate(1, None, 1_000), candidate(2, None, 0)],
                Some(2),
            ),
            (
                "few calls do not matter",
                vec![0, 2],
                vec![candidate(1, None, 99), candidate(2, None, 0)],
                Some(1),
            ),
            (
                "no room",
                vec![0, 50],
                vec![candidate(1, Some(0), 0), candidate(2, Some(9), 9_000)],
                Some(2),
            ),
            (
                "no room anywhere",
                vec![1, 0],
                vec![candidate(1, Some(0), 0), candidate(2, Some(0), 0)],
                Some(2),
            ),
            (
                "what has not reported counts as roomy",
                vec![5, 0],
                vec![candidate(1, None, 0), candidate(2, Some(0), 0)],
                Some(1),
            ),
        ];
        for (what, open, candidates, chosen) in cases {
            let state = with_open_ranges(&open);
            let expected = chosen.map(|id| vec![ServerId(id)]);
            assert_eq!(choose(&state, &candidates, 1, 1), expected, "{what}");
        }
    }

    #[test]
    fn copies_go_to_different_servers_that_replicate_or_nowhere() {
        let state = with_open_ranges(&[1, 0]);
        let mut two = [candidate(1, None, 0), candidate(2, None, 0)];
        let both = Some(vec![ServerId(2), ServerId(1)]);
        assert_eq!(choose(&state, &two, 2, 2), both);
        assert_eq!(choose(&state, &two, 3, 3), None);
        assert_eq!(choose(&state, &two, 3, 2), both, "fewer than wanted, as many as needed");
        assert_eq!(choose(&state, &two, 0, 0), None);
        two[0].replicates = false;
        assert_eq!(choose(&state, &two, 2, 2), None);
        assert_eq!(choose(&state, &two, 2, 1), Some(vec![ServerId(2)]));
        two[1].replicates = false;
        assert_eq!(
            choose(&state, &two, 1, 1),
            Some(vec![ServerId(2)]),
            "one copy needs nothing"
        );
    }
}
