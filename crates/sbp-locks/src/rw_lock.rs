//! Many readers or one writer.

use std::fmt;
use std::sync::{self, PoisonError, TryLockError};

/// The value of an [`RwLock`] that is locked for reading.
pub type RwLockReadGuard<'a, T> = sync::RwLockReadGuard<'a, T>;
/// The value of an [`RwLock`] that is locked for writing.
pub type RwLockWriteGuard<'a, T> = sync::RwLockWriteGuard<'a, T>;

/// A lock that many threads may hold to read, or one to write.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, of which the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.try_read() {
            Ok(value) => formatter.debug_tuple("RwLock").field(&&*value).finish(),
            Err(TryLockError::Poisoned(poisoned)) => {
                formatter.debug_tuple("RwLock").field(&&*poisoned.into_inner()).finish()
            }
            Err(TryLockError::WouldBlock) => formatter.write_str("RwLock(locked)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_a_panic_gives_the_lock_back() {
        let lock = RwLock::new(1);
        assert_eq!(*lock.read() + *lock.read(), 2);
        std::thread::scope(|scope| {
            let panicked = scope.spawn(|| {
                *lock.write() = 2;
                let _held = lock.write();
                panic!("with the lock held");
            });
            assert!(panicked.join().is_err());
        });
        assert_eq!(*lock.read(), 2);
        assert_eq!(format!("{lock:?}"), "RwLock(2)");
    }
}
