//! The controller: which streams there are, of which segments they are made, and which server has them.

use std::time::Duration;

use prost::Message;
use sbp_grpc::{CallError, Channel, Code};
use sbp_pravega::controller::{
    Continuation, NodeUri, ScalingPolicy, ScopeInfo, Scopes, ScopesRequest, SegmentInfo, SegmentLocations,
    SegmentRange, SegmentRanges, SegmentsAt, Status, StreamConfig, StreamInfo, Streams, StreamsRequest, Successors,
};
use sbp_pravega::{Segment, SegmentId};
use sbp_transport::LinkSettings;

use super::error::{PravegaError, PravegaErrorKind};
use super::layout::{Follower, Owned, StreamName};

/// How often what changes nothing is asked, where no answer came.
const ATTEMPTS: usize = 3;
/// Pages of a list at most: a controller whose pages never end is none.
const PAGES: usize = 100_000;

#[derive(Debug)]
pub(super) struct Controller {
    channel: Channel,
    timeout: Duration,
}

macro_rules! path {
    ($method:literal) => {
        concat!("/io.pravega.controller.stream.api.grpc.v1.ControllerService/", $method)
    };
}

impl Controller {
    /// `None`: the address cannot be one.
    pub(super) fn new(address: &str, settings: LinkSettings, timeout: Duration) -> Option<Self> {
        let channel = Channel::new(address, settings, None)?;
        Some(Self { channel, timeout })
    }

    pub(super) fn address(&self) -> &str {
        self.channel.address()
    }

    pub(super) async fn disconnect(&self) {
        self.channel.disconnect().await;
    }

