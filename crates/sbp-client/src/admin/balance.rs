//! Which open ranges to seal so that they go on on servers with less to do.

use std::collections::BTreeMap;

use sbp_messages::{PlacementDriverCluster, Range, RangeServerStatus, ServerState};
use sbp_types::ServerId;

/// A range that is to go on elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The range to seal.
    pub range: Range,
    /// The server that its stream is to leave, or to follow in where there is no other one.
    pub from: ServerId,
}

/// How many open ranges a server has.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    primary: usize,
    all: usize,
}

/// The ranges to seal, `most` at most, so that the open ranges, and those whose appends a server takes, are spread evenly over the
/// servers that are up and not to be emptied. Each is to be sealed with [`Move::from`] as a server to avoid.
///
/// The servers of the next ranges are the placement driver's to choose, so what comes of it is to be looked at afterwards, and
/// more may be left to move.
#[must_use]
pub fn plan_balance(cluster: &PlacementDriverCluster, ranges: &[Range], most: usize) -> Vec<Move> {
    let servers = cluster.range_servers.iter().flatten();
    let takes_part = |status: &&RangeServerStatus| status.is_up && status.state != ServerState::DRAINING;
    let servers = servers
        .filter(takes_part)
        .filter_map(|status| status.range_server.as_ref());
    let mut loads: BTreeMap<ServerId, Load> = servers.map(|server| (server.server_id, Load::default())).collect();
    let mut open: Vec<(&Range, Vec<ServerId>)> = ranges
        .iter()
        .filter(|range| range.is_open())
        .map(|range| (range, servers_of(range)))
        .collect();
    for (_, servers) in &open {
        for (place, server) in servers.iter().enumerate() {
            if let Some(load) = loads.get_mut(server) {
                load.all += 1;
                load.primary += usize::from(place == 0);
            }
        }
    }
    let mut moves = Vec::new();
    // The stream of a range that is moved is left alone then: nobody knows yet where it is.
    while moves.len() < most
        && let Some((place, from)) = next_move(&loads, &open)
    {
        let (range, servers) = open.swap_remove(place);
        let to = replacement(&loads, &servers);
        count_move(&mut loads, &servers, from, to);
        moves.push(Move {
            range: range.clone(),
            from,
        });
    }
    moves
}

/// The servers of a range, the primary first.
fn servers_of(range: &Range) -> Vec<ServerId> {
    let of = |is_primary| {
        let replicas = range
            .servers
            .iter()
            .filter(move |replica| replica.is_primary == is_primary);
        replicas.filter_map(|replica| Some(replica.range_server.as_ref()?.server_id))
    };
    of(true).chain(of(false)).collect()
}

/// The server without the range that has the fewest open ones.
fn replacement(loads: &BTreeMap<ServerId, Load>, servers: &[ServerId]) -> Option<ServerId> {
    let others = loads.iter().filter(|(server, _)| !servers.contains(server));
    others.min_by_key(|(_, load)| load.all).map(|(server, _)| *server)
}

/// The range whose move helps most, and the server that it leaves; `None`: they are spread evenly.
fn next_move(loads: &BTreeMap<ServerId, Load>, open: &[(&Range, Vec<ServerId>)]) -> Option<(usize, ServerId)> {
    let all_of = |server: &ServerId| loads.get(server).map(|load| load.all);
    let primary_of = |server: &ServerId| loads.get(server).map(|load| load.primary);
    let gain = |servers: &[ServerId], from: &ServerId| -> Option<usize> {
        let to = replacement(loads, servers);
        let spread = to.and_then(|to| all_of(from)?.checked_sub(all_of(&to)?)).unwrap_or(0);
        // Who leads instead: one of those that have the range, or, where one server alone has it, the replacement.
        let heirs = servers.iter().filter(|server| *server != from);
        let least = heirs
            .chain(to.as_ref().filter(|_| servers.len() == 1))
            .filter_map(primary_of)
            .min();
        let leads = servers.first() == Some(from);
        let relief = match (leads, least) {
            (true, Some(least)) => primary_of(from)?.saturating_sub(least),
            _ => 0,
        };
        // A difference of one cannot be made smaller.
        let gain = if relief >= 2 { relief } else { 0 } + if spread >= 2 { spread } else { 0 };
        (gain > 0).then_some(gain)
    };
    let all = open.iter().enumerate().flat_map(|(place, (_, servers))| {
        let gains = servers
            .iter()
            .filter_map(|from| Some((gain(servers, from)?, place, *from)));
        gains.collect::<Vec<_>>()
    });
    let best = all.max_by_key(|(gain, place, _)| (*gain, std::cmp::Reverse(*place)));
    best.map(|(_, place, from)| (place, from))
}

