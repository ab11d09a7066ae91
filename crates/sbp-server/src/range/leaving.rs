//! Ranges that this server was let go of, until nothing of them is on its disk.

use std::collections::BTreeSet;

use sbp_types::RangeKey;

/// Ranges that leave the disk.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    ranges: BTreeSet<RangeKey>,
    /// Whether some were added since it was looked last.
    is_growing: bool,
}

impl Leaving {
    pub(super) fn add(&mut self, key: RangeKey) {
        self.is_growing |= self.ranges.insert(key);
    }

    pub(super) fn remove(&mut self, keys: &[RangeKey]) {
        for key in keys {
            self.ranges.remove(key);
        }
    }

    /// All of them, unless some were added since the last call.
    pub(super) fn settled(&mut self) -> Vec<RangeKey> {
        if std::mem::take(&mut self.is_growing) {
            return Vec::new();
        }
        self.ranges.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{RangeIndex, StreamId};

    use super::*;

    #[test]
    fn they_are_cleared_together_once_no_more_come() {
        let key = |stream| RangeKey {
            stream: StreamId(stream),
            range: RangeIndex(0),
        };
        let mut leaving = Leaving::default();
        assert_eq!(leaving.settled(), []);
        leaving.add(key(2));
        assert_eq!(leaving.settled(), [], "others may follow");
        leaving.add(key(1));
        assert_eq!(leaving.settled(), []);
        leaving.add(key(2));
        assert_eq!(
            leaving.settled(),
            [key(1), key(2)],
            "one that is told twice is no other one"
        );
        leaving.remove(&[key(1), key(3)]);
        assert_eq!(leaving.settled(), [key(2)]);
    }
}
