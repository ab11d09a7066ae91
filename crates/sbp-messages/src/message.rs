//! The common trait of all messages.

use bytes::BytesMut;
use sbp_frame::OpCode;

use crate::{DecodeError, Encoder};

/// Whether a message is a request or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The message opens a call, or is a notice that is never answered.
    Request,
    /// The message answers a call, perhaps as one of several frames.
    Response,
}

/// A typed extended header of an operation.
///
/// A message type says nothing about its encoding, which belongs to the [`Profile`](crate::Profile). The two methods
/// here are those of [`V01`](crate::V01), the only one that exists so far.
pub trait Message: Sized {
    /// The operation whose frames have this header.
    const OPCODE: OpCode;
    /// Whether it is a request or an answer.
    const ROLE: Role;

    /// Appends the encoded message to `out`.
    fn encode(&self, encoder: &mut Encoder, out: &mut BytesMut);

    /// Decodes a message from an extended header. The bytes may come from a hostile peer.
    ///
    /// Absent fields have their defaults. The values of fields are not checked here: see the `validate` functions.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are not such a message, or describe one that is far larger than they are.
    fn decode(header: &[u8]) -> Result<Self, DecodeError>;
}
