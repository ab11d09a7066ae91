//! CREATE_, DELETE_, UPDATE_, TRIM_ and DESCRIBE_STREAMS: converts requests about streams and builds their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sbp_frame::CallId;
use sbp_messages::{
    CreateStreamResult, CreateStreamsResponse, DeleteStreamResult, DeleteStreamsResponse, DescribeStreamResult,
    DescribeStreamsRequest, DescribeStreamsResponse, ErrorCode, KeyValue, Range, Status, Stream, TrimStreamResult,
    TrimStreamsResponse, TrimmedStream, UpdateStreamResult, UpdateStreamsResponse,
};
use sbp_record::StreamSchema;
use sbp_session::Session;
use sbp_types::{Offset, StreamId};

use super::fault::Fault;
use super::replier::Replier;
use super::results::send_results;
use crate::node::Node;
use crate::placement::{
    Described, NewStream, Outcome, Outcomes, RangeRecord, RequestedSettings, SchemaRecord, SettingsUpdate, StreamQuery,
    StreamRecord, StreamUpdate, describe_streams,
};
use crate::refusal::Refusal;

/// The stream that an entry of CREATE_STREAMS asks for.
pub(super) fn new_stream(wanted: Stream) -> Result<NewStream, Refusal> {
    if let Some(fault) = wanted.fault() {
        return Err(Refusal::new(fault.code, fault.message));
    }
    let schema = wanted.schema.as_ref().map(read_schema).transpose()?;
    Ok(NewStream {
        name: wanted.name,
        settings: RequestedSettings {
            replica_count: wanted.replica_nums,
            ack_count: wanted.ack_count,
            retention_period_ms: wanted.retention_period_ms,
            retention_bytes: wanted.retention_bytes,
            schema,
            properties: read_properties(wanted.properties.unwrap_or_default()),
        },
    })
}

/// The change that an entry of UPDATE_STREAMS asks for.
pub(super) fn stream_update(wanted: Stream) -> Result<StreamUpdate, Refusal> {
    let id = existing_stream(wanted.stream_id)?;
    if let Some(fault) = wanted.fault() {
        return Err(Refusal::new(fault.code, fault.message));
    }
    let schema = wanted.schema.as_ref().map(read_schema).transpose()?;
    Ok(StreamUpdate {
        id,
        name: wanted.name,
        settings: SettingsUpdate {
            replica_count: wanted.replica_nums,
            ack_count: wanted.ack_count,
            retention_period_ms: wanted.retention_period_ms,
            retention_bytes: wanted.retention_bytes,
            schema,
            properties: wanted.properties.map(read_properties),
        },
    })
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
    match wanted.fault() {
        None => Ok((wanted.stream_id, wanted.trim_offset)),
        Some(fault) => Err(Refusal::new(fault.code, fault.message)),
    }
}

fn read_properties(properties: Vec<KeyValue>) -> BTreeMap<String, String> {
    let pairs = properties.into_iter().map(|property| (property.key, property.value));
    pairs.collect()
}

fn read_schema(ipc: &Bytes) -> Result<Arc<SchemaRecord>, Refusal> {
    let schema = StreamSchema::from_ipc(ipc).map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(Arc::new(SchemaRecord {
        ipc: ipc.to_vec(),
        canonical: schema.canonical().to_vec(),
        fingerprint: schema.fingerprint(),
    }))
}

/// Answers CREATE_STREAMS. `names` are the requested ones; entries that fail repeat them.
pub(super) fn answer_created(
    session: &mut Session,
    replier: &mut Replier,
    show: &dyn Fn(&RangeRecord) -> Range,
    call: CallId,
    names: Vec<String>,
    reply: Outcomes,
) {
    let results = reply.into_iter().zip(names).map(|(result, name)| match result {
        Ok(Outcome::NewStream(stream, range) | Outcome::StreamRange(stream, range)) => CreateStreamResult {
            stream: Some(wire_stream(&stream)),
            range: Some(show(&range)),
            status: Status::success(),
        },
        other => CreateStreamResult {
            stream: Some(Stream {
                name,
                ..Stream::default()
            }),
            range: None,
            status: failure(other),
        },
    });
    let weigh = |result: &CreateStreamResult| result.stream.as_ref().map_or(0, weight) + result.status.message.len();
    send_results(session, replier, call, results, weigh, |create_responses, _| {
        CreateStreamsResponse {
            create_responses,
            ..Default::default()
        }
    });
}

/// Answers UPDATE_STREAMS. `ids` are the requested ones; entries that fail repeat them.
pub(super) fn answer_updated(
    session: &mut Session,
    replier: &mut Replier,
    call: CallId,
    ids: Vec<StreamId>,
    reply: Outcomes,
) {
    let results = reply.into_iter().zip(ids).map(|(result, id)| {
        let (stream, status) = stream_result(result, id);
        UpdateStreamResult {
            stream: Some(stream),
            status,
        }
    });
    let weigh = |result: &UpdateStreamResult| result.stream.as_ref().map_or(0, weight) + result.status.message.len();
    send_results(session, replier, call, results, weigh, |update_responses, _| {
        UpdateStreamsResponse {
            update_responses,
            ..Default::default()
        }
    });
}

