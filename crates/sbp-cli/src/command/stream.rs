//! `sbp stream`

mod change;

use std::time::Duration;

use arrow_schema::Schema;
use sbp_client::{ClientError, Positions};
use sbp_messages::{ErrorCode, KeyValue, Stream as Description};
use sbp_record::StreamSchema;
use serde_json::json;

use crate::args::{Connection, CreateStreams, Stream, StreamAction};
use crate::command::range;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;
use crate::when::{format_time, millis};

/// How long a list waits for servers that do not answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(stream: Stream, terminal: &mut Terminal) -> Result<(), CliError> {
    match stream.action {
        StreamAction::Create(asked) => create(asked, terminal),
        StreamAction::List { connection, json } => list(&connection, json, terminal),
        StreamAction::Describe {
            connection,
            stream,
            json,
        } => describe(&connection, &stream, json, terminal),
        StreamAction::Update(asked) => change::update(asked, terminal),
        StreamAction::Delete { connection, streams } => change::delete(&connection, &streams, terminal),
        StreamAction::Trim {
            connection,
            stream,
            before,
        } => change::trim(&connection, &stream, before, terminal),
        StreamAction::Seal {
            connection,
            stream,
            range,
            leave_sealed,
        } => change::seal(&connection, &stream, range, leave_sealed, terminal),
    }
}

fn create(asked: CreateStreams, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.connection)?;
    let properties = key_values(asked.properties);
    let schema = (!asked.columns.is_empty())
        .then(|| StreamSchema::from_arrow(&Schema::new(asked.columns)).map(|schema| schema.to_ipc()))
        .transpose()?;
    let wanted = asked.names.into_iter().map(|name| Description {
        name,
        retention_period_ms: asked.retention.map_or(0, millis),
        retention_bytes: asked.retention_bytes.unwrap_or(0),
        replica_nums: asked.replicas.unwrap_or(0),
        ack_count: asked.acks.unwrap_or(0),
        properties: (!properties.is_empty()).then(|| properties.clone()),
        schema: schema.clone().map(Into::into),
        ..Description::default()
    });
    let created = session.wait(session.client.create_streams(wanted.collect(), None))?;
    each(created, terminal, |stream, terminal| {
        caution(&stream, terminal);
        terminal.line(format_args!("{} {}", stream.stream_id, stream.name))
    })
}

fn caution(stream: &Description, terminal: &mut Terminal) {
    if let Some(caution) = sbp_client::caution_about_copies(stream) {
        terminal.warn(&caution);
    }
}

