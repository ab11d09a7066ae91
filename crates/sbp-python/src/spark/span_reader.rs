//! Spans of streams as one Arrow stream, for Spark's workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sbp_client::codes;
use sbp_client::{ClientError, FetchedBatch, Reader, ReaderOptions, Span};
use sbp_locks::Mutex;
use sbp_record::{ColumnSet, RowAssembler, Source, StreamSchema};
use sbp_types::StreamId;
use tokio::runtime::Handle;

use crate::api::client::Client;
use crate::client_core::{ClientCore, Settings};
use crate::errors;
use crate::memory::arrow;
use crate::process::runtime;
use crate::requests::{Described, Failure};
use crate::time::seconds;

/// Batches of more bytes may go out as views of the frame that they came in.
const SMALL: usize = 16 << 10;

/// Reads spans of streams as one Arrow stream.
#[pyclass(frozen, module = "sbp_native._native")]
pub(crate) struct SpanReader {
    core: Arc<ClientCore>,
    spans: Vec<Span>,
    streams: HashMap<StreamId, Arc<Described>>,
    columns: ColumnSet,
    timeout: f64,
    /// Why reading ended early: Arrow's interface passes a text on and nothing else.
    failure: Arc<Mutex<Option<Failed>>>,
}

/// What the streams are reached through: a client that others use too, or one of the reader's own.
#[derive(FromPyObject)]
pub(crate) enum ClientOrServers<'py> {
    Client(Bound<'py, Client>),
    Servers(String),
}

/// Why reading ended early, and the stream's name.
#[derive(Clone)]
struct Failed {
    error: Option<ClientError>,
    text: String,
    stream: Option<Arc<str>>,
}

