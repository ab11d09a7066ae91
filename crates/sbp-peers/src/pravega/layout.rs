//! Of what a stream is made.

use std::fmt;

use sbp_pravega::{Segment, SegmentId};

use super::error::{PravegaError, PravegaErrorKind};

/// A stream's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamName {
    /// Its scope.
    pub scope: String,
    /// Its name there.
    pub stream: String,
}

impl StreamName {
    /// Reads `scope/stream`.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(name: &str) -> Result<Self, PravegaError> {
        match name.split_once('/') {
            Some((scope, stream)) if !scope.is_empty() && !stream.is_empty() && !stream.contains('/') => Ok(Self {
                scope: scope.to_owned(),
                stream: stream.to_owned(),
            }),
            _ => {
                let what = format!("{name:?} is no name of a stream, which is written scope/stream");
                Err(PravegaError::new(PravegaErrorKind::UnknownName, what))
            }
        }
    }

    pub(super) fn segment(&self, id: SegmentId) -> Segment {
        Segment {
            scope: self.scope.clone(),
            stream: self.stream.clone(),
            id,
        }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.stream)
    }
}

/// A segment, and which keys belong to it: those whose positions are from `low` to below `high`.
#[derive(Debug, Clone, PartialEq)]
pub struct Owned {
    /// The segment.
    pub segment: Segment,
    /// The least position.
    pub low: f64,
    /// The end of the positions.
    pub high: f64,
}

/// A segment that follows others.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Follower {
    pub(super) owned: Owned,
    /// The segments that end before it begins.
    pub(super) follows: Vec<SegmentId>,
}
