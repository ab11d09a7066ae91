//! Records that are gone before they were read.

use sbp_types::{Offset, StreamId};

/// Records that a reader wanted and that the stream does not keep any more: trimmed by hand, or because their time to be
/// kept was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The stream.
    pub stream: StreamId,
    /// The first offset that is missing.
    pub from: Offset,
    /// The first offset that is kept.
    pub to: Offset,
}

impl Gap {
    /// The gap between where reading got to and where the stream now begins, if there is one.
    pub(crate) fn between(stream: StreamId, from: Offset, to: Offset) -> Option<Self> {
        (from.0 >= 0 && from < to).then_some(Self { stream, from, to })
    }

    /// How many records are missing.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.to.distance_from(self.from)
    }
}
