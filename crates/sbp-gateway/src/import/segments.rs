//! Streams of Pravega, segment after segment.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use sbp_peers::pravega::{
    End, Pravega, PravegaConfig, PravegaError, PravegaErrorKind, ReadBatch, Reader, Segment, SegmentId, StreamName,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::error::ImportError;
use super::item::{Incoming, Item, Share, SourcePartition};
use super::patience::{ASK_AGAIN, Away, patiently};
use crate::pravega::properties::Lineage;

/// Which servers of Pravega are imported from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PravegaFrom {
    /// A controller, at `host:port`.
    Controller(String),
    /// A segment store, where there is no controller.
    SegmentStore(String),
}

impl PravegaFrom {
    /// What it is called, where nothing else is said.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Controller(address) | Self::SegmentStore(address) => address,
        }
    }
}

/// A stream that is about to be read.
#[derive(Debug)]
pub(super) struct PravegaStream {
    client: Pravega,
    name: StreamName,
}

impl PravegaStream {
    pub(super) fn find(from: &PravegaFrom, name: &str) -> Result<Self, ImportError> {
        let config = PravegaConfig::default();
        let client = match from {
            PravegaFrom::Controller(address) => Pravega::new(address, config, Handle::current())?,
            PravegaFrom::SegmentStore(address) => Pravega::direct(address, config, Handle::current()),
        };
        let name = StreamName::parse(name)?;
        Ok(Self { client, name })
    }

    /// All its segments, with where they begin and end.
    pub(super) async fn partitions(&self, patience: Duration) -> Result<Vec<SourcePartition>, ImportError> {
        Ok(partitions(&self.client, &self.name, patience).await?)
    }

    /// Reads them, each from its first byte wanted, and those that follow.
    pub(super) async fn read(
        self,
        wanted: &[(i64, Option<u64>)],
        is_followed: bool,
        patience: Duration,
    ) -> Result<SegmentSource, ImportError> {
        let places = wanted.iter().filter_map(|&(id, next)| {
            let next = i64::try_from(next?).ok()?;
            Some((SegmentId(id), next))
        });
        let places: HashMap<_, _> = places.collect();
        let end = if is_followed { End::Never } else { End::Latest };
        let read = || self.client.read_on(&self.name, &places, end);
        let reader = patiently(patience, read).await?;
        Ok(SegmentSource {
            known: wanted.iter().map(|&(id, _)| SegmentId(id)).collect(),
            client: self.client,
            stream: self.name,
            reader,
            appeared: VecDeque::new(),
            held: None,
            share: Share { done: 0, all: 0 },
            patience: if is_followed { Duration::MAX } else { patience },
        })
    }
}

/// A stream's segments, with where they begin and end. Servers that do not answer are asked until `patience` is over.
async fn partitions(
    client: &Pravega,
    stream: &StreamName,
    patience: Duration,
) -> Result<Vec<SourcePartition>, PravegaError> {
    let found = patiently(patience, || client.segments(stream)).await?;
    let parts = found.into_iter().map(|found| {
        let (start, length) = (found.info.start.unwrap_or(0), found.info.length);
        SourcePartition {
            partition: found.segment.id.0,
            first: Some(start.cast_unsigned()),
            last: length.cast_unsigned().checked_sub(1),
            lineage: Some(Lineage {
                follows: found.follows.into_iter().filter_map(number).collect(),
                keys: found.keys,
            }),
        }
    });
    Ok(parts.collect())
}

/// A segment's number in its stream.
fn number(id: SegmentId) -> Option<i32> {
    i32::try_from(id.number()).ok()
}

/// A stream that is being read.
#[derive(Debug)]
pub(super) struct SegmentSource {
    client: Pravega,
    stream: StreamName,
    reader: Reader,
    /// Segments that were told.
    known: HashSet<SegmentId>,
    /// Segments that are to be told.
    appeared: VecDeque<SourcePartition>,
    /// The first events of one of them.
    held: Option<ReadBatch>,
    /// Bytes that were read, of those that are known of.
    pub(super) share: Share,
    patience: Duration,
}

