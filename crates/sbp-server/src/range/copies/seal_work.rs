//! Requests about the seals of shared ranges that wait.

use std::fmt;

use sbp_messages::ErrorCode;
use sbp_types::{Position, RangeKey, ServerId};
use smallvec::SmallVec;

use crate::refusal::{Done, Refusal};

/// Requests about shared ranges that wait, and the answers to them that are given once the lock is released.
#[derive(Default)]
pub(crate) struct SealWork {
    pub(in crate::range) fencing: Vec<Fencing>,
    pub(in crate::range) writing_back: Vec<WritingBack>,
    pub(in crate::range) fenced: Vec<(Done<Position>, Result<Position, Refusal>)>,
    pub(in crate::range) written_back: Vec<(Done<()>, Result<(), Refusal>)>,
}

/// A fence that waits until the log has ended what was queued before.
pub(in crate::range) struct Fencing {
    pub(in crate::range) key: RangeKey,
    /// Whether everything before the fence is on the disk, whatever the durability.
    pub(in crate::range) is_drained: bool,
    pub(in crate::range) done: Done<Position>,
}

/// An order to send a range up to its end to servers that lack some of it.
pub(in crate::range) struct WritingBack {
    pub(in crate::range) key: RangeKey,
    pub(in crate::range) to: SmallVec<[ServerId; 3]>,
    pub(in crate::range) end: Position,
    pub(in crate::range) done: Done<()>,
}

impl fmt::Debug for SealWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.fencing.iter().map(|fencing| fencing.key);
        f.debug_set().entries(keys).finish()
    }
}

impl SealWork {
    /// Gives the answers. Not under the lock.
    pub(crate) fn give(self) {
        for (done, place) in self.fenced {
            done(place);
        }
        for (done, result) in self.written_back {
            done(result);
        }
    }

    /// Another order is given to send the range to these servers: those of before end.
    pub(in crate::range) fn replace_order(&mut self, key: RangeKey, to: &[ServerId]) {
        let is_older = |order: &mut WritingBack| order.key == key && order.to.as_slice() == to;
        for order in self.writing_back.extract_if(.., is_older) {
            let message = format!("another order to write back range {key} has taken the place of this one");
            let replaced = Refusal::new(ErrorCode::RS_INTERNAL_SERVER_ERROR, message);
            self.written_back.push((order.done, Err(replaced)));
        }
    }

    /// A server does not take what it is sent of a range up to this end, because of what its disk has lost: nobody waits for it any
    /// longer.
    pub(in crate::range) fn cannot_be_taken(&mut self, key: RangeKey, server: ServerId, end: Position) {
        let waits = |order: &mut WritingBack| order.key == key && order.end == end && order.to.as_slice() == [server];
        for order in self.writing_back.extract_if(.., waits) {
            let message = format!(
                "the disk of server {server} has lost some of range {key}, and it cannot be put back there: give that server an empty \
                 directory"
            );
            let damaged = Refusal::new(ErrorCode::RS_DATA_CORRUPTED, message);
            self.written_back.push((order.done, Err(damaged)));
        }
    }

    pub(in crate::range) fn has_answers(&self) -> bool {
        !self.fenced.is_empty() || !self.written_back.is_empty()
    }
}
