//! A request to be sent.

use std::time::Instant;

use sbp_frame::{OpCode, PayloadPart};

/// A request to be sent with [`crate::Session::send_request`].
#[derive(Debug, Clone)]
pub struct Outgoing<'a> {
    /// The operation.
    pub opcode: OpCode,
    /// The encoded extended header.
    pub header: &'a [u8],
    /// The payload's parts, in order.
    pub payload: &'a [PayloadPart<'a>],
    /// The caller's token, returned untouched with every event about this call.
    pub user: u64,
    /// When the call fails if its answer is not complete; `None`: never.
    pub deadline: Option<Instant>,
    /// Bytes of payload for which the caller has set memory aside. A payload of 64 KiB or more within this number is
    /// received into one allocation, aligned to 64 bytes; other payloads are kept in the blocks in which they arrive.
    pub receive_charge: u32,
}
