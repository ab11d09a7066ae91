//! Profiles: the encodings of messages, one per dialect.

use bytes::BytesMut;

use crate::{DecodeError, Encoder};

/// The encoding of message `M` in one dialect.
///
/// Messages do not depend on it. A dialect is a module with a type that implements this for each of its messages;
/// nothing else in this crate changes for it. [`Message`](crate::Message) uses [`V01`].
pub trait Profile<M> {
    /// Appends the encoded message to `out`.
    fn encode(message: &M, encoder: &mut Encoder, out: &mut BytesMut);

    /// Decodes a message from an extended header. The bytes may come from a hostile peer.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are not such a message, or describe one that is far larger than they are.
    fn decode(header: &[u8]) -> Result<M, DecodeError>;
}

/// The dialect "v0.1", whose bytes `schemas/sbp.fbs` defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V01;
