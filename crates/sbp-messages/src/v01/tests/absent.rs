//! Absent fields read as what the schema says, unknown values are kept, and a peer does not speak for this side.

use std::fmt::Debug;

use bytes::BytesMut;
use flatbuffers::FlatBufferBuilder;

use super::super::{Wire, decode, fb};
use crate::*;

/// A header with nothing in it: an empty table.
fn empty_table() -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let table = builder.start_table();
    let root = builder.end_table(table);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

#[test]
fn an_empty_table_reads_as_the_default_of_every_message() {
    fn check<M: Message + Default + Debug + PartialEq>() {
        assert_eq!(
            M::decode(&empty_table()).expect("an empty table is valid"),
            M::default()
        );
    }
    check::<GoAway>();
    check::<HeartbeatRequest>();
    check::<HeartbeatResponse>();
    check::<AppendRequest>();
    check::<AppendResponse>();
    check::<FetchRequest>();
    check::<FetchResponse>();
    check::<ListRangesRequest>();
    check::<ListRangesResponse>();
    check::<DescribeRangesRequest>();
    check::<DescribeRangesResponse>();
    check::<CreateStreamsRequest>();
    check::<CreateStreamsResponse>();
    check::<DescribeStreamsRequest>();
    check::<DescribeStreamsResponse>();
    check::<IdAllocationRequest>();
    check::<IdAllocationResponse>();
    check::<SealRangesRequest>();
    check::<SealRangesResponse>();
    check::<SyncRangesRequest>();
    check::<SyncRangesResponse>();
    check::<CreateRangeRequest>();
    check::<CreateRangeResponse>();
    check::<DeleteStreamsRequest>();
    check::<DeleteStreamsResponse>();
    check::<UpdateStreamsRequest>();
    check::<UpdateStreamsResponse>();
    check::<TrimStreamsRequest>();
    check::<TrimStreamsResponse>();
    check::<ReportMetricsRequest>();
    check::<ReportMetricsResponse>();
    check::<DescribePlacementDriverClusterRequest>();
    check::<DescribePlacementDriverClusterResponse>();
    assert_eq!(
        SystemErrorResponse::decode(&empty_table()).expect("valid"),
        SystemErrorResponse::default()
    );
}

#[test]
fn an_empty_table_reads_as_the_default_of_every_part() {
    fn check<M: Wire + Default + Debug + PartialEq>() {
        assert_eq!(
            decode::<M>(&empty_table()).expect("an empty table is valid"),
            M::default(),
            "{}",
            M::NAME
        );
    }
    check::<AppendInfo>();
    check::<AppendResult>();
    check::<FetchInfo>();
    check::<FetchResult>();
    check::<Status>();
    check::<Stream>();
    check::<Range>();
    check::<RangeId>();
    check::<RangeCriteria>();
    check::<RangeServer>();
    check::<ReplicaServer>();
    check::<DescribeRangeResult>();
    check::<ListRangesResult>();
    check::<CreateStreamResult>();
    check::<DescribeStreamResult>();
    check::<SealRangesResult>();
    check::<StreamRanges>();
    check::<SyncRangesResult>();
    check::<DeleteStreamResult>();
    check::<UpdateStreamResult>();
    check::<TrimmedStream>();
    check::<TrimStreamResult>();
    check::<PlacementDriverNode>();
    check::<PlacementDriverCluster>();
    check::<RangeServerStatus>();
    check::<MetadataStoreMember>();
    check::<StuckRange>();
    check::<KeyValue>();
    check::<Feature>();
}

/// The vectors "plain" show it for every message: their bytes are from before there were such fields.
#[test]
fn what_only_servers_of_a_cluster_tell_each_other_is_left_out_where_it_says_nothing() {
    fn length(message: &SealRangesRequest) -> usize {
        let mut out = BytesMut::new();
        message.encode(&mut Encoder::new(), &mut out);
        out.len()
    }
    let plain = length(&SealRangesRequest::default());
    let told = [
        SealRangesRequest {
            term: 1,
            ..SealRangesRequest::default()
        },
        SealRangesRequest {
            force: true,
            ..SealRangesRequest::default()
        },
        SealRangesRequest {
            avoid: vec![sbp_types::ServerId(1)],
            ..SealRangesRequest::default()
        },
    ];
    for message in told {
        assert!(length(&message) > plain, "{message:?}");
    }
}

#[test]
fn no_bytes_at_all_are_no_message() {
    let error = HeartbeatRequest::decode(&[]).expect_err("an empty header has no root");
    assert!(error.costs_debt());
    assert_eq!(error.to_status().code, ErrorCode::INVALID_REQUEST);
    assert_eq!(error.to_string(), "the header is no valid HeartbeatRequest");
}

#[test]
fn unknown_roles_and_codes_are_kept() {
    let request = HeartbeatRequest {
        client_role: ClientRole(77),
        ..HeartbeatRequest::default()
    };
    let mut out = BytesMut::new();
    request.encode(&mut Encoder::new(), &mut out);
    assert_eq!(
        HeartbeatRequest::decode(&out).expect("valid").client_role,
        ClientRole(77)
    );

    let error = SystemErrorResponse {
        status: Status::error(ErrorCode(-3), "odd"),
    };
    out.clear();
    error.encode(&mut Encoder::new(), &mut out);
    assert_eq!(
        SystemErrorResponse::decode(&out).expect("valid").status.code,
        ErrorCode(-3)
    );
}

#[test]
fn bytes_behind_the_root_mean_nothing() {
    let request = HeartbeatRequest {
        connection_id: 5,
        ..HeartbeatRequest::default()
    };
    let mut out = BytesMut::new();
    request.encode(&mut Encoder::new(), &mut out);
    out.extend_from_slice(&[0; 24]);
    assert_eq!(HeartbeatRequest::decode(&out).expect("valid"), request);
}

#[test]
fn codes_of_this_side_are_not_taken_from_a_peer() {
    let mut out = BytesMut::new();
    let lie = SystemErrorResponse {
        status: Status::error(ErrorCode(9001), "trust me"),
    };
    lie.encode(&mut Encoder::new(), &mut out);
    let status = SystemErrorResponse::decode(&out).expect("valid").status;
    assert_eq!(status.code, ErrorCode::UNKNOWN);
    assert_eq!(status.message, "the peer's code 9001: trust me");
}

#[test]
fn control_characters_of_a_peer_do_not_reach_the_terminal() {
    let status = Status::error(ErrorCode::NOT_FOUND, "\u{1b}[31mred\n");
    assert_eq!(status.to_string(), "NOT_FOUND (1404): \\u{1b}[31mred\\n");
}

#[test]
fn the_generated_code_and_its_runtime_come_from_one_release() {
    let manifest = include_str!("../../../../../Cargo.toml");
    let pinned = format!("flatbuffers = \"={}\"", sbp_schema::FLATC_VERSION);
    assert!(manifest.contains(&pinned), "{pinned} is not what Cargo.toml says");
    assert_eq!(fb::ErrorCode::NONE.0, ErrorCode::NONE.0);
}
