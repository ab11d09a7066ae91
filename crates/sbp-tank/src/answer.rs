//! What brokers answer.

use std::net::SocketAddrV4;

use bytes::{BufMut, Bytes};

use crate::coding::{Collector, Put, Reader, check_length, narrow};
use crate::fault::Fault;
use crate::limits::{MAX_ANSWER, MAX_HEADER, PARTITIONS};
use crate::outcome::{PartitionState, Produced, read_endpoint, write_endpoint};
use crate::request::{CONSUME, CREATE_TOPIC, DISCOVER_PARTITIONS, DISCOVER_TOPICS, PRODUCE, STATUS, TOPOLOGY};

/// Where a partition begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionBounds {
    /// The first message that there is; 0 while there is none.
    pub first: u64,
    /// The last one; 0 while there is none.
    pub high_water: u64,
}

/// What a broker says of a partition that it is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovered {
    /// It serves it.
    Here(PartitionBounds),
    /// Another broker leads it.
    OtherLeader(SocketAddrV4),
    /// It cannot be asked at the moment: it has no leader, or the broker cannot read it.
    Unavailable,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSummary {
    /// Its name.
    pub name: String,
    /// Whether the broker serves it.
    pub is_enabled: bool,
    /// How many partitions it has.
    pub partitions: u16,
}

/// What of a partition was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumption {
    /// The partition.
    pub partition: u16,
    /// What there is. Its length is that of the bundles, whatever it says.
    pub state: PartitionState,
    /// Bundles, whole or cut anywhere, each behind its length.
    pub bundles: Vec<Bytes>,
}

/// What of a topic was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumedTopic {
    /// The topic.
    pub name: String,
    /// Its partitions as they were asked for; none: there is no such topic.
    pub partitions: Vec<Consumption>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// What became of bundles: for each topic of the request, for each of its partitions.
    Produced(Vec<Vec<Produced>>),
    /// What was read. A client is told of it piece by piece instead: [`crate::Event::Consumed`].
    Consumed(Vec<ConsumedTopic>),
    /// The partitions of a topic. No partition: no such topic.
    Partitions {
        /// The topic.
        topic: String,
        /// Its partitions, from 0 on.
        partitions: Vec<Discovered>,
    },
    /// What became of a new topic.
    Created {
        /// The topic.
        topic: String,
        /// 0: it was made; 1: it exists; 2: the system failed; 4: its configuration; 10: its name or number of partitions.
        code: u8,
    },
    /// How the broker is.
    Status {
        /// Its topics.
        topics: u32,
        /// Their partitions.
        partitions: u32,
        /// The broker's version times 100.
        version: u32,
    },
    /// The topics there are.
    Topics(Vec<TopicSummary>),
    /// The broker stands alone, or is one of several.
    Topology {
        /// Whether it stands alone.
        is_alone: bool,
    },
}

/// What a request was, as far as its answer is read with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The number of partitions of each topic.
    Produce(Vec<usize>),
    Consume,
    Partitions,
    Create,
    Status,
    Topics,
    Topology,
}

impl Asked {
    /// The message that answers it.
    pub(crate) fn message(&self) -> u8 {
        match self {
            Self::Produce(_) => PRODUCE,
            Self::Consume => CONSUME,
            Self::Partitions => DISCOVER_PARTITIONS,
            Self::Create => CREATE_TOPIC,
            Self::Status => STATUS,
            Self::Topics => DISCOVER_TOPICS,
            Self::Topology => TOPOLOGY,
        }
    }
}

impl Answer {
    /// Reads what follows the request's id. Not for Consume, whose answers are read piece by piece.
    pub(crate) fn read(asked: &Asked, reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let answer = match asked {
            Asked::Produce(partitions) => {
                let outcomes = partitions.iter().map(|count| read_outcomes(reader, *count));
                Self::Produced(outcomes.collect::<Result<_, _>>()?)
            }
            Asked::Consume => return Err(Fault::Code(CONSUME)),
            Asked::Partitions => read_partitions(reader)?,
            Asked::Create => Self::Created {
                topic: reader.name()?,
                code: reader.u8()?,
            },
            Asked::Status => read_status(reader)?,
            Asked::Topics => read_summaries(reader)?,
            Asked::Topology => {
                let is_alone = reader.u16()? == u16::MAX;
                if !is_alone {
                    // Brokers of a cluster are told in a form that nobody here looks at.
                    reader.bytes(reader.left())?;
                }
                Self::Topology { is_alone }
            }
        };
        reader.end()?;
        Ok(answer)
    }

