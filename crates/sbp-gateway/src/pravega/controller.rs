//! The controller: which scopes and streams there are, of which segments they are made, and where these are, which is here.

mod change;
mod groups;
mod list;
mod settings;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use sbp_client::ClientError;
use sbp_grpc::{Service, ServiceLimits, Status};
use sbp_pravega::SegmentId;
use sbp_pravega::controller::{
    DelegationToken, Exists, NodeUri, SERVICE, ScopeInfo, SegmentInfo, SegmentLocation, SegmentLocations, SegmentRange,
    SegmentRanges, SegmentsAt, StreamInfo, Successor, Successors,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::catalog::{Catalog, Held, Scopes, Segments};
use super::lineage::{self, Share};

/// What the controller asks of the segment store.
pub(crate) trait Store: Send + Sync + 'static {
    /// Removes what a segment has before this offset, which is in bytes. Whether there is such a segment.
    fn truncate(&self, segment: &str, offset: i64) -> impl Future<Output = Result<bool, Status>> + Send;

    /// Removes all that a segment has. Whether there is such a segment.
    fn empty(&self, segment: &str) -> impl Future<Output = Result<bool, Status>> + Send;
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Controller<S> {
    catalog: Arc<Catalog>,
    store: Arc<S>,
    /// Where clients are told that segments are; `None`: where they have reached the controller.
    advertised: Option<(String, u16)>,
    /// Held by whoever makes or deletes a stream, which is done segment by segment.
    changing: tokio::sync::Mutex<()>,
}

impl<S: Store> Controller<S> {
    pub(crate) fn new(catalog: Arc<Catalog>, store: Arc<S>, advertised: Option<(String, u16)>) -> Arc<Self> {
        Arc::new(Self {
            catalog,
            store,
            advertised,
            changing: tokio::sync::Mutex::new(()),
        })
    }

    /// Answers what is asked over a connection that has reached this address, until it is over. Calls under way are given up then,
    /// and with this future.
    pub(crate) async fn serve<I>(self: Arc<Self>, io: I, reached: SocketAddr)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let here = self.advertised.clone();
        let reached = Reached {
            uri: here.unwrap_or_else(|| (reached.ip().to_canonical().to_string(), reached.port())),
            controller: self,
        };
        if let Err(error) = sbp_grpc::serve(io, Arc::new(reached), &ServiceLimits::default()).await {
            tracing::debug!(%error, "a connection to the controller of Pravega ends");
        }
    }
}

/// The controller, as it is reached over a connection.
struct Reached<S> {
    controller: Arc<Controller<S>>,
    uri: (String, u16),
}

impl<S: Store> Service for Reached<S> {
    async fn call(self: Arc<Self>, path: &str, request: Bytes) -> Result<Bytes, Status> {
        let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE));
        let method = method.and_then(|method| method.strip_prefix('/')).unwrap_or_default();
        if method == "getURI" {
            let segment: SegmentInfo = read(request)?;
            let (host, port) = self.uri.clone();
            let port = i32::from(port);
            stream_of(segment.stream)?;
            return Ok(written(&NodeUri { host, port }));
        }
        let answer = self.controller.answer(method, request).await?;
        answer.ok_or_else(|| Status::unimplemented(format!("{path} is not served")))
    }
}