    async fn ask<Q, A>(&self, path: &'static str, request: Q) -> Result<A, PravegaError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let answer = self
                .channel
                .call(sbp_grpc::path(path), request.clone(), self.timeout)
                .await;
            match answer {
                Err(CallError::NoAnswer(_)) if attempts < ATTEMPTS => {}
                answer => return answer.map_err(|error| self.error(error)),
            }
        }
    }

    async fn change<Q>(&self, path: &'static str, request: Q, words: &[&str]) -> Result<(), PravegaError>
    where
        Q: Message + 'static,
    {
        let answer = self.channel.call(sbp_grpc::path(path), request, self.timeout).await;
        let Status { status } = answer.map_err(|error| {
            let is_certain = !matches!(error, CallError::NoAnswer(_));
            let error = self.error(error);
            match is_certain {
                true => error,
                false => error.perhaps_done(),
            }
        })?;
        if status == 0 {
            return Ok(());
        }
        let word = usize::try_from(status).ok().and_then(|status| words.get(status - 1));
        let what = match word {
            Some(word) => (*word).to_owned(),
            None => format!("the controller did not do it: status {status}"),
        };
        let kind = match word {
            Some(&(NO_SCOPE | NO_STREAM)) => PravegaErrorKind::UnknownName,
            _ => PravegaErrorKind::Refused,
        };
        Err(PravegaError::new(kind, what).at(self.address()))
    }

    fn error(&self, error: CallError) -> PravegaError {
        let error = match error {
            CallError::Unreachable(why) | CallError::NoAnswer(why) => PravegaError::new(PravegaErrorKind::Lost, why),
            CallError::Status {
                code: Code::NotFound,
                message,
            } => PravegaError::new(
                PravegaErrorKind::UnknownName,
                format!("the controller has no such thing: {message}"),
            ),
            CallError::Status { code, message } => {
                let error = PravegaError::new(
                    PravegaErrorKind::Refused,
                    format!("the controller refuses with {code:?}: {message}"),
                );
                match code {
                    Code::Unavailable | Code::Aborted | Code::DeadlineExceeded => error.for_now(),
                    _ => error,
                }
            }
        };
        error.at(self.address())
    }

    pub(super) async fn create_scope(&self, scope: &str) -> Result<(), PravegaError> {
        let request = ScopeInfo {
            scope: scope.to_owned(),
        };
        let words = [
            FAILED,
            "the scope exists",
            "the scope's name is none that the controller takes",
        ];
        self.change(path!("createScope"), request, &words).await
    }

    pub(super) async fn create_stream(&self, stream: &StreamName, segments: i32) -> Result<(), PravegaError> {
        let request = StreamConfig {
            stream: Some(info(stream)),
            scaling: Some(ScalingPolicy {
                segments,
                ..ScalingPolicy::default()
            }),
            ..StreamConfig::default()
        };
        let words = [
            FAILED,
            "the stream exists",
            NO_SCOPE,
            "the stream's name is none that the controller takes",
        ];
        self.change(path!("createStream"), request, &words).await
    }

    pub(super) async fn seal_stream(&self, stream: &StreamName) -> Result<(), PravegaError> {
        self.change(path!("sealStream"), info(stream), &[FAILED, NO_STREAM])
            .await
    }

    pub(super) async fn delete_stream(&self, stream: &StreamName) -> Result<(), PravegaError> {
        let words = [FAILED, NO_STREAM, "the stream is not sealed"];
        self.change(path!("deleteStream"), info(stream), &words).await
    }

    /// The segments of a stream that are open, and which keys belong to them.
    pub(super) async fn current_segments(&self, stream: &StreamName) -> Result<Vec<Owned>, PravegaError> {
        let ranges: SegmentRanges = self.ask(path!("getCurrentSegments"), info(stream)).await?;
        ranges.segments.into_iter().map(|range| self.owned(range)).collect()
    }

    /// The segments with which a stream begins, and where they begin.
    pub(super) async fn first_segments(&self, stream: &StreamName) -> Result<Vec<(Segment, i64)>, PravegaError> {
        let request = SegmentsAt {
            stream: Some(info(stream)),
            time: 0,
        };
        let found: SegmentLocations = self.ask(path!("getSegments"), request).await?;
        let locations = found.segments.into_iter();
        locations
            .map(|location| Ok((self.segment(location.segment)?, location.offset)))
            .collect()
    }

    /// The segments that follow one that is sealed.
    pub(super) async fn followers(&self, segment: &Segment) -> Result<Vec<Follower>, PravegaError> {
        let successors: Successors = self
            .ask(path!("getSegmentsImmediatelyFollowing"), segment_info(segment))
            .await?;
        let followers = successors.segments.into_iter().map(|successor| {
            let range = successor.range.ok_or_else(|| self.odd())?;
            Ok(Follower {
                owned: self.owned(range)?,
                follows: successor.follows.into_iter().map(SegmentId).collect(),
            })
        });
        followers.collect()
    }

    /// Which server has a segment: `host:port`.
    pub(super) async fn server_of(&self, segment: &Segment) -> Result<String, PravegaError> {
        let uri: NodeUri = self.ask(path!("getURI"), segment_info(segment)).await?;
        // A server that listens everywhere says so, and is where its controller is.
        let host = match uri.host.as_str() {
            "0.0.0.0" | "" => self.address().rsplit_once(':').map_or("127.0.0.1", |(host, _)| host),
            host => host,
        };
        Ok(format!("{host}:{}", uri.port))
    }

    pub(super) async fn scopes(&self) -> Result<Vec<String>, PravegaError> {
        let mut all = Vec::new();
        let mut continuation = Some(Continuation::default());
        for _ in 0..PAGES {
            let page: Scopes = self.ask(path!("listScopes"), ScopesRequest { continuation }).await?;
            if page.scopes.is_empty() {
                return Ok(all);
            }
            all.extend(page.scopes);
            continuation = page.continuation;
        }
        Err(self.odd())
    }

    pub(super) async fn streams(&self, scope: &str) -> Result<Vec<StreamName>, PravegaError> {
        let mut all = Vec::new();
        let mut continuation = Some(Continuation::default());
        for _ in 0..PAGES {
            let scope = Some(ScopeInfo {
                scope: scope.to_owned(),
            });
            let request = StreamsRequest { scope, continuation };
            let page: Streams = self.ask(path!("listStreamsInScope"), request).await?;
            if page.status != 0 {
                return Err(PravegaError::new(PravegaErrorKind::UnknownName, NO_SCOPE).at(self.address()));
            }
            if page.streams.is_empty() {
                return Ok(all);
            }
            all.extend(page.streams.into_iter().map(|info| StreamName {
                scope: info.scope,
                stream: info.stream,
            }));
            continuation = page.continuation;
        }
        Err(self.odd())
    }

    fn owned(&self, range: SegmentRange) -> Result<Owned, PravegaError> {
        Ok(Owned {
            segment: self.segment(range.segment)?,
            low: range.low,
            high: range.high,
        })
    }

    fn segment(&self, told: Option<SegmentInfo>) -> Result<Segment, PravegaError> {
        let told = told.ok_or_else(|| self.odd())?;
        let stream = told.stream.ok_or_else(|| self.odd())?;
        Ok(Segment {
            scope: stream.scope,
            stream: stream.stream,
            id: SegmentId(told.id),
        })
    }

    fn odd(&self) -> PravegaError {
        PravegaError::new(
            PravegaErrorKind::Peer,
            "the controller's answer leaves out what it is about",
        )
        .at(self.address())
    }
}

const FAILED: &str = "the controller could not do it";
const NO_SCOPE: &str = "there is no such scope";
const NO_STREAM: &str = "there is no such stream";

fn info(stream: &StreamName) -> StreamInfo {
    StreamInfo {
        scope: stream.scope.clone(),
        stream: stream.stream.clone(),
    }
}

fn segment_info(segment: &Segment) -> SegmentInfo {
    SegmentInfo {
        stream: Some(StreamInfo {
            scope: segment.scope.clone(),
            stream: segment.stream.clone(),
        }),
        id: segment.id.0,
    }
}
