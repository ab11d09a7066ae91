//! Gives orders to range servers, and gives them again to servers that could not be reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use sbp_types::{ServerId, StreamId};

use super::{AwaitedStep, Event, StagedOperation, Worker};
use crate::placement::apply::Command;
use crate::placement::effects::{Action, Order, Outcome};
use crate::placement::operations::OperationId;
use crate::placement::records::RangeRecord;
use crate::refusal::Refusal;

/// Says of a new range what its stream may not have been meant to have.
fn warn_of_few_copies(range: &RangeRecord) {
    let RangeRecord {
        key,
        servers,
        replica_count,
        ack_count,
        ..
    } = range;
    if *replica_count > 1 && *ack_count == 1 {
        tracing::warn!(
            range = %key, replica_count,
            "appends to the stream are acknowledged by one server alone: what only that one has is lost with it"
        );
    }
    if range.lacks_replicas() {
        tracing::warn!(range = %key, replica_count, servers = servers.len(), "the range has fewer replicas than wanted");
    }
}

impl Worker {
    pub(super) fn give_orders(&mut self, operation: StagedOperation) {
        let StagedOperation {
            id, orders, outcome, ..
        } = operation;
        if let Outcome::NewStream(_, range) = &outcome {
            warn_of_few_copies(range);
        }
        let mut missing = Vec::new();
        for order in orders {
            let told = (order.server, order.stream);
            missing.extend(self.give(id, order).then_some(told));
        }
        match id {
            Some(id) if !missing.is_empty() => {
                self.waiting.insert(id, AwaitedStep::Orders { missing, outcome });
            }
            _ => self.complete(id, outcome),
        }
    }

    /// Gives an order to a range server. Returns true when the server's answer is to be waited for.
    fn give(&mut self, id: Option<OperationId>, order: Order) -> bool {
        let Order { server, stream, action } = order;
        let Ok(range_server) = self.reach(server) else {
            // A server that cannot be reached gets the order later. Not so the end of a range: servers ask for ends
            // themselves. Which copies it is to remove is written down.
            if !matches!(action, Action::Publish(..) | Action::LetGo(_)) {
                self.owed.entry(server).or_default().insert(stream);
            }
            return false;
        };
        let told = move |result| Event::Told(id, server, stream, result);
        match action {
            Action::Install(facts, ranges) => range_server.sync(stream, facts, ranges, self.promise(told)),
            Action::Trim(start) => range_server.trim(stream, start, self.promise(told)),
            Action::Delete => {
                let deleted = self.promise(move |deleted| Event::Deleted(id, server, stream, deleted));
                self.deleting.insert((server, stream));
                range_server.delete(vec![stream], deleted);
            }
            Action::Publish(key, end) => {
                range_server.publish_end(key, end);
                return false;
            }
            Action::LetGo(ranges) => {
                self.let_go(server, stream, ranges, &*range_server);
                return false;
            }
        }
        true
    }

    /// A server has deleted a stream. When it has nothing of it any more, the stream is not buried in its name any longer.
    pub(super) fn handle_deleted(
        &mut self,
        id: Option<OperationId>,
        server: ServerId,
        stream: StreamId,
        deleted: Result<bool, Refusal>,
    ) {
        self.deleting.remove(&(server, stream));
        if matches!(deleted, Ok(true)) {
            self.stage(None, Command::RemovedFrom { stream, server }, None);
        }
        self.handle_told(id, server, stream, deleted.map(drop));
    }

    pub(super) fn handle_told(
        &mut self,
        id: Option<OperationId>,
        server: ServerId,
        stream: StreamId,
        result: Result<(), Refusal>,
    ) {
        if let Err(refusal) = result {
            // The change is durable here, so the operation has succeeded. The server gets the order again after its
            // next HEARTBEAT.
            tracing::warn!(%server, %stream, code = %refusal.code, message = refusal.message, "a range server did not carry out an order; it is given again later");
            self.owed.entry(server).or_default().insert(stream);
        }
        let Some(id) = id else { return };
        let Some(AwaitedStep::Orders { missing, .. }) = self.waiting.get_mut(&id) else {
            return;
        };
        // Not so an answer that nobody waits for any more, because its server was given up.
        let Some(place) = missing.iter().position(|told| *told == (server, stream)) else {
            return;
        };
        missing.swap_remove(place);
        if missing.is_empty()
            && let Some(AwaitedStep::Orders { outcome, .. }) = self.waiting.remove(&id)
        {
            self.complete(Some(id), outcome);
        }
    }

    /// Tells the servers that hold open ranges together with this one where it is now, each by one of these ranges.
    pub(super) fn tell_where(&mut self, server: ServerId) {
        let mut told = BTreeMap::new();
        for range in self
            .state
            .shared_ranges()
            .filter(|range| range.servers.contains(&server))
        {
            let others = range.servers.iter().copied().filter(|other| *other != server);
            for other in others {
                told.entry(other).or_insert_with(|| Arc::clone(range));
            }
        }
        for (other, range) in told {
            let Some(stream) = self.state.stream(range.key.stream).map(Arc::clone) else {
                continue;
            };
            for order in Order::install(&stream, &[other], &[&range]) {
                self.give(None, order);
            }
        }
    }

    /// Gives a server the orders about the streams that it missed, according to the present state: also of those that are
    /// buried in its name, whoever led when they were deleted.
    pub(super) fn settle(&mut self, server: ServerId) {
        let mut streams = self.owed.remove(&server).unwrap_or_default();
        if self.here != Some(server) {
            streams.extend(self.state.buried_in_the_name_of(server));
        }
        streams.retain(|stream| !self.deleting.contains(&(server, *stream)));
        for stream in streams {
            let mut orders = Vec::new();
            let mut order = |action| orders.push(Order { server, stream, action });
            match self.state.stream(stream) {
                None => order(Action::Delete),
                Some(record) => {
                    let ranges: Vec<_> = self.state.ranges_of(stream).collect();
                    let held = ranges.iter().filter(|range| range.servers.contains(&server));
                    order(Action::Install(
                        record.facts(),
                        held.map(|range| range.held()).collect(),
                    ));
                    if let Some(first) = ranges.first() {
                        order(Action::Trim(first.start_offset));
                    }
                }
            }
            for order in orders {
                self.give(None, order);
            }
        }
    }
}
