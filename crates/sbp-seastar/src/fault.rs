//! Why bytes are not what they should be.

use bytes::TryGetError;
use thiserror::Error;

/// What is wrong with bytes of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A connection does not begin with the magic of Seastar RPC.
    #[error("the connection does not begin with SSTARRPC: the peer speaks something else")]
    Magic,
    /// They end before what they say follows.
    #[error("it ends {missing} bytes before what it says follows")]
    Cut {
        /// Bytes that are not there.
        missing: usize,
    },
    /// More follows than there should be.
    #[error("{0} bytes follow its end")]
    LeftOver(usize),
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
    /// The data of a feature have another length than such data have.
    #[error("feature {feature} has {length} bytes of data, and should have {expected}")]
    Feature {
        /// The feature's number.
        feature: u32,
        /// Bytes of its data.
        length: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A server has chosen a way to compress that it was not offered.
    #[error("the server compresses in a way that it was not offered")]
    Codec,
    /// A client's stream names a parent, and this server has no streams; or the server has no connection with that id.
    #[error("there is no connection {0:#x} that a stream could belong to")]
    NoParent(u64),
    /// A compressed frame is damaged, or would grow beyond its limit.
    #[error("a compressed frame cannot be decompressed: {0}")]
    Compression(&'static str),
    /// The id of a request is not positive, or that of a request that is still under way.
    #[error("a request has id {0}, which is not positive or was not answered yet")]
    Id(i64),
    /// An exception does not have the form of one.
    #[error("an exception of type {0} has not the form of one")]
    Exception(u32),
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A message on a stream after its end.
    #[error("a message follows the end of the stream")]
    AfterEnd,
}

impl From<TryGetError> for Fault {
    fn from(error: TryGetError) -> Self {
        Self::Cut {
            missing: error.requested.saturating_sub(error.available),
        }
    }
}

/// A length as a number to count with.
pub(crate) fn widen(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// A length that has to fit into 32 bits, because it is below a limit that does.
pub(crate) fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A length may not be over its limit.
pub(crate) fn check_length(what: &'static str, length: usize, limit: usize) -> Result<(), Fault> {
    if length <= limit {
        return Ok(());
    }
    let count = |number| u64::try_from(number).unwrap_or(u64::MAX);
    Err(Fault::TooLong {
        what,
        length: count(length),
        limit: count(limit),
    })
}
