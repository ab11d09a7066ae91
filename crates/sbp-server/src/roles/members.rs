//! The other members of a placement driver's cluster: whichever leads next has to know which range servers are up, and
//! how they do, so each of them is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, PlacementDriverNode,
    ReportMetricsRequest, ReportMetricsResponse, check_address,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::range_role::RangeRole;
use crate::peer::{PeerError, PeerLink};

/// Reports between two questions who the members are.
const REPORTS_PER_QUESTION: u32 = 10;
/// More members than any cluster has; what a peer claims beyond is not believed.
const MOST: usize = 16;

/// Greets all members of a cluster of several, and passes each report on to them. Ends when reports do.
pub(super) async fn tell_members(
    role: Weak<RangeRole>,
    mut reports: watch::Receiver<Option<ReportMetricsRequest>>,
    every: Duration,
) {
    let mut links = BTreeMap::new();
    let mut calls = JoinSet::new();
    let mut until_question = 0;
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else {
            continue;
        };
        if until_question == 0 {
            let Some(role) = role.upgrade() else { return };
            match ask(&role.link, &report, every).await {
                Ok(members) => {
                    follow(&mut links, others(&members), &role.link);
                    until_question = REPORTS_PER_QUESTION;
                }
                Err(error) => {
                    tracing::debug!(%error, "the placement driver does not say who its members are");
                    continue;
                }
            }
        }
        until_question -= 1;
        // A placement driver that does not answer delays none of the others; the next report goes to it all the same.
        while calls.try_join_next().is_some() {}
        for link in links.values() {
            let (link, report): (Arc<PeerLink>, _) = (Arc::clone(link), report.clone());
            calls.spawn(async move {
                let told: Result<Vec<ReportMetricsResponse>, _> = link.call(&report, every).await;
                if let Err(error) = told {
                    tracing::debug!(%error, "a placement driver does not take the report");
                }
            });
        }
    }
}

async fn ask(
    link: &PeerLink,
    report: &ReportMetricsRequest,
    timeout: Duration,
) -> Result<Vec<PlacementDriverNode>, PeerError> {
    let request = DescribePlacementDriverClusterRequest {
        range_server: report.range_server.clone(),
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
    };
    let answers: Vec<DescribePlacementDriverClusterResponse> = link.call(&request, timeout).await?;
    let clusters = answers.into_iter().filter_map(|answer| answer.cluster);
    Ok(clusters.flat_map(|cluster| cluster.nodes).collect())
}

/// Whom to dial. A cluster of one is whoever was asked; of several, all of them, because which one was asked cannot be told
/// from its address.
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

/// Keeps the links to these, drops those to others, and adds what is missing.
fn follow(links: &mut BTreeMap<String, Arc<PeerLink>>, addresses: Vec<&str>, like: &PeerLink) {
    links.retain(|known, _| addresses.contains(&known.as_str()));
    for address in addresses {
        if !links.contains_key(address) {
            links.insert(address.to_owned(), Arc::new(like.to(address)));
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
