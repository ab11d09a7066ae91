//! Which topics the service's streams stand for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sbp_messages::Stream;
use sbp_types::StreamId;

use crate::catalog::Meaning;
use crate::names::topic_of;
use crate::numbers::Numbers;

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

impl Meaning for Topics {
    fn of(streams: &[Arc<Stream>]) -> Self {
        topics_of(streams)
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
