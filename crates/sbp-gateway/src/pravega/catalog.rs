//! The scopes and segments that the service's streams stand for, and changes to them.
//!
//! All that is known of them are streams and their properties, so a gateway has nothing to lose. What a property says is changed
//! by one gateway at a time: of two that change properties of the same segment at the same moment the later one wins.

use std::collections::BTreeMap;
use std::sync::Arc;

use sbp_client::{AppendOptions, Client, ClientError, Records, unique_writer_id};
use sbp_messages::{ErrorCode, RangeId, SealKind, Stream};
use sbp_pravega::Segment;
use sbp_record::RecordsBuilder;
use sbp_types::{Offset, StreamId};

use super::names::{attributes_stream, scope_of, scope_stream, segment_of, stream_of};
use super::properties::{FOLLOWS, IMPORTED, KIND, SEALED, SEGMENT, START, key_value, property, with};
use crate::catalog::{Catalog as Streams, Meaning};
use crate::records::only;

/// The property that no two streams have in common: who makes a stream that another one has just made is told so.
const MADE: &str = "pravega.made";
/// The property of a stream's first segment with the number of its segments. Streams that are made segment by segment have none.
pub(crate) const COUNT: &str = "pravega.segments";
/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For bytes.
    Bytes,
    /// For a table.
    Table,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Bytes => SEGMENT,
            Self::Table => "table",
        }
    }

    fn of(stream: &Stream) -> Option<Self> {
        match property(stream, KIND)? {
            "table" => Some(Self::Table),
            SEGMENT => Some(Self::Bytes),
            _ => None,
        }
    }
}

/// The value of the property that says that a stream is a scope.
const SCOPE: &str = "scope";

/// A segment that there is: the stream that stands for it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) stream: Arc<Stream>,
    pub(crate) kind: Kind,
}

impl Held {
    pub(crate) fn id(&self) -> StreamId {
        self.stream.stream_id
    }

    pub(crate) fn is_sealed(&self) -> bool {
        property(&self.stream, SEALED).is_some()
    }

    /// The offset, in bytes, at which what is left of it begins.
    pub(crate) fn start(&self) -> i64 {
        let start = property(&self.stream, START).and_then(|value| value.parse().ok());
        start.unwrap_or(0)
    }

    /// What a property says.
    pub(crate) fn property(&self, key: &str) -> Option<&str> {
        property(&self.stream, key)
    }
}

/// The segments of a stream, by their numbers.
pub(crate) type Segments = BTreeMap<i32, Held>;

/// A scope.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The stream that stands for it. Segments can be made without one.
    pub(crate) marker: Option<StreamId>,
    /// Its streams.
    pub(crate) streams: BTreeMap<String, Segments>,
}

/// All scopes by name.
#[derive(Debug, Default)]
pub(crate) struct Scopes(pub(crate) BTreeMap<String, Scope>);

impl Scopes {
    pub(crate) fn segment(&self, segment: &Segment) -> Option<&Held> {
        let number = i32::try_from(segment.id.0).ok()?;
        self.0.get(&segment.scope)?.streams.get(&segment.stream)?.get(&number)
    }

    /// A stream's segments, if there is such a stream: one whose segments are all there.
    pub(crate) fn stream(&self, scope: &str, stream: &str) -> Option<&Segments> {
        let segments = self.0.get(scope)?.streams.get(stream)?;
        is_whole(segments).then_some(segments)
    }

    /// How many segments a stream is to have, whether they are there or not.
    pub(crate) fn planned(&self, scope: &str, stream: &str) -> Option<i32> {
        planned(self.0.get(scope)?.streams.get(stream)?)
    }
}

/// Whether these are all segments of a stream.
pub(crate) fn is_whole(segments: &Segments) -> bool {
    if is_imported(segments) {
        // Since its import began it may have lost the first ones.
        return segments.values().any(|held| held.property(IMPORTED).is_some());
    }
    let count = planned(segments).unwrap_or(1);
    segments.contains_key(&0) && usize::try_from(count).is_ok_and(|count| segments.len() >= count)
}

/// Whether a stream was imported, or is being.
pub(crate) fn is_imported(segments: &Segments) -> bool {
    segments.values().any(|held| held.property(FOLLOWS).is_some())
}

fn planned(segments: &Segments) -> Option<i32> {
    segments.get(&0)?.property(COUNT)?.parse().ok()
}