impl SegmentSource {
    pub(super) async fn next(&mut self) -> Result<Option<Item>, ImportError> {
        let begun = Instant::now();
        loop {
            if let Some(appeared) = self.appeared.pop_front() {
                return Ok(Some(Item::Appeared(appeared)));
            }
            if let Some(held) = self.held.take() {
                return Ok(Some(self.told(held)));
            }
            match self.reader.next_batch().await {
                Ok(Some(read)) if !self.known.contains(&read.segment.id) => {
                    let first = read.batch.base_offset().0.cast_unsigned();
                    let part = SourcePartition {
                        partition: read.segment.id.0,
                        first: Some(first),
                        last: read.end.cast_unsigned().checked_sub(1),
                        lineage: None,
                    };
                    self.held = Some(read);
                    self.look_for_others(part).await?;
                }
                Ok(Some(read)) => return Ok(Some(self.told(read))),
                Ok(None) => return Ok(None),
                Err(error) if error.gap().is_some() => return self.missing(error).map(Some),
                // The reader goes on where it was.
                Err(error) if error.is_away() && begun.elapsed() + ASK_AGAIN < self.patience => {
                    tracing::warn!(%error, "the server is asked again");
                    sleep(ASK_AGAIN).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Segments that were not told, among them this one, of which events have come: those without events too.
    async fn look_for_others(&mut self, read: SourcePartition) -> Result<(), ImportError> {
        let found = match partitions(&self.client, &self.stream, self.patience).await {
            Ok(found) => found,
            // One was deleted just now. What follows what is found out by the next run.
            Err(error) if error.kind() == PravegaErrorKind::UnknownName => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        for part in found.into_iter().chain([read]) {
            if self.known.insert(SegmentId(part.partition)) {
                self.appeared.push_back(part);
            }
        }
        Ok(())
    }

    /// The segments that follow one.
    pub(super) async fn followers(&self, id: i64) -> Result<Vec<SourcePartition>, ImportError> {
        let number = number(SegmentId(id)).unwrap_or(i32::MAX);
        let mut found = partitions(&self.client, &self.stream, self.patience).await?;
        found.retain(|part| {
            part.lineage
                .as_ref()
                .is_some_and(|lineage| lineage.follows.contains(&number))
        });
        Ok(found)
    }

    fn told(&mut self, read: ReadBatch) -> Item {
        let bytes = read.end.saturating_sub(read.batch.base_offset().0);
        self.share.done += u64::try_from(bytes).unwrap_or(0);
        Item::Records(Incoming::Events(Box::new(read)))
    }

    /// Bytes that were truncated before they were read.
    fn missing(&self, error: PravegaError) -> Result<Item, ImportError> {
        let segment = error.place().and_then(Segment::parse);
        let (Some(segment), Some(gap)) = (segment, error.gap()) else {
            return Err(error.into());
        };
        Ok(Item::Missing {
            partition: segment.id.0,
            from: gap.from.cast_unsigned(),
            to: gap.to.saturating_sub(1).cast_unsigned(),
        })
    }

    /// Whether a segment is sealed, and ends at this place.
    pub(super) async fn has_ended(&self, id: i64, next: Option<u64>) -> Result<bool, ImportError> {
        let segment = Segment {
            scope: self.stream.scope.clone(),
            stream: self.stream.stream.clone(),
            id: SegmentId(id),
        };
        let ends = match self.client.segment_infos(vec![segment]).await {
            // One that was deleted since has nothing more either, but how far it went is not known.
            Ok(info) => info.into_iter().flatten().next(),
            // A later run asks again.
            Err(error) if error.is_away() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(ends.is_some_and(|info| {
            let end = info.length.cast_unsigned();
            info.is_sealed && (next == Some(end) || next.is_none() && info.start.unwrap_or(0) == info.length)
        }))
    }
}
