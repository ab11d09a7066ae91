//! Range servers in other processes, which a placement driver reaches over the protocol.

use std::collections::HashMap;
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_messages::{
    DeleteStreamsRequest, DeleteStreamsResponse, DescribeRangesRequest, DescribeRangesResponse, ErrorCode,
    HeartbeatRequest, MAX_ENTRIES, Range, RangeId, ReplicaServer, ReplicaState, SealKind, SealRangesRequest,
    SealRangesResponse, Status, Stream, StreamRanges, SyncRangesRequest, SyncRangesResponse,
};
use sbp_replication::Term;
use sbp_transport::{ClientTls, Descriptors, DialError, dial};
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId, StreamId};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::wire::{fenced_end, held_range, wire_range};
use crate::cluster_id::OwnCluster;
use crate::peer::{PeerChannel, PeerConfig, PeerError, PeerToken};
use crate::placement::{AbandonedEnd, RangeServer, RangeServers};
use crate::range::{AddressBook, FencedEnd, HeldRange, StreamFacts};
use crate::refusal::{Done, Refusal};

/// How long a range server may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long dialling a server may take whose connection is gone, and the answer of one that was never heard.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// The range servers that have registered their address, each with its own channel.
#[derive(Debug)]
pub(crate) struct RemoteServers {
    hello: HeartbeatRequest,
    cluster: Arc<OwnCluster>,
    runtime: Handle,
    descriptors: Arc<Descriptors>,
    tls: Option<Arc<ClientTls>>,
    token: Option<PeerToken>,
    servers: Mutex<HashMap<ServerId, Arc<RemoteServer>>>,
    /// The term of the placement driver, which its orders carry.
    term: Arc<AtomicI64>,
    /// Where range servers are, also the one in the same process.
    pub(crate) addresses: Arc<AddressBook>,
}

/// A range server in another process. It makes durable by itself what it is told, and the ends of the ranges it seals.
#[derive(Debug)]
struct RemoteServer {
    id: ServerId,
    address: String,
    channel: Arc<PeerChannel>,
    runtime: Handle,
    term: Arc<AtomicI64>,
    /// Grows when nobody waits any more for the seals that are under way.
    seals_given_up: watch::Sender<u64>,
    /// Where the others are, which it is told with the ranges that it shares with them.
    addresses: Arc<AddressBook>,
}

impl RemoteServers {
    /// `hello` is the HEARTBEAT that begins each connection.
    pub(crate) fn new(
        hello: HeartbeatRequest,
        cluster: Arc<OwnCluster>,
        runtime: Handle,
        descriptors: Arc<Descriptors>,
        tls: Option<Arc<ClientTls>>,
        token: Option<PeerToken>,
    ) -> Self {
        Self {
            hello,
            cluster,
            runtime,
            descriptors,
            tls,
            token,
            servers: Mutex::default(),
            term: Arc::default(),
            addresses: Arc::default(),
        }
    }
}

