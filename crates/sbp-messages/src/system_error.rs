//! The answer to a call that was not understood or not started.

use bytes::BytesMut;

use crate::v01::{self, tables};
use crate::{DecodeError, Encoder, Status};

tables! {
    /// The header of a system error, which answers a call of any operation. Its frame has the SYSTEM_ERROR flag and is
    /// the last one of the call.
    pub struct SystemErrorResponse: SystemErrorResponseArgs {
        /// The reason.
        pub status: Status,
    }
}

/// This header belongs to no operation of its own, so it is not a [`Message`](crate::Message).
impl SystemErrorResponse {
    /// Appends the header's bytes to `out`.
    pub fn encode(&self, encoder: &mut Encoder, out: &mut BytesMut) {
        v01::encode(self, encoder, out);
    }

    /// Decodes the header of a system error.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are not such a header. The call has ended in that case too, with unknown outcome.
    pub fn decode(header: &[u8]) -> Result<Self, DecodeError> {
        v01::decode(header)
    }
}
