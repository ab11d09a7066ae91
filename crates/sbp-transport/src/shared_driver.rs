//! A driver that other threads may drive for a turn.

use std::{
    future::poll_fn,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use sbp_locks::Mutex;
use sbp_wire::Reason;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::application::{Application, ReasonOf};
use crate::driver::{Driver, wind_up};
use crate::mailbox::{Inbox, TakeTurn};

/// As [`drive`](crate::drive()), but a thread that posts to a driver that sleeps may do its next turn: see
/// [`crate::Mailbox::post_for`]. For one who posts and then waits, that is two changes of threads less.
pub async fn drive_shared<IO, A>(io: IO, session: A::Endpoint, app: A, inbox: Inbox<A::Command>) -> ReasonOf<A>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Application,
{
    let shared = SharedDriver::new(io, Box::new(Driver::new(session, app, inbox)));
    poll_fn(|context| shared.poll(context)).await;
    match shared.take() {
        Some((io, driver)) => wind_up(io, driver).await,
        None => Reason::local(),
    }
}

/// A connection that its task drives, and for single turns whoever posts to it.
pub(crate) struct SharedDriver<IO, A: Application> {
    engine: Mutex<Option<Engine<IO, A>>>,
    /// The task was polled while somebody else drove: it has to be polled again.
    missed: AtomicBool,
}

struct Engine<IO, A: Application> {
    io: IO,
    driver: Box<Driver<A>>,
    /// The task's; all that is waited for wakes it, whoever drives.
    waker: Option<Waker>,
}

impl<IO, A> SharedDriver<IO, A>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Application,
{
    pub(crate) fn new(io: IO, driver: Box<Driver<A>>) -> Arc<Self> {
        Arc::new_cyclic(|shared: &Weak<Self>| {
            driver.inbox.share(shared.clone() as Weak<dyn TakeTurn>);
            Self {
                engine: Mutex::new(Some(Engine {
                    io,
                    driver,
                    waker: None,
                })),
                missed: AtomicBool::new(false),
            }
        })
    }

    /// The task's turn, until the connection is over.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(mut held) = self.engine.try_lock() {
                let Some(engine) = &mut *held else {
                    return Poll::Ready(());
                };
                match &engine.waker {
                    Some(waker) if waker.will_wake(context.waker()) => {}
                    _ => engine.waker = Some(context.waker().clone()),
                }
                return engine.driver.poll(&mut engine.io, context);
            }
            // Whoever drives looks after it has let go; it may have done so just now.
            if self.missed.swap(true, Ordering::SeqCst) {
                return Poll::Pending;
            }
        }
    }

    /// What is left when the connection is over.
    pub(crate) fn take(&self) -> Option<(IO, Box<Driver<A>>)> {
        let Engine { io, driver, .. } = self.engine.lock().take()?;
        Some((io, driver))
    }
}

impl<IO, A> TakeTurn for SharedDriver<IO, A>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Application,
{
    fn take_turn(&self) -> bool {
        let Some(mut held) = self.engine.try_lock() else {
            return false;
        };
        let Some(Engine { io, driver, waker }) = &mut *held else {
            return false;
        };
        let Some(waker) = waker.clone() else { return false };
        let goes_on = driver.turn_beside(io, &mut Context::from_waker(&waker));
        drop(held);
        if self.missed.swap(false, Ordering::SeqCst) || goes_on {
            waker.wake();
        }
        true
    }
}
