//! Applies retention: trims streams whose records are too old or too many.

use std::sync::Weak;
use std::time::Duration;

use sbp_types::{Offset, StreamId};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::node::Node;
use crate::placement::{MetadataJob, Request};

/// Finds out regularly which streams are due for a trim, and requests the trims. Ends with the server.
pub(crate) async fn trim_what_is_due(node: Weak<Node>, every: Duration) {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(ranges) = node.upgrade().and_then(|node| node.ranges.clone()) else {
            return;
        };
        let Some(now) = node.upgrade().map(|node| node.clock.now()) else {
            return;
        };
        // Retention may read from the disk.
        let due = tokio::task::spawn_blocking(move || {
            // Frees the space that the last trims released; cheap when there were none.
            if let Err(error) = ranges.log.reclaim() {
                tracing::warn!(%error, "space released by trims cannot be freed now");
            }
            ranges.retention_due(now)
        })
        .await;
        let due = due.unwrap_or_default();
        if due.is_empty() {
            continue;
        }
        let Some(node) = node.upgrade() else { return };
        trim(&node, due).await;
    }
}

async fn trim(node: &Node, due: Vec<(StreamId, Offset)>) {
    if let Some(role) = &node.range_role {
        if let Err(error) = role.ask_to_trim(&due).await {
            tracing::debug!(%error, "the placement driver trims nothing now");
        }
    } else if let Some(placement) = &node.placement {
        let job = MetadataJob {
            done: Box::new(|reply| {
                let refusals = reply.into_iter().flatten().filter_map(Result::err);
                for refusal in refusals {
                    tracing::debug!(refusal = refusal.message, "a stream is not trimmed");
                }
            }),
            deadline: std::time::Instant::now() + node.limits.default_timeout,
            request: Request::TrimStreams(due.into_iter().map(Ok).collect()),
        };
        // False when the server is shutting down.
        let _taken = placement.submit(job);
    }
}
