//! The answer to a call that was not understood or not started.

use bytes::BytesMut;

use crate::v01::{self, tables};
use crate::{DecodeError, Encoder, Status};

tables! {
    /// The header of a system error: any operation's answer, with the flag that says so, and the last of its call.
    pub struct SystemErrorResponse: SystemErrorResponseArgs {
        /// Why.
        pub status: Status,
    }
}

/// No operation of its own: it answers any of them, so it is no [`Message`](crate::Message).
impl SystemErrorResponse {
    /// Appends the header's bytes to `out`.
    pub fn encode(&self, encoder: &mut Encoder, out: &mut BytesMut) {
        v01::encode(self, encoder, out);
    }

    /// Reads the header of a system error.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are no such header. The call has ended all the same, and what became of it is
    /// unknown.
    pub fn decode(header: &[u8]) -> Result<Self, DecodeError> {
        v01::decode(header)
    }
}
