//! Reading partitions of a topic from one position to another.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use sbp_tank::{Bundle, ConsumedFrom, Message, Numbering, PARTITIONS, PartitionBounds, PartitionState, Span};

use super::broker::Broker;
use super::error::{TankError, TankErrorKind};
use super::shared::Fetched;

/// Bytes asked for of one partition.
const FETCH_SIZE: u32 = 4 << 20;
/// Bytes asked for of one of many partitions: as many fit into one request as it may name.
const LEAST_FETCHED: u32 = 256 << 10;
/// Bytes asked for of all partitions of one request.
const ALL_FETCHED: u32 = 64 << 20;
/// Bytes asked for of one partition at most: no bundle has as many.
const MOST_FETCHED: u32 = 128 << 20;
/// How long a request waits for messages.
const WAIT: Duration = Duration::from_secs(5);

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the first message that there is.
    Earliest,
    /// Behind the last message that there is when the reader is made.
    Latest,
    /// At this sequence number.
    At(u64),
}

/// Where reading ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Behind the last message that there is when the reader is made.
    Latest,
    /// In front of this sequence number.
    At(u64),
    /// Nowhere: the reader waits for more.
    Never,
}

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// The partitions; none: all that the topic has.
    pub partitions: Vec<u16>,
    /// Where reading begins in each of them.
    pub start: Start,
    /// Where it ends.
    pub end: End,
}

/// A bundle that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadBundle {
    /// The partition that it is of.
    pub partition: u16,
    /// The numbers of its first and last message.
    pub span: Span,
    /// The first number that is wanted: messages before it were read already, or are in front of the start.
    pub from: u64,
    /// The number in front of which reading ends.
    pub until: u64,
    bytes: Bytes,
}

impl ReadBundle {
    /// Calls `take` for each message that is wanted.
    ///
    /// # Errors
    /// The bundle is damaged.
    pub fn for_each(&self, mut take: impl FnMut(Message<'_>)) -> Result<(), TankError> {
        let place = || format!("the bundle from {} of partition {}", self.span.first, self.partition);
        let bundle = Bundle::decode(&self.bytes).map_err(|fault| TankError::of_fault(&place(), fault))?;
        for message in bundle.messages(self.span.first) {
            let message = message.map_err(|fault| TankError::of_fault(&place(), fault))?;
            if (self.from..self.until).contains(&message.sequence) {
                take(message);
            }
        }
        Ok(())
    }
}

/// A partition that is being read.
#[derive(Debug, Clone, Copy)]
struct Position {
    partition: u16,
    /// The next message wanted.
    next: u64,
    /// In front of which number reading ends.
    until: u64,
    fetch_size: u32,
}

/// Reads partitions of a topic, bundle by bundle; those of one partition in their order.
#[derive(Debug)]
pub struct Reader {
    broker: Broker,
    topic: String,
    positions: Vec<Position>,
    ready: VecDeque<ReadBundle>,
}

impl Broker {
    /// A reader of a topic.
    ///
    /// # Errors
    /// [`TankError`]: there is no such topic or partition, or the broker does not say what is in it.
    pub async fn read(&self, topic: &str, options: &ReadOptions) -> Result<Reader, TankError> {
        Reader::begin(self.clone(), topic, options).await
    }
}

impl Reader {
    /// Asks once where the partitions begin and end, so that "earliest" and "latest" mean one place each.
    async fn begin(broker: Broker, topic: &str, options: &ReadOptions) -> Result<Self, TankError> {
        let bounds = broker.partitions(topic).await?;
        let every = (0..)
            .zip(&bounds)
            .filter_map(|(partition, bounds)| bounds.map(|_| partition));
        let partitions = match options.partitions.as_slice() {
            [] => every.collect(),
            some => some.to_vec(),
        };
        let mut positions = Vec::new();
        for partition in partitions {
            let Some(Some(bounds)) = bounds.get(usize::from(partition)) else {
                let message = format!("the broker at {} does not serve {topic}/{partition}", broker.address());
                return Err(TankError::new(TankErrorKind::UnknownName, message));
            };
            positions.push(position(partition, *bounds, options));
        }
        positions.retain(|position| position.next < position.until);
        let share = ALL_FETCHED / u32::try_from(positions.len().max(1)).unwrap_or(u32::MAX);
        for position in &mut positions {
            position.fetch_size = share.clamp(LEAST_FETCHED, FETCH_SIZE);
        }
        Ok(Self {
            broker,
            topic: topic.to_owned(),
            positions,
            ready: VecDeque::new(),
        })
    }

    /// The next bundle; `None` when the end of all partitions is reached.
    ///
    /// # Errors
    /// [`TankError`]. Where messages are gone before they were read it says which.
    pub async fn next(&mut self) -> Result<Option<ReadBundle>, TankError> {
        loop {
            if let Some(bundle) = self.ready.pop_front() {
                return Ok(Some(bundle));
            }
            if self.positions.is_empty() {
                return Ok(None);
            }
            let (fetched, asked) = self.fetch().await?;
            self.take(&fetched)?;
            // Where not all fit into one request, the others come next.
            self.positions.rotate_left(asked);
            self.positions.retain(|position| position.next < position.until);
        }
    }

