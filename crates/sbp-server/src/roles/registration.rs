//! How a range server makes itself known to its placement driver, and stays known.

use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use sbp_messages::{RangeServer, ReportMetricsResponse};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::members::tell_members;
use super::metrics::Sample;
use super::range_role::RangeRole;

/// Reports between two looks at everything that belongs here: what a lost message would have told is found by then.
const REPORTS_PER_LOOK: u32 = 10;

/// Learns what belongs here whenever there is a new connection, and now and then; reports how this server does in
/// between. Ends with the server.
pub(crate) async fn keep_in_touch(role: Weak<RangeRole>, me: RangeServer, directory: PathBuf, every: Duration) {
    let Some(mut connections) = role.upgrade().map(|role| role.link.connections()) else {
        return;
    };
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Sample> = None;
    let mut reports = 0;
    let latest = watch::Sender::new(None);
    tokio::spawn(tell_members(role.clone(), latest.subscribe(), every));
    loop {
        let look = tokio::select! {
            connected = connections.changed() => match connected {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = ticks.tick() => {
                reports += 1;
                reports % REPORTS_PER_LOOK == 0
            }
        };
        let Some(role) = role.upgrade() else { return };
        if look && let Err(refusal) = role.learn_everything().await {
            tracing::warn!(refusal = refusal.message, "cannot learn what belongs here");
        }
        let Some(ranges) = role.ranges.upgrade() else { return };
        let sample = Sample::take(&directory, ranges.activity());
        drop(ranges);
        let report = sample.since(last.as_ref().unwrap_or(&sample), me.clone());
        last = Some(sample);
        latest.send_replace(Some(report.clone()));
        let answer: Result<Vec<ReportMetricsResponse>, _> = role.link.call(&report, every).await;
        if let Err(error) = answer {
            tracing::debug!(%error, "the placement driver does not take the report");
        }
    }
}
