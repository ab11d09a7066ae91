//! What the templates write is what the builder would have said.

use std::fmt::Debug;

use bytes::BytesMut;
use proptest::prelude::*;
use sbp_types::StreamId;

use super::super::{Wire, decode, encode};
use super::strategies::*;
use crate::{AppendInfo, AppendRequest, Encoder, Message, Status};

fn same_as_the_builders<M: Message + Wire + Debug + PartialEq>(message: &M) -> Result<(), TestCaseError> {
    let mut encoder = Encoder::new();
    let (mut template, mut builder) = (BytesMut::new(), BytesMut::new());
    message.encode(&mut encoder, &mut template);
    encode(message, &mut encoder, &mut builder);
    prop_assert_ne!(&template, &builder, "the template was not used");
    let from_template: M = decode(&template).expect("a template verifies");
    let from_builder: M = decode(&builder).expect("the builder's bytes verify");
    prop_assert_eq!(&from_template, &from_builder);
    prop_assert_eq!(&from_template, message);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn append_request_template(message in append_request()) {
        same_as_the_builders(&message)?;
    }

    #[test]
    fn append_response_template(message in append_response(Just(Status::success()))) {
        same_as_the_builders(&message)?;
    }

    #[test]
    fn fetch_request_template(message in fetch_request()) {
        same_as_the_builders(&message)?;
    }

    #[test]
    fn fetch_response_template(message in fetch_response(Just(Status::success()))) {
        same_as_the_builders(&message)?;
    }
}

#[test]
fn absurdly_many_entries_go_through_the_builder() {
    let message = AppendRequest {
        timeout_ms: 1,
        append_requests: vec![
            AppendInfo {
                stream_id: StreamId(9),
                ..AppendInfo::default()
            };
            65_537
        ]
        .into(),
    };
    let mut encoder = Encoder::new();
    let (mut out, mut builder) = (BytesMut::new(), BytesMut::new());
    message.encode(&mut encoder, &mut out);
    encode(&message, &mut encoder, &mut builder);
    assert_eq!(out, builder);
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
        "28 + 12 + vector + padding + entries"
    );
}
