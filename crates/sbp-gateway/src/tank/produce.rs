//! Bundles that clients produce become batches of records.

use std::sync::Arc;

use sbp_client::{Ack, ClientError, ErrorKind};
use sbp_messages::ErrorCode;
use sbp_record::{MAX_BATCH_LENGTH, RecordsBuilder};
use sbp_tank::{Answer, Bundle, Call, Produce, Produced, ProducedTo};
use sbp_transport::Mailbox;
use sbp_types::Offset;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::Shared;
use super::command::Command;
use super::partitions::{Partition, Topics};
use crate::appends::Appended;
use crate::numbers::{SEQUENCE, time_us};

/// What became of a bundle, or what is to be waited for.
enum Outcome {
    Over(Produced),
    /// Whether it is stored is not known.
    Unknown,
    Appended(Appended),
}

/// Takes the Produce requests of a connection in their order, until that is over. Their answers may overtake each other.
pub(super) async fn produce_all(
    shared: Arc<Shared>,
    mut requests: UnboundedReceiver<(Call, Produce)>,
    mailbox: Mailbox<Command>,
) {
    let mut waiting = JoinSet::new();
    while let Some((call, produce)) = requests.recv().await {
        let outcomes = shared.produce(&produce).await;
        while waiting.try_join_next().is_some() {}
        let mailbox = mailbox.clone();
        waiting.spawn(async move {
            let command = match settle(outcomes).await {
                Some(produced) => Command::Answer(call, Answer::Produced(produced)),
                // Whether it is stored is not known: no code says that, and the end of the connection does.
                None => Command::GiveUp,
            };
            // The connection may be over.
            drop(mailbox.post(command));
        });
    }
    // The client has gone; what it asked for is done.
    while waiting.join_next().await.is_some() {}
}

/// Waits until all is stored. `None`: of something that is not known.
async fn settle(topics: Vec<Vec<Outcome>>) -> Option<Vec<Vec<Produced>>> {
    let mut produced = Vec::with_capacity(topics.len());
    for outcomes in topics {
        let mut of_topic = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            of_topic.push(match outcome {
                Outcome::Over(produced) => produced,
                Outcome::Unknown => return None,
                Outcome::Appended(appended) => outcome_of(appended.await)?,
            });
        }
        produced.push(of_topic);
    }
    Some(produced)
}

/// `None`: whether it is stored is not known.
pub(super) fn outcome_of(appended: Result<Ack, ClientError>) -> Option<Produced> {
    match appended {
        Ok(_) => Some(Produced::Done),
        Err(error) if error.kind() == ErrorKind::Indeterminate => {
            tracing::warn!(%error, "what a client of TANK has produced may be stored or not");
            None
        }
        Err(error) if error.code() == ErrorCode::NOT_FOUND => Some(Produced::UnknownPartition),
        Err(error) => {
            tracing::warn!(%error, "what a client of TANK has produced is not stored");
            Some(Produced::Refused)
        }
    }
}

impl Shared {
    /// Hands over all bundles of a request.
    async fn produce(&self, produce: &Produce) -> Vec<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(produce.topics.len());
        for topic in &produce.topics {
            let topics = match self.catalog.all_with(|topics| topics.contains_key(&topic.name)).await {
                Ok(topics) => topics,
                Err(error) => {
                    tracing::warn!(%error, "topics are not known at the moment");
                    let refused = topic.partitions.iter().map(|_| Outcome::Over(Produced::Refused));
                    outcomes.push(refused.collect());
                    continue;
                }
            };
            outcomes.push(
                self.produce_to(&topics, &topic.name, &topic.partitions, produce.is_numbered)
                    .await,
            );
        }
        outcomes
    }

    async fn produce_to(
        &self,
        topics: &Topics,
        topic: &str,
        bundles: &[ProducedTo],
        is_numbered: bool,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(bundles.len());
        for to in bundles {
            let Some(partitions) = topics.get(topic) else {
                outcomes.push(Outcome::Over(Produced::UnknownTopic));
                continue;
            };
            let Some(partition) = partitions.get(&to.partition) else {
                outcomes.push(Outcome::Over(Produced::UnknownPartition));
                continue;
            };
            outcomes.push(self.produce_one(partition, topic, to, is_numbered).await);
        }
        outcomes
    }

    async fn produce_one(&self, partition: &Partition, topic: &str, to: &ProducedTo, is_numbered: bool) -> Outcome {
        match self.try_one(partition, to, is_numbered).await {
            Ok(outcome) => outcome,
            Err(what) => {
                tracing::warn!(
                    topic,
                    partition = to.partition,
                    what,
                    "a bundle of a client of TANK is refused"
                );
                Outcome::Over(Produced::Refused)
            }
        }
    }

    /// An error says why the bundle is refused.
    async fn try_one(&self, partition: &Partition, to: &ProducedTo, is_numbered: bool) -> Result<Outcome, String> {
        if partition.numbers.sparse_from.is_some() {
            let wanted = is_numbered.then_some(to.first);
            let stored = self.produce_carried(partition, wanted, |first| records_of(to, Some(first)));
            return Ok(stored.await?.map_or(Outcome::Unknown, Outcome::Over));
        }
        let records = records_of(to, None)?;
        if is_numbered {
            return Ok(Outcome::Over(self.produce_numbered(partition, to.first, records).await));
        }
        self.appends.ready(partition.stream).await;
        Ok(Outcome::Appended(self.appends.append(partition.stream, records)))
    }

    /// Stores a bundle whose first message has to get this number.
    async fn produce_numbered(&self, partition: &Partition, first: u64, records: RecordsBuilder) -> Produced {
        let base = partition.numbers.base();
        let Some(offset) = first.checked_sub(base).and_then(|offset| i64::try_from(offset).ok()) else {
            return Produced::Number;
        };
        match self.appends.append_at(partition.stream, records, Offset(offset)).await {
            Err(error) if error.code() == ErrorCode::PRECONDITION_FAILED => {
                let positions = self.client.positions(&[partition.stream], None).await;
                let latest = positions.ok().and_then(|mut each| each.pop()?.ok());
                match latest.is_some_and(|positions| offset < positions.latest.0) {
                    true => Produced::Number,
                    false => Produced::Refused,
                }
            }
            // No code says that it is not known.
            appended => outcome_of(appended).unwrap_or(Produced::Refused),
        }
    }
}

/// The messages of a bundle as records, which carry their numbers from this one on, if they are to.
fn records_of(to: &ProducedTo, first: Option<u64>) -> Result<RecordsBuilder, String> {
    let bundle = Bundle::decode(&to.bundle).map_err(|fault| fault.to_string())?;
    if bundle.span().is_some() {
        return Err("its messages have numbers of their own".to_owned());
    }
    let mut records = RecordsBuilder::new();
    for (message, place) in bundle.messages(0).zip(0_u64..) {
        let message = message.map_err(|fault| fault.to_string())?;
        let time = time_us(message.time_ms).ok_or("a message's time is beyond what a record's can be")?;
        let number = first.map(|first| first.saturating_add(place).to_be_bytes());
        let header = number.as_ref().map(|number| (SEQUENCE, Some(number.as_slice())));
        let pushed = records.push(Some(message.content), message.key, Some(time), header.as_slice());
        pushed.map_err(|error| error.to_string())?;
    }
    match records.body_length() {
        length if length > MAX_BATCH_LENGTH - (4 << 10) => Err(format!(
            "it has {length} bytes, and a batch of records may have {MAX_BATCH_LENGTH}"
        )),
        _ => Ok(records),
    }
}
