//! The parts of a connection that metadata requests need.

use std::sync::Arc;

use sbp_messages::ClientRole;
use sbp_session::Session;

use super::handle::ConnectionHandle;
use super::replier::Replier;
use crate::node::Node;

/// A connection, while one of its requests about metadata is handled or answered.
pub(super) struct RangeTurn<'a> {
    pub(super) session: &'a mut Session,
    pub(super) replier: &'a mut Replier,
    pub(super) node: &'a Arc<Node>,
    pub(super) handle: &'a Arc<ConnectionHandle>,
    /// The role that the peer gave.
    pub(super) asker: ClientRole,
}
