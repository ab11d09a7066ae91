//! `sbp cluster status`: who leads, and how range servers and their ranges are.

use sbp_messages::{PlacementDriverCluster, RangeServerStatus, ServerState};
use sbp_types::ClusterId;
use serde_json::{Value, json};

use crate::args::Connection;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

/// Shows everything: as tables, or as one JSON object.
pub(crate) fn run(connection: &Connection, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let cluster = session.wait(session.client.describe_cluster(None))?;
    let id = session.client.features().and_then(|features| features.cluster);
    if json {
        terminal.line(to_json(id, &cluster))?;
        return terminal.flush();
    }
    if let Some(id) = id {
        terminal.line(format_args!("Cluster {id}"))?;
        terminal.line("")?;
    }
    let rows = cluster.nodes.iter().map(|node| {
        vec![
            node.name.clone(),
            node.advertise_addr.clone(),
            if node.is_leader { "leader" } else { "" }.to_owned(),
        ]
    });
    terminal.table(&["NAME", "ADDRESS", ""], rows.collect())?;
    if let Some(store) = &cluster.metadata_store {
        terminal.line("")?;
        let rows = store.iter().map(|member| {
            let answers = if member.is_up { "answers" } else { "does not answer" };
            vec![member.address.clone(), answers.to_owned(), member.trouble.clone()]
        });
        terminal.table(&["METADATA STORE", "", ""], rows.collect())?;
    }
    let Some(servers) = &cluster.range_servers else {
        terminal.line("")?;
        terminal.line("No leader tells of range servers at the moment.")?;
        return terminal.flush();
    };
    terminal.line("")?;
    let mut header = vec![
        "RANGE SERVER",
        "ADDRESS",
        "STATE",
        ">PRIMARY OF",
        ">FOLLOWS IN",
        ">SEALED",
        ">INCOMPLETE",
        ">MISSING REPLICAS",
        ">DISK FREE",
    ];
    let mut rows: Vec<_> = servers.iter().map(row).collect();
    if servers.iter().any(|server| zone(server).is_some()) {
        header.insert(2, "ZONE");
        for (row, server) in rows.iter_mut().zip(servers) {
            row.insert(2, zone(server).unwrap_or("-").to_owned());
        }
    }
    terminal.table(&header, rows)?;
    terminal.line("")?;
    terminal.line(format_args!(
        "{} open ranges lack replicas; {} copies of sealed ranges are being made, {} sealed ranges wait for one",
        lacking(servers),
        cluster.copying_range_cnt,
        cluster.waiting_range_cnt
    ))?;
    for server in servers {
        show_stuck(server, terminal)?;
        if let Some(withheld) = withheld(server) {
            terminal.line(withheld)?;
        }
    }
    terminal.flush()
}

/// One JSON object for each placement driver, as programs know them: range servers are with the leader.
pub(crate) fn members(connection: &Connection, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let cluster = session.wait(session.client.describe_cluster(None))?;
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
    terminal.flush()
}

/// The first ranges that cannot be moved from a server, each in a line.
pub(super) fn show_stuck(server: &RangeServerStatus, terminal: &mut Terminal) -> Result<(), CliError> {
    for stuck in &server.stuck {
        terminal.line(format_args!(
            "range {}/{} stays on server {}: {}",
            stuck.stream_id,
            stuck.range_index,
            number(server),
            stuck.reason
        ))?;
    }
    let named = i32::try_from(server.stuck.len()).unwrap_or(i32::MAX);
    let more = server.stuck_range_cnt.saturating_sub(named);
    if more > 0 {
        terminal.line(format_args!("and {more} more ranges stay on server {}", number(server)))?;
    }
    Ok(())
}

/// What a server keeps of streams that the placement driver does not know, in words; `None` if nothing.
fn withheld(server: &RangeServerStatus) -> Option<String> {
    let RangeServerStatus {
        withheld_range_cnt: ranges,
        withheld_bytes: bytes,
        ..
    } = server;
    (*ranges > 0).then(|| {
        format!(
            "server {} keeps {ranges} ranges with {bytes} bytes that it does not serve: the placement driver does not know their \
             streams",
            number(server)
        )
    })
}

fn number(server: &RangeServerStatus) -> String {
    let name = server.range_server.as_ref();
    name.map_or_else(String::new, |name| name.server_id.to_string())
}

/// Where a server stands, if it says so.
fn zone(server: &RangeServerStatus) -> Option<&str> {
    let name = server.range_server.as_ref()?;
    Some(name.zone.as_str()).filter(|zone| !zone.is_empty())
}

fn lacking(servers: &[RangeServerStatus]) -> i64 {
    servers.iter().map(|server| i64::from(server.missing_replica_cnt)).sum()
}

