//! Messages of the controller, which knows scopes and streams, which segments a stream has, and which server has a segment:
//! calls of the gRPC service [`SERVICE`].
//!
//! Those and those fields alone that are used are here, by their numbers.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

/// The service.
pub const SERVICE: &str = "io.pravega.controller.stream.api.grpc.v1.ControllerService";

/// A stream: a scope, and a name in it. The request of several calls.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct StreamInfo {
    /// The scope.
    #[prost(string, tag = "1")]
    pub scope: String,
    /// The stream.
    #[prost(string, tag = "2")]
    pub stream: String,
}

/// A scope. The request of `createScope` and `deleteScope`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScopeInfo {
    /// The scope.
    #[prost(string, tag = "1")]
    pub scope: String,
}

/// A segment of a stream.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SegmentInfo {
    /// The stream.
    #[prost(message, optional, tag = "1")]
    pub stream: Option<StreamInfo>,
    /// The segment's number: its epoch in the upper half.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// A segment, and which routing keys belong to it.
#[derive(Clone, PartialEq, Message)]
pub struct SegmentRange {
    /// The segment.
    #[prost(message, optional, tag = "1")]
    pub segment: Option<SegmentInfo>,
    /// Where the positions of its keys begin.
    #[prost(double, tag = "2")]
    pub low: f64,
    /// Where they end.
    #[prost(double, tag = "3")]
    pub high: f64,
}

/// The answer of `getCurrentSegments`.
#[derive(Clone, PartialEq, Message)]
pub struct SegmentRanges {
    /// The segments.
    #[prost(message, repeated, tag = "1")]
    pub segments: Vec<SegmentRange>,
}

/// How many segments a stream has, and when that changes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScalingPolicy {
    /// How it scales; 0: it keeps its number of segments.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// The rate that a segment is meant to have.
    #[prost(int32, tag = "2")]
    pub target_rate: i32,
    /// Into how many a segment is split.
    #[prost(int32, tag = "3")]
    pub scale_factor: i32,
    /// How many segments there are at least.
    #[prost(int32, tag = "4")]
    pub segments: i32,
}

/// What is removed from a stream's beginning.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RetentionPolicy {
    /// 0: nothing; 1: what is older than so many milliseconds; 2: what is beyond so many bytes.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// So many.
    #[prost(int64, tag = "2")]
    pub value: i64,
    /// How many are kept at most; clients of reader groups set it.
    #[prost(int64, tag = "3")]
    pub most: i64,
}

/// A stream's configuration. The request of `createStream`, and the answer of `getStreamConfiguration`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StreamConfig {
    /// The stream.
    #[prost(message, optional, tag = "1")]
    pub stream: Option<StreamInfo>,
    /// How many segments it has.
    #[prost(message, optional, tag = "2")]
    pub scaling: Option<ScalingPolicy>,
    /// What is removed from its beginning.
    #[prost(message, optional, tag = "3")]
    pub retention: Option<RetentionPolicy>,
    /// By what it can be found.
    #[prost(message, optional, tag = "4")]
    pub tags: Option<Tags>,
}

/// What is told of a stream, as it was said when it was made.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Tags {
    /// Each.
    #[prost(string, repeated, tag = "1")]
    pub tags: Vec<String>,
}

/// What became of a call that changes something: 0 is done, and other numbers depend on the call.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Status {
    /// The number.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// Which server has a segment. The answer of `getURI`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeUri {
    /// Its host.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Its port.
    #[prost(int32, tag = "2")]
    pub port: i32,
}

/// The request of `getSegments`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SegmentsAt {
    /// The stream.
    #[prost(message, optional, tag = "1")]
    pub stream: Option<StreamInfo>,
    /// The time, in milliseconds since 1970; 0: the stream's beginning.
    #[prost(int64, tag = "2")]
    pub time: i64,
}

/// A segment, and where in it one begins to read.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SegmentLocation {
    /// The segment.
    #[prost(message, optional, tag = "1")]
    pub segment: Option<SegmentInfo>,
    /// The offset.
    #[prost(int64, tag = "2")]
    pub offset: i64,
}

/// The answer of `getSegments`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SegmentLocations {
    /// The segments.
    #[prost(message, repeated, tag = "1")]
    pub segments: Vec<SegmentLocation>,
}

/// A segment that follows another one.
#[derive(Clone, PartialEq, Message)]
pub struct Successor {
    /// It, and which keys belong to it.
    #[prost(message, optional, tag = "1")]
    pub range: Option<SegmentRange>,
    /// The segments that it follows: all of them end before it begins.
    #[prost(int64, repeated, tag = "2")]
    pub follows: Vec<i64>,
}

/// The answer of `getSegmentsImmediatelyFollowing`.
#[derive(Clone, PartialEq, Message)]
pub struct Successors {
    /// The segments.
    #[prost(message, repeated, tag = "1")]
    pub segments: Vec<Successor>,
}

/// The answer of `checkStreamExists`, `checkScopeExists` and `isSegmentValid`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Exists {
    /// Whether there is one.
    #[prost(bool, tag = "1")]
    pub exists: bool,
}

