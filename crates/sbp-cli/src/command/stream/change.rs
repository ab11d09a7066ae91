//! What changes streams that are there.

use std::sync::Arc;

use sbp_client::{ClientError, Position};
use sbp_messages::{RangeId, SealKind, Stream as Description};
use sbp_types::RangeIndex;

use super::{each, key_values};
use crate::args::{Connection, UpdateStream};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

pub(super) fn update(asked: UpdateStream, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.connection)?;
    let now = session.find(&asked.stream)?;
    let properties = key_values(asked.properties);
    let wanted = Description {
        stream_id: now.stream_id,
        name: asked.name.unwrap_or_default(),
        // Always taken, so what stays must be said.
        retention_period_ms: asked.retention.unwrap_or(now.retention_period_ms),
        retention_bytes: asked.retention_bytes.unwrap_or(0),
        replica_nums: asked.replicas.unwrap_or(0),
        ack_count: asked.acks.unwrap_or(0),
        properties: (asked.no_properties || !properties.is_empty()).then_some(properties),
        ..Description::default()
    };
    let changes_copies = asked.replicas.is_some() || asked.acks.is_some();
    let updated = session.wait(session.client.update_streams(vec![wanted], None))?;
    each(updated, terminal, |stream, terminal| {
        if changes_copies {
            super::caution(&stream, terminal);
        }
        let kept = super::retention(stream.retention_period_ms, stream.retention_bytes);
        terminal.line(format_args!("{} {}, kept {kept}", stream.stream_id, stream.name))
    })
}

pub(super) fn delete(connection: &Connection, names: &[String], terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    // All are found before the first is deleted.
    let found = names.iter().map(|name| session.find(name));
    let found: Vec<Arc<Description>> = found.collect::<Result<_, _>>()?;
    let ids: Vec<_> = found.iter().map(|stream| stream.stream_id).collect();
    let deleted = session.wait(session.client.delete_streams(&ids, None))?;
    let mut names = found.iter();
    each(deleted, terminal, |stream, terminal| {
        let name = names.find(|found| found.stream_id == stream.stream_id);
        let name = name.map_or("", |found| found.name.as_str());
        terminal.line(format_args!("deleted {} {name}", stream.stream_id))
    })
}

pub(super) fn trim(
    connection: &Connection,
    name: &str,
    before: Position,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let stream = session.find(name)?.stream_id;
    let settled = session.wait(session.client.settle(&[(stream, before)], None))?;
    let places = settled.into_iter().map(|offset| Ok((stream, offset?)));
    let places = places.collect::<Result<Vec<_>, ClientError>>()?;
    let trimmed = session.wait(session.client.trim_streams(&places, None))?;
    each(trimmed, terminal, |range, terminal| {
        terminal.line(format_args!(
            "{stream} starts at {}, in range {}",
            range.start_offset, range.range_index
        ))
    })
}

pub(super) fn seal(
    connection: &Connection,
    name: &str,
    range: Option<i32>,
    leave_sealed: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let session = Session::new(connection)?;
    let wanted = RangeId {
        stream_id: session.find(name)?.stream_id,
        range_index: range.map(RangeIndex),
        ..RangeId::default()
    };
    let kind = if leave_sealed {
        SealKind::RANGE_SERVER
    } else {
        SealKind::PLACEMENT_DRIVER
    };
    let sealed = session.wait(session.client.seal_ranges(&[wanted], kind, None))?;
    each(sealed, terminal, |range, terminal| {
        let (index, start) = (range.range_index, range.start_offset);
        match range.end() {
            None => terminal.line(format_args!("range {index} is open from {start}")),
            Some(end) => terminal.line(format_args!("range {index} is sealed, {start} to {end}")),
        }
    })
}