/// What a server is at the moment, for people.
fn state(server: &RangeServerStatus) -> String {
    let life = match (server.is_up, server.silent_ms) {
        (true, _) => "up".to_owned(),
        (false, ..0) => "down, never heard".to_owned(),
        (false, millis) => format!("down for {} s", millis / 1_000),
    };
    match (server.state, server.held_range_cnt()) {
        (ServerState::DRAINING, 0) => format!("{life}, drained"),
        (ServerState::DRAINING, _) => format!("{life}, draining"),
        _ => life,
    }
}

fn row(server: &RangeServerStatus) -> Vec<String> {
    let name = server.range_server.as_ref();
    vec![
        number(server),
        name.map_or_else(String::new, |name| name.advertise_addr.clone()),
        state(server),
        server.open_range_cnt.to_string(),
        server.follower_range_cnt.to_string(),
        server.sealed_range_cnt.to_string(),
        server.incomplete_range_cnt.to_string(),
        server.missing_replica_cnt.to_string(),
        match server.disk_free_space {
            ..0 => String::new(),
            bytes => format!("{} MiB", bytes >> 20),
        },
    ]
}

fn server_json(server: &RangeServerStatus) -> Value {
    let name = server.range_server.as_ref();
    let stuck = server.stuck.iter().map(|stuck| {
        json!({
            "stream": stuck.stream_id.0,
            "range": stuck.range_index.0,
            "reason": stuck.reason,
        })
    });
    json!({
        "server_id": name.map(|name| name.server_id.0),
        "address": name.map(|name| name.advertise_addr.clone()),
        "zone": zone(server),
        "up": server.is_up,
        "draining": server.state == ServerState::DRAINING,
        "drained": server.state == ServerState::DRAINING && server.held_range_cnt() == 0,
        "silent_ms": (server.silent_ms >= 0).then_some(server.silent_ms),
        "open_ranges": server.open_range_cnt,
        "followed_ranges": server.follower_range_cnt,
        "sealed_ranges": server.sealed_range_cnt,
        "incomplete_ranges": server.incomplete_range_cnt,
        "missing_replicas": server.missing_replica_cnt,
        "free_bytes": (server.disk_free_space >= 0).then_some(server.disk_free_space),
        "stuck_ranges": server.stuck_range_cnt,
        "stuck": stuck.collect::<Vec<_>>(),
        "withheld_ranges": server.withheld_range_cnt,
        "withheld_bytes": server.withheld_bytes,
    })
}

fn to_json(id: Option<ClusterId>, cluster: &PlacementDriverCluster) -> Value {
    let members = cluster.nodes.iter().map(|node| {
        json!({
            "name": node.name,
            "address": node.advertise_addr,
            "leader": node.is_leader,
        })
    });
    let store = cluster.metadata_store.as_ref().map(|store| {
        let member = |member: &sbp_messages::MetadataStoreMember| {
            json!({
                "address": member.address,
                "up": member.is_up,
                "trouble": (!member.trouble.is_empty()).then(|| member.trouble.clone()),
            })
        };
        store.iter().map(member).collect::<Vec<_>>()
    });
    let servers = cluster.range_servers.as_ref();
    json!({
        "cluster_id": id.map(|id| id.to_string()),
        "members": members.collect::<Vec<_>>(),
        "leader": cluster.leader().map(|node| node.advertise_addr.clone()),
        "term": cluster.term,
        "metadata_store": store,
        "range_servers": servers.map(|servers| servers.iter().map(server_json).collect::<Vec<_>>()),
        "ranges_lacking_replicas": servers.map(|servers| lacking(servers)),
        "copies_under_way": cluster.copying_range_cnt,
        "ranges_waiting_for_a_copy": cluster.waiting_range_cnt,
    })
}

#[cfg(test)]
mod tests {
    use sbp_messages::RangeServer;
    use sbp_types::ServerId;

    use super::*;

    #[test]
    fn what_a_server_keeps_and_does_not_serve_is_told_where_there_is_any() {
        let mut server = RangeServerStatus {
            range_server: Some(RangeServer {
                server_id: ServerId(3),
                ..RangeServer::default()
            }),
            ..RangeServerStatus::default()
        };
        assert_eq!(withheld(&server), None);
        (server.withheld_range_cnt, server.withheld_bytes) = (2, 4_096);
        let told = withheld(&server).unwrap();
        assert!(
            told.starts_with("server 3 keeps 2 ranges with 4096 bytes that it does not serve"),
            "{told}"
        );
        let json = server_json(&server);
        assert_eq!(
            (&json["withheld_ranges"], &json["withheld_bytes"]),
            (&json!(2), &json!(4_096))
        );
    }
}
