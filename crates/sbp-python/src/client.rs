//! The blocking face.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sbp_types::Offset;

use crate::ack::AckShape;
use crate::append::{How, Prepared, names_and_data};
use crate::blocking::block_on;
use crate::calls::{self, Key};
use crate::core::{Core, Settings, duration};
use crate::describe::{Described, Positions, StreamInfo};
use crate::encode;
use crate::read::Source;
use crate::stream::{Batches, Stream, schema_argument, tail_argument};

/// A connection to a server, for blocking code.
#[pyclass(frozen, module = "sbp_native", name = "Client")]
pub(crate) struct Client {
    core: Arc<Core>,
}

/// Connects to the first of the servers that answers.
#[pyfunction]
#[pyo3(signature = (servers, *, timeout = 30.0, client_id = None, heartbeat_interval = None))]
pub(crate) fn connect(
    py: Python<'_>,
    servers: String,
    timeout: f64,
    client_id: Option<String>,
    heartbeat_interval: Option<f64>,
) -> PyResult<Client> {
    let settings = Settings {
        servers,
        timeout,
        client_id,
        heartbeat_interval,
    };
    let core = Core::new(py, settings)?;
    let client = core.client(py)?.clone();
    block_on(py, async move { client.connect(None).await })?
        .map_err(|error| crate::errors::from_client(py, error, None))?;
    Ok(Client { core })
}

#[pymethods]
impl Client {
    #[getter]
    fn servers(&self) -> &str {
        &self.core.settings.servers
    }

    #[pyo3(signature = (name, *, schema = None, exist_ok = false, timeout = None))]
    fn create_stream(
        &self,
        py: Python<'_>,
        name: String,
        schema: Option<&Bound<'_, PyAny>>,
        exist_ok: bool,
        timeout: Option<f64>,
    ) -> PyResult<Stream> {
        let client = self.core.client(py)?.clone();
        let schema = schema.map(schema_argument).transpose()?;
        let timeout = duration(timeout)?;
        let created = block_on(py, async move {
            calls::create(&client, name, schema, exist_ok, timeout).await
        })?;
        let described = created.map_err(|failure| failure.into_python(py))?;
        Ok(Stream::new(Arc::clone(&self.core), described))
    }

    #[pyo3(signature = (key, *, timeout = None))]
    fn stream(&self, py: Python<'_>, key: Key, timeout: Option<f64>) -> PyResult<Stream> {
        let client = self.core.client(py)?.clone();
        let timeout = duration(timeout)?;
        let found = block_on(py, async move { calls::find(&client, &key, timeout).await })?;
        let described = found.map_err(|failure| failure.into_python(py))?;
        Ok(Stream::new(Arc::clone(&self.core), described))
    }