#[pymethods]
impl SpanReader {
    #[new]
    #[pyo3(signature = (
        servers, spans, columns = "records", projection = None, include_headers = false, include_metadata = false,
        timeout = 30.0
    ))]
    #[allow(clippy::too_many_arguments, reason = "the keywords of a Python constructor")]
    fn new(
        py: Python<'_>,
        servers: ClientOrServers<'_>,
        spans: Vec<(i64, i64, i64)>,
        columns: &str,
        projection: Option<Vec<String>>,
        include_headers: bool,
        include_metadata: bool,
        timeout: f64,
    ) -> PyResult<Self> {
        let core = match servers {
            ClientOrServers::Client(client) => Arc::clone(client.get().core()),
            ClientOrServers::Servers(servers) => ClientCore::new(py, Settings::new(&servers, timeout))?,
        };
        let streams = describe(py, &core, &spans, seconds(timeout)?)?;
        let set = match columns {
            "records" => ColumnSet::records(include_headers),
            "kafka" => ColumnSet::kafka(include_headers),
            "arrow" => {
                let schema = common_schema(py, &streams)?;
                ColumnSet::arrow(&schema, include_metadata)
                    .map_err(|error| errors::schema_mismatch(py, &error.to_string()))?
            }
            other => {
                let message = format!("columns is \"records\", \"kafka\" or \"arrow\", not {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        let columns = match projection {
            Some(names) => set
                .project(&names)
                .map_err(|error| errors::schema_mismatch(py, &error.to_string()))?,
            None => set,
        };
        let spans = spans.into_iter().map(Span::from).collect();
        Ok(Self {
            core,
            spans,
            streams,
            columns,
            timeout,
            failure: Arc::default(),
        })
    }

    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::export_schema(py, self.columns.schema())
    }

    /// Why the Arrow stream ended early, as an exception; `None` if it did not.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failed = self.failure.lock().clone()?;
        let error = match failed.error {
            Some(error) => errors::from_client(py, error, failed.stream.as_deref()),
            None => errors::corrupt(py, &failed.text),
        };
        Some(error.into_value(py).into_any())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.schema(py)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A wish that the protocol allows an exporter not to grant.
        let _ = requested_schema;
        let client = self.core.client(py)?;
        let options = ReaderOptions {
            timeout: Some(seconds(self.timeout)?),
            ..ReaderOptions::default()
        };
        let mut batches = SpanBatches {
            handle: runtime::handle(py)?,
            timeout: seconds(self.timeout)?,
            reader: client.reader(self.spans.clone(), options),
            streams: self.streams.clone(),
            assembler: RowAssembler::new(self.columns.clone()),
            over: false,
            failure: Arc::clone(&self.failure),
            core: Arc::clone(&self.core),
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
    /// What one call may take.
    timeout: Duration,
    reader: Reader,
    streams: HashMap<StreamId, Arc<Described>>,
    assembler: RowAssembler,
    /// The reader is at its end; what was gathered is still to be given.
    over: bool,
    failure: Arc<Mutex<Option<Failed>>>,
    /// The connection lives as long as it is read from.
    core: Arc<ClientCore>,
}

impl SpanBatches {
    fn pull(&mut self) -> Result<Option<RecordBatch>, Failure> {
        loop {
            if let Some(batch) = self.assembler.poll_batch() {
                return Ok(Some(batch));
            }
            if self.over {
                return Ok(None);
            }
            match self.handle.block_on(self.reader.next_many()) {
                Some(fetched) => {
                    for fetched in fetched? {
                        self.push(&fetched)?;
                    }
                }
                None => {
                    self.over = true;
                    self.assembler.flush()?;
                }
            }
        }
    }

    fn push(&mut self, fetched: &FetchedBatch) -> Result<(), Failure> {
        let stream = self
            .streams
            .get_mut(&fetched.stream)
            .ok_or_else(|| unexpected(fetched.stream))?;
        let client = self
            .core
            .unchecked_client()
            .ok_or_else(|| ClientError::local(codes::CLOSED, "the client is closed"))?;
        // What is small is laid together with others; views of the rest keep their frames in memory.
        let bytes = if fetched.bytes.len() > SMALL {
            fetched.keep(client)
        } else {
            fetched.bytes.clone()
        };
        let decoding = client.decode(fetched, bytes, stream.schema.as_ref(), Some(self.timeout));
        let decoded = self.handle.block_on(decoding)?;
        if let Some(newer) = decoded.newer {
            // It was given columns since: the reader's own are read all the same.
            *stream = Described::new(newer)?;
        }
        let source = Source {
            name: Arc::clone(&stream.name),
            id: fetched.stream,
        };
        let pushed = self.assembler.push(&source, &decoded.batch, fetched.from, fetched.to);
        pushed.map(drop).map_err(|error| {
            let error = ClientError::local(codes::CORRUPT_ON_ARRIVAL, error.to_string());
            Failure::Client(error.with_stream(fetched.stream).with_offset(fetched.from))
        })
    }

    /// Keeps the failure for Python, and makes the text that Arrow carries.
    fn fail(&self, failure: Failure) -> String {
        let (error, text) = match failure {
            Failure::Client(error) => (Some(error.clone()), error.to_string()),
            other => (None, other.to_string()),
        };
        let stream = error
            .as_ref()
            .and_then(ClientError::stream)
            .and_then(|id| self.streams.get(&id));
        let stream = stream.map(|stream| Arc::clone(&stream.name));
        let text = match &stream {
            Some(name) if !text.contains(&**name) => format!("{text} (stream {name})"),
            _ => text,
        };
        *self.failure.lock() = Some(Failed {
            error,
            text: text.clone(),
            stream,
        });
        text
    }
}

fn unexpected(stream: StreamId) -> Failure {
    Failure::Corrupt(format!("a batch of stream {stream} came, which was not asked for"))
}

/// The streams that the spans name.
fn describe(
    py: Python<'_>,
    core: &ClientCore,
    spans: &[(i64, i64, i64)],
    timeout: Duration,
) -> PyResult<HashMap<StreamId, Arc<Described>>> {
    let mut ids: Vec<_> = spans.iter().map(|span| StreamId(span.0)).collect();
    ids.sort_unstable();
    ids.dedup();
    core.block(py, None, |client, _| async move {
        let mut streams = HashMap::with_capacity(ids.len());
        for stream in client.describe_streams(&ids, &[], Some(timeout)).await? {
            let stream = stream?;
            streams.insert(stream.stream_id, Described::new(stream)?);
        }
        Ok::<_, Failure>(streams)
    })
}

/// The schema that all the streams have; of those that have grown from one another, the largest. A query goes on while its
/// streams are given columns one after the other.
fn common_schema(py: Python<'_>, streams: &HashMap<StreamId, Arc<Described>>) -> PyResult<StreamSchema> {
    let mut sorted: Vec<_> = streams.values().collect();
    sorted.sort_unstable_by_key(|stream| stream.stream.stream_id);
    let mut common: Option<(&Described, &StreamSchema)> = None;
    for stream in sorted {
        let Some(schema) = &stream.schema else {
            return Err(errors::schema_mismatch(
                py,
                &format!("stream {} has no schema", stream.name),
            ));
        };
        common = match common {
            Some((first, known)) if !schema.goes_with(known) => {
                let message = format!("streams {} and {} have different schemas", first.name, stream.name);
                return Err(errors::schema_mismatch(py, &message));
            }
            Some(known) if known.1.is_extension_of(schema) => Some(known),
            _ => Some((stream, schema)),
        };
    }
    common
        .map(|(_, schema)| schema.clone())
        .ok_or_else(|| errors::invalid(py, "no streams are named, so there are no columns"))
}
