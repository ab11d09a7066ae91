//! The frame that a connection begins with, in each direction.

use bytes::{Buf, BufMut, Bytes};

use crate::codec::Codec;
use crate::fault::{Fault, narrow, widen};

/// The first bytes of every connection.
pub(crate) const MAGIC: [u8; 8] = *b"SSTARRPC";
/// Bytes in front of the features: the magic and a length.
pub(crate) const HEAD: usize = 12;

const COMPRESS: u32 = 0;
const TIMEOUT: u32 = 1;
const CONNECTION_ID: u32 = 2;
const STREAM_PARENT: u32 = 3;
const ISOLATION: u32 = 4;
const HANDLER_DURATION: u32 = 5;

/// The features of a negotiation frame. Those that are not known here are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Ways to compress: a client's, separated by commas, the best first; the one that a server chose.
    pub compress: Option<Bytes>,
    /// Whether requests say how much time is left.
    pub timeout: bool,
    /// The id that a server gives to the connection.
    pub connection_id: Option<u64>,
    /// The id of the connection that a stream belongs to.
    pub stream_parent: Option<u64>,
    /// A client's isolation cookie; a server repeats it.
    pub isolation: Option<Bytes>,
    /// Whether responses say how long their handler took.
    pub handler_duration: bool,
}

impl Features {
    /// Reads the features behind magic and length. Of those that are repeated, the first counts.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn decode(bytes: &Bytes) -> Result<Self, Fault> {
        let mut features = Self::default();
        let mut left = bytes.clone();
        while left.has_remaining() {
            let number = left.try_get_u32_le()?;
            let length = widen(left.try_get_u32_le()?);
            if length > left.len() {
                let missing = length - left.len();
                return Err(Fault::Cut { missing });
            }
            let data = left.split_to(length);
            match number {
                COMPRESS => drop(features.compress.get_or_insert(data)),
                TIMEOUT => features.timeout = true,
                CONNECTION_ID => {
                    let id = id_of(number, &data)?;
                    features.connection_id.get_or_insert(id);
                }
                STREAM_PARENT => {
                    let id = id_of(number, &data)?;
                    features.stream_parent.get_or_insert(id);
                }
                ISOLATION => drop(features.isolation.get_or_insert(data)),
                HANDLER_DURATION => features.handler_duration = true,
                _ => {}
            }
        }
        Ok(features)
    }

    /// The whole frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut put = |number: u32, bytes: &[u8]| {
            data.put_u32_le(number);
            data.put_u32_le(narrow(bytes.len()));
            data.put_slice(bytes);
        };
        if let Some(names) = &self.compress {
            put(COMPRESS, names);
        }
        if self.timeout {
            put(TIMEOUT, &[]);
        }
        if let Some(id) = self.connection_id {
            put(CONNECTION_ID, &id.to_le_bytes());
        }
        if let Some(id) = self.stream_parent {
            put(STREAM_PARENT, &id.to_le_bytes());
        }
        if let Some(cookie) = &self.isolation {
            put(ISOLATION, cookie);
        }
        if self.handler_duration {
            put(HANDLER_DURATION, &[]);
        }
        let mut frame = Vec::with_capacity(HEAD + data.len());
        frame.put_slice(&MAGIC);
        frame.put_u32_le(narrow(data.len()));
        frame.put_slice(&data);
        frame
    }

    /// Offers these ways to compress, the best first.
    pub(crate) fn offer(&mut self, codecs: &[Codec]) {
        let names: Vec<_> = codecs.iter().map(|codec| codec.name()).collect();
        self.compress = (!names.is_empty()).then(|| names.join(",").into());
    }

    /// The first of the ways offered that is among these.
    pub(crate) fn choose(&self, known: &[Codec]) -> Option<Codec> {
        let offered = self.compress.as_deref()?.split(|byte| *byte == b',');
        let mut named = offered.filter_map(|name| Codec::named(std::str::from_utf8(name.trim_ascii()).ok()?));
        named.find(|codec| known.contains(codec))
    }
}

fn id_of(feature: u32, data: &Bytes) -> Result<u64, Fault> {
    let mut left = data.clone();
    match (left.try_get_u64_le(), left.len()) {
        (Ok(id), 0) => Ok(id),
        _ => Err(Fault::Feature {
            feature,
            length: data.len(),
            expected: size_of::<u64>(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u32, data: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &narrow(data.len()).to_le_bytes(), data].concat()
    }

    #[test]
    fn the_first_of_repeated_features_counts_and_unknown_ones_do_not() {
        let bytes = [
            record(99, b"whatever"),
            record(COMPRESS, b"ZSTD,LZ4_FRAGMENTED,LZ4"),
            record(COMPRESS, b"LZ4"),
            record(CONNECTION_ID, &7_u64.to_le_bytes()),
            record(CONNECTION_ID, &8_u64.to_le_bytes()),
            record(ISOLATION, b""),
            record(ISOLATION, b"second"),
        ];
        let features = Features::decode(&bytes.concat().into()).unwrap();
        assert_eq!(features.choose(&Codec::ALL), Some(Codec::Lz4Fragmented));
        assert_eq!(features.choose(&[Codec::Lz4]), Some(Codec::Lz4));
        assert_eq!(features.choose(&[]), None);
        assert_eq!(features.connection_id, Some(7));
        assert_eq!(features.isolation.as_deref(), Some(&b""[..]));
        let again = features.encode();
        assert_eq!(again[..8], MAGIC);
        let again = Bytes::from(again).slice(HEAD..);
        assert_eq!(Features::decode(&again), Ok(features));
    }

    #[test]
    fn cut_records_are_faults() {
        for (bytes, fault) in [
            (vec![0, 0, 0], Fault::Cut { missing: 1 }),
            (record(1, b"")[..7].to_vec(), Fault::Cut { missing: 1 }),
            (record(0, b"LZ4")[..9].to_vec(), Fault::Cut { missing: 2 }),
            (
                record(3, &[1; 7]),
                Fault::Feature {
                    feature: 3,
                    length: 7,
                    expected: 8,
                },
            ),
        ] {
            assert_eq!(Features::decode(&bytes.into()), Err(fault));
        }
    }
}
