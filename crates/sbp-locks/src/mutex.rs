//! Mutual exclusion.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};

/// A mutual exclusion lock around a value.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

/// The value of a locked [`Mutex`]. Dropping it unlocks.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    /// Absent only inside [`Condvar`](crate::Condvar), while the thread waits.
    pub(crate) held: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread holds the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// The lock, if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { held: Some(held) })
    }

    /// The value, of which the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => formatter.debug_tuple("Mutex").field(&&*value).finish(),
            None => formatter.write_str("Mutex(locked)"),
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held
            .as_deref()
            .expect("a guard that is not waiting holds its lock")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held
            .as_deref_mut()
            .expect("a guard that is not waiting holds its lock")
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        *count.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4_000);
    }

    #[test]
    fn a_lock_that_is_held_is_not_given_twice() {
        let lock = Mutex::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert_eq!(format!("{lock:?}"), "Mutex(locked)");
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_panic_gives_the_lock_back() {
        let lock = Arc::new(Mutex::new(1));
        let shared = Arc::clone(&lock);
        let panicked = std::thread::spawn(move || {
            let mut value = shared.lock();
            *value = 2;
            panic!("with the lock held");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*lock.lock(), 2);
        assert_eq!(lock.try_lock().map(|value| *value), Some(2));
    }
}
