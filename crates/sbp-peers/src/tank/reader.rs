//! Reading partitions of a topic from one position to another.
//!
//! A request names partitions that the same broker leads, as many as fit; requests to several brokers, or for more partitions,
//! are under way side by side, so that each waits for messages without holding up the others. While bundles are handed out
//! the next request of their partitions is on its way.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddrV4;
use std::time::Duration;

use sbp_tank::{BundleHead, ConsumedFrom, Numbering, PARTITIONS, PartitionState, Span};
use tokio::task::JoinSet;

use super::broker::{Broker, Served};
use super::bundles::{Collector, ReadBatch, ReadBundle};
use super::error::{Gap, TankError, TankErrorKind};
use super::shared::Fetched;

/// Bytes asked for of one partition.
const FETCH_SIZE: u32 = 4 << 20;
/// Bytes asked for of one of many partitions: as many fit into one request as it may name.
const LEAST_FETCHED: u32 = 256 << 10;
/// Bytes asked for of all partitions of one request.
const ALL_FETCHED: u32 = 64 << 20;
/// Bytes asked for of one partition at most: no bundle has as many.
const MOST_FETCHED: u32 = 128 << 20;
/// While fewer bytes than these wait to be handed out, more are asked for.
const READ_AHEAD: usize = 8 << 20;
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
    /// So many numbers behind the first message that there is; behind the last one, if there are fewer.
    AfterEarliest(u64),
    /// So many numbers in front of where [`Start::Latest`] is; at the first message, if there are fewer.
    BeforeLatest(u64),
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

/// A part of a partition that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPart {
    /// The partition.
    pub partition: u16,
    /// Where reading begins.
    pub start: Start,
    /// Where it ends.
    pub end: End,
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

/// A partition that is being read.
#[derive(Debug, Clone, Copy)]
struct Position {
    partition: u16,
    /// The next message wanted.
    next: u64,
    /// In front of which number reading ends.
    until: u64,
    fetch_size: u32,
    /// Who leads it, where that is not the broker that was named.
    leader: Option<SocketAddrV4>,
    /// Whether that was said by the last answer: brokers that name each other are not followed any further.
    was_redirected: bool,
    /// Whether a request for it is under way.
    is_asked: bool,
}

/// A request that is over.
#[derive(Debug)]
struct Asked {
    /// What was asked for.
    from: Vec<ConsumedFrom>,
    /// Which broker was asked.
    endpoint: String,
    fetched: Result<Fetched, TankError>,
}

/// Reads partitions of a topic, bundle by bundle; those of one partition in their order.
///
/// A step that is dropped loses nothing. After an error the next step goes on: behind the gap where messages are gone, otherwise where the error was.
#[derive(Debug)]
pub struct Reader {
    broker: Broker,
    topic: String,
    positions: Vec<Position>,
    asked: JoinSet<Asked>,
    ready: VecDeque<ReadBundle>,
    /// Bytes of them.
    ready_bytes: usize,
    batches: VecDeque<ReadBatch>,
    errors: VecDeque<TankError>,
}

impl Broker {
    /// A reader of a topic.
    ///
    /// # Errors
    /// [`TankError`]: there is no such topic or partition, or the broker does not say what is in it.
    pub async fn read(&self, topic: &str, options: &ReadOptions) -> Result<Reader, TankError> {
        let served = self.served(topic).await?;
        // One that nobody serves is an error, and not left out.
        let every = (0..).zip(&served).map(|(partition, _)| partition);
        let partitions = match options.partitions.as_slice() {
            [] => every.collect(),
            some => some.to_vec(),
        };
        let parts = partitions.into_iter().map(|partition| ReadPart {
            partition,
            start: options.start,
            end: options.end,
        });
        Reader::at(self.clone(), topic, &served, parts)
    }

