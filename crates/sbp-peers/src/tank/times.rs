//! Finding messages by their time, which brokers do not: by halves, as the messages of a partition come in the order of their
//! times. What is asked for are bundles in the middle of what is left.

use tokio::task::JoinSet;

use super::broker::{Broker, Served};
use super::error::TankError;
use super::positions::{Part, Positions};
use super::reader::{End, ReadPart, Reader, Start};

/// Bytes asked for at a time: one bundle is enough.
const FETCHED: u32 = 64 << 10;

impl Broker {
    /// The numbers of the first messages that have a time or a later one, in partitions of a topic; where none has, that of the next
    /// message to be produced. `None`: nobody serves the partition at the moment.
    ///
    /// # Errors
    /// [`TankError`]: there is no such topic, or its broker cannot be asked.
    pub async fn numbers_at(
        &self,
        topic: &str,
        partitions: &[u16],
        time_ms: u64,
    ) -> Result<Vec<Option<u64>>, TankError> {
        let served = self.served(topic).await?;
        let parts = partitions.iter().map(|&partition| ReadPart {
            partition,
            start: Start::Time(time_ms),
            end: End::Latest,
        });
        let found = self.find_times(topic, &served, parts.collect()).await?;
        let number = |part: ReadPart| match part.start {
            Start::At(number) => Some(number),
            _ => None,
        };
        Ok(found.into_iter().map(number).collect())
    }

    /// The same parts, those that begin at a time with the number of the message that this is.
    pub(super) async fn find_times(
        &self,
        topic: &str,
        served: &[Option<Served>],
        mut parts: Vec<ReadPart>,
    ) -> Result<Vec<ReadPart>, TankError> {
        let mut searches = JoinSet::new();
        for (place, part) in parts.iter().enumerate() {
            let Start::Time(time_ms) = part.start else { continue };
            // One that is not served is an error of whoever reads it.
            let Some(Some(served)) = served.get(usize::from(part.partition)).copied() else {
                continue;
            };
            let search = Search {
                broker: self.clone(),
                topic: topic.to_owned(),
                partition: part.partition,
                served,
                time_ms,
            };
            searches.spawn_on(async move { (place, search.run().await) }, self.runtime());
        }
        while let Some(searched) = searches.join_next().await {
            // Nobody aborts it: it panicked, or the runtime ends.
            let (place, found) = searched.map_err(|_| self.closed())?;
            let number = found?;
            if let Some(part) = parts.get_mut(place) {
                part.start = Start::At(number);
            }
        }
        Ok(parts)
    }
}

/// A search in one partition.
struct Search {
    broker: Broker,
    topic: String,
    partition: u16,
    served: Served,
    time_ms: u64,
}

/// What is between two numbers.
enum Between {
    /// No messages.
    Nothing,
    /// Messages, of which the first has this time or a later one.
    Later,
    /// Messages that are earlier, and the first that is not.
    Found(u64),
    /// Messages that are earlier, up to this number.
    Earlier(u64),
    /// The messages in front of this number are gone.
    Gone(u64),
}

impl Search {
    /// The number of the first message with this time or a later one; the next one to be produced where there is none.
    async fn run(self) -> Result<u64, TankError> {
        let (bounds, _) = self.served;
        // Messages in front of `low` are earlier, those from `high` on are not.
        let (mut low, mut high) = (bounds.first.max(1), bounds.high_water.saturating_add(1));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.look(middle, high).await? {
                Between::Nothing | Between::Later => high = middle,
                Between::Found(number) => return Ok(number),
                Between::Earlier(number) => low = number.saturating_add(1),
                Between::Gone(number) => low = low.max(number),
            }
        }
        Ok(low)
    }

    /// Looks at the first bundle between two numbers.
    async fn look(&self, from: u64, until: u64) -> Result<Between, TankError> {
        let (bounds, leader) = self.served;
        let part = Part {
            partition: self.partition,
            next: from,
            until,
            high_water: bounds.high_water,
            leader,
        };
        let positions = Positions::sharing(&self.topic, [part], FETCHED);
        let bundle = match Reader::of(self.broker.clone(), positions).next().await {
            Ok(Some(bundle)) => bundle,
            Ok(None) => return Ok(Between::Nothing),
            Err(error) => match error.gap() {
                Some(gap) => return Ok(Between::Gone(gap.to)),
                None => return Err(error),
            },
        };
        let (mut first, mut found, mut last) = (None, None, None);
        bundle.for_each(|message| {
            let number = message.sequence;
            first.get_or_insert(number);
            last = Some(number);
            if message.time_ms >= self.time_ms {
                found.get_or_insert(number);
            }
        })?;
        Ok(match (first, found, last) {
            (Some(first), Some(found), _) if first == found => Between::Later,
            (_, Some(found), _) => Between::Found(found),
            (_, None, Some(last)) => Between::Earlier(last),
            (_, None, None) => Between::Nothing,
        })
    }
}
