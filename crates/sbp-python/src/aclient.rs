//! The face for asyncio: every call starts at once and returns an operation.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sbp_types::TimestampMs;

use crate::ack::AckShape;
use crate::append::{Appending, How, Prepared, names_and_data};
use crate::bridge::{Here, Operation};
use crate::calls::{self, Key};
use crate::client::{keys_argument, offsets_dict, positions_dict, reduce};
use crate::core::{Core, Settings, duration};
use crate::describe::{Described, StreamInfo};
use crate::encode;
use crate::read::{SharedSource, Source};
use crate::stream::{only_positions, own_tail, schema_argument, span_argument, tail_argument};

type Started<'py> = PyResult<Bound<'py, Operation>>;

/// A connection to a server, for asyncio.
#[pyclass(frozen, module = "sbp_native", name = "AsyncClient")]
pub(crate) struct AsyncClient {
    core: Arc<Core>,
}

/// A client that connects when it is awaited or entered.
#[pyfunction]
#[pyo3(signature = (servers, *, timeout = 30.0, client_id = None, heartbeat_interval = None))]
pub(crate) fn aio_connect(
    py: Python<'_>,
    servers: String,
    timeout: f64,
    client_id: Option<String>,
    heartbeat_interval: Option<f64>,
) -> PyResult<AsyncClient> {
    let settings = Settings {
        servers,
        timeout,
        client_id,
        heartbeat_interval,
    };
    Ok(AsyncClient {
        core: Core::new(py, settings)?,
    })
}

#[pymethods]
impl AsyncClient {
    #[getter]
    fn servers(&self) -> &str {
        &self.core.settings.servers
    }

    #[pyo3(signature = (name, *, schema = None, exist_ok = false, timeout = None))]
    fn create_stream<'py>(
        &self,
        py: Python<'py>,
        name: String,
        schema: Option<&Bound<'py, PyAny>>,
        exist_ok: bool,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let client = self.core.client(py)?.clone();
        let schema = schema.map(schema_argument).transpose()?;
        let timeout = duration(timeout)?;
        let core = Arc::clone(&self.core);
        Here::now(py)?.spawn(
            async move { calls::create(&client, name, schema, exist_ok, timeout).await },
            move |py, described| AsyncStream::object(py, core, described),
        )
    }

    #[pyo3(signature = (key, *, timeout = None))]
    fn stream<'py>(&self, py: Python<'py>, key: Key, timeout: Option<f64>) -> Started<'py> {
        let client = self.core.client(py)?.clone();
        let timeout = duration(timeout)?;
        let core = Arc::clone(&self.core);
        Here::now(py)?.spawn(
            async move { calls::find(&client, &key, timeout).await },
            move |py, described| AsyncStream::object(py, core, described),
        )
    }

    #[pyo3(signature = (*, timeout = None))]
    fn list_streams<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        let client = self.core.client(py)?.clone();
        let timeout = duration(timeout)?;
        Here::now(py)?.spawn(async move { calls::list(&client, timeout).await }, |py, streams| {
            Ok(PyList::new(py, streams.into_iter().map(StreamInfo))?
                .into_any()
                .unbind())
        })
    }

    #[pyo3(signature = (batches, *, timestamp = None, timeout = None))]
    fn append_all<'py>(
        &self,
        py: Python<'py>,
        batches: &Bound<'py, PyAny>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let client = self.core.client(py)?;
        let deadline = self.core.deadline(client, timeout)?;
        let timestamp = timestamp.map(encode::timestamp).transpose()?;
        let (names, data) = names_and_data(batches)?;
        let here = Here::now(py)?;
        if let Some(streams) = self.core.known_streams(py, &names)? {
            let how = How {
                timestamp,
                ..How::default()
            };
            let prepared = Prepared::many(&streams, data.into_iter(), how, deadline)?;
            let operation = here.operation(shape_of(&streams))?;
            here.submit(&self.core, prepared, &operation)?;
            return Ok(operation);
        }
        // Some name is new to this client: the append waits until the server has said which stream it is.
        let operation = here.operation(AckShape::None)?;
        let finder = client.clone();
        let keys: Vec<_> = names.into_iter().map(Key::Name).collect();
        let timeout = duration(timeout)?;
        let lookup = here.spawn(
            async move { calls::find_all(&finder, &keys, timeout).await },
            |py, streams| {
                Ok(PyList::new(py, streams.into_iter().map(StreamInfo))?
                    .into_any()
                    .unbind())
            },
        )?;
        let then = AppendWhenFound {
            core: Arc::clone(&self.core),
            operation: operation.clone().unbind(),
            data: PyList::new(py, data)?.unbind(),
            timestamp,
            deadline,
        };
        lookup.call_method1("add_done_callback", (then,))?;
        Ok(operation)
    }

    #[pyo3(
        signature = (streams, *, start = None, timeout = None),
        text_signature = "($self, streams, *, start='latest', timeout=None)"
    )]
    fn tail<'py>(
        &self,
        py: Python<'py>,
        streams: &Bound<'py, PyAny>,
        start: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<AsyncBatches> {
        let client = self.core.client(py)?.clone();
        let source = Source::new(client, Arc::clone(&self.core.copied), tail_argument(streams, start)?);
        AsyncBatches::new(py, Arc::clone(&self.core), source, timeout)
    }

    #[pyo3(signature = (streams = None, *, timeout = None))]
    fn positions<'py>(
        &self,
        py: Python<'py>,
        streams: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let client = self.core.client(py)?.clone();
        let keys = streams.map(keys_argument).transpose()?;
        let timeout = duration(timeout)?;
        Here::now(py)?.spawn(
            async move { calls::positions(&client, keys, timeout).await },
            |py, found| Ok(positions_dict(py, found)?.into_any().unbind()),
        )
    }

    #[pyo3(signature = (streams, time, *, timeout = None))]
    fn offsets_for_time<'py>(
        &self,
        py: Python<'py>,
        streams: &Bound<'py, PyAny>,
        time: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let client = self.core.client(py)?.clone();
        let keys = keys_argument(streams)?;
        let time = encode::timestamp(time)?;
        let timeout = duration(timeout)?;
        Here::now(py)?.spawn(
            async move { calls::offsets_for_time(&client, &keys, time, timeout).await },
            |py, found| Ok(offsets_dict(py, found)?.into_any().unbind()),
        )
    }

    #[pyo3(signature = (*, timeout = None))]
    fn ping<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        let client = self.core.client(py)?.clone();
        let timeout = duration(timeout)?;
        Here::now(py)?.spawn(async move { Ok(client.ping(timeout).await?) }, |py, round_trip| {
            Ok(round_trip.as_secs_f64().into_pyobject(py)?.into_any().unbind())
        })
    }

    /// Counters of the client, and of the bridge of the running loop.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.core.stats(py)?;
        let (wakeups, completions, operations) = Here::now(py)?.bridge().counts();
        figures.set_item("loop_wakeups", wakeups)?;
        figures.set_item("completions", completions)?;
        figures.set_item("operations", operations)?;
        Ok(figures)
    }

    fn close<'py>(&self, py: Python<'py>) -> Started<'py> {
        let here = Here::now(py)?;
        match self.core.close() {
            Some(client) => here.spawn(
                async move {
                    client.close().await;
                    Ok(())
                },
                |py, ()| Ok(py.None()),
            ),
            None => here.ready(Ok(py.None())),
        }
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> Started<'py> {
        Self::__aenter__(slf)
    }

    fn __aenter__<'py>(slf: Bound<'py, Self>) -> Started<'py> {
        let py = slf.py();
        let core = Arc::clone(&slf.get().core);
        let client = core.client(py)?.clone();
        // Another object of the same client: a reference to this one must not travel through the I/O thread.
        Here::now(py)?.spawn(async move { Ok(client.connect(None).await?) }, move |py, ()| {
            Ok(Py::new(py, Self { core })?.into_any())
        })
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> Started<'py> {
        self.close(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        reduce(py, &self.core, "aio_connect")
    }

    fn __repr__(&self) -> String {
        format!("<sbp_native.AsyncClient of {}>", self.core.settings.servers)
    }
}

