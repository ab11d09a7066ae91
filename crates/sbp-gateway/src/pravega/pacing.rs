//! No more is read for a client than it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Requests of a connection that are answered at once. Those that wait for something to come are none of them.
const AT_ONCE: usize = 16;
/// Bytes of replies that the client has not taken, from which on nothing more is read for it.
const ENOUGH: usize = 8 << 20;
/// How often it is looked whether it has taken some.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a connection knows of its client.
#[derive(Debug)]
pub(super) struct Pacing {
    has_room: watch::Sender<bool>,
    permits: Arc<Semaphore>,
    look_at: Option<Instant>,
}

impl Pacing {
    pub(super) fn new() -> Self {
        Self {
            has_room: watch::Sender::new(true),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            look_at: None,
        }
    }

    /// What a request waits with for its turn.
    pub(super) fn turns(&self) -> Turns {
        Turns {
            has_room: self.has_room.subscribe(),
            permits: Arc::clone(&self.permits),
        }
    }

    /// So many bytes of replies wait for the client.
    pub(super) fn note(&mut self, unwritten: usize, now: Instant) {
        let has_room = unwritten < ENOUGH;
        self.look_at = (!has_room).then(|| now + LOOK_EVERY);
        self.has_room
            .send_if_modified(|before| std::mem::replace(before, has_room) != has_room);
    }

    /// When it is to be noted again, if nothing else happens.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.look_at
    }
}

/// The turn of a request, until its reply is handed over.
pub(super) type Turn = Option<OwnedSemaphorePermit>;

/// Where requests wait for their turns.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    has_room: watch::Receiver<bool>,
    permits: Arc<Semaphore>,
}

impl Turns {
    /// Waits until something may be read for the client. Where its connection is over there is nobody to wait for.
    pub(super) async fn next(&mut self) -> Turn {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        drop(self.has_room.wait_for(|has_room| *has_room).await);
        permit
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    async fn waits(turns: &mut Turns) -> bool {
        timeout(Duration::from_secs(1), turns.next()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_for_a_client_that_takes_nothing() {
        let mut pacing = Pacing::new();
        let (mut turns, now) = (pacing.turns(), Instant::now());
        pacing.note(ENOUGH, now);
        assert!(pacing.look_at().is_some());
        assert!(waits(&mut turns).await);
        pacing.note(ENOUGH - 1, now);
        assert!(pacing.look_at().is_none());
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(turns.next().await);
        }
        assert!(waits(&mut turns).await, "so many at once");
        held.pop();
        assert!(!waits(&mut turns).await);
        // Where the connection is over, nobody waits.
        drop((held, pacing));
        assert!(!waits(&mut turns).await);
    }
}
