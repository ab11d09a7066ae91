//! Registers a range server with its placement driver, and reports its load.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_messages::{MAX_ENTRIES, RangeId, RangeServer, ReportMetricsRequest, ReportMetricsResponse};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::members::tell_members;
use super::metrics::Sample;
use super::range_role::RangeRole;
use crate::disk_space::DiskSpace;
use crate::range::IncompleteRange;

/// The number of reports between two requests for everything that belongs here, which make up for lost messages.
const REPORTS_PER_LOOK: u32 = 10;

/// How often it is looked whether another placement driver answers while the one that is asked does not.
const LOOK_FOR_ANOTHER: Duration = Duration::from_millis(100);

/// How a report names a range of which this server lacks some.
fn range_id(range: &IncompleteRange) -> RangeId {
    RangeId {
        stream_id: range.key.stream,
        range_index: Some(range.key.range),
        epoch: Some(range.epoch),
        end_offset: None,
    }
}

/// Asks which ranges belong here on every new connection and regularly after that; reports this server's load in
/// between. Tells `registered` when all of it has succeeded for the first time. Ends with the server.
pub(crate) async fn keep_in_touch(
    role: Weak<RangeRole>,
    me: RangeServer,
    space: Arc<DiskSpace>,
    every: Duration,
    registered: oneshot::Sender<()>,
) {
    let mut registered = Some(registered);
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Sample> = None;
    let mut reports = 0;
    // Whether the last look has failed, or brought something that could not be taken over.
    let mut behind = false;
    // The connection on which everything was asked for last.
    let mut connection = 0;
    let latest = watch::Sender::new(None);
    // The question to seal ranges that is under way.
    let mut asking: Option<JoinHandle<()>> = None;
    tokio::spawn(tell_members(role.clone(), latest.subscribe(), every));
    loop {
        let Some((mut chosen, mut connections)) = role.upgrade().and_then(|role| role.drivers.changes()) else {
            return;
        };
        let standing = role.upgrade().map_or(0, |role| role.drivers.standing());
        let is_new = standing != 0 && standing != connection;
        let look = tokio::select! {
            biased;
            () = std::future::ready(()), if is_new => true,
            changed = chosen.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            changed = connections.changed() => match changed {
                Ok(()) => continue,
                // Another one is asked from now on, and this one is forgotten.
                Err(_) => continue,
            },
            // Another one may be there.
            () = sleep(LOOK_FOR_ANOTHER), if standing == 0 => continue,
            _ = ticks.tick() => {
                reports += 1;
                behind || reports % REPORTS_PER_LOOK == 0
            }
        };
        let Some(role) = role.upgrade() else { return };
        if asking.as_ref().is_none_or(JoinHandle::is_finished) {
            let role = Arc::clone(&role);
            asking = Some(tokio::spawn(async move { role.ask_to_seal().await }));
        }
        if look {
            connection = role.drivers.standing();
            behind = !learn(&role, connection, &mut registered).await;
        }
        let Some(ranges) = role.ranges.upgrade() else { return };
        let sample = Sample::take(space.now().space.free, ranges.activity());
        let incomplete = ranges.incomplete_ranges(MAX_ENTRIES);
        drop(ranges);
        let report = ReportMetricsRequest {
            incomplete: incomplete.iter().map(range_id).collect(),
            ..sample.since(last.as_ref().unwrap_or(&sample), me.clone())
        };
        last = Some(sample);
        latest.send_replace(Some(report.clone()));
        let answer: Result<Vec<ReportMetricsResponse>, _> = role.drivers.call(&report, every).await;
        if let Err(error) = answer {
            tracing::debug!(%error, "the placement driver does not take the report");
        }
    }
}

/// Learns what belongs here over the connection with this number. Returns whether all of it was taken over.
async fn learn(role: &RangeRole, connection: u64, registered: &mut Option<oneshot::Sender<()>>) -> bool {
    match role.learn_everything().await {
        Ok(is_all) => {
            if role.learned_on.swap(connection, Ordering::AcqRel) != connection {
                let placement_driver = role.drivers.name();
                tracing::info!(placement_driver, "registered with the placement driver");
            }
            if let Some(registered) = registered.take() {
                // The start has stopped waiting.
                let _ = registered.send(());
            }
            is_all
        }
        Err(refusal) => {
            tracing::warn!(
                refusal = refusal.message,
                "cannot learn from the placement driver which ranges belong to this server"
            );
            false
        }
    }
}

/// Waits until the placement driver knows of this server, but no longer than `patience`: then it says what is missing.
pub(crate) async fn until_registered(role: &RangeRole, registered: oneshot::Receiver<()>, patience: Duration) {
    if let Ok(Ok(())) = timeout(patience, registered).await {
        return;
    }
    let reason = role.drivers.last_failure();
    tracing::warn!(
        placement_driver = role.drivers.name(),
        waited = ?patience,
        reason = reason.unwrap_or_else(|| "it has not answered".to_owned()),
        "the placement driver does not know of this server yet: it places no streams here before it does; this server \
         serves what it has, and registers when it can"
    );
}
