//! HEARTBEAT (0x0003): who is there, what both sides understand, and a sign of life.

use crate::v01::tables;
use crate::{RangeServer, Status};

/// What the sender of a HEARTBEAT is. Other numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientRole(pub i8);

impl ClientRole {
    /// Not said.
    pub const UNSPECIFIED: Self = Self(0);
    /// A placement driver.
    pub const PLACEMENT_DRIVER: Self = Self(1);
    /// A range server.
    pub const RANGE_SERVER: Self = Self(2);
    /// A client that appends and fetches.
    pub const CLIENT: Self = Self(3);
}

tables! {
    /// A feature by name, with a value that only its name gives a meaning to.
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
        /// The client's name for itself, for logs; echoed.
        pub client_id: String,
        /// What the client is; echoed.
        pub client_role: ClientRole,
        /// The range server that speaks, when one does.
        pub range_server: Option<RangeServer>,
        /// The highest revision that the client speaks; 0: none of the extensions.
        pub protocol_revision: i32,
        /// The features that the client understands.
        pub features: Vec<Feature>,
        /// 0 the first time, then the number that the server gave.
        pub connection_id: i64,
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
    }
}
