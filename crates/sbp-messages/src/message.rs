//! What every typed message can do, and the encoder that they share.

use std::fmt;

use bytes::BytesMut;
use sbp_frame::OpCode;

use crate::DecodeError;
use crate::v01;

/// Which way a message travels: with the call, or with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It opens a call, or is a notice that is never answered.
    Request,
    /// It answers a call, perhaps as one of several frames.
    Response,
}

/// A typed extended header of one operation.
///
/// The types are one thing, their bytes another: a message says nothing about its encoding, which belongs to the
/// [`Profile`](crate::Profile). The two methods here are those of [`V01`](crate::V01), the only one that is spoken so far.
pub trait Message: Sized {
    /// The operation whose frames carry it.
    const OPCODE: OpCode;
    /// Which way it travels.
    const ROLE: Role;

    /// Appends the message's bytes to `out`, which may already hold something.
    fn encode(&self, encoder: &mut Encoder, out: &mut BytesMut);

    /// Reads a message from the bytes of an extended header, all of which are a peer's.
    ///
    /// Absent fields read as their defaults. What the fields say is not judged here: see the `validate` functions.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are no such message, or one that is out of all proportion to its length.
    fn decode(header: &[u8]) -> Result<Self, DecodeError>;
}

/// A reusable encoder: one for each connection, and encoding allocates nothing once its buffer has grown.
pub struct Encoder {
    pub(crate) builder: v01::Builder,
}

impl Encoder {
    /// An encoder for the profile "v0.1".
    #[must_use]
    pub fn new() -> Self {
        Self {
            builder: v01::new_builder(),
        }
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}
