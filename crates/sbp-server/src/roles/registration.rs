//! How a range server makes itself known to its placement driver, and stays known.

use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use sbp_messages::{
    ClientRole, HeartbeatRequest, IdAllocationRequest, IdAllocationResponse, RangeServer, ReportMetricsResponse,
};
use sbp_types::ServerId;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::members::tell_members;
use super::metrics::Sample;
use super::range_role::RangeRole;
use crate::node::Node;
use crate::peer::{PeerError, PeerLink};
use crate::placement::Load;

/// The protocol's revision that is spoken among servers.
const REVISION: i32 = 1;
/// Reports between two looks at everything that belongs here: what a lost message would have told is found by then.
const REPORTS_PER_LOOK: u32 = 10;

/// What a server tells another one first.
pub(crate) fn greeting(role: ClientRole, server: Option<RangeServer>) -> HeartbeatRequest {
    let name = server.as_ref().map_or("placement-driver", |_| "range-server");
    HeartbeatRequest {
        client_id: format!("{name}@{}", std::process::id()),
        client_role: role,
        range_server: server,
        protocol_revision: REVISION,
        ..HeartbeatRequest::default()
    }
}

/// Asks for a number that no server had before.
pub(crate) async fn allocate_id(link: &PeerLink, host: &str, patience: Duration) -> Result<ServerId, PeerError> {
    let request = IdAllocationRequest {
        timeout_ms: 0,
        host: host.to_owned(),
    };
    let answers: Vec<IdAllocationResponse> = link.call(&request, patience).await?;
    let unusable = |what: String| PeerError::Unusable {
        peer: "the placement driver".to_owned(),
        what,
    };
    match answers.first() {
        Some(answer) if answer.status.is_success() && answer.id > 0 => Ok(ServerId(answer.id)),
        Some(answer) if !answer.status.is_success() => Err(PeerError::Refused {
            peer: "the placement driver".to_owned(),
            status: answer.status.clone(),
        }),
        _ => Err(unusable("it has no number".to_owned())),
    }
}

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

/// Tells a placement driver how the range server in its own process does, which counts like the figures of others. Ends
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
        placement.report(id, Load::from(&report));
    }
}