    /// A reader of parts of a topic, each with its own start and end; of several of one partition the first counts.
    ///
    /// # Errors
    /// As for [`Broker::read`].
    pub async fn read_parts(&self, topic: &str, parts: &[ReadPart]) -> Result<Reader, TankError> {
        let served = self.served(topic).await?;
        Reader::at(self.clone(), topic, &served, parts.iter().copied())
    }
}

impl Reader {
    /// A reader of parts of partitions that begin and end there: "earliest" and "latest" mean one place each from now on.
    fn at(
        broker: Broker,
        topic: &str,
        served: &[Option<Served>],
        parts: impl Iterator<Item = ReadPart>,
    ) -> Result<Self, TankError> {
        let mut positions = Vec::new();
        let mut seen = HashSet::new();
        for part in parts.filter(|part| seen.insert(part.partition)) {
            let error = match served.get(usize::from(part.partition)) {
                Some(Some(served)) => {
                    positions.push(position(part, *served));
                    continue;
                }
                Some(None) => {
                    TankError::new(TankErrorKind::Refused, "nobody serves the partition at the moment").for_now()
                }
                None => TankError::new(TankErrorKind::UnknownName, "the topic has no such partition"),
            };
            return Err(error.about(topic, Some(part.partition)).at(broker.address()));
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
            asked: JoinSet::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            batches: VecDeque::new(),
            errors: VecDeque::new(),
        })
    }

    /// The next bundle; `None` when the end of all partitions is reached.
    ///
    /// # Errors
    /// [`TankError`]. Where messages are gone before they were read it has a [gap](TankError::gap).
    pub async fn next(&mut self) -> Result<Option<ReadBundle>, TankError> {
        loop {
            if self.ready_bytes < READ_AHEAD {
                self.ask();
            }
            if let Some(bundle) = self.ready.pop_front() {
                self.ready_bytes = self.ready_bytes.saturating_sub(bundle.length());
                return Ok(Some(bundle));
            }
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            match self.asked.join_next().await {
                None => return Ok(None),
                Some(Ok(asked)) => self.take(asked),
                // Nobody aborts it: it panicked, or the runtime ends.
                Some(Err(ended)) => {
                    self.positions.iter_mut().for_each(|position| position.is_asked = false);
                    return Err(TankError::new(TankErrorKind::Lost, ended.to_string()).for_good());
                }
            }
        }
    }

    /// The messages of the next bundles of one partition, as a batch; `None` when the end of all partitions is reached.
    ///
    /// # Errors
    /// As for [`Reader::next`]; and a bundle is damaged, which the next step reads again.
    pub async fn next_batch(&mut self) -> Result<Option<ReadBatch>, TankError> {
        loop {
            if let Some(batch) = self.batches.pop_front() {
                return Ok(Some(batch));
            }
            let Some(bundle) = self.next().await? else {
                return Ok(None);
            };
            let about = |error: TankError, reader: &Self| {
                error
                    .about(&reader.topic, Some(bundle.partition))
                    .at(reader.broker.address())
            };
            let collected = self.collect(&bundle).map_err(|error| about(error, self))?;
            self.batches = collected;
        }
    }

    /// The messages of a bundle, and of those behind it that go with it. Those in front of a damaged one are handed out; it is
    /// read again by the step behind them, which fails.
    fn collect(&mut self, first: &ReadBundle) -> Result<VecDeque<ReadBatch>, TankError> {
        let mut collector = Collector::new(first);
        let mut added = collector.add(first);
        while added.is_ok()
            && let Some(bundle) = self.ready.pop_front_if(|bundle| collector.wants(bundle))
        {
            self.ready_bytes = self.ready_bytes.saturating_sub(bundle.length());
            added = collector.add(&bundle);
        }
        if added.is_err() {
            self.go_back(first.partition, collector.next(), first.until);
        }
        let batches = collector.into_batches()?;
        match added {
            Err(error) if batches.is_empty() => Err(error),
            _ => Ok(batches),
        }
    }

    /// Has a partition read again from a message on.
    fn go_back(&mut self, partition: u16, from: u64, until: u64) {
        self.ready.retain(|bundle| bundle.partition != partition);
        self.ready_bytes = self.ready.iter().map(ReadBundle::length).sum();
        let found = self
            .positions
            .iter_mut()
            .find(|position| position.partition == partition);
        match found {
            Some(position) => position.next = from,
            None => self.positions.push(Position {
                next: from,
                ..Position::new(partition, until)
            }),
        }
    }

    /// Asks for the partitions that no request is under way for.
    fn ask(&mut self) {
        while let Some(leader) = self.positions.iter().find(|one| !one.is_asked).map(|one| one.leader) {
            let mut from = Vec::new();
            let mut left = ALL_FETCHED;
            let idle = self
                .positions
                .iter_mut()
                .filter(|one| !one.is_asked && one.leader == leader);
            for position in idle.take(PARTITIONS) {
                if !from.is_empty() && position.fetch_size > left {
                    break;
                }
                left = left.saturating_sub(position.fetch_size);
                position.is_asked = true;
                from.push(ConsumedFrom {
                    partition: position.partition,
                    sequence: position.next,
                    fetch_size: position.fetch_size,
                });
            }
            let (broker, topic) = (self.broker.clone(), self.topic.clone());
            let request = async move {
                let asked = match leader {
                    Some(leader) => broker.leader(leader),
                    None => Ok(broker.clone()),
                };
                let endpoint = asked.as_ref().unwrap_or(&broker).address();
                let fetched = match asked {
                    Ok(broker) => broker.consume(&topic, from.clone(), WAIT).await,
                    Err(error) => Err(error),
                };
                Asked {
                    from,
                    endpoint,
                    fetched,
                }
            };
            self.asked.spawn_on(request, self.broker.runtime());
        }
    }

    /// Takes over what an answer has, and moves behind it.
    fn take(&mut self, asked: Asked) {
        for from in &asked.from {
            if let Some(position) = self.positions.iter_mut().find(|one| one.partition == from.partition) {
                position.is_asked = false;
            }
        }
        match asked.fetched {
            Ok(fetched) => {
                for place in 0..fetched.partitions.len() {
                    if let Err(error) = self.take_partition(&asked.from, &fetched, place) {
                        self.errors.push_back(error.at(asked.endpoint.clone()));
                    }
                }
            }
            Err(error) => self.errors.push_back(error.about(&self.topic, None)),
        }
        self.positions.retain(|position| position.next < position.until);
    }

    /// Takes over what an answer has of one partition. One without a whole bundle stays where it is.
    fn take_partition(&mut self, asked: &[ConsumedFrom], fetched: &Fetched, place: usize) -> Result<(), TankError> {
        let Some(told) = fetched.partitions.get(place) else {
            return Ok(());
        };
        let Some(partition) = told.partition else {
            return Err(
                TankError::new(TankErrorKind::UnknownName, "the broker has no such topic").about(&self.topic, None),
            );
        };
        let about = |error: TankError| error.about(&self.topic, Some(partition));
        let Some(from) = asked.iter().find(|from| from.partition == partition) else {
            let what = "the broker answers what was not asked";
            return Err(about(TankError::new(TankErrorKind::Peer, what)));
        };
        let found = self
            .positions
            .iter_mut()
            .find(|position| position.partition == partition);
        // One that was sent back meanwhile wants something else by now.
        let Some(position) = found.filter(|position| position.next == from.sequence) else {
            return Ok(());
        };
        let base = match told.state {
            PartitionState::Data { base, .. } => base,
            state => return position.refused(state).map_err(about),
        };
        position.was_redirected = false;
        let mut numbering = Numbering::new(base);
        let mut is_empty = true;
        for (_, bytes) in fetched.bundles.iter().filter(|(at, _)| *at == place) {
            is_empty = false;
            let numbered = BundleHead::decode(bytes).and_then(|head| numbering.number_head(&head));
            let damaged = |fault| TankError::of_fault("a bundle", fault).with_sequence(position.next);
            let span: Span = numbered.map_err(|fault| about(damaged(fault)))?;
            // The first bundle may begin, and even end, before what was asked for.
            if span.last < position.next || span.first >= position.until {
                continue;
            }
            let bundle = ReadBundle::new(partition, span, position.next, position.until, bytes.clone());
            self.ready_bytes += bundle.length();
            self.ready.push_back(bundle);
            position.next = span.last.saturating_add(1);
        }
        match fetched.cut.iter().find(|(at, _)| *at == place) {
            Some((_, length)) if is_empty => position.ask_for_more(*length).map_err(about),
            _ => Ok(()),
        }
    }
}

