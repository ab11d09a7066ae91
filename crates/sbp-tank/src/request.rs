//! What clients ask.

use bytes::{BufMut, Bytes};

use crate::coding::{Collector, Put, Reader, check_length, narrow, widen};
use crate::fault::Fault;
use crate::limits::{MAX_BUNDLE, MAX_KEY, MAX_REQUEST, PARTITIONS};

pub(crate) const PRODUCE: u8 = 1;
pub(crate) const CONSUME: u8 = 2;
pub(crate) const PING: u8 = 3;
pub(crate) const PRODUCE_NUMBERED: u8 = 5;
pub(crate) const DISCOVER_PARTITIONS: u8 = 6;
pub(crate) const CREATE_TOPIC: u8 = 7;
pub(crate) const STATUS: u8 = 10;
pub(crate) const DISCOVER_TOPICS: u8 = 11;
pub(crate) const TOPOLOGY: u8 = 12;

/// The version from which Consume has flags.
const FLAGS_FROM: u16 = 3;
/// What a client of this crate says that it is.
const VERSION: u16 = 2;
const CLIENT_ID: &[u8] = b"sbp";

/// What is asked for partitions of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic<T> {
    /// The topic's name, of at most 255 bytes.
    pub name: String,
    /// What is asked for each partition; at least one, at most 255.
    pub partitions: Vec<T>,
}

/// A bundle for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedTo {
    /// The partition.
    pub partition: u16,
    /// The number that its first message is to have; looked at only where the request is numbered.
    pub first: u64,
    /// The bundle.
    pub bundle: Bytes,
}

/// A partition to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumedFrom {
    /// The partition.
    pub partition: u16,
    /// The first message wanted; 0: the first that there is; [`crate::END`]: the next one to be produced.
    pub sequence: u64,
    /// Bytes of bundles, about.
    pub fetch_size: u32,
}

/// Bundles to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Produce {
    /// At least one topic.
    pub topics: Vec<Topic<ProducedTo>>,
    /// Whether the bundles are stored only where they continue their partitions at the numbers stated.
    pub is_numbered: bool,
    /// How many brokers have to have it; a single broker does not look at it.
    pub acks: u8,
    /// How long these may take, in milliseconds.
    pub ack_timeout_ms: u32,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Bundles to be stored.
    Produce(Produce),
    /// Messages to be read.
    Consume {
        /// At least one topic.
        topics: Vec<Topic<ConsumedFrom>>,
        /// How long to wait for messages, in milliseconds.
        wait_ms: u64,
        /// For how many bytes to wait.
        min_bytes: u32,
    },
    /// Which partitions a topic has, and what is in them.
    DiscoverPartitions {
        /// The topic.
        topic: String,
    },
    /// A new topic.
    CreateTopic {
        /// Its name.
        topic: String,
        /// How many partitions it has.
        partitions: u16,
        /// Its configuration, in the form of the broker's files.
        config: Bytes,
    },
    /// How the broker is.
    Status,
    /// Which topics there are.
    DiscoverTopics,
    /// Which brokers there are.
    Topology,
}

impl Request {
    /// Queues the request under its id.
    ///
    /// # Errors
    /// It has no place in a frame: it names too many topics or partitions or none, or is too long.
    pub(crate) fn collect(&self, id: u32) -> Result<(u8, Collector), Fault> {
        let mut frame = Collector::default();
        let out = &mut frame.head;
        let message = match self {
            Self::Produce(produce) => {
                produce.collect(id, &mut frame)?;
                match produce.is_numbered {
                    true => PRODUCE_NUMBERED,
                    false => PRODUCE,
                }
            }
            Self::Consume {
                topics,
                wait_ms,
                min_bytes,
            } => {
                put_client(id, out);
                out.put_u64_le(*wait_ms);
                out.put_u32_le(*min_bytes);
                put_topics(topics, &mut frame, |partition, frame| {
                    frame.head.put_u16_le(partition.partition);
                    frame.head.put_u64_le(partition.sequence);
                    frame.head.put_u32_le(partition.fetch_size);
                    Ok(())
                })?;
                CONSUME
            }
            Self::DiscoverPartitions { topic } => {
                out.put_u32_le(id);
                put_name(topic, out)?;
                DISCOVER_PARTITIONS
            }
            Self::CreateTopic {
                topic,
                partitions,
                config,
            } => {
                out.put_u32_le(id);
                put_name(topic, out)?;
                out.put_u16_le(*partitions);
                out.put_varint(narrow(config.len()));
                frame.share(config);
                CREATE_TOPIC
            }
            Self::Status => {
                out.put_u32_le(id);
                STATUS
            }
            Self::DiscoverTopics => {
                out.put_u32_le(id);
                out.put_u8(0);
                DISCOVER_TOPICS
            }
            Self::Topology => {
                out.put_u32_le(id);
                out.put_u8(0);
                TOPOLOGY
            }
        };
        check_length("a request", frame.length(), MAX_REQUEST)?;
        Ok((message, frame))
    }

