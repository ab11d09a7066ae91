//! `sbp range`

use sbp_messages::{Range as Description, RangeCriteria, RangeId, RangeServer, ReplicaState};
use sbp_types::{Offset, ServerId, StreamId};
use serde_json::{Value, json};

use crate::args::{Connection, Range, RangeAction};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

pub(crate) fn run(range: Range, terminal: &mut Terminal) -> Result<(), CliError> {
    match range.action {
        RangeAction::List {
            connection,
            streams,
            server,
            json,
        } => list(&connection, &streams, server, json, terminal),
    }
}

fn list(
    connection: &Connection,
    streams: &[String],
    server: Option<i32>,
    json: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let server = server.map(|id| RangeServer {
        server_id: ServerId(id),
        ..RangeServer::default()
    });
    let criteria = |stream_id| RangeCriteria {
        stream_id,
        range_server: server.clone(),
    };
    let criteria: Vec<_> = if !streams.is_empty() {
        let ids = streams.iter().map(|name| Ok(session.find(name)?.stream_id));
        let ids: Vec<StreamId> = ids.collect::<Result<_, CliError>>()?;
        ids.into_iter().map(|id| criteria(Some(id))).collect()
    } else if server.is_some() {
        vec![criteria(None)]
    } else {
        let all = session.wait(session.client.list_streams(None))?;
        all.iter().map(|stream| criteria(Some(stream.stream_id))).collect()
    };
    let mut ranges = Vec::new();
    for listed in session.wait(session.client.list_ranges_by(&criteria, None))? {
        ranges.extend(listed?);
    }
    let ranges = with_ends(&session, ranges)?;
    if json {
        for range in &ranges {
            let mut object = to_json(range);
            if let Some(fields) = object.as_object_mut() {
                fields.insert("stream".to_owned(), range.listed.stream_id.0.into());
            }
            terminal.line(object)?;
        }
        return terminal.flush();
    }
    table(&ranges, true, terminal)
}

/// A range as it is listed, and where it ends by now.
pub(crate) struct Shown {
    listed: Description,
    /// `None` where its server does not tell.
    next: Option<Offset>,
}

/// Asks where the ranges end that are open: a list says only what the placement driver knows.
pub(crate) fn with_ends(session: &Session, ranges: Vec<Description>) -> Result<Vec<Shown>, CliError> {
    let open = ranges.iter().filter(|range| range.end().is_none());
    let open: Vec<_> = open
        .map(|range| RangeId {
            stream_id: range.stream_id,
            range_index: Some(range.range_index),
            ..RangeId::default()
        })
        .collect();
    let told = match open.is_empty() {
        true => Vec::new(),
        false => session.wait(session.client.describe_ranges(&open, None))?,
    };
    let mut told = told.into_iter();
    let shown = ranges.into_iter().map(|listed| {
        let next = listed.end().or_else(|| told.next()?.ok().map(|now| now.next_offset));
        Shown { listed, next }
    });
    Ok(shown.collect())
}

/// A row for each range, with its stream or without.
pub(crate) fn table(ranges: &[Shown], with_stream: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let skip = usize::from(!with_stream);
    let rows = ranges.iter().map(|Shown { listed: range, next }| {
        let cells = [
            range.stream_id.to_string(),
            range.range_index.to_string(),
            range.epoch.map_or_else(String::new, |epoch| epoch.to_string()),
            range.start_offset.to_string(),
            range.end().map_or_else(|| "open".to_owned(), |end| end.to_string()),
            next.map_or_else(String::new, |next| next.to_string()),
            servers_with_state(range).join(", "),
        ];
        cells.into_iter().skip(skip).collect()
    });
    let titles = [">STREAM", ">RANGE", ">EPOCH", ">START", ">END", ">NEXT", "SERVERS"];
    terminal.table(titles.get(skip..).unwrap_or_default(), rows.collect())
}

/// The servers of a range, the primary first: where each is, and whether it may lack some of the range.
fn replicas(range: &Description) -> impl Iterator<Item = (&str, bool)> {
    let of = |is_primary| {
        let replicas = range.servers.iter();
        let wanted = replicas.filter(move |replica| replica.is_primary == is_primary);
        wanted.filter_map(|replica| Some((replica.range_server.as_ref()?, replica.state == ReplicaState::COPYING)))
    };
    let all = of(true).chain(of(false));
    all.map(|(server, is_incomplete)| (server.advertise_addr.as_str(), is_incomplete))
}

/// Where the servers of a range are, the primary first, and which of them may lack some of it.
fn servers_with_state(range: &Description) -> Vec<String> {
    let text = |(address, is_incomplete): (&str, bool)| match is_incomplete {
        true => format!("{address} (incomplete)"),
        false => address.to_owned(),
    };
    replicas(range).map(text).collect()
}

pub(crate) fn to_json(Shown { listed: range, next }: &Shown) -> Value {
    let server = range.primary();
    json!({
        "index": range.range_index.0,
        "epoch": range.epoch.map(|epoch| epoch.0),
        "start": range.start_offset.0,
        "end": range.end().map(|end| end.0),
        "next": next.map(|next| next.0),
        "server": server.map(|server| server.advertise_addr.clone()),
        "server_id": server.map(|server| server.server_id.0),
        "servers": replicas(range).map(|(address, _)| address).collect::<Vec<_>>(),
        "incomplete": replicas(range).filter_map(|(address, lacks)| lacks.then_some(address)).collect::<Vec<_>>(),
        "replicas": range.replica_count,
        "acks": range.ack_count,
    })
}
