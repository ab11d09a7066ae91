//! Reading, bounded or for ever, as a source of batches that both faces step through.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use sbp_client::{
    Client, ClientError, FetchEntry, FetchOptions, FetchedBatch, Position, Reader, ReaderOptions, Span, Tail,
    TailOptions,
};
use sbp_types::{Offset, StreamId};

use crate::arguments::{places, places_of, position_or};
use crate::batch::Batch;
use crate::calls::{Failure, Key, find};
use crate::describe::Described;

/// What is to be read.
pub(crate) enum Wanted {
    /// Streams one after the other, each from a place up to another, as they are when reading begins.
    Spans { streams: Vec<(Key, Position, Position)> },
    /// Streams as they grow, each from its place on.
    Tail { streams: Vec<(Key, Position)> },
}

impl Wanted {
    /// What `read` reads of one stream.
    pub(crate) fn span(key: Key, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let start = position_or(start, Position::Earliest)?;
        let end = position_or(end, Position::Latest)?;
        Ok(Self::Spans {
            streams: vec![(key, start, end)],
        })
    }

    /// What `read` reads of several streams: from one place to another, or of each from its own to its own.
    pub(crate) fn spans(
        streams: &Bound<'_, PyAny>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let starts = places(streams, start, Position::Earliest)?;
        let ends = starts.iter().map(|(key, _)| key.clone()).collect();
        let ends = places_of(ends, end, Position::Latest)?;
        let spans = starts.into_iter().zip(ends);
        Ok(Self::Spans {
            streams: spans.map(|((key, start), (_, end))| (key, start, end)).collect(),
        })
    }

    /// What a stream's own `tail` reads.
    pub(crate) fn tail_of(key: Key, start: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self::Tail {
            streams: vec![(key, position_or(start, Position::Latest)?)],
        })
    }

    /// What a client's `tail` reads: every stream from one place, or each from its own.
    pub(crate) fn tail(streams: &Bound<'_, PyAny>, start: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self::Tail {
            streams: places(streams, start, Position::Latest)?,
        })
    }
}

/// Batches of one or several streams, in order. Nothing happens before the first step.
///
/// An error ends nothing: the next step begins again at the first record that was not handed out.
pub(crate) struct Source {
    client: Client,
    state: State,
    streams: HashMap<StreamId, Arc<Described>>,
    /// The batch that was taken last, until it is handed out: a step may be dropped while it is made readable.
    taken: Option<FetchedBatch>,
    /// Counts bytes that could not be used where they lay.
    copied: Arc<AtomicU64>,
}

enum State {
    /// Nobody has asked yet.
    Wanted(Wanted),
    /// What is left is known, and nothing asks for it.
    Resting(Left),
    Span(Left, Reader),
    Tail(Left, Tail),
    Over,
}

/// What was not handed out so far.
enum Left {
    /// Spans one after the other; each begins behind what was handed out.
    Spans(VecDeque<Span>),
    /// Every stream from its place on.
    Tail(Vec<(StreamId, Position)>),
}

impl Left {
    /// Notes that a batch was handed out.
    fn pass(&mut self, batch: &Batch) {
        let (stream, next) = batch.behind();
        match self {
            // A reader goes through the spans in order, so that those before the batch's are done.
            Self::Spans(spans) => {
                while spans.front().is_some_and(|span| span.start >= span.end) {
                    spans.pop_front();
                }
                if let Some(span) = spans.front_mut().filter(|span| span.stream == stream) {
                    span.start = next;
                }
            }
            Self::Tail(places) => {
                for (_, place) in places.iter_mut().filter(|(id, _)| *id == stream) {
                    *place = Position::At(next);
                }
            }
        }
    }
}

impl Source {
    pub(crate) fn new(client: Client, copied: Arc<AtomicU64>, wanted: Wanted) -> Self {
        Self {
            client,
            state: State::Wanted(wanted),
            streams: HashMap::new(),
            taken: None,
            copied,
        }
    }

