//! Records become bundles for clients that consume.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_client::{ClientError, FetchEntry, FetchOptions, FetchedBatch, Position, Positions};
use sbp_messages::ErrorCode;
use sbp_tank::{
    Answer, ConsumedFrom, ConsumedTopic, Consumption, END, EncodeError, MAX_KEY, Message, PartitionState, Topic,
    encode_bundle, encode_sparse_bundle, frame_bundle,
};
use sbp_types::Offset;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::Shared;
use super::partitions::{Partition, Topics};
use crate::numbers::{Numbers, time_ms};
use crate::records::{damaged, decode, number_at, number_of, offset_of, positions};

/// The longest wait; longer ones are taken for it.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);
/// Bytes of one answer, about: partitions behind those that fill it get nothing this time.
const ANSWER_BYTES: usize = 32 << 20;
/// Bytes of one bundle, before it is compressed.
const BUNDLE_BYTES: usize = 16 << 20;
/// Partitions that are read at once.
const READ_AT_ONCE: usize = 16;

/// A partition that is asked for.
#[derive(Debug, Clone)]
struct Place {
    topic: usize,
    asked: ConsumedFrom,
    /// `None`: there is no such partition.
    partition: Option<Partition>,
    /// Where it is read from, once that is known: numbers that mean an end of the partition mean one place each.
    from: Option<Offset>,
    outcome: Outcome,
}

/// What is told of a partition.
#[derive(Debug, Clone)]
enum Outcome {
    /// There is nothing from where it is asked for on.
    Nothing {
        high_water: u64,
    },
    Bundles {
        base: Option<u64>,
        high_water: u64,
        bundles: Vec<Bytes>,
    },
    Told(PartitionState),
}

impl Outcome {
    fn bytes(&self) -> usize {
        match self {
            Self::Bundles { bundles, .. } => bundles.iter().map(Bytes::len).sum(),
            _ => 0,
        }
    }

    fn consumption(self, partition: u16) -> Consumption {
        let data = |base, high_water| PartitionState::Data {
            base,
            high_water,
            length: 0,
        };
        let (state, bundles) = match self {
            Self::Nothing { high_water } => (data(Some(0), high_water), Vec::new()),
            Self::Bundles {
                base,
                high_water,
                bundles,
            } => (data(base, high_water), bundles),
            Self::Told(state) => (state, Vec::new()),
        };
        Consumption {
            partition,
            state,
            bundles,
        }
    }
}

impl Shared {
    /// Answers a Consume: at once if there is something to tell of any partition. Else when `min_bytes` have come since, or as
    /// much as the request takes of one partition, or the time is over.
    pub(super) async fn consume(
        self: &Arc<Self>,
        topics: &[Topic<ConsumedFrom>],
        wait_ms: u64,
        min_bytes: u32,
    ) -> Answer {
        let deadline = Instant::now() + Duration::from_millis(wait_ms).min(LONGEST_WAIT);
        let mut known = Vec::with_capacity(topics.len());
        let mut places = Vec::new();
        for (place, topic) in topics.iter().enumerate() {
            let found = self.catalog.all_with(|topics| topics.contains_key(&topic.name)).await;
            known.push(!matches!(&found, Ok(topics) if !topics.contains_key(&topic.name)));
            let found = found.map_err(|error| tracing::warn!(%error, "topics are not known at the moment"));
            let of_topic = topic.partitions.iter();
            places.extend(of_topic.map(|asked| place_of(place, *asked, found.as_deref().ok(), &topic.name)));
        }
        let woken = Arc::new(Notify::new());
        let mut least = 1;
        loop {
            places = self.read_all(places).await;
            let bytes: usize = places.iter().map(|place| place.outcome.bytes()).sum();
            let is_told = places.iter().any(|place| matches!(place.outcome, Outcome::Told(_)));
            let is_unknown = known.contains(&false);
            let is_full = places.iter().any(Place::is_full);
            if bytes >= least || is_full || is_told || is_unknown || Instant::now() >= deadline {
                break;
            }
            // It waits: what was there when it was asked for would have been told.
            least = usize::try_from(min_bytes).unwrap_or(usize::MAX).clamp(1, ANSWER_BYTES);
            for place in &places {
                if let (Some(partition), Some(from)) = (place.partition, place.end()) {
                    self.watch.wake(&woken, partition.stream, from);
                }
            }
            if timeout_at(deadline.into(), woken.notified()).await.is_err() && bytes > 0 {
                break;
            }
        }
        answer(topics, &known, places)
    }