impl RangeServers for RemoteServers {
    fn lead_in(&self, term: Term) {
        self.term
            .store(i64::try_from(term.0).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn locate(&self, server: ServerId, address: &str) {
        let mut servers = self.servers.lock();
        if servers.get(&server).is_some_and(|known| known.address == address) {
            return;
        }
        let config = PeerConfig {
            cluster: Arc::clone(&self.cluster),
            addresses: vec![address.to_owned()],
            hello: self.hello.clone(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            connect_timeout: CONNECT_TIMEOUT,
            tls: self.tls.clone(),
            token: self.token.clone(),
            followed: None,
            stays: false,
        };
        let channel = PeerChannel::new(config, self.runtime.clone(), Arc::clone(&self.descriptors));
        let located = RemoteServer {
            id: server,
            address: address.to_owned(),
            channel: Arc::new(channel),
            runtime: self.runtime.clone(),
            term: Arc::clone(&self.term),
            seals_given_up: watch::Sender::default(),
            addresses: Arc::clone(&self.addresses),
        };
        self.addresses.note(server, address);
        if let Some(moved) = servers.insert(server, Arc::new(located)) {
            // What the server has been sent there is answered; what waits for a connection is refused, and said again here.
            moved.channel.close();
        }
    }

    fn server(&self, server: ServerId) -> Option<Arc<dyn RangeServer>> {
        let located = self.servers.lock().get(&server).map(Arc::clone);
        located.map(|located| located as _)
    }

    fn may_forget(&self, _: StreamId) -> bool {
        true
    }
}

impl RemoteServer {
    fn term(&self) -> i64 {
        self.term.load(Ordering::Relaxed)
    }

    /// Runs `ask` in a task of its own, and gives its result to `done`.
    fn ask<T, F>(&self, done: Done<T>, ask: impl FnOnce(Arc<PeerChannel>) -> F)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let asked = ask(Arc::clone(&self.channel));
        self.runtime.spawn(async move { done(asked.await) });
    }
}

/// Sends a request and returns all frames of its answer.
async fn call<Q: sbp_messages::Message, A: sbp_messages::Message>(
    channel: &PeerChannel,
    request: &Q,
) -> Result<Vec<A>, Refusal> {
    channel.call(request, CALL_TIMEOUT).await.map_err(|error| match error {
        PeerError::Closed => Refusal::new(
            ErrorCode::PD_NO_AVAILABLE_RS,
            format!("the range server is not at {} any more", channel.name()),
        ),
        error => error.to_refusal(),
    })
}

fn check(status: &Status) -> Result<(), Refusal> {
    if status.is_success() {
        return Ok(());
    }
    Err(Refusal::new(status.code, status.message.clone()))
}

/// Sends a SYNC_RANGES about one stream. Returns the stream's ranges that the server has.
async fn sync(channel: &PeerChannel, request: &SyncRangesRequest) -> Result<Vec<Range>, Refusal> {
    let answers: Vec<SyncRangesResponse> = call(channel, request).await?;
    let status = answers.last().map(|answer| answer.status.clone());
    let answer = answers.into_iter().flat_map(|answer| answer.sync_responses).next();
    match answer {
        Some(result) => check(&result.status).map(|()| result.ranges),
        None => Err(status
            .and_then(|status| check(&status).err())
            .unwrap_or_else(incomplete)),
    }
}

fn incomplete() -> Refusal {
    Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, "the range server's answer is incomplete")
}

impl RangeServer for RemoteServer {
    fn seal(&self, key: RangeKey, epoch: Epoch, seen: Option<Offset>, done: Done<Offset>) {
        let request = SealRangesRequest {
            ranges: vec![RangeId {
                stream_id: key.stream,
                range_index: Some(key.range),
                epoch: Some(epoch),
                end_offset: seen,
            }],
            kind: SealKind::RANGE_SERVER,
            term: self.term(),
            ..Default::default()
        };
        let mut given_up = self.seals_given_up.subscribe();
        self.ask(done, |channel| async move {
            let sealed = async {
                let answers: Vec<SealRangesResponse> = call(&channel, &request).await?;
                let answer = answers.iter().flat_map(|answer| &answer.seal_responses).next();
                let Some(result) = answer else {
                    answers.last().map_or(Ok(()), |answer| check(&answer.status))?;
                    return Err(incomplete());
                };
                check(&result.status)?;
                result.range.as_ref().and_then(Range::end).ok_or_else(incomplete)
            };
            tokio::select! {
                sealed = sealed => sealed,
                // What is dropped here and waits for a connection is not sent. Where the server has moved, its channel says so.
                Ok(()) = given_up.changed() => Err(Refusal::unanswered()),
            }
        });
    }

    fn give_up_seals(&self) {
        self.seals_given_up.send_modify(|times| *times += 1);
    }

    fn fence(&self, key: RangeKey, epoch: Epoch, done: Done<FencedEnd>) {
        let request = SealRangesRequest {
            ranges: vec![RangeId {
                stream_id: key.stream,
                range_index: Some(key.range),
                epoch: Some(epoch),
                end_offset: None,
            }],
            kind: SealKind::RANGE_SERVER,
            term: self.term(),
            ..Default::default()
        };
        self.ask(done, |channel| async move {
            let answers: Vec<SealRangesResponse> = call(&channel, &request).await?;
            let answer = answers.iter().flat_map(|answer| &answer.seal_responses).next();
            let Some(result) = answer else {
                answers.last().map_or(Ok(()), |answer| check(&answer.status))?;
                return Err(incomplete());
            };
            check(&result.status)?;
            fenced_end(result).ok_or_else(incomplete)
        });
    }

    fn write_back(&self, key: RangeKey, epoch: Epoch, to: &[ServerId], end: Position, done: Done<()>) {
        let target = |server: &ServerId| ReplicaServer {
            range_server: Some(sbp_messages::RangeServer {
                server_id: *server,
                advertise_addr: self
                    .addresses
                    .address(*server)
                    .map(|address| address.to_string())
                    .unwrap_or_default(),
                ..Default::default()
            }),
            state: ReplicaState::COPYING,
            ..ReplicaServer::default()
        };
        let order = Range {
            stream_id: key.stream,
            range_index: key.range,
            epoch: Some(epoch),
            next_offset: end.offset,
            next_marks: end.marks,
            servers: to.iter().map(target).collect(),
            ..Range::default()
        };
        let request = SyncRangesRequest {
            stream_ranges: vec![StreamRanges {
                stream_id: key.stream,
                ranges: vec![order],
            }],
            term: self.term(),
            ..Default::default()
        };
        self.ask(done, |channel| async move { sync(&channel, &request).await.map(drop) });
    }

