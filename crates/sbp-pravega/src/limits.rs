//! What is accepted of a peer at most, and the numbers with a meaning.

/// Bytes of a frame, its head included.
pub const MAX_FRAME: usize = (1 << 24) - 1;
/// Bytes of an event's content.
pub const MAX_EVENT: usize = 8 << 20;
/// Bytes that stand before an event's content in a segment: its type, which is 0, and its length.
pub const EVENT_HEAD: usize = 8;
/// Bytes of one append, all its blocks together.
pub const MAX_APPEND: usize = MAX_FRAME;
/// Bytes that a read brings at least, where there are as many.
pub const MIN_READ: usize = 8;
/// Bytes that a read brings at most.
pub const MAX_READ: usize = 2 << 20;
/// Bytes of a segment's name.
pub const MAX_SEGMENT_NAME: usize = 65_535;
/// The newest version that this side speaks.
pub const HIGH_VERSION: i32 = 16;
/// The oldest one.
pub const LOW_VERSION: i32 = 5;
/// The number of the last event of a writer that has written nothing yet, and the value of an attribute that there is not.
pub const NEW: i64 = i64::MIN;
