//! Range servers in other processes, as a placement driver reaches them: over the protocol.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_messages::{
    DeleteStreamsRequest, DeleteStreamsResponse, DescribeRangesRequest, DescribeRangesResponse, ErrorCode,
    HeartbeatRequest, MAX_ENTRIES, RangeId, SealKind, SealRangesRequest, SealRangesResponse, Status, Stream,
    StreamRanges, SyncRangesRequest, SyncRangesResponse,
};
use sbp_transport::Descriptors;
use sbp_types::{Epoch, Offset, RangeKey, ServerId, StreamId};
use tokio::runtime::Handle;

use super::wire::wire_range;
use crate::peer::{PeerConfig, PeerLink};
use crate::placement::{Done, RangeServers};
use crate::range::{HeldRange, StreamFacts};
use crate::refusal::Refusal;

/// How long a range server may take: after it, it counts as one that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// A link to each range server that said where it is.
#[derive(Debug)]
pub(crate) struct RemoteServers {
    hello: HeartbeatRequest,
    runtime: Handle,
    descriptors: Arc<Descriptors>,
    links: Mutex<HashMap<ServerId, (String, Arc<PeerLink>)>>,
}

impl RemoteServers {
    /// Nobody yet. `hello` is what each of them is told first.
    pub(crate) fn new(hello: HeartbeatRequest, runtime: Handle, descriptors: Arc<Descriptors>) -> Self {
        Self {
            hello,
            runtime,
            descriptors,
            links: Mutex::default(),
        }
    }

    /// Asks a server in a task of its own.
    fn ask<T, F>(&self, server: ServerId, done: Done<T>, ask: impl FnOnce(Arc<PeerLink>) -> F)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let link = self.links.lock().get(&server).map(|(_, link)| Arc::clone(link));
        match link {
            Some(link) => {
                let asked = ask(link);
                self.runtime.spawn(async move { done(asked.await) });
            }
            None => {
                let message = format!("range server {server} never said where it is");
                done(Err(Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message)));
            }
        }
    }
}

/// Asks, and gives all frames of the answer.
async fn call<Q: sbp_messages::Message, A: sbp_messages::Message>(
    link: &PeerLink,
    request: &Q,
) -> Result<Vec<A>, Refusal> {
    link.call(request, PATIENCE).await.map_err(|error| error.to_refusal())
}

fn check(status: &Status) -> Result<(), Refusal> {
    if status.is_success() {
        return Ok(());
    }
    Err(Refusal::new(status.code, status.message.clone()))
}

fn incomplete() -> Refusal {
    Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, "the range server's answer is incomplete")
}

impl RangeServers for RemoteServers {
    fn locate(&self, server: ServerId, address: &str) {
        let mut links = self.links.lock();
        if links.get(&server).is_some_and(|(known, _)| known == address) {
            return;
        }
        let config = PeerConfig {
            addresses: vec![address.to_owned()],
            hello: self.hello.clone(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            connect_timeout: CONNECT_TIMEOUT,
            stays: false,
        };
        let link = PeerLink::new(config, self.runtime.clone(), Arc::clone(&self.descriptors));
        // What was asked of the old one ends when its last caller is through.
        links.insert(server, (address.to_owned(), Arc::new(link)));
    }

    fn seal(&self, server: ServerId, key: RangeKey, epoch: Epoch, seen: Option<Offset>, done: Done<Offset>) {
        let request = SealRangesRequest {
            ranges: vec![RangeId {
                stream_id: key.stream,
                range_index: key.range,
                epoch,
                end_offset: seen.unwrap_or(Offset(-1)),
            }],
            kind: SealKind::RANGE_SERVER,
            ..Default::default()
        };
        self.ask(server, done, |link| async move {
            let answers: Vec<SealRangesResponse> = call(&link, &request).await?;
            let answer = answers.iter().flat_map(|answer| &answer.seal_responses).next();
            let Some(result) = answer else {
                answers.last().map_or(Ok(()), |answer| check(&answer.status))?;
                return Err(incomplete());
            };
            check(&result.status)?;
            match &result.range {
                Some(range) if !range.is_open() => Ok(range.end_offset),
                _ => Err(incomplete()),
            }
        });
    }

    /// The facts are not told: the range server asks for the stream itself.
    fn sync(&self, server: ServerId, stream: StreamId, _: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>) {
        let me = sbp_messages::RangeServer {
            server_id: server,
            ..Default::default()
        };
        let ranges = ranges
            .iter()
            .map(|held| wire_range(held, held.start, me.clone()))
            .collect();
        let request = SyncRangesRequest {
            stream_ranges: vec![StreamRanges {
                stream_id: stream,
                ranges,
            }],
            ..Default::default()
        };
        self.ask(server, done, |link| async move {
            let answers: Vec<SyncRangesResponse> = call(&link, &request).await?;
            let answer = answers.iter().flat_map(|answer| &answer.sync_responses).next();
            match answer {
                Some(result) => check(&result.status),
                None => Err(answers
                    .last()
                    .and_then(|answer| check(&answer.status).err())
                    .unwrap_or_else(incomplete)),
            }
        });
    }

    /// Told that there is something new about the stream, the range server asks what.
    fn trim(&self, server: ServerId, stream: StreamId, _: Offset, done: Done<()>) {
        self.sync(server, stream, StreamFacts::default(), Vec::new(), done);
    }

    fn delete(&self, server: ServerId, streams: Vec<StreamId>, done: Done<()>) {
        self.ask(server, done, |link| async move {
            for chunk in streams.chunks(MAX_ENTRIES) {
                let streams = chunk.iter().map(|stream_id| Stream {
                    stream_id: *stream_id,
                    ..Stream::default()
                });
                let request = DeleteStreamsRequest {
                    streams: streams.collect(),
                    ..Default::default()
                };
                let answers: Vec<DeleteStreamsResponse> = call(&link, &request).await?;
                answers.last().map_or(Ok(()), |answer| check(&answer.status))?;
                for result in answers.iter().flat_map(|answer| &answer.delete_responses) {
                    match result.status.code {
                        ErrorCode::NOT_FOUND => {}
                        _ => check(&result.status)?,
                    }
                }
            }
            Ok(())
        });
    }

    fn next_offsets(&self, server: ServerId, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>) {
        self.ask(server, done, |link| async move {
            let mut offsets = Vec::with_capacity(keys.len());
            for chunk in keys.chunks(MAX_ENTRIES) {
                let ranges = chunk.iter().map(|key| RangeId {
                    stream_id: key.stream,
                    range_index: key.range,
                    ..RangeId::default()
                });
                let request = DescribeRangesRequest {
                    ranges: ranges.collect(),
                    ..Default::default()
                };
                let answers: Vec<DescribeRangesResponse> = call(&link, &request).await?;
                answers.last().map_or(Ok(()), |answer| check(&answer.status))?;
                let results = answers.iter().flat_map(|answer| &answer.describe_responses);
                offsets.extend(results.map(|result| result.range.as_ref().map(|range| range.next_offset)));
            }
            if offsets.len() == keys.len() {
                Ok(offsets)
            } else {
                Err(incomplete())
            }
        });
    }
}
