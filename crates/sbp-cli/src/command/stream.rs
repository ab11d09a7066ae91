//! `sbp stream`

use std::time::Duration;

use sbp_client::Positions;
use sbp_messages::{KeyValue, Range, Stream as Description};
use sbp_record::StreamSchema;
use serde_json::json;

use crate::args::{Connection, Stream, StreamAction};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;
use crate::when::format_time;

pub(crate) fn run(stream: Stream, terminal: &mut Terminal) -> Result<(), CliError> {
    match stream.action {
        StreamAction::Create {
            connection,
            names,
            retention,
            properties,
        } => create(&connection, names, retention, properties, terminal),
        StreamAction::List { connection, json } => list(&connection, json, terminal),
        StreamAction::Describe {
            connection,
            stream,
            json,
        } => describe(&connection, &stream, json, terminal),
    }
}

fn create(
    connection: &Connection,
    names: Vec<String>,
    retention: Option<Duration>,
    properties: Vec<(String, String)>,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let properties: Vec<_> = properties
        .into_iter()
        .map(|(key, value)| KeyValue { key, value })
        .collect();
    let wanted = names.into_iter().map(|name| Description {
        name,
        retention_period_ms: retention.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
        properties: (!properties.is_empty()).then(|| properties.clone()),
        ..Description::default()
    });
    let mut refused = None;
    for created in session.wait(session.client.create_streams(wanted.collect(), None))? {
        match created {
            Ok(stream) => terminal.line(format_args!("{} {}", stream.stream_id, stream.name))?,
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    terminal.flush()?;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

fn list(connection: &Connection, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let streams = session.wait(session.client.list_streams(None))?;
    let ids: Vec<_> = streams.iter().map(|stream| stream.stream_id).collect();
    let positions = session.wait(session.client.positions(&ids, None))?;
    // A stream that was deleted meanwhile has no positions.
    let rows = streams.iter().zip(positions.into_iter().map(Result::ok));
    if json {
        for (stream, positions) in rows {
            terminal.line(to_json(stream, positions, &[]))?;
        }
        return terminal.flush();
    }
    let rows = rows.map(|(stream, positions)| {
        let offset = |pick: fn(Positions) -> i64| positions.map_or_else(String::new, |found| pick(found).to_string());
        vec![
            stream.stream_id.to_string(),
            stream.name.clone(),
            offset(|found| found.earliest.0),
            offset(|found| found.latest.0),
            columns(stream).map_or_else(|| "opaque".to_owned(), |columns| format!("{} columns", columns.len())),
            format_time(stream.created_at_ms),
        ]
    });
    terminal.table(
        &[">ID", "NAME", ">EARLIEST", ">LATEST", "RECORDS", "CREATED"],
        rows.collect(),
    )
}

fn describe(connection: &Connection, name: &str, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let stream = session.find(name)?;
    let found = session.wait(session.client.positions(&[stream.stream_id], None))?.pop();
    let positions = found.transpose()?;
    let ranges = session.wait(session.client.list_ranges(stream.stream_id, None))?;
    if json {
        terminal.line(to_json(&stream, positions, &ranges))?;
        return terminal.flush();
    }
    let mut facts = vec![
        vec!["id".to_owned(), stream.stream_id.to_string()],
        vec!["name".to_owned(), stream.name.clone()],
        vec!["created".to_owned(), format_time(stream.created_at_ms)],
        vec![
            "retention".to_owned(),
            retention(stream.retention_period_ms, stream.retention_bytes),
        ],
        vec![
            "replicas".to_owned(),
            format!("{}, {} acknowledge", stream.replica_nums, stream.ack_count),
        ],
    ];
    if let Some(found) = positions {
        facts.push(vec![
            "offsets".to_owned(),
            format!("{} to {}", found.earliest, found.latest),
        ]);
    }
    for property in stream.properties.iter().flatten() {
        facts.push(vec![format!("property {}", property.key), property.value.clone()]);
    }
    for (column, kind) in columns(&stream).into_iter().flatten() {
        facts.push(vec![format!("column {column}"), kind]);
    }
    terminal.table(&["", ""], facts)?;
    terminal.line("")?;
    let rows = ranges.iter().map(|range| {
        vec![
            range.range_index.to_string(),
            range.epoch.to_string(),
            range.start_offset.to_string(),
            if range.is_open() {
                "open".to_owned()
            } else {
                range.end_offset.to_string()
            },
            range.next_offset.to_string(),
            range
                .primary()
                .map_or_else(String::new, |server| server.advertise_addr.clone()),
        ]
    });
    terminal.table(
        &[">RANGE", ">EPOCH", ">START", ">END", ">NEXT", "SERVER"],
        rows.collect(),
    )
}

fn retention(period_ms: i64, bytes: i64) -> String {
    let time = if period_ms <= 0 {
        "for ever".to_owned()
    } else {
        format!("{} s", period_ms / 1_000)
    };
    if bytes > 0 {
        format!("{time}, at most {bytes} bytes")
    } else {
        time
    }
}

/// Names and types of a stream's columns; `None` when its records are opaque.
fn columns(stream: &Description) -> Option<Vec<(String, String)>> {
    let schema = StreamSchema::from_ipc(stream.schema.as_ref()?).ok()?;
    let fields = schema.arrow().fields().iter();
    Some(
        fields
            .map(|field| (field.name().clone(), field.data_type().to_string()))
            .collect(),
    )
}

fn to_json(stream: &Description, positions: Option<Positions>, ranges: &[Range]) -> serde_json::Value {
    let properties = stream.properties.iter().flatten();
    let columns = columns(stream).map(|columns| {
        columns
            .into_iter()
            .map(|(name, kind)| json!({ "name": name, "type": kind }))
            .collect::<Vec<_>>()
    });
    json!({
        "id": stream.stream_id.0,
        "name": stream.name,
        "created_at_ms": stream.created_at_ms.0,
        "retention_period_ms": stream.retention_period_ms,
        "retention_bytes": stream.retention_bytes,
        "replicas": stream.replica_nums,
        "properties": properties.map(|one| (one.key.clone(), one.value.clone().into()))
            .collect::<serde_json::Map<_, _>>(),
        "columns": columns,
        "earliest": positions.map(|found| found.earliest.0),
        "latest": positions.map(|found| found.latest.0),
        "ranges": ranges.iter().map(|range| json!({
            "index": range.range_index.0,
            "epoch": range.epoch.0,
            "start": range.start_offset.0,
            "end": (!range.is_open()).then_some(range.end_offset.0),
            "next": range.next_offset.0,
            "server": range.primary().map(|server| server.advertise_addr.clone()),
        })).collect::<Vec<_>>(),
    })
}