    /// The next batch; `None` at the end. A step that is dropped half-way loses nothing, and neither does one that fails.
    pub(crate) async fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Batch>, Failure> {
        self.open(timeout).await?;
        if self.taken.is_none() {
            let fetched = match &mut self.state {
                // A reader bounds its own waiting; a tail waits until something comes, or as long as its caller says.
                State::Span(_, reader) => reader.next().await,
                State::Tail(_, tail) => match timeout {
                    Some(limit) => match tokio::time::timeout(limit, tail.next()).await {
                        Ok(fetched) => fetched,
                        Err(_) => return Err(Failure::NothingCame(limit)),
                    },
                    None => tail.next().await,
                },
                State::Wanted(_) | State::Resting(_) | State::Over => None,
            };
            match fetched.transpose() {
                Ok(fetched) => self.taken = fetched,
                Err(error) => return Err(self.stopped(error)),
            }
        }
        let Some(fetched) = &self.taken else {
            self.close();
            return Ok(None);
        };
        let stream = self.streams.get_mut(&fetched.stream).ok_or_else(|| {
            let what = format!("a batch of stream {} came, which was not asked for", fetched.stream);
            Failure::Corrupt(what)
        })?;
        let decoded = decode(&self.client, stream, fetched, &self.copied, timeout).await;
        self.taken = None;
        match (&decoded, &mut self.state) {
            (Ok(batch), State::Span(left, _) | State::Tail(left, _)) => left.pass(batch),
            // It is read again.
            (Err(_), _) => self.rest(),
            _ => {}
        }
        decoded.map(Some)
    }

    /// Reading stopped with an error, after which a tail goes on by itself.
    fn stopped(&mut self, error: ClientError) -> Failure {
        match &mut self.state {
            State::Tail(Left::Tail(places), _) => {
                if let Some(gap) = error.gap() {
                    for (_, place) in places.iter_mut().filter(|(id, _)| *id == gap.stream) {
                        *place = Position::At(gap.to);
                    }
                }
            }
            _ => self.rest(),
        }
        self.named(error)
    }

    /// Ends reading and frees what was read ahead.
    pub(crate) fn close(&mut self) {
        self.state = State::Over;
        self.taken = None;
    }

    /// Stops what asks, and keeps what is left to ask for.
    fn rest(&mut self) {
        self.taken = None;
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Span(left, _) | State::Tail(left, _) => State::Resting(left),
            other => other,
        };
    }

    /// Begins to read, unless that was done before: what "latest" means is settled the first time.
    pub(crate) async fn open(&mut self, timeout: Option<Duration>) -> Result<(), Failure> {
        if let State::Wanted(wanted) = &self.state {
            let (left, streams) = settle(&self.client, wanted, timeout).await?;
            self.streams = streams;
            self.state = State::Resting(left);
        }
        if let State::Resting(Left::Tail(places)) = &self.state {
            let tail = self.client.tail(places, TailOptions::default()).await;
            let tail = tail.map_err(|error| self.named(error))?;
            if let State::Resting(left) = std::mem::replace(&mut self.state, State::Over) {
                self.state = State::Tail(left, tail);
            }
        } else if let State::Resting(Left::Spans(spans)) = &self.state {
            let options = ReaderOptions {
                timeout,
                ..ReaderOptions::default()
            };
            let reader = self.client.reader(spans.iter().copied().collect(), options);
            if let State::Resting(left) = std::mem::replace(&mut self.state, State::Over) {
                self.state = State::Span(left, reader);
            }
        }
        Ok(())
    }

    /// The error, with the stream's name beside its number.
    fn named(&self, error: ClientError) -> Failure {
        named(&self.streams, error)
    }
}

/// The error, with the stream's name beside its number.
fn named(streams: &HashMap<StreamId, Arc<Described>>, error: ClientError) -> Failure {
    let stream = error.stream().and_then(|id| streams.get(&id));
    Failure::Named(error, stream.map(|stream| Arc::clone(&stream.name)))
}

