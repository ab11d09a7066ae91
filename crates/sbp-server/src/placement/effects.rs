//! The effects of a decision of the placement driver.

use std::sync::Arc;

use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::records::{RangeRecord, StreamRecord};
use super::state::Change;
use crate::range::{HeldRange, StreamFacts};

/// What has to be done to carry out a command.
#[derive(Debug)]
pub(crate) struct Effects {
    /// The changes to make durable, all or none, before anybody learns of them. Empty when nothing changes.
    pub(crate) changes: Vec<Change>,
    /// The orders to give to range servers once the changes are durable, in this sequence.
    pub(crate) orders: Vec<Order>,
    /// The answer to the command after that.
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

/// An order to one range server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) server: ServerId,
    pub(crate) stream: StreamId,
    pub(crate) action: Action,
}

/// What the range server has to do with the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Hold these ranges, and use these settings of the stream.
    Install(StreamFacts, Vec<HeldRange>),
    /// Show readers the end of a range that the server has sealed.
    Publish(RangeKey, Offset),
    /// Let the stream begin at this offset.
    Trim(Offset),
    /// Delete the stream.
    Delete,
    /// Remove what is here of these ranges, which are as they are elsewhere.
    LetGo(Vec<HeldRange>),
}

impl Order {
    /// The orders that have these servers hold these ranges.
    pub(super) fn install(stream: &StreamRecord, servers: &[ServerId], ranges: &[&RangeRecord]) -> Vec<Self> {
        let order = |server: &ServerId| Self {
            server: *server,
            stream: stream.id,
            action: Action::Install(stream.facts(), ranges.iter().map(|range| range.held()).collect()),
        };
        servers.iter().map(order).collect()
    }
}

impl Order {
    /// The order to a server that has it remove what it has of ranges of a stream.
    pub(super) fn let_go<'a>(
        server: ServerId,
        stream: StreamId,
        ranges: impl IntoIterator<Item = &'a RangeRecord>,
    ) -> Self {
        Self {
            server,
            stream,
            action: Action::LetGo(ranges.into_iter().map(RangeRecord::held).collect()),
        }
    }
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A stream as it is after the command, or as it was before its deletion.
    Stream(Arc<StreamRecord>),
    /// A stream that was just created, and its first range.
    NewStream(Arc<StreamRecord>, Arc<RangeRecord>),
    /// A stream, and its range that the command is about.
    StreamRange(Arc<StreamRecord>, Arc<RangeRecord>),
    /// A range as it is after the command.
    Range(Arc<RangeRecord>),
    /// The range behind one that was ended by force, although nobody can read these records of that one: from and to of each.
    RangeBehindLoss(Arc<RangeRecord>, Vec<(Offset, Offset)>),
    /// The id allocated for a range server.
    Server(ServerId),
    /// Success without a result.
    Done,
}
