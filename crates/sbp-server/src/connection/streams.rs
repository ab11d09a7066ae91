//! CREATE_STREAMS and DESCRIBE_STREAMS.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sbp_frame::CallId;
use sbp_messages::{
    CreateStreamResult, CreateStreamsResponse, DescribeStreamResult, DescribeStreamsRequest, DescribeStreamsResponse,
    KeyValue, Status, Stream,
};
use sbp_record::StreamSchema;
use sbp_session::Session;
use sbp_types::StreamId;

use super::describe::wire_range;
use super::handler::Fault;
use super::replier::Replier;
use crate::node::Node;
use crate::placement::{
    Created, Described, NewStream, RequestedSettings, SchemaRecord, StreamQuery, StreamRecord, describe_streams,
};
use crate::refusal::Refusal;

/// Bytes of results after which the answer goes on in another frame. A header may have 4 MiB; one result has at most a
/// little more than the request that made its stream.
const FRAME_BYTES: usize = 2 << 20;

/// A stream as CREATE_STREAMS asks for it.
pub(super) fn new_stream(wanted: Stream) -> Result<NewStream, Refusal> {
    if let Some(fault) = wanted.fault() {
        return Err(Refusal::new(fault.code, fault.message));
    }
    let schema = wanted.schema.as_ref().map(read_schema).transpose()?;
    let properties: BTreeMap<_, _> = wanted
        .properties
        .unwrap_or_default()
        .into_iter()
        .map(|property| (property.key, property.value))
        .collect();
    Ok(NewStream {
        name: wanted.name,
        settings: RequestedSettings {
            replica_count: wanted.replica_nums,
            ack_count: wanted.ack_count,
            retention_period_ms: wanted.retention_period_ms,
            retention_bytes: wanted.retention_bytes,
            schema,
            properties,
        },
    })
}

fn read_schema(ipc: &Bytes) -> Result<Arc<SchemaRecord>, Refusal> {
    let schema = StreamSchema::from_ipc(ipc).map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(Arc::new(SchemaRecord {
        ipc: ipc.to_vec(),
        canonical: schema.canonical().to_vec(),
        fingerprint: schema.fingerprint(),
    }))
}

/// Answers CREATE_STREAMS. `names` are those asked for, repeated on errors.
pub(super) fn answer_created(
    session: &mut Session,
    replier: &mut Replier,
    node: &Node,
    call: CallId,
    names: Vec<String>,
    results: Vec<Result<Created, Refusal>>,
) {
    let results = results.into_iter().zip(names).map(|(result, name)| match result {
        Ok(created) => CreateStreamResult {
            stream: Some(wire_stream(&created.stream)),
            range: Some(wire_range(node, &created.range)),
            status: Status::success(),
        },
        Err(refusal) => CreateStreamResult {
            stream: Some(Stream {
                name,
                ..Stream::default()
            }),
            range: None,
            status: refusal.into(),
        },
    });
    let weigh = |result: &CreateStreamResult| result.stream.as_ref().map_or(0, weight) + result.status.message.len();
    let (last, others) = split(results, weigh);
    for create_responses in others {
        let response = CreateStreamsResponse {
            create_responses,
            ..Default::default()
        };
        replier.send(session, call, &response, false, &[]);
    }
    replier.finish(
        session,
        call,
        &CreateStreamsResponse {
            create_responses: last,
            ..Default::default()
        },
    );
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
    let results = found.into_iter().map(|described| match described {
        Described::Found(stream) => DescribeStreamResult {
            stream: Some(wire_stream(&stream)),
            status: Status::success(),
        },
        Described::UnknownId(stream_id, refusal) => {
            let stream = Stream {
                stream_id,
                ..Stream::default()
            };
            DescribeStreamResult {
                stream: Some(stream),
                status: refusal.into(),
            }
        }
        Described::UnknownName(name, refusal) => {
            let stream = Stream {
                stream_id: StreamId(-1),
                name,
                ..Stream::default()
            };
            DescribeStreamResult {
                stream: Some(stream),
                status: refusal.into(),
            }
        }
    });
    let weigh = |result: &DescribeStreamResult| result.stream.as_ref().map_or(0, weight) + result.status.message.len();
    let (last, others) = split(results, weigh);
    for describe_responses in others {
        let response = DescribeStreamsResponse {
            describe_responses,
            ..Default::default()
        };
        replier.send(session, call, &response, false, &[]);
    }
    let response = DescribeStreamsResponse {
        describe_responses: last,
        continuation: continuation.into(),
        ..Default::default()
    };
    replier.finish(session, call, &response);
    Ok(())
}

/// A stream as answers show it.
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
    }
}

/// Bytes of a stream in an answer, roughly and rather too many.
fn weight(stream: &Stream) -> usize {
    let properties = stream.properties.iter().flatten();
    let properties: usize = properties
        .map(|property| property.key.len() + property.value.len() + 64)
        .sum();
    512 + stream.name.len() + properties + stream.schema.as_ref().map_or(0, Bytes::len)
}

/// Cuts results into frames: those of the last frame, and those of the frames before it.
fn split<R>(results: impl Iterator<Item = R>, weigh: impl Fn(&R) -> usize) -> (Vec<R>, Vec<Vec<R>>) {
    let (mut frames, mut frame, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for result in results {
        let added = weigh(&result);
        if bytes + added > FRAME_BYTES && !frame.is_empty() {
            frames.push(std::mem::take(&mut frame));
            bytes = 0;
        }
        bytes += added;
        frame.push(result);
    }
    (frame, frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_cut_by_weight_and_none_is_lost() {
        let half = FRAME_BYTES / 2;
        for (weights, frames) in [
            (vec![], 1),
            (vec![1; 1_000], 1),
            (vec![half, half, 1], 2),
            (vec![FRAME_BYTES * 2, 1, FRAME_BYTES * 2], 3),
            (vec![half + 1; 5], 5),
        ] {
            let (last, others) = split(weights.clone().into_iter(), |weight| *weight);
            assert_eq!(others.len() + 1, frames, "{weights:?}");
            let joined: Vec<usize> = others.into_iter().flatten().chain(last).collect();
            assert_eq!(joined, weights);
        }
    }
}
