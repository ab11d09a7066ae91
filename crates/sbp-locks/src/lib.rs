//! Locks that a forked child can use.
//!
//! A [`Mutex`], an [`RwLock`] and a [`Condvar`] over those of the standard library, which on Linux are futexes: a word of
//! memory each, and nothing else. Libraries that queue waiting threads in a table of the whole process must not be used in
//! this workspace: after a fork the child's copy of that table still names the parent's threads, whose memory it gives to
//! its own new threads. Embedded in Python we are forked all the time.
//!
//! Nothing is poisoned. A thread that panics while it holds a lock gives it back: whoever shares state with it sees what
//! it left, and decides by that state.
//!
//! ```
//! use sbp_locks::{Condvar, Mutex};
//!
//! let (ready, changed) = (Mutex::new(false), Condvar::new());
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         *ready.lock() = true;
//!         changed.notify_one();
//!     });
//!     let mut ready = ready.lock();
//!     while !*ready {
//!         changed.wait(&mut ready);
//!     }
//! });
//! ```

mod condvar;
mod mutex;
mod rw_lock;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
