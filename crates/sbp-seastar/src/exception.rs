//! What a server says instead of a reply.

use std::fmt;

use bytes::{Buf, BufMut, Bytes};

use crate::fault::{Fault, check_length, narrow, widen};
use crate::limits::MAX_FRAME;

const USER: u32 = 0;
const UNKNOWN_VERB: u32 = 1;
/// Bytes in front of what an exception says: type and length.
const HEAD: usize = 8;

/// An exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exception {
    /// The handler failed, and says why. It should be UTF-8.
    User(Bytes),
    /// The server has no such verb.
    UnknownVerb(u64),
    /// One of a type that is not known here.
    Other {
        /// Its type.
        kind: u32,
    },
}

impl Exception {
    /// The handler failed.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(Bytes::from(text.into().into_bytes()))
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn decode(bytes: &Bytes) -> Result<Self, Fault> {
        let mut left = bytes.clone();
        let kind = left.try_get_u32_le()?;
        let length = widen(left.try_get_u32_le()?);
        if left.len() < length {
            let missing = length - left.len();
            return Err(Fault::Cut { missing });
        }
        let mut data = left.split_to(length);
        match kind {
            USER => Ok(Self::User(data)),
            UNKNOWN_VERB => match data.try_get_u64_le() {
                Ok(verb) => Ok(Self::UnknownVerb(verb)),
                Err(_) => Err(Fault::Exception(kind)),
            },
            kind => Ok(Self::Other { kind }),
        }
    }

    /// As the payload of a response.
    ///
    /// # Errors
    /// [`Fault::TooLong`].
    pub(crate) fn encode(&self) -> Result<Bytes, Fault> {
        let verb;
        let (kind, data) = match self {
            Self::User(text) => (USER, &text[..]),
            Self::UnknownVerb(unknown) => {
                verb = unknown.to_le_bytes();
                (UNKNOWN_VERB, &verb[..])
            }
            Self::Other { kind } => (*kind, &[][..]),
        };
        check_length("an exception", data.len(), MAX_FRAME - HEAD)?;
        let mut bytes = Vec::with_capacity(HEAD + data.len());
        bytes.put_u32_le(kind);
        bytes.put_u32_le(narrow(data.len()));
        bytes.put_slice(data);
        Ok(bytes.into())
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(text) => f.write_str(&String::from_utf8_lossy(text)),
            Self::UnknownVerb(verb) => write!(f, "the server has no verb {verb}"),
            Self::Other { kind } => write!(
                f,
                "the server answers with an exception of type {kind}, which is not known"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_come_back() {
        for exception in [
            Exception::user("boom"),
            Exception::user(""),
            Exception::UnknownVerb(u64::MAX),
            Exception::Other { kind: 7 },
        ] {
            let bytes = exception.encode().unwrap();
            assert_eq!(Exception::decode(&bytes), Ok(exception));
            for cut in 0..bytes.len() {
                assert!(Exception::decode(&bytes.slice(..cut)).is_err());
            }
        }
        let short = Bytes::from_static(&[1, 0, 0, 0, 4, 0, 0, 0, 9, 9, 9, 9]);
        assert_eq!(Exception::decode(&short), Err(Fault::Exception(1)));
    }
}
