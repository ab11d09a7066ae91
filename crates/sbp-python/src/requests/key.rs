//! The stream that a request is about.

use std::fmt;
use std::sync::Arc;

use sbp_types::StreamId;

use super::described::Described;

/// A stream as callers name it.
#[derive(Clone)]
pub(crate) enum Key {
    Name(String),
    Id(StreamId),
    /// One that was described before.
    Known(Arc<Described>),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Id(id) => id.fmt(f),
            Self::Known(stream) => write!(f, "{:?}", stream.name),
        }
    }
}
