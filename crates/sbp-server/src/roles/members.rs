//! Reports to the other placement drivers of a cluster. Any of them may lead next, so each has to know which range servers are
//! up, and their load.

use std::sync::Weak;
use std::time::Duration;

use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, PlacementDriverCluster,
    PlacementDriverNode, ReportMetricsRequest, ReportMetricsResponse, check_address,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::drivers::{Drivers, MOST};
use super::range_role::RangeRole;
use super::wire::server_record;
use crate::peer::PeerError;

/// The number of reports between two requests for the list of members.
const REPORTS_PER_QUESTION: u32 = 10;

/// Keeps a channel to each placement driver of the cluster, and sends each report to all but the one that gets it anyway. Ends
/// when no more reports come.
pub(super) async fn tell_members(
    role: Weak<RangeRole>,
    mut reports: watch::Receiver<Option<ReportMetricsRequest>>,
    every: Duration,
) {
    let mut calls = JoinSet::new();
    let mut until_question = 0;
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else {
            continue;
        };
        let Some(role) = role.upgrade() else { return };
        // Each report is sent in a task of its own, so that a placement driver that does not answer delays none of the
        // others.
        while calls.try_join_next().is_some() {}
        for channel in role.drivers.others() {
            let report = report.clone();
            calls.spawn(async move {
                let told: Result<Vec<ReportMetricsResponse>, _> = channel.call(&report, every).await;
                if let Err(error) = told {
                    tracing::debug!(%error, "a placement driver does not take the report");
                }
            });
        }
        if until_question > 0 {
            until_question -= 1;
            continue;
        }
        match ask(&role.drivers, &report, every).await {
            Ok(cluster) => {
                role.drivers.know(&members(&cluster.nodes));
                let servers = cluster.range_servers.iter().flatten();
                let servers = servers.filter_map(|status| status.range_server.as_ref());
                role.locate(servers.filter_map(server_record));
                until_question = REPORTS_PER_QUESTION;
            }
            Err(error) => {
                tracing::debug!(%error, "cannot ask the placement driver for the members of its cluster");
            }
        }
    }
}

/// Keeps a channel to each placement driver that lives, as the one in the same process knows them. Ends with either.
pub(crate) async fn follow_members(role: Weak<RangeRole>, mut drivers: watch::Receiver<Vec<String>>) {
    loop {
        {
            let Some(role) = role.upgrade() else { return };
            let living = drivers.borrow_and_update();
            role.drivers.know(&dialled(living.iter().map(String::as_str)));
        }
        if drivers.changed().await.is_err() {
            return;
        }
    }
}

async fn ask(
    drivers: &Drivers,
    report: &ReportMetricsRequest,
    timeout: Duration,
) -> Result<PlacementDriverCluster, PeerError> {
    let request = DescribePlacementDriverClusterRequest {
        range_server: report.range_server.clone(),
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
    };
    let answers: Vec<DescribePlacementDriverClusterResponse> = drivers.call(&request, timeout).await?;
    let mut clusters = answers.into_iter().filter_map(|answer| answer.cluster);
    Ok(clusters.next().unwrap_or_default())
}

/// The addresses to dial. The only member of a cluster is the placement driver that was asked, perhaps under another address
/// than it is dialled at.
fn members(members: &[PlacementDriverNode]) -> Vec<&str> {
    if members.len() < 2 {
        return Vec::new();
    }
    dialled(members.iter().map(|member| member.advertise_addr.as_str()))
}

fn dialled<'a>(addresses: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    addresses
        .filter(|address| check_address(address).is_ok())
        .take(MOST)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(addresses: &[&str]) -> Vec<PlacementDriverNode> {
        let member = |address: &&str| PlacementDriverNode {
            advertise_addr: (*address).to_owned(),
            ..PlacementDriverNode::default()
        };
        addresses.iter().map(member).collect()
    }

    #[test]
    fn a_cluster_of_one_has_no_others_and_not_everything_is_dialled() {
        assert!(members(&nodes(&[])).is_empty());
        assert!(members(&nodes(&["a:1"])).is_empty());
        assert_eq!(members(&nodes(&["a:1", "b:1"])), ["a:1", "b:1"]);
        assert_eq!(members(&nodes(&["a:1", "0.0.0.0:1", "/etc:1", ""])), ["a:1"]);
        assert_eq!(members(&nodes(&["a:1"; 100])).len(), MOST);
    }
}
