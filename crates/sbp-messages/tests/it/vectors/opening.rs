//! GOAWAY, HEARTBEAT, system errors.

use sbp_messages::*;

use super::count::Count;
use super::headers;
use super::ranges::range_server;

fn feature(n: &mut Count) -> Feature {
    Feature {
        name: n.text(),
        value: n.text(),
    }
}

headers! {
    GoAway, n => GoAway {
        status: n.status(),
        grace_ms: n.int(),
    };
    SystemErrorResponse, n => SystemErrorResponse {
        status: n.status(),
    };
    HeartbeatRequest, n => HeartbeatRequest {
        client_id: n.text(),
        client_role: ClientRole::CLIENT,
        range_server: Some(range_server(n)),
        protocol_revision: n.extension(0, Count::int),
        features: n.extension(Vec::new(), |n| n.two(feature)),
        connection_id: n.extension(0, Count::long),
        token: n.extension(Token::default(), |n| Token::new(n.text())),
    };
    HeartbeatResponse, n => HeartbeatResponse {
        client_id: n.text(),
        client_role: ClientRole::CLIENT,
        range_server: Some(range_server(n)),
        status: n.status(),
        protocol_revision: n.extension(0, Count::int),
        features: n.extension(Vec::new(), |n| n.two(feature)),
        connection_id: n.extension(0, Count::long),
        term: n.extension(0, Count::long),
    };
}