/// Where the next page of a list begins.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Continuation {
    /// The place; empty: the beginning.
    #[prost(string, tag = "1")]
    pub token: String,
}

/// The request of `listScopes`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScopesRequest {
    /// Where the page begins.
    #[prost(message, optional, tag = "1")]
    pub continuation: Option<Continuation>,
}

/// The answer of `listScopes`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Scopes {
    /// The scopes; none: the list has ended.
    #[prost(string, repeated, tag = "1")]
    pub scopes: Vec<String>,
    /// Where the next page begins.
    #[prost(message, optional, tag = "2")]
    pub continuation: Option<Continuation>,
}

/// The request of `listStreamsInScope`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StreamsRequest {
    /// The scope.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<ScopeInfo>,
    /// Where the page begins.
    #[prost(message, optional, tag = "2")]
    pub continuation: Option<Continuation>,
}

/// The answer of `listStreamsInScope`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Streams {
    /// The streams; none: the list has ended.
    #[prost(message, repeated, tag = "1")]
    pub streams: Vec<StreamInfo>,
    /// Where the next page begins.
    #[prost(message, optional, tag = "2")]
    pub continuation: Option<Continuation>,
    /// Whether there is such a scope.
    #[prost(int32, tag = "3")]
    pub status: i32,
}

/// The request of `truncateStream`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cut {
    /// The stream.
    #[prost(message, optional, tag = "1")]
    pub stream: Option<StreamInfo>,
    /// Where each segment is to begin, by its number.
    #[prost(btree_map = "int64, int64", tag = "2")]
    pub offsets: BTreeMap<i64, i64>,
}

/// The answer of `getDelegationToken`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DelegationToken {
    /// The token.
    #[prost(string, tag = "1")]
    pub token: String,
}

/// A reader group. The request of `getReaderGroupConfig` and `deleteReaderGroup`, and of `createReaderGroup`, where more follows.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GroupInfo {
    /// The scope.
    #[prost(string, tag = "1")]
    pub scope: String,
    /// The group.
    #[prost(string, tag = "2")]
    pub group: String,
}

/// The answer of `createReaderGroup`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GroupMade {
    /// What became of it; 0: there is such a group now.
    #[prost(int32, tag = "1")]
    pub status: i32,
    /// Its configuration, which is the request of whoever made it.
    #[prost(bytes = "bytes", tag = "2")]
    pub config: Bytes,
}

/// The answer of `getReaderGroupConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GroupConfig {
    /// Its configuration.
    #[prost(bytes = "bytes", tag = "1")]
    pub config: Bytes,
    /// 0: there is such a group.
    #[prost(int32, tag = "2")]
    pub status: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was said in the call with this name: by the client, and by the controller.
    fn said(name: &str) -> [Vec<u8>; 2] {
        let text = include_str!("../tests/vectors/controller.hex");
        [">", "<"].map(|side| {
            let of_call = text
                .lines()
                .find_map(|line| line.strip_prefix(side)?.trim_start().strip_prefix(name));
            hex::decode(of_call.expect("the call").trim()).expect("hexadecimal")
        })
    }

    /// Reads a message that is written again as it was.
    fn read<M: Message + Default>(bytes: &[u8]) -> M {
        let message = M::decode(bytes).expect("a message");
        assert_eq!(message.encode_to_vec(), bytes);
        message
    }

    fn stream() -> StreamInfo {
        StreamInfo {
            scope: String::from("sc"),
            stream: String::from("st"),
        }
    }

    #[test]
    fn the_messages_of_real_peers_are_read_and_written() {
        let [asked, told] = said("createScope");
        assert_eq!(read::<ScopeInfo>(&asked).scope, "sc");
        assert_eq!(read::<Status>(&told).status, 0);
        let [asked, _] = said("createStream");
        let config: StreamConfig = read(&asked);
        assert_eq!(config.scaling.map(|scaling| scaling.segments), Some(2));
        let [asked, told] = said("getCurrentSegments");
        assert_eq!(read::<StreamInfo>(&asked), stream());
        let ranges: SegmentRanges = read(&told);
        let ranges: Vec<_> = ranges.segments.iter().map(|range| (range.low, range.high)).collect();
        assert_eq!(ranges, [(0.0, 0.5), (0.5, 1.0)]);
        let [asked, told] = said("getURI");
        assert_eq!(read::<SegmentInfo>(&asked).stream, Some(stream()));
        assert_eq!(read::<NodeUri>(&told).port, 6_000);
        let [asked, told] = said("getSegments");
        assert_eq!(read::<SegmentsAt>(&asked).time, 0);
        assert_eq!(read::<SegmentLocations>(&told).segments.len(), 2);
        let [asked, told] = said("listStreamsInScope");
        assert_eq!(
            read::<StreamsRequest>(&asked).scope.map(|scope| scope.scope),
            Some(String::from("sc"))
        );
        assert_eq!(read::<Streams>(&told).streams.len(), 4);
        let [asked, told] = said("listScopes");
        assert!(
            read::<ScopesRequest>(&asked)
                .continuation
                .is_some_and(|place| place.token.is_empty())
        );
        assert_eq!(read::<Scopes>(&told).scopes, ["sc", "_system"]);
    }
}
