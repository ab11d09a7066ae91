//! Regular tasks of a server. They end with it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_types::{Offset, StreamId};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::disk_space::DiskSpace;
use crate::node::Node;
use crate::placement::{MetadataJob, Request, ServerLoad};
use crate::roles::{Job, Sample};

/// Ticks once per period, for the first time when the first one is over.
fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Reports the load of this process's range server to its placement driver, as other range servers report theirs.
pub(crate) async fn watch_itself(node: Weak<Node>, space: Arc<DiskSpace>, every: Duration) {
    let mut ticks = ticks(every);
    let mut last: Option<Sample> = None;
    loop {
        ticks.tick().await;
        let Some(node) = node.upgrade() else { return };
        let (Some(placement), Some(ranges), Some(me)) = (&node.placement, &node.ranges, node.identity.range_server())
        else {
            return;
        };
        let sample = Sample::take(space.now().space.free, ranges.activity());
        let id = me.server_id;
        let report = sample.since(last.as_ref().unwrap_or(&sample), me);
        last = Some(sample);
        placement.report(id, ServerLoad::from(&report));
    }
}

/// How often the lag of the serving thread is measured.
const LAG_EVERY: Duration = Duration::from_millis(250);

/// Measures how late the serving thread gets to what is due.
pub(crate) async fn measure_lag(node: Weak<Node>) {
    loop {
        let due = Instant::now() + LAG_EVERY;
        tokio::time::sleep_until(due).await;
        let Some(node) = node.upgrade() else { return };
        node.counters.loop_lag_seconds.observe(due.elapsed(), 1);
    }
}

/// Finds out regularly which streams are due for a trim, and requests the trims.
pub(crate) async fn trim_what_is_due(node: Weak<Node>, every: Duration) {
    let mut ticks = ticks(every);
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
            // So that a disk that has room again is known to have it, even if nobody appends.
            ranges.log.look_for_room();
            // Frees the space that the last trims, and ranges that others have, released; cheap when there were none.
            if let Err(error) = ranges.log.reclaim() {
                tracing::warn!(%error, "space released by trims cannot be freed now");
            }
            (ranges.retention_due(now), ranges.clear_what_leaves())
        })
        .await;
        let (due, cleared) = due.unwrap_or_default();
        let Some(node) = node.upgrade() else { return };
        if let Some(role) = node.range_role.as_ref().filter(|_| !cleared.is_empty())
            && let Err(refusal) = role.keep(|done| Job::Cleared { keys: cleared, done }).await
        {
            tracing::warn!(
                refusal = refusal.message,
                "that ranges have left the disk is not written down; it is tried again"
            );
        }
        if !due.is_empty() {
            trim(&node, due).await;
        }
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
        // An error when the server is shutting down.
        let _taken = placement.submit(job);
    }
}

/// Checks the sealed files of the log one after the other, with a pause before each, and begins again after the last.
pub(crate) async fn scrub_what_is_sealed(node: Weak<Node>, every: Duration) {
    let mut ticks = ticks(every);
    let mut after = 0;
    loop {
        ticks.tick().await;
        let Some(ranges) = node.upgrade().and_then(|node| node.ranges.clone()) else {
            return;
        };
        let scrubbed = tokio::task::spawn_blocking(move || ranges.log.scrub(after)).await;
        after = match scrubbed {
            Ok(Ok(Some(found))) => {
                for damage in &found.damaged {
                    tracing::error!(
                        stream = damage.key.stream.0,
                        range = damage.key.range.0,
                        from = damage.from.0,
                        to = damage.to.0,
                        file = found.file,
                        "records are damaged on the disk; reads of them are refused, other records can be read"
                    );
                }
                found.file
            }
            Ok(Ok(None)) => 0,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a file of the log cannot be checked now");
                after
            }
            // The runtime is shutting down.
            Err(_) => return,
        };
    }
}
