//! Reports to the other members of a placement driver's cluster. Any of them may lead next, so each has to know which
//! range servers are up, and their load.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, PlacementDriverCluster,
    PlacementDriverNode, ReportMetricsRequest, ReportMetricsResponse, check_address,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::range_role::RangeRole;
use super::wire::server_record;
use crate::peer::{PeerChannel, PeerError};

/// The number of reports between two requests for the list of members.
const REPORTS_PER_QUESTION: u32 = 10;
/// The most members that are dialled; a peer that claims more is not believed.
const MOST: usize = 16;

/// Keeps a channel to each member of a cluster with several members, and sends each report to all. Ends when no more
/// reports come.
pub(super) async fn tell_members(
    role: Weak<RangeRole>,
    mut reports: watch::Receiver<Option<ReportMetricsRequest>>,
    every: Duration,
) {
    let mut channels = BTreeMap::new();
    let mut calls = JoinSet::new();
    let mut until_question = 0;
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else {
            continue;
        };
        if until_question == 0 {
            let Some(role) = role.upgrade() else { return };
            match ask(&role.channel, &report, every).await {
                Ok(cluster) => {
                    follow(&mut channels, others(&cluster.nodes), &role.channel);
                    let servers = cluster.range_servers.iter().flatten();
                    let servers = servers.filter_map(|status| status.range_server.as_ref());
                    role.locate(servers.filter_map(server_record));
                    until_question = REPORTS_PER_QUESTION;
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot ask the placement driver for the members of its cluster");
                    continue;
                }
            }
        }
        until_question -= 1;
        // Each report is sent in a task of its own, so that a placement driver that does not answer delays none of the
        // others.
        while calls.try_join_next().is_some() {}
        for channel in channels.values() {
            let (channel, report): (Arc<PeerChannel>, _) = (Arc::clone(channel), report.clone());
            calls.spawn(async move {
                let told: Result<Vec<ReportMetricsResponse>, _> = channel.call(&report, every).await;
                if let Err(error) = told {
                    tracing::debug!(%error, "a placement driver does not take the report");
                }
            });
        }
    }
}

async fn ask(
    channel: &PeerChannel,
    report: &ReportMetricsRequest,
    timeout: Duration,
) -> Result<PlacementDriverCluster, PeerError> {
    let request = DescribePlacementDriverClusterRequest {
        range_server: report.range_server.clone(),
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
    };
    let answers: Vec<DescribePlacementDriverClusterResponse> = channel.call(&request, timeout).await?;
    let mut clusters = answers.into_iter().filter_map(|answer| answer.cluster);
    Ok(clusters.next().unwrap_or_default())
}

/// The addresses to dial. The only member of a cluster is the placement driver that was asked. Of several, all are
/// dialled, because its address does not tell which of them was asked.
fn others(members: &[PlacementDriverNode]) -> Vec<&str> {
    if members.len() < 2 {
        return Vec::new();
    }
    let addresses = members.iter().map(|member| member.advertise_addr.as_str());
    addresses
        .filter(|address| check_address(address).is_ok())
        .take(MOST)
        .collect()
}

/// Keeps the channels to these addresses, drops all others, and adds the missing ones.
fn follow(channels: &mut BTreeMap<String, Arc<PeerChannel>>, addresses: Vec<&str>, like: &PeerChannel) {
    channels.retain(|known, _| addresses.contains(&known.as_str()));
    for address in addresses {
        if !channels.contains_key(address) {
            channels.insert(address.to_owned(), Arc::new(like.to(address)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(addresses: &[&str]) -> Vec<PlacementDriverNode> {
        let member = |address: &&str| PlacementDriverNode {
            advertise_addr: (*address).to_owned(),
            ..PlacementDriverNode::default()
        };
        addresses.iter().map(member).collect()
    }

    #[test]
    fn a_cluster_of_one_has_no_others_and_not_everything_is_dialled() {
        assert!(others(&members(&[])).is_empty());
        assert!(others(&members(&["a:1"])).is_empty());
        assert_eq!(others(&members(&["a:1", "b:1"])), ["a:1", "b:1"]);
        assert_eq!(others(&members(&["a:1", "0.0.0.0:1", "/etc:1", ""])), ["a:1"]);
        assert_eq!(others(&members(&["a:1"; 100])).len(), MOST);
    }
}
