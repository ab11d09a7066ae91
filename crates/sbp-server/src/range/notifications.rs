//! What requesters are told, gathered so that each is woken once.

use std::sync::Arc;

use super::outcome::AppendDone;
use super::requester::{Notification, Requester};

/// What one step of the range server has to tell, by requester.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    addressed: Vec<(Arc<dyn Requester>, Notification)>,
    /// Where the last requester was found: neighbours in a group mostly come from the same one.
    last: usize,
}

impl Notifications {
    /// The notification of one requester, to be added to.
    pub(super) fn to(&mut self, requester: Arc<dyn Requester>) -> &mut Notification {
        let same = |(other, _): &(Arc<dyn Requester>, Notification)| Arc::ptr_eq(other, &requester);
        if !self.addressed.get(self.last).is_some_and(same) {
            self.last = self.addressed.iter().position(same).unwrap_or_else(|| {
                self.addressed.push((Arc::clone(&requester), Notification::default()));
                self.addressed.len() - 1
            });
        }
        let (_, notification) = self
            .addressed
            .get_mut(self.last)
            .expect("the place was just found or made");
        notification
    }

    /// Takes out how appends of a requester ended: the thread that is here is the requester's own, and needs no telling.
    pub(super) fn take_appended(&mut self, requester: &Arc<dyn Requester>) -> Vec<AppendDone> {
        let found = self
            .addressed
            .iter_mut()
            .find(|(other, _)| Arc::ptr_eq(other, requester));
        found
            .map(|(_, notification)| std::mem::take(&mut notification.appended))
            .unwrap_or_default()
    }

    /// Sends them. Not under a lock: whoever is woken may want it.
    pub(super) fn send(self) {
        for (requester, notification) in self.addressed {
            if !notification.is_empty() {
                requester.notify(notification);
            }
        }
    }
}
