//! The errors of encoding and decoding a frame.

use thiserror::Error;

/// A frame to be sent is too large: its header is over 16 MiB - 1, or the whole over 16 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a frame cannot hold a header of {header} bytes and a payload of {payload} bytes")]
pub struct FrameTooLarge {
    /// Bytes of the extended header.
    pub header: usize,
    /// Bytes of the payload.
    pub payload: usize,
}

/// Why bytes are not a valid frame. After any of these errors the next frame cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// *Frame Length* is under 16 or over 16 MiB.
    #[error("frame length {0} is outside 16 ..= 16777216")]
    Length(u32),
    /// The *Magic* byte is not that of the protocol.
    #[error("magic byte is {0:#04x}, not 0x17")]
    Magic(u8),
    /// *Header Length* exceeds the frame.
    #[error("header of {header} bytes in a frame of length {frame}")]
    HeaderOverFrame {
        /// *Header Length* as received.
        header: u32,
        /// *Frame Length* as received.
        frame: u32,
    },
    /// *Stream Identifier* has its top bit set.
    #[error("call id {0:#010x} has its top bit set")]
    CallId(u32),
    /// The payload's CRC-32 is not the one that the frame states.
    #[error("payload checksum is {found:#010x}, the frame says {stated:#010x}")]
    Checksum {
        /// The checksum in the frame.
        stated: u32,
        /// The checksum of the payload as received.
        found: u32,
    },
}