impl Meaning for Scopes {
    fn of(streams: &[Arc<Stream>]) -> Self {
        let mut scopes = Self::default();
        for stream in streams {
            if let Some(kind) = Kind::of(stream)
                && let Some(segment) = segment_of(&stream.name)
                && let Ok(number) = i32::try_from(segment.id.0)
            {
                let stream = Arc::clone(stream);
                let scope = scopes.0.entry(segment.scope).or_default();
                let segments = scope.streams.entry(segment.stream).or_default();
                segments.insert(number, Held { stream, kind });
            } else if property(stream, KIND) == Some(SCOPE)
                && let Some(scope) = scope_of(&stream.name)
            {
                scopes.0.entry(scope.to_owned()).or_default().marker = Some(stream.stream_id);
            }
        }
        scopes
    }
}

/// What came of making something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// It was made.
    Made,
    /// There is one of that name, or a stream that has the name that it would have.
    Exists,
    /// No stream can have the name that it would have.
    Invalid,
}

/// What is known of scopes and segments, and how they are changed.
#[derive(Debug)]
pub(crate) struct Catalog {
    client: Client,
    streams: Streams<Scopes>,
    /// Held by whoever changes a property: what it says is read, and written with the change.
    changing: tokio::sync::Mutex<()>,
}

impl Catalog {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            streams: Streams::new(client.clone()),
            client,
            changing: tokio::sync::Mutex::new(()),
        }
    }

    /// All scopes, at most a second old.
    pub(crate) async fn scopes(&self) -> Result<Arc<Scopes>, ClientError> {
        self.streams.all().await
    }

    /// All scopes as they are now.
    pub(crate) async fn scopes_now(&self) -> Result<Arc<Scopes>, ClientError> {
        self.streams.all_with(|_| false).await
    }

    /// All scopes, with this one among them, if there is such a scope now.
    pub(crate) async fn scopes_with_scope(&self, scope: &str) -> Result<Arc<Scopes>, ClientError> {
        self.streams.all_with(|scopes| scopes.0.contains_key(scope)).await
    }

    /// All scopes, in which this stream is, if there is such a stream now.
    pub(crate) async fn scopes_with(&self, scope: &str, stream: &str) -> Result<Arc<Scopes>, ClientError> {
        self.streams
            .all_with(|scopes| scopes.stream(scope, stream).is_some())
            .await
    }

    /// A segment by the name that clients call it, such as `scope/stream/0.#epoch.0`; `None`: there is none now. What it says of
    /// seal, start and attributes is at most a second old.
    pub(crate) async fn segment(&self, name: &str) -> Result<Option<Held>, ClientError> {
        let Some(segment) = Segment::parse(name) else {
            return Ok(None);
        };
        let scopes = self
            .streams
            .all_with(|scopes| scopes.segment(&segment).is_some())
            .await?;
        Ok(scopes.segment(&segment).cloned())
    }

    /// The same, asked for now.
    pub(crate) async fn segment_now(&self, name: &str) -> Result<Option<Held>, ClientError> {
        let Some(segment) = Segment::parse(name) else {
            return Ok(None);
        };
        self.described(&segment).await
    }

    /// Makes a segment.
    pub(crate) async fn create(&self, name: &str, kind: Kind) -> Result<Making, ClientError> {
        let stream = Segment::parse(name).and_then(|segment| stream_of(&segment));
        let Some(stream) = stream else {
            return Ok(Making::Invalid);
        };
        let made = self.make(vec![marked(stream, kind.word(), &[])]).await?;
        Ok(made.first().copied().unwrap_or(Making::Invalid))
    }

    /// Makes segments, with more properties than every one has. What becomes of each; none, if one of them cannot be.
    pub(crate) async fn create_all(
        &self,
        segments: &[Segment],
        properties: &[(&str, String)],
    ) -> Result<Vec<Making>, ClientError> {
        let names: Option<Vec<_>> = segments.iter().map(stream_of).collect();
        let streams = names.into_iter().flatten();
        let streams: Vec<_> = streams
            .map(|name| marked(name, Kind::Bytes.word(), properties))
            .collect();
        match streams.is_empty() {
            true => Ok(Vec::new()),
            false => self.make(streams).await,
        }
    }

    /// Deletes a segment with all that is in it; whether there was one.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool, ClientError> {
        match self.segment_now(name).await? {
            Some(held) => self.delete_stream(held.id()).await,
            None => Ok(false),
        }
    }

    /// Seals a segment. Sealing it again does no harm. Whether there is one.
    ///
    /// Where the stream has one copy it takes no more records, and then is marked. One with several copies cannot be left sealed: it
    /// is marked, and then a record is appended that moves its end. Whoever appends states the end that he has read, looks for the
    /// mark when he has read it, and is refused where the end has moved: so nothing is appended behind that record.
    pub(crate) async fn seal(&self, name: &str) -> Result<bool, ClientError> {
        let Some(held) = self.segment_now(name).await? else {
            return Ok(false);
        };
        let range = RangeId {
            stream_id: held.id(),
            ..RangeId::default()
        };
        let sealed = self.client.seal_ranges(&[range], SealKind::RANGE_SERVER, None).await?;
        let is_left_open = match only(sealed) {
            Err(error) if error.code() == ErrorCode::NOT_FOUND => return Ok(false),
            Err(error) if error.code() == ErrorCode::UNSUPPORTED_OPERATION => true,
            sealed => {
                sealed?;
                false
            }
        };
        let marked = self.change(name, |_| Some((SEALED.to_owned(), "1".to_owned()))).await?;
        if marked.is_some() && is_left_open {
            let mut records = RecordsBuilder::new();
            let pushed = records.push(None, None, None, &[(SEALED, None)]);
            pushed.map_err(|error| ClientError::invalid(error.to_string()))?;
            let options = AppendOptions::default();
            match self.client.append(held.id(), Records::from(records), &options).await {
                Err(error) if error.code() == ErrorCode::NOT_FOUND => return Ok(false),
                appended => appended?,
            };
        }
        Ok(marked.is_some())
    }

    /// Removes the beginning of a segment: in bytes what is before `start`, and of the stream the records before `keep`. The first
    /// is said before the second is done, and never goes back. Whether there is such a segment.
    pub(crate) async fn truncate(&self, name: &str, start: i64, keep: Offset) -> Result<bool, ClientError> {
        let forward = |held: &Held| (start > held.start()).then(|| (START.to_owned(), start.to_string()));
        let Some(held) = self.change(name, forward).await? else {
            return Ok(false);
        };
        match only(self.client.trim_streams(&[(held.id(), keep)], None).await?) {
            Ok(_) => Ok(true),
            Err(error) if error.code() == ErrorCode::NOT_FOUND => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets properties of a segment. Whether there is one.
    pub(crate) async fn set_property(&self, name: &str, key: &str, value: String) -> Result<bool, ClientError> {
        let changed = self.change(name, |_| Some((key.to_owned(), value))).await?;
        Ok(changed.is_some())
    }

    /// Makes a scope.
    pub(crate) async fn create_scope(&self, scope: &str) -> Result<Making, ClientError> {
        let Some(stream) = scope_stream(scope) else {
            return Ok(Making::Invalid);
        };
        let made = self.make(vec![marked(stream, SCOPE, &[])]).await?;
        Ok(made.first().copied().unwrap_or(Making::Invalid))
    }

    async fn make(&self, streams: Vec<Stream>) -> Result<Vec<Making>, ClientError> {
        let created = self.client.create_streams(streams, None).await;
        self.streams.forget();
        let created = created?.into_iter().map(|created| match created {
            Ok(_) => Ok(Making::Made),
            Err(error) if error.code() == ErrorCode::ALREADY_EXISTS => Ok(Making::Exists),
            Err(error) => Err(error),
        });
        created.collect()
    }

    /// Deletes the stream that stands for something; whether there was one.
    pub(crate) async fn delete_stream(&self, stream: StreamId) -> Result<bool, ClientError> {
        let deleted = self.client.delete_streams(&[stream], None).await;
        self.streams.forget();
        match only(deleted?) {
            Ok(_) => {
                self.delete_attributes(stream).await;
                Ok(true)
            }
            Err(error) if error.code() == ErrorCode::NOT_FOUND => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes what held the attributes of a segment that is deleted. Nobody finds it any more, if it stays.
    async fn delete_attributes(&self, segment: StreamId) {
        let name = attributes_stream(segment);
        let deleted = async {
            let stream = only(self.client.describe_streams(&[], &[&name], None).await?)?;
            only(self.client.delete_streams(&[stream.stream_id], None).await?)
        };
        match deleted.await {
            Err(error) if error.code() != ErrorCode::NOT_FOUND => {
                tracing::warn!(%error, stream = name, "the attributes of a deleted segment are not deleted");
            }
            _ => {}
        }
    }

    /// Changes the property that is told of a segment as it is now, if one is. As it is then; `None`: there is no such segment.
    async fn change<F>(&self, name: &str, property: F) -> Result<Option<Held>, ClientError>
    where
        F: FnOnce(&Held) -> Option<(String, String)>,
    {
        let Some(segment) = Segment::parse(name) else {
            return Ok(None);
        };
        let _changing = self.changing.lock().await;
        let Some(held) = self.described(&segment).await? else {
            return Ok(None);
        };
        let Some((key, value)) = property(&held) else {
            return Ok(Some(held));
        };
        let properties = with(&held.stream, &[key_value(&key, &value)]);
        let change = Stream {
            stream_id: held.id(),
            properties: Some(properties),
            // Always taken.
            retention_period_ms: held.stream.retention_period_ms,
            ..Stream::default()
        };
        let changed = self.client.update_streams(vec![change], None).await;
        self.streams.forget();
        match only(changed?) {
            Ok(stream) => Ok(Some(Held { stream, ..held })),
            Err(error) if error.code() == ErrorCode::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A segment as it is now.
    async fn described(&self, segment: &Segment) -> Result<Option<Held>, ClientError> {
        let Some(name) = stream_of(segment) else {
            return Ok(None);
        };
        match only(self.client.describe_streams(&[], &[&name], None).await?) {
            Ok(stream) => Ok(Kind::of(&stream).map(|kind| Held { stream, kind })),
            Err(error) if error.code() == ErrorCode::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The settings of a stream that stands for something.
fn marked(name: String, kind: &str, properties: &[(&str, String)]) -> Stream {
    let made = unique_writer_id();
    let own = [
        (KIND, kind.to_owned()),
        (MADE, format!("{:016x}{:016x}", made.high, made.low)),
    ];
    let properties = own.iter().chain(properties).map(|(key, value)| key_value(key, value));
    Stream {
        name,
        properties: Some(properties.collect()),
        ..Stream::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: i64, name: &str, properties: &[(&str, &str)]) -> Arc<Stream> {
        let properties = properties.iter().map(|(key, value)| key_value(key, value));
        Arc::new(Stream {
            stream_id: StreamId(id),
            name: name.to_owned(),
            properties: Some(properties.collect()),
            ..Stream::default()
        })
    }

    #[test]
    fn streams_with_the_property_are_scopes_and_segments() {
        let scopes = Scopes::of(&[
            stream(1, "_sbp/pravega/sc", &[(KIND, SCOPE)]),
            stream(2, "_sbp/pravega/other", &[(KIND, SCOPE)]),
            stream(3, "sc/st/1", &[(KIND, "segment"), (SEALED, "1"), (START, "19")]),
            stream(4, "sc/st/0", &[(KIND, "segment")]),
            stream(5, "sc/map_kvtable/0", &[(KIND, "table")]),
            stream(6, "sc/unmarked/0", &[]),
            stream(7, "direct/st/0", &[(KIND, "segment")]),
            stream(8, "sc/half/1", &[(KIND, "segment")]),
            stream(9, "sc/strange/0", &[(KIND, "something")]),
            stream(10, "sc/two/0", &[(KIND, "segment"), (COUNT, "2")]),
        ]);
        let names: Vec<_> = scopes
            .0
            .iter()
            .map(|(name, scope)| (name.as_str(), scope.marker))
            .collect();
        assert_eq!(
            names,
            [
                ("direct", None),
                ("other", Some(StreamId(2))),
                ("sc", Some(StreamId(1)))
            ]
        );
        let segments = scopes.stream("sc", "st").expect("a stream");
        assert_eq!(segments.keys().collect::<Vec<_>>(), [&0, &1]);
        let named = |name: &str| scopes.segment(&Segment::parse(name).expect("a name"));
        let first = named("sc/st/0.#epoch.0").expect("a segment");
        assert_eq!(
            (first.id(), first.kind, first.is_sealed(), first.start()),
            (StreamId(4), Kind::Bytes, false, 0)
        );
        let second = named("sc/st/1.#epoch.0").expect("a segment");
        assert!(second.is_sealed());
        assert_eq!(second.start(), 19);
        assert_eq!(
            named("sc/map_kvtable/0.#epoch.0").map(|held| held.kind),
            Some(Kind::Table)
        );
        assert!(named("sc/st/0.#epoch.1").is_none() && named("sc/strange/0.#epoch.0").is_none());
        assert_eq!(
            (scopes.planned("sc", "two"), scopes.planned("sc", "st")),
            (Some(2), None)
        );
        assert!(scopes.stream("sc", "two").is_none(), "one of two segments is missing");
        assert!(scopes.stream("sc", "half").is_none() && scopes.stream("sc", "unmarked").is_none());
    }
}
