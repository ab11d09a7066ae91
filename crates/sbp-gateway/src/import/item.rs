//! What a source gives: records of its partitions, each with its place.

use sbp_peers::pravega::ReadBatch;
use sbp_peers::tank::ReadBundle;

use super::error::ImportError;
use crate::numbers::time_us;
use crate::pravega::properties::Lineage;

/// Something of a partition.
#[derive(Debug)]
pub(super) enum Item {
    Records(Incoming),
    /// Places that the source has no more, or never had.
    Missing {
        partition: i64,
        from: u64,
        to: u64,
    },
    /// A partition that was not there before; the source's `begin_partition` has it read.
    Appeared(SourcePartition),
}

/// A partition of the source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourcePartition {
    /// Its number: that of a partition, or of a segment.
    pub(super) partition: i64,
    /// Its first place, as far as there is one.
    pub(super) first: Option<u64>,
    /// Its last place, as far as that is told.
    pub(super) last: Option<u64>,
    /// Where a segment stands in its stream.
    pub(super) lineage: Option<Lineage>,
}

/// How far the source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) done: u64,
    pub(super) all: u64,
}

/// Records of one partition that came together.
#[derive(Debug)]
pub(super) enum Incoming {
    Bundle(ReadBundle),
    Events(Box<ReadBatch>),
}

/// A record of the source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    /// Its place: a message's number, or the byte at which an event begins.
    pub(super) place: u64,
    /// The place behind it; `None`: there is none.
    pub(super) behind: Option<u64>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) content: &'a [u8],
    /// When it was made, as records say it. Where that is unknown it is the time of its import.
    pub(super) time_us: Option<i64>,
    /// Why no record can say it.
    pub(super) odd_time: Option<u64>,
}

impl Incoming {
    pub(super) fn partition(&self) -> i64 {
        match self {
            Self::Bundle(bundle) => i64::from(bundle.partition),
            Self::Events(events) => events.segment.id.0,
        }
    }

    /// Calls `take` for each record.
    pub(super) fn for_each(&self, mut take: impl FnMut(Record<'_>)) -> Result<(), ImportError> {
        match self {
            Self::Bundle(bundle) => bundle.for_each(|message| {
                let time_us = time_us(message.time_ms);
                take(Record {
                    place: message.sequence,
                    behind: message.sequence.checked_add(1),
                    key: message.key,
                    content: message.content,
                    time_us,
                    odd_time: time_us.is_none().then_some(message.time_ms),
                });
            })?,
            Self::Events(events) => {
                let records = events
                    .batch
                    .records()
                    .map_err(|error| crate::records::damaged(error.to_string()))?;
                let offsets = (1..=events.batch.record_count()).map(|next| {
                    let behind = match next < events.batch.record_count() {
                        true => events.batch.offset_of(next).0,
                        false => events.end,
                    };
                    behind.cast_unsigned()
                });
                for (event, behind) in records.zip(offsets) {
                    take(Record {
                        place: event.offset.0.cast_unsigned(),
                        behind: Some(behind),
                        key: None,
                        content: event.value.unwrap_or_default(),
                        time_us: None,
                        odd_time: None,
                    });
                }
            }
        }
        Ok(())
    }
}
