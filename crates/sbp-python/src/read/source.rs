//! Reading, bounded or for ever, as a source of batches that blocking and asynchronous classes step through.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use sbp_client::{
    Client, ClientError, FetchEntry, FetchOptions, FetchedBatch, Position, Reader, ReaderOptions, Tail, TailOptions,
    Window,
};
use sbp_record::TimeWindow;
use sbp_types::{Offset, StreamId};

use crate::arguments::{FetchRequest, keys, places_of, position_or};
use crate::errors;
use crate::requests::{Described, Failure, Key, find};
use crate::results::batch::Batch;

/// What is to be read.
pub(crate) enum ReadRequest {
    /// Streams one after the other, each from a place up to another, as they are when reading begins.
    Spans { streams: Vec<(Key, Position, Position)> },
    /// Streams as they grow, each from its place on.
    Tail { streams: Vec<(Key, Position)> },
}

impl ReadRequest {
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
        Self::spans_of(at_least_one(streams)?, start, end)
    }

    /// The same for streams that were read before.
    pub(crate) fn spans_of(
        keys: Vec<Key>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let starts = places_of(keys.clone(), start, Position::Earliest)?;
        let spans = starts.into_iter().zip(places_of(keys, end, Position::Latest)?);
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
            streams: places_of(at_least_one(streams)?, start, Position::Latest)?,
        })
    }
}

/// The streams to be read, refused where none is named: no batch would ever come.
fn at_least_one(streams: &Bound<'_, PyAny>) -> PyResult<Vec<Key>> {
    let keys = keys(streams)?;
    if keys.is_empty() {
        return Err(errors::invalid(streams.py(), "no streams are named: give at least one"));
    }
    Ok(keys)
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
    /// Runs of the batch taken before that are still to be handed out, and the offset behind that batch.
    ready: VecDeque<Batch>,
    behind: Option<(StreamId, Offset)>,
    /// Counts bytes that could not be used where they lay.
    copied: Arc<AtomicU64>,
}

enum State {
    /// No step was made yet.
    Requested(ReadRequest),
    /// No request is under way; the records that are still to be read are known.
    Paused(Remaining),
    Span(Remaining, Reader),
    Tail(Remaining, Tail),
    Over,
}

/// The records that were not handed out so far.
enum Remaining {
    /// Windows one after the other; each begins behind what was handed out.
    Spans(VecDeque<Window>),
    /// Every stream from its place on.
    Tail(Vec<(StreamId, Position)>),
}

impl Remaining {
    /// Notes that records were handed out, or are not wanted.
    fn pass(&mut self, stream: StreamId, next: Offset) {
        match self {
            Self::Spans(_) => {
                if let Some(span) = self.front().filter(|window| window.span.stream == stream) {
                    span.span.start = next;
                }
            }
            Self::Tail(places) => {
                for (_, place) in places.iter_mut().filter(|(id, _)| *id == stream) {
                    *place = Position::At(next);
                }
            }
        }
    }

    /// The window that is read. A reader goes through the spans in order, so that those before it are done.
    fn front(&mut self) -> Option<&mut Window> {
        let Self::Spans(windows) = self else { return None };
        while windows
            .front()
            .is_some_and(|window| window.span.start >= window.span.end)
        {
            windows.pop_front();
        }
        windows.front_mut()
    }
}

impl Source {
    pub(crate) fn new(client: Client, copied: Arc<AtomicU64>, wanted: ReadRequest) -> Self {
        Self {
            client,
            state: State::Requested(wanted),
            streams: HashMap::new(),
            taken: None,
            ready: VecDeque::new(),
            behind: None,
            copied,
        }
    }

    /// The columns that all batches have, once reading was begun.
    ///
    /// # Errors
    ///
    /// They have not all the same columns; the text says which do not.
    pub(crate) fn columns(&self) -> Result<SchemaRef, String> {
        let mut streams: Vec<_> = self.streams.values().collect();
        streams.sort_unstable_by_key(|stream| stream.stream.stream_id);
        let columns = |stream: &Described| match &stream.schema {
            Some(schema) => Arc::clone(schema.arrow()),
            None => sbp_record::Batch::record_schema(),
        };
        let Some((first, rest)) = streams.split_first() else {
            return Ok(sbp_record::Batch::record_schema());
        };
        let common = columns(first);
        match rest.iter().find(|stream| columns(stream) != common) {
            Some(other) => Err(format!(
                "streams {} and {} have not the same columns, so that they are no one table: read them one by one",
                first.name, other.name
            )),
            None => Ok(common),
        }
    }

    /// The next batch; `None` at the end. A step that is dropped half-way loses nothing, and neither does one that fails.
    pub(crate) async fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Batch>, Failure> {
        self.open(timeout).await?;
        loop {
            if let Some(batch) = self.hand_out() {
                return Ok(Some(batch));
            }
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
                    State::Requested(_) | State::Paused(_) | State::Over => None,
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
            let Some(stream) = self.streams.get_mut(&fetched.stream) else {
                let what = format!("a batch of stream {} came, which was not asked for", fetched.stream);
                return Err(Failure::Corrupt(what));
            };
            let times = match &mut self.state {
                State::Span(left, _) => left.front().map(|window| window.times).unwrap_or_default(),
                _ => TimeWindow::default(),
            };
            let decoded = decode(&self.client, stream, fetched, times, &self.copied, timeout).await;
            let behind = (fetched.stream, fetched.to);
            self.taken = None;
            match decoded {
                Ok(runs) => {
                    self.ready = runs;
                    self.behind = Some(behind);
                }
                Err(failure) => {
                    // The batch is read again.
                    self.rest();
                    return Err(failure);
                }
            }
        }
    }

