//! What a decision comes to.

use std::sync::Arc;

use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::records::{RangeRecord, StreamRecord};
use super::state::Change;
use crate::range::{HeldRange, StreamFacts};

/// What a command comes to.
#[derive(Debug)]
pub(crate) struct Effects {
    /// What has to become durable, all or nothing, before anybody hears of it. Empty when nothing changes.
    pub(crate) changes: Vec<Change>,
    /// What range servers have to be told when it is durable, in this order.
    pub(crate) orders: Vec<Order>,
    /// What to answer then.
    pub(crate) outcome: Outcome,
}

impl Effects {
    pub(super) fn nothing(outcome: Outcome) -> Self {
        Self {
            changes: Vec::new(),
            orders: Vec::new(),
            outcome,
        }
    }
}

/// What one range server has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) server: ServerId,
    pub(crate) stream: StreamId,
    pub(crate) action: Action,
}

/// What it has to do with the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Hold these ranges, and know this of the stream.
    Install(StreamFacts, Vec<HeldRange>),
    /// Let everybody see the end of a range that it has sealed.
    Publish(RangeKey, Offset),
    /// Let the stream begin here.
    Trim(Offset),
    /// Forget the stream.
    Delete,
}

impl Order {
    /// Tells these servers that they hold these ranges.
    pub(super) fn install(stream: &StreamRecord, servers: &[ServerId], ranges: &[&RangeRecord]) -> Vec<Self> {
        let order = |server: &ServerId| Self {
            server: *server,
            stream: stream.id,
            action: Action::Install(stream.facts(), ranges.iter().map(|range| range.held()).collect()),
        };
        servers.iter().map(order).collect()
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A stream as it now is, or as it was.
    Stream(Arc<StreamRecord>),
    /// A stream, and the range of it that the operation is about.
    StreamRange(Arc<StreamRecord>, Arc<RangeRecord>),
    /// A range as it now is.
    Range(Arc<RangeRecord>),
    /// The number of a range server.
    Server(ServerId),
    /// It is done.
    Done,
}

impl Outcome {
    /// The range that the answer shows.
    pub(crate) fn range(&self) -> Option<&RangeRecord> {
        match self {
            Self::StreamRange(_, range) | Self::Range(range) => Some(range),
            Self::Stream(_) | Self::Server(_) | Self::Done => None,
        }
    }
}
