//! The codes that answers have for each partition.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::BufMut;

use crate::coding::Reader;
use crate::fault::Fault;

/// What became of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Produced {
    /// It is stored.
    Done,
    /// There is no such topic.
    UnknownTopic,
    /// The topic has no such partition.
    UnknownPartition,
    /// The broker cannot store it: it cannot read the bundle, or its disk fails.
    Refused,
    /// It was not acknowledged in time.
    Late,
    /// Too few brokers have it.
    Replicas,
    /// It does not continue the partition at the number that it was sent with.
    Number,
    /// The broker cannot at the moment.
    Unavailable,
    /// The partition has no leader.
    NoLeader,
    /// Another broker has to be asked.
    OtherLeader(SocketAddrV4),
    /// A code that this version does not know.
    Other(u8),
}

/// Codes that stand for a whole topic.
const UNKNOWN_TOPIC: u8 = 0xff;
const UNAVAILABLE: u8 = 0xfe;
const NO_LEADER: u8 = 0xfd;
const OTHER_LEADER: u8 = 0xfc;

impl Produced {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match reader.u8()? {
            0 => Self::Done,
            1 => Self::UnknownPartition,
            2 => Self::Refused,
            3 => Self::Late,
            4 => Self::Replicas,
            10 => Self::Number,
            UNKNOWN_TOPIC => Self::UnknownTopic,
            UNAVAILABLE => Self::Unavailable,
            NO_LEADER => Self::NoLeader,
            OTHER_LEADER => Self::OtherLeader(read_endpoint(reader)?),
            code => Self::Other(code),
        })
    }

    pub(crate) fn write(self, out: &mut impl BufMut) {
        match self {
            Self::Done => out.put_u8(0),
            Self::UnknownPartition => out.put_u8(1),
            Self::Refused => out.put_u8(2),
            Self::Late => out.put_u8(3),
            Self::Replicas => out.put_u8(4),
            Self::Number => out.put_u8(10),
            Self::UnknownTopic => out.put_u8(UNKNOWN_TOPIC),
            Self::Unavailable => out.put_u8(UNAVAILABLE),
            Self::NoLeader => out.put_u8(NO_LEADER),
            Self::OtherLeader(endpoint) => {
                out.put_u8(OTHER_LEADER);
                write_endpoint(endpoint, out);
            }
            Self::Other(code) => out.put_u8(code),
        }
    }

    /// Whether it stands once for all partitions of its topic.
    pub(crate) fn is_of_topic(self) -> bool {
        matches!(self, Self::UnknownTopic | Self::Unavailable)
    }
}

impl fmt::Display for Produced {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => formatter.write_str("stored"),
            Self::UnknownTopic => formatter.write_str("the broker has no such topic"),
            Self::UnknownPartition => formatter.write_str("the topic has no such partition"),
            Self::Refused => formatter.write_str("the broker cannot read the bundle, or not write it to its disk"),
            Self::Late => formatter.write_str("the brokers did not acknowledge it in time"),
            Self::Replicas => formatter.write_str("too few brokers have it"),
            Self::Number => formatter.write_str("it does not continue the partition at its number"),
            Self::Unavailable => formatter.write_str("the broker cannot serve this at the moment"),
            Self::NoLeader => formatter.write_str("no broker leads the partition at the moment"),
            Self::OtherLeader(endpoint) => write!(formatter, "the broker at {endpoint} has to be asked"),
            Self::Other(code) => write!(formatter, "the broker says code {code}"),
        }
    }
}

/// What an answer to Consume says of a partition, before its bundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionState {
    /// Bundles follow, or nothing is there yet.
    Data {
        /// The number of the first message of the first bundle; `None`: that bundle is sparse, and says it itself.
        base: Option<u64>,
        /// The number of the last message that is there.
        high_water: u64,
        /// Bytes of the bundles.
        length: u32,
    },
    /// What was asked for is below the first message or beyond the last.
    OutOfBounds {
        /// The number of the last message that is there.
        high_water: u64,
        /// That of the first one.
        first_available: u64,
    },
    /// There is no such topic.
    UnknownTopic,
    /// The topic has no such partition.
    UnknownPartition,
    /// The broker cannot at the moment.
    Unavailable,
    /// The partition has no leader.
    NoLeader,
    /// Another broker has to be asked.
    OtherLeader(SocketAddrV4),
}

/// Codes of an answer to Consume.
const OUT_OF_BOUNDS: u8 = 1;
const FIRST_IS_SPARSE: u8 = 0xfe;
const SYSTEM: u8 = 0xfb;
const UNKNOWN_PARTITION: u8 = 0xff;

impl PartitionState {
    /// Reads what follows a partition's id.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let code = reader.u8()?;
        Ok(match code {
            0 | OUT_OF_BOUNDS => {
                let (base, high_water, length) = (reader.u64()?, reader.u64()?, reader.u32()?);
                match code {
                    0 => Self::Data {
                        base: Some(base),
                        high_water,
                        length,
                    },
                    _ => Self::OutOfBounds {
                        high_water,
                        first_available: reader.u64()?,
                    },
                }
            }
            FIRST_IS_SPARSE => Self::Data {
                base: None,
                high_water: reader.u64()?,
                length: reader.u32()?,
            },
            UNKNOWN_PARTITION => Self::UnknownPartition,
            SYSTEM => Self::Unavailable,
            NO_LEADER => Self::NoLeader,
            OTHER_LEADER => Self::OtherLeader(read_endpoint(reader)?),
            code => return Err(Fault::Code(code)),
        })
    }

    pub(crate) fn write(self, out: &mut impl BufMut) {
        match self {
            Self::Data {
                base,
                high_water,
                length,
            } => {
                match base {
                    Some(base) => {
                        out.put_u8(0);
                        out.put_u64_le(base);
                    }
                    None => out.put_u8(FIRST_IS_SPARSE),
                }
                out.put_u64_le(high_water);
                out.put_u32_le(length);
            }
            Self::OutOfBounds {
                high_water,
                first_available,
            } => {
                out.put_u8(OUT_OF_BOUNDS);
                out.put_u64_le(0);
                out.put_u64_le(high_water);
                out.put_u32_le(0);
                out.put_u64_le(first_available);
            }
            Self::UnknownTopic | Self::UnknownPartition => out.put_u8(UNKNOWN_PARTITION),
            Self::Unavailable => out.put_u8(SYSTEM),
            Self::NoLeader => out.put_u8(NO_LEADER),
            Self::OtherLeader(endpoint) => {
                out.put_u8(OTHER_LEADER);
                write_endpoint(endpoint, out);
            }
        }
    }

    /// Bytes of bundles that follow for it.
    pub(crate) fn length(self) -> u32 {
        match self {
            Self::Data { length, .. } => length,
            _ => 0,
        }
    }
}

/// An address of a broker: the four bytes of its address, and its port.
pub(crate) fn read_endpoint(reader: &mut Reader<'_>) -> Result<SocketAddrV4, Fault> {
    let address = Ipv4Addr::from_octets([reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?]);
    Ok(SocketAddrV4::new(address, reader.u16()?))
}

pub(crate) fn write_endpoint(endpoint: SocketAddrV4, out: &mut impl BufMut) {
    out.put_slice(&endpoint.ip().octets());
    out.put_u16_le(endpoint.port());
}
