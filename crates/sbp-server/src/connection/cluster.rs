//! Messages between range servers and placement drivers: presence (HEARTBEAT), load (REPORT_METRICS), and who leads
//! (DESCRIBE_PD_CLUSTER).

use std::time::Instant;

use sbp_frame::CallId;
use sbp_messages::{
    ClientRole, DescribePlacementDriverClusterResponse, HeartbeatRequest, PlacementDriverCluster, PlacementDriverNode,
    RangeServer, ReportMetricsRequest, ReportMetricsResponse, Status, check_address, features,
};
use sbp_types::ServerId;

use super::handle::Turn;
use crate::node::Node;
use crate::placement::{Life, MetadataJob, PlacementDriver, Request, ServerLoad, ServerRecord};
use crate::refusal::Refusal;

/// Notes the range server that sent a HEARTBEAT, and returns its id; `None` if the peer is no range server, or gives an
/// id that it cannot have.
///
/// # Errors
///
/// When the address it gives cannot be dialled, or is this server's own, or when another range server has its number; it is not
/// noted then.
pub(super) fn handle_presence(
    node: &Node,
    connection: i64,
    request: &HeartbeatRequest,
) -> Result<Option<ServerId>, Refusal> {
    match (&node.placement, &request.range_server) {
        // It only says who it is, to send entries of ranges that this server holds too.
        (Some(_), Some(server)) if server.advertise_addr.is_empty() && sends_entries(request) => Ok(None),
        (Some(placement), Some(server)) if request.client_role == ClientRole::RANGE_SERVER => {
            check_advertised(node, server)?;
            if is_known(placement, server.server_id) {
                check_alone(placement, connection, server)?;
            }
            let replicates = features::find(&request.features, features::REPLICATION).is_some();
            Ok(note_presence(node, placement, connection, server, replicates))
        }
        _ => Ok(None),
    }
}

fn sends_entries(request: &HeartbeatRequest) -> bool {
    features::find(&request.features, features::REPLICATION).is_some()
}

/// Checks the address of a range server, which this server and its clients will dial.
fn check_advertised(node: &Node, server: &RangeServer) -> Result<(), Refusal> {
    let address = &*server.advertise_addr;
    let refuse = |why: &str| Refusal::invalid(format!("{address:?} cannot be a range server's address: {why}"));
    // No address means that it has not changed.
    if address.is_empty() {
        return Ok(());
    }
    check_address(address).map_err(|fault| refuse(&fault.to_string()))?;
    if address == node.identity.advertise && !is_own(node, server.server_id) {
        return Err(refuse("it is this server's own"));
    }
    Ok(())
}

/// Refuses a range server whose number another one has: the directory of one is a copy of the other's.
fn check_alone(placement: &PlacementDriver, connection: i64, server: &RangeServer) -> Result<(), Refusal> {
    // No address means that it has not changed.
    if server.advertise_addr.is_empty() {
        return Ok(());
    }
    placement.admit(server.server_id, connection, &life(server))
}

fn life(server: &RangeServer) -> Life {
    Life {
        starts: u64::try_from(server.starts).unwrap_or(0),
        address: server.advertise_addr.clone(),
    }
}

/// Whether it is the range server of this process, which registers as others do.
fn is_own(node: &Node, server: ServerId) -> bool {
    node.range_role.is_some() && node.identity.server_id == Some(server)
}

fn note_presence(
    node: &Node,
    placement: &PlacementDriver,
    connection: i64,
    server: &RangeServer,
    replicates: bool,
) -> Option<ServerId> {
    let id = server.server_id;
    placement.note_followed(id, server.followed);
    if placement.takes_on_trust(id) {
        placement.stands_in(id, &server.zone);
        placement.heard(id, connection, replicates);
        return Some(id);
    }
    if !is_known(placement, id) || node.identity.server_id == Some(id) && !is_own(node, id) {
        tracing::warn!(server = %id, connection, "a range server claims an id that it cannot have");
        return None;
    }
    let starts = match placement.may_store_starts() {
        true => life(server).starts,
        false => 0,
    };
    let known = placement.read(|state| {
        state
            .server(id)
            .is_some_and(|known| known.address == server.advertise_addr && known.starts >= starts)
    });
    if !known && !server.advertise_addr.is_empty() {
        let record = ServerRecord {
            starts,
            ..ServerRecord::new(id, server.advertise_addr.clone())
        };
        // Submitted before `heard`, so that orders given on this HEARTBEAT go to the new address. If it fails, the next
        // HEARTBEAT repeats it.
        let _ended = placement.submit(MetadataJob {
            done: Box::new(|_| {}),
            deadline: Instant::now() + node.limits.default_timeout,
            request: Request::RegisterServer(record),
        });
    }
    placement.stands_in(id, &server.zone);
    placement.heard(id, connection, replicates);
    Some(id)
}

/// Whether this placement driver has allocated the id. Other ids are not stored, because any peer could invent them.
fn was_given(placement: &PlacementDriver, id: ServerId) -> bool {
    placement.read(|state| id.0 >= 1 && id < state.next_server_id())
}

/// Whether a range server may have the id, as far as this placement driver can tell.
fn is_known(placement: &PlacementDriver, id: ServerId) -> bool {
    placement.takes_on_trust(id) || was_given(placement, id)
}

/// Answers REPORT_METRICS.
pub(super) fn handle_report(turn: &mut Turn<'_>, call: CallId, request: ReportMetricsRequest) -> Result<(), Refusal> {
    turn.gate.check_report()?;
    let placement = turn.node.any_placement()?;
    let status = match &request.range_server {
        Some(server) if is_known(placement, server.server_id) => {
            placement.report(server.server_id, ServerLoad::from(&request));
            placement.lacks(server.server_id, &request.incomplete);
            Status::success()
        }
        Some(server) => Refusal::invalid(format!("no range server has id {}", server.server_id)).into(),
        None => Refusal::invalid("the report does not say which range server it is of").into(),
    };
    let response = ReportMetricsResponse {
        range_server: request.range_server,
        status,
    };
    turn.finish(call, &response);
    Ok(())
}

/// Answers DESCRIBE_PD_CLUSTER. Who leads tells of range servers too; who does not, only who leads and who else lives.
pub(super) fn handle_cluster(turn: &mut Turn<'_>, call: CallId) -> Result<(), Refusal> {
    let placement = turn.node.any_placement()?;
    // One that registers as others do is among them.
    let registers = turn.node.range_role.is_some();
    let own = turn.node.identity.range_server().filter(|_| !registers);
    let range_servers = || placement.range_server_statuses(own);
    let (copying_range_cnt, waiting_range_cnt) = placement.copy_counts();
    let cluster = match placement.election() {
        None => PlacementDriverCluster {
            nodes: vec![PlacementDriverNode {
                name: "placement-driver".to_owned(),
                advertise_addr: turn.node.identity.advertise.clone(),
                is_leader: true,
            }],
            range_servers: Some(range_servers()),
            copying_range_cnt,
            waiting_range_cnt,
            ..PlacementDriverCluster::default()
        },
        Some(election) => PlacementDriverCluster {
            range_servers: placement.check_leads().is_ok().then(range_servers),
            copying_range_cnt,
            waiting_range_cnt,
            ..election.cluster()
        },
    };
    let response = DescribePlacementDriverClusterResponse {
        status: Status::success(),
        cluster: Some(cluster),
    };
    turn.finish(call, &response);
    Ok(())
}