/// Those of the streams that have a schema, which may have grown since they were described.
async fn describe_again(
    client: &Client,
    streams: &HashMap<StreamId, Arc<Described>>,
    timeout: Option<Duration>,
) -> Result<Vec<(StreamId, Arc<Described>)>, Failure> {
    let typed = streams.iter().filter(|(_, stream)| stream.schema.is_some());
    let ids: Vec<_> = typed.map(|(id, _)| *id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let described = client.describe_streams(&ids, &[], timeout).await;
    let described = described.map_err(|error| named(streams, error))?;
    let newest = |stream: Result<_, ClientError>| {
        let stream = Described::new(stream.map_err(|error| named(streams, error))?)?;
        Ok((stream.stream.stream_id, stream))
    };
    described.into_iter().map(newest).collect()
}

/// What is to be read, in offsets, and the streams.
async fn settle(
    client: &Client,
    wanted: &Wanted,
    timeout: Option<Duration>,
) -> Result<(Left, HashMap<StreamId, Arc<Described>>), Failure> {
    let mut streams = HashMap::new();
    let mut places = Vec::new();
    match wanted {
        Wanted::Spans { streams: spans } => {
            for (key, start, end) in spans {
                let stream = find(client, key, timeout).await?;
                let id = stream.stream.stream_id;
                places.extend([(id, *start), (id, *end)]);
                streams.insert(id, stream);
            }
            // All of a read has one schema: that of its end.
            let (spans, newest) = tokio::join!(
                self::spans(client, &places, timeout),
                describe_again(client, &streams, timeout)
            );
            let spans = spans.map_err(|error| named(&streams, error))?;
            streams.extend(newest?);
            Ok((Left::Spans(spans), streams))
        }
        Wanted::Tail { streams: starts } => {
            for (key, start) in starts {
                let stream = find(client, key, timeout).await?;
                places.push((stream.stream.stream_id, *start));
                streams.insert(stream.stream.stream_id, stream);
            }
            // "Latest" is where the stream ends now, however often the tail has to begin again.
            let moves = |place: Position| place == Position::Latest || place.is_relative();
            let moving: Vec<_> = places.iter().copied().filter(|&(_, place)| moves(place)).collect();
            let settled = client.settle(&moving, timeout).await;
            let mut settled = settled.map_err(|error| named(&streams, error))?.into_iter();
            for (_, place) in places.iter_mut().filter(|(_, place)| moves(*place)) {
                if let Some(offset) = settled.next() {
                    *place = Position::At(offset.map_err(|error| named(&streams, error))?);
                }
            }
            Ok((Left::Tail(places), streams))
        }
    }
}

/// The batches that one FETCH brings.
pub(crate) async fn fetch(
    client: &Client,
    key: &Key,
    entry: impl FnOnce(StreamId) -> FetchEntry,
    options: FetchOptions,
    copied: &AtomicU64,
) -> Result<Vec<Batch>, Failure> {
    let mut stream = find(client, key, options.timeout).await?;
    let fetched = client.fetch_one(entry(stream.stream.stream_id), options).await;
    let fetched = fetched.map_err(|error| Failure::Named(error, Some(Arc::clone(&stream.name))))?;
    let mut batches = Vec::with_capacity(fetched.batches.len());
    for batch in &fetched.batches {
        batches.push(decode(client, &mut stream, batch, copied, options.timeout).await?);
    }
    Ok(batches)
}

/// Makes a batch readable; `stream` is described again where the batch has columns that were added since.
async fn decode(
    client: &Client,
    stream: &mut Arc<Described>,
    fetched: &FetchedBatch,
    copied: &AtomicU64,
    timeout: Option<Duration>,
) -> Result<Batch, Failure> {
    let bytes = fetched.keep(client);
    let decoded = client.decode(fetched, bytes, stream.schema.as_ref(), timeout).await;
    let decoded = decoded.map_err(|error| Failure::Named(error, Some(Arc::clone(&stream.name))))?;
    if let Some(newer) = decoded.newer {
        *stream = Described::new(newer)?;
    }
    let batch = Batch::new(stream, decoded.batch, fetched);
    copied.fetch_add(batch.copied_bytes(), Ordering::Relaxed);
    Ok(batch)
}

/// The spans between pairs of places, as they are now.
async fn spans(
    client: &Client,
    places: &[(StreamId, Position)],
    timeout: Option<Duration>,
) -> Result<VecDeque<Span>, ClientError> {
    let offsets = client.settle(places, timeout).await?;
    let offsets = offsets.into_iter().collect::<Result<Vec<_>, _>>()?;
    let pairs = places.chunks_exact(2).zip(offsets.chunks_exact(2));
    let span = |(places, offsets): (&[(StreamId, Position)], &[Offset])| match (places, offsets) {
        (&[(stream, _), _], &[start, end]) => Some(Span { stream, start, end }),
        _ => None,
    };
    Ok(pairs.filter_map(span).collect())
}