fn shape_of(streams: &[Arc<Described>]) -> AckShape {
    AckShape::Many(streams.iter().map(|stream| Arc::clone(&stream.name)).collect())
}

/// The rest of an `append_all` whose streams had to be looked up: the callback of the look-up.
#[pyclass(frozen, module = "sbp_native._native")]
struct AppendWhenFound {
    core: Arc<Core>,
    operation: Py<Operation>,
    data: Py<PyList>,
    timestamp: Option<TimestampMs>,
    deadline: Instant,
}

#[pymethods]
impl AppendWhenFound {
    fn __call__(&self, py: Python<'_>, lookup: &Bound<'_, Operation>) -> PyResult<()> {
        let operation = self.operation.bind(py);
        if operation.get().is_settled() {
            return Ok(());
        }
        match self.submit(py, lookup) {
            Ok(()) => Ok(()),
            Err(error) => Operation::settle(operation, Err(error)),
        }
    }
}

impl AppendWhenFound {
    fn submit(&self, py: Python<'_>, lookup: &Bound<'_, Operation>) -> PyResult<()> {
        let found = lookup.call_method0("result")?;
        let streams = found
            .try_iter()?
            .map(|info| Ok(Arc::clone(&info?.cast::<StreamInfo>()?.get().0)))
            .collect::<PyResult<Vec<_>>>()?;
        let data = self.data.bind(py).iter();
        let how = How {
            timestamp: self.timestamp,
            ..How::default()
        };
        let prepared = Prepared::many(&streams, data, how, self.deadline)?;
        let operation = self.operation.bind(py);
        operation.get().set_shape(shape_of(&streams));
        Here::now(py)?.submit(&self.core, prepared, operation)
    }
}

