//! A client of TANK brokers: produce, read, and ask what there is.
//!
//! A [`Broker`] has one connection, made when there is something to say and again when it is lost. A [`Reader`] reads
//! partitions of a topic from one position to another.

mod broker;
mod bundles;
mod connection;
mod error;
mod positions;
mod reader;
mod shared;
mod times;

pub use broker::{Broker, BrokerConfig};
pub use bundles::{ReadBatch, ReadBundle};
pub use error::{Gap, TankError, TankErrorKind};
pub use reader::{End, ReadOptions, ReadPart, Reader, Start};
pub use sbp_tank::{EncodeError, MAX_KEY, Message, PartitionBounds, TopicSummary, encode_bundle, encode_sparse_bundle};
