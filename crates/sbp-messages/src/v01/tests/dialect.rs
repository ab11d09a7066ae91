//! A second dialect is one more module: the same messages, other bytes.
//!
//! This one has the ids of two fields of `AppendInfo` exchanged. Its schema is `tests/vectors/renumbered.fbs`, and the
//! bytes it is measured by are the schema compiler's.

#[path = "../../../../../tests/vectors/reader.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod reader;

use std::fmt::Debug;

use bytes::BytesMut;
use sbp_types::StreamId;
use smallvec::smallvec;

use crate::{AppendInfo, AppendRequest, AppendResponse, Encoder, Profile, V01};

/// The dialect's module: what a real one would be.
mod renumbered {
    use super::super::super::{Builder, Field, Wire, Written, decode, encode, fb};
    use super::*;
    use crate::DecodeError;

    /// The dialect.
    pub(super) struct Renumbered;

    /// A struct of ours, as this dialect writes it.
    struct Of<T>(T);

    impl Wire for Of<AppendInfo> {
        // The two fields have one type, so the generated table serves with its names exchanged.
        type Table<'a> = fb::AppendInfo<'a>;
        const NAME: &'static str = "AppendInfo";

        fn read(table: Self::Table<'_>) -> Self {
            Self(AppendInfo {
                stream_id: StreamId(table.stream_id()),
                request_index: table.batch_length(),
                batch_length: table.request_index(),
                ..AppendInfo::default()
            })
        }

        fn write(&self, builder: &mut Builder) -> Written<Self> {
            let args = fb::AppendInfoArgs {
                stream_id: self.0.stream_id.0,
                request_index: self.0.batch_length,
                batch_length: self.0.request_index,
                ..fb::AppendInfoArgs::default()
            };
            fb::AppendInfo::create(builder, &args)
        }
    }

    impl Wire for Of<AppendRequest> {
        type Table<'a> = fb::AppendRequest<'a>;
        const NAME: &'static str = "AppendRequest";

        fn read(table: Self::Table<'_>) -> Self {
            let entries: Vec<Of<AppendInfo>> = Field::read(table.append_requests());
            Self(AppendRequest {
                timeout_ms: table.timeout_ms(),
                append_requests: entries.into_iter().map(|entry| entry.0).collect(),
            })
        }

        fn write(&self, builder: &mut Builder) -> Written<Self> {
            let entries: Vec<_> = self.0.append_requests.iter().copied().map(Of).collect();
            let append_requests = entries.write(builder);
            let args = fb::AppendRequestArgs {
                timeout_ms: self.0.timeout_ms,
                append_requests,
            };
            fb::AppendRequest::create(builder, &args)
        }
    }

    impl Profile<AppendRequest> for Renumbered {
        fn encode(message: &AppendRequest, encoder: &mut Encoder, out: &mut BytesMut) {
            encode(&Of(message.clone()), encoder, out);
        }

        fn decode(header: &[u8]) -> Result<AppendRequest, DecodeError> {
            decode::<Of<AppendRequest>>(header).map(|message| message.0)
        }
    }

    /// What the dialects have in common is not written twice.
    impl Profile<AppendResponse> for Renumbered {
        fn encode(message: &AppendResponse, encoder: &mut Encoder, out: &mut BytesMut) {
            <V01 as Profile<AppendResponse>>::encode(message, encoder, out);
        }

        fn decode(header: &[u8]) -> Result<AppendResponse, DecodeError> {
            <V01 as Profile<AppendResponse>>::decode(header)
        }
    }
}

use renumbered::Renumbered;

/// A peer's turn, whatever it speaks: the same code for every dialect.
fn there_and_back<P: Profile<M>, M: Debug + PartialEq>(message: &M) -> BytesMut {
    let mut out = BytesMut::new();
    P::encode(message, &mut Encoder::new(), &mut out);
    assert_eq!(&P::decode(&out).expect("own bytes are valid"), message);
    out
}

/// The value that `tests/vectors/dialects/AppendRequest.txt` has bytes of.
fn request() -> AppendRequest {
    AppendRequest {
        timeout_ms: 7,
        append_requests: smallvec![AppendInfo {
            stream_id: StreamId(9),
            request_index: 1,
            batch_length: 160,
            ..AppendInfo::default()
        }],
    }
}

#[test]
fn one_message_in_two_dialects() {
    assert_ne!(
        there_and_back::<V01, _>(&request()),
        there_and_back::<Renumbered, _>(&request())
    );
    assert_eq!(
        there_and_back::<V01, _>(&AppendResponse::default()),
        there_and_back::<Renumbered, _>(&AppendResponse::default())
    );
}

#[test]
fn bytes_of_the_other_dialect_are_read_by_its_module_alone() {
    let files = reader::files("dialects");
    let [(name, vectors)] = files.as_slice() else {
        panic!("{} files", files.len())
    };
    assert_eq!(name, "AppendRequest");
    let foreign = vectors[0].by("flatc").expect("bytes of the schema compiler");
    assert_eq!(
        <Renumbered as Profile<AppendRequest>>::decode(foreign).expect("valid"),
        request()
    );
    let mistaken = <V01 as Profile<AppendRequest>>::decode(foreign).expect("as valid, but another message");
    assert_eq!(mistaken.append_requests[0].request_index, 160);
    assert_eq!(mistaken.append_requests[0].batch_length, 1);
}
