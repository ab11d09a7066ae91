//! Range servers and placement drivers as peers: who is there (HEARTBEAT), how they do (REPORT_METRICS), and who decides
//! (DESCRIBE_PD_CLUSTER).

use std::time::Instant;

use sbp_frame::CallId;
use sbp_messages::{
    ClientRole, DescribePlacementDriverClusterResponse, HeartbeatRequest, PlacementDriverCluster, PlacementDriverNode,
    ReportMetricsRequest, ReportMetricsResponse, Status,
};
use sbp_session::Session;
use sbp_types::ServerId;

use super::replier::Replier;
use crate::node::Node;
use crate::placement::{Load, MetadataJob, ReplyTo, Request, ServerRecord};
use crate::refusal::Refusal;

/// Notes the range server that a HEARTBEAT comes from, and returns its number.
pub(super) fn handle_presence(node: &Node, connection: i64, request: &HeartbeatRequest) -> Option<ServerId> {
    if request.client_role != ClientRole::RANGE_SERVER {
        return None;
    }
    let (placement, server) = (node.placement.as_ref()?, request.range_server.as_ref()?);
    let id = server.server_id;
    let given = placement.read(|state| id.0 >= 1 && id < state.next_server_id());
    if !given || node.identity.server_id == Some(id) {
        tracing::warn!(server = %id, connection, "a range server says it has a number that it cannot have");
        return None;
    }
    let known = placement.read(|state| {
        state
            .server(id)
            .is_some_and(|known| known.address == server.advertise_addr)
    });
    if !known && !server.advertise_addr.is_empty() {
        let record = ServerRecord {
            id,
            address: server.advertise_addr.clone(),
        };
        // Before it is heard: what it is told next goes where it is now. Repeated with the next HEARTBEAT if it fails.
        placement.submit(MetadataJob {
            reply_to: ReplyTo::Caller(Box::new(|_| {})),
            deadline: Instant::now() + node.limits.default_timeout,
            request: Request::RegisterServer(record),
        });
    }
    placement.heard(id, connection);
    Some(id)
}

/// Answers REPORT_METRICS.
pub(super) fn handle_report(
    session: &mut Session,
    replier: &mut Replier,
    node: &Node,
    call: CallId,
    request: ReportMetricsRequest,
) -> Result<(), Refusal> {
    let placement = node.placement()?;
    let status = match &request.range_server {
        Some(server) if server.server_id.0 >= 1 => {
            placement.report(server.server_id, Load::from(&request));
            Status::success()
        }
        _ => Refusal::invalid("the report does not say which range server it is of").into(),
    };
    let response = ReportMetricsResponse {
        range_server: request.range_server,
        status,
    };
    replier.finish(session, call, &response);
    Ok(())
}

/// Answers DESCRIBE_PD_CLUSTER: this placement driver is the only one of its cluster.
pub(super) fn handle_cluster(
    session: &mut Session,
    replier: &mut Replier,
    node: &Node,
    call: CallId,
) -> Result<(), Refusal> {
    node.placement()?;
    let myself = PlacementDriverNode {
        name: "placement-driver".to_owned(),
        advertise_addr: node.identity.advertise.clone(),
        is_leader: true,
    };
    let response = DescribePlacementDriverClusterResponse {
        status: Status::success(),
        cluster: Some(PlacementDriverCluster { nodes: vec![myself] }),
    };
    replier.finish(session, call, &response);
    Ok(())
}
