//! Entries that another server sends again are compared with those that are here, and put in their places where the disk has lost
//! these.

use sbp_log::{ReadError, StoredEntry};
use sbp_messages::ErrorCode;
use sbp_types::Position;

use super::settle::{answer_of, stored_up_to};
use crate::range::copies::{Fingerprint, Repeated};
use crate::range::log_errors;
use crate::range::notifications::Notifications;
use crate::range::outcome::{NotStored, Stored};
use crate::range::ranges::Ranges;
use crate::range::server::RangeServer;
use crate::refusal::Refusal;

/// What an entry that was sent again is to the one that is here.
enum Compared {
    /// They are the same, or the one that is here is gone by now.
    Same,
    /// The one that was here could not be read, and has the bytes again that were sent.
    PutBack,
    /// The one that is here cannot be read, nor put back: what was sent may not be what was here, or the log cannot tell.
    Unreadable(Refusal),
    /// They differ: one of the two servers has something wrong.
    Different(Refusal),
}

impl RangeServer {
    /// Compares entries that were sent again with those that are here, which are synced, and answers. Reads from the disk.
    pub(crate) fn compare(&self, repeated: Vec<Repeated>) {
        let mut notifications = Notifications::default();
        for repeated in repeated {
            let compared = self.compare_one(&repeated);
            if let Compared::Different(_) = compared
                && let Some(upstream) = self.upstream.get()
            {
                upstream.keep_dispute(repeated.key, repeated.at);
            }
            let mut ranges = self.hub.ranges.lock();
            let outcome = ranges.compared(&repeated, compared);
            drop(ranges);
            let Repeated { requester, entry, .. } = repeated;
            notifications.push(requester, entry.done(outcome));
        }
        notifications.send();
        self.hub.finish_later();
    }

    fn compare_one(&self, repeated: &Repeated) -> Compared {
        let Repeated { key, at, to, .. } = *repeated;
        let found = match self.log.entries(key, at, 1) {
            Ok(found) => found,
            Err(ReadError::Released { .. }) => return Compared::Same,
            // The records behind a mark are damaged. They are sent next.
            Err(ReadError::Damaged { from, to: behind, .. }) if at.offset == to.offset && from < behind => {
                return Compared::Same;
            }
            Err(error) => {
                let refusal = log_errors::read_refusal(&error, |key, from, to| self.log.files_of(key, from, to));
                return self.put_back(repeated, refusal);
            }
        };
        let is_same = |stored: &StoredEntry| {
            let bytes = stored.bytes.chunks().iter().map(AsRef::as_ref);
            stored.position == at && Fingerprint::of(&stored.head, bytes) == repeated.fingerprint
        };
        if found.first().is_none_or(is_same) {
            return Compared::Same;
        }
        let message = format!(
            "range {key} has another entry at {at} here than on the server that sends it: one of the two is wrong, and this \
             copy counts for nothing from there on"
        );
        Compared::Different(Refusal::new(ErrorCode::RS_DATA_CORRUPTED, message))
    }

    /// Puts an entry that was sent in the place of the one that cannot be read, for this reason.
    fn put_back(&self, repeated: &Repeated, refusal: Refusal) -> Compared {
        let Repeated {
            key, at, ref pieces, ..
        } = *repeated;
        match self.log.repair(key, at.offset, &pieces.concat()) {
            Ok(true) => {
                // As loud as what the damage was told with, so that one does not stand alone.
                tracing::warn!(range = %key, position = %at, "records that were damaged on the disk are whole again, as another server sends them");
                Compared::PutBack
            }
            Ok(false) => Compared::Unreadable(refusal),
            Err(error) => {
                tracing::warn!(%error, range = %key, position = %at, "damaged records cannot be put back");
                Compared::Unreadable(refusal)
            }
        }
    }
}

impl Ranges {
    fn compared(&mut self, repeated: &Repeated, compared: Compared) -> Result<Stored, NotStored> {
        let Repeated { key, at, to, .. } = *repeated;
        match compared {
            // What it was contradicted with is confirmed, as far as this goes.
            Compared::Same if repeated.is_written_back => {
                self.change_copy(key, |replica| replica.mended(at, to));
            }
            Compared::Same => {}
            Compared::PutBack => {
                // The log knows of damage by its offsets, and not which marks stand there.
                let from = Position::start(at.offset);
                self.change_copy(key, |replica| replica.mended(from, to));
            }
            Compared::Unreadable(refusal) => {
                self.change_copy(key, |replica| replica.damaged(at, to));
                return Err(refusal.into());
            }
            Compared::Different(refusal) => {
                tracing::error!(range = %key, position = %at, message = %refusal.message, "an entry that was sent again cannot be confirmed");
                self.change_copy(key, |replica| replica.contradicted(at));
                return Err(refusal.into());
            }
        }
        match self.table.replica(key) {
            Some(replica) => Ok(stored_up_to(answer_of(replica, repeated.is_written_back))),
            None => Err(Refusal::range_not_here(key).into()),
        }
    }
}
