//! Places for connections: many for those whose peer is known, and a few for those that have yet to say who they are.
//!
//! Strangers take no place away from others. When their places are taken, the newest comes in and the oldest is closed: who
//! means it says who it is within a round trip or two, and is never the oldest then; who says nothing is soon.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sbp_locks::Mutex;
use tokio::task::AbortHandle;

/// How many connections there may be at once.
#[derive(Clone, Copy, Debug)]
pub struct PlaceLimits {
    /// Whose peer is known.
    pub known: usize,
    /// Of these from one address.
    pub known_from_one: usize,
    /// Whose peer is not known yet.
    pub strangers: usize,
}

/// All places of a server.
#[derive(Debug)]
pub struct Places {
    limits: PlaceLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    known: usize,
    /// The connections among `known` from each address; no count is 0.
    known_from: HashMap<IpAddr, usize>,
    /// The others, the oldest first, with the task that ends with the connection.
    strangers: BTreeMap<u64, Option<AbortHandle>>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    address: IpAddr,
    is_known: AtomicBool,
}

/// No place is left: this many are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPlace {
    /// As many as there may be.
    pub limit: usize,
}

impl Places {
    /// Places of which none is taken.
    #[must_use]
    pub fn new(limits: PlaceLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::default(),
        })
    }

    /// A place for a connection from `address` whose peer is nobody to be known.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn for_known(self: &Arc<Self>, address: IpAddr) -> Result<Place, NoPlace> {
        let mut state = self.state.lock();
        state.count_known(address, &self.limits)?;
        Ok(self.place(&mut state, address, true))
    }

    /// A place for a connection from `address` whose peer has yet to become known, and whether another one has lost its
    /// place for it.
    pub fn for_stranger(self: &Arc<Self>, address: IpAddr) -> (Place, bool) {
        let mut state = self.state.lock();
        let oldest = if state.strangers.len() >= self.limits.strangers {
            state.strangers.pop_first()
        } else {
            None
        };
        let place = self.place(&mut state, address, false);
        state.strangers.insert(place.number, None);
        drop(state);
        let has_closed = oldest.is_some();
        if let Some((_, Some(task))) = oldest {
            task.abort();
        }
        (place, has_closed)
    }

    fn place(self: &Arc<Self>, state: &mut State, address: IpAddr, is_known: bool) -> Place {
        state.last += 1;
        Place {
            places: Arc::clone(self),
            number: state.last,
            address,
            is_known: AtomicBool::new(is_known),
        }
    }
}

impl State {
    fn count_known(&mut self, address: IpAddr, limits: &PlaceLimits) -> Result<(), NoPlace> {
        let from_there = self.known_from.get(&address).copied().unwrap_or_default();
        for (count, limit) in [(self.known, limits.known), (from_there, limits.known_from_one)] {
            if count >= limit {
                return Err(NoPlace { limit });
            }
        }
        self.known += 1;
        self.known_from.insert(address, from_there + 1);
        Ok(())
    }
}

impl Place {
    /// Ends `task` when the place of this stranger is needed for another one.
    pub fn ends_with(&self, task: AbortHandle) {
        let mut state = self.places.state.lock();
        if let Some(place) = state.strangers.get_mut(&self.number) {
            *place = Some(task);
        }
    }

    /// The peer is known now, and the place is one of those for such peers.
    ///
    /// # Errors
    /// [`NoPlace`]: it stays a stranger.
    pub fn become_known(&self) -> Result<(), NoPlace> {
        let mut state = self.places.state.lock();
        if self.is_known.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !state.strangers.contains_key(&self.number) {
            // Its place is somebody else's already, and its task is about to end.
            return Err(NoPlace {
                limit: self.places.limits.strangers,
            });
        }
        state.count_known(self.address, &self.places.limits)?;
        state.strangers.remove(&self.number);
        self.is_known.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        if !*self.is_known.get_mut() {
            state.strangers.remove(&self.number);
            return;
        }
        state.known -= 1;
        if let Some(count) = state.known_from.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                state.known_from.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn places() -> Arc<Places> {
        Places::new(PlaceLimits {
            known: 3,
            known_from_one: 2,
            strangers: 2,
        })
    }

    fn counts(places: &Places) -> (usize, usize) {
        let state = places.state.lock();
        (state.known, state.strangers.len())
    }

    /// A stranger with a task that waits until it is ended.
    fn stranger(places: &Arc<Places>) -> (Place, tokio::task::JoinHandle<()>, bool) {
        let (place, has_closed) = places.for_stranger(HERE);
        let task = tokio::spawn(std::future::pending());
        place.ends_with(task.abort_handle());
        (place, task, has_closed)
    }

    #[tokio::test]
    async fn the_oldest_stranger_is_closed_for_the_newest() {
        let places = places();
        let (first, first_task, _) = stranger(&places);
        let (second, second_task, _) = stranger(&places);
        let (third, third_task, has_closed) = stranger(&places);
        assert!(has_closed);
        assert!(first_task.await.expect_err("ended").is_cancelled());
        assert_eq!(first.become_known(), Err(NoPlace { limit: 2 }), "too late");
        assert_eq!(counts(&places), (0, 2));
        // Who is known makes room, and is never ended.
        second.become_known().expect("a place");
        second.become_known().expect("the same place");
        assert_eq!(counts(&places), (1, 1));
        let (fourth, _task, has_closed) = stranger(&places);
        assert!(!has_closed);
        let (_fifth, _task, has_closed) = stranger(&places);
        assert!(has_closed);
        assert!(third_task.await.expect_err("ended").is_cancelled());
        assert!(!second_task.is_finished());
        drop((first, second, third, fourth));
        assert_eq!(counts(&places), (0, 1));
    }

    #[test]
    fn strangers_take_no_place_of_those_who_are_known() {
        let places = places();
        let strangers = [places.for_stranger(HERE).0, places.for_stranger(HERE).0];
        let known = [
            places.for_known(HERE),
            places.for_known(HERE),
            places.for_known(HERE),
            places.for_known(THERE),
            places.for_known(THERE),
        ];
        let limits: Vec<_> = known
            .iter()
            .map(|place| place.as_ref().err().map(|no| no.limit))
            .collect();
        assert_eq!(limits, [None, None, Some(2), None, Some(3)]);
        assert_eq!(
            strangers[0].become_known(),
            Err(NoPlace { limit: 3 }),
            "it stays a stranger"
        );
        assert_eq!(counts(&places), (3, 2));
        drop(known);
        assert_eq!(counts(&places), (0, 2));
        assert!(places.state.lock().known_from.is_empty());
        strangers[0].become_known().expect("a place");
        assert_eq!(counts(&places), (1, 1));
    }
}