impl<S: Store> Controller<S> {
    /// Answers a call; `None`: it is not served.
    async fn answer(&self, method: &str, request: Bytes) -> Result<Option<Bytes>, Status> {
        if let Some(answer) = self.changed(method, request.clone()).await? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.group(method, request.clone()).await? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.listed(method, request.clone()).await? {
            return Ok(Some(answer));
        }
        let answer = match method {
            "getCurrentSegments" => written(&self.current_segments(read(request)?).await?),
            "getSegments" => written(&self.segments_at(read(request)?).await?),
            // Both are names of the call.
            "getSegmentsImmediatelyFollowing" | "getSegmentsImmediatlyFollowing" => {
                written(&self.followers(read(request)?).await?)
            }
            "isSegmentValid" => written(&self.is_valid(&read(request)?).await?),
            "checkStreamExists" => {
                let stream: StreamInfo = read(request)?;
                let exists = self.find(&stream).await?.is_some();
                written(&Exists { exists })
            }
            "checkScopeExists" => {
                let ScopeInfo { scope } = read(request)?;
                let scopes = self.catalog.scopes_with_scope(&scope).await.map_err(unavailable)?;
                let exists = scopes.0.contains_key(&scope);
                written(&Exists { exists })
            }
            "getStreamConfiguration" => written(&self.configuration(read(request)?).await?),
            "getDelegationToken" => written(&DelegationToken::default()),
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// A stream, if there is one.
    async fn find(&self, stream: &StreamInfo) -> Result<Option<Found>, Status> {
        let scopes = self.catalog.scopes_with(&stream.scope, &stream.stream).await;
        Ok(Found::among(scopes.map_err(unavailable)?, stream))
    }

    /// The same, asked for now.
    async fn find_now(&self, stream: &StreamInfo) -> Result<Option<Found>, Status> {
        let scopes = self.catalog.scopes_now().await;
        Ok(Found::among(scopes.map_err(unavailable)?, stream))
    }

    /// A stream that must be there.
    async fn stream(&self, stream: &StreamInfo) -> Result<Found, Status> {
        self.find(stream).await?.ok_or_else(|| missing(stream))
    }

    async fn current_segments(&self, stream: StreamInfo) -> Result<SegmentRanges, Status> {
        let found = match self.find(&stream).await? {
            Some(found) => found,
            // Streams that clients have for themselves are there when they are asked for.
            None if is_own(&stream.stream) => {
                self.make_own(&stream).await?;
                self.stream(&stream).await?
            }
            None => return Err(missing(&stream)),
        };
        let open = lineage::open(found.segments()).into_iter();
        let segments = open.map(|share| range_of(&stream, share)).collect();
        Ok(SegmentRanges { segments })
    }

    /// The segments with which the stream begins, and where they begin, whatever the time: they are as old as the stream.
    async fn segments_at(&self, at: SegmentsAt) -> Result<SegmentLocations, Status> {
        let stream = stream_of(at.stream)?;
        let found = self.stream(&stream).await?;
        let location = |(number, held): (i32, &Held)| SegmentLocation {
            segment: Some(segment_of(&stream, number)),
            offset: held.start(),
        };
        let segments = lineage::first(found.segments()).map(location).collect();
        Ok(SegmentLocations { segments })
    }

    /// The segments that follow one.
    async fn followers(&self, segment: SegmentInfo) -> Result<Successors, Status> {
        let stream = stream_of(segment.stream)?;
        // Whoever asks has come to the segment's end, and takes it for the stream's end if none follows.
        let found = self.find_now(&stream).await?.ok_or_else(|| missing(&stream))?;
        let followers = match i32::try_from(segment.id) {
            Ok(number) => lineage::followers(found.segments(), number),
            Err(_) => Vec::new(),
        };
        let successor = |(share, follows): (Share, Vec<i32>)| Successor {
            range: Some(range_of(&stream, share)),
            follows: follows.into_iter().map(|number| SegmentId::new(0, number).0).collect(),
        };
        let segments = followers.into_iter().map(successor).collect();
        Ok(Successors { segments })
    }

    async fn is_valid(&self, segment: &SegmentInfo) -> Result<Exists, Status> {
        let found = self.find(&stream_of(segment.stream.clone())?).await?;
        let held = found.as_ref().and_then(|found| {
            let number = i32::try_from(segment.id).ok()?;
            found.segments().get(&number)
        });
        let exists = held.is_some_and(|held| !held.is_sealed());
        Ok(Exists { exists })
    }
}

/// A stream that there is.
struct Found {
    scopes: Arc<Scopes>,
    stream: StreamInfo,
}

impl Found {
    fn among(scopes: Arc<Scopes>, stream: &StreamInfo) -> Option<Self> {
        let is_there = scopes.stream(&stream.scope, &stream.stream).is_some();
        is_there.then(|| Self {
            scopes,
            stream: stream.clone(),
        })
    }

    fn segments(&self) -> &Segments {
        static NONE: Segments = Segments::new();
        self.scopes
            .stream(&self.stream.scope, &self.stream.stream)
            .unwrap_or(&NONE)
    }

    fn is_sealed(&self) -> bool {
        lineage::open(self.segments()).is_empty()
    }

    /// How many segments it has for appends; of a sealed one: how many it had.
    fn width(&self) -> usize {
        match lineage::open(self.segments()).len() {
            0 => self.segments().len(),
            open => open,
        }
    }

    /// The segment whose properties say what is said of the whole stream.
    fn spokesman(&self) -> Option<(i32, &Held)> {
        let first = self.segments().first_key_value();
        first.map(|(number, held)| (*number, held))
    }
}

fn read<M: Message + Default>(request: Bytes) -> Result<M, Status> {
    M::decode(request).map_err(|error| Status::invalid_argument(format!("the request cannot be read: {error}")))
}

fn written<M: Message>(answer: &M) -> Bytes {
    answer.encode_to_vec().into()
}

fn stream_of(stream: Option<StreamInfo>) -> Result<StreamInfo, Status> {
    stream.ok_or_else(|| Status::invalid_argument("the request names no stream"))
}

fn segment_of(stream: &StreamInfo, number: i32) -> SegmentInfo {
    SegmentInfo {
        stream: Some(stream.clone()),
        id: SegmentId::new(0, number).0,
    }
}

fn range_of(stream: &StreamInfo, Share { number, low, high }: Share) -> SegmentRange {
    SegmentRange {
        segment: Some(segment_of(stream, number)),
        low,
        high,
    }
}

fn missing(stream: &StreamInfo) -> Status {
    Status::not_found(format!("there is no stream {}/{}", stream.scope, stream.stream))
}

/// The service could not be asked, or has refused.
fn unavailable(error: ClientError) -> Status {
    tracing::warn!(%error, "a client of Pravega's controller cannot be answered");
    Status::unavailable(error.to_string())
}

/// Whether a stream is one of those that clients have for themselves: the marks of a stream's time, and the state of a reader
/// group.
fn is_own(stream: &str) -> bool {
    stream.starts_with("_MARK") || stream.starts_with("_RG")
}

#[cfg(test)]
mod tests;
