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
    /// When the call fails if its answer has not ended; never without one.
    pub deadline: Option<Instant>,
    /// Bytes of answer payloads that the caller has set memory aside for. A payload of 64 KiB or more within them is
    /// received into one allocation, aligned to 64; others grow as they arrive and stay in pieces.
    pub receive_charge: u32,
}
