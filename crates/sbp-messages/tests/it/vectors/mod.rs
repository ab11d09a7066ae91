//! Bytes of every message: those of the schema compiler are read, ours are compared byte by byte.
//!
//! `SBP_WRITE_VECTORS=1 cargo test -p sbp-messages --test it vectors` writes our lines anew; then
//! `python -m tests.vectors.make --check` has the schema compiler read them.

mod cluster;
mod count;
mod data;
mod frames;
mod opening;
mod ranges;
#[path = "../../../../../tests/vectors/reader.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod reader;
mod streams;

use std::fmt::Debug;
use std::fs;

use bytes::BytesMut;
use count::{Case, Count};
use sbp_messages::*;

/// A table that is a header of its own.
trait Header: Debug + PartialEq + Sized {
    /// The value that the vectors of `case` have bytes of.
    fn value(count: &mut Count) -> Self;
    fn to_bytes(&self) -> BytesMut;
    fn from_bytes(bytes: &[u8]) -> Self;
}

/// Implements [`Header`] for messages, each with its value.
macro_rules! headers {
    ($( $message:ident, $count:ident => $value:expr; )*) => {
        $(
            impl super::Header for $message {
                fn value($count: &mut super::count::Count) -> Self {
                    $value
                }

                fn to_bytes(&self) -> bytes::BytesMut {
                    let mut out = bytes::BytesMut::new();
                    self.encode(&mut sbp_messages::Encoder::new(), &mut out);
                    out
                }

                fn from_bytes(bytes: &[u8]) -> Self {
                    Self::decode(bytes).expect("a valid header")
                }
            }
        )*
    };
}
pub(crate) use headers;

/// Compares the vectors of one file, or writes our lines of it.
fn check<H: Header>(name: &str, vectors: &mut [reader::Vector]) {
    for vector in vectors.iter_mut() {
        let value = H::value(&mut Count::new(Case::named(&vector.name)));
        let what = format!("{name}, {}", vector.name);
        let foreign = vector.by("flatc").expect("bytes of the schema compiler");
        assert_eq!(H::from_bytes(foreign), value, "{what}: reading what flatc wrote");
        let ours = value.to_bytes();
        assert_eq!(H::from_bytes(&ours), value, "{what}: reading what we wrote");
        if std::env::var_os("SBP_WRITE_VECTORS").is_some() {
            vector.parts.retain(|(who, _)| who != "sbp");
            vector.parts.push(("sbp".to_owned(), ours.to_vec()));
        }
        let kept = vector.by("sbp").expect("our bytes; SBP_WRITE_VECTORS=1 writes them");
        assert!(ours == kept, "{what}: we write\n{ours:02x?}\nand not\n{kept:02x?}");
    }
    if std::env::var_os("SBP_WRITE_VECTORS").is_some() {
        let path = reader::folder().join("messages").join(format!("{name}.txt"));
        fs::write(path, reader::render(vectors)).expect("a writable folder");
    }
}

/// Checks every file; fails when a file or a message is left over.
macro_rules! every {
    ($( $message:ident )*) => {
        #[test]
        fn every_message() {
            let mut files = reader::files("messages");
            $(
                let name = stringify!($message);
                let place = files.iter().position(|(file, _)| file == name);
                let (_, mut vectors) = files.remove(place.unwrap_or_else(|| panic!("no vectors of {name}")));
                check::<$message>(name, &mut vectors);
            )*
            assert!(files.is_empty(), "vectors that no test reads: {files:?}");
        }
    };
}

every! {
    GoAway SystemErrorResponse PlacementDriverCluster
    HeartbeatRequest HeartbeatResponse IdAllocationRequest IdAllocationResponse
    AppendRequest AppendResponse FetchRequest FetchResponse
    ListRangesRequest ListRangesResponse SealRangesRequest SealRangesResponse
    SyncRangesRequest SyncRangesResponse CreateRangeRequest CreateRangeResponse
    DescribeRangesRequest DescribeRangesResponse CreateStreamsRequest CreateStreamsResponse
    DeleteStreamsRequest DeleteStreamsResponse UpdateStreamsRequest UpdateStreamsResponse
    DescribeStreamsRequest DescribeStreamsResponse TrimStreamsRequest TrimStreamsResponse
    ReportMetricsRequest ReportMetricsResponse
    DescribePlacementDriverClusterRequest DescribePlacementDriverClusterResponse
}
