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
        let claim = |place: &usize| {
            self.places.get(*place).is_some_and(|place| {
                place
                    .compare_exchange(FREE, descriptor, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            })
        };
        // The kernel gives the lowest number that is free, so that each mostly has a place of its own to begin with. A
        // search from the first place on would pass all that are held, which takes longer than accepting a connection.
        let count = self.places.len();
        let first = usize::try_from(descriptor).unwrap_or(0) % count.max(1);
        Registered {
            place: (first..count).chain(0..first).find(claim),
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
    use std::sync::Arc;

    use super::Descriptors;

    fn held(table: &Arc<Descriptors>) -> Vec<i32> {
        let mut held = table.snapshot();
        held.sort_unstable();
        held
    }

    #[test]
    fn what_is_dropped_is_forgotten_and_its_place_used_again() {
        let table = Descriptors::new(2);
        let first = table.register(5);
        let second = table.register(7);
        let third = table.register(8);
        assert_eq!(held(&table), vec![5, 7], "a third one does not fit");
        drop((first, third));
        assert_eq!(held(&table), vec![7]);
        let _again = table.register(8);
        assert_eq!(held(&table), vec![7, 8]);
        drop(second);
        assert_eq!(held(&table), vec![8]);
    }

    #[test]
    fn a_table_without_places_remembers_nothing() {
        let table = Descriptors::new(0);
        let _nowhere = table.register(5);
        assert_eq!(held(&table), Vec::<i32>::new());
    }
}
