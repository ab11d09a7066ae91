//! Dialects: which bytes a message becomes.

use bytes::BytesMut;

use crate::{DecodeError, Encoder};

/// One dialect's encoding of the message `M`.
///
/// The messages know nothing of it. A dialect is one module with a type of its own that implements this for each message
/// that the dialect has; nothing else in this crate changes for it. [`Message`](crate::Message) goes through [`V01`].
pub trait Profile<M> {
    /// Appends the message's bytes to `out`, which may already hold something.
    fn encode(message: &M, encoder: &mut Encoder, out: &mut BytesMut);

    /// Reads a message from the bytes of an extended header, all of which are a peer's.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are no such message, or one that is out of all proportion to its length.
    fn decode(header: &[u8]) -> Result<M, DecodeError>;
}

/// The dialect "v0.1", whose bytes `schemas/sbp.fbs` defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V01;
