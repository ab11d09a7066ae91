//! Reading partitions of a topic from one position to another.
//!
//! A request names partitions that the same broker leads, as many as fit; requests to several brokers, or for more partitions,
//! are under way side by side, so that each waits for messages without holding up the others. While bundles are handed out
//! the next request of their partitions is on its way.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::broker::{Broker, Served};
use super::bundles::{Collector, ReadBatch, ReadBundle};
use super::error::{TankError, TankErrorKind};
use super::positions::{Asked, Part, Positions, Wanted};
use super::shared::Fetched;

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
    /// At the first message with this time or a later one, in milliseconds since 1970: found where the times of messages do not
    /// go back. Behind the last one, if there is none.
    Time(u64),
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

/// Reads partitions of a topic, bundle by bundle; those of one partition in their order.
///
/// A step that is dropped loses nothing. After an error the next step goes on: behind the gap where messages are gone, otherwise where the error was.
#[derive(Debug)]
pub struct Reader {
    broker: Broker,
    positions: Positions,
    /// The requests under way, each with the broker that is asked.
    asked: JoinSet<(String, Asked)>,
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
        let parts = self.find_times(topic, &served, parts.collect()).await?;
        Reader::at(self.clone(), topic, &served, parts.into_iter())
    }

    /// A reader of parts of a topic, each with its own start and end; of several of one partition the first counts.
    ///
    /// # Errors
    /// As for [`Broker::read`].
    pub async fn read_parts(&self, topic: &str, parts: &[ReadPart]) -> Result<Reader, TankError> {
        let served = self.served(topic).await?;
        let parts = self.find_times(topic, &served, parts.to_vec()).await?;
        Reader::at(self.clone(), topic, &served, parts.into_iter())
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
        let mut numbers = Vec::new();
        let mut seen = HashSet::new();
        for part in parts.filter(|part| seen.insert(part.partition)) {
            let error = match served.get(usize::from(part.partition)) {
                Some(Some(served)) => {
                    numbers.push(numbered(part, *served));
                    continue;
                }
                Some(None) => {
                    TankError::new(TankErrorKind::Refused, "nobody serves the partition at the moment").for_now()
                }
                None => TankError::new(TankErrorKind::UnknownName, "the topic has no such partition"),
            };
            return Err(error.about(topic, Some(part.partition)).at(broker.address()));
        }
        let positions = Positions::new(topic, numbers);
        Ok(Self::of(broker, positions))
    }

    /// A reader that reads there.
    pub(super) fn of(broker: Broker, positions: Positions) -> Self {
        Self {
            broker,
            positions,
            asked: JoinSet::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            batches: VecDeque::new(),
            errors: VecDeque::new(),
        }
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
                    self.positions.forget_requests();
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
                    .about(reader.positions.topic(), Some(bundle.partition))
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
            self.ready.retain(|bundle| bundle.partition != first.partition);
            self.ready_bytes = self.ready.iter().map(ReadBundle::length).sum();
            self.positions.go_back(first.partition, collector.next(), first.until);
        }
        let batches = collector.into_batches()?;
        match added {
            Err(error) if batches.is_empty() => Err(error),
            _ => Ok(batches),
        }
    }

    /// Sends the requests that are wanted.
    fn ask(&mut self) {
        while let Some(wanted) = self.positions.next_request() {
            let (broker, topic) = (self.broker.clone(), self.positions.topic().to_owned());
            let (leader, from) = (wanted.leader, wanted.from.clone());
            let consume = async move {
                let asked = match leader {
                    Some(leader) => broker.leader(leader),
                    None => Ok(broker.clone()),
                };
                let endpoint = asked.as_ref().unwrap_or(&broker).address();
                let fetched = match asked {
                    Ok(broker) => broker.consume(&topic, from, WAIT).await,
                    Err(error) => Err(error),
                };
                (endpoint, fetched)
            };
            self.asked.spawn_on(ask_in_time(wanted, consume), self.broker.runtime());
        }
    }

    /// Takes over what an answer has.
    fn take(&mut self, (endpoint, asked): (String, Asked)) {
        let taken = self.positions.take(asked);
        let errors = taken.errors.into_iter().map(|error| error.at(endpoint.clone()));
        self.errors.extend(errors);
        self.ready_bytes += taken.bundles.iter().map(ReadBundle::length).sum::<usize>();
        self.ready.extend(taken.bundles);
    }
}

