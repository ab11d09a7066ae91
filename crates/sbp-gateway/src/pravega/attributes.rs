//! Attributes of segments, each a number under an id.
//!
//! They are compared and set, by whatever gateway, so a property cannot hold them: of two updates of a stream's properties the later
//! one wins. Beside a segment of which one was ever set is a stream like a table's, whose updates are judged one after the other.

use std::collections::HashMap;

use bytes::Bytes;
use sbp_client::{Client, ClientError};
use sbp_locks::Mutex;
use sbp_messages::{ErrorCode, Stream};
use sbp_pravega::{Attribute, NEW, Reply, TableEntry, TableKey, WriterId};
use sbp_types::StreamId;

use super::Shared;
use super::failed::{Failed, no_such};
use super::names::attributes_stream;
use super::table::{Changed, State, puts};
use crate::records::{damaged, only};

/// The value of an attribute that is not there.
const NONE: i64 = i64::MIN;
/// Streams of attributes that are remembered.
const REMEMBERED: usize = 4_096;

/// The streams that hold attributes, by those of their segments.
#[derive(Debug)]
pub(super) struct Attributes {
    client: Client,
    streams: Mutex<HashMap<StreamId, StreamId>>,
}

impl Attributes {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            streams: Mutex::new(HashMap::new()),
        }
    }

    /// The stream with a segment's attributes, if there is one.
    async fn find(&self, segment: &Stream) -> Result<Option<StreamId>, ClientError> {
        let known = self.streams.lock().get(&segment.stream_id).copied();
        if known.is_some() {
            return Ok(known);
        }
        let name = attributes_stream(segment.stream_id);
        match only(self.client.describe_streams(&[], &[&name], None).await?) {
            Ok(stream) => Ok(Some(self.remember(segment.stream_id, stream.stream_id))),
            Err(error) if error.code() == ErrorCode::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same; one that is not there is made, with as many copies as the segment has.
    async fn find_or_make(&self, segment: &Stream) -> Result<StreamId, ClientError> {
        loop {
            if let Some(stream) = self.find(segment).await? {
                return Ok(stream);
            }
            let wanted = Stream {
                name: attributes_stream(segment.stream_id),
                replica_nums: segment.replica_nums,
                ack_count: segment.ack_count,
                ..Stream::default()
            };
            match only(self.client.create_streams(vec![wanted], None).await?) {
                Ok(stream) => return Ok(self.remember(segment.stream_id, stream.stream_id)),
                // Another gateway has made it just now.
                Err(error) if error.code() == ErrorCode::ALREADY_EXISTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn remember(&self, segment: StreamId, stream: StreamId) -> StreamId {
        let mut streams = self.streams.lock();
        if streams.len() >= REMEMBERED {
            streams.clear();
        }
        streams.insert(segment, stream);
        stream
    }
}

/// An attribute's key among those of its segment.
fn key_of(id: WriterId) -> Bytes {
    Bytes::copy_from_slice(&id.0.to_be_bytes())
}

fn value_of(state: &State, key: &Bytes) -> Result<i64, ClientError> {
    let TableEntry { key, value } = state.get(key);
    if key.version < 0 {
        return Ok(NONE);
    }
    let value = value.as_ref().try_into();
    let value = value.map_err(|_| damaged("the value of an attribute is no number of 8 bytes".to_owned()))?;
    Ok(i64::from_be_bytes(value))
}

impl Shared {
    /// Tells an attribute.
    pub(super) async fn attribute(&self, attribute: Attribute) -> Result<Reply, Failed> {
        let Attribute { segment, id, .. } = attribute;
        let Some(held) = self.catalog.segment_now(&segment).await? else {
            return Ok(no_such(segment, None));
        };
        let Some(stream) = self.attributes.find(&held.stream).await? else {
            return Ok(Reply::Attribute(NONE));
        };
        let state = self.tables.now(stream).await?;
        Ok(Reply::Attribute(value_of(&state, &key_of(id))?))
    }

    /// Sets an attribute to `new` if it is `expected`, where the lowest number is that of none.
    pub(super) async fn set_attribute(&self, attribute: Attribute, new: i64, expected: i64) -> Result<Reply, Failed> {
        let Attribute { segment, id, .. } = attribute;
        let Some(held) = self.catalog.segment_now(&segment).await? else {
            return Ok(no_such(segment, None));
        };
        let stream = self.attributes.find_or_make(&held.stream).await?;
        let mut state = self.tables.now(stream).await?;
        let entry = TableEntry {
            key: TableKey {
                key: key_of(id),
                version: NEW,
            },
            value: Bytes::copy_from_slice(&new.to_be_bytes()),
        };
        let changed = self.tables.change(&segment, stream, &mut state, |state| {
            match value_of(state, &entry.key.key)? == expected {
                true => Ok(Ok(
                    puts(std::slice::from_ref(&entry)).map_err(|error| Failed::Told(error.to_string()))?
                )),
                false => Ok(Err(())),
            }
        });
        Ok(Reply::AttributeUpdated(matches!(changed.await?, Changed::At(_))))
    }
}
