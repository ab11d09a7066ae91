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

pub(crate) mod blocks;
pub(crate) mod read;
pub(crate) mod shape;
pub(crate) mod write;

use bytes::BytesMut;

use super::{Wire, decode, encode};
use crate::{DecodeError, Encoder};

/// A message that has a template.
pub(crate) trait Templated: Wire {
    /// Appends the encoded message to `out`; `None` if the template cannot express it.
    fn write_template(&self, out: &mut BytesMut) -> Option<()>;

    /// Reads a header that has exactly the template's shape; `None` for any other.
    fn read_template(header: &[u8]) -> Option<Self>;
}

/// Writes with the template or, if it cannot express the message, with the builder.
pub(crate) fn encode_templated<T: Templated>(message: &T, encoder: &mut Encoder, out: &mut BytesMut) {
    if message.write_template(out).is_none() {
        encode(message, encoder, out);
    }
}

/// Reads with the template or, if the shape is another one, with the verifier.
pub(crate) fn decode_templated<T: Templated>(header: &[u8]) -> Result<T, DecodeError> {
    T::read_template(header).map_or_else(|| decode(header), Ok)
}
