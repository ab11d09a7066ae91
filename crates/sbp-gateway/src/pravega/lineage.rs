//! Which of a stream's segments follow which.
//!
//! A stream that was made here keeps the segments that it was made with. One that was imported may have been scaled: what its
//! segments say of it (`properties`) was kept then.

use std::collections::BTreeSet;

use super::catalog::{Held, Segments, is_imported};
use super::properties::Lineage;

/// A segment, and the positions of its routing keys: from the first to below the second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share {
    pub(crate) number: i32,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

fn lineage(held: &Held) -> Option<Lineage> {
    Lineage::of(&held.stream)
}

/// The segments that a segment follows, as far as they are there.
fn follows(segments: &Segments, held: &Held) -> Vec<i32> {
    let mut follows = lineage(held).unwrap_or_default().follows;
    follows.retain(|number| segments.contains_key(number));
    follows
}

/// The segments with which reading begins: all, unless the stream was scaled.
pub(crate) fn first(segments: &Segments) -> impl Iterator<Item = (i32, &Held)> {
    let each = segments.iter().map(|(number, held)| (*number, held));
    each.filter(|(_, held)| follows(segments, held).is_empty())
}

/// The segments that take appends, in the order of their keys; none: the stream is sealed.
pub(crate) fn open(segments: &Segments) -> Vec<Share> {
    if !is_imported(segments) {
        // The first segment is sealed last.
        let is_sealed = segments.get(&0).is_some_and(Held::is_sealed);
        return match is_sealed {
            true => Vec::new(),
            false => equal(segments.keys().copied().collect()),
        };
    }
    let followed: BTreeSet<i32> = segments.values().flat_map(|held| follows(segments, held)).collect();
    let open = segments
        .iter()
        .filter(|(number, held)| !held.is_sealed() && !followed.contains(number));
    let open: Vec<_> = open.collect();
    let known = open.iter().map(|(number, held)| {
        let (low, high) = lineage(held)?.keys?;
        Some(Share {
            number: **number,
            low,
            high,
        })
    });
    let known: Option<Vec<_>> = known.collect();
    match known.and_then(side_by_side) {
        Some(known) => known,
        None => equal(open.into_iter().map(|(number, _)| *number).collect()),
    }
}

/// Shares that have every position once, in their order; `None`: these do not.
fn side_by_side(mut shares: Vec<Share>) -> Option<Vec<Share>> {
    shares.sort_by(|one, other| one.low.total_cmp(&other.low));
    let is_joined = shares.windows(2).all(|two| match two {
        [one, next] => one.low < one.high && one.high == next.low,
        _ => false,
    });
    let (first, last) = (shares.first()?, shares.last()?);
    (is_joined && first.low == 0.0 && last.low < last.high && last.high == 1.0).then_some(shares)
}

fn equal(numbers: Vec<i32>) -> Vec<Share> {
    let count = numbers.len() as f64;
    let share = |(place, number)| Share {
        number,
        low: place as f64 / count,
        high: (place + 1) as f64 / count,
    };
    numbers.into_iter().enumerate().map(share).collect()
}

/// The segments that follow one, each with all those that it follows.
pub(crate) fn followers(segments: &Segments, number: i32) -> Vec<(Share, Vec<i32>)> {
    let each = segments.iter().filter_map(|(follower, held)| {
        let follows = follows(segments, held);
        let (low, high) = lineage(held)?.keys.unwrap_or((0.0, 1.0));
        let share = Share {
            number: *follower,
            low,
            high,
        };
        follows.contains(&number).then_some((share, follows))
    });
    each.collect()
}

/// The segments that are read before any of these is.
pub(crate) fn before(segments: &Segments, numbers: &[i32]) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut left = numbers.to_vec();
    while let Some(number) = left.pop() {
        let follows = segments.get(&number).map(|held| follows(segments, held));
        for before in follows.unwrap_or_default() {
            if found.insert(before) {
                left.push(before);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sbp_messages::Stream;

    use super::*;
    use crate::pravega::catalog::Kind;
    use crate::pravega::properties::{SEALED, key_value};

    /// A segment: which it follows, its keys, and whether it is sealed.
    type Told<'a> = (i32, &'a [i32], Option<(f64, f64)>, bool);

    fn segments(each: &[Told<'_>]) -> Segments {
        let held = each.iter().map(|(number, follows, keys, is_sealed)| {
            let lineage = Lineage {
                follows: follows.to_vec(),
                keys: *keys,
            };
            let mut properties = lineage.properties();
            properties.extend(is_sealed.then(|| key_value(SEALED, "1")));
            let stream = Arc::new(Stream {
                properties: Some(properties),
                ..Stream::default()
            });
            let kind = Kind::Bytes;
            (*number, Held { stream, kind })
        });
        held.collect()
    }

    fn numbers(shares: &[Share]) -> Vec<(i32, f64, f64)> {
        shares
            .iter()
            .map(|share| (share.number, share.low, share.high))
            .collect()
    }

    /// Two segments of which the first is split, and two of the three then merged.
    fn scaled() -> Segments {
        segments(&[
            (0, &[], None, true),
            (1, &[], Some((0.5, 1.0)), true),
            (2, &[0], Some((0.25, 0.5)), true),
            (3, &[0], Some((0.0, 0.25)), false),
            (4, &[1, 2], Some((0.25, 1.0)), false),
        ])
    }

    #[test]
    fn segments_follow_as_they_did() {
        let scaled = scaled();
        assert_eq!(first(&scaled).map(|(number, _)| number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(numbers(&open(&scaled)), [(3, 0.0, 0.25), (4, 0.25, 1.0)]);
        let after = |number| {
            let followers = followers(&scaled, number).into_iter();
            followers
                .map(|(share, follows)| (share.number, follows))
                .collect::<Vec<_>>()
        };
        assert_eq!(after(0), [(2, vec![0]), (3, vec![0])]);
        assert_eq!(after(1), [(4, vec![1, 2])]);
        assert_eq!(after(4), []);
        assert_eq!(before(&scaled, &[4]), BTreeSet::from([0, 1, 2]));
        assert_eq!(before(&scaled, &[3]), BTreeSet::from([0]));
    }

    #[test]
    fn a_stream_that_has_lost_its_first_segments_begins_with_those_behind_them() {
        let mut scaled = scaled();
        scaled.remove(&0);
        assert_eq!(first(&scaled).map(|(number, _)| number).collect::<Vec<_>>(), [1, 2, 3]);
        scaled.remove(&1);
        scaled.remove(&2);
        assert_eq!(first(&scaled).map(|(number, _)| number).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(numbers(&open(&scaled)), [(3, 0.0, 0.25), (4, 0.25, 1.0)]);
    }

    #[test]
    fn keys_that_do_not_fit_are_shared_equally() {
        for keys in [[Some((0.0, 0.5)), None], [Some((0.0, 0.5)), Some((0.4, 1.0))]] {
            let [first, second] = keys;
            let two = segments(&[(7, &[], first, false), (9, &[], second, false)]);
            assert_eq!(numbers(&open(&two)), [(7, 0.0, 0.5), (9, 0.5, 1.0)]);
        }
        let sealed = segments(&[(0, &[], None, true), (1, &[0], Some((0.0, 1.0)), true)]);
        assert_eq!(numbers(&open(&sealed)), []);
    }

    #[test]
    fn what_a_stream_says_of_itself_does_not_keep_anybody_busy() {
        let round = segments(&[(0, &[1], None, false), (1, &[0], None, false)]);
        assert_eq!(before(&round, &[0]), BTreeSet::from([0, 1]));
        assert_eq!(first(&round).count(), 0);
    }
}
