//! A requester that hands everything it is told to the test.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use sbp_frame::CallId;

use crate::range::{AppendDone, Notification, ReadDone, Requester};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stands for a connection: what the range server tells it, the test reads.
pub(crate) struct Listener {
    pub(crate) requester: Arc<dyn Requester>,
    notifications: mpsc::Receiver<Notification>,
}

#[derive(Debug)]
struct Forward(mpsc::Sender<Notification>);

impl Requester for Forward {
    fn notify(&self, notification: Notification) {
        let _test_is_over = self.0.send(notification);
    }

    fn deliver(&self, _: CallId, found: ReadDone) {
        panic!("nobody asked for a read: {found:?}");
    }

    fn is_gone(&self) -> bool {
        false
    }
}

impl Listener {
    pub(crate) fn new() -> Self {
        let (sender, notifications) = mpsc::channel();
        Self {
            requester: Arc::new(Forward(sender)),
            notifications,
        }
    }

    /// The next appends that have ended.
    pub(crate) fn next(&self) -> Vec<AppendDone> {
        appended(
            self.notifications
                .recv_timeout(PATIENCE)
                .expect("the server says nothing"),
        )
    }

    /// Those that have ended already.
    pub(crate) fn ended(&self) -> Vec<AppendDone> {
        self.notifications.try_iter().flat_map(appended).collect()
    }
}

fn appended(notification: Notification) -> Vec<AppendDone> {
    assert_eq!(notification.advanced, [], "no fetch waits");
    notification.appended
}
