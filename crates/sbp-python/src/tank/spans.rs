//! Spans of partitions as one Arrow stream, and where partitions begin and end: for Spark.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sbp_locks::Mutex;
use sbp_peers::tank::{
    Broker as PeerBroker, End, PartitionBounds, ReadBatch, ReadOptions, Reader, Start, TankError, TankErrorKind,
};
use sbp_record::{ColumnSet, RowAssembler, Source};
use sbp_types::{Offset, StreamId};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use super::broker::{Broker, BrokerCore};
use crate::errors;
use crate::memory::arrow;
use crate::owner::{Owner, block};
use crate::process::runtime;
use crate::read::tank::TankClient;
use crate::requests::{Effect, Failure};
use crate::time::seconds;

/// How long to wait before a broker is asked again that could not answer for the moment.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the partitions of a topic begin and end, from partition 0 on: the first and the last number. `None` in place of one
/// that nobody serves at the moment, and in place of a topic that there is not.
type TopicBounds = Option<Vec<Option<(u64, u64)>>>;

/// Asks for the bounds of all partitions of these topics, several topics at once.
#[pyfunction]
#[pyo3(signature = (broker, topics, timeout = None))]
pub(crate) fn tank_bounds(
    py: Python<'_>,
    broker: &Broker,
    topics: Vec<String>,
    timeout: Option<f64>,
) -> PyResult<Vec<TopicBounds>> {
    block(py, broker.core(), timeout, |client, timeout| async move {
        let asking = bounds_of(&client.broker, topics);
        client.within(timeout, Effect::None, asking).await
    })
}

async fn bounds_of(broker: &PeerBroker, topics: Vec<String>) -> Result<Vec<TopicBounds>, TankError> {
    broker.partitions_of(topics).await.into_iter().map(known).collect()
}

fn known(told: Result<Vec<Option<PartitionBounds>>, TankError>) -> Result<TopicBounds, TankError> {
    let pair = |bounds: PartitionBounds| (bounds.first, bounds.high_water);
    match told {
        Ok(partitions) => Ok(Some(partitions.into_iter().map(|one| one.map(pair)).collect())),
        Err(error) if error.kind() == TankErrorKind::UnknownName => Ok(None),
        Err(error) => Err(error),
    }
}

/// Messages of a partition from one number up to, not including, another.
#[derive(Clone)]
struct Span {
    topic: Arc<str>,
    partition: u16,
    start: u64,
    end: u64,
}

/// How far an Arrow stream has come.
#[derive(Default)]
struct Progress {
    /// Numbers that were passed: those of messages handed out, and those that compaction has left out.
    covered: AtomicU64,
    /// Why reading ended early: Arrow's interface passes a text on and nothing else.
    failure: Mutex<Option<Failure>>,
}

/// Reads spans of partitions as one Arrow stream.
#[pyclass(frozen, module = "sbp_native._native")]
pub(crate) struct TankSpanReader {
    core: Arc<BrokerCore>,
    spans: Vec<Span>,
    columns: ColumnSet,
    timeout: f64,
    progress: Arc<Progress>,
}

#[pymethods]
impl TankSpanReader {
    #[new]
    #[pyo3(signature = (broker, spans, projection = None, include_headers = false, timeout = 30.0))]
    fn new(
        py: Python<'_>,
        broker: &Broker,
        spans: Vec<(String, u16, u64, u64)>,
        projection: Option<Vec<String>>,
        include_headers: bool,
        timeout: f64,
    ) -> PyResult<Self> {
        let set = ColumnSet::records(include_headers);
        let columns = match projection {
            Some(names) => set
                .project(&names)
                .map_err(|error| errors::schema_mismatch(py, &error.to_string()))?,
            None => set,
        };
        let spans = spans.into_iter().map(|(topic, partition, start, end)| Span {
            topic: Arc::from(topic),
            partition,
            start,
            end: end.max(start),
        });
        Ok(Self {
            core: Arc::clone(broker.core()),
            spans: spans.collect(),
            columns,
            timeout,
            progress: Arc::default(),
        })
    }

    #[getter]
    fn covered(&self) -> u64 {
        self.progress.covered.load(Ordering::Relaxed)
    }

