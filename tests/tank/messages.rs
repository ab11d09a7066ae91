//! Messages and bundles that tests produce.

use bytes::Bytes;
use sbp_tank::{Message, encode_bundle};

/// When all of them were produced.
pub(crate) const TIME_MS: u64 = 1_700_000_000_123;

pub(crate) fn message<'a>(sequence: u64, key: Option<&'a [u8]>, content: &'a [u8]) -> Message<'a> {
    Message {
        sequence,
        time_ms: TIME_MS,
        key,
        content,
    }
}

pub(crate) fn bundle(contents: &[&str]) -> Bytes {
    let messages: Vec<_> = contents
        .iter()
        .map(|content| message(0, None, content.as_bytes()))
        .collect();
    encode_bundle(&messages).unwrap()
}
