//! A table of calls by id.

use std::collections::{HashMap, VecDeque};

use sbp_frame::CallId;

/// The most ids that the window spans. Calls with ids before it, such as waiting FETCHes, are moved to the map.
const WINDOW: u32 = 4096;

/// A gap of more ids than this is not filled with empty slots: a new window starts after it.
const MAX_HOLE: u32 = 64;

/// A table of calls in flight, for ids that nearly always grow by one.
///
/// Recent ids index a ring, so that most calls need no hashing and, once the ring has grown, no allocation. Any
/// sequence of ids works; ids out of order are kept in a map.
#[derive(Debug)]
pub(crate) struct IdTable<T> {
    /// The id of the window's first slot.
    base: u32,
    /// The slots of the ids from `base` on. The first slot, if any, is occupied.
    window: VecDeque<Option<T>>,
    /// Calls with ids outside the window.
    rest: HashMap<u32, T>,
    len: usize,
}

impl<T> IdTable<T> {
    pub(crate) fn new() -> Self {
        Self {
            base: 0,
            window: VecDeque::new(),
            rest: HashMap::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a call. The caller has checked that its id is not in the table.
    pub(crate) fn insert(&mut self, id: CallId, value: T) {
        debug_assert!(self.get(id).is_none());
        self.len += 1;
        let id = id.raw();
        if self.window.is_empty() {
            self.base = id;
            self.window.push_back(Some(value));
            return;
        }
        let Some(ahead) = id.checked_sub(self.base) else {
            self.rest.insert(id, value);
            return;
        };
        let end = u32::try_from(self.window.len()).unwrap_or(u32::MAX);
        if let Some(slot) = self.window.get_mut(ahead as usize) {
            *slot = Some(value);
        } else if ahead - end > MAX_HOLE {
            self.spill(end);
            self.base = id;
            self.window.push_back(Some(value));
        } else {
            self.window.extend((end..ahead).map(|_| None));
            self.window.push_back(Some(value));
            self.spill((ahead + 1).saturating_sub(WINDOW));
        }
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&T> {
        match self.slot(id) {
            Some(slot) => self.window.get(slot)?.as_ref(),
            None if self.rest.is_empty() => None,
            None => self.rest.get(&id.raw()),
        }
    }

    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut T> {
        match self.slot(id) {
            Some(slot) => self.window.get_mut(slot)?.as_mut(),
            None if self.rest.is_empty() => None,
            None => self.rest.get_mut(&id.raw()),
        }
    }

    pub(crate) fn remove(&mut self, id: CallId) -> Option<T> {
        let removed = match self.slot(id) {
            Some(slot) => self.window.get_mut(slot)?.take(),
            None => self.rest.remove(&id.raw()),
        }?;
        self.len -= 1;
        self.drop_empty_front();
        Some(removed)
    }

    /// Frees the memory of an empty table.
    pub(crate) fn shrink(&mut self) {
        if self.len == 0 {
            self.window.shrink_to_fit();
            self.rest.shrink_to_fit();
        }
    }

    /// All calls, in no particular order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (CallId, &mut T)> {
        let window = (self.base..)
            .zip(&mut self.window)
            .filter_map(|(id, slot)| Some((id, slot.as_mut()?)));
        let rest = self.rest.iter_mut().map(|(id, value)| (*id, value));
        window
            .chain(rest)
            .filter_map(|(id, value)| Some((CallId::from_raw(id)?, value)))
    }

    fn slot(&self, id: CallId) -> Option<usize> {
        let slot = id.raw().checked_sub(self.base)? as usize;
        (slot < self.window.len()).then_some(slot)
    }

    /// Moves the calls in the window's first `count` slots to the map.
    fn spill(&mut self, count: u32) {
        for _ in 0..count {
            if let Some(Some(value)) = self.window.pop_front() {
                self.rest.insert(self.base, value);
            }
            self.base += 1;
        }
        self.drop_empty_front();
    }

    fn drop_empty_front(&mut self) {
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(raw: u32) -> CallId {
        CallId::from_raw(raw).expect("31 bits")
    }

    #[test]
    fn a_call_that_stays_moves_out_of_the_window() {
        let mut table = IdTable::new();
        table.insert(id(1), "waits");
        for raw in 2..100_000 {
            table.insert(id(raw), "short");
            assert_eq!(table.remove(id(raw)), Some("short"));
        }
        assert_eq!(table.get(id(1)), Some(&"waits"));
        assert!(table.window.len() <= WINDOW as usize);
        assert_eq!(table.rest.len(), 1);
        assert_eq!(table.remove(id(1)), Some("waits"));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_far_jump_is_not_filled() {
        let mut table = IdTable::new();
        table.insert(id(1), 1);
        table.insert(id(u32::MAX >> 1), 2);
        table.insert(id(5), 3);
        assert_eq!(table.window.len(), 1);
        let mut all: Vec<_> = table.iter_mut().map(|(id, value)| (id.raw(), *value)).collect();
        all.sort_unstable();
        assert_eq!(all, [(1, 1), (5, 3), (u32::MAX >> 1, 2)]);
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0_u32..3, prop_oneof![0_u32..40, 0_u32..9_000, any::<u32>()]), 0..400)) {
            let mut table = IdTable::new();
            let mut model = BTreeMap::new();
            let mut rising = 0_u32;
            for (step, number) in steps {
                rising = rising.wrapping_add(1) & (u32::MAX >> 1);
                let raw = number & (u32::MAX >> 1);
                match step {
                    0 if !model.contains_key(&rising) => {
                        table.insert(id(rising), rising);
                        model.insert(rising, rising);
                    }
                    1 if !model.contains_key(&raw) => {
                        table.insert(id(raw), raw);
                        model.insert(raw, raw);
                    }
                    _ => prop_assert_eq!(table.remove(id(raw)), model.remove(&raw)),
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.get(id(raw)), model.get(&raw));
            }
            let mut all: Vec<_> = table.iter_mut().map(|(id, _)| id.raw()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, model.into_keys().collect::<Vec<_>>());
        }
    }
}
