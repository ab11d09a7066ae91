//! What a client asks of the service: one function for each request, over Rust data only.

mod described;
mod failure;
mod key;
mod limit;

use std::sync::Arc;
use std::time::Duration;

use sbp_client::{Client, ClientError, Each, Position, Positions};
use sbp_messages::{ErrorCode, KeyValue, Range, RangeId, SealKind, Stream};
use sbp_record::{SchemaError, StreamSchema};
use sbp_types::{Offset, StreamId, TimestampMs};

pub(crate) use self::described::{Described, name_of};
pub(crate) use self::failure::Failure;
pub(crate) use self::key::Key;
pub(crate) use self::limit::{Effect, late, within};

/// A call about one stream: its errors say which.
async fn about<T>(key: &Key, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    call.await.map_err(|failure| failure.about(key))
}

/// What a stream is to be like. What is `None` is the server's default, or stays as it is.
#[derive(Default)]
pub(crate) struct StreamChange {
    pub(crate) name: Option<String>,
    pub(crate) schema: Option<StreamSchema>,
    /// Milliseconds; 0: for ever.
    pub(crate) retention: Option<i64>,
    /// Bytes; -1: no bound.
    pub(crate) retention_bytes: Option<i64>,
    pub(crate) replicas: Option<i8>,
    pub(crate) acks: Option<i8>,
    pub(crate) properties: Option<Vec<KeyValue>>,
}

impl StreamChange {
    /// # Errors
    ///
    /// The name is empty: on the wire that is no name, and means another thing.
    fn into_stream(self) -> Result<Stream, Failure> {
        if self.name.as_deref() == Some("") {
            let what = "a stream has a name: a letter or _, and up to 254 of A-Z a-z 0-9 . _ / - behind it";
            return Err(ClientError::invalid(what).into());
        }
        Ok(Stream {
            name: self.name.unwrap_or_default(),
            schema: self.schema.map(|schema| schema.to_ipc().into()),
            retention_period_ms: self.retention.unwrap_or(0),
            retention_bytes: self.retention_bytes.unwrap_or(0),
            replica_nums: self.replicas.unwrap_or(0),
            ack_count: self.acks.unwrap_or(0),
            properties: self.properties,
            ..Stream::default()
        })
    }
}