    #[pyo3(signature = (*, timeout = None))]
    fn list_streams<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let client = self.core.client(py)?.clone();
        let timeout = duration(timeout)?;
        let streams = block_on(py, async move { calls::list(&client, timeout).await })?;
        PyList::new(
            py,
            streams
                .map_err(|failure| failure.into_python(py))?
                .into_iter()
                .map(StreamInfo),
        )
    }

    #[pyo3(signature = (batches, *, timestamp = None, timeout = None))]
    fn append_all(
        &self,
        py: Python<'_>,
        batches: &Bound<'_, PyAny>,
        timestamp: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let client = self.core.client(py)?.clone();
        let deadline = self.core.deadline(&client, timeout)?;
        let timestamp = timestamp.map(encode::timestamp).transpose()?;
        let (names, data) = names_and_data(batches)?;
        let keys: Vec<_> = names.into_iter().map(Key::Name).collect();
        let timeout = duration(timeout)?;
        let finder = client.clone();
        let found = block_on(py, async move { calls::find_all(&finder, &keys, timeout).await })?;
        let streams = found.map_err(|failure| failure.into_python(py))?;
        let how = How {
            timestamp,
            ..How::default()
        };
        let outcome = Prepared::many(&streams, data.into_iter(), how, deadline)?.block(py, &client, None)?;
        AckShape::Many(streams.iter().map(|stream| Arc::clone(&stream.name)).collect()).build(py, outcome)
    }

    #[pyo3(
        signature = (streams, *, start = None, timeout = None),
        text_signature = "($self, streams, *, start='latest', timeout=None)"
    )]
    fn tail(
        &self,
        py: Python<'_>,
        streams: &Bound<'_, PyAny>,
        start: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Batches> {
        let client = self.core.client(py)?.clone();
        let source = Source::new(client, Arc::clone(&self.core.copied), tail_argument(streams, start)?);
        Batches::new(py, Arc::clone(&self.core), source, timeout)
    }

    #[pyo3(signature = (streams = None, *, timeout = None))]
    fn positions<'py>(
        &self,
        py: Python<'py>,
        streams: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let client = self.core.client(py)?.clone();
        let keys = streams.map(keys_argument).transpose()?;
        let timeout = duration(timeout)?;
        let found = block_on(py, async move { calls::positions(&client, keys, timeout).await })?;
        positions_dict(py, found.map_err(|failure| failure.into_python(py))?)
    }

    #[pyo3(signature = (streams, time, *, timeout = None))]
    fn offsets_for_time<'py>(
        &self,
        py: Python<'py>,
        streams: &Bound<'py, PyAny>,
        time: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let client = self.core.client(py)?.clone();
        let keys = keys_argument(streams)?;
        let time = encode::timestamp(time)?;
        let timeout = duration(timeout)?;
        let found = block_on(py, async move {
            calls::offsets_for_time(&client, &keys, time, timeout).await
        })?;
        offsets_dict(py, found.map_err(|failure| failure.into_python(py))?)
    }

    #[pyo3(signature = (*, timeout = None))]
    fn ping(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<f64> {
        let client = self.core.client(py)?.clone();
        let timeout = duration(timeout)?;
        let round_trip = block_on(py, async move { client.ping(timeout).await })?;
        Ok(round_trip
            .map_err(|error| crate::errors::from_client(py, error, None))?
            .as_secs_f64())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.core.stats(py)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.core.close() {
            Some(client) => block_on(py, async move { client.close().await }),
            None => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().core.client(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        reduce(py, &self.core, "connect")
    }

    fn __repr__(&self) -> String {
        format!("<sbp_native.Client of {}>", self.core.settings.servers)
    }
}

/// A pickle of a client is what it was made with.
pub(crate) fn reduce<'py>(py: Python<'py>, core: &Core, maker: &str) -> PyResult<Bound<'py, PyAny>> {
    let keywords = core.settings.keywords(py)?;
    let partial = py.import("functools")?.getattr("partial")?;
    let maker = partial.call((py.import("sbp_native._native")?.getattr(maker)?,), Some(&keywords))?;
    Ok((maker, (&core.settings.servers,)).into_pyobject(py)?.into_any())
}

/// Several streams, by name or id. One alone is a mistake: a string is a sequence of its characters.
pub(crate) fn keys_argument(streams: &Bound<'_, PyAny>) -> PyResult<Vec<Key>> {
    if let Ok(key) = streams.extract::<Key>() {
        let _ = key;
        return Err(pyo3::exceptions::PyTypeError::new_err(
            "several streams are expected: pass a list of names or ids",
        ));
    }
    streams.try_iter()?.map(|key| key?.extract()).collect()
}

pub(crate) fn positions_dict(
    py: Python<'_>,
    found: Vec<(Arc<Described>, sbp_client::Positions)>,
) -> PyResult<Bound<'_, PyDict>> {
    let positions = PyDict::new(py);
    for (stream, found) in found {
        positions.set_item(&*stream.name, Py::new(py, Positions::from(&found))?)?;
    }
    Ok(positions)
}

pub(crate) fn offsets_dict(py: Python<'_>, found: Vec<(Arc<Described>, Offset)>) -> PyResult<Bound<'_, PyDict>> {
    let offsets = PyDict::new(py);
    for (stream, offset) in found {
        offsets.set_item(&*stream.name, offset.0)?;
    }
    Ok(offsets)
}