    /// Asks for the first partitions, and says for how many.
    async fn fetch(&self) -> Result<(Fetched, usize), TankError> {
        let mut from = Vec::new();
        let mut left = ALL_FETCHED;
        for position in self.positions.iter().take(PARTITIONS) {
            if !from.is_empty() && position.fetch_size > left {
                break;
            }
            left = left.saturating_sub(position.fetch_size);
            from.push(ConsumedFrom {
                partition: position.partition,
                sequence: position.next,
                fetch_size: position.fetch_size,
            });
        }
        let asked = from.len();
        let wait = match asked == self.positions.len() {
            true => WAIT,
            // The others wait too.
            false => Duration::ZERO,
        };
        let fetched = self.broker.consume(&self.topic, from, wait).await?;
        Ok((fetched, asked))
    }

    /// Takes over what an answer has, and moves behind it. A partition without a whole bundle stays where it is.
    fn take(&mut self, fetched: &Fetched) -> Result<(), TankError> {
        for (place, told) in fetched.partitions.iter().enumerate() {
            let Some(partition) = told.partition else {
                return Err(self.failure(TankErrorKind::UnknownName, None, "the broker has no such topic"));
            };
            let found = self
                .positions
                .iter_mut()
                .find(|position| position.partition == partition);
            let Some(position) = found else {
                return Err(self.failure(
                    TankErrorKind::Peer,
                    Some(partition),
                    "the broker answers what was not asked",
                ));
            };
            let base = match told.state {
                PartitionState::Data { base, .. } => base,
                state => {
                    let next = position.next;
                    return Err(self.refusal(partition, next, state));
                }
            };
            let mut numbering = Numbering::new(base);
            let bundles = fetched.bundles.iter().filter(|(at, _)| *at == place);
            let mut is_empty = true;
            for (_, bytes) in bundles {
                is_empty = false;
                let place = || format!("a bundle of {}/{partition} behind {}", self.topic, position.next);
                let numbered = Bundle::decode(bytes).and_then(|bundle| numbering.number(&bundle));
                let span = numbered.map_err(|fault| TankError::of_fault(&place(), fault))?;
                // The first bundle may begin, and even end, before what was asked for.
                if span.last < position.next || span.first >= position.until {
                    continue;
                }
                self.ready.push_back(ReadBundle {
                    partition,
                    span,
                    from: position.next,
                    until: position.until,
                    bytes: bytes.clone(),
                });
                position.next = span.last.saturating_add(1);
            }
            let cut = fetched.cut.iter().find(|(at, _)| *at == place);
            if let (true, Some((_, length))) = (is_empty, cut) {
                if position.fetch_size >= MOST_FETCHED {
                    let what = "the broker cuts a bundle although all of it was asked for";
                    return Err(self.failure(TankErrorKind::Peer, Some(partition), what));
                }
                let wanted = u32::try_from(*length).unwrap_or(u32::MAX);
                position.fetch_size = wanted.max(position.fetch_size.saturating_mul(2)).min(MOST_FETCHED);
            }
        }
        Ok(())
    }

    /// Why a partition cannot be read.
    fn refusal(&self, partition: u16, next: u64, state: PartitionState) -> TankError {
        let (kind, what) = match state {
            PartitionState::OutOfBounds {
                high_water,
                first_available,
            } => (
                TankErrorKind::OutOfRange,
                format!("message {next} is not there: the first is {first_available}, the last {high_water}"),
            ),
            PartitionState::UnknownTopic | PartitionState::UnknownPartition => (
                TankErrorKind::UnknownName,
                String::from("the broker has no such partition"),
            ),
            PartitionState::OtherLeader(address) => (
                TankErrorKind::Refused,
                format!("another broker leads it: ask {address}"),
            ),
            _ => (
                TankErrorKind::Refused,
                String::from("the broker does not serve it at the moment; try again later"),
            ),
        };
        self.failure(kind, Some(partition), &what)
    }

    fn failure(&self, kind: TankErrorKind, partition: Option<u16>, what: &str) -> TankError {
        let place = partition.map_or_else(|| self.topic.clone(), |partition| format!("{}/{partition}", self.topic));
        TankError::new(kind, format!("read of {place} at {}: {what}", self.broker.address()))
    }
}

fn position(partition: u16, bounds: PartitionBounds, options: &ReadOptions) -> Position {
    let end = bounds.high_water.saturating_add(1);
    let next = match options.start {
        // Partitions begin with message 1.
        Start::Earliest => bounds.first.max(1),
        Start::Latest => end,
        Start::At(sequence) => sequence.max(1),
    };
    let until = match options.end {
        End::Latest => end,
        End::At(sequence) => sequence,
        End::Never => u64::MAX,
    };
    Position {
        partition,
        next,
        until,
        fetch_size: FETCH_SIZE,
    }
}
