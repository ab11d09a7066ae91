//! Why bytes are not what they should be.

use thiserror::Error;

/// Why bytes are no valid frame, or a segment's no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// They end before what they say follows.
    #[error("it ends {missing} bytes before what it says follows")]
    Cut {
        /// Bytes that are not there.
        missing: usize,
    },
    /// A text is not Java's modified UTF-8.
    #[error("a text is not modified UTF-8")]
    Text,
    /// A length or a count is below zero.
    #[error("{what} is {value}")]
    Negative {
        /// What it is.
        what: &'static str,
        /// What is stated.
        value: i64,
    },
    /// A length is over its limit.
    #[error("{what} has {length} bytes, and may have {limit}")]
    TooLong {
        /// What it is the length of.
        what: &'static str,
        /// The length as stated.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A list claims more than its bytes can hold.
    #[error("a list claims {count} items in {length} bytes")]
    Count {
        /// How many it claims.
        count: i64,
        /// The bytes that are left.
        length: usize,
    },
    /// What stands where an event should begin is none.
    #[error("an event cannot begin with type {0}")]
    NoEvent(i32),
    /// A block of an append does not fit to how it ends.
    #[error("an append has {whole} bytes of whole events, and its block {length}")]
    Block {
        /// Bytes of whole events as stated.
        whole: i64,
        /// Bytes of the block.
        length: usize,
    },
    /// An append has no events.
    #[error("an append has {0} events")]
    NoEvents(i32),
}