    /// Reads each partition from its place. What is read is kept until there is enough of all.
    async fn read_all(self: &Arc<Self>, places: Vec<Place>) -> Vec<Place> {
        let mut read: Vec<Option<Place>> = places.iter().map(|_| None).collect();
        let mut waiting = places.into_iter().enumerate();
        let mut reading = JoinSet::new();
        let mut bytes = 0;
        loop {
            while reading.len() < READ_AT_ONCE
                && let Some((index, mut place)) = waiting.next()
            {
                let shared = Arc::clone(self);
                let has_room = bytes < ANSWER_BYTES;
                reading.spawn(async move {
                    place.read(&shared, has_room).await;
                    (index, place)
                });
            }
            match reading.join_next().await {
                None => break,
                Some(Ok((index, place))) => {
                    bytes += place.outcome.bytes();
                    if let Some(slot) = read.get_mut(index) {
                        *slot = Some(place);
                    }
                }
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Some(Err(_aborted)) => {}
            }
        }
        read.into_iter().flatten().collect()
    }
}

fn place_of(topic: usize, asked: ConsumedFrom, topics: Option<&Topics>, name: &str) -> Place {
    let partition = topics.and_then(|topics| topics.get(name)?.get(&asked.partition).copied());
    let outcome = match (topics, partition) {
        (None, _) => Outcome::Told(PartitionState::Unavailable),
        (Some(_), None) => Outcome::Told(PartitionState::UnknownPartition),
        (Some(_), Some(_)) => Outcome::Nothing { high_water: 0 },
    };
    Place {
        topic,
        asked,
        partition,
        from: None,
        outcome,
    }
}

/// The answer, in the order of the request.
fn answer(topics: &[Topic<ConsumedFrom>], known: &[bool], places: Vec<Place>) -> Answer {
    let mut consumed: Vec<_> = topics
        .iter()
        .map(|topic| ConsumedTopic {
            name: topic.name.clone(),
            partitions: Vec::new(),
        })
        .collect();
    for place in places {
        if known.get(place.topic) == Some(&true)
            && let Some(topic) = consumed.get_mut(place.topic)
        {
            topic.partitions.push(place.outcome.consumption(place.asked.partition));
        }
    }
    Answer::Consumed(consumed)
}

impl Place {
    /// The offset behind what was read.
    fn end(&self) -> Option<Offset> {
        match self.outcome {
            Outcome::Told(_) => None,
            _ => self.from,
        }
    }

    /// Bytes that one answer brings of it, about.
    fn room(&self) -> usize {
        usize::try_from(self.asked.fetch_size)
            .unwrap_or(usize::MAX)
            .min(ANSWER_BYTES)
    }

    /// Whether this answer can bring no more of it.
    fn is_full(&self) -> bool {
        let had = self.outcome.bytes();
        had > 0 && had >= self.room()
    }

    async fn read(&mut self, shared: &Shared, has_room: bool) {
        let Some(partition) = self.partition else { return };
        let read = match has_room {
            true => self.try_read(shared, &partition).await,
            false => self.look(shared, &partition).await,
        };
        match read {
            Ok(()) => {}
            Err(error) if error.code() == ErrorCode::NOT_FOUND => {
                self.outcome = Outcome::Told(PartitionState::UnknownPartition);
            }
            Err(error) => {
                tracing::warn!(%error, partition = self.asked.partition, "cannot be read for a client of TANK");
                self.outcome = Outcome::Told(PartitionState::Unavailable);
            }
        }
    }

