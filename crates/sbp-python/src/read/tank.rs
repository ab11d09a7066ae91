//! Partitions of a TANK topic as a source of batches.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sbp_peers::tank::{Broker, End, ReadBatch, ReadOptions, ReadPart, Reader, TankError, TankErrorKind};
use sbp_record::Source;
use sbp_types::StreamId;

use crate::requests::{Effect, Failure, late, within};
use crate::results::batch::Batch;

/// A broker, and how long its calls may take.
#[derive(Clone)]
pub(crate) struct TankClient {
    pub(crate) broker: Broker,
    /// For calls that are given no time of their own.
    pub(crate) timeout: Duration,
    pub(crate) counters: Arc<TankCounters>,
}

/// What was read of a broker.
#[derive(Default)]
pub(crate) struct TankCounters {
    /// Messages handed out.
    pub(crate) messages: AtomicU64,
    /// Numbers that no message has, because compaction has left it out.
    pub(crate) skipped: AtomicU64,
    /// Messages that were gone before they were read.
    pub(crate) lost: AtomicU64,
}

impl TankClient {
    /// Bounds a call.
    pub(crate) async fn within<T>(
        &self,
        timeout: Option<Duration>,
        effect: Effect,
        call: impl Future<Output = Result<T, TankError>>,
    ) -> Result<T, Failure> {
        let limit = timeout.unwrap_or(self.timeout);
        within(limit, effect, "broker", &self.broker.address(), call).await
    }

    /// The broker has not answered for so long.
    pub(crate) fn late(&self, limit: Duration, effect: Effect) -> Failure {
        late(limit, effect, "broker", &self.broker.address())
    }
}

/// What is to be read of a topic.
pub(crate) enum TankRequest {
    /// All partitions, or some, from one place to another.
    Same(ReadOptions),
    /// Partitions from and to places of their own.
    Parts(Vec<ReadPart>),
}

impl TankRequest {
    /// Whether any of it has no end.
    fn goes_on(&self) -> bool {
        match self {
            Self::Same(options) => options.end == End::Never,
            Self::Parts(parts) => parts.iter().any(|part| part.end == End::Never),
        }
    }
}

/// Batches of one or several partitions, those of one in order. Nothing happens before the first step.
///
/// An error ends nothing: the next step goes on behind a gap, or at the first message that was not handed out.
pub(crate) struct TankSource {
    client: TankClient,
    topic: String,
    wanted: TankRequest,
    state: State,
    names: HashMap<u16, Source>,
}

enum State {
    /// No step was made yet.
    Requested,
    Reading(Box<Reader>),
    Over,
}

impl TankSource {
    pub(crate) fn new(client: TankClient, topic: String, wanted: TankRequest) -> Self {
        Self {
            client,
            topic,
            wanted,
            state: State::Requested,
            names: HashMap::new(),
        }
    }

    /// Begins to read, unless that was done before: what "latest" means is settled the first time.
    pub(crate) async fn open(&mut self, timeout: Option<Duration>) -> Result<(), Failure> {
        if !matches!(self.state, State::Requested) {
            return Ok(());
        }
        let broker = &self.client.broker;
        let opening = async {
            match &self.wanted {
                TankRequest::Same(options) => broker.read(&self.topic, options).await,
                TankRequest::Parts(parts) => broker.read_parts(&self.topic, parts).await,
            }
        };
        let reader = self.client.within(timeout, Effect::None, opening).await?;
        self.state = State::Reading(Box::new(reader));
        Ok(())
    }

    /// The next batch; `None` at the end. A step that is dropped half-way loses nothing, and neither does one that fails.
    pub(crate) async fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Batch>, Failure> {
        self.open(timeout).await?;
        let State::Reading(reader) = &mut self.state else {
            return Ok(None);
        };
        let counters = &self.client.counters;
        let goes_on = self.wanted.goes_on();
        let step = async {
            loop {
                match reader.next_batch().await {
                    // A broker that is away is waited for; attempts to connect have pauses between them.
                    Err(error) if goes_on && error.kind() == TankErrorKind::Lost && error.is_retriable() => {}
                    read => return read.inspect_err(|error| counters.note_error(error)),
                }
            }
        };
        let read = match timeout {
            _ if !goes_on => self.client.within(timeout, Effect::None, step).await?,
            // It waits until something comes, or as long as its caller says.
            None => step.await?,
            Some(limit) => match tokio::time::timeout(limit, step).await {
                Ok(read) => read?,
                Err(_) => return Err(Failure::NothingCame(limit)),
            },
        };
        let Some(read) = read else {
            self.close();
            return Ok(None);
        };
        Ok(Some(self.batch(read)))
    }

    /// A batch as Python sees it: that of a stream whose name is the topic's and the partition's.
    fn batch(&mut self, read: ReadBatch) -> Batch {
        self.client.counters.note(&read);
        let named = || Source {
            name: Arc::from(format!("{}/{}", self.topic, read.partition)),
            id: StreamId(i64::from(read.partition)),
        };
        let source = self.names.entry(read.partition).or_insert_with(named).clone();
        let whole = (read.batch.base_offset(), read.batch.end_offset());
        Batch::new(source, Arc::new(read.batch), whole, &[])
    }

    /// Ends reading and frees what was read ahead.
    pub(crate) fn close(&mut self) {
        self.state = State::Over;
    }
}

impl TankCounters {
    /// Notes messages that are handed out.
    pub(crate) fn note(&self, read: &ReadBatch) {
        let rows = u64::try_from(read.batch.record_count()).unwrap_or(u64::MAX);
        self.messages.fetch_add(rows, Ordering::Relaxed);
        self.skipped.fetch_add(read.skipped, Ordering::Relaxed);
    }

    /// Notes messages that are gone.
    fn note_error(&self, error: &TankError) {
        if let Some(gap) = error.gap() {
            self.lost.fetch_add(gap.to.saturating_sub(gap.from), Ordering::Relaxed);
        }
    }
}
