//! Entries that another server sends again are compared with those that are here.

use sbp_log::{ReadError, StoredEntry};
use sbp_messages::ErrorCode;

use super::settle::{answer_of, stored_up_to};
use crate::range::copies::{Fingerprint, Repeated};
use crate::range::log_errors;
use crate::range::notifications::Notifications;
use crate::range::outcome::{NotStored, Stored};
use crate::range::ranges::Ranges;
use crate::range::server::RangeServer;
use crate::refusal::Refusal;

impl RangeServer {
    /// Compares entries that were sent again with those that are here, which are synced, and answers. Reads from the disk.
    pub(crate) fn compare(&self, repeated: Vec<Repeated>) {
        let mut notifications = Notifications::default();
        for repeated in repeated {
            let compared = self.compare_one(&repeated);
            let mut ranges = self.hub.ranges.lock();
            let outcome = ranges.compared(&repeated, compared);
            drop(ranges);
            let Repeated { requester, entry, .. } = repeated;
            notifications.push(requester, entry.done(outcome));
        }
        notifications.send();
        self.hub.finish_later();
    }

    /// Why what is here is not what was sent; `Ok` also where it is gone by now.
    fn compare_one(&self, repeated: &Repeated) -> Result<(), Refusal> {
        let Repeated { key, at, .. } = *repeated;
        let found = match self.log.entries(key, at, 1) {
            Ok(found) => found,
            Err(ReadError::Released { .. }) => return Ok(()),
            Err(error) => {
                return Err(log_errors::read_refusal(&error, |key, from, to| {
                    self.log.files_of(key, from, to)
                }));
            }
        };
        let is_same = |stored: &StoredEntry| {
            let bytes = stored.bytes.chunks().iter().map(AsRef::as_ref);
            stored.position == at && Fingerprint::of(&stored.head, bytes) == repeated.fingerprint
        };
        if found.first().is_none_or(is_same) {
            return Ok(());
        }
        let message = format!(
            "range {key} has another entry at {at} here than on the server that sends it: one of the two is wrong, and this \
             copy counts for nothing from there on"
        );
        Err(Refusal::new(ErrorCode::RS_DATA_CORRUPTED, message))
    }
}

impl Ranges {
    fn compared(&mut self, repeated: &Repeated, compared: Result<(), Refusal>) -> Result<Stored, NotStored> {
        let Repeated { key, at, .. } = *repeated;
        if let Err(refusal) = compared {
            tracing::error!(range = %key, position = %at, message = %refusal.message, "an entry that was sent again cannot be confirmed");
            self.change_copy(key, |replica| replica.contradicted(at));
            return Err(refusal.into());
        }
        match self.table.replica(key) {
            Some(replica) => Ok(stored_up_to(answer_of(replica, repeated.is_written_back))),
            None => Err(Refusal::range_not_here(key).into()),
        }
    }
}
