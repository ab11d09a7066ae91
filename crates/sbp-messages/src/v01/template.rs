//! Headers of the hot path, written and read without builder and verifier.
//!
//! A header without strings has one shape: only the number of its entries and the scalars in them vary. So it is
//! written front to back from constants, without allocating: all vtables, the root table, the vector of offsets, then a
//! block of fixed size for each entry. Any FlatBuffers reader takes it; the tests read it beside the builder's.
//!
//! ```text
//! 0      offset of the root table
//! 4      vtables: root, entry, in responses also status
//! R      root table
//! R + r  number of entries, then an offset to each
//! E      entries, aligned to 8
//! S      in responses: one status, success, that root and entries all refer to
//! ```
//!
//! A reader that finds exactly these constants and offsets knows where every scalar is, and need not verify further:
//! each byte it looks at was compared or is a scalar within bounds. Anything else is verified and read as any header.
//!
//! What has strings, errors or absurdly many entries goes through the builder.

mod blocks;
mod read;
mod shape;
mod write;

use bytes::BytesMut;

use super::{Wire, decode, encode};
use crate::{AppendRequest, AppendResponse, DecodeError, Encoder, FetchRequest, FetchResponse};

/// A message that has a template.
pub(crate) trait Templated: Wire {
    /// Appends the message's bytes to `out`, if it can be said by the template.
    fn write_template(&self, out: &mut BytesMut) -> Option<()>;

    /// Reads a header that has exactly the template's shape.
    fn read_template(header: &[u8]) -> Option<Self>;
}

/// Writes by template, or else by the builder.
pub(crate) fn encode_templated<T: Templated>(message: &T, encoder: &mut Encoder, out: &mut BytesMut) {
    if message.write_template(out).is_none() {
        encode(message, encoder, out);
    }
}

/// Reads by template, or else verifies.
pub(crate) fn decode_templated<T: Templated>(header: &[u8]) -> Result<T, DecodeError> {
    T::read_template(header).map_or_else(|| decode(header), Ok)
}

impl Templated for AppendRequest {
    fn write_template(&self, out: &mut BytesMut) -> Option<()> {
        let scalars = [self.timeout_ms];
        write::request(&shape::APPEND_REQUEST, scalars, &self.append_requests, out)
    }

    fn read_template(header: &[u8]) -> Option<Self> {
        let ([timeout_ms], append_requests) = read::request(&shape::APPEND_REQUEST, header)?;
        Some(Self {
            timeout_ms,
            append_requests,
        })
    }
}

impl Templated for FetchRequest {
    fn write_template(&self, out: &mut BytesMut) -> Option<()> {
        let scalars = [self.max_wait_ms, self.min_bytes, self.max_bytes];
        write::request(&shape::FETCH_REQUEST, scalars, &self.fetch_requests, out)
    }

    fn read_template(header: &[u8]) -> Option<Self> {
        let ([max_wait_ms, min_bytes, max_bytes], fetch_requests) = read::request(&shape::FETCH_REQUEST, header)?;
        Some(Self {
            max_wait_ms,
            min_bytes,
            fetch_requests,
            max_bytes,
        })
    }
}

impl Templated for AppendResponse {
    fn write_template(&self, out: &mut BytesMut) -> Option<()> {
        let mut results = self.append_responses.iter();
        if !self.status.is_plain_success() || !results.all(|result| result.status.is_plain_success()) {
            return None;
        }
        write::response(
            &shape::APPEND_RESPONSE,
            self.throttle_time_ms,
            &self.append_responses,
            out,
        )
    }

    fn read_template(header: &[u8]) -> Option<Self> {
        let (throttle_time_ms, append_responses) = read::response(&shape::APPEND_RESPONSE, header)?;
        Some(Self {
            throttle_time_ms,
            append_responses,
            ..Self::default()
        })
    }
}

impl Templated for FetchResponse {
    fn write_template(&self, out: &mut BytesMut) -> Option<()> {
        let mut results = self.fetch_responses.iter();
        if !self.status.is_plain_success() || !results.all(|result| result.status.is_plain_success()) {
            return None;
        }
        write::response(
            &shape::FETCH_RESPONSE,
            self.throttle_time_ms,
            &self.fetch_responses,
            out,
        )
    }

    fn read_template(header: &[u8]) -> Option<Self> {
        let (throttle_time_ms, fetch_responses) = read::response(&shape::FETCH_RESPONSE, header)?;
        Some(Self {
            throttle_time_ms,
            fetch_responses,
            ..Self::default()
        })
    }
}
