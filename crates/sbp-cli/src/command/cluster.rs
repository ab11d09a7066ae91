//! `sbp cluster`

use sbp_messages::RangeServerStatus;
use serde_json::{Value, json};

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
        let servers: Vec<_> = cluster.range_servers.iter().flatten().map(server_json).collect();
        for node in &cluster.nodes {
            let mut line = json!({
                "name": node.name,
                "address": node.advertise_addr,
                "leader": node.is_leader,
            });
            if let Some(fields) = line.as_object_mut().filter(|_| node.is_leader) {
                fields.insert("range_servers".to_owned(), servers.clone().into());
            }
            terminal.line(line)?;
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
    terminal.table(&["NAME", "ADDRESS", ""], rows.collect())?;
    let Some(servers) = cluster.range_servers else {
        return Ok(());
    };
    terminal.line("")?;
    terminal.table(
        &[
            "RANGE SERVER",
            "ADDRESS",
            "",
            "SILENT FOR",
            ">OPEN RANGES",
            ">MISSING REPLICAS",
        ],
        servers.iter().map(range_server).collect(),
    )
}

fn server_json(server: &RangeServerStatus) -> Value {
    let name = server.range_server.as_ref();
    json!({
        "server_id": name.map(|name| name.server_id.0),
        "address": name.map(|name| name.advertise_addr.clone()),
        "up": server.is_up,
        "silent_ms": (server.silent_ms >= 0).then_some(server.silent_ms),
        "open_ranges": server.open_range_cnt,
        "missing_replicas": server.missing_replica_cnt,
    })
}

fn range_server(server: &RangeServerStatus) -> Vec<String> {
    let name = server.range_server.as_ref();
    vec![
        name.map_or_else(String::new, |name| name.server_id.to_string()),
        name.map_or_else(String::new, |name| name.advertise_addr.clone()),
        if server.is_up { "up" } else { "down" }.to_owned(),
        match server.silent_ms {
            ..0 => "never heard".to_owned(),
            millis => format!("{} s", millis / 1_000),
        },
        server.open_range_cnt.to_string(),
        server.missing_replica_cnt.to_string(),
    ]
}
