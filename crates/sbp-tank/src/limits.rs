//! What is accepted of a peer at most, and the numbers with a meaning.

/// Bytes of a request.
pub const MAX_REQUEST: usize = 64 << 20;
/// Bytes of an answer.
pub const MAX_ANSWER: usize = 256 << 20;
/// Bytes of the header of an answer to Consume.
pub const MAX_HEADER: usize = 16 << 20;
/// Bytes of a bundle, and of its messages when they are decompressed.
pub const MAX_BUNDLE: usize = 64 << 20;
/// Bytes of a key.
pub const MAX_KEY: usize = 255;
/// Topics of a request, and partitions of a topic.
pub const PARTITIONS: usize = 255;
/// Messages of more bytes than this are compressed, where that makes them fewer.
pub const COMPRESS_ABOVE: usize = 1_024;
/// The sequence number that stands for the end of a partition: the next message to be produced.
pub const END: u64 = u64::MAX;
/// How many times as large decompressed bytes can be, about: Snappy does not go beyond.
pub(crate) const MOST_EXPANSION: usize = 22;
/// What is allowed beside that, for short inputs.
pub(crate) const EXPANSION_SLACK: usize = 64;