    async fn try_read(&mut self, shared: &Shared, partition: &Partition) -> Result<(), ClientError> {
        let from = match self.from {
            Some(from) => from,
            None => match self.begin(shared, partition).await? {
                Some(from) => from,
                None => return Ok(()),
            },
        };
        if self.is_full() {
            return Ok(());
        }
        let (had, room) = (self.outcome.bytes(), self.room());
        let entry = FetchEntry {
            stream: partition.stream,
            from: Position::At(from),
            end: None,
            batch_max_bytes: u32::try_from(room - had.min(room)).unwrap_or(u32::MAX).max(1),
        };
        let fetched = shared.client.fetch_one(entry, FetchOptions::default()).await?;
        if fetched.start_offset > from {
            let held = positions(&shared.client, partition.stream).await?;
            let Ends { first, last } = Ends::of(shared, partition, held).await?;
            self.outcome = Outcome::Told(PartitionState::OutOfBounds {
                high_water: last,
                first_available: first,
            });
            return Ok(());
        }
        let mut encoded = Encoded::default();
        for batch in &fetched.batches {
            encoded.add(batch, partition.numbers)?;
        }
        shared.left_out(&encoded);
        let end = u64::try_from(fetched.high_watermark.0).unwrap_or(0);
        let high_water = self.high_water(shared, partition, end, &encoded).await?;
        self.from = Some(fetched.next_offset.max(from));
        self.add(encoded, high_water);
        Ok(())
    }

    /// Tells where the partition ends, and brings nothing of it.
    async fn look(&mut self, shared: &Shared, partition: &Partition) -> Result<(), ClientError> {
        let held = positions(&shared.client, partition.stream).await?;
        let high_water = number_before(shared, partition, held.latest).await?;
        self.add(Encoded::default(), high_water);
        Ok(())
    }

    /// Where the partition is read from. `None`: it is told that there is nothing.
    async fn begin(&mut self, shared: &Shared, partition: &Partition) -> Result<Option<Offset>, ClientError> {
        let held = positions(&shared.client, partition.stream).await?;
        let from = match self.asked.sequence {
            0 => held.earliest,
            END => held.latest,
            number => {
                let Ends { first, last } = Ends::of(shared, partition, held).await?;
                if number < first || number > last.saturating_add(1) {
                    self.outcome = Outcome::Told(PartitionState::OutOfBounds {
                        high_water: last,
                        first_available: first,
                    });
                    return Ok(None);
                }
                match partition.numbers.sparse_from {
                    Some(_) => offset_of(&shared.client, held, partition.numbers, number).await?,
                    None => Offset(i64::try_from(number - partition.numbers.base()).unwrap_or(i64::MAX)),
                }
            }
        };
        self.from = Some(from);
        Ok(Some(from))
    }

    /// The number of the partition's last message.
    async fn high_water(
        &self,
        shared: &Shared,
        partition: &Partition,
        end: u64,
        encoded: &Encoded,
    ) -> Result<u64, ClientError> {
        match encoded.last.filter(|(offset, _)| offset.saturating_add(1) == end) {
            Some((_, number)) => Ok(number),
            None => {
                let end = Offset(i64::try_from(end).unwrap_or(i64::MAX));
                number_before(shared, partition, end).await
            }
        }
    }

    fn add(&mut self, encoded: Encoded, high_water: u64) {
        if encoded.bundles.is_empty() {
            match &mut self.outcome {
                Outcome::Bundles { high_water: known, .. } => *known = high_water,
                outcome => *outcome = Outcome::Nothing { high_water },
            }
            return;
        }
        match &mut self.outcome {
            Outcome::Bundles {
                high_water: known,
                bundles,
                ..
            } => {
                *known = high_water;
                bundles.extend(encoded.bundles);
            }
            outcome => {
                *outcome = Outcome::Bundles {
                    base: encoded.base,
                    high_water,
                    bundles: encoded.bundles,
                }
            }
        }
    }
}

