//! Operations that are on their way, by token.

use pyo3::prelude::*;

use super::operation::Operation;

/// Gives each operation a token and keeps it alive until its completion has come.
///
/// A token is a place and the place's generation: one that comes twice, or after the place was given to another
/// operation, finds nothing.
#[derive(Default)]
pub(crate) struct Slab {
    places: Vec<Place>,
    free: Vec<u32>,
}

struct Place {
    generation: u32,
    operation: Option<Py<Operation>>,
}

impl Slab {
    /// Keeps the operation; returns its token.
    pub(crate) fn insert(&mut self, operation: Py<Operation>) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                generation: 0,
                operation: None,
            });
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 operations on their way")
        });
        let place = &mut self.places[index as usize];
        place.operation = Some(operation);
        u64::from(place.generation) << 32 | u64::from(index)
    }

    /// Takes the operation out and gives the place back.
    pub(crate) fn remove(&mut self, token: u64) -> Option<Py<Operation>> {
        let place = self.place(token)?;
        place.generation = place.generation.wrapping_add(1);
        let operation = place.operation.take();
        self.free.push(index(token));
        operation
    }

    /// All operations on their way.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Py<Operation>> {
        self.places.iter().filter_map(|place| place.operation.as_ref())
    }

    /// How many operations are on their way.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn place(&mut self, token: u64) -> Option<&mut Place> {
        let place = self.places.get_mut(index(token) as usize)?;
        (u64::from(place.generation) == token >> 32).then_some(place)
    }
}

/// The place: the lower half of the token.
fn index(token: u64) -> u32 {
    (token & u64::from(u32::MAX)) as u32
}
