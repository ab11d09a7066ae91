//! How far a cursor's streams are known to reach: which commits need no look at their streams, and which are refused.

use std::collections::BTreeMap;

use sbp_types::{Offset, StreamId};

/// For each stream an offset that it has reached for certain; it may have grown since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends(BTreeMap<StreamId, Offset>);

impl Ends {
    /// Notes that a stream has reached an offset.
    pub(super) fn note(&mut self, stream: StreamId, end: Offset) {
        let known = self.0.entry(stream).or_insert(end);
        *known = end.max(*known);
    }

    /// Notes what these say, too.
    pub(super) fn extend(&mut self, others: Self) {
        for (stream, end) in others.0 {
            self.note(stream, end);
        }
    }

    /// The streams of these places that may end before them, each once.
    pub(super) fn in_question<'p>(&self, places: impl IntoIterator<Item = &'p (StreamId, Offset)>) -> Vec<StreamId> {
        let ahead = places
            .into_iter()
            .filter(|(stream, next)| self.0.get(stream).is_none_or(|known| next > known));
        let mut streams: Vec<_> = ahead.map(|(stream, _)| *stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// The first of these places that lies beyond the end of its stream, and that end. Of streams that are not known
    /// here, nothing is said.
    pub(super) fn first_beyond(&self, places: &[(StreamId, Offset)]) -> Option<(StreamId, Offset, Offset)> {
        places.iter().find_map(|&(stream, next)| {
            let end = *self.0.get(&stream)?;
            (next > end).then_some((stream, next, end))
        })
    }
}

impl FromIterator<(StreamId, Offset)> for Ends {
    fn from_iter<T: IntoIterator<Item = (StreamId, Offset)>>(known: T) -> Self {
        let mut ends = Self::default();
        known.into_iter().for_each(|(stream, end)| ends.note(stream, end));
        ends
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{Offset, StreamId};

    use super::Ends;

    fn places(places: &[(i64, i64)]) -> Vec<(StreamId, Offset)> {
        let place = |&(stream, next): &(i64, i64)| (StreamId(stream), Offset(next));
        places.iter().map(place).collect()
    }

    #[test]
    fn only_streams_of_places_further_than_known_are_in_question() {
        let mut ends: Ends = places(&[(1, 10), (2, 4)]).into_iter().collect();
        assert!(ends.in_question(&places(&[(1, 10), (1, 0), (2, 4)])).is_empty());
        let ahead = places(&[(3, 0), (1, 11), (2, 4), (1, 12)]);
        assert_eq!(ends.in_question(&ahead), [StreamId(1), StreamId(3)], "each once");
        ends.note(StreamId(1), Offset(12));
        ends.note(StreamId(3), Offset(0));
        assert!(ends.in_question(&ahead).is_empty());
        ends.note(StreamId(1), Offset(2));
        assert!(
            ends.in_question(&ahead).is_empty(),
            "a stream that reached an offset has reached it"
        );
    }

    #[test]
    fn a_place_beyond_an_end_is_told_with_the_end() {
        let ends: Ends = places(&[(1, 10), (2, 4)]).into_iter().collect();
        assert_eq!(ends.first_beyond(&places(&[(1, 10), (2, 0)])), None);
        let beyond = Some((StreamId(2), Offset(5), Offset(4)));
        assert_eq!(ends.first_beyond(&places(&[(1, 10), (2, 5), (1, 99)])), beyond);
        assert_eq!(
            ends.first_beyond(&places(&[(3, 99)])),
            None,
            "nobody has said where it ends"
        );
    }
}
