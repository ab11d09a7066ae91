//! The topics that the service's streams stand for, at most a second old.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_client::{Client, ClientError};
use sbp_locks::Mutex;
use sbp_messages::Stream;
use sbp_types::StreamId;

use crate::names::topic_of;
use crate::numbers::Numbers;

/// How old what is known may be.
const OLDEST: Duration = Duration::from_secs(1);

/// A partition: its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) stream: StreamId,
    pub(crate) numbers: Numbers,
}

/// The partitions of a topic, by their numbers.
pub(crate) type Partitions = BTreeMap<u16, Partition>;

/// All topics by name.
pub(crate) type Topics = HashMap<String, Partitions>;

/// What is known of the service's streams.
#[derive(Debug)]
pub(crate) struct Catalog {
    client: Client,
    known: Mutex<Option<Known>>,
    /// Held by whoever asks.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Known {
    topics: Arc<Topics>,
    /// When it was asked for.
    asked: Instant,
}

impl Catalog {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::new(None),
            asking: tokio::sync::Mutex::new(()),
        }
    }

    /// All topics.
    pub(crate) async fn topics(&self) -> Result<Arc<Topics>, ClientError> {
        let now = Instant::now();
        self.asked_since(now.checked_sub(OLDEST).unwrap_or(now)).await
    }

    /// The topics, in which this one is, if there is such a topic now: a topic that is not known is asked for again.
    pub(crate) async fn topics_with(&self, topic: &str) -> Result<Arc<Topics>, ClientError> {
        let now = Instant::now();
        let topics = self.topics().await?;
        match topics.contains_key(topic) {
            true => Ok(topics),
            false => self.asked_since(now).await,
        }
    }

    /// What was asked for at this time or later.
    async fn asked_since(&self, since: Instant) -> Result<Arc<Topics>, ClientError> {
        let known = || self.known.lock().as_ref().filter(|known| known.asked >= since).cloned();
        if let Some(known) = known() {
            return Ok(known.topics);
        }
        let _asking = self.asking.lock().await;
        // Somebody else may have asked meanwhile.
        if let Some(known) = known() {
            return Ok(known.topics);
        }
        let asked = Instant::now();
        let streams = self.client.list_streams(None).await?;
        let topics = Arc::new(topics_of(&streams));
        *self.known.lock() = Some(Known {
            topics: Arc::clone(&topics),
            asked,
        });
        Ok(topics)
    }

    /// Something was created: what was known before is not looked at any more.
    pub(crate) fn forget(&self) {
        *self.known.lock() = None;
    }
}

fn topics_of(streams: &[Arc<Stream>]) -> Topics {
    let mut topics = Topics::new();
    let mut whole = Vec::new();
    for stream in streams.iter().filter(|stream| stream.schema.is_none()) {
        let partition = Partition {
            stream: stream.stream_id,
            numbers: Numbers::of(stream),
        };
        match topic_of(&stream.name) {
            Some((topic, Some(number))) => {
                topics.entry(topic.to_owned()).or_default().insert(number, partition);
            }
            Some((topic, None)) => whole.push((topic, partition)),
            None => {}
        }
    }
    for (topic, partition) in whole {
        topics
            .entry(topic.to_owned())
            .or_default()
            .entry(0)
            .or_insert(partition);
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: i64, name: &str) -> Arc<Stream> {
        Arc::new(Stream {
            stream_id: StreamId(id),
            name: name.to_owned(),
            ..Stream::default()
        })
    }

    #[test]
    fn streams_are_partitions_of_topics() {
        let typed = Stream {
            schema: Some(bytes::Bytes::new()),
            ..Stream::clone(&stream(9, "rows/0"))
        };
        let streams = [
            stream(1, "a/1"),
            stream(2, "a"),
            stream(3, "b"),
            stream(4, "b/0"),
            stream(5, "not.a.topic"),
            stream(6, ""),
            Arc::new(typed),
        ];
        let topics = topics_of(&streams);
        let ids = |topic: &str| {
            let partitions = topics.get(topic).into_iter().flatten();
            partitions
                .map(|(number, partition)| (*number, partition.stream.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(ids("a"), [(0, 2), (1, 1)]);
        // A stream with the partition's number comes first.
        assert_eq!(ids("b"), [(0, 4)]);
        assert_eq!(topics.len(), 2);
    }
}