/// The stream with this name or id.
pub(crate) async fn find(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<Arc<Described>, Failure> {
    let stream = match key {
        Key::Known(stream) => {
            client.confirm(&stream.stream, timeout).await?;
            return Ok(newest(client, stream)?);
        }
        Key::Name(name) => about(key, async { Ok(client.find_stream(name, timeout).await?) }).await?,
        Key::Id(id) => match client.known_stream_id(*id) {
            Some(known) if client.is_current(*id) => known,
            _ => return describe(client, key, timeout).await,
        },
    };
    Ok(Described::new(stream)?)
}

/// The stream with the columns that it has as far as the client knows: it may have been described again since. A stream
/// without a schema never gets one.
pub(crate) fn newest(client: &Client, stream: &Arc<Described>) -> Result<Arc<Described>, SchemaError> {
    if stream.schema.is_none() {
        return Ok(Arc::clone(stream));
    }
    match client.known_stream_id(stream.stream.stream_id) {
        Some(known) if known.schema != stream.stream.schema => Described::new(known),
        _ => Ok(Arc::clone(stream)),
    }
}

/// The number of the stream with this name or id.
async fn id_of(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<StreamId, Failure> {
    match key {
        Key::Id(id) => Ok(*id),
        _ => Ok(find(client, key, timeout).await?.stream.stream_id),
    }
}

/// The only result of a call about one thing.
fn only<T>(results: Each<T>, what: &str) -> Result<T, Failure> {
    match results.into_iter().next() {
        Some(result) => Ok(result?),
        None => Err(Failure::Corrupt(format!("the server named no {what}"))),
    }
}

/// The stream with this name or id, as the server describes it now.
pub(crate) async fn describe(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<Arc<Described>, Failure> {
    about(key, async {
        let described = match key {
            Key::Name(name) => client.describe_streams(&[], &[name], timeout).await?,
            Key::Id(id) => client.describe_streams(&[*id], &[], timeout).await?,
            Key::Known(stream) => {
                client
                    .describe_streams(&[stream.stream.stream_id], &[], timeout)
                    .await?
            }
        };
        Ok(Described::new(only(described, "stream")?)?)
    })
    .await
}

/// The streams with these names or ids.
pub(crate) async fn find_all(
    client: &Client,
    keys: &[Key],
    timeout: Option<Duration>,
) -> Result<Vec<Arc<Described>>, Failure> {
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        found.push(find(client, key, timeout).await?);
    }
    Ok(found)
}

/// The streams with these names or ids, as the server describes them now.
pub(crate) async fn describe_all(
    client: &Client,
    keys: &[Key],
    timeout: Option<Duration>,
) -> Result<Vec<Arc<Described>>, Failure> {
    let mut described = Vec::with_capacity(keys.len());
    for key in keys {
        described.push(describe(client, key, timeout).await?);
    }
    Ok(described)
}

/// All streams, by id.
pub(crate) async fn list(client: &Client, timeout: Option<Duration>) -> Result<Vec<Arc<Described>>, Failure> {
    let streams = client.list_streams(timeout).await?;
    Ok(streams.into_iter().map(Described::new).collect::<Result<_, _>>()?)
}

/// Creates a stream. Servers take the same creation twice, so that it can be repeated; whether a stream that is there
/// already will do is the caller's to say.
pub(crate) async fn create(
    client: &Client,
    wanted: StreamChange,
    exist_ok: bool,
    timeout: Option<Duration>,
) -> Result<Arc<Described>, Failure> {
    let wanted = wanted.into_stream()?;
    about(&Key::Name(wanted.name.clone()), async {
        if !exist_ok {
            match client.describe_streams(&[], &[&wanted.name], timeout).await?.pop() {
                Some(Err(error)) if error.code() == ErrorCode::NOT_FOUND => {}
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(_)) | None => return Err(Failure::Exists(wanted.name)),
            }
        }
        let created = client.create_streams(vec![wanted], timeout).await?;
        Ok(Described::new(only(created, "created stream")?)?)
    })
    .await
}

/// Changes a stream's settings. Of two changes at once the later one wins as a whole: what one does not name, it takes
/// from the description that it read.
pub(crate) async fn update(
    client: &Client,
    key: &Key,
    wanted: StreamChange,
    timeout: Option<Duration>,
) -> Result<Arc<Described>, Failure> {
    about(key, async {
        let retention = wanted.retention;
        let wanted = wanted.into_stream()?;
        let now = describe(client, key, timeout).await?;
        let kept = retention.unwrap_or(now.stream.retention_period_ms);
        let wanted = Stream {
            stream_id: now.stream.stream_id,
            // Always taken, so what stays must be said.
            retention_period_ms: kept,
            ..wanted
        };
        let updated = client.update_streams(vec![wanted], timeout).await?;
        Ok(Described::new(only(updated, "updated stream")?)?)
    })
    .await
}

/// Deletes a stream.
pub(crate) async fn delete(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<(), Failure> {
    about(key, async {
        let id = id_of(client, key, timeout).await?;
        only(client.delete_streams(&[id], timeout).await?, "deleted stream").map(drop)
    })
    .await
}

/// Deletes a stream's records before a place. The offset that it begins at then.
pub(crate) async fn trim(
    client: &Client,
    key: &Key,
    before: Position,
    timeout: Option<Duration>,
) -> Result<Offset, Failure> {
    about(key, async {
        let id = id_of(client, key, timeout).await?;
        let offset = only(client.settle(&[(id, before)], timeout).await?, "offset")?;
        let range = only(client.trim_streams(&[(id, offset)], timeout).await?, "trimmed stream")?;
        Ok(range.start_offset)
    })
    .await
}

/// Ends a stream's open range. The one that appends go to from then on.
pub(crate) async fn seal(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<Range, Failure> {
    about(key, async {
        let open = RangeId {
            stream_id: id_of(client, key, timeout).await?,
            ..RangeId::default()
        };
        let sealed = client.seal_ranges(&[open], SealKind::PLACEMENT_DRIVER, timeout).await?;
        only(sealed, "range")
    })
    .await
}

/// A stream's ranges, in their order.
pub(crate) async fn ranges(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<Vec<Range>, Failure> {
    about(key, async {
        let id = id_of(client, key, timeout).await?;
        Ok(client.list_ranges(id, timeout).await?)
    })
    .await
}

/// What one stream holds now.
pub(crate) async fn positions_of(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<Positions, Failure> {
    about(key, async {
        let id = id_of(client, key, timeout).await?;
        only(client.positions(&[id], timeout).await?, "positions")
    })
    .await
}

/// What streams hold now; of all streams without `keys`.
pub(crate) async fn positions(
    client: &Client,
    keys: Option<Vec<Key>>,
    timeout: Option<Duration>,
) -> Result<Vec<(Arc<Described>, Positions)>, Failure> {
    let streams = match keys {
        Some(keys) => find_all(client, &keys, timeout).await?,
        None => list(client, timeout).await?,
    };
    let ids: Vec<_> = streams.iter().map(|stream| stream.stream.stream_id).collect();
    let found = client.positions(&ids, timeout).await?;
    streams
        .into_iter()
        .zip(found)
        .map(|(stream, positions)| Ok((stream, positions?)))
        .collect()
}

/// For each stream the first offset whose batch is as new as a time; the stream's end where there is none.
pub(crate) async fn offsets_for_time(
    client: &Client,
    keys: &[Key],
    time: TimestampMs,
    timeout: Option<Duration>,
) -> Result<Vec<(Arc<Described>, Offset)>, Failure> {
    let streams = find_all(client, keys, timeout).await?;
    let times: Vec<_> = streams.iter().map(|stream| (stream.stream.stream_id, time)).collect();
    let found = client.offsets_for_times(&times, timeout).await?;
    streams
        .into_iter()
        .zip(found)
        .map(|(stream, offset)| Ok((stream, offset?)))
        .collect()
}