    /// The failure leaves with the first that asks.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.progress.failure.lock().take();
        Some(failure?.into_python(py).into_value(py).into_any())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::export_schema(py, self.columns.schema())
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A wish that the protocol allows an exporter not to grant.
        let _ = requested_schema;
        let mut batches = SpanBatches {
            handle: runtime::handle(py)?,
            client: self.core.owned().get(py)?.clone(),
            timeout: seconds(self.timeout)?,
            spans: self.spans.clone().into(),
            reader: None,
            assembler: RowAssembler::new(self.columns.clone()),
            piece: None,
            before: 0,
            progress: Arc::clone(&self.progress),
            _core: Arc::clone(&self.core),
        };
        let forked =
            "[SBP-9012] this reader was made before a fork, in the parent process; make a new one in the child";
        let schema = Arc::clone(self.columns.schema());
        arrow::export_pulled(py, schema, forked, move || {
            batches.pull().map_err(|failure| batches.fail(failure))
        })
    }
}

/// The record batches, pulled by a consumer that holds no interpreter lock. It touches no Python object.
struct SpanBatches {
    handle: Handle,
    client: TankClient,
    /// How long to wait for the next messages.
    timeout: Duration,
    /// What is left; the first one is being read.
    spans: VecDeque<Span>,
    reader: Option<Box<Reader>>,
    assembler: RowAssembler,
    piece: Option<Piece>,
    /// Numbers of the spans that are over.
    before: u64,
    progress: Arc<Progress>,
    /// The connection lives as long as it is read from.
    _core: Arc<BrokerCore>,
}

/// Messages that were read together and are being handed out.
struct Piece {
    batch: sbp_record::Batch,
    /// Rows of it that were handed out.
    rows: usize,
    /// Where its span begins.
    start: u64,
}

impl SpanBatches {
    fn pull(&mut self) -> Result<Option<RecordBatch>, Failure> {
        loop {
            if let Some(rows) = self.assembler.poll_batch() {
                self.note(rows.num_rows());
                return Ok(Some(rows));
            }
            let Some(span) = self.spans.front().cloned() else {
                return Ok(None);
            };
            match self.next(&span)? {
                Some(read) => self.push(&span, read)?,
                None => {
                    self.before += span.end - span.start;
                    self.progress.covered.store(self.before, Ordering::Relaxed);
                    self.reader = None;
                    self.spans.pop_front();
                }
            }
        }
    }

    /// The next messages of a span; `None` at its end. A broker that is away is waited for.
    fn next(&mut self, span: &Span) -> Result<Option<ReadBatch>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let handle = self.handle.clone();
        handle.block_on(async {
            let mut last = None;
            loop {
                let error = match timeout_at(deadline, self.step(span)).await {
                    Ok(Ok(read)) => return Ok(read),
                    Ok(Err(error)) => error,
                    Err(_) => match last {
                        Some(error) => return Err(Failure::from(error)),
                        None => return Err(self.client.late(self.timeout, Effect::None)),
                    },
                };
                if !error.is_retriable() || Instant::now() + PAUSE >= deadline {
                    return Err(Failure::from(error));
                }
                last = Some(error);
                sleep(PAUSE).await;
            }
        })
    }

    async fn step(&mut self, span: &Span) -> Result<Option<ReadBatch>, TankError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => {
                let options = ReadOptions {
                    partitions: vec![span.partition],
                    start: Start::At(span.start),
                    end: End::At(span.end),
                };
                let reader = self.client.broker.read(&span.topic, &options).await?;
                self.reader.insert(Box::new(reader))
            }
        };
        reader.next_batch().await
    }

    fn push(&mut self, span: &Span, read: ReadBatch) -> Result<(), Failure> {
        self.client.counters.note(&read);
        let source = Source {
            name: Arc::from(format!("{}/{}", span.topic, span.partition)),
            id: StreamId(i64::from(span.partition)),
        };
        let batch = read.batch;
        // All of it: the reader has left out what is not wanted.
        self.assembler.push(&source, &batch, Offset(0), Offset(i64::MAX))?;
        self.assembler.flush()?;
        self.piece = Some(Piece {
            batch,
            rows: 0,
            start: span.start,
        });
        Ok(())
    }

    /// Notes that rows are handed out.
    fn note(&mut self, rows: usize) {
        let Some(piece) = &mut self.piece else { return };
        piece.rows += rows;
        let last = piece.rows.saturating_sub(1);
        let behind = u64::try_from(piece.batch.offset_of(last).0).unwrap_or_default() + 1;
        let covered = self.before + behind.saturating_sub(piece.start);
        self.progress.covered.store(covered, Ordering::Relaxed);
    }

    /// Keeps the failure for Python, and makes the text that Arrow carries.
    fn fail(&self, failure: Failure) -> String {
        let text = failure.to_string();
        *self.progress.failure.lock() = Some(failure);
        text
    }
}
