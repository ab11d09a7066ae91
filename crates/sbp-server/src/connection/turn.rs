//! What answering needs of its connection.

use std::sync::Arc;

use sbp_messages::ClientRole;
use sbp_session::Session;

use super::handle::ConnectionHandle;
use super::replier::Replier;
use crate::node::Node;

/// A connection, while one of its questions about ranges is asked or answered.
pub(super) struct RangeTurn<'a> {
    pub(super) session: &'a mut Session,
    pub(super) replier: &'a mut Replier,
    pub(super) node: &'a Arc<Node>,
    pub(super) handle: &'a Arc<ConnectionHandle>,
    /// What the peer said that it is.
    pub(super) asker: ClientRole,
}