/// Answers DELETE_STREAMS. `ids` are the requested ones; entries that fail repeat them.
pub(super) fn answer_deleted(
    session: &mut Session,
    replier: &mut Replier,
    call: CallId,
    ids: Vec<StreamId>,
    reply: Outcomes,
) {
    let results = reply.into_iter().zip(ids).map(|(result, id)| {
        let (stream, status) = stream_result(result, id);
        DeleteStreamResult {
            deleted_stream: Some(stream),
            status,
        }
    });
    let weigh =
        |result: &DeleteStreamResult| result.deleted_stream.as_ref().map_or(0, weight) + result.status.message.len();
    send_results(session, replier, call, results, weigh, |delete_responses, _| {
        DeleteStreamsResponse {
            delete_responses,
            ..Default::default()
        }
    });
}

/// Answers TRIM_STREAMS. `ids` are the requested ones; entries that fail repeat them.
pub(super) fn answer_trimmed(
    session: &mut Session,
    replier: &mut Replier,
    show: &dyn Fn(&RangeRecord) -> Range,
    call: CallId,
    ids: Vec<StreamId>,
    reply: Outcomes,
) {
    let results = reply.into_iter().zip(ids).map(|(result, id)| match result {
        Ok(Outcome::StreamRange(stream, range)) => TrimStreamResult {
            trimmed_stream: Some(wire_stream(&stream)),
            range: Some(show(&range)),
            status: Status::success(),
        },
        other => TrimStreamResult {
            trimmed_stream: Some(named(id)),
            range: None,
            status: failure(other),
        },
    });
    let weigh =
        |result: &TrimStreamResult| result.trimmed_stream.as_ref().map_or(0, weight) + result.status.message.len();
    send_results(session, replier, call, results, weigh, |trim_responses, _| {
        TrimStreamsResponse {
            trim_responses,
            ..Default::default()
        }
    });
}

/// The stream and status of an entry's result; if it failed, the stream with its id only.
fn stream_result(result: Result<Outcome, Refusal>, id: StreamId) -> (Stream, Status) {
    match result {
        Ok(Outcome::Stream(stream)) => (wire_stream(&stream), Status::success()),
        other => (named(id), failure(other)),
    }
}

fn named(stream_id: StreamId) -> Stream {
    Stream {
        stream_id,
        ..Stream::default()
    }
}

/// The status of an entry whose result is an error or has the wrong type.
pub(super) fn failure(result: Result<Outcome, Refusal>) -> Status {
    match result {
        Err(refusal) => refusal.into(),
        Ok(outcome) => {
            tracing::error!(
                ?outcome,
                "an operation ended with the result of another kind of operation"
            );
            Status::error(
                ErrorCode::PD_INTERNAL_SERVER_ERROR,
                "the operation ended in an unexpected way",
            )
        }
    }
}

/// Answers DESCRIBE_STREAMS.
pub(super) fn handle_describe(
    session: &mut Session,
    replier: &mut Replier,
    node: &Node,
    call: CallId,
    request: DescribeStreamsRequest,
) -> Result<(), Fault> {
    let query = StreamQuery {
        ids: request.stream_ids,
        names: request.names,
        limit: request.limit,
        continuation: request.continuation.to_vec(),
    };
    let (found, continuation) = node.placement()?.read(|state| describe_streams(state, query))?;
    let continuation = Bytes::from(continuation);
    let results = found.into_iter().map(|described| {
        let (stream, status) = match described {
            Described::Found(stream) => (wire_stream(&stream), Status::success()),
            Described::UnknownId(id, refusal) => (named(id), refusal.into()),
            Described::UnknownName(name, refusal) => {
                let stream = Stream {
                    name,
                    ..Stream::default()
                };
                (stream, refusal.into())
            }
        };
        DescribeStreamResult {
            stream: Some(stream),
            status,
        }
    });
    let weigh = |result: &DescribeStreamResult| result.stream.as_ref().map_or(0, weight) + result.status.message.len();
    send_results(session, replier, call, results, weigh, |describe_responses, last| {
        DescribeStreamsResponse {
            describe_responses,
            continuation: if last { continuation.clone() } else { Bytes::new() },
            ..Default::default()
        }
    });
    Ok(())
}

/// A stream as a message.
fn wire_stream(stream: &StreamRecord) -> Stream {
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
        retention_bytes: settings.retention_bytes,
        schema: settings
            .schema
            .as_ref()
            .map(|schema| Bytes::copy_from_slice(&schema.ipc)),
        created_at_ms: stream.created_at,
        identity: stream.identity,
    }
}

/// The bytes of a stream in an answer, estimated from above.
fn weight(stream: &Stream) -> usize {
    let properties = stream.properties.iter().flatten();
    let properties: usize = properties
        .map(|property| property.key.len() + property.value.len() + 64)
        .sum();
    512 + stream.name.len() + properties + stream.schema.as_ref().map_or(0, Bytes::len)
}
