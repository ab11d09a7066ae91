//! Reading, bounded or for ever, as a source of batches that both faces step through.

use std::collections::HashMap;
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
pub(crate) struct Source {
    client: Client,
    state: State,
    streams: HashMap<StreamId, Arc<Described>>,
    /// Counts bytes that could not be used where they lay.
    copied: Arc<AtomicU64>,
}

enum State {
    Wanted(Wanted),
    Span(Reader),
    Tail(Tail),
    Over,
}

impl Source {
    pub(crate) fn new(client: Client, copied: Arc<AtomicU64>, wanted: Wanted) -> Self {
        Self {
            client,
            state: State::Wanted(wanted),
            streams: HashMap::new(),
            copied,
        }
    }

    /// The next batch; `None` at the end. A step that is dropped half-way loses nothing.
    pub(crate) async fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Batch>, Failure> {
        self.open(timeout).await?;
        let fetched = match &mut self.state {
            // A reader bounds its own waiting; a tail waits until something comes, or as long as its caller says.
            State::Span(reader) => reader.next().await,
            State::Tail(tail) => match timeout {
                Some(limit) => match tokio::time::timeout(limit, tail.next()).await {
                    Ok(fetched) => fetched,
                    Err(_) => return Err(Failure::NothingCame(limit)),
                },
                None => tail.next().await,
            },
            State::Wanted(_) | State::Over => None,
        };
        match fetched {
            Some(Ok(fetched)) => self.decode(fetched).map(Some),
            Some(Err(error)) => {
                // A tail goes on when it is asked again.
                if !matches!(self.state, State::Tail(_)) {
                    self.close();
                }
                Err(self.named(error))
            }
            None => {
                self.close();
                Ok(None)
            }
        }
    }

    /// Ends reading and frees what was read ahead.
    pub(crate) fn close(&mut self) {
        self.state = State::Over;
    }

    /// Begins to read, unless that was done before: what "latest" means is settled here.
    pub(crate) async fn open(&mut self, timeout: Option<Duration>) -> Result<(), Failure> {
        let State::Wanted(wanted) = &self.state else {
            return Ok(());
        };
        let opened = match wanted {
            Wanted::Spans { streams } => {
                let mut found = Vec::with_capacity(streams.len());
                for (key, start, end) in streams {
                    let stream = find(&self.client, key, timeout).await?;
                    let id = stream.stream.stream_id;
                    found.push((id, *start));
                    found.push((id, *end));
                    self.streams.insert(id, stream);
                }
                let spans = spans(&self.client, &found, timeout).await;
                let options = ReaderOptions {
                    timeout,
                    ..ReaderOptions::default()
                };
                State::Span(self.client.reader(spans.map_err(|error| self.named(error))?, options))
            }
            Wanted::Tail { streams } => {
                let mut places = Vec::with_capacity(streams.len());
                for (key, place) in streams {
                    let stream = find(&self.client, key, timeout).await?;
                    let id = stream.stream.stream_id;
                    places.push((id, *place));
                    self.streams.insert(id, stream);
                }
                let tail = self.client.tail(&places, TailOptions::default()).await;
                State::Tail(tail.map_err(|error| self.named(error))?)
            }
        };
        self.state = opened;
        Ok(())
    }

    /// The error, with the stream's name beside its number.
    fn named(&self, error: ClientError) -> Failure {
        let name = error
            .stream()
            .and_then(|id| self.streams.get(&id))
            .map(|stream| Arc::clone(&stream.name));
        Failure::Named(error, name)
    }

    fn decode(&self, fetched: FetchedBatch) -> Result<Batch, Failure> {
        match self.streams.get(&fetched.stream) {
            Some(stream) => decode(&self.client, stream, &fetched, &self.copied),
            None => Err(Failure::Corrupt(format!(
                "a batch of stream {} came, which was not asked for",
                fetched.stream
            ))),
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
    let stream = find(client, key, options.timeout).await?;
    let fetched = client.fetch_one(entry(stream.stream.stream_id), options).await;
    let fetched = fetched.map_err(|error| Failure::Named(error, Some(Arc::clone(&stream.name))))?;
    let batches = fetched.batches.into_iter();
    batches.map(|batch| decode(client, &stream, &batch, copied)).collect()
}

fn decode(
    client: &Client,
    stream: &Arc<Described>,
    fetched: &FetchedBatch,
    copied: &AtomicU64,
) -> Result<Batch, Failure> {
    let batch = Batch::decode(client, stream, fetched)?;
    copied.fetch_add(batch.copied_bytes(), Ordering::Relaxed);
    Ok(batch)
}

/// The spans between pairs of places. The two ends of a stream stay as they are: they are settled where it is read.
async fn spans(
    client: &Client,
    places: &[(StreamId, Position)],
    timeout: Option<Duration>,
) -> Result<Vec<Span>, ClientError> {
    let moves = |&(_, place): &(StreamId, Position)| place.is_relative() || matches!(place, Position::Time(_));
    let moving: Vec<_> = places.iter().filter(|place| moves(place)).copied().collect();
    let mut settled = client.settle(&moving, timeout).await?.into_iter().peekable();
    let mut offsets = Vec::with_capacity(places.len());
    for place in places {
        offsets.push(match settled.next_if(|_| moves(place)) {
            Some(offset) => offset?,
            None => place.1.on_wire().0,
        });
    }
    let pairs = places.chunks_exact(2).zip(offsets.chunks_exact(2));
    let span = |(places, offsets): (&[(StreamId, Position)], &[Offset])| match (places, offsets) {
        (&[(stream, _), _], &[start, end]) => Some(Span { stream, start, end }),
        _ => None,
    };
    Ok(pairs.filter_map(span).collect())
}