/// Shows what was done, entry by entry, and then fails with the first refusal.
fn each<T>(
    entries: Vec<Result<T, ClientError>>,
    terminal: &mut Terminal,
    mut show: impl FnMut(T, &mut Terminal) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut refused = None;
    for entry in entries {
        match entry {
            Ok(done) => show(done, terminal)?,
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    terminal.flush()?;
    refused.map_or(Ok(()), |error| Err(error.into()))
}

fn key_values(properties: Vec<(String, String)>) -> Vec<KeyValue> {
    let pairs = properties.into_iter();
    pairs.map(|(key, value)| KeyValue { key, value }).collect()
}

fn list(connection: &Connection, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let streams = session.wait(session.client.list_streams(None))?;
    let ids: Vec<_> = streams.iter().map(|stream| stream.stream_id).collect();
    let timeout = connection.timeout.min(PATIENCE);
    let positions = session.wait(session.client.positions_that_are_known(&ids, Some(timeout)))?;
    let mut unknown = Vec::new();
    let rows = streams
        .iter()
        .zip(positions)
        .map(|(stream, positions)| match positions {
            Ok(found) => (stream, Some(found), None),
            // It was deleted meanwhile.
            Err(error) if error.code() == ErrorCode::NOT_FOUND => (stream, None, None),
            Err(error) => {
                let error = error.with_stream_name(&stream.name);
                unknown.push(error.clone());
                (stream, None, Some(error))
            }
        });
    let rows: Vec<_> = rows.collect();
    if json {
        for (stream, positions, error) in rows {
            let mut line = to_json(stream, positions, &[]);
            if let (Some(error), Some(line)) = (error, line.as_object_mut()) {
                line.insert("error".to_owned(), error.to_string().into());
            }
            terminal.line(line)?;
        }
        terminal.flush()?;
        return all_known(unknown, streams.len());
    }
    let rows = rows.into_iter().map(|(stream, positions, _)| {
        let offset = |pick: fn(Positions) -> i64| positions.map_or_else(String::new, |found| pick(found).to_string());
        vec![
            stream.stream_id.to_string(),
            stream.name.clone(),
            offset(|found| found.earliest.0),
            offset(|found| found.latest.0),
            columns(stream).map_or_else(
                || "key, value, headers".to_owned(),
                |columns| format!("{} columns", columns.len()),
            ),
            stream.replica_nums.to_string(),
            format_time(stream.created_at_ms),
        ]
    });
    terminal.table(
        &[">ID", "NAME", ">EARLIEST", ">LATEST", "RECORDS", ">REPLICAS", "CREATED"],
        rows.collect(),
    )?;
    all_known(unknown, streams.len())
}

/// An error that names the streams whose positions are not known, if there are any.
fn all_known(unknown: Vec<ClientError>, of: usize) -> Result<(), CliError> {
    if unknown.is_empty() {
        return Ok(());
    }
    Err(CliError::UnknownPositions { unknown, of })
}

fn describe(connection: &Connection, name: &str, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let stream = session.find(name)?;
    let found = session.wait(session.client.positions(&[stream.stream_id], None))?.pop();
    let positions = found.transpose()?;
    let ranges = session.wait(session.client.list_ranges(stream.stream_id, None))?;
    let ranges = range::with_ends(&session, ranges)?;
    if json {
        terminal.line(to_json(&stream, positions, &ranges))?;
        return terminal.flush();
    }
    let mut facts = vec![
        vec!["id".to_owned(), stream.stream_id.to_string()],
        vec!["name".to_owned(), stream.name.clone()],
        vec!["identity".to_owned(), identity(&stream).unwrap_or_default()],
        vec!["created".to_owned(), format_time(stream.created_at_ms)],
        vec![
            "retention".to_owned(),
            retention(stream.retention_period_ms, stream.retention_bytes),
        ],
        vec!["replicas".to_owned(), replicas(&stream)],
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
    range::table(&ranges, false, terminal)
}

fn replicas(stream: &Description) -> String {
    let verb = if stream.ack_count == 1 {
        "acknowledges"
    } else {
        "acknowledge"
    };
    format!("{}, {} {verb}", stream.replica_nums, stream.ack_count)
}

fn identity(stream: &Description) -> Option<String> {
    stream.identity.map(|identity| identity.to_string())
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

/// Names and types of a stream's columns; `None` where records have a key, a value and headers instead.
fn columns(stream: &Description) -> Option<Vec<(String, String)>> {
    let schema = StreamSchema::from_ipc(stream.schema.as_ref()?).ok()?;
    let fields = schema.arrow().fields().iter();
    Some(
        fields
            .map(|field| (field.name().clone(), field.data_type().to_string()))
            .collect(),
    )
}

fn to_json(stream: &Description, positions: Option<Positions>, ranges: &[range::Shown]) -> serde_json::Value {
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
        "identity": identity(stream),
        "created_at_ms": stream.created_at_ms.0,
        "retention_period_ms": stream.retention_period_ms,
        "retention_bytes": stream.retention_bytes,
        "replicas": stream.replica_nums,
        "acks": stream.ack_count,
        "properties": properties.map(|one| (one.key.clone(), one.value.clone().into()))
            .collect::<serde_json::Map<_, _>>(),
        "columns": columns,
        "earliest": positions.map(|found| found.earliest.0),
        "latest": positions.map(|found| found.latest.0),
        "ranges": ranges.iter().map(range::to_json).collect::<Vec<_>>(),
    })
}