    /// The answer to the request with this id, as a frame.
    pub(crate) fn collect(&self, id: u32) -> Result<(u8, Collector), Fault> {
        let mut frame = Collector::default();
        let out = &mut frame.head;
        let message = match self {
            Self::Produced(topics) => {
                out.put_u32_le(id);
                for outcomes in topics {
                    let stands_for_all = outcomes.first().is_some_and(|outcome| outcome.is_of_topic());
                    let written = match stands_for_all {
                        true => 1,
                        false => outcomes.len(),
                    };
                    for outcome in outcomes.iter().take(written) {
                        outcome.write(out);
                    }
                }
                PRODUCE
            }
            Self::Consumed(topics) => {
                collect_consumed(id, topics, &mut frame)?;
                CONSUME
            }
            Self::Partitions { topic, partitions } => {
                out.put_u32_le(id);
                out.put_short(topic.as_bytes());
                out.put_u16_le(narrow(partitions.len()));
                partitions.iter().for_each(|partition| partition.write(out));
                DISCOVER_PARTITIONS
            }
            Self::Created { topic, code } => {
                out.put_u32_le(id);
                out.put_short(topic.as_bytes());
                out.put_u8(*code);
                CREATE_TOPIC
            }
            Self::Status {
                topics,
                partitions,
                version,
            } => {
                out.put_u32_le(id);
                out.put_u16_le(0);
                for number in [*topics, *partitions, 0, 0, 0, *version] {
                    out.put_u32_le(number);
                }
                STATUS
            }
            Self::Topics(topics) => {
                out.put_u32_le(id);
                out.put_u32_le(narrow(topics.len()));
                out.put_u8(0);
                for topic in topics {
                    out.put_short(topic.name.as_bytes());
                    out.put_u8(u8::from(topic.is_enabled));
                    out.put_u16_le(topic.partitions);
                }
                DISCOVER_TOPICS
            }
            Self::Topology { is_alone } => {
                out.put_u32_le(id);
                out.put_u16_le(if *is_alone { u16::MAX } else { 0 });
                TOPOLOGY
            }
        };
        check_length("an answer", frame.length(), MAX_ANSWER)?;
        Ok((message, frame))
    }
}

/// Why a partition cannot be asked here.
const SYSTEM_REASON: u8 = 0xfb;
const NO_LEADER_REASON: u8 = 0xfd;
const OTHER_LEADER_REASON: u8 = 0xfc;