/// Counts what comes of a move, as far as it can be foreseen.
fn count_move(loads: &mut BTreeMap<ServerId, Load>, servers: &[ServerId], from: ServerId, to: Option<ServerId>) {
    let led = servers.first() == Some(&from);
    if let Some(to) = to {
        if let Some(load) = loads.get_mut(&from) {
            load.all = load.all.saturating_sub(1);
        }
        if let Some(load) = loads.get_mut(&to) {
            load.all += 1;
        }
    }
    if !led {
        return;
    }
    let heirs = servers.iter().copied().filter(|server| *server != from);
    let heirs = heirs.chain(to.filter(|_| servers.len() == 1));
    let heir = heirs
        .filter(|server| loads.contains_key(server))
        .min_by_key(|server| loads.get(server).map(|load| load.primary));
    if let Some(heir) = heir {
        if let Some(load) = loads.get_mut(&from) {
            load.primary = load.primary.saturating_sub(1);
        }
        if let Some(load) = loads.get_mut(&heir) {
            load.primary += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_messages::{RangeServer, ReplicaServer};
    use sbp_types::StreamId;

    use super::*;

    fn server(id: i32) -> RangeServer {
        RangeServer {
            server_id: ServerId(id),
            ..RangeServer::default()
        }
    }

    fn cluster(ids: &[i32]) -> PlacementDriverCluster {
        let status = |id: &i32| RangeServerStatus {
            range_server: Some(server(*id)),
            is_up: true,
            state: ServerState::IN_USE,
            ..RangeServerStatus::default()
        };
        PlacementDriverCluster {
            range_servers: Some(ids.iter().map(status).collect()),
            ..PlacementDriverCluster::default()
        }
    }

    /// The open range of a stream on these servers, the primary first.
    fn range(stream: i64, servers: &[i32]) -> Range {
        let replica = |(place, id): (usize, &i32)| ReplicaServer {
            range_server: Some(server(*id)),
            is_primary: place == 0,
            ..ReplicaServer::default()
        };
        Range {
            stream_id: StreamId(stream),
            end_offset: None,
            servers: servers.iter().enumerate().map(replica).collect(),
            ..Range::default()
        }
    }

    fn moved(moves: &[Move]) -> Vec<(i64, i32)> {
        moves.iter().map(|one| (one.range.stream_id.0, one.from.0)).collect()
    }

    #[test]
    fn what_is_spread_evenly_stays() {
        let ranges = [
            range(1, &[1, 2, 3]),
            range(2, &[2, 3, 1]),
            range(3, &[3, 1, 2]),
            range(4, &[1, 2, 3]),
        ];
        assert_eq!(plan_balance(&cluster(&[1, 2, 3]), &ranges, 100), []);
        assert_eq!(plan_balance(&cluster(&[]), &ranges, 100), []);
    }

    #[test]
    fn primaries_of_one_server_go_to_its_followers() {
        let ranges: Vec<_> = (1..=6).map(|stream| range(stream, &[1, 2, 3])).collect();
        let moves = plan_balance(&cluster(&[1, 2, 3]), &ranges, 100);
        assert_eq!(moved(&moves), [(1, 1), (6, 1), (5, 1), (4, 1)]);
        assert_eq!(
            plan_balance(&cluster(&[1, 2, 3]), &ranges, 2).len(),
            2,
            "no more at once"
        );
    }

    #[test]
    fn a_server_that_was_added_gets_its_share_and_one_that_is_to_be_emptied_or_down_none() {
        let ranges: Vec<_> = (1..=8).map(|stream| range(stream, &[1])).collect();
        let moves = plan_balance(&cluster(&[1, 2]), &ranges, 100);
        assert_eq!(moves.len(), 4);
        let mut without = cluster(&[1, 2, 3]);
        let servers = without.range_servers.as_mut().unwrap();
        servers[1].state = ServerState::DRAINING;
        servers[2].is_up = false;
        assert_eq!(plan_balance(&without, &ranges, 100), []);
    }
}
