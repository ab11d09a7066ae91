//! How the sequence numbers of a topic's messages are kept with the records of a stream.
//!
//! A record's number is its offset added to the stream's property `tank.first`. From the offset that the property
//! `tank.sparse` states on, if the stream has it, each record carries its number in the header `tank.seq` instead, as eight
//! bytes, big-endian: there the topic's numbers have gaps.

use sbp_messages::{KeyValue, Stream};

/// The property with the number of the record at offset 0.
pub(crate) const FIRST: &str = "tank.first";
/// The property with the offset from which records carry their numbers.
pub(crate) const SPARSE: &str = "tank.sparse";
/// The header with a record's number.
pub(crate) const SEQUENCE: &str = "tank.seq";

/// The numbers of a stream's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// That of the record at offset 0, as far as the stream says it.
    pub(crate) first: Option<u64>,
    /// From which offset on records carry theirs.
    pub(crate) sparse_from: Option<u64>,
}

impl Numbers {
    /// As the stream's properties say. What is no number counts as not said.
    pub(crate) fn of(stream: &Stream) -> Self {
        let properties = stream.properties.iter().flatten();
        let mut numbers = Self {
            first: None,
            sparse_from: None,
        };
        for KeyValue { key, value } in properties {
            match key.as_str() {
                FIRST => numbers.first = value.parse().ok(),
                SPARSE => numbers.sparse_from = value.parse().ok(),
                _ => {}
            }
        }
        numbers
    }

    /// The properties that say so, beside the stream's others.
    pub(crate) fn properties(self, stream: &Stream) -> Vec<KeyValue> {
        let is_other = |property: &&KeyValue| property.key != FIRST && property.key != SPARSE;
        let others = stream.properties.iter().flatten().filter(is_other).cloned();
        let own = [(FIRST, self.first), (SPARSE, self.sparse_from)];
        let own = own.into_iter().filter_map(|(key, value)| {
            Some(KeyValue {
                key: key.to_owned(),
                value: value?.to_string(),
            })
        });
        others.chain(own).collect()
    }

    /// The number that follows from offset 0.
    pub(crate) fn base(self) -> u64 {
        self.first.unwrap_or(1)
    }

    /// Whether the record at this offset carries its number.
    pub(crate) fn is_carried_at(self, offset: u64) -> bool {
        self.sparse_from.is_some_and(|from| offset >= from)
    }

    /// The number of the record at this offset, unless it carries it.
    pub(crate) fn at(self, offset: u64) -> Option<u64> {
        let number = self.base().checked_add(offset)?;
        (!self.is_carried_at(offset)).then_some(number)
    }
}

/// A message's time as a record has it, if it can.
pub(crate) fn time_us(time_ms: u64) -> Option<i64> {
    i64::try_from(time_ms.checked_mul(1_000)?).ok()
}

/// A record's time as a message has it: before 1970 there is none.
pub(crate) fn time_ms(time_us: i64) -> u64 {
    u64::try_from(time_us / 1_000).unwrap_or(0)
}

/// A number as the header has it.
pub(crate) fn from_header(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(properties: &[(&str, &str)]) -> Stream {
        let properties = properties.iter().map(|(key, value)| KeyValue {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        });
        Stream {
            properties: Some(properties.collect()),
            ..Stream::default()
        }
    }

    #[test]
    fn properties_say_which_numbers_records_have() {
        let plain = Numbers::of(&Stream::default());
        assert_eq!((plain.at(0), plain.at(9)), (Some(1), Some(10)));
        let imported = Numbers::of(&stream(&[("owner", "x"), (FIRST, "100"), (SPARSE, "3")]));
        assert_eq!((imported.at(2), imported.at(3)), (Some(102), None));
        assert!(!imported.is_carried_at(2) && imported.is_carried_at(3));
        let odd = Numbers::of(&stream(&[(FIRST, "many")]));
        assert_eq!(odd.at(0), Some(1));
    }

    #[test]
    fn other_properties_stay() {
        let described = stream(&[("owner", "x"), (FIRST, "100")]);
        let numbers = Numbers {
            first: Some(7),
            sparse_from: Some(0),
        };
        let changed = Stream {
            properties: Some(numbers.properties(&described)),
            ..Stream::default()
        };
        assert_eq!(Numbers::of(&changed), numbers);
        assert!(
            changed
                .properties
                .iter()
                .flatten()
                .any(|property| property.key == "owner")
        );
    }

    #[test]
    fn times_that_a_record_can_have_stay() {
        assert_eq!(time_us(1_700_000_000_123).map(time_ms), Some(1_700_000_000_123));
        assert_eq!((time_us(u64::MAX), time_ms(-5)), (None, 0));
    }

    #[test]
    fn a_number_in_a_header_has_eight_bytes() {
        assert_eq!(from_header(&258_u64.to_be_bytes()), Some(258));
        assert_eq!(from_header(b"258"), None);
    }
}
