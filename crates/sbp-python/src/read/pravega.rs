//! Segments of a Pravega stream as a source of batches.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sbp_peers::pravega::{
    End, Pravega, PravegaError, PravegaErrorKind, ReadBatch, ReadPart, Reader, SegmentId, Start, StreamName,
};
use sbp_record::Source;
use sbp_types::{Offset, StreamId};

use crate::requests::{Effect, Failure, within};
use crate::results::batch::Batch;

/// A client of Pravega, and how long its calls may take.
#[derive(Clone)]
pub(crate) struct PravegaClient {
    pub(crate) pravega: Pravega,
    /// For calls that are given no time of their own.
    pub(crate) timeout: Duration,
    pub(crate) counters: Arc<PravegaCounters>,
}

/// What was read and written.
#[derive(Default)]
pub(crate) struct PravegaCounters {
    /// Events handed out.
    pub(crate) events: AtomicU64,
    /// Events that were stored.
    pub(crate) written: AtomicU64,
    /// Bytes that were gone before they were read.
    pub(crate) lost_bytes: AtomicU64,
}

impl PravegaClient {
    /// Bounds a call.
    pub(crate) async fn within<T>(
        &self,
        timeout: Option<Duration>,
        effect: Effect,
        call: impl Future<Output = Result<T, PravegaError>>,
    ) -> Result<T, Failure> {
        let limit = timeout.unwrap_or(self.timeout);
        within(limit, effect, "server", self.pravega.address(), call).await
    }
}

/// What is to be read of a stream.
pub(crate) enum PravegaRequest {
    /// All segments, from one place to another.
    Same(Start, End),
    /// Segments from and to places of their own.
    Parts(Vec<ReadPart>),
}

impl PravegaRequest {
    /// Whether any of it has no end.
    fn goes_on(&self) -> bool {
        match self {
            Self::Same(_, end) => *end == End::Never,
            Self::Parts(parts) => parts.iter().any(|part| part.end == End::Never),
        }
    }
}

/// Batches of one or several segments, those of one in order. Nothing happens before the first step.
///
/// An error ends nothing: the next step goes on behind a gap, or at the first event that was not handed out.
pub(crate) struct PravegaSource {
    client: PravegaClient,
    stream: StreamName,
    wanted: PravegaRequest,
    state: State,
    names: HashMap<SegmentId, Source>,
}

enum State {
    /// No step was made yet.
    Requested,
    Reading(Box<Reader>),
    Over,
}

impl PravegaSource {
    pub(crate) fn new(client: PravegaClient, stream: StreamName, wanted: PravegaRequest) -> Self {
        Self {
            client,
            stream,
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
        let pravega = &self.client.pravega;
        let opening = async {
            match &self.wanted {
                PravegaRequest::Same(start, end) => pravega.read(&self.stream, *start, *end).await,
                PravegaRequest::Parts(parts) => pravega.read_parts(parts).await,
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
                    // A server that is away is waited for; attempts to connect have pauses between them.
                    Err(error) if goes_on && error.kind() == PravegaErrorKind::Lost && error.is_retriable() => {}
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

    /// A batch as Python sees it: that of a stream whose name is the segment's.
    fn batch(&mut self, read: ReadBatch) -> Batch {
        let rows = u64::try_from(read.batch.record_count()).unwrap_or(u64::MAX);
        self.client.counters.events.fetch_add(rows, Ordering::Relaxed);
        let named = || Source {
            name: Arc::from(read.segment.to_string()),
            id: StreamId(read.segment.id.0),
        };
        let source = self.names.entry(read.segment.id).or_insert_with(named).clone();
        let whole = (read.batch.base_offset(), Offset(read.end));
        Batch::new(source, Arc::new(read.batch), whole, &[])
    }

    /// Ends reading and frees what was read ahead.
    pub(crate) fn close(&mut self) {
        self.state = State::Over;
    }
}

impl PravegaCounters {
    /// Notes bytes that are gone.
    fn note_error(&self, error: &PravegaError) {
        if let Some(gap) = error.gap() {
            let bytes = u64::try_from(gap.to.saturating_sub(gap.from)).unwrap_or(0);
            self.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
