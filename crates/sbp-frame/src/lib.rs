//! The frame codec of the Streaming Batch Protocol: bytes only.
//!
//! Everything that crosses a connection is a frame, big-endian throughout:
//!
//! ```text
//!  0               4       5               7       8              12      13              16
//! +---------------+-------+---------------+-------+---------------+-------+---------------+
//! | Frame Length  | Magic | OperationCode | Flags | Stream Ident. | Format| Header Length |
//! +---------------+-------+---------------+-------+---------------+-------+---------------+
//! | Extended Header (h bytes)                                                             |
//! +---------------------------------------------------------------------------------------+
//! | Payload (p bytes)                                                                     |
//! +---------------------------------------------------------------------------------------+
//! | Payload CRC-32 (4)    |
//! +-----------------------+
//! ```
//!
//! *Frame Length* counts what follows it: `12 + h + p + 4`. The crate knows no message: an opcode is a number with a
//! name, a header is bytes. It reads no clock, does no I/O and never panics on a peer's bytes.
//!
//! Start from [`Prelude`] (the first 16 bytes), [`Frame`] (a received frame) and [`PushFrame`] (frames on their way to
//! a socket).

// This crate handles bytes of a peer: no input may cause a panic or a silent truncation.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation
    )
)]

mod call_id;
mod error;
mod flags;
mod frame;
mod opcode;
mod prelude;
mod push_frame;

pub use call_id::CallId;
pub use error::{FrameError, FrameTooLarge};
pub use flags::Flags;
pub use frame::Frame;
pub use opcode::OpCode;
pub use prelude::{
    FORMAT_FLATBUFFERS, MAGIC, MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, MIN_FRAME_LENGTH, PRELUDE_LENGTH, Prelude,
};
pub use push_frame::{FrameHead, PayloadPart, PushFrame};
pub use sbp_wire::{Checksum, Payload, SHARE_FROM, WriteQueue, aligned_buffer, checksum};
