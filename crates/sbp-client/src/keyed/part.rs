//! What each stream of a set says of itself, in its properties.

use std::collections::BTreeMap;

use sbp_messages::{KeyValue, Stream};

/// The name of the whole.
const NAME: &str = "sbp.keyed";
/// How many streams there are.
const STREAMS: &str = "sbp.keyed.streams";
/// Which of them this is, from 0.
const INDEX: &str = "sbp.keyed.index";
/// How a key's stream is found; a name for each way there ever is.
const HASH: &str = "sbp.keyed.hash";
/// The only way there is.
const CRC32: &str = "crc32";

/// One stream of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) index: u32,
    pub(super) of: u32,
}

/// Why a stream is not the part that was looked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SetError {
    /// It is one of another number of streams.
    #[error("there are {of} streams")]
    Others { of: u32 },
    /// It is none.
    #[error("stream {stream} was made for something else")]
    NoPart { stream: String },
    /// Its keys are placed in a way that is not known here.
    #[error("its keys are placed by {hash}, which a newer client knows")]
    Hash { hash: String },
}

/// The name of a part.
pub(super) fn stream_name(name: &str, index: u32) -> String {
    format!("{name}-{index}")
}

impl Part {
    /// The stream as it is asked for.
    pub(super) fn stream(self, name: &str) -> Stream {
        let property = |key: &str, value: &str| KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        Stream {
            name: stream_name(name, self.index),
            properties: Some(vec![
                property(NAME, name),
                property(STREAMS, &self.of.to_string()),
                property(INDEX, &self.index.to_string()),
                property(HASH, CRC32),
            ]),
            ..Stream::default()
        }
    }

    /// Reads what a stream says, which must be part `index` of `name`.
    pub(super) fn read(stream: &Stream, name: &str, index: u32) -> Result<Self, SetError> {
        let properties: BTreeMap<&str, &str> = stream
            .properties
            .iter()
            .flatten()
            .map(|property| (property.key.as_str(), property.value.as_str()))
            .collect();
        let of = properties.get(STREAMS).and_then(|of| of.parse::<u32>().ok());
        let own = (properties.get(NAME), properties.get(INDEX)) == (Some(&name), Some(&&*index.to_string()));
        match (of.filter(|&of| index < of && own), properties.get(HASH)) {
            (Some(of), Some(&CRC32)) => Ok(Self { index, of }),
            (Some(_), Some(&hash)) => Err(SetError::Hash { hash: hash.to_owned() }),
            _ => Err(SetError::NoPart {
                stream: stream.name.clone(),
            }),
        }
    }

    /// That it is one of so many.
    pub(super) fn among(self, of: u32) -> Result<Self, SetError> {
        if self.of == of {
            Ok(self)
        } else {
            Err(SetError::Others { of: self.of })
        }
    }
}

#[cfg(test)]
mod tests {
    use sbp_messages::{KeyValue, Stream};

    use super::{HASH, Part, SetError};

    #[test]
    fn a_stream_says_which_part_it_is() {
        let part = Part { index: 2, of: 4 };
        let stream = part.stream("orders");
        assert_eq!(stream.name, "orders-2");
        assert_eq!(Part::read(&stream, "orders", 2), Ok(part));
        assert_eq!(part.among(4), Ok(part));
        assert_eq!(part.among(8), Err(SetError::Others { of: 4 }));
    }

    #[test]
    fn other_streams_are_told_apart() {
        let part = Part { index: 2, of: 4 }.stream("orders");
        let plain = Stream {
            name: "orders-2".to_owned(),
            ..Stream::default()
        };
        for (stream, name, index) in [(&plain, "orders", 2), (&part, "payments", 2), (&part, "orders", 3)] {
            assert!(matches!(Part::read(stream, name, index), Err(SetError::NoPart { .. })));
        }
        let mut later = part;
        for property in later
            .properties
            .iter_mut()
            .flatten()
            .filter(|property| property.key == HASH)
        {
            *property = KeyValue {
                key: HASH.to_owned(),
                value: "xxh3".to_owned(),
            };
        }
        let hash = "xxh3".to_owned();
        assert_eq!(Part::read(&later, "orders", 2), Err(SetError::Hash { hash }));
    }
}
