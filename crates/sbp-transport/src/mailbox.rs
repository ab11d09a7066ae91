//! Commands from other tasks and threads to a connection's task.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::TransportStats;

/// A new mailbox: the end that posts, and the end that a driver takes from.
pub fn mailbox<C>() -> (Mailbox<C>, Inbox<C>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            commands: Vec::new(),
            waker: None,
            closed: false,
        }),
        stats: Arc::default(),
    });
    (
        Mailbox {
            shared: Arc::clone(&shared),
        },
        Inbox { shared },
    )
}

struct Shared<C> {
    state: Mutex<State<C>>,
    stats: Arc<TransportStats>,
}

struct State<C> {
    commands: Vec<C>,
    /// Set exactly while the task sleeps and nothing was posted since: whoever posts first takes it and wakes.
    waker: Option<Waker>,
    closed: bool,
}

/// The posting end. Clones post to the same connection.
pub struct Mailbox<C> {
    shared: Arc<Shared<C>>,
}

impl<C> Mailbox<C> {
    /// Hands one command over.
    ///
    /// # Errors
    /// The command itself, when the connection has ended.
    pub fn post(&self, command: C) -> Result<(), C> {
        let waker = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(command);
            }
            state.commands.push(command);
            state.waker.take()
        };
        wake(waker);
        Ok(())
    }

    /// Hands all commands over, with one lock and at most one wake-up. Returns false, with `commands` untouched, when
    /// the connection has ended.
    pub fn post_all(&self, commands: &mut Vec<C>) -> bool {
        let waker = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return false;
            }
            if commands.is_empty() {
                return true;
            }
            if state.commands.is_empty() {
                mem::swap(&mut state.commands, commands);
            } else {
                state.commands.append(commands);
            }
            state.waker.take()
        };
        wake(waker);
        true
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().closed
    }

    /// The counters of the driver that takes from this mailbox.
    pub fn stats(&self) -> &Arc<TransportStats> {
        &self.shared.stats
    }
}

/// Wakes outside the lock, so that the woken task does not run into it.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<C> Clone for Mailbox<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C> fmt::Debug for Mailbox<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

/// The taking end, owned by one driver. Dropping it ends the mailbox.
pub struct Inbox<C> {
    shared: Arc<Shared<C>>,
}

impl<C> Inbox<C> {
    /// Moves what was posted into `commands`, which must be empty; asks to be woken where there was nothing.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>, commands: &mut Vec<C>) -> Poll<()> {
        debug_assert!(commands.is_empty());
        let mut state = self.shared.state.lock();
        if state.commands.is_empty() {
            match &state.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                _ => state.waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        mem::swap(&mut state.commands, commands);
        Poll::Ready(())
    }

    /// Commands that wait.
    pub(crate) fn len(&self) -> usize {
        self.shared.state.lock().commands.len()
    }

    /// Accepts no more, and returns what was left.
    pub(crate) fn close(&self) -> Vec<C> {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.waker = None;
        mem::take(&mut state.commands)
    }

    pub(crate) fn stats(&self) -> Arc<TransportStats> {
        Arc::clone(&self.shared.stats)
    }
}

impl<C> Drop for Inbox<C> {
    fn drop(&mut self) {
        // Dropped outside the lock: a command's own drop may post or ask.
        drop(self.close());
    }
}

impl<C> fmt::Debug for Inbox<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Inbox").finish_non_exhaustive()
    }
}
