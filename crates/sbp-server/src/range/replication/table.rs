//! The copies in a [`RangeTable`].

use sbp_messages::ErrorCode;
use sbp_replication::{Offered, Replica, Verdict};
use sbp_types::{Epoch, RangeKey, StreamId};

use crate::range::table::RangeTable;
use crate::refusal::Refusal;

impl RangeTable {
    /// What this server may do with its copy; `None` if nobody else has one, or the range is not here.
    pub(crate) fn replica(&self, key: RangeKey) -> Option<&Replica> {
        self.range(key)?.replica.as_deref()
    }

    /// Changes this server's copy. Returns what `change` returns, and whether readers see more; `None` if nobody else has a
    /// copy, or the range is not here.
    pub(super) fn change_replica<R>(
        &mut self,
        key: RangeKey,
        change: impl FnOnce(&mut Replica) -> R,
    ) -> Option<(R, bool)> {
        self.range_mut(key)?.change_replica(change)
    }

    /// Another server sends an entry of a range that it believes to have this epoch. Returns what to do with it, and
    /// whether readers see more now.
    pub(super) fn offer(&mut self, key: RangeKey, epoch: Epoch, offered: &Offered) -> Result<(Verdict, bool), Refusal> {
        let Some(range) = self.range_mut(key) else {
            return Err(self.missing_range(key));
        };
        Refusal::check_epoch(key, range.epoch, Some(epoch))?;
        let offer = |replica: &mut Replica| {
            let verdict = replica.offered(offered);
            if matches!(verdict, Verdict::Take | Verdict::Begin)
                && let Some(to) = offered.entry.end(offered.at)
            {
                replica.queued(to);
            }
            verdict
        };
        let alone = || {
            let message = format!("range {key} has one copy, which is here: it is taken from nobody");
            Refusal::new(ErrorCode::INVALID_REQUEST, message)
        };
        range.change_replica(offer).ok_or_else(alone)
    }

    /// Forgets the writers of a stream, to be told of them anew.
    pub(super) fn forget_writers(&mut self, stream: StreamId) {
        if let Some(hosted) = self.stream_mut(stream) {
            hosted.writers.clear();
        }
    }

    fn missing_range(&self, key: RangeKey) -> Refusal {
        match self.stream(key.stream) {
            None => self.missing(key.stream),
            Some(_) => Refusal::range_not_here(key),
        }
    }
}
