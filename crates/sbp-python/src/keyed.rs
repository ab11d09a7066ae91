//! Streams by key, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use sbp_client::Position;

use crate::append::{Appending, How, Patience};
use crate::arguments::{self, places_of};
use crate::awriter::AsyncWriter;
use crate::batches::{AsyncBatches, Batches};
use crate::bridge::Operation;
use crate::calls::Key;
use crate::core::{Core, duration};
use crate::describe::Described;
use crate::pen::WriterArguments;
use crate::read::Wanted;
use crate::verb::{Call, Verb};
use crate::writer::Writer;
use crate::{buffer, errors, sending, verbs};

type Started<'py> = PyResult<Bound<'py, Operation>>;

/// The streams of one name, for both faces.
pub(crate) struct Set {
    core: Arc<Core>,
    keyed: sbp_client::Keyed,
    streams: Vec<Arc<Described>>,
}

/// Finds or makes the streams of a name; `make` makes the object of one of the faces.
pub(crate) fn open(
    py: Python<'_>,
    core: &Arc<Core>,
    name: String,
    streams: Option<u32>,
    timeout: Option<f64>,
    make: fn(Python<'_>, Set) -> PyResult<Py<PyAny>>,
) -> PyResult<impl Verb> {
    let client = core.client(py)?.clone();
    let timeout = duration(timeout)?;
    let core = Arc::clone(core);
    let work = async move {
        let keyed = client.keyed(&name, streams, timeout).await?;
        let streams = keyed.streams().iter().map(|stream| Described::new(Arc::clone(stream)));
        let streams = streams.collect::<Result<_, _>>()?;
        Ok((keyed, streams))
    };
    Ok(Call::new(work, move |py, (keyed, streams)| {
        make(py, Set { core, keyed, streams })
    }))
}

/// The records of an `append_all`, by stream: values, and their keys.
struct Group<'py> {
    place: usize,
    values: Bound<'py, PyList>,
    keys: Bound<'py, PyList>,
}

impl Set {
    /// The stream of a key, and the key as bytes.
    fn place<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        let py = key.py();
        let bytes = if let Ok(text) = key.cast::<PyString>() {
            PyBytes::new(py, text.to_str()?.as_bytes())
        } else if let Ok(bytes) = key.cast::<PyBytes>() {
            bytes.clone()
        } else {
            buffer::with_bytes(key, |bytes| PyBytes::new(py, bytes))
                .map_err(|_| PyTypeError::new_err("a key is bytes, or a str, which is stored as UTF-8"))?
        };
        Ok((self.keyed.place_of(bytes.as_bytes()), bytes))
    }

    fn at(&self, py: Python<'_>, place: usize) -> PyResult<&Arc<Described>> {
        let stream = self.streams.get(place);
        stream.ok_or_else(|| errors::corrupt(py, "a key's stream is missing"))
    }

    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.streams.iter().map(|stream| &*stream.name))
    }

    fn keys(&self) -> Vec<Key> {
        self.streams
            .iter()
            .map(|stream| Key::Known(Arc::clone(stream)))
            .collect()
    }

    fn stream_of(&self, key: &Bound<'_, PyAny>) -> PyResult<&str> {
        let (place, _) = self.place(key)?;
        Ok(&self.at(key.py(), place)?.name)
    }

    /// Records and keys by stream, in the order of the items.
    fn groups<'py>(&self, items: &Bound<'py, PyAny>) -> PyResult<Vec<Group<'py>>> {
        let py = items.py();
        let mut groups: Vec<Group<'py>> = Vec::new();
        let mut of_place: Vec<Option<usize>> = vec![None; self.streams.len()];
        for (number, item) in items.try_iter()?.enumerate() {
            let (key, value) = item?.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>().map_err(|_| {
                PyTypeError::new_err(format!(
                    "append_all takes pairs of a key and a value; item {number} is none"
                ))
            })?;
            let (place, key) = self.place(&key)?;
            let slot = of_place
                .get_mut(place)
                .ok_or_else(|| errors::corrupt(py, "a key's stream is missing"))?;
            let group = *slot.get_or_insert_with(|| {
                groups.push(Group {
                    place,
                    values: PyList::empty(py),
                    keys: PyList::empty(py),
                });
                groups.len() - 1
            });
            if let Some(group) = groups.get(group) {
                group.values.append(value)?;
                group.keys.append(key)?;
            }
        }
        if groups.is_empty() {
            return Err(errors::invalid(py, "append_all was given no records"));
        }
        Ok(groups)
    }

    /// The groups as one append, in one frame.
    fn appendings<'a, 'py>(
        &self,
        py: Python<'py>,
        groups: &'a [Group<'py>],
        how: How,
    ) -> PyResult<Vec<(Arc<Described>, Appending<'a, 'py>)>> {
        let appending = |group: &'a Group<'py>| {
            let appending = Appending {
                data: group.values.as_any(),
                key: Some(group.keys.as_any()),
                headers: None,
                how,
            };
            Ok((Arc::clone(self.at(py, group.place)?), appending))
        };
        groups.iter().map(appending).collect()
    }

    fn read(&self, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<Wanted> {
        let starts = places_of(self.keys(), start, Position::Earliest)?;
        let ends = places_of(self.keys(), end, Position::Latest)?;
        let spans = starts.into_iter().zip(ends);
        Ok(Wanted::Spans {
            streams: spans.map(|((key, start), (_, end))| (key, start, end)).collect(),
        })
    }

    fn tail(&self, start: Option<&Bound<'_, PyAny>>) -> PyResult<Wanted> {
        Ok(Wanted::Tail {
            streams: places_of(self.keys(), start, Position::Latest)?,
        })
    }

    fn repr(&self, class: &str) -> String {
        format!(
            "<sbp_native.{class} {:?} in {} streams>",
            self.keyed.name(),
            self.streams.len()
        )
    }
}

