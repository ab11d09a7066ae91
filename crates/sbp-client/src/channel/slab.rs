//! Values found again by a small number.

/// A vector whose free places are used again. Numbers are only as long-lived as their values.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            if let Some(place) = self.places.get_mut(widen(index)) {
                *place = Some(value);
            }
            return index;
        }
        // Values are calls and submissions in flight, which budgets hold far below 2^32.
        let index = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(Some(value));
        index
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(widen(index))?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(widen(index))?.take()?;
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// Empties the slab, in the order of places.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.free.clear();
        self.places.drain(..).flatten()
    }
}

fn widen(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn places_are_used_again_and_empty_ones_answer_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        let b = slab.insert('b');
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.remove(a), slab.len()), (None, 1));
        assert_eq!(slab.insert('c'), a);
        assert_eq!(slab.get_mut(b), Some(&mut 'b'));
        assert_eq!(slab.drain().collect::<String>(), "cb");
    }
}
