//! Extended headers: whatever is read can be judged, and is written and read again equal.

use std::fmt::Debug;

use bytes::BytesMut;
use sbp_messages::*;

use crate::vectors;

/// What is done with the bytes of one kind of header.
type Check = fn(&[u8]);

/// The kinds of headers, each with what else is done with one that was read.
macro_rules! kinds {
    ($( $message:ident $(, $judge:expr)?; )*) => {
        const KINDS: &[(&str, Check)] = &[
            $( (stringify!($message), |header| {
                if let Some(_message) = agree::<$message>(header) {
                    $( ($judge as fn(&$message))(&_message); )?
                }
            }), )*
            ("SystemErrorResponse", system_error),
            ("PlacementDriverCluster", cluster),
        ];
    };
}

kinds! {
    GoAway;
    HeartbeatRequest, |request| { let _ = features::find_number(&request.features, features::MAX_CALLS); };
    HeartbeatResponse, |response| { let _ = features::find_number(&response.features, features::MAX_CALLS); };
    IdAllocationRequest, |request| { let _ = request.validate(); };
    IdAllocationResponse;
    AppendRequest, |request| {
        let _ = request.validate(1_000);
        request.append_requests.iter().for_each(|entry| drop(entry.fault()));
        let _ = requested_timeout(request.timeout_ms);
    };
    AppendResponse, |response| { let _ = throttle_time(response.throttle_time_ms); };
    FetchRequest, |request| {
        let _ = request.validate();
        request.fetch_requests.iter().for_each(|entry| drop(entry.fault()));
        assert!(request.max_wait().as_secs() <= 60);
    };
    FetchResponse, |response| { let _ = response.validate(1_000); };
    ListRangesRequest, |request| {
        let _ = request.validate();
        request.range_criteria.iter().for_each(|criteria| drop(criteria.fault()));
    };
    ListRangesResponse;
    SealRangesRequest, |request| {
        let _ = request.validate();
        request.ranges.iter().for_each(|range| drop(range.fault()));
    };
    SealRangesResponse;
    SyncRangesRequest, |request| { let _ = request.validate(); };
    SyncRangesResponse;
    CreateRangeRequest, |request| { let _ = request.validate(); };
    CreateRangeResponse, |response| { let _ = response.range.as_ref().and_then(Range::primary); };
    DescribeRangesRequest, |request| {
        let _ = request.validate();
        request.ranges.iter().for_each(|range| drop(range.fault()));
    };
    DescribeRangesResponse;
    CreateStreamsRequest, |request| {
        let _ = request.validate();
        request.streams.iter().for_each(|stream| drop(stream.fault()));
    };
    CreateStreamsResponse;
    DeleteStreamsRequest, |request| { let _ = request.validate(); };
    DeleteStreamsResponse;
    UpdateStreamsRequest, |request| { let _ = request.validate(); };
    UpdateStreamsResponse;
    DescribeStreamsRequest, |request| { let _ = request.validate(); };
    DescribeStreamsResponse;
    TrimStreamsRequest, |request| {
        let _ = request.validate();
        request.trimmed_streams.iter().for_each(|entry| drop(entry.fault()));
    };
    TrimStreamsResponse;
    ReportMetricsRequest;
    ReportMetricsResponse;
    DescribePlacementDriverClusterRequest;
    DescribePlacementDriverClusterResponse, |response| {
        let _ = response.cluster.as_ref().and_then(PlacementDriverCluster::leader);
    };
}

/// The first byte chooses the kind of header, the rest is the header.
pub fn run(data: &[u8]) {
    let Some((kind, header)) = data.split_first() else {
        return;
    };
    if let Some((_, check)) = KINDS.get(usize::from(*kind)) {
        check(header);
    }
}

/// The vectors of all messages.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, vectors) in vectors::files("messages") {
        let Some(kind) = KINDS.iter().position(|(kind, _)| *kind == name) else {
            continue;
        };
        let kind = u8::try_from(kind).unwrap_or(u8::MAX);
        let parts = vectors.iter().flat_map(|vector| &vector.parts);
        seeds.extend(parts.map(|(_, header)| [&[kind], header.as_slice()].concat()));
    }
    seeds
}

/// Reads a header and, if that is one, writes it and reads it again.
fn agree<M: Message + Debug + PartialEq>(header: &[u8]) -> Option<M> {
    let message = M::decode(header).ok()?;
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    let again = M::decode(&out).expect("what we write can be read");
    assert_eq!(again, message, "what we write is what was read");
    Some(message)
}

fn system_error(header: &[u8]) {
    let Ok(message) = SystemErrorResponse::decode(header) else {
        return;
    };
    let _ = (message.status.to_string(), message.status.code.rule());
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    let again = SystemErrorResponse::decode(&out).expect("what we write can be read");
    assert_eq!(again, message, "what we write is what was read");
    assert!(!again.status.code.is_local(), "a peer spoke for this side");
}

fn cluster(detail: &[u8]) {
    let Ok(cluster) = PlacementDriverCluster::from_detail(detail) else {
        return;
    };
    let again = cluster.to_detail(&mut Encoder::new());
    let again = PlacementDriverCluster::from_detail(&again).expect("what we write can be read");
    assert_eq!(again, cluster, "what we write is what was read");
}
