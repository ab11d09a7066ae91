//! Checks sealed files of the log that no client reads, so that damage is found while another copy may still exist.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::node::Node;

/// Checks the sealed files of the log one after the other, with a pause before each, and begins again after the last.
/// Ends with the server.
pub(crate) async fn scrub_what_is_sealed(node: Weak<Node>, every: Duration) {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
