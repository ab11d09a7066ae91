//! What is asked of etcd, and what it answers, without anything of how both travel.

use bytes::Bytes;

use crate::message::{
    AnyRequest, CREATE, CompareRequest, Compared, DeleteRangeRequest, EQUAL, PutRequest, RangeRequest, RangeResponse,
    RequestOp, StoredKey, TxnRequest, TxnResponse, VALUE,
};

/// A lease: keys that were put under it go when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The revision of the store at which the key was put where there was none.
    pub create_revision: i64,
    /// The revision at which it was put last.
    pub mod_revision: i64,
    /// The lease that it goes with.
    pub lease: Option<LeaseId>,
}

impl From<StoredKey> for KeyValue {
    fn from(stored: StoredKey) -> Self {
        Self {
            key: stored.key,
            value: stored.value,
            create_revision: stored.create_revision,
            mod_revision: stored.mod_revision,
            lease: Some(stored.lease).filter(|lease| *lease != 0).map(LeaseId),
        }
    }
}

/// What has to hold so that a transaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// There is no such key.
    Absent(Bytes),
    /// The key was created at this revision, and is there since.
    CreatedAt(Bytes, i64),
    /// The key has this value.
    Has(Bytes, Bytes),
}

/// What a transaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The key has this value from then on, and goes with the lease if there is one.
    Put(Bytes, Bytes, Option<LeaseId>),
    /// The key is removed, if it is there.
    Delete(Bytes),
    /// All keys that begin so are removed.
    DeletePrefix(Bytes),
}

/// Writes that are made all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All must hold, or nothing is written.
    pub compares: Vec<Compare>,
    /// No key is written twice: etcd refuses that.
    pub writes: Vec<Write>,
    /// The keys to read where something does not hold.
    pub otherwise_read: Vec<Bytes>,
}

/// A transaction that etcd has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Everything held, and everything is written.
    Done {
        /// The revision of the store that has it.
        revision: i64,
    },
    /// Something did not hold, and nothing was written.
    Refused {
        /// The keys that were to be read then, as they were at that moment; `None`: there is none.
        found: Vec<Option<KeyValue>>,
    },
}

/// Which keys to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// How they begin.
    pub prefix: Bytes,
    /// The last one read already.
    pub after: Option<Bytes>,
    /// How many at most.
    pub limit: u32,
    /// The revision of the store to read; `None`: the newest.
    pub revision: Option<i64>,
}

/// Keys in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The keys with their values.
    pub keys: Vec<KeyValue>,
    /// Whether there are further ones.
    pub more: bool,
    /// The revision of the store at that moment.
    pub revision: i64,
}

/// The first key behind all that begin with `prefix`; empty, as etcd has it for "to the end", where there is none.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

impl PageRequest {
    pub(crate) fn to_message(&self, limit: u32) -> RangeRequest {
        let key = match &self.after {
            // The next key that there can be.
            Some(after) => [&after[..], &[0]].concat().into(),
            None => self.prefix.clone(),
        };
        RangeRequest {
            key,
            range_end: after_prefix(&self.prefix).into(),
            limit: limit.into(),
            revision: self.revision.unwrap_or(0),
        }
    }
}

impl From<RangeResponse> for Page {
    fn from(response: RangeResponse) -> Self {
        Self {
            keys: response.kvs.into_iter().map(KeyValue::from).collect(),
            more: response.more,
            revision: response.header.unwrap_or_default().revision,
        }
    }
}

impl Transaction {
    pub(crate) fn to_message(&self) -> TxnRequest {
        let request = |request| RequestOp { request: Some(request) };
        TxnRequest {
            compare: self.compares.iter().map(Compare::to_message).collect(),
            success: self.writes.iter().map(|write| request(write.to_message())).collect(),
            failure: self
                .otherwise_read
                .iter()
                .map(|key| {
                    request(AnyRequest::Range(RangeRequest {
                        key: key.clone(),
                        ..RangeRequest::default()
                    }))
                })
                .collect(),
        }
    }
}

impl Compare {
    fn to_message(&self) -> CompareRequest {
        let (key, target, compared) = match self {
            Self::Absent(key) => (key, CREATE, Compared::CreateRevision(0)),
            Self::CreatedAt(key, revision) => (key, CREATE, Compared::CreateRevision(*revision)),
            Self::Has(key, value) => (key, VALUE, Compared::Value(value.clone())),
        };
        CompareRequest {
            result: EQUAL,
            target,
            key: key.clone(),
            compared: Some(compared),
        }
    }
}

impl Write {
    fn to_message(&self) -> AnyRequest {
        match self {
            Self::Put(key, value, lease) => AnyRequest::Put(PutRequest {
                key: key.clone(),
                value: value.clone(),
                lease: lease.map_or(0, |lease| lease.0),
            }),
            Self::Delete(key) => AnyRequest::DeleteRange(DeleteRangeRequest {
                key: key.clone(),
                range_end: Bytes::new(),
            }),
            Self::DeletePrefix(prefix) => AnyRequest::DeleteRange(DeleteRangeRequest {
                key: prefix.clone(),
                range_end: after_prefix(prefix).into(),
            }),
        }
    }

    /// How many bytes of keys and values it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Put(key, value, _) => key.len() + value.len(),
            Self::Delete(key) | Self::DeletePrefix(key) => key.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<TxnResponse> for Committed {
    fn from(response: TxnResponse) -> Self {
        if response.succeeded {
            return Self::Done {
                revision: response.header.unwrap_or_default().revision,
            };
        }
        let found = response.responses.into_iter().map(|response| {
            let keys = response.range.unwrap_or_default().kvs;
            keys.into_iter().next().map(KeyValue::from)
        });
        Self::Refused { found: found.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_that_does_not_begin_so() {
        assert_eq!(after_prefix(b"/sbp/x/"), b"/sbp/x0");
        assert_eq!(after_prefix(&[7, 255]), [8]);
        assert_eq!(after_prefix(&[255, 255]), [0], "to the end");
        assert_eq!(after_prefix(b""), [0]);
    }
}
