//! The first HEARTBEAT between servers, and the allocation of a range server's id.

use std::time::Duration;

use sbp_messages::{
    ClientRole, Feature, HeartbeatRequest, IdAllocationRequest, IdAllocationResponse, RangeServer, features,
};
use sbp_types::ServerId;

use super::drivers::Drivers;
use crate::identity::SPEAKS_REPLICATION;
use crate::peer::PeerError;

/// The revision of the protocol that servers speak with each other.
const REVISION: i32 = 1;
/// The first HEARTBEAT of a server to another one.
pub(crate) fn greeting(role: ClientRole, server: Option<RangeServer>) -> HeartbeatRequest {
    let name = server.as_ref().map_or("placement-driver", |_| "range-server");
    let replication = SPEAKS_REPLICATION.then(|| Feature::new(features::REPLICATION, "1"));
    HeartbeatRequest {
        client_id: format!("{name}@{}", std::process::id()),
        client_role: role,
        range_server: server,
        protocol_revision: REVISION,
        features: replication.into_iter().collect(),
        ..HeartbeatRequest::default()
    }
}

/// Asks the placement driver for an id that no range server had before.
pub(crate) async fn allocate_id(drivers: &Drivers, host: &str, timeout: Duration) -> Result<ServerId, PeerError> {
    let request = IdAllocationRequest {
        timeout_ms: 0,
        host: host.to_owned(),
    };
    let answers: Vec<IdAllocationResponse> = drivers.call(&request, timeout).await?;
    let unusable = |what: String| PeerError::Unusable {
        peer: "the placement driver".to_owned(),
        what,
    };
    match answers.first() {
        Some(answer) if answer.status.is_success() && answer.id > 0 => Ok(ServerId(answer.id)),
        Some(answer) if !answer.status.is_success() => Err(PeerError::Refused {
            peer: "the placement driver".to_owned(),
            status: answer.status.clone(),
        }),
        _ => Err(unusable("it has no id".to_owned())),
    }
}
