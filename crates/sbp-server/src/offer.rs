//! HEARTBEAT: what the server tells a peer of itself, and which features both sides have.

use sbp_messages::{Feature, HeartbeatRequest, HeartbeatResponse, Status, features};
use sbp_session::Limits;
use sbp_types::ClusterId;

use crate::identity::{Identity, SPEAKS_REPLICATION};

/// The revision of the protocol that this server speaks.
const REVISION: i32 = 1;

/// The features and limits that the server offers.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// Features that are named only if the peer names them too.
    features: Vec<Feature>,
    /// Limits, which are always named: they bind the peer whether it knows them or not.
    limits: Vec<Feature>,
}

impl Offer {
    /// The offer of a server. Both roles offer the same request features: a role that does not serve an operation
    /// refuses it, and the peer asks the other role. Only a range server names an id and a durability.
    pub(crate) fn new(durability: &str, identity: &Identity, limits: &Limits) -> Self {
        let mut offered = vec![
            Feature::new(features::NAMES, "1"),
            Feature::new(features::CONDITIONAL_APPEND, "1"),
            Feature::new(features::IDEMPOTENCE, sbp_log::WRITER_WINDOW.to_string()),
            Feature::new(features::FENCE, "1"),
            Feature::new(features::BOUNDED_FETCH, "1"),
            Feature::new(features::WITHDRAW, "1"),
            Feature::new(features::IDENTITY, "1"),
        ];
        if let Some(server) = identity.range_server() {
            offered.push(Feature::new(features::DURABILITY, durability));
            offered.push(Feature::new(features::SERVER_ID, server.server_id.to_string()));
            if SPEAKS_REPLICATION {
                offered.push(Feature::new(features::REPLICATION, "1"));
            }
        }
        Self {
            features: offered,
            limits: vec![
                Feature::new(features::MAX_CALLS, limits.calls.to_string()),
                Feature::new(features::MAX_BYTES, limits.request_bytes.to_string()),
                Feature::new(features::MAX_WAITS, limits.waits.to_string()),
                Feature::new(features::MAX_ENTRIES, limits.entries.to_string()),
                Feature::new(features::MAX_HEADER, limits.request_header.to_string()),
            ],
        }
    }

    /// The answer that refuses a HEARTBEAT: no features are agreed. `cluster` is told, which may be the reason.
    pub(crate) fn refusal(
        &self,
        cluster: Option<&ClusterId>,
        request: HeartbeatRequest,
        status: Status,
    ) -> HeartbeatResponse {
        let limits = self.limits.iter().cloned();
        let told = limits.chain(cluster_for(cluster, &request)).collect();
        HeartbeatResponse {
            features: told,
            client_id: request.client_id,
            client_role: request.client_role,
            status,
            ..HeartbeatResponse::default()
        }
    }

    /// The answer to a connection's first HEARTBEAT. The connection repeats it for every later one.
    pub(crate) fn answer(
        &self,
        identity: &Identity,
        cluster: Option<&ClusterId>,
        connection_id: i64,
        request: HeartbeatRequest,
    ) -> HeartbeatResponse {
        let named = |offered: &&Feature| features::find(&request.features, &offered.name).is_some();
        let agreed = self
            .features
            .iter()
            .filter(named)
            .chain(&self.limits)
            .cloned()
            .chain(cluster_for(cluster, &request))
            .collect();
        HeartbeatResponse {
            client_id: request.client_id,
            client_role: request.client_role,
            range_server: identity.range_server(),
            status: Status::success(),
            protocol_revision: request.protocol_revision.clamp(0, REVISION),
            features: agreed,
            connection_id,
            ..HeartbeatResponse::default()
        }
    }
}

/// The cluster's id, where the peer asks for it.
pub(crate) fn cluster_for(cluster: Option<&ClusterId>, request: &HeartbeatRequest) -> Option<Feature> {
    features::find(&request.features, features::CLUSTER)?;
    Some(Feature::new(features::CLUSTER, cluster?.to_string()))
}

#[cfg(test)]
mod tests {
    use sbp_messages::ClientRole;
    use sbp_types::{ServerId, StreamIdentity};

    use super::*;

    const CLUSTER: ClusterId = ClusterId(StreamIdentity([7; 16]));

    fn answer(revision: i32, names: &[&str]) -> HeartbeatResponse {
        let identity = Identity {
            server_id: Some(ServerId(7)),
            advertise: "host:1".to_owned(),
        };
        let limits = Limits {
            calls: 1,
            request_bytes: 2,
            waits: 3,
            entries: 4,
            request_header: 5,
            ..Limits::default()
        };
        let request = HeartbeatRequest {
            client_id: "me".to_owned(),
            client_role: ClientRole::CLIENT,
            protocol_revision: revision,
            features: names.iter().map(|name| Feature::new(name, "whatever")).collect(),
            ..Default::default()
        };
        Offer::new("fsync", &identity, &limits).answer(&identity, Some(&CLUSTER), 9, request)
    }

    #[test]
    fn features_that_both_have_are_told_and_limits_always() {
        let plain = answer(0, &[]);
        assert_eq!(plain.features.len(), 5, "{plain:?}");
        assert_eq!(features::find_number(&plain.features, features::MAX_WAITS), Some(3));
        let some = answer(1, &["durability", "idempotence", "server-id", "unheard-of", "cluster"]);
        assert_eq!(features::find(&some.features, "durability"), Some("fsync"));
        assert_eq!(features::find(&some.features, "server-id"), Some("7"));
        assert_eq!(features::find(&some.features, "idempotence"), Some("64"), "the window");
        assert_eq!(features::find(&some.features, "names"), None, "not asked for");
        assert_eq!(features::find(&some.features, "cluster"), Some(&*CLUSTER.to_string()));
        assert_eq!(features::find(&plain.features, "cluster"), None, "not asked for");
        assert_eq!(some.features.len(), 9);
    }

    #[test]
    fn the_smaller_revision_counts_and_the_peer_is_echoed() {
        for (theirs, agreed) in [(-3, 0), (0, 0), (1, 1), (2, 1), (i32::MAX, 1)] {
            assert_eq!(answer(theirs, &[]).protocol_revision, agreed, "{theirs}");
        }
        let answer = answer(1, &[]);
        assert_eq!(
            (answer.client_id.as_str(), answer.client_role),
            ("me", ClientRole::CLIENT)
        );
        assert_eq!(
            (answer.connection_id, answer.range_server.unwrap().server_id),
            (9, ServerId(7))
        );
    }
}