    /// The next run of the batch taken last; with the last one, or without any, the whole batch is done.
    fn hand_out(&mut self) -> Option<Batch> {
        let batch = self.ready.pop_front();
        let done = if self.ready.is_empty() {
            self.behind.take()
        } else {
            None
        };
        if let State::Span(left, _) | State::Tail(left, _) = &mut self.state
            && let Some((stream, next)) = done.or_else(|| batch.as_ref().map(Batch::behind))
        {
            left.pass(stream, next);
        }
        batch
    }

    /// Reading stopped with an error, after which a tail goes on by itself.
    fn stopped(&mut self, error: ClientError) -> Failure {
        match &mut self.state {
            State::Tail(Remaining::Tail(places), _) => {
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
        self.forget();
    }

    /// Drops the batches that were taken and not handed out.
    fn forget(&mut self) {
        self.taken = None;
        self.ready.clear();
        self.behind = None;
    }

    /// Stops the reader or tail, and keeps the places it had reached.
    fn rest(&mut self) {
        self.forget();
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Span(left, _) | State::Tail(left, _) => State::Paused(left),
            other => other,
        };
    }

    /// Begins to read, unless that was done before: what "latest" means is settled the first time.
    pub(crate) async fn open(&mut self, timeout: Option<Duration>) -> Result<(), Failure> {
        if let State::Requested(wanted) = &self.state {
            let (left, streams) = settle(&self.client, wanted, timeout).await?;
            self.streams = streams;
            self.state = State::Paused(left);
        }
        if let State::Paused(Remaining::Tail(places)) = &self.state {
            let tail = self.client.tail(places, TailOptions::default()).await;
            let tail = tail.map_err(|error| self.named(error))?;
            if let State::Paused(left) = std::mem::replace(&mut self.state, State::Over) {
                self.state = State::Tail(left, tail);
            }
        } else if let State::Paused(Remaining::Spans(spans)) = &self.state {
            let options = ReaderOptions {
                timeout,
                ..ReaderOptions::default()
            };
            let spans = spans.iter().map(|window| window.span).collect();
            let reader = self.client.reader(spans, options);
            if let State::Paused(left) = std::mem::replace(&mut self.state, State::Over) {
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

/// The streams that have a schema: it may have grown since they were described.
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
    wanted: &ReadRequest,
    timeout: Option<Duration>,
) -> Result<(Remaining, HashMap<StreamId, Arc<Described>>), Failure> {
    let mut streams = HashMap::new();
    match wanted {
        ReadRequest::Spans { streams: spans } => {
            let mut places = Vec::with_capacity(spans.len());
            for (key, start, end) in spans {
                let stream = find(client, key, timeout).await?;
                let id = stream.stream.stream_id;
                places.push((id, *start, *end));
                streams.insert(id, stream);
            }
            // All of a read has one schema: that of its end.
            let (windows, newest) = tokio::join!(
                client.windows(&places, timeout),
                describe_again(client, &streams, timeout)
            );
            let windows = windows.map_err(|error| named(&streams, error))?;
            streams.extend(newest?);
            Ok((Remaining::Spans(windows.into()), streams))
        }
        ReadRequest::Tail { streams: starts } => {
            let mut places = Vec::with_capacity(starts.len());
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
            Ok((Remaining::Tail(places), streams))
        }
    }
}

/// The batches that one FETCH brings.
pub(crate) async fn fetch(
    client: &Client,
    key: &Key,
    wanted: FetchRequest,
    copied: &AtomicU64,
    timeout: Option<Duration>,
) -> Result<Vec<Batch>, Failure> {
    let mut stream = find(client, key, timeout).await?;
    let options = FetchOptions {
        max_wait: wanted.max_wait,
        min_bytes: wanted.min_bytes,
        max_bytes: None,
        timeout,
    };
    let entry = FetchEntry {
        stream: stream.stream.stream_id,
        from: wanted.from,
        end: None,
        batch_max_bytes: wanted.max_bytes,
    };
    let fetched = client.fetch_one(entry, options).await;
    let fetched = fetched.map_err(|error| Failure::Named(error, Some(Arc::clone(&stream.name))))?;
    let mut batches = Vec::with_capacity(fetched.batches.len());
    for batch in &fetched.batches {
        let times = TimeWindow::default();
        batches.extend(decode(client, &mut stream, batch, times, copied, timeout).await?);
    }
    Ok(batches)
}

/// Makes a batch readable, and finds the runs of its records in a window of times; `stream` is described again where the
/// batch has columns that were added since.
async fn decode(
    client: &Client,
    stream: &mut Arc<Described>,
    fetched: &FetchedBatch,
    times: TimeWindow,
    copied: &AtomicU64,
    timeout: Option<Duration>,
) -> Result<VecDeque<Batch>, Failure> {
    let bytes = fetched.keep(client);
    let decoded = client.decode(fetched, bytes, stream.schema.as_ref(), timeout).await;
    let decoded = decoded.map_err(|error| Failure::Named(error, Some(Arc::clone(&stream.name))))?;
    if let Some(newer) = decoded.newer {
        *stream = Described::new(newer)?;
    }
    let copied_bytes = u64::try_from(decoded.batch.copied_bytes()).unwrap_or(u64::MAX);
    copied.fetch_add(copied_bytes, Ordering::Relaxed);
    let batch = Arc::new(decoded.batch);
    let runs = batch.runs_within(fetched.from, fetched.to, times).into_iter();
    Ok(runs
        .map(|(from, to)| Batch::new(stream.source(), Arc::clone(&batch), (from, to), &fetched.bytes))
        .collect())
}
