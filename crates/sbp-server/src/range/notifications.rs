//! Notifications to requesters, collected so that each requester is woken once.

use std::sync::Arc;
use std::time::Instant;

use super::outcome::AppendDone;
use super::requester::{Notification, Requester};

/// The notifications that one step of the range server causes, by requester.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    addressed: Vec<(Arc<dyn Requester>, Notification)>,
    /// The index of the last requester looked up: consecutive entries of a group mostly come from the same requester.
    last: usize,
}

impl Notifications {
    /// The notification of a requester, to be added to.
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

    /// Adds an append of a requester that has ended.
    pub(super) fn push(&mut self, requester: Arc<dyn Requester>, done: AppendDone) {
        self.to(requester).appended.push(done);
    }

    /// Notes when the first of the appends arrived by which streams have changed.
    pub(super) fn arrived(&mut self, first: Option<Instant>) {
        for (_, notification) in &mut self.addressed {
            notification.arrived = first;
        }
    }

    /// Takes out the ended appends of a requester on whose own thread this runs, so that it need not be woken for them.
    pub(super) fn take_appended(&mut self, requester: &Arc<dyn Requester>) -> Vec<AppendDone> {
        let found = self
            .addressed
            .iter_mut()
            .find(|(other, _)| Arc::ptr_eq(other, requester));
        found
            .map(|(_, notification)| std::mem::take(&mut notification.appended))
            .unwrap_or_default()
    }

    /// Sends all notifications. Not under a lock: the requesters that are woken may take it.
    pub(super) fn send(self) {
        for (requester, notification) in self.addressed {
            if !notification.is_empty() {
                requester.notify(notification);
            }
        }
    }
}
