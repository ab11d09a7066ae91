//! Why bytes are not what they should be.

use thiserror::Error;

/// Why bytes are no valid message, answer or bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// They end before what they say follows.
    #[error("it ends {missing} bytes before what it says follows")]
    Cut {
        /// Bytes that are not there.
        missing: usize,
    },
    /// More follows than there should be.
    #[error("{0} bytes follow its end")]
    LeftOver(usize),
    /// A number of variable length has more than 32 bits.
    #[error("a number of variable length does not end within 32 bits")]
    Varint,
    /// A name is not UTF-8.
    #[error("a name is not UTF-8")]
    Name,
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
    /// A request or an answer names no topic, or a topic no partition.
    #[error("it names no topic, or a topic without partitions")]
    Nothing,
    /// A code that there is not.
    #[error("code {0:#04x} is not one of the protocol")]
    Code(u8),
    /// The flags of a bundle are not those of the protocol.
    #[error("a bundle with flags {0:#04x} cannot be read")]
    BundleFlags(u8),
    /// A bundle claims more messages than its bytes can hold.
    #[error("a bundle claims {count} messages in {length} bytes")]
    Count {
        /// How many it claims.
        count: u32,
        /// Bytes of all messages.
        length: usize,
    },
    /// The compressed part of a bundle is damaged, or would grow beyond its limit.
    #[error("the compressed part of a bundle cannot be decompressed")]
    Compression,
    /// The sequence numbers of a sparse bundle do not rise from its first to its last.
    #[error("the sequence numbers of a sparse bundle do not rise from its first to its last")]
    Numbers,
    /// A bundle that carries no numbers of its own follows nothing that it could go on from.
    #[error("a bundle without numbers follows nothing")]
    NoBase,
}
