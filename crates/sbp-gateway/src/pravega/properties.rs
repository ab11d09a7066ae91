//! What the properties of a stream say of the segment that it stands for.

use sbp_messages::{KeyValue, Stream};

/// The property of every stream that stands for something here: for what.
pub(crate) const KIND: &str = "pravega";
/// The value of [`KIND`] of a stream that stands for a segment for bytes.
pub(crate) const SEGMENT: &str = "segment";
/// The property of a segment that takes no more appends.
pub(crate) const SEALED: &str = "pravega.sealed";
/// The property with the offset, in bytes, at which what is left of a segment begins.
pub(crate) const START: &str = "pravega.start";
/// The property of an imported segment with the numbers of the segments that it follows, or [`NONE`].
pub(crate) const FOLLOWS: &str = "pravega.follows";
/// The value of [`FOLLOWS`] of a segment that follows no other.
const NONE: &str = "none";
/// The property of an imported segment with the positions of its routing keys: the first, and the one behind the last.
pub(crate) const KEYS: &str = "pravega.keys";
/// The property of the segments of an imported stream which says that all are there that the stream had when its import began.
pub(crate) const IMPORTED: &str = "pravega.imported";

/// Where an imported segment stands in its stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lineage {
    /// The numbers of the segments that it follows.
    pub(crate) follows: Vec<i32>,
    /// The positions of its routing keys, as far as they are known: from the first to below the second.
    pub(crate) keys: Option<(f64, f64)>,
}

impl Lineage {
    /// As the stream's properties say; `None`: it was not imported. What cannot be read counts as not said.
    pub(crate) fn of(stream: &Stream) -> Option<Self> {
        let follows = property(stream, FOLLOWS)?;
        let follows = follows.split(',').filter_map(|number| number.parse().ok()).collect();
        let keys = property(stream, KEYS).and_then(|keys| {
            let (low, high) = keys.split_once(' ')?;
            Some((low.parse().ok()?, high.parse().ok()?))
        });
        Some(Self { follows, keys })
    }

    /// The properties that say so.
    pub(crate) fn properties(&self) -> Vec<KeyValue> {
        let follows: Vec<_> = self.follows.iter().map(ToString::to_string).collect();
        let follows = match follows.is_empty() {
            true => NONE.to_owned(),
            false => follows.join(","),
        };
        let keys = self.keys.map(|(low, high)| key_value(KEYS, &format!("{low} {high}")));
        [key_value(FOLLOWS, &follows)].into_iter().chain(keys).collect()
    }
}

/// What a property of a stream says.
pub(crate) fn property<'a>(stream: &'a Stream, key: &str) -> Option<&'a str> {
    let mut properties = stream.properties.iter().flatten();
    let found = properties.find(|property| property.key == key)?;
    Some(&found.value)
}

pub(crate) fn key_value(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// A stream's properties, with these instead of those that it has of their names.
pub(crate) fn with(stream: &Stream, own: &[KeyValue]) -> Vec<KeyValue> {
    let properties = stream.properties.iter().flatten();
    let others = properties.filter(|property| own.iter().all(|other| other.key != property.key));
    others.chain(own).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_is_told_as_it_was() {
        for lineage in [
            Lineage::default(),
            Lineage {
                follows: vec![0],
                keys: Some((0.0, 1.0 / 3.0)),
            },
            Lineage {
                follows: vec![3, 12],
                keys: None,
            },
        ] {
            let stream = Stream {
                properties: Some(lineage.properties()),
                ..Stream::default()
            };
            assert_eq!(Lineage::of(&stream), Some(lineage));
        }
        assert_eq!(Lineage::of(&Stream::default()), None);
    }

    #[test]
    fn properties_replace_those_of_their_names_alone() {
        let stream = Stream {
            properties: Some(vec![key_value("a", "1"), key_value("b", "2")]),
            ..Stream::default()
        };
        assert_eq!(
            with(&stream, &[key_value("b", "3"), key_value("c", "4")]),
            [key_value("a", "1"), key_value("b", "3"), key_value("c", "4")]
        );
    }
}
