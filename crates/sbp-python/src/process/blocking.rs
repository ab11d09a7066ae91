//! Blocking calls: run a future on the I/O thread and wait for it with the interpreter lock released.
//!
//! A waiting thread sleeps in `poll` on a descriptor of its own, which a signal interrupts: its Python handler runs at
//! once. A condition variable would sleep on, for the system call begins anew below it.

use std::cell::RefCell;
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sbp_locks::Mutex;

use crate::process::fork::{self, Generation};
use crate::process::{logging, runtime};

/// How long a wait lasts before pending signals are looked at in any case: one may come just before the wait begins, and
/// another thread may be the one that the system interrupts.
const SIGNAL_SLICE: Duration = Duration::from_millis(50);

thread_local! {
    /// This thread's waker, while it waits for nothing.
    static WAKER: RefCell<Option<Arc<ThreadWaker>>> = const { RefCell::new(None) };
}

/// What wakes one waiting thread.
struct ThreadWaker {
    made_by: Generation,
    descriptor: OwnedFd,
}

impl ThreadWaker {
    /// This thread's, or a new one: a signal handler that makes a call of its own waits while another wait goes on.
    fn take() -> PyResult<Arc<Self>> {
        // One that a parent process made is shared with it, and would take its wake-ups.
        let known = WAKER.take().filter(|waker| waker.made_by.is_current());
        match known {
            Some(waker) => Ok(waker),
            None => {
                let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                    .map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?;
                Ok(Arc::new(Self {
                    made_by: fork::current(),
                    descriptor,
                }))
            }
        }
    }

    fn wake(&self) {
        // It can only fail because the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Sleeps until the thread is woken, a signal comes, or a slice of time is over.
    fn wait(&self) {
        let slice = Timespec {
            tv_sec: 0,
            tv_nsec: SIGNAL_SLICE.subsec_nanos().into(),
        };
        let mut descriptors = [PollFd::new(&self.descriptor, PollFlags::IN)];
        if poll(&mut descriptors, Some(&slice)).is_ok_and(|ready| ready > 0) {
            // Nothing to read is fine: the wake-up may be an older call's.
            let _ = rustix::io::read(self.descriptor.as_fd(), &mut [0; 8]);
        }
    }
}

/// The I/O thread's side of a wait: takes the one value that a blocked thread waits for. Dropped without a value, it ends
/// the wait with an error.
pub(crate) struct Answer<T> {
    place: Arc<Mutex<Place<T>>>,
    waker: Arc<ThreadWaker>,
}

/// The blocked thread's side of a wait.
pub(crate) struct Waiting<T> {
    place: Arc<Mutex<Place<T>>>,
    waker: Arc<ThreadWaker>,
}

enum Place<T> {
    Empty,
    Filled(T),
    /// Nothing will come.
    Abandoned,
    /// The blocked thread has given up.
    Left,
}

/// A place for one value.
///
/// # Errors
///
/// `OSError` when the process has no descriptor left.
pub(crate) fn rendezvous<T>() -> PyResult<(Answer<T>, Waiting<T>)> {
    let waker = ThreadWaker::take()?;
    let place = Arc::new(Mutex::new(Place::Empty));
    let answer = Answer {
        place: Arc::clone(&place),
        waker: Arc::clone(&waker),
    };
    Ok((answer, Waiting { place, waker }))
}

impl<T> Answer<T> {
    /// Gives the value to who waits. It is dropped when a signal has ended the wait.
    pub(crate) fn send(&self, value: T) {
        let mut place = self.place.lock();
        if matches!(*place, Place::Empty) {
            *place = Place::Filled(value);
            drop(place);
            self.waker.wake();
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let mut place = self.place.lock();
        if matches!(*place, Place::Empty) {
            *place = Place::Abandoned;
            drop(place);
            self.waker.wake();
        }
    }
}

impl<T: Send> Waiting<T> {
    /// Waits for the value.
    ///
    /// # Errors
    ///
    /// What a signal handler raised, or `RuntimeError` if none will come.
    pub(crate) fn wait(self, py: Python<'_>) -> PyResult<T> {
        let outcome = loop {
            match std::mem::replace(&mut *self.place.lock(), Place::Empty) {
                Place::Filled(value) => break Ok(value),
                Place::Abandoned | Place::Left => break Err(dropped()),
                Place::Empty => {}
            }
            py.detach(|| self.waker.wait());
            if let Err(raised) = py.check_signals() {
                break Err(raised);
            }
        };
        if outcome.is_err() {
            let late = std::mem::replace(&mut *self.place.lock(), Place::Left);
            drop(late);
        }
        WAKER.replace(Some(self.waker));
        logging::turn(py);
        outcome
    }
}

/// Runs `future` on the I/O thread and returns its result. A signal handler that raises aborts it.
pub(crate) fn block_on<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (answer, waiting) = rendezvous()?;
    let task = runtime::handle(py)?.spawn(async move { answer.send(future.await) });
    waiting.wait(py).inspect_err(|_| task.abort())
}

/// The exception for a wait that nobody will end.
pub(crate) fn dropped() -> PyErr {
    PyRuntimeError::new_err("the call was dropped: the client's I/O thread is gone")
}

/// Waits for the next of several values from other threads, at most until `until`; the receiver comes back.
///
/// # Errors
///
/// What a signal handler raised.
pub(crate) fn receive_until<T: Send>(
    py: Python<'_>,
    receiver: Receiver<T>,
    until: Option<Instant>,
) -> (Receiver<T>, PyResult<Result<T, RecvTimeoutError>>) {
    let mut receiver = receiver;
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let slice = left.map_or(SIGNAL_SLICE, |left| left.min(SIGNAL_SLICE));
        // A receiver may be moved to another thread, but not be shared: it goes in and comes back.
        let (back, outcome) = py.detach(move || {
            let outcome = receiver.recv_timeout(slice);
            (receiver, outcome)
        });
        receiver = back;
        if !matches!(outcome, Err(RecvTimeoutError::Timeout)) {
            return (receiver, Ok(outcome));
        }
        match py.check_signals() {
            Err(raised) => return (receiver, Err(raised)),
            Ok(()) if left.is_some_and(|left| left <= slice) => return (receiver, Ok(outcome)),
            Ok(()) => {}
        }
    }
}
