//! HEARTBEAT (0x0003): roles, features, and keep-alive.

use crate::v01::tables;
use crate::{ClientRole, RangeServer, Status, Token};

tables! {
    /// A feature: a name, and a value whose meaning depends on the name.
    pub struct Feature: FeatureArgs {
        /// The name; see [`features`](crate::features).
        pub name: String,
        /// `1`, or what the feature's description says.
        pub value: String,
    }
}

impl Feature {
    /// A feature with a value.
    #[must_use]
    pub fn new(name: &str, value: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            value: value.into(),
        }
    }
}

tables! {
    /// The first frame of a client, repeated while the connection is idle.
    pub struct HeartbeatRequest: HeartbeatRequestArgs, request of HEARTBEAT {
        /// The client's own name, for logs; repeated in the answer.
        pub client_id: String,
        /// The client's role; repeated in the answer.
        pub client_role: ClientRole,
        /// The sender, if it is a range server.
        pub range_server: Option<RangeServer>,
        /// The highest revision that the client supports; 0: no extensions.
        pub protocol_revision: i32,
        /// The features that the client supports.
        pub features: Vec<Feature>,
        /// 0 the first time, then the number that the server has answered.
        pub connection_id: i64,
        /// The bearer token that says who the client is; empty: none. A later HEARTBEAT with a token replaces it.
        pub token: Token,
    }

    /// Answers a [`HeartbeatRequest`].
    pub struct HeartbeatResponse: HeartbeatResponseArgs, response of HEARTBEAT {
        /// The client's name, echoed.
        pub client_id: String,
        /// The client's role, echoed.
        pub client_role: ClientRole,
        /// The range server that answers.
        pub range_server: Option<RangeServer>,
        /// How it ended.
        pub status: Status,
        /// The revision that both speak.
        pub protocol_revision: i32,
        /// The features that both understand, with the server's values, and the server's limits.
        pub features: Vec<Feature>,
        /// The server's number for this connection, above 0.
        pub connection_id: i64,
        /// The term of a placement driver that leads; 0: it does not lead.
        pub term: i64 = 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        let request = HeartbeatRequest {
            token: Token::new("open-sesame"),
            ..HeartbeatRequest::default()
        };
        let shown = format!("{request:?} {request:#?}");
        assert!(!shown.contains("sesame"), "{shown}");
        assert!(shown.contains("a token"), "{shown}");
        assert_eq!(request.token.secret(), "open-sesame");
        assert!(Token::default().is_empty());
    }
}