/// Streams that share a name, each with the records of its part of the keys.
///
/// Made by :meth:`Client.keyed`. A key's stream is ``zlib.crc32(key) % len(keyed)``, for ever: records with the same
/// key are in one stream, and so in order. For one cursor over all of them pass it, or ``keyed.streams``, to
/// :meth:`Client.cursor`.
///
/// >>> import sbp_native as sbp
/// >>> with sbp.Server() as server, sbp.connect(server.address) as client:
/// ...     orders = client.keyed("orders", 4)
/// ...     orders.append("customer-17", b"created").stream == orders.stream_of("customer-17")
/// True
#[pyclass(frozen, module = "sbp_native", name = "Keyed")]
pub(crate) struct Keyed(Set);

impl Keyed {
    /// The object of a set of streams.
    pub(crate) fn object(py: Python<'_>, set: Set) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self(set))?.into_any())
    }
}

#[pymethods]
impl Keyed {
    /// The name of the whole.
    #[getter]
    fn name(&self) -> &str {
        self.0.keyed.name()
    }

    /// The names of its streams, in order: ``name-0`` and so on. Iterating gives the same.
    #[getter]
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.0.names(py)
    }

    /// The name of the stream that holds the records with this key.
    fn stream_of(&self, key: &Bound<'_, PyAny>) -> PyResult<&str> {
        self.0.stream_of(key)
    }

    /// Appends one record to the stream of its key, and returns when it is stored.
    ///
    /// A key that is a str is stored as UTF-8.
    #[pyo3(signature = (key, value, *, headers = None, timestamp = None, compression = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn append<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        compression: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (place, key) = self.0.place(key)?;
        let stream = Key::Known(Arc::clone(self.0.at(py, place)?));
        let appending = Appending {
            data: value,
            key: Some(key.as_any()),
            headers,
            how: arguments::how(timestamp, None, compression)?,
        };
        sending::block(py, &self.0.core, stream, &appending, timeout, Patience::Wait)
    }

    /// Appends pairs of key and value in ONE frame, one batch to each stream concerned.
    ///
    /// Returns the acknowledgements by stream name; see :meth:`Client.append_all` for what an error leaves.
    #[pyo3(signature = (items, *, timestamp = None, compression = None, timeout = None))]
    fn append_all<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        timestamp: Option<&Bound<'py, PyAny>>,
        compression: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let groups = self.0.groups(items)?;
        let appendings = self
            .0
            .appendings(py, &groups, arguments::how(timestamp, None, compression)?)?;
        sending::block_each(py, &self.0.core, &appendings, timeout)
    }

    /// A writer to all of its streams, each record to that of its key; see :meth:`Client.writer`.
    ///
    /// Every stream has batches, sequence numbers and ``max_in_flight`` of its own. ``on_delivery`` is told of all;
    /// ``report.ack.stream`` or ``report.error.stream`` says which stream it is.
    #[pyo3(signature = (
        *, batch_bytes = 262_144, linger = 0.005, compression = None, idempotent = true, writer_id = None,
        epoch = None, max_in_flight = 64, on_delivery = None, timeout = 120.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn writer<'py>(
        slf: &Bound<'py, Self>,
        batch_bytes: usize,
        linger: f64,
        compression: Option<&str>,
        idempotent: bool,
        writer_id: Option<&Bound<'_, PyAny>>,
        epoch: Option<i64>,
        max_in_flight: usize,
        on_delivery: Option<Py<PyAny>>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = WriterArguments {
            batch_bytes,
            linger,
            compression,
            idempotent,
            writer_id,
            epoch,
            max_in_flight,
            reports: on_delivery.is_some(),
            timeout,
        };
        let (py, set) = (slf.py(), &slf.get().0);
        set.core.client(py)?;
        let writers = PyDict::new(py);
        for stream in &set.streams {
            let told = on_delivery.as_ref().map(|callback| callback.clone_ref(py));
            let key = Key::Known(Arc::clone(stream));
            writers.set_item(
                &*stream.name,
                Bound::new(py, Writer::open(py, &set.core, key, &arguments, told)?)?,
            )?;
        }
        let class = py.import("sbp_native._keyed")?.getattr("KeyedWriter")?;
        class.call1((slf, writers))
    }

    /// The records of all its streams, one stream after the other: those of one key in their order.
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
    ) -> PyResult<Batches> {
        Batches::new(py, &self.0.core, self.0.read(start, end)?, timeout)
    }

    /// The records of all its streams as they grow: those of one key in their order.
    #[pyo3(
        signature = (start = None, *, timeout = None),
        text_signature = "($self, start='latest', *, timeout=None)"
    )]
    fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<Batches> {
        Batches::new(py, &self.0.core, self.0.tail(start)?, timeout)
    }

    /// Where each of its streams begins and ends now.
    #[pyo3(signature = (*, timeout = None))]
    fn positions<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let names = self.0.names(py)?.into_any();
        verbs::positions(py, &self.0.core, Some(&names), timeout)?.block(py)
    }

    fn __len__(&self) -> usize {
        self.0.streams.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.0.names(py)?.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        self.0.repr("Keyed")
    }
}

