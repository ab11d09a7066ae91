//! Changes as writes of keys, and keys as changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sbp_etcd::{KeyValue, Write};
use sbp_types::{ServerId, StreamId};

use super::keys::{Keys, Named, int, long};
use crate::meta::codec;
use crate::placement::{Change, ServerRecord};

/// The ids that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) stream: StreamId,
    pub(super) server: ServerId,
}

impl Next {
    fn encode(self) -> Bytes {
        Bytes::from(format!("{:016x}-{:08x}", self.stream.0, self.server.0))
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (stream, server) = std::str::from_utf8(value).ok()?.split_once('-')?;
        Some(Self {
            stream: StreamId(long(stream)?),
            server: ServerId(int(server)?),
        })
    }
}

/// What the writes of a list of changes are, each key once, as etcd wants it.
#[derive(Debug)]
pub(super) struct Writes {
    keys: BTreeMap<Bytes, Option<Bytes>>,
    prefixes: Vec<Bytes>,
    /// The ids that come next after it.
    pub(super) next: Next,
}

impl Writes {
    /// `next`: the ids that come next before it.
    pub(super) fn new(keys: &Keys, changes: &[Change], next: Next) -> Self {
        let mut writes = Self {
            keys: BTreeMap::new(),
            prefixes: Vec::new(),
            next,
        };
        for change in changes {
            writes.add(keys, change);
        }
        writes
    }

    fn add(&mut self, keys: &Keys, change: &Change) {
        match change {
            Change::PutStream(stream) => self.put(keys.stream(stream.id), codec::encode_stream(stream)),
            Change::PutRange(range) => self.put(keys.range(range.key), codec::encode_range(range)),
            Change::RemoveRange(key) => self.remove(keys.range(*key)),
            Change::PutServer(server) => self.put(keys.server(server.id), codec::encode_server(server)),
            Change::NextStreamId(next) => {
                self.next.stream = self.next.stream.max(*next);
                self.put(keys.next(), self.next.encode());
            }
            Change::NextServerId(next) => {
                self.next.server = self.next.server.max(*next);
                self.put(keys.next(), self.next.encode());
            }
            Change::PutTombstone(stream) => {
                let ranges = keys.ranges(*stream);
                self.keys.retain(|key, _| !key.starts_with(&ranges));
                self.prefixes.push(ranges);
                self.remove(keys.stream(*stream));
                self.put(keys.buried(*stream), Bytes::new());
            }
            Change::BuriedOn(stream, servers) => self.put(keys.buried(*stream), codec::encode_servers(servers)),
            Change::DropTombstone(stream) => self.remove(keys.buried(*stream)),
        }
    }

    fn put(&mut self, key: Bytes, value: impl Into<Bytes>) {
        self.keys.insert(key, Some(value.into()));
    }

    fn remove(&mut self, key: Bytes) {
        self.keys.insert(key, None);
    }

    /// How many operations they are.
    pub(super) fn count(&self) -> usize {
        self.keys.len() + self.prefixes.len()
    }

    /// How many bytes of keys and values they have.
    pub(super) fn bytes(&self) -> usize {
        let keys = self.keys.iter();
        let keys: usize = keys
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len))
            .sum();
        keys + self.prefixes.iter().map(Bytes::len).sum::<usize>()
    }

    pub(super) fn into_writes(self) -> Vec<Write> {
        let keys = self.keys.into_iter().map(|(key, value)| match value {
            Some(value) => Write::Put(key, value, None),
            None => Write::Delete(key),
        });
        keys.chain(self.prefixes.into_iter().map(Write::DeletePrefix)).collect()
    }
}

/// What a key says, as changes to an empty state. The error names what cannot be read, or a key that this version does not
/// know: it may be something that has to be understood.
pub(super) fn changes_of(keys: &Keys, found: &KeyValue) -> Result<Vec<Change>, String> {
    let unreadable = || format!("the value of {} cannot be read", found.key.escape_ascii());
    let Some(named) = keys.name(&found.key) else {
        return Err(format!(
            "there is a key {} that this version does not know: a newer version has written it",
            found.key.escape_ascii()
        ));
    };
    let value = &found.value;
    Ok(match named {
        Named::Apart => Vec::new(),
        Named::Next => {
            let next = Next::decode(value).ok_or_else(unreadable)?;
            vec![Change::NextStreamId(next.stream), Change::NextServerId(next.server)]
        }
        Named::Stream(id) => {
            let stream = codec::decode_stream(id, value).ok_or_else(unreadable)?;
            vec![Change::PutStream(Arc::new(stream))]
        }
        Named::Range(key) => {
            let range = codec::decode_range(key, value).ok_or_else(unreadable)?;
            vec![Change::PutRange(Arc::new(range))]
        }
        Named::Server(id) => {
            let server: ServerRecord = codec::decode_server(id, value).ok_or_else(unreadable)?;
            vec![Change::PutServer(Arc::new(server))]
        }
        // Earlier versions noted no servers.
        Named::Buried(stream) if value.is_empty() => vec![Change::PutTombstone(stream)],
        Named::Buried(stream) => {
            let servers = codec::decode_servers(value).ok_or_else(unreadable)?;
            vec![Change::BuriedOn(stream, servers)]
        }
    })
}