    /// The range server has made the end durable, and keeps it.
    fn abandon_seal(&self, _: RangeKey, _: AbandonedEnd) {}

    /// The range server has shown readers the end when it sealed the range.
    fn publish_end(&self, _: RangeKey, _: Offset) {}

    /// `facts` are not sent: the range server asks the placement driver about the stream by itself.
    fn sync(&self, stream: StreamId, _: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>) {
        let me = sbp_messages::RangeServer {
            server_id: self.id,
            ..Default::default()
        };
        let ranges = ranges
            .iter()
            .map(|held| wire_range(held, held.start, me.clone(), &self.addresses))
            .collect();
        let request = SyncRangesRequest {
            stream_ranges: vec![StreamRanges {
                stream_id: stream,
                ranges,
            }],
            term: self.term(),
            ..Default::default()
        };
        self.ask(done, |channel| async move { sync(&channel, &request).await.map(drop) });
    }

    /// An empty sync tells the range server that the stream has changed, and it asks the placement driver how.
    fn trim(&self, stream: StreamId, _: Offset, done: Done<()>) {
        self.sync(stream, StreamFacts::default(), Vec::new(), done);
    }

    fn delete(&self, streams: Vec<StreamId>, done: Done<bool>) {
        let term = self.term();
        self.ask(done, move |channel| async move {
            let mut gone = true;
            for chunk in streams.chunks(MAX_ENTRIES) {
                let streams = chunk.iter().map(|stream_id| Stream {
                    stream_id: *stream_id,
                    ..Stream::default()
                });
                let request = DeleteStreamsRequest {
                    streams: streams.collect(),
                    term,
                    ..Default::default()
                };
                let answers: Vec<DeleteStreamsResponse> = call(&channel, &request).await?;
                answers.last().map_or(Ok(()), |answer| check(&answer.status))?;
                for result in answers.iter().flat_map(|answer| &answer.delete_responses) {
                    match result.status.code {
                        ErrorCode::NOT_FOUND => {}
                        _ => check(&result.status)?,
                    }
                    gone &= result.gone;
                }
            }
            Ok(gone)
        });
    }

    /// A sealed range that is told without this server among its servers. What the answer lists is there; a server of an earlier
    /// version lists what it holds, and removes nothing.
    fn let_go(&self, stream: StreamId, ranges: Vec<HeldRange>, done: Done<Vec<RangeKey>>) {
        let told =
            |held: &HeldRange| wire_range(held, held.start, sbp_messages::RangeServer::default(), &self.addresses);
        let request = SyncRangesRequest {
            stream_ranges: vec![StreamRanges {
                stream_id: stream,
                ranges: ranges.iter().map(told).collect(),
            }],
            term: self.term(),
            ..Default::default()
        };
        self.ask(done, |channel| async move {
            let listed = sync(&channel, &request).await?;
            let has = |key: &RangeKey| listed.iter().any(|range| held_range(range).key == *key);
            Ok(ranges.iter().map(|range| range.key).filter(has).collect())
        });
    }

    fn is_refused(&self, done: Done<bool>) {
        let address = self.address.clone();
        self.runtime.spawn(async move {
            let dialled = dial(&address, KNOCK_TIMEOUT).await;
            let is_refused = matches!(
                &dialled,
                Err(DialError::Connect { source, .. }) if source.kind() == ErrorKind::ConnectionRefused
            );
            done(Ok(is_refused));
        });
    }

    fn answers(&self, done: Done<bool>) {
        self.ask(done, |channel| async move {
            let question = DescribeRangesRequest::default();
            let answered: Result<Vec<DescribeRangesResponse>, _> = channel.call(&question, KNOCK_TIMEOUT).await;
            // A refusal is an answer too.
            Ok(!matches!(answered, Err(PeerError::TimedOut { .. } | PeerError::Closed)))
        });
    }

    fn next_offsets(&self, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>) {
        self.ask(done, |channel| async move {
            let mut offsets = Vec::with_capacity(keys.len());
            for chunk in keys.chunks(MAX_ENTRIES) {
                let ranges = chunk.iter().map(|key| RangeId {
                    stream_id: key.stream,
                    range_index: Some(key.range),
                    ..RangeId::default()
                });
                let request = DescribeRangesRequest {
                    ranges: ranges.collect(),
                    ..Default::default()
                };
                let answers: Vec<DescribeRangesResponse> = call(&channel, &request).await?;
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

#[cfg(test)]
mod tests;
