//! Spans of what a service of another protocol holds, as one Arrow stream: for Spark.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sbp_locks::Mutex;
use sbp_record::{ColumnSet, RowAssembler, Source};
use sbp_types::Offset;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::errors;
use crate::memory::arrow;
use crate::process::runtime;
use crate::requests::Failure;
use crate::time::seconds;

/// How long to wait before a service is asked again that could not answer for the moment.
const PAUSE: Duration = Duration::from_millis(100);

/// A client that reads spans, each a part of a partition or of a segment.
pub(crate) trait Spans: Send + 'static {
    /// What is read, from one number up to, not including, another.
    type Span: Clone + Send + Sync + 'static;
    /// What goes wrong.
    type Error: Into<Failure>;

    /// The first number of a span, and the one behind its last.
    fn bounds(span: &Self::Span) -> (u64, u64);

    /// How many numbers of a span are done with that has come to its end: all of them, unless less was there.
    fn passed(&self, span: &Self::Span) -> u64 {
        let (start, end) = Self::bounds(span);
        end.saturating_sub(start)
    }

    /// Whether the same step may succeed a little later.
    fn is_retriable(error: &Self::Error) -> bool;

    /// The service has not answered for so long.
    fn late(&self, limit: Duration) -> Failure;

    /// The next records of a span; `None` at its end, where the next span begins. A step that is dropped loses nothing.
    async fn step(&mut self, span: &Self::Span) -> Result<Option<Piece>, Self::Error>;
}

/// Records that were read together.
pub(crate) struct Piece {
    /// What they are a part of.
    pub(crate) source: Source,
    /// The records.
    pub(crate) batch: sbp_record::Batch,
    /// The number behind the last of them.
    pub(crate) end: u64,
}

impl Piece {
    /// The number up to which all is done when so many rows are handed out.
    fn behind(&self, rows: usize) -> u64 {
        match rows < self.batch.record_count() {
            true => u64::try_from(self.batch.offset_of(rows).0).unwrap_or_default(),
            false => self.end,
        }
    }
}

/// How far an Arrow stream has come.
#[derive(Default)]
struct Progress {
    /// Numbers that were passed: those of records handed out, and those in front of them that have none.
    covered: AtomicU64,
    /// Why reading ended early: Arrow's interface passes a text on and nothing else.
    failure: Mutex<Option<Failure>>,
}

type Pull = Box<dyn FnMut() -> Result<Option<RecordBatch>, String> + Send>;

/// Reads spans as one Arrow stream.
#[pyclass(frozen, module = "sbp_native._native")]
pub(crate) struct PeerSpanReader {
    columns: ColumnSet,
    progress: Arc<Progress>,
    open: Box<dyn Fn(Python<'_>) -> PyResult<Pull> + Send + Sync>,
}

impl PeerSpanReader {
    /// Reads these spans. `client` is asked for a client whenever reading begins.
    pub(crate) fn of<S: Spans>(
        py: Python<'_>,
        spans: Vec<S::Span>,
        projection: Option<&[String]>,
        include_headers: bool,
        timeout: f64,
        client: impl Fn(Python<'_>) -> PyResult<S> + Send + Sync + 'static,
    ) -> PyResult<Self> {
        let set = ColumnSet::records(include_headers);
        let columns = match projection {
            Some(names) => set
                .project(names)
                .map_err(|error| errors::schema_mismatch(py, &error.to_string()))?,
            None => set,
        };
        let timeout = seconds(timeout)?;
        let progress: Arc<Progress> = Arc::default();
        let (shared, chosen) = (Arc::clone(&progress), columns.clone());
        let open = move |py: Python<'_>| {
            let mut batches = SpanBatches {
                handle: runtime::handle(py)?,
                client: client(py)?,
                timeout,
                spans: spans.clone().into(),
                assembler: RowAssembler::new(chosen.clone()),
                piece: None,
                before: 0,
                progress: Arc::clone(&shared),
            };
            let pull: Pull = Box::new(move || batches.pull().map_err(|failure| batches.fail(failure)));
            Ok(pull)
        };
        Ok(Self {
            columns,
            progress,
            open: Box::new(open),
        })
    }
}

#[pymethods]
impl PeerSpanReader {
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
        let pull = (self.open)(py)?;
        let forked =
            "[SBP-9012] this reader was made before a fork, in the parent process; make a new one in the child";
        arrow::export_pulled(py, Arc::clone(self.columns.schema()), forked, pull)
    }
}

/// The record batches, pulled by a consumer that holds no interpreter lock. It touches no Python object.
struct SpanBatches<S: Spans> {
    handle: Handle,
    client: S,
    /// How long to wait for the next records.
    timeout: Duration,
    /// What is left; the first one is being read.
    spans: VecDeque<S::Span>,
    assembler: RowAssembler,
    /// What is being handed out.
    piece: Option<Handed>,
    /// Numbers of the spans that are over.
    before: u64,
    progress: Arc<Progress>,
}

/// Records that are being handed out.
struct Handed {
    piece: Piece,
    /// Rows of it that were handed out.
    rows: usize,
    /// Where its span begins.
    start: u64,
}

impl<S: Spans> SpanBatches<S> {
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
                Some(piece) => self.push(S::bounds(&span).0, piece)?,
                None => {
                    self.before += self.client.passed(&span);
                    self.progress.covered.store(self.before, Ordering::Relaxed);
                    self.spans.pop_front();
                }
            }
        }
    }

    /// The next records of a span; `None` at its end. A service that is away is waited for.
    fn next(&mut self, span: &S::Span) -> Result<Option<Piece>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let handle = self.handle.clone();
        handle.block_on(async {
            let mut last = None;
            loop {
                let error = match timeout_at(deadline, self.client.step(span)).await {
                    Ok(Ok(read)) => return Ok(read),
                    Ok(Err(error)) => error,
                    Err(_) => match last {
                        Some(error) => return Err(error),
                        None => return Err(self.client.late(self.timeout)),
                    },
                };
                let is_worth_it = S::is_retriable(&error) && Instant::now() + PAUSE < deadline;
                let failure = error.into();
                if !is_worth_it {
                    return Err(failure);
                }
                last = Some(failure);
                sleep(PAUSE).await;
            }
        })
    }

    fn push(&mut self, start: u64, piece: Piece) -> Result<(), Failure> {
        // All of it: the client has left out what is not wanted.
        self.assembler
            .push(&piece.source, &piece.batch, Offset(0), Offset(i64::MAX))?;
        self.assembler.flush()?;
        self.piece = Some(Handed { piece, rows: 0, start });
        Ok(())
    }

    /// Notes that rows are handed out.
    fn note(&mut self, rows: usize) {
        let Some(handed) = &mut self.piece else { return };
        handed.rows += rows;
        let behind = handed.piece.behind(handed.rows);
        let covered = self.before + behind.saturating_sub(handed.start);
        self.progress.covered.store(covered, Ordering::Relaxed);
    }

    /// Keeps the failure for Python, and makes the text that Arrow carries.
    fn fail(&self, failure: Failure) -> String {
        let text = failure.to_string();
        *self.progress.failure.lock() = Some(failure);
        text
    }
}