/// The number of the last record before this offset; 0: there is none.
pub(super) async fn number_before(shared: &Shared, partition: &Partition, end: Offset) -> Result<u64, ClientError> {
    let Some(last) = u64::try_from(end.0).ok().and_then(|end| end.checked_sub(1)) else {
        return Ok(partition.numbers.base().saturating_sub(1));
    };
    let number = number_at(&shared.client, partition.stream, partition.numbers, last).await?;
    Ok(number.unwrap_or(0))
}

/// The numbers of a partition's first and last message; where it is empty, the first is the next one.
struct Ends {
    first: u64,
    last: u64,
}

impl Ends {
    async fn of(shared: &Shared, partition: &Partition, held: Positions) -> Result<Self, ClientError> {
        let last = number_before(shared, partition, held.latest).await?;
        let earliest = u64::try_from(held.earliest.0).unwrap_or(0);
        let first = match held.earliest < held.latest {
            true => number_at(&shared.client, partition.stream, partition.numbers, earliest).await?,
            false => None,
        };
        Ok(Self {
            first: first.unwrap_or(last.saturating_add(1)),
            last,
        })
    }
}

/// Records as bundles.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// The number of the first message, unless its bundle says it.
    base: Option<u64>,
    /// Each behind its length.
    bundles: Vec<Bytes>,
    /// The offset and number of the last record.
    last: Option<(u64, u64)>,
    /// Keys that TANK has no room for, and records with headers other than the number's.
    pub(super) keys: u64,
    pub(super) headers: u64,
}

impl Encoded {
    /// Adds the records of a batch that were asked for.
    fn add(&mut self, fetched: &FetchedBatch, numbers: Numbers) -> Result<(), ClientError> {
        let batch = decode(&fetched.bytes)?;
        let records = batch.records().map_err(|error| damaged(error.to_string()))?;
        let mut messages = Vec::new();
        let mut bytes = 0;
        let mut is_sparse = false;
        for record in records.between(fetched.from, fetched.to) {
            let offset = u64::try_from(record.offset.0).unwrap_or(0);
            let Some(sequence) = number_of(&record, numbers) else {
                return Err(damaged(format!(
                    "the record at offset {offset} has no number of a message"
                )));
            };
            let key = record.key.filter(|key| key.len() <= MAX_KEY);
            self.keys += u64::from(record.key.is_some() && key.is_none());
            let mut others = record.headers.clone();
            self.headers += u64::from(others.any(|(name, _)| name != crate::numbers::SEQUENCE));
            let message = Message {
                sequence,
                time_ms: time_ms(record.timestamp_us),
                key,
                // TANK has no null.
                content: record.value.unwrap_or_default(),
            };
            is_sparse |= numbers.is_carried_at(offset);
            bytes += message.content.len() + message.key.map_or(0, <[u8]>::len);
            messages.push(message);
            self.last = Some((offset, sequence));
            if bytes >= BUNDLE_BYTES {
                self.bundle(&messages, is_sparse)?;
                messages.clear();
                (bytes, is_sparse) = (0, false);
            }
        }
        match messages.is_empty() {
            true => Ok(()),
            false => self.bundle(&messages, is_sparse),
        }
    }

    fn bundle(&mut self, messages: &[Message<'_>], is_sparse: bool) -> Result<(), ClientError> {
        let encoded = match is_sparse {
            false => encode_bundle(messages),
            true => encode_sparse_bundle(messages),
        };
        match encoded {
            Ok(bundle) => {
                if self.bundles.is_empty() && !is_sparse {
                    self.base = messages.first().map(|message| message.sequence);
                }
                self.bundles.push(frame_bundle(&bundle));
                Ok(())
            }
            // Numbers too far apart for one bundle.
            Err(EncodeError::Numbers) if messages.len() > 1 => {
                messages.chunks(1).try_for_each(|message| self.bundle(message, true))
            }
            Err(error) => Err(damaged(error.to_string())),
        }
    }
}
