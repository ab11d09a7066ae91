//! What is accepted of a peer at most.

use std::time::Duration;

/// Bytes of the payload of a frame.
pub const MAX_FRAME: usize = 64 << 20;
/// Bytes of a negotiation frame, without its first twelve.
pub const MAX_NEGOTIATION: usize = 64 << 10;
/// The longest timeout that a request says.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);
/// Bytes of a stream that wait for one who reads, or to be written; a message may go beyond it.
pub const STREAM_WINDOW_BYTES: usize = 100 << 10;
/// Messages of a stream that wait for one who reads.
pub const STREAM_WINDOW_FRAMES: usize = 50;

/// The most bytes in front of a payload.
pub(crate) const MAX_HEAD: usize = 28;
/// Bytes of a frame, its head included.
pub(crate) const MAX_WHOLE: usize = MAX_FRAME + MAX_HEAD;
/// Bytes of a compressed frame: what cannot be compressed becomes a little longer.
pub(crate) const MAX_COMPRESSED: usize = MAX_WHOLE + MAX_WHOLE / 64;
/// How many times as large decompressed bytes can be, about: LZ4 does not go beyond.
pub(crate) const MOST_EXPANSION: usize = 255;
/// What is allowed beside that, for short inputs.
pub(crate) const EXPANSION_SLACK: usize = 64;