/// The codes for the partitions of a topic, in which one may stand for all.
fn read_outcomes(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Produced>, Fault> {
    let mut outcomes = Vec::new();
    while outcomes.len() < count {
        let outcome = Produced::read(reader)?;
        if outcomes.is_empty() && outcome.is_of_topic() {
            return Ok(vec![outcome; count]);
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

impl Discovered {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (first, high_water) = (reader.u64()?, reader.u64()?);
        if (first, high_water) != (u64::MAX, u64::MAX) {
            return Ok(Self::Here(PartitionBounds { first, high_water }));
        }
        Ok(match reader.u8()? {
            SYSTEM_REASON | NO_LEADER_REASON => Self::Unavailable,
            OTHER_LEADER_REASON => Self::OtherLeader(read_endpoint(reader)?),
            code => return Err(Fault::Code(code)),
        })
    }

    fn write(self, out: &mut impl BufMut) {
        match self {
            Self::Here(PartitionBounds { first, high_water }) => {
                out.put_u64_le(first);
                out.put_u64_le(high_water);
            }
            Self::OtherLeader(leader) => {
                out.put_bytes(0xff, 16);
                out.put_u8(OTHER_LEADER_REASON);
                write_endpoint(leader, out);
            }
            Self::Unavailable => {
                out.put_bytes(0xff, 16);
                out.put_u8(SYSTEM_REASON);
            }
        }
    }
}

fn read_partitions(reader: &mut Reader<'_>) -> Result<Answer, Fault> {
    let topic = reader.name()?;
    let count = reader.u16()?;
    let partitions = (0..count).map(|_| Discovered::read(reader)).collect::<Result<_, _>>()?;
    Ok(Answer::Partitions { topic, partitions })
}

fn read_status(reader: &mut Reader<'_>) -> Result<Answer, Fault> {
    // Two bytes, and numbers of the broker's own.
    reader.u16()?;
    let (topics, partitions) = (reader.u32()?, reader.u32()?);
    for _ in 0..3 {
        reader.u32()?;
    }
    let version = reader.u32()?;
    Ok(Answer::Status {
        topics,
        partitions,
        version,
    })
}

fn read_summaries(reader: &mut Reader<'_>) -> Result<Answer, Fault> {
    let count = reader.u32()?;
    reader.u8()?;
    let mut topics = Vec::new();
    for _ in 0..count {
        topics.push(TopicSummary {
            name: reader.name()?,
            is_enabled: reader.u8()? != 0,
            partitions: reader.u16()?,
        });
    }
    Ok(Answer::Topics(topics))
}

/// The id that stands for a topic's partitions where there is no such topic.
const NO_TOPIC: u16 = u16::MAX;

/// A header in front of bundles, and these.
fn collect_consumed(id: u32, topics: &[ConsumedTopic], frame: &mut Collector) -> Result<(), Fault> {
    let mut header = Vec::new();
    header.put_u32_le(id);
    check_length("the list of topics", topics.len(), PARTITIONS)?;
    header.put_u8(narrow(topics.len()));
    for topic in topics {
        header.put_short(topic.name.as_bytes());
        check_length("the list of partitions", topic.partitions.len(), PARTITIONS)?;
        if topic.partitions.is_empty() {
            header.put_u8(1);
            header.put_u16_le(NO_TOPIC);
            continue;
        }
        header.put_u8(narrow(topic.partitions.len()));
        for partition in &topic.partitions {
            let length: usize = partition.bundles.iter().map(Bytes::len).sum();
            header.put_u16_le(partition.partition);
            with_length(partition.state, narrow(length)).write(&mut header);
        }
    }
    check_length("the header of an answer", header.len(), MAX_HEADER)?;
    frame.head.put_u32_le(narrow(header.len()));
    frame.head.put_slice(&header);
    for topic in topics {
        for partition in &topic.partitions {
            if let PartitionState::Data { .. } = partition.state {
                partition.bundles.iter().for_each(|bundle| frame.share(bundle));
            }
        }
    }
    Ok(())
}

fn with_length(state: PartitionState, length: u32) -> PartitionState {
    match state {
        PartitionState::Data { base, high_water, .. } => PartitionState::Data {
            base,
            high_water,
            length,
        },
        state => state,
    }
}

/// A partition in the header of an answer to Consume, with its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Headed {
    pub(crate) topic: String,
    pub(crate) partition: Option<u16>,
    pub(crate) state: PartitionState,
}

/// Reads the header of an answer to Consume behind the request's id.
pub(crate) fn read_header(reader: &mut Reader<'_>) -> Result<Vec<Headed>, Fault> {
    let mut partitions = Vec::new();
    let topics = reader.u8()?;
    if topics == 0 {
        return Err(Fault::Nothing);
    }
    for _ in 0..topics {
        let topic = reader.name()?;
        let count = reader.u8()?;
        for place in 0..count {
            let partition = reader.u16()?;
            if place == 0 && partition == NO_TOPIC {
                partitions.push(Headed {
                    topic: topic.clone(),
                    partition: None,
                    state: PartitionState::UnknownTopic,
                });
                break;
            }
            partitions.push(Headed {
                topic: topic.clone(),
                partition: Some(partition),
                state: PartitionState::read(reader)?,
            });
        }
    }
    reader.end()?;
    Ok(partitions)
}
