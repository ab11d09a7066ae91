//! Reports the load of a range server to the placement driver in the same process.

use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::node::Node;
use crate::placement::ServerLoad;
use crate::roles::Sample;

/// Reports the load of this process's range server to its placement driver, as other range servers report theirs. Ends
/// with the server.
pub(crate) async fn watch_itself(node: Weak<Node>, directory: PathBuf, every: Duration) {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Sample> = None;
    loop {
        ticks.tick().await;
        let Some(node) = node.upgrade() else { return };
        let (Some(placement), Some(ranges), Some(me)) = (&node.placement, &node.ranges, node.identity.range_server())
        else {
            return;
        };
        let sample = Sample::take(&directory, ranges.activity());
        let id = me.server_id;
        let report = sample.since(last.as_ref().unwrap_or(&sample), me);
        last = Some(sample);
        placement.report(id, ServerLoad::from(&report));
    }
}
