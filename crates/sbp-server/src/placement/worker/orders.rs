//! Range servers are told what they have to do, and told again when they did not hear it.

use sbp_types::{ServerId, StreamId};

use super::{Event, StagedOperation, Waiting, Worker};
use crate::placement::apply::{Action, Order};
use crate::placement::operations::OperationId;
use crate::refusal::Refusal;

impl Worker {
    pub(super) fn give_orders(&mut self, operation: StagedOperation) {
        let StagedOperation {
            id, orders, outcome, ..
        } = operation;
        let mut missing = 0;
        for order in orders {
            missing += usize::from(self.give(id, order));
        }
        match id {
            Some(id) if missing > 0 => {
                self.waiting.insert(id, Waiting::Orders { missing, outcome });
            }
            _ => self.finish(id, Ok(outcome)),
        }
    }

    /// Has a range server do its part. True when its answer comes later.
    fn give(&mut self, id: Option<OperationId>, order: Order) -> bool {
        let Order { server, stream, action } = order;
        if let Some(local) = self.here(server) {
            match action {
                Action::Install(facts, ranges) => local.ranges.install(stream, facts, &ranges),
                Action::Publish(key, end) => local.ranges.publish_seal(key, end),
                Action::Trim(start) => local.ranges.trim(stream, start),
                Action::Delete => local.ranges.delete(stream),
            }
            return false;
        }
        if let Some(local) = &self.local {
            local.ranges.hub.share();
        }
        // A range server elsewhere has published the end of its own seal.
        if matches!(action, Action::Publish(..)) {
            return false;
        }
        if !self.is_up(server) {
            self.owed.entry(server).or_default().insert(stream);
            return false;
        }
        let done = self.promise(move |result| Event::Told(id, server, stream, result));
        match action {
            Action::Install(facts, ranges) => self.others.sync(server, stream, facts, ranges, done),
            Action::Trim(start) => self.others.trim(server, stream, start, done),
            Action::Delete | Action::Publish(..) => self.others.delete(server, vec![stream], done),
        }
        true
    }

    pub(super) fn handle_told(
        &mut self,
        id: Option<OperationId>,
        server: ServerId,
        stream: StreamId,
        result: Result<(), Refusal>,
    ) {
        if let Err(refusal) = result {
            // It is durable here, so the operation has succeeded; the server is told again when it is heard of.
            tracing::warn!(%server, %stream, code = %refusal.code, message = refusal.message, "a range server was not told");
            self.owed.entry(server).or_default().insert(stream);
        }
        let Some(id) = id else { return };
        let Some(Waiting::Orders { missing, .. }) = self.waiting.get_mut(&id) else {
            return;
        };
        *missing -= 1;
        if *missing == 0
            && let Some(Waiting::Orders { outcome, .. }) = self.waiting.remove(&id)
        {
            self.operations.finish(id, Ok(outcome));
        }
    }

    /// Tells a server what it was not told, as it is now.
    pub(super) fn settle(&mut self, server: ServerId) {
        for stream in self.owed.remove(&server).unwrap_or_default() {
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
