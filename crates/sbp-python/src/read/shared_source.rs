//! Steps through a source of batches, each of which may be cancelled: a batch is handed out once and in order.
//!
//! A step that was cancelled may already have its batch. That batch must neither be lost, which would be a silent gap,
//! nor come after its successors. So a batch is *in transit* until the caller of the step has it; the next step waits
//! that long, and a batch that comes back is the next one again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use sbp_locks::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::read::pravega::PravegaSource;
use crate::read::source::Source;
use crate::read::tank::TankSource;
use crate::requests::Failure;
use crate::results::batch::Batch;

/// A source of batches.
pub(crate) enum AnySource {
    /// Streams of an SBP service.
    Sbp(Source),
    /// Partitions of a TANK topic.
    Tank(TankSource),
    /// Segments of a Pravega stream.
    Pravega(PravegaSource),
}

impl AnySource {
    /// Begins to read, unless that was done before: what "latest" means is settled the first time.
    pub(crate) async fn open(&mut self, timeout: Option<Duration>) -> Result<(), Failure> {
        match self {
            Self::Sbp(source) => source.open(timeout).await,
            Self::Tank(source) => source.open(timeout).await,
            Self::Pravega(source) => source.open(timeout).await,
        }
    }

    async fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Batch>, Failure> {
        match self {
            Self::Sbp(source) => source.next(timeout).await,
            Self::Tank(source) => source.next(timeout).await,
            Self::Pravega(source) => source.next(timeout).await,
        }
    }

    /// The columns that all batches have, once reading was begun.
    ///
    /// # Errors
    ///
    /// They have not all the same columns; the text says which do not.
    fn columns(&self) -> Result<SchemaRef, String> {
        match self {
            Self::Sbp(source) => source.columns(),
            Self::Tank(_) | Self::Pravega(_) => Ok(sbp_record::Batch::record_schema()),
        }
    }

    fn close(&mut self) {
        match self {
            Self::Sbp(source) => source.close(),
            Self::Tank(source) => source.close(),
            Self::Pravega(source) => source.close(),
        }
    }
}

/// A source that one thread or task steps through while another may close it.
pub(crate) struct SharedSource {
    source: tokio::sync::Mutex<AnySource>,
    outside: Mutex<Outside>,
    /// Told when the batch in transit was delivered or given back.
    settled: Notify,
    closed: AtomicBool,
    closing: Notify,
    taken: Option<BatchListener>,
}

/// Told of each batch that a caller has received.
pub(crate) type BatchListener = Box<dyn Fn(&Batch) + Send + Sync>;

/// Batches that have left the source.
#[derive(Default)]
struct Outside {
    in_transit: bool,
    back: VecDeque<Batch>,
}

impl SharedSource {
    pub(crate) fn new(source: AnySource, taken: Option<BatchListener>) -> Arc<Self> {
        Arc::new(Self {
            taken,
            source: tokio::sync::Mutex::new(source),
            outside: Mutex::default(),
            settled: Notify::new(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    /// Begins to read, unless that was done before: what "latest" means is settled the first time.
    pub(crate) async fn open(&self, timeout: Option<Duration>) -> Result<(), Failure> {
        self.source.lock().await.open(timeout).await
    }

    /// See [`AnySource::columns`].
    pub(crate) async fn columns(&self) -> Result<SchemaRef, String> {
        self.source.lock().await.columns()
    }

    /// The next batch, or the end. A step that is dropped half-way loses nothing, and neither does one that fails; after a close, and when one comes while it waits, there is nothing more.
    pub(crate) async fn next(self: Arc<Self>, timeout: Option<Duration>) -> Result<Step, Failure> {
        let closing = self.closing.notified();
        if self.closed.load(Ordering::SeqCst) {
            return Ok(Step::over());
        }
        tokio::select! {
            biased;
            () = closing => Ok(Step::over()),
            stepped = self.step(timeout) => stepped,
        }
    }

    async fn step(self: &Arc<Self>, timeout: Option<Duration>) -> Result<Step, Failure> {
        // Held to the end: steps take their turns.
        let mut source = self.source.lock().await;
        loop {
            let settled = self.settled.notified();
            {
                let mut outside = self.outside.lock();
                if !outside.in_transit {
                    if let Some(batch) = outside.back.pop_front() {
                        outside.in_transit = true;
                        return Ok(Step::new(self, batch));
                    }
                    break;
                }
            }
            settled.await;
        }
        match source.next(timeout).await? {
            Some(batch) => {
                self.outside.lock().in_transit = true;
                Ok(Step::new(self, batch))
            }
            None => Ok(Step::over()),
        }
    }

    /// The next batch as columns of `schema`, for a consumer that holds no interpreter lock.
    pub(crate) fn pull(
        self: &Arc<Self>,
        handle: &Handle,
        timeout: Option<Duration>,
        schema: &SchemaRef,
    ) -> Result<Option<RecordBatch>, Failure> {
        let step = handle.block_on(Arc::clone(self).next(timeout))?;
        let Some(batch) = step.take() else {
            return Ok(None);
        };
        let rows = batch.rows()?;
        if rows.schema_ref() == schema {
            return Ok(Some(rows));
        }
        // A tail whose stream was given columns since it began: they are not part of this Arrow stream.
        let fields = schema.fields().iter();
        let places: Result<Vec<_>, _> = fields.map(|field| rows.schema_ref().index_of(field.name())).collect();
        let rows = places.and_then(|places| rows.project(&places));
        rows.map(Some).map_err(|error| Failure::Corrupt(error.to_string()))
    }

    /// Ends reading, also under a step that waits, and frees what was read ahead.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        self.source.lock().await.close();
        let dropped = std::mem::take(&mut self.outside.lock().back);
        drop(dropped);
    }
}

/// The result of a step. Dropped with its batch, it gives the batch back to the source.
pub(crate) struct Step(Option<(Arc<SharedSource>, Batch)>, BatchState);

#[derive(PartialEq, Eq)]
enum BatchState {
    InTransit,
    Delivered,
}

impl Step {
    fn new(source: &Arc<SharedSource>, batch: Batch) -> Self {
        Self(Some((Arc::clone(source), batch)), BatchState::InTransit)
    }

    /// There are no more batches.
    fn over() -> Self {
        Self(None, BatchState::Delivered)
    }

    /// Notes that the caller has the batch: the next step may begin.
    pub(crate) fn deliver(&mut self) {
        if self.1 == BatchState::InTransit {
            self.1 = BatchState::Delivered;
            if let Some((source, _)) = &self.0 {
                source.outside.lock().in_transit = false;
                source.settled.notify_waiters();
            }
        }
    }

    /// The batch; `None` at the end.
    pub(crate) fn take(mut self) -> Option<Batch> {
        self.deliver();
        let (source, batch) = self.0.take()?;
        if let Some(taken) = &source.taken {
            taken(&batch);
        }
        Some(batch)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some((source, batch)) = self.0.take() {
            let mut outside = source.outside.lock();
            outside.back.push_front(batch);
            if self.1 == BatchState::InTransit {
                outside.in_transit = false;
            }
            drop(outside);
            source.settled.notify_waiters();
        }
    }
}
