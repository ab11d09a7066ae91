//! CREATE_, DELETE_, UPDATE_, TRIM_ and DESCRIBE_STREAMS: streams in requests and in answers.

use std::sync::Arc;

use bytes::Bytes;
use sbp_frame::CallId;
use sbp_messages::{DescribeStreamResult, DescribeStreamsRequest, KeyValue, Status, Stream, TrimmedStream};
use sbp_types::{Offset, StreamId};

use super::fault::Fault;
use super::handle::Turn;
use super::results::Page;
use crate::access::Owner;
use crate::placement::{
    Described, NewStream, RequestedSettings, SchemaRecord, StreamRecord, StreamUpdate, describe_streams,
};
use crate::refusal::Refusal;

/// The stream that an entry of CREATE_STREAMS asks for.
pub(super) fn new_stream(wanted: Stream, owner: Option<Owner>) -> Result<NewStream, Refusal> {
    let (name, settings) = name_and_settings(wanted)?;
    Ok(NewStream { name, settings, owner })
}

/// The change that an entry of UPDATE_STREAMS asks for.
pub(super) fn stream_update(wanted: Stream) -> Result<StreamUpdate, Refusal> {
    let id = existing_stream(wanted.stream_id)?;
    let (name, settings) = name_and_settings(wanted)?;
    Ok(StreamUpdate { id, name, settings })
}

fn name_and_settings(wanted: Stream) -> Result<(String, RequestedSettings), Refusal> {
    Refusal::check(wanted.fault())?;
    let schema = wanted.schema.as_ref().map(SchemaRecord::read).transpose();
    let schema = schema.map_err(|error| Refusal::invalid(error.to_string()))?;
    let pair = |property: KeyValue| (property.key, property.value);
    let settings = RequestedSettings {
        replica_count: wanted.replica_nums,
        ack_count: wanted.ack_count,
        retention_period_ms: wanted.retention_period_ms,
        retention_bytes: wanted.retention_bytes,
        schema: schema.map(Arc::new),
        properties: wanted
            .properties
            .map(|properties| properties.into_iter().map(pair).collect()),
    };
    Ok((wanted.name, settings))
}

/// Refuses an id that no stream can have.
pub(super) fn existing_stream(id: StreamId) -> Result<StreamId, Refusal> {
    if id.is_valid() {
        Ok(id)
    } else {
        Err(Refusal::no_stream(id))
    }
}

/// The stream that an entry of TRIM_STREAMS names, and where it is to begin.
pub(super) fn trimmed_stream(wanted: TrimmedStream) -> Result<(StreamId, Offset), Refusal> {
    Refusal::check(wanted.fault())?;
    Ok((wanted.stream_id, wanted.trim_offset))
}

/// A stream of which only the id is known.
pub(super) fn with_id(stream_id: StreamId) -> Stream {
    Stream {
        stream_id,
        ..Stream::default()
    }
}

/// A stream of which only the name is known.
pub(super) fn with_name(name: String) -> Stream {
    Stream {
        name,
        ..Stream::default()
    }
}

/// Answers DESCRIBE_STREAMS.
pub(super) fn handle_describe(turn: &mut Turn<'_>, call: CallId, request: DescribeStreamsRequest) -> Result<(), Fault> {
    let placement = turn.node.placement()?;
    let term = placement.term();
    let (found, continuation) = placement.read(|state| describe_streams(state, request, turn.gate))?;
    let results = found.into_iter().map(|described| {
        let (stream, status) = match described {
            Described::Found(stream) => (wire_stream(&stream), Status::success()),
            Described::UnknownId(id, refusal) => (with_id(id), refusal.into()),
            Described::UnknownName(name, refusal) => (with_name(name), refusal.into()),
        };
        DescribeStreamResult {
            stream: Some(stream),
            status,
        }
    });
    let continuation = continuation.into();
    turn.send_page(call, results, Page { continuation, term });
    Ok(())
}

/// A stream as a message.
pub(super) fn wire_stream(stream: &StreamRecord) -> Stream {
    let settings = &stream.settings;
    let property = |(key, value): (&String, &String)| KeyValue {
        key: key.clone(),
        value: value.clone(),
    };
    Stream {
        stream_id: stream.id,
        replica_nums: settings.replica_count,
        retention_period_ms: settings.retention_period_ms,
        ack_count: settings.ack_count,
        name: stream.name.as_deref().unwrap_or_default().to_owned(),
        properties: (!settings.properties.is_empty()).then(|| settings.properties.iter().map(property).collect()),
        retention_bytes: settings.retention_bytes.unwrap_or(Stream::UNBOUNDED),
        schema: settings
            .schema
            .as_ref()
            .map(|schema| Bytes::copy_from_slice(&schema.ipc)),
        created_at_ms: stream.created_at,
        identity: stream.identity,
    }
}