/// One stream, for asyncio.
#[pyclass(frozen, module = "sbp_native", name = "AsyncStream")]
pub(crate) struct AsyncStream {
    core: Arc<Core>,
    described: Arc<Described>,
}

impl AsyncStream {
    fn object(py: Python<'_>, core: Arc<Core>, described: Arc<Described>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self { core, described })?.into_any())
    }
}

#[pymethods]
impl AsyncStream {
    #[getter]
    fn id(&self) -> i64 {
        self.described.stream.stream_id.0
    }

    #[getter]
    fn name(&self) -> &str {
        &self.described.name
    }

    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.described.pyarrow_schema(py)
    }

    #[getter]
    fn info(&self) -> StreamInfo {
        StreamInfo(Arc::clone(&self.described))
    }

    #[pyo3(signature = (data, *, timestamp = None, timeout = None))]
    fn append<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        timestamp: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let client = self.core.client(py)?;
        let timestamp = timestamp.map(encode::timestamp).transpose()?;
        let deadline = self.core.deadline(client, timeout)?;
        let here = Here::now(py)?;
        let appending = Appending {
            data,
            key: None,
            headers: None,
            how: How {
                timestamp,
                ..How::default()
            },
        };
        let prepared = Prepared::one(&self.described, &appending, deadline)?;
        let operation = here.operation(AckShape::One(Arc::clone(&self.described.name)))?;
        here.submit(&self.core, prepared, &operation)?;
        Ok(operation)
    }

    #[pyo3(
        signature = (start = None, end = None, *, timeout = None),
        text_signature = "($self, start='earliest', end='latest', *, timeout=None)"
    )]
    fn read(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<AsyncBatches> {
        let client = self.core.client(py)?.clone();
        let source = Source::new(
            client,
            Arc::clone(&self.core.copied),
            span_argument(&self.described, start, end)?,
        );
        AsyncBatches::new(py, Arc::clone(&self.core), source, timeout)
    }

    #[pyo3(
        signature = (start = None, *, timeout = None),
        text_signature = "($self, start='latest', *, timeout=None)"
    )]
    fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<AsyncBatches> {
        let client = self.core.client(py)?.clone();
        let source = Source::new(client, Arc::clone(&self.core.copied), own_tail(&self.described, start)?);
        AsyncBatches::new(py, Arc::clone(&self.core), source, timeout)
    }

    #[pyo3(signature = (*, timeout = None))]
    fn positions<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        let client = self.core.client(py)?.clone();
        let keys = vec![Key::Id(self.described.stream.stream_id)];
        let timeout = duration(timeout)?;
        Here::now(py)?.spawn(
            async move { only_positions(calls::positions(&client, Some(keys), timeout).await) },
            |py, positions| Ok(Py::new(py, positions)?.into_any()),
        )
    }

    fn __repr__(&self) -> String {
        format!(
            "<sbp_native.AsyncStream {:?} (id {})>",
            self.described.name, self.described.stream.stream_id
        )
    }
}

/// Batches as they are read, for `async for`.
#[pyclass(frozen, module = "sbp_native", name = "AsyncBatches")]
pub(crate) struct AsyncBatches {
    core: Arc<Core>,
    source: Arc<SharedSource>,
    timeout: Option<f64>,
}

impl AsyncBatches {
    /// Begins to read at once, so that "latest" means now. A failure is told by the first step, which tries again.
    fn new(py: Python<'_>, core: Arc<Core>, source: Source, timeout: Option<f64>) -> PyResult<Self> {
        let limit = duration(timeout)?;
        let source = SharedSource::new(source);
        let opened = Arc::clone(&source);
        crate::runtime::handle(py)?.spawn(async move {
            let _ = opened.open(limit).await;
        });
        Ok(Self { core, source, timeout })
    }
}

#[pymethods]
impl AsyncBatches {
    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> Started<'py> {
        self.core.client(py)?;
        let timeout = duration(self.timeout)?;
        let source = Arc::clone(&self.source);
        Here::now(py)?.spawn(async move { source.next(timeout).await }, |py, batch| match batch {
            Some(batch) => Ok(Py::new(py, batch)?.into_any()),
            None => Err(PyStopAsyncIteration::new_err(())),
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.core.client(py).is_ok() {
            let source = Arc::clone(&self.source);
            crate::runtime::handle(py)?.spawn(async move { source.close().await });
        }
        Ok(())
    }

    fn __aenter__<'py>(slf: Bound<'py, Self>) -> Started<'py> {
        let here = Here::now(slf.py())?;
        here.ready(Ok(slf.into_any().unbind()))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> Started<'py> {
        self.close(py)?;
        Here::now(py)?.ready(Ok(py.None()))
    }
}

impl Drop for AsyncBatches {
    fn drop(&mut self) {
        if !self.core.is_of_this_process() {
            std::mem::forget(Arc::clone(&self.source));
        }
    }
}
