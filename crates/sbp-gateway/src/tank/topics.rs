//! What clients ask about topics, and new ones.

use std::collections::BTreeMap;

use sbp_client::ClientError;
use sbp_messages::{ErrorCode, Stream};
use sbp_tank::{Answer, Discovered, PartitionBounds, TopicSummary};
use sbp_types::Offset;

use super::Shared;
use super::consume::number_before;
use super::partitions::{Partition, Partitions};
use crate::names::{is_topic, stream_of};
use crate::records::number_at;

/// The version that this broker says it has, times 100.
const VERSION: u32 = 400;

/// Codes of an answer to CreateTopic.
const MADE: u8 = 0;
const EXISTS: u8 = 1;
const SYSTEM: u8 = 2;
const CONFIG: u8 = 4;
const BAD: u8 = 10;

impl Shared {
    pub(super) async fn status(&self) -> Answer {
        let topics = self.catalog.all().await.unwrap_or_default();
        let partitions: usize = topics.values().map(BTreeMap::len).sum();
        Answer::Status {
            topics: u32::try_from(topics.len()).unwrap_or(u32::MAX),
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            version: VERSION,
        }
    }

    /// `None`: it is not known at the moment, and no answer says so.
    pub(super) async fn topics(&self) -> Option<Answer> {
        let topics = self.catalog.all().await.map_err(told).ok()?;
        let mut summaries: Vec<_> = topics
            .iter()
            .map(|(name, partitions)| TopicSummary {
                name: name.clone(),
                is_enabled: true,
                partitions: count(partitions),
            })
            .collect();
        summaries.sort_by(|one, other| one.name.cmp(&other.name));
        Some(Answer::Topics(summaries))
    }

    /// `None`: it is not known at the moment, and no answer says so.
    pub(super) async fn partitions(&self, topic: &str) -> Option<Answer> {
        let topics = self
            .catalog
            .all_with(|topics| topics.contains_key(topic))
            .await
            .map_err(told)
            .ok()?;
        let none = Partitions::new();
        let known = topics.get(topic).unwrap_or(&none);
        let bounds = self.bounds(known).await.map_err(told).ok()?;
        let each = (0..count(known)).map(|number| bounds.get(&number).copied().unwrap_or(Discovered::Unavailable));
        Some(Answer::Partitions {
            topic: topic.to_owned(),
            partitions: each.collect(),
        })
    }

    /// Where each partition begins and ends, as far as it can be asked.
    async fn bounds(&self, known: &Partitions) -> Result<BTreeMap<u16, Discovered>, ClientError> {
        let ids: Vec<_> = known.values().map(|partition| partition.stream).collect();
        let each = self.client.positions(&ids, None).await?;
        let mut bounds = BTreeMap::new();
        for ((number, partition), held) in known.iter().zip(each) {
            let found = match held {
                Ok(held) => self.bounds_of(partition, held.earliest, held.latest).await,
                Err(error) => Err(error),
            };
            let found = found.map_or_else(
                |error| {
                    told(error);
                    Discovered::Unavailable
                },
                Discovered::Here,
            );
            bounds.insert(*number, found);
        }
        Ok(bounds)
    }

    async fn bounds_of(
        &self,
        partition: &Partition,
        earliest: Offset,
        latest: Offset,
    ) -> Result<PartitionBounds, ClientError> {
        if latest <= earliest {
            return Ok(PartitionBounds {
                first: 0,
                high_water: 0,
            });
        }
        let offset = u64::try_from(earliest.0).unwrap_or(0);
        let first = number_at(&self.client, partition.stream, partition.numbers, offset).await?;
        Ok(PartitionBounds {
            first: first.unwrap_or(0),
            high_water: number_before(self, partition, latest).await?,
        })
    }

    /// Makes a topic: a stream for each partition.
    pub(super) async fn create(&self, topic: &str, partitions: u16, config: &[u8]) -> Answer {
        let code = self.try_create(topic, partitions, config).await;
        self.catalog.forget();
        Answer::Created {
            topic: topic.to_owned(),
            code,
        }
    }

    async fn try_create(&self, topic: &str, partitions: u16, config: &[u8]) -> u8 {
        if !is_topic(topic) || partitions == 0 || partitions == u16::MAX {
            return BAD;
        }
        // Settings of streams are made with `sbp stream`; what is asked for here and not done would be a lie.
        if !config.trim_ascii().is_empty() {
            return CONFIG;
        }
        match self.catalog.all_with(|topics| topics.contains_key(topic)).await {
            Ok(topics) if topics.contains_key(topic) => return EXISTS,
            Ok(_) => {}
            Err(error) => {
                told(error);
                return SYSTEM;
            }
        }
        let wanted = (0..partitions).map(|partition| Stream {
            name: stream_of(topic, partition),
            ..Stream::default()
        });
        let created = match self.client.create_streams(wanted.collect(), None).await {
            Ok(created) => created,
            Err(error) => {
                told(error);
                return SYSTEM;
            }
        };
        match created.into_iter().find_map(Result::err) {
            None => MADE,
            Some(error) if error.code() == ErrorCode::ALREADY_EXISTS => EXISTS,
            Some(error) => {
                told(error);
                SYSTEM
            }
        }
    }
}

/// How many partitions there are, those that are missing between others included.
fn count(partitions: &Partitions) -> u16 {
    partitions
        .last_key_value()
        .map_or(0, |(last, _)| last.saturating_add(1))
}

fn told(error: ClientError) {
    tracing::warn!(%error, "a client of TANK cannot be answered");
}
