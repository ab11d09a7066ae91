//! Has servers remove what they have of ranges that they were let go of.
//!
//! An answer that nothing is left has that written down, and the server may then be given the range again. So no two orders about
//! a stream are under way to one server: every answer was given while the server was to have nothing of those ranges, and none
//! of an earlier time can be taken for one about a copy that the server got since.

use std::collections::{BTreeMap, BTreeSet};

use sbp_types::{RangeKey, ServerId, StreamId};

use super::{Event, Worker};
use crate::placement::apply::Command;
use crate::placement::effects::{Action, Order};
use crate::placement::range_servers::RangeServer;
use crate::placement::records::RangeRecord;
use crate::range::HeldRange;
use crate::refusal::Refusal;

/// The most ranges that one server is asked about at a time.
const MOST_AT_ONCE: usize = 256;

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct LettingGo {
    /// The orders that were not answered.
    under_way: BTreeSet<(ServerId, StreamId)>,
    /// The last range that each server was asked about.
    asked_up_to: BTreeMap<ServerId, RangeKey>,
}

impl Worker {
    /// Orders a server to remove what it has of these ranges, unless an order about their stream is under way: then it is given
    /// later.
    pub(super) fn let_go(
        &mut self,
        server: ServerId,
        stream: StreamId,
        ranges: Vec<HeldRange>,
        range_server: &dyn RangeServer,
    ) {
        if self.here == Some(server) || !self.letting_go.under_way.insert((server, stream)) {
            return;
        }
        let keys: Vec<_> = ranges.iter().map(|range| range.key).collect();
        let done = self.promise(move |left| Event::LetGo(server, keys, left));
        range_server.let_go(stream, ranges, done);
    }

    /// A server has answered of which of these ranges it still has something.
    pub(super) fn handle_let_go(&mut self, server: ServerId, keys: &[RangeKey], left: Result<Vec<RangeKey>, Refusal>) {
        for key in keys {
            self.letting_go.under_way.remove(&(server, key.stream));
        }
        match left {
            Ok(left) => {
                let cleared: Vec<_> = keys.iter().copied().filter(|key| !left.contains(key)).collect();
                if !cleared.is_empty() {
                    let keys = cleared;
                    self.stage(None, Command::ClearedOn { server, keys }, None);
                }
            }
            Err(refusal) => {
                tracing::debug!(%server, code = %refusal.code, message = refusal.message, "a server does not say yet what it has of ranges that it was let go of");
            }
        }
    }

    /// Orders servers that are up again to remove what they have of such ranges, a part of them at a time.
    pub(super) fn let_go_again(&mut self) {
        let servers: Vec<_> = self.state.with_let_go().collect();
        for server in servers {
            self.let_go_of_more(server);
        }
    }

    fn let_go_of_more(&mut self, server: ServerId) {
        let after = self.letting_go.asked_up_to.get(&server).copied();
        let ranges: Vec<_> = self
            .state
            .let_go_on(server, after)
            .take(MOST_AT_ONCE)
            .cloned()
            .collect();
        if let Some(last) = ranges.last() {
            self.letting_go.asked_up_to.insert(server, last.key);
        }
        for of_stream in ranges.chunk_by(|one, next| one.key.stream == next.key.stream) {
            let Some(first) = of_stream.first() else { continue };
            let Order { stream, action, .. } = Order::let_go(
                server,
                first.key.stream,
                of_stream.iter().map(AsRef::<RangeRecord>::as_ref),
            );
            let (Action::LetGo(ranges), Ok(range_server)) = (action, self.reach(server)) else {
                return;
            };
            self.let_go(server, stream, ranges, &*range_server);
        }
    }
}
