//! Bytes that mean harm: whatever they are, reading ends, soon, and without a panic.

use bytes::BytesMut;
use flatbuffers::{FlatBufferBuilder, WIPOffset};
use proptest::prelude::*;

use super::super::fb;
use super::strategies::*;
use crate::*;

/// Lets every decoder loose on `header`; `true` when any takes it.
fn decode_as_everything(header: &[u8]) -> bool {
    let results = [
        GoAway::decode(header).is_ok(),
        HeartbeatRequest::decode(header).is_ok(),
        HeartbeatResponse::decode(header).is_ok(),
        AppendRequest::decode(header).is_ok(),
        AppendResponse::decode(header).is_ok(),
        FetchRequest::decode(header).is_ok(),
        FetchResponse::decode(header).is_ok(),
        ListRangesRequest::decode(header).is_ok(),
        ListRangesResponse::decode(header).is_ok(),
        DescribeRangesRequest::decode(header).is_ok(),
        DescribeRangesResponse::decode(header).is_ok(),
        CreateStreamsRequest::decode(header).is_ok(),
        CreateStreamsResponse::decode(header).is_ok(),
        DescribeStreamsRequest::decode(header).is_ok(),
        DescribeStreamsResponse::decode(header).is_ok(),
        IdAllocationRequest::decode(header).is_ok(),
        IdAllocationResponse::decode(header).is_ok(),
        SealRangesRequest::decode(header).is_ok(),
        SealRangesResponse::decode(header).is_ok(),
        SyncRangesRequest::decode(header).is_ok(),
        SyncRangesResponse::decode(header).is_ok(),
        CreateRangeRequest::decode(header).is_ok(),
        CreateRangeResponse::decode(header).is_ok(),
        DeleteStreamsRequest::decode(header).is_ok(),
        DeleteStreamsResponse::decode(header).is_ok(),
        UpdateStreamsRequest::decode(header).is_ok(),
        UpdateStreamsResponse::decode(header).is_ok(),
        TrimStreamsRequest::decode(header).is_ok(),
        TrimStreamsResponse::decode(header).is_ok(),
        ReportMetricsRequest::decode(header).is_ok(),
        ReportMetricsResponse::decode(header).is_ok(),
        DescribePlacementDriverClusterRequest::decode(header).is_ok(),
        DescribePlacementDriverClusterResponse::decode(header).is_ok(),
        SystemErrorResponse::decode(header).is_ok(),
        PlacementDriverCluster::from_detail(header).is_ok(),
    ];
    results.contains(&true)
}

fn encoded<M: Message>(message: &M) -> BytesMut {
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_survived(header in proptest::collection::vec(any::<u8>(), 0..400)) {
        decode_as_everything(&header);
    }

    /// Small numbers look like offsets and lengths, so these get further than garbage.
    #[test]
    fn plausible_garbage_is_survived(words in proptest::collection::vec(0_u16..64, 0..200)) {
        let header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        decode_as_everything(&header);
    }

    #[test]
    fn a_valid_header_with_damage_is_survived(
        message in describe_streams_response(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut header = encoded(&message);
        let length = header.len();
        for (place, value) in damage {
            header[place.index(length)] = value;
        }
        decode_as_everything(&header);
    }
}

proptest! {
    // Each case decodes at every length, so a few go a long way.
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_valid_header_cut_short_anywhere_is_survived(
        message in list_ranges_response(),
        between_servers in replica_append_request(),
    ) {
        let header = encoded(&between_servers);
        for end in 0..header.len() {
            decode_as_everything(&header[..end]);
        }
        let header = encoded(&message);
        for end in 0..header.len() {
            decode_as_everything(&header[..end]);
        }
    }
}

#[test]
fn templates_cut_short_anywhere_are_no_messages() {
    let request = AppendRequest {
        timeout_ms: 5,
        append_requests: vec![AppendInfo::default(); 3].into(),
    };
    let header = encoded(&request);
    for end in 0..header.len() {
        assert!(
            AppendRequest::decode(&header[..end]).is_err(),
            "cut at {end} of {}",
            header.len()
        );
    }
    let response = AppendResponse {
        append_responses: vec![AppendResult::default(); 3].into(),
        ..Default::default()
    };
    let header = encoded(&response);
    // The last two bytes pad the status, whose code is the last that counts.
    for end in 0..header.len() - 2 {
        assert!(
            AppendResponse::decode(&header[..end]).is_err(),
            "cut at {end} of {}",
            header.len()
        );
    }
}

/// A list of streams, all the same object: a few bytes for each entry, kilobytes once it is read.
fn shared_streams(entries: usize, name_length: usize) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let name = builder.create_string(&"n".repeat(name_length));
    let stream = fb::Stream::create(
        &mut builder,
        &fb::StreamArgs {
            name: Some(name),
            ..Default::default()
        },
    );
    let streams = builder.create_vector(&vec![stream; entries]);
    let root = fb::CreateStreamsRequest::create(
        &mut builder,
        &fb::CreateStreamsRequestArgs {
            timeout_ms: 0,
            streams: Some(streams),
        },
    );
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

#[test]
fn a_small_header_cannot_unfold_into_a_large_message() {
    let bomb = shared_streams(10_000, 1_000);
    assert!(bomb.len() < 50_000, "it is small");
    let error = CreateStreamsRequest::decode(&bomb).expect_err("10 MB out of 41 kB");
    assert!(error.costs_debt());
    assert!(
        CreateStreamsRequest::decode(&shared_streams(40, 1_000)).is_ok(),
        "a little sharing is allowed"
    );
}

#[test]
fn more_tables_than_any_message_needs_are_refused() {
    let mut builder = Encoder::new().builder;
    let entry = fb::AppendInfo::create(&mut builder, &fb::AppendInfoArgs::default());
    let header = |builder: &mut super::super::Builder, entries: usize| {
        let vector = builder.create_vector(&vec![entry; entries]);
        let root = fb::AppendRequest::create(
            builder,
            &fb::AppendRequestArgs {
                timeout_ms: 0,
                append_requests: Some(vector),
            },
        );
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    };
    let error = AppendRequest::decode(&header(&mut builder, 70_000)).expect_err("70,001 tables");
    assert!(error.costs_debt());
}

#[test]
fn vectors_that_claim_more_than_there_is_are_refused() {
    for claim in [2_u32, 1_000, u32::MAX / 4, u32::MAX] {
        let mut header = encoded(&AppendRequest {
            timeout_ms: 0,
            append_requests: vec![AppendInfo::default()].into(),
        });
        header[40..44].copy_from_slice(&claim.to_le_bytes());
        assert!(AppendRequest::decode(&header).is_err(), "{claim}");
    }
}

#[test]
fn text_that_is_no_text_is_refused() {
    let mut builder = FlatBufferBuilder::new();
    let bytes = builder.create_vector(&[0xFF_u8, 0xFE, 0x80, 0x00]);
    let root = fb::HeartbeatRequest::create(
        &mut builder,
        &fb::HeartbeatRequestArgs {
            client_id: Some(WIPOffset::new(bytes.value())),
            ..Default::default()
        },
    );
    builder.finish_minimal(root);
    assert!(HeartbeatRequest::decode(builder.finished_data()).is_err());
}