impl Position {
    /// The beginning of a partition.
    fn new(partition: u16, until: u64) -> Self {
        Self {
            partition,
            next: 1,
            until,
            fetch_size: FETCH_SIZE,
            leader: None,
            was_redirected: false,
            is_asked: false,
        }
    }

    /// The first bundle has so many bytes, and does not fit into what was asked for; 0: nobody knows how many.
    fn ask_for_more(&mut self, length: usize) -> Result<(), TankError> {
        if self.fetch_size >= MOST_FETCHED {
            let what = "the broker cuts a bundle although all of it was asked for";
            return Err(TankError::new(TankErrorKind::Peer, what).with_sequence(self.next));
        }
        let wanted = u32::try_from(length).unwrap_or(u32::MAX);
        self.fetch_size = wanted.max(self.fetch_size.saturating_mul(2)).min(MOST_FETCHED);
        Ok(())
    }

    /// The broker does not serve what was asked for. Another one that leads the partition is asked next.
    fn refused(&mut self, state: PartitionState) -> Result<(), TankError> {
        let error = match state {
            PartitionState::OtherLeader(leader) if !self.was_redirected => {
                self.leader = Some(leader);
                self.was_redirected = true;
                return Ok(());
            }
            PartitionState::OutOfBounds {
                high_water,
                first_available,
            } => return Err(self.out_of_bounds(high_water, first_available)),
            PartitionState::UnknownTopic | PartitionState::UnknownPartition => {
                TankError::new(TankErrorKind::UnknownName, "the broker has no such partition")
            }
            PartitionState::OtherLeader(leader) => {
                let what = format!("the broker that was named as the partition's leader names another one, {leader}");
                TankError::new(TankErrorKind::Refused, what).for_now()
            }
            _ => TankError::new(
                TankErrorKind::Refused,
                "the broker does not serve the partition at the moment",
            )
            .for_now(),
        };
        self.was_redirected = false;
        Err(error.with_sequence(self.next))
    }

    /// The next message is not there. Where it was, reading goes on at the first one that there is.
    fn out_of_bounds(&mut self, high_water: u64, first: u64) -> TankError {
        let next = self.next;
        let what = format!("message {next} is not there: the first is {first}, the last {high_water}");
        let error = TankError::new(TankErrorKind::OutOfRange, what).with_sequence(next);
        if next >= first {
            return error;
        }
        self.next = first;
        error.with_gap(Gap {
            partition: self.partition,
            from: next,
            to: first,
        })
    }
}

fn position(part: ReadPart, (bounds, leader): Served) -> Position {
    // Partitions begin with message 1.
    let (first, end) = (bounds.first.max(1), bounds.high_water.saturating_add(1));
    let next = match part.start {
        Start::Earliest => first,
        Start::Latest => end,
        Start::At(sequence) => sequence.max(1),
        Start::AfterEarliest(count) => first.saturating_add(count).min(end),
        Start::BeforeLatest(count) => end.saturating_sub(count).max(first),
    };
    let until = match part.end {
        End::Latest => end,
        End::At(sequence) => sequence,
        End::Never => u64::MAX,
    };
    Position {
        next,
        leader,
        ..Position::new(part.partition, until)
    }
}
