//! Which descriptors a client or a server holds, for a child process that has to let go of them.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// An empty place. No descriptor is negative.
const FREE: RawFd = -1;

/// The descriptors that are held now.
///
/// A child that was forked meanwhile inherits copies of them, which keep connections open, and a server's port and
/// directory taken, after the parent is gone. At the moment of the fork any thread may have held any lock, so this table has none:
/// a fixed number of places, each claimed and freed by one atomic step.
#[derive(Debug)]
pub struct Descriptors {
    places: Box<[AtomicI32]>,
}

impl Descriptors {
    /// A table for `count` descriptors. What does not fit is not remembered.
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            places: (0..count).map(|_| AtomicI32::new(FREE)).collect(),
        })
    }

    /// Remembers a descriptor until the result is dropped. Drop it before the descriptor is closed.
    #[must_use = "the descriptor is forgotten when this is dropped"]
    pub fn register(self: &Arc<Self>, descriptor: RawFd) -> Registered {
        let claim = |place: &AtomicI32| {
            place
                .compare_exchange(FREE, descriptor, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        Registered {
            place: self.places.iter().position(claim),
            table: Arc::clone(self),
        }
    }

    /// All of them. Takes no lock.
    #[must_use]
    pub fn snapshot(&self) -> Vec<RawFd> {
        self.places
            .iter()
            .map(|place| place.load(Ordering::Acquire))
            .filter(|place| *place != FREE)
            .collect()
    }
}

/// A place in the table.
#[derive(Debug)]
pub struct Registered {
    table: Arc<Descriptors>,
    place: Option<usize>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(place) = self.place.and_then(|place| self.table.places.get(place)) {
            place.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Descriptors;

    #[test]
    fn what_is_dropped_is_forgotten_and_its_place_used_again() {
        let table = Descriptors::new(2);
        let first = table.register(5);
        let second = table.register(6);
        let third = table.register(7);
        assert_eq!(table.snapshot(), vec![5, 6], "a third one does not fit");
        drop((first, third));
        assert_eq!(table.snapshot(), vec![6]);
        let _again = table.register(8);
        assert_eq!(table.snapshot(), vec![8, 6]);
        drop(second);
    }
}
