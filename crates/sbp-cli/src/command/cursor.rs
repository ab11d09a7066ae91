//! `sbp cursor`

use std::sync::Arc;

use sbp_client::{CURSOR_PREFIX, CommittedPlace, CursorOptions, Position, Positions};
use sbp_messages::Stream;
use sbp_types::Offset;
use serde_json::json;

use crate::args::{Connection, Cursor, CursorAction};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

pub(crate) fn run(cursor: Cursor, terminal: &mut Terminal) -> Result<(), CliError> {
    match cursor.action {
        CursorAction::List { connection } => list(&connection, terminal),
        CursorAction::Show { connection, name, json } => show(&connection, &name, json, terminal),
        CursorAction::Set {
            connection,
            name,
            streams,
            to,
            replaced,
        } => set(&connection, &name, &streams, to, replaced, terminal),
        CursorAction::Forget { connection, name } => forget(&connection, &name, terminal),
    }
}

fn list(connection: &Connection, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    for stream in session.wait(session.client.list_streams(None))? {
        if let Some(name) = stream.name.strip_prefix(CURSOR_PREFIX) {
            terminal.line(name)?;
        }
    }
    terminal.flush()
}

fn show(connection: &Connection, name: &str, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let places = session.wait(session.client.committed(name, None))?;
    let ids: Vec<_> = places.iter().map(|place| place.stream).collect();
    let held = session.wait(session.client.positions(&ids, None))?;
    // A stream that was deleted has no positions.
    let rows = places.iter().zip(held.into_iter().map(Result::ok));
    let behind = |place: &CommittedPlace, held: Positions| held.latest.distance_from(place.next);
    if json {
        for (place, held) in rows {
            terminal.line(json!({
                "stream": place.stream.0,
                "name": place.name,
                "identity": place.identity.map(|identity| identity.to_string()),
                "next": place.next.0,
                "latest": held.map(|held| held.latest.0),
                "behind": held.map(|held| behind(place, held)),
            }))?;
        }
        return terminal.flush();
    }
    let rows = rows.map(|(place, held)| {
        vec![
            place.stream.to_string(),
            place.name.clone(),
            place.next.to_string(),
            held.map_or_else(|| "deleted".to_owned(), |held| held.latest.to_string()),
            held.map_or_else(String::new, |held| behind(place, held).to_string()),
        ]
    });
    terminal.table(&[">ID", "NAME", ">NEXT", ">LATEST", ">BEHIND"], rows.collect())
}

fn set(
    connection: &Connection,
    name: &str,
    streams: &[String],
    to: Position,
    replaced: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let found = streams.iter().map(|stream| session.find(stream));
    let found: Vec<Arc<Stream>> = found.collect::<Result<_, _>>()?;
    let wanted: Vec<_> = found.iter().map(|stream| (stream.stream_id, to)).collect();
    let offsets = session.wait(session.client.settle(&wanted, None))?;
    let offsets: Vec<Offset> = offsets.into_iter().collect::<Result<_, _>>()?;
    let places = found.iter().map(|stream| stream.stream_id).zip(offsets.iter().copied());
    let places = places.collect();
    session.wait(async {
        let options = CursorOptions {
            forget_replaced: replaced,
            ..CursorOptions::default()
        };
        let opened = session.client.cursor(name, found.clone(), options);
        opened.await?.commit(places, None).await
    })?;
    for (stream, offset) in found.iter().zip(&offsets) {
        terminal.line(format_args!("{name} goes on at {offset} of {}", stream.name))?;
    }
    terminal.flush()
}

fn forget(connection: &Connection, name: &str, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let stream = session.find(&format!("{CURSOR_PREFIX}{name}"))?;
    let deleted = session.wait(session.client.delete_streams(&[stream.stream_id], None))?;
    deleted.into_iter().collect::<Result<Vec<_>, _>>()?;
    terminal.line(format_args!("forgot {name}"))?;
    terminal.flush()
}
