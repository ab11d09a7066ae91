//! `sbp cluster`

use serde_json::json;

use crate::args::{Cluster, ClusterAction};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

pub(crate) fn run(asked: &Cluster, terminal: &mut Terminal) -> Result<(), CliError> {
    if let Some(ClusterAction::Status(watched)) = &asked.action {
        return super::server::cluster_status(watched, terminal);
    }
    let session = Session::new(&asked.connection)?;
    let cluster = session.wait(session.client.describe_cluster(None))?;
    if asked.json {
        for node in &cluster.nodes {
            terminal.line(json!({
                "name": node.name,
                "address": node.advertise_addr,
                "leader": node.is_leader,
            }))?;
        }
        return terminal.flush();
    }
    let rows = cluster.nodes.iter().map(|node| {
        vec![
            node.name.clone(),
            node.advertise_addr.clone(),
            if node.is_leader { "leader" } else { "" }.to_owned(),
        ]
    });
    terminal.table(&["NAME", "ADDRESS", ""], rows.collect())
}