/// Streams that share a name, for asyncio; see :class:`Keyed`.
#[pyclass(frozen, module = "sbp_native", name = "AsyncKeyed")]
pub(crate) struct AsyncKeyed(Set);

impl AsyncKeyed {
    /// The object of a set of streams.
    pub(crate) fn object(py: Python<'_>, set: Set) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self(set))?.into_any())
    }
}

#[pymethods]
impl AsyncKeyed {
    /// The name of the whole.
    #[getter]
    fn name(&self) -> &str {
        self.0.keyed.name()
    }

    /// The names of its streams, in order: ``name-0`` and so on. Iterating gives the same.
    #[getter]
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.0.names(py)
    }

    /// The name of the stream that holds the records with this key.
    fn stream_of(&self, key: &Bound<'_, PyAny>) -> PyResult<&str> {
        self.0.stream_of(key)
    }

    /// Appends one record to the stream of its key. A key that is a str is stored as UTF-8.
    #[pyo3(signature = (key, value, *, headers = None, timestamp = None, compression = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn append<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        compression: Option<&str>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let (place, key) = self.0.place(key)?;
        let stream = Key::Known(Arc::clone(self.0.at(py, place)?));
        let appending = Appending {
            data: value,
            key: Some(key.as_any()),
            headers,
            how: arguments::how(timestamp, None, compression)?,
        };
        sending::start(py, &self.0.core, stream, &appending, timeout, Patience::Wait)
    }

    /// Appends pairs of key and value in ONE frame, one batch to each stream concerned.
    ///
    /// Returns the acknowledgements by stream name; see :meth:`Client.append_all` for what an error leaves.
    #[pyo3(signature = (items, *, timestamp = None, compression = None, timeout = None))]
    fn append_all<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        timestamp: Option<&Bound<'py, PyAny>>,
        compression: Option<&str>,
        timeout: Option<f64>,
    ) -> Started<'py> {
        let groups = self.0.groups(items)?;
        let appendings = self
            .0
            .appendings(py, &groups, arguments::how(timestamp, None, compression)?)?;
        sending::start_each(py, &self.0.core, &appendings, timeout)
    }

    /// A writer to all of its streams, each record to that of its key; see :meth:`Client.writer`.
    ///
    /// Every stream has batches, sequence numbers and ``max_in_flight`` of its own. ``on_delivery`` is told of all;
    /// ``report.ack.stream`` or ``report.error.stream`` says which stream it is.
    #[pyo3(signature = (
        *, batch_bytes = 262_144, linger = 0.005, compression = None, idempotent = true, writer_id = None,
        epoch = None, max_in_flight = 64, on_delivery = None, timeout = 120.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn writer<'py>(
        slf: &Bound<'py, Self>,
        batch_bytes: usize,
        linger: f64,
        compression: Option<&str>,
        idempotent: bool,
        writer_id: Option<&Bound<'_, PyAny>>,
        epoch: Option<i64>,
        max_in_flight: usize,
        on_delivery: Option<Py<PyAny>>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = WriterArguments {
            batch_bytes,
            linger,
            compression,
            idempotent,
            writer_id,
            epoch,
            max_in_flight,
            reports: on_delivery.is_some(),
            timeout,
        };
        let (py, set) = (slf.py(), &slf.get().0);
        set.core.client(py)?;
        let writers = PyDict::new(py);
        for stream in &set.streams {
            let told = on_delivery.as_ref().map(|callback| callback.clone_ref(py));
            let key = Key::Known(Arc::clone(stream));
            writers.set_item(
                &*stream.name,
                Bound::new(py, AsyncWriter::new(&set.core, key, &arguments, told)?)?,
            )?;
        }
        let class = py.import("sbp_native._keyed")?.getattr("AsyncKeyedWriter")?;
        class.call1((slf, writers))
    }

    /// The records of all its streams, one stream after the other: those of one key in their order.
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
        AsyncBatches::new(py, &self.0.core, self.0.read(start, end)?, timeout)
    }

    /// The records of all its streams as they grow: those of one key in their order.
    #[pyo3(
        signature = (start = None, *, timeout = None),
        text_signature = "($self, start='latest', *, timeout=None)"
    )]
    fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<AsyncBatches> {
        AsyncBatches::new(py, &self.0.core, self.0.tail(start)?, timeout)
    }

    /// Where each of its streams begins and ends now.
    #[pyo3(signature = (*, timeout = None))]
    fn positions<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Started<'py> {
        let names = self.0.names(py)?.into_any();
        verbs::positions(py, &self.0.core, Some(&names), timeout)?.spawn(py)
    }

    fn __len__(&self) -> usize {
        self.0.streams.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.0.names(py)?.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        self.0.repr("AsyncKeyed")
    }
}
