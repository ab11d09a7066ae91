//! Which servers answer HEARTBEATs.

use std::collections::HashMap;
use std::sync::Arc;

/// On so many connections in a row a peer answers other things and no HEARTBEAT before it counts as one that knows none. On
/// a single one the answer may be lost, or late because the server was stopped.
const MISSED: u32 = 3;

/// What is known of the servers of a channel, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Greetings(HashMap<Arc<str>, Greeting>);

#[derive(Debug)]
enum Greeting {
    /// It has answered one: when it is silent it is stalled, not a peer without features.
    Answered,
    /// It has answered none, on so many connections.
    Missed(u32),
}

impl Greetings {
    /// A server has answered a HEARTBEAT.
    pub(super) fn answered(&mut self, endpoint: &Arc<str>) {
        *self.of(endpoint) = Greeting::Answered;
    }

    /// Whether a server ever has.
    pub(super) fn has_answered(&self, endpoint: &Arc<str>) -> bool {
        matches!(self.0.get(endpoint), Some(Greeting::Answered))
    }

    /// A connection to a server is over its time for that. Whether the server counts as one that answers none.
    pub(super) fn missed(&mut self, endpoint: &Arc<str>) -> bool {
        match self.of(endpoint) {
            Greeting::Answered => false,
            Greeting::Missed(times) => {
                *times = times.saturating_add(1);
                *times >= MISSED
            }
        }
    }

    fn of(&mut self, endpoint: &Arc<str>) -> &mut Greeting {
        self.0.entry(Arc::clone(endpoint)).or_insert(Greeting::Missed(0))
    }
}
