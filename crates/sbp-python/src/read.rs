//! Reading, bounded or for ever, as a source of batches that both faces step through.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sbp_client::{Client, ClientError, FetchedBatch, Position, Reader, ReaderOptions, Span, Tail, TailOptions};
use sbp_types::{Offset, StreamId, TimestampMs};
use tokio::sync::{Mutex, Notify};

use crate::batch::Batch;
use crate::calls::{Failure, Key, find};
use crate::describe::Described;

/// What is to be read.
pub(crate) enum Wanted {
    /// One stream, from a place up to another, as they are when reading begins.
    Span {
        stream: Arc<Described>,
        start: Position,
        end: Position,
    },
    /// Streams as they grow, each from its place on.
    Tail { streams: Vec<(Key, Position)> },
}

/// Batches of one or several streams, in order. Nothing happens before the first step.
pub(crate) struct Source {
    client: Client,
    state: State,
    streams: HashMap<StreamId, Arc<Described>>,
    /// Counts bytes that could not be used where they lay.
    copied: Arc<AtomicU64>,
}

/// A source that one thread or task steps through while another may close it.
pub(crate) struct SharedSource {
    source: Mutex<Source>,
    closed: AtomicBool,
    closing: Notify,
}

impl SharedSource {
    pub(crate) fn new(source: Source) -> Arc<Self> {
        Arc::new(Self {
            source: Mutex::new(source),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    /// See [`Source::open`].
    pub(crate) async fn open(&self, timeout: Option<Duration>) -> Result<(), Failure> {
        self.source.lock().await.open(timeout).await
    }

    /// See [`Source::next`]; after a close, and when one comes while it waits, there is nothing more.
    pub(crate) async fn next(&self, timeout: Option<Duration>) -> Result<Option<Batch>, Failure> {
        let closing = self.closing.notified();
        if self.closed.load(Ordering::SeqCst) {
            return Ok(None);
        }
        tokio::select! {
            biased;
            () = closing => Ok(None),
            stepped = async { self.source.lock().await.next(timeout).await } => stepped,
        }
    }

    /// Ends reading, also under a step that waits, and frees what was read ahead.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        self.source.lock().await.close();
    }
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
                self.close();
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
            Wanted::Span { stream, start, end } => {
                let id = stream.stream.stream_id;
                let span = Span {
                    stream: id,
                    start: self.settle(id, *start, timeout).await?,
                    end: self.settle(id, *end, timeout).await?,
                };
                self.streams.insert(id, Arc::clone(stream));
                State::Span(self.client.reader(
                    vec![span],
                    ReaderOptions {
                        timeout,
                        ..ReaderOptions::default()
                    },
                ))
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

    /// The offset that a place means. The two ends stay as they are: they are settled where the stream is read.
    async fn settle(&self, stream: StreamId, place: Position, timeout: Option<Duration>) -> Result<Offset, Failure> {
        let time: TimestampMs = match place {
            Position::Earliest => return Ok(Offset::EARLIEST),
            Position::Latest => return Ok(Offset::LATEST),
            Position::At(offset) => return Ok(offset),
            Position::Time(time) => time,
        };
        match self.client.offsets_for_times(&[(stream, time)], timeout).await?.pop() {
            Some(offset) => Ok(offset?),
            None => Err(Failure::Corrupt("the server named no offset for the time".to_owned())),
        }
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
        let Some(stream) = self.streams.get(&fetched.stream) else {
            return Err(Failure::Corrupt(format!(
                "a batch of stream {} came, which was not asked for",
                fetched.stream
            )));
        };
        let batch = sbp_record::Batch::decode(fetched.bytes, stream.schema.as_ref())?;
        let copied = u64::try_from(batch.copied_bytes()).unwrap_or(u64::MAX);
        self.copied.fetch_add(copied, Ordering::Relaxed);
        Ok(Batch::new(
            Arc::clone(&stream.name),
            fetched.stream,
            batch,
            fetched.from,
            fetched.to,
        ))
    }
}
