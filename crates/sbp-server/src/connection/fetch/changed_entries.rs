//! The entries of a FETCH call that have to be judged again.

use std::collections::HashMap;

use sbp_types::StreamId;
use smallvec::SmallVec;

/// Calls with at most this many entries are searched one by one instead of through an index.
const FEW: usize = 16;

/// The entries whose streams have changed since they were last judged. A call may have a thousand entries, of which
/// only one changes often, so not all are judged each time.
#[derive(Debug)]
pub(super) enum ChangedEntries {
    /// All entries.
    All,
    /// The entries at these indexes.
    Some {
        places: Vec<usize>,
        /// The indexes of each stream's entries; built when first needed.
        by_stream: HashMap<StreamId, SmallVec<[usize; 1]>>,
    },
}

impl ChangedEntries {
    pub(super) fn to_all() -> Self {
        Self::All
    }

    /// Adds the entries of some streams. `streams_of_entries` are the streams of all entries, in order.
    pub(super) fn add(&mut self, streams: &[StreamId], streams_of_entries: impl ExactSizeIterator<Item = StreamId>) {
        let Self::Some { places, by_stream } = self else { return };
        if streams_of_entries.len() <= FEW {
            let entries = streams_of_entries.enumerate();
            places.extend(
                entries
                    .filter(|(_, stream)| streams.contains(stream))
                    .map(|(place, _)| place),
            );
            return;
        }
        if by_stream.is_empty() {
            for (place, stream) in streams_of_entries.enumerate() {
                by_stream.entry(stream).or_default().push(place);
            }
        }
        for stream in streams {
            places.extend(by_stream.get(stream).into_iter().flatten());
        }
    }

    /// Adds one entry.
    pub(super) fn add_slot(&mut self, place: usize) {
        if let Self::Some { places, .. } = self {
            places.push(place);
        }
    }

    /// Takes out the indexes of the entries to judge, of `count` entries in all.
    pub(super) fn take(&mut self, count: usize) -> Vec<usize> {
        match self {
            Self::All => {
                *self = Self::Some {
                    places: Vec::new(),
                    by_stream: HashMap::new(),
                };
                (0..count).collect()
            }
            Self::Some { places, .. } => std::mem::take(places),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_all_then_only_what_has_changed() {
        for count in [3, 100] {
            let entries = || (0..count).map(|place| StreamId(i64::try_from(place % 50).unwrap()));
            let mut changed_entries = ChangedEntries::to_all();
            changed_entries.add(&[StreamId(1)], entries());
            assert_eq!(changed_entries.take(count), (0..count).collect::<Vec<_>>());
            assert_eq!(changed_entries.take(count), [] as [usize; 0]);
            changed_entries.add(&[StreamId(1), StreamId(99)], entries());
            changed_entries.add_slot(0);
            let expected: &[usize] = if count == 3 { &[1, 0] } else { &[1, 51, 0] };
            assert_eq!(changed_entries.take(count), expected);
            assert_eq!(changed_entries.take(count), [] as [usize; 0]);
        }
    }
}