    /// Reads a request, and its id.
    pub(crate) fn decode(message: u8, payload: &Bytes) -> Result<(u32, Self), Fault> {
        let mut reader = Reader::new(payload);
        let decoded = match message {
            PRODUCE | PRODUCE_NUMBERED => {
                let id = read_client(&mut reader)?;
                let is_numbered = message == PRODUCE_NUMBERED;
                (id, Self::Produce(Produce::read(&mut reader, payload, is_numbered)?))
            }
            CONSUME => read_consume(&mut reader)?,
            DISCOVER_PARTITIONS => {
                let id = reader.u32()?;
                let topic = reader.name()?;
                (id, Self::DiscoverPartitions { topic })
            }
            CREATE_TOPIC => {
                let (id, topic, partitions) = (reader.u32()?, reader.name()?, reader.u16()?);
                let config = payload.slice_ref(reader.framed()?);
                let create = Self::CreateTopic {
                    topic,
                    partitions,
                    config,
                };
                (id, create)
            }
            STATUS => (reader.u32()?, Self::Status),
            DISCOVER_TOPICS => {
                let id = reader.u32()?;
                reader.u8()?;
                (id, Self::DiscoverTopics)
            }
            TOPOLOGY => {
                let id = reader.u32()?;
                reader.u8()?;
                (id, Self::Topology)
            }
            code => return Err(Fault::Code(code)),
        };
        reader.end()?;
        Ok(decoded)
    }
}

impl Produce {
    fn collect(&self, id: u32, frame: &mut Collector) -> Result<(), Fault> {
        let out = &mut frame.head;
        put_client(id, out);
        out.put_u8(self.acks);
        out.put_u32_le(self.ack_timeout_ms);
        put_topics(&self.topics, frame, |to, frame| {
            check_length("a bundle", to.bundle.len(), MAX_BUNDLE)?;
            frame.head.put_u16_le(to.partition);
            frame.head.put_varint(narrow(to.bundle.len()));
            if self.is_numbered {
                frame.head.put_u64_le(to.first);
            }
            frame.share(&to.bundle);
            Ok(())
        })
    }

    fn read(reader: &mut Reader<'_>, payload: &Bytes, is_numbered: bool) -> Result<Self, Fault> {
        let (acks, ack_timeout_ms) = (reader.u8()?, reader.u32()?);
        let topics = read_topics(reader, |reader| {
            let partition = reader.u16()?;
            let length = widen(reader.varint()?);
            check_length("a bundle", length, MAX_BUNDLE)?;
            let first = match is_numbered {
                true => reader.u64()?,
                false => 0,
            };
            let bundle = payload.slice_ref(reader.bytes(length)?);
            Ok(ProducedTo {
                partition,
                first,
                bundle,
            })
        })?;
        Ok(Self {
            topics,
            is_numbered,
            acks,
            ack_timeout_ms,
        })
    }
}

fn read_consume(reader: &mut Reader<'_>) -> Result<(u32, Request), Fault> {
    let version = reader.u16()?;
    let id = reader.u32()?;
    reader.short()?;
    let (wait_ms, min_bytes) = (reader.u64()?, reader.u32()?);
    if version >= FLAGS_FROM {
        reader.u8()?;
    }
    let topics = read_topics(reader, |reader| {
        Ok(ConsumedFrom {
            partition: reader.u16()?,
            sequence: reader.u64()?,
            fetch_size: reader.u32()?,
        })
    })?;
    let consume = Request::Consume {
        topics,
        wait_ms,
        min_bytes,
    };
    Ok((id, consume))
}

fn put_client(id: u32, out: &mut impl BufMut) {
    out.put_u16_le(VERSION);
    out.put_u32_le(id);
    out.put_short(CLIENT_ID);
}

/// Version and name of the client say nothing that matters here. Its request's id.
fn read_client(reader: &mut Reader<'_>) -> Result<u32, Fault> {
    reader.u16()?;
    let id = reader.u32()?;
    reader.short()?;
    Ok(id)
}

fn put_name(name: &str, out: &mut impl BufMut) -> Result<(), Fault> {
    check_length("a name", name.len(), MAX_KEY)?;
    out.put_short(name.as_bytes());
    Ok(())
}

fn put_topics<T>(
    topics: &[Topic<T>],
    frame: &mut Collector,
    mut put: impl FnMut(&T, &mut Collector) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if topics.is_empty() || topics.iter().any(|topic| topic.partitions.is_empty()) {
        return Err(Fault::Nothing);
    }
    check_length("the list of topics", topics.len(), PARTITIONS)?;
    frame.head.put_u8(narrow(topics.len()));
    for topic in topics {
        put_name(&topic.name, &mut frame.head)?;
        check_length("the list of partitions", topic.partitions.len(), PARTITIONS)?;
        frame.head.put_u8(narrow(topic.partitions.len()));
        for partition in &topic.partitions {
            put(partition, frame)?;
        }
    }
    Ok(())
}

fn read_topics<'a, T>(
    reader: &mut Reader<'a>,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, Fault>,
) -> Result<Vec<Topic<T>>, Fault> {
    let mut topics = Vec::new();
    for _ in 0..reader.u8()? {
        let name = reader.name()?;
        let mut partitions = Vec::new();
        for _ in 0..reader.u8()? {
            partitions.push(read(reader)?);
        }
        if partitions.is_empty() {
            return Err(Fault::Nothing);
        }
        topics.push(Topic { name, partitions });
    }
    match topics.is_empty() {
        true => Err(Fault::Nothing),
        false => Ok(topics),
    }
}