/// Asks when its time has come, and says how long the answer took. Nothing shortens the pause before that: whatever comes
/// meanwhile, this broker has had nothing for these partitions a moment ago.
async fn ask_in_time(
    wanted: Wanted,
    consume: impl Future<Output = (String, Result<Fetched, TankError>)>,
) -> (String, Asked) {
    if !wanted.pause.is_zero() {
        sleep(wanted.pause).await;
    }
    let begun = Instant::now();
    let (endpoint, fetched) = consume.await;
    let asked = Asked {
        id: wanted.id,
        from: wanted.from,
        fetched,
        took: begun.elapsed(),
    };
    (endpoint, asked)
}

/// A part of a partition in numbers.
fn numbered(part: ReadPart, (bounds, leader): Served) -> Part {
    // Partitions begin with message 1.
    let (first, end) = (bounds.first.max(1), bounds.high_water.saturating_add(1));
    let next = match part.start {
        Start::Earliest => first,
        Start::Latest => end,
        Start::At(sequence) => sequence.max(1),
        // One that was found is a number by now; where none was looked for, nothing is served.
        Start::Time(_) => end,
        Start::AfterEarliest(count) => first.saturating_add(count).min(end),
        Start::BeforeLatest(count) => end.saturating_sub(count).max(first),
    };
    let until = match part.end {
        End::Latest => end,
        End::At(sequence) => sequence,
        End::Never => u64::MAX,
    };
    Part {
        partition: part.partition,
        next,
        until,
        high_water: bounds.high_water,
        leader,
    }
}

#[cfg(test)]
mod tests {
    use sbp_tank::{ConsumedPartition, PartitionState};

    use super::*;

    /// What a broker answers at once that has nothing for the partitions.
    fn nothing(wanted: &Wanted) -> Fetched {
        let told = wanted.from.iter().map(|from| ConsumedPartition {
            topic: String::from("t"),
            partition: Some(from.partition),
            state: PartitionState::Data {
                base: Some(0),
                high_water: 0,
                length: 0,
            },
        });
        Fetched {
            partitions: told.collect(),
            ..Fetched::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_does_not_wait_is_asked_with_pauses_up_to_a_second() {
        let part = |partition| Part {
            partition,
            next: 1,
            until: u64::MAX,
            high_water: 0,
            leader: None,
        };
        let mut positions = Positions::new("t", [part(0), part(1)]);
        let begun = Instant::now();
        let mut asked_after = Vec::new();
        for _ in 0..10 {
            let wanted = positions.next_request().expect("both are idle");
            assert_eq!(positions.next_request(), None, "both are asked for together");
            let fetched = nothing(&wanted);
            let mut asked = JoinSet::new();
            asked.spawn(ask_in_time(wanted, async move {
                (begun.elapsed().as_millis().to_string(), Ok(fetched))
            }));
            let (at, asked) = asked.join_next().await.expect("a request").expect("it ends");
            asked_after.push(at.parse::<u64>().expect("milliseconds"));
            positions.take(asked);
        }
        let pauses: Vec<_> = asked_after.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(asked_after[0], 0);
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_waits_is_asked_again_at_once() {
        let part = Part {
            partition: 0,
            next: 1,
            until: u64::MAX,
            high_water: 0,
            leader: None,
        };
        let mut positions = Positions::new("t", [part]);
        for _ in 0..3 {
            let wanted = positions.next_request().expect("it is idle");
            assert_eq!(wanted.pause, Duration::ZERO);
            let fetched = nothing(&wanted);
            let waits = async {
                sleep(WAIT).await;
                (String::new(), Ok(fetched))
            };
            let (_, asked) = ask_in_time(wanted, waits).await;
            assert_eq!(asked.took, WAIT);
            positions.take(asked);
        }
    }
}
