//! What the templates write and read is what builder and verifier would have.

use std::fmt::Debug;

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use sbp_types::{Position, StreamId, TimestampMs};
use smallvec::smallvec;

use super::super::template::Templated;
use super::super::{decode, encode};
use super::strategies::*;
use crate::{
    AppendInfo, AppendRequest, AppendResponse, Encoder, ErrorCode, FetchRequest, Message, ReplicaEntry, Status,
};

/// Bytes to overwrite, and how much to cut off or add at the end.
type Damage = (Vec<(Index, u8)>, Index, bool);

fn damage() -> impl Strategy<Value = Damage> {
    (
        vec((any::<Index>(), prop_oneof![any::<u8>(), 0_u8..8]), 0..4),
        any::<Index>(),
        any::<bool>(),
    )
}

fn same_as_the_builders<M: Message + Templated + Debug + PartialEq>(
    message: &M,
    (overwritten, end, cut): Damage,
) -> Result<(), TestCaseError> {
    let mut encoder = Encoder::new();
    let (mut template, mut builder) = (BytesMut::new(), BytesMut::new());
    prop_assert!(
        message.write_template(&mut template).is_some(),
        "it can be said by the template"
    );
    encode(message, &mut encoder, &mut builder);
    prop_assert_eq!(&decode::<M>(&template).expect("a template verifies"), message);
    prop_assert_eq!(&decode::<M>(&builder).expect("the builder's bytes verify"), message);
    let by_template = M::read_template(&template);
    prop_assert_eq!(by_template.as_ref(), Some(message));
    prop_assert_eq!(M::read_template(&builder), None);

    let mut damaged = template.to_vec();
    for (place, value) in overwritten {
        let place = place.index(damaged.len());
        damaged[place] = value;
    }
    if cut {
        damaged.truncate(end.index(damaged.len() + 1));
    } else {
        damaged.resize(damaged.len() + end.index(20), 7);
    }
    if let Some(read) = M::read_template(&damaged) {
        prop_assert_eq!(decode::<M>(&damaged).expect("what a template reads verifies"), read);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn append_request_template(message in append_request(), damage in damage()) {
        same_as_the_builders(&message, damage)?;
    }

    #[test]
    fn append_response_template(message in append_response(Just(Status::success())), damage in damage()) {
        same_as_the_builders(&message, damage)?;
    }

    #[test]
    fn fetch_request_template(message in fetch_request(), damage in damage()) {
        let message = FetchRequest { withdraw: 0, ..message };
        same_as_the_builders(&message, damage)?;
    }

    #[test]
    fn fetch_response_template(message in fetch_response(Just(Status::success())), damage in damage()) {
        same_as_the_builders(&message, damage)?;
    }
}

#[test]
fn a_template_with_any_byte_changed_is_read_as_it_verifies() {
    let request = AppendRequest {
        timeout_ms: 5,
        append_requests: vec![AppendInfo::default(); 3].into(),
    };
    let response = AppendResponse {
        append_responses: vec![Default::default(); 3].into(),
        ..Default::default()
    };
    fn check<M: Templated + Debug + PartialEq>(message: &M) {
        let mut header = BytesMut::new();
        message.write_template(&mut header).expect("short");
        for place in 0..header.len() {
            let right = header[place];
            for value in [0, 1, 2, 4, 0x7F, 0x80, 0xFF, right ^ 4] {
                header[place] = value;
                let verified = decode::<M>(&header).ok();
                let by_template = M::read_template(&header);
                assert!(
                    by_template.is_none() || by_template == verified,
                    "byte {place} is {value}"
                );
            }
            header[place] = right;
        }
    }
    check(&request);
    check(&response);
}

#[test]
fn absurdly_many_entries_go_through_the_builder() {
    let entries = vec![
        AppendInfo {
            stream_id: StreamId(9),
            ..AppendInfo::default()
        };
        16_385
    ];
    let message = AppendRequest {
        timeout_ms: 1,
        append_requests: entries.into(),
    };
    assert_eq!(message.write_template(&mut BytesMut::new()), None);
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    assert_eq!(AppendRequest::decode(&out).expect("valid"), message);
}

#[test]
fn a_withdrawal_goes_through_the_builder() {
    let message = FetchRequest::withdrawal(77);
    assert_eq!(message.write_template(&mut BytesMut::new()), None);
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    let read = FetchRequest::decode(&out).expect("valid");
    assert_eq!((read.withdrawn(), read), (Some(77), message));
}

#[test]
fn what_servers_tell_each_other_goes_through_the_builder() {
    let told = [
        AppendInfo {
            append_time_ms: TimestampMs(5),
            ..AppendInfo::default()
        },
        AppendInfo {
            confirmed: Some(Position::default()),
            ..AppendInfo::default()
        },
        AppendInfo {
            entry: ReplicaEntry::CONFIRMED,
            ..AppendInfo::default()
        },
        AppendInfo {
            sealed_end: Some(Position::default()),
            ..AppendInfo::default()
        },
        AppendInfo {
            marks: 1,
            ..AppendInfo::default()
        },
    ];
    for entry in told {
        let message = AppendRequest {
            timeout_ms: 0,
            append_requests: smallvec![AppendInfo::default(), entry],
        };
        assert_eq!(message.write_template(&mut BytesMut::new()), None, "{entry:?}");
        let mut out = BytesMut::new();
        message.encode(&mut Encoder::new(), &mut out);
        assert_eq!(AppendRequest::decode(&out).expect("valid"), message);
    }
    let mut message = AppendResponse {
        append_responses: vec![Default::default(); 2].into(),
        ..Default::default()
    };
    message.append_responses[1].next_marks = 1;
    assert_eq!(message.write_template(&mut BytesMut::new()), None);
}

#[test]
fn errors_go_through_the_builder() {
    let mut message = AppendResponse {
        append_responses: vec![Default::default(); 2].into(),
        ..Default::default()
    };
    message.append_responses[1].status = Status::error(ErrorCode::NOT_FOUND, "");
    assert_eq!(message.write_template(&mut BytesMut::new()), None);
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    assert_eq!(AppendResponse::decode(&out).expect("valid"), message);
}

#[test]
fn as_many_entries_as_a_request_may_have_fit() {
    let entries = vec![
        AppendInfo {
            stream_id: StreamId(9),
            ..AppendInfo::default()
        };
        1_024
    ];
    let message = AppendRequest {
        timeout_ms: 1,
        append_requests: entries.into(),
    };
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    assert_eq!(AppendRequest::decode(&out).expect("valid"), message);
    assert_eq!(
        out.len(),
        44 + 4 * 1_024 + 4 + 40 * 1_024,
        "head and root, offsets, padding, entries"
    );
}
