//! What is written is read back equal.

use std::fmt::Debug;

use bytes::BytesMut;
use proptest::prelude::*;

use super::changes::*;
use super::strategies::*;
use crate::{Encoder, Message, PlacementDriverCluster, SystemErrorResponse};

/// Encodes behind bytes that are already there, twice with one encoder, and reads the second.
fn there_and_back<M: Message + Debug + PartialEq>(message: &M) -> Result<(), TestCaseError> {
    let mut encoder = Encoder::new();
    let mut out = BytesMut::from(&b"xyz"[..]);
    message.encode(&mut encoder, &mut out);
    let first = out.len();
    message.encode(&mut encoder, &mut out);
    prop_assert_eq!(&out[..3], b"xyz");
    prop_assert_eq!(
        &out[3..first],
        &out[first..],
        "an encoder keeps nothing of the last message"
    );
    let read = M::decode(&out[first..]);
    prop_assert_eq!(&read.expect("own bytes are valid"), message);
    Ok(())
}

macro_rules! round_trips {
    ($( $name:ident: $strategy:expr; )*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $name(message in $strategy) {
                    there_and_back(&message)?;
                }
            )*
        }
    };
}

round_trips! {
    go_away_header: go_away();
    heartbeat_requests: heartbeat_request();
    heartbeat_responses: heartbeat_response();
    append_requests: append_request();
    append_responses: append_response(status());
    append_requests_between_servers: replica_append_request();
    append_responses_between_servers: replica_append_response();
    fetch_requests: fetch_request();
    fetch_responses: fetch_response(status());
    list_ranges_requests: list_ranges_request();
    list_ranges_responses: list_ranges_response();
    describe_ranges_requests: describe_ranges_request();
    describe_ranges_responses: describe_ranges_response();
    create_streams_requests: create_streams_request();
    create_streams_responses: create_streams_response();
    describe_streams_requests: describe_streams_request();
    describe_streams_responses: describe_streams_response();
    id_allocation_requests: id_allocation_request();
    id_allocation_responses: id_allocation_response();
    seal_ranges_requests: seal_ranges_request();
    seal_ranges_responses: seal_ranges_response();
    sync_ranges_requests: sync_ranges_request();
    sync_ranges_responses: sync_ranges_response();
    create_range_requests: create_range_request();
    create_range_responses: create_range_response();
    delete_streams_requests: delete_streams_request();
    delete_streams_responses: delete_streams_response();
    update_streams_requests: update_streams_request();
    update_streams_responses: update_streams_response();
    trim_streams_requests: trim_streams_request();
    trim_streams_responses: trim_streams_response();
    report_metrics_requests: report_metrics_request();
    report_metrics_responses: report_metrics_response();
    describe_cluster_requests: describe_cluster_request();
    describe_cluster_responses: describe_cluster_response();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn system_errors(status in status()) {
        let message = SystemErrorResponse { status };
        let mut out = BytesMut::new();
        message.encode(&mut Encoder::new(), &mut out);
        prop_assert_eq!(SystemErrorResponse::decode(&out).expect("own bytes are valid"), message);
    }

    #[test]
    fn cluster_as_a_detail(cluster in cluster()) {
        let detail = cluster.to_detail(&mut Encoder::new());
        prop_assert_eq!(PlacementDriverCluster::from_detail(&detail).expect("own bytes are valid"), cluster);
    }
}
