//! How the places of a source's records are kept with the records of a stream.
//!
//! Of TANK: as [`Numbers`] says. Of Pravega: as the gateway's segments do, so that clients of Pravega can be served from the
//! stream. The first record of each batch has the header `pravega.at`, with the byte of the segment at which the batch begins as
//! eight bytes, big-endian; an event is its content and the 8 bytes of its head. Bytes in front of that in the property
//! `pravega.start` are gone.

use sbp_client::{Client, FetchOptions};
use sbp_messages::{KeyValue, Stream};
use sbp_types::Offset;

use super::error::ImportError;
use crate::names::stream_of;
use crate::numbers::{Numbers, SEQUENCE};
use crate::pravega::properties::{self, IMPORTED, KIND, Lineage, SEALED, SEGMENT, START, key_value, with};
use crate::pravega::{AT, Place};
use crate::records::{decode, number_at, one_at};

/// Of which protocol a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Tank,
    Pravega,
}

impl Protocol {
    /// Its name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tank => "tank",
            Self::Pravega => "pravega",
        }
    }

    /// What has a place.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Tank => "message",
            Self::Pravega => "byte",
        }
    }

    /// The stream for a partition.
    pub(super) fn stream_of(self, topic: &str, partition: i64) -> String {
        match self {
            Self::Tank => stream_of(topic, u16::try_from(partition).unwrap_or(u16::MAX)),
            // A segment's number is its own in its stream, whatever its epoch is.
            Self::Pravega => format!("{topic}/{}", partition & 0xffff_ffff),
        }
    }

    /// The properties of a stream that is made for a partition, or a segment with this lineage.
    pub(super) fn properties(self, lineage: Option<&Lineage>) -> Option<Vec<KeyValue>> {
        match self {
            Self::Tank => None,
            Self::Pravega => {
                let lineage = lineage.map(Lineage::properties);
                let kind = key_value(KIND, SEGMENT);
                Some([kind].into_iter().chain(lineage.into_iter().flatten()).collect())
            }
        }
    }
}

/// The places of a stream's records.
#[derive(Debug, Clone, Copy)]
pub(super) enum Numbering {
    Tank(Numbers),
    /// With the first byte that there is, if it is not 0.
    Pravega(Option<u64>),
}

impl Numbering {
    /// As the stream's properties say.
    pub(super) fn of(protocol: Protocol, stream: &Stream) -> Self {
        match protocol {
            Protocol::Tank => Self::Tank(Numbers::of(stream)),
            Protocol::Pravega => {
                let start = properties::property(stream, START);
                Self::Pravega(start.and_then(|start| start.parse().ok()))
            }
        }
    }

    /// The place behind the last of so many records; `None`: it has none, or is gone.
    pub(super) async fn behind(
        self,
        client: &Client,
        stream: &Stream,
        stored: u64,
    ) -> Result<Option<u64>, ImportError> {
        let Some(last) = stored.checked_sub(1) else {
            return Ok(None);
        };
        match self {
            Self::Tank(numbers) => {
                let number = number_at(client, stream.stream_id, numbers, last).await?;
                Ok(number.and_then(|number| number.checked_add(1)))
            }
            Self::Pravega(_) => end_of(client, stream, last).await,
        }
    }

    /// Whether the record at this offset has this place, without anything being said anew. `next` is the place behind the record
    /// before it.
    pub(super) fn fits(self, offset: u64, next: Option<u64>, place: u64) -> bool {
        match self {
            Self::Tank(numbers) if numbers.is_carried_at(offset) => true,
            Self::Tank(numbers) => numbers.first.is_some() && numbers.at(offset) == Some(place),
            Self::Pravega(start) => next.or(start).unwrap_or(0) == place,
        }
    }

    /// The header of the record at this offset, with its place.
    pub(super) fn header(self, offset: u64, is_first_of_batch: bool) -> Option<&'static str> {
        match self {
            Self::Tank(numbers) => numbers.is_carried_at(offset).then_some(SEQUENCE),
            Self::Pravega(_) => is_first_of_batch.then_some(AT),
        }
    }

    /// Whether records in front of others that do not fit to them are in another batch.
    pub(super) fn is_by_batch(self) -> bool {
        matches!(self, Self::Pravega(_))
    }

    /// The record at this offset has a place that does not fit: says so.
    pub(super) fn begin_anew(&mut self, offset: u64, place: u64) {
        match self {
            Self::Tank(numbers) if offset == 0 => numbers.first = Some(place),
            Self::Tank(numbers) => numbers.sparse_from = Some(offset),
            Self::Pravega(start) => *start = Some(place),
        }
    }

    /// The properties that say so, beside the stream's others.
    pub(super) fn properties(self, stream: &Stream) -> Vec<KeyValue> {
        match self {
            Self::Tank(numbers) => numbers.properties(stream),
            Self::Pravega(start) => {
                let start = start.unwrap_or(0).to_string();
                with(stream, &[key_value(KIND, SEGMENT), key_value(START, &start)])
            }
        }
    }

    /// The properties of a stream whose segment is sealed; `None`: they say so, or there is nothing to say.
    pub(super) fn sealed(self, stream: &Stream) -> Option<Vec<KeyValue>> {
        self.said(stream, SEALED)
    }

    /// The properties of a segment beside which are all others that its stream had; `None`: they say so, or there is nothing to say.
    pub(super) fn whole(self, stream: &Stream) -> Option<Vec<KeyValue>> {
        self.said(stream, IMPORTED)
    }

    fn said(self, stream: &Stream, key: &str) -> Option<Vec<KeyValue>> {
        let is_said = properties::property(stream, key).is_some();
        (self.is_by_batch() && !is_said).then(|| with(stream, &[key_value(key, "1")]))
    }
}

/// The byte behind the batch that has the record at `offset`; `None`: it does not say where it begins.
async fn end_of(client: &Client, stream: &Stream, offset: u64) -> Result<Option<u64>, ImportError> {
    let Ok(wanted) = i64::try_from(offset).map(Offset) else {
        return Ok(None);
    };
    let options = FetchOptions {
        max_wait: crate::records::CONFIRMED_WITHIN,
        min_bytes: 1,
        ..FetchOptions::default()
    };
    let fetched = client.fetch_one(one_at(stream.stream_id, wanted), options).await?;
    let Some(last) = fetched.batches.last() else {
        return Ok(None);
    };
    let place = Place::of(&decode(&last.bytes)?)?;
    Ok(place.and_then(|place| u64::try_from(place.end()).ok()))
}
