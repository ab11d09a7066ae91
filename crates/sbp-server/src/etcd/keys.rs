//! The keys of one cluster in an etcd. Numbers are in base 16 with as many digits as they can have, so that keys are in the
//! order of the numbers.

use bytes::Bytes;
use sbp_types::{RangeIndex, RangeKey, ServerId, StreamId};

/// The keys of a cluster with this name.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    id: String,
}

/// What a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Who leads, who lives, how many transactions there were: what is read by itself.
    Apart,
    /// The ids that come next.
    Next,
    Stream(StreamId),
    Range(RangeKey),
    Server(ServerId),
    /// A deleted stream.
    Buried(StreamId),
}

impl Keys {
    pub(super) fn new(cluster: &str) -> Self {
        Self {
            prefix: format!("/sbp/{cluster}/v1/"),
            id: format!("/sbp/{cluster}/id"),
        }
    }

    fn key(&self, rest: impl AsRef<str>) -> Bytes {
        Bytes::from([&self.prefix, rest.as_ref()].concat())
    }

    /// The cluster's id. It is beside all others and not among them: a placement driver of an earlier version would not know it
    /// there, and could not lead.
    pub(super) fn id(&self) -> Bytes {
        Bytes::from(self.id.clone())
    }

    /// What all others begin with.
    pub(super) fn all(&self) -> Bytes {
        self.key("")
    }

    /// Put by whoever leads, under its lease.
    pub(super) fn leader(&self) -> Bytes {
        self.key("leader")
    }

    /// Put by each placement driver that lives, under its lease.
    pub(super) fn driver(&self, address: &str) -> Bytes {
        self.key(["driver/", address].concat())
    }

    /// What the keys of placement drivers begin with.
    pub(super) fn drivers(&self) -> Bytes {
        self.driver("")
    }

    /// Raised by each transaction.
    pub(super) fn count(&self) -> Bytes {
        self.key("count")
    }

    pub(super) fn next(&self) -> Bytes {
        self.key("next")
    }

    pub(super) fn stream(&self, id: StreamId) -> Bytes {
        self.key(format!("stream/{:016x}", id.0))
    }

    pub(super) fn range(&self, key: RangeKey) -> Bytes {
        self.key(format!("range/{:016x}/{:08x}", key.stream.0, key.range.0))
    }

    /// What the keys of a stream's ranges begin with.
    pub(super) fn ranges(&self, stream: StreamId) -> Bytes {
        self.key(format!("range/{:016x}/", stream.0))
    }

    pub(super) fn server(&self, id: ServerId) -> Bytes {
        self.key(format!("server/{:08x}", id.0))
    }

    /// What the keys of range servers begin with.
    pub(super) fn servers(&self) -> Bytes {
        self.key("server/")
    }

    pub(super) fn buried(&self, stream: StreamId) -> Bytes {
        self.key(format!("buried/{:016x}", stream.0))
    }

    /// The address in the key of a placement driver.
    pub(super) fn address_of(&self, key: &[u8]) -> Option<String> {
        let address = key.strip_prefix(&*self.drivers())?;
        String::from_utf8(address.to_vec()).ok()
    }

    /// What a key of this cluster has; `None` for one that this version does not know.
    pub(super) fn name(&self, key: &[u8]) -> Option<Named> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (kind, rest) = rest.split_once('/').unwrap_or((rest, ""));
        Some(match (kind, rest) {
            ("leader" | "count", "") | ("driver", _) => Named::Apart,
            ("next", "") => Named::Next,
            ("stream", id) => Named::Stream(StreamId(long(id)?)),
            ("buried", id) => Named::Buried(StreamId(long(id)?)),
            ("server", id) => Named::Server(ServerId(int(id)?)),
            ("range", rest) => {
                let (stream, range) = rest.split_once('/')?;
                Named::Range(RangeKey {
                    stream: StreamId(long(stream)?),
                    range: RangeIndex(int(range)?),
                })
            }
            _ => return None,
        })
    }
}

/// Reads sixteen digits.
pub(super) fn long(digits: &str) -> Option<i64> {
    let number = (digits.len() == 16).then(|| i64::from_str_radix(digits, 16).ok());
    number.flatten()
}

/// Reads eight digits.
pub(super) fn int(digits: &str) -> Option<i32> {
    let number = (digits.len() == 8).then(|| i32::from_str_radix(digits, 16).ok());
    number.flatten()
}
