//! Commands from other tasks and threads to a connection's task.

use std::{
    mem,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use sbp_locks::Mutex;

use crate::TransportStats;

/// Whoever can be driven from outside.
pub(crate) trait TakeTurn: Send + Sync {
    /// Drives for one turn; wakes the task if there is more to do. False, with nothing done, when somebody else drives.
    fn take_turn(&self) -> bool;
}

/// A new mailbox: the end that posts, and the end that a driver takes from.
pub fn mailbox<C>() -> (Mailbox<C>, Inbox<C>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            commands: Vec::new(),
            waker: None,
            turns: None,
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

#[derive(Debug)]
struct Shared<C> {
    state: Mutex<State<C>>,
    stats: Arc<TransportStats>,
}

#[derive(Debug)]
struct State<C> {
    commands: Vec<C>,
    /// Set exactly while the task sleeps and nothing was posted since: whoever posts first takes it and wakes.
    waker: Option<Waker>,
    /// A driver that others may drive for a turn.
    turns: Option<Weak<dyn TakeTurn>>,
    closed: bool,
}

/// A driver that was asleep when something was posted to it. Dropped, it is woken.
#[derive(Debug)]
#[must_use = "a driver that is not driven is woken at once"]
pub struct SleepingDriver {
    waker: Option<Waker>,
    turns: Option<Weak<dyn TakeTurn>>,
}

impl SleepingDriver {
    /// Drives it for one turn on this thread, which will likely send what was posted. Where that is not possible, or not
    /// enough, the driver is woken.
    ///
    /// The turn calls the [`Application`](crate::Application): nothing may be locked that it needs.
    pub fn drive(mut self) {
        let turns = self.turns.as_ref().and_then(Weak::upgrade);
        if turns.is_some_and(|turns| turns.take_turn()) {
            self.waker = None;
        }
    }
}

impl Drop for SleepingDriver {
    fn drop(&mut self) {
        wake(self.waker.take());
    }
}

/// The posting end. Clones post to the same connection.
#[derive(Debug)]
pub struct Mailbox<C> {
    shared: Arc<Shared<C>>,
}

impl<C> Mailbox<C> {
    /// Hands one command over.
    ///
    /// # Errors
    /// The command itself, when the connection has ended.
    pub fn post(&self, command: C) -> Result<(), C> {
        self.post_for(command).map(drop)
    }

    /// Hands one command over; a driver that has to be woken for it is left to the caller, who may drive it instead.
    ///
    /// # Errors
    /// The command itself, when the connection has ended.
    pub fn post_for(&self, command: C) -> Result<Option<SleepingDriver>, C> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(command);
        }
        state.commands.push(command);
        let Some(waker) = state.waker.take() else {
            return Ok(None);
        };
        Ok(Some(SleepingDriver {
            waker: Some(waker),
            turns: state.turns.clone(),
        }))
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

/// The taking end, owned by one driver. Dropping it ends the mailbox.
#[derive(Debug)]
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

    /// Lets whoever posts drive the one who takes.
    pub(crate) fn share(&self, turns: Weak<dyn TakeTurn>) {
        self.shared.state.lock().turns = Some(turns);
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

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(count: &Count) -> usize {
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn it_wakes_only_a_task_that_sleeps() {
        let (mailbox, inbox) = mailbox();
        let wakes = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut taken = Vec::new();
        assert!(mailbox.post(0).is_ok());
        assert_eq!(count(&wakes), 0, "nobody sleeps");
        assert!(inbox.poll_take(&mut context, &mut taken).is_ready());
        taken.clear();
        for _ in 0..2 {
            assert!(inbox.poll_take(&mut context, &mut taken).is_pending());
        }
        for n in 1..=100 {
            assert!(mailbox.clone().post(n).is_ok());
        }
        assert!(mailbox.post_all(&mut vec![101, 102]));
        assert_eq!(count(&wakes), 1, "one wake-up for all that came");
        assert!(inbox.poll_take(&mut context, &mut taken).is_ready());
        assert_eq!(taken, (1..=102).collect::<Vec<_>>());
    }

    #[test]
    fn an_empty_batch_wakes_nobody() {
        let (mailbox, inbox) = mailbox::<u8>();
        let wakes = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&wakes));
        assert!(
            inbox
                .poll_take(&mut Context::from_waker(&waker), &mut Vec::new())
                .is_pending()
        );
        assert!(mailbox.post_all(&mut Vec::new()));
        assert_eq!(count(&wakes), 0);
    }

    #[test]
    fn a_dropped_inbox_ends_it() {
        let (mailbox, inbox) = mailbox();
        assert!(mailbox.post("left").is_ok());
        assert_eq!(inbox.close(), ["left"]);
        drop(inbox);
        assert!(mailbox.is_closed());
        assert_eq!(mailbox.post("late"), Err("late"));
        let mut late = vec!["late"];
        assert!(!mailbox.post_all(&mut late));
        assert_eq!(late, ["late"]);
    }
}
