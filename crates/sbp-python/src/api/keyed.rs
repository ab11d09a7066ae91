//! Streams by key, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::PyClass;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use sbp_client::{Client, KeyedOptions, Position};

use crate::api::pair::blocking_and_asyncio;
use crate::append::input::{AppendInput, AppendOptions};
use crate::append::keys_and_headers::EveryRecord;
use crate::append::prepared::BackpressurePolicy;
use crate::arguments::{self, places_of};
use crate::client_core::ClientCore;
use crate::errors;
use crate::memory::buffer;
use crate::read::source::ReadRequest;
use crate::requests::{self, Described, Failure, Key};

/// The streams of one name: what `Keyed` and `AsyncKeyed` share.
pub(crate) struct KeyedStreams {
    core: Arc<ClientCore>,
    keyed: sbp_client::Keyed,
    streams: Vec<Arc<Described>>,
}

/// The records of an `append_all`, by stream: values, and their keys.
struct Group<'py> {
    place: usize,
    values: Bound<'py, PyList>,
    keys: Bound<'py, PyList>,
}

impl KeyedStreams {
    /// Finds or makes the streams of a name.
    pub(super) async fn open(
        client: Client,
        core: Arc<ClientCore>,
        name: String,
        options: KeyedOptions,
    ) -> Result<Self, Failure> {
        let keyed = client.keyed(&name, options).await?;
        let streams = keyed.streams().iter().map(|stream| Described::new(Arc::clone(stream)));
        let streams = streams.collect::<Result<_, _>>()?;
        Ok(Self { core, keyed, streams })
    }

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
        headers: Option<&'a Bound<'py, PyAny>>,
        options: AppendOptions,
    ) -> PyResult<Vec<(Arc<Described>, AppendInput<'a, 'py>)>> {
        let input = |group: &'a Group<'py>| {
            let input = AppendInput {
                data: group.values.as_any(),
                key: Some(group.keys.as_any()),
                headers,
                options,
            };
            Ok((Arc::clone(self.at(py, group.place)?), input))
        };
        groups.iter().map(input).collect()
    }
}

blocking_and_asyncio! {
    struct Keyed and AsyncKeyed(KeyedStreams);

    impl Keyed and AsyncKeyed {
        #[getter]
        fn name(&self) -> &str {
            self.0.keyed.name()
        }

        #[getter]
        fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
            self.0.names(py)
        }

        fn stream_of(&self, key: &Bound<'_, PyAny>) -> PyResult<&str> {
            let (place, _) = self.0.place(key)?;
            Ok(&self.0.at(key.py(), place)?.name)
        }

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
        ) -> api::Returned<'py> {
            let (place, key) = self.0.place(key)?;
            let stream = Key::Known(Arc::clone(self.0.at(py, place)?));
            let given = (value, Some(key.as_any()), headers);
            let input = arguments::append_input(given, timestamp, None, compression)?;
            api::append(py, &self.0.core, stream, &input, timeout, BackpressurePolicy::Wait)
        }

        #[pyo3(signature = (items, *, headers = None, timestamp = None, compression = None, timeout = None))]
        fn append_all<'py>(
            &self,
            py: Python<'py>,
            items: &Bound<'py, PyAny>,
            headers: Option<&Bound<'py, PyAny>>,
            timestamp: Option<&Bound<'py, PyAny>>,
            compression: Option<&str>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let groups = self.0.groups(items)?;
            let headers = headers.map(EveryRecord::of).transpose()?;
            let options = arguments::append_options(timestamp, None, compression)?;
            let appendings = self.0.appendings(py, &groups, headers.as_ref(), options)?;
            api::append_each(py, &self.0.core, &appendings, timeout)
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
        ) -> PyResult<api::Batches> {
            api::Batches::new(py, &self.0.core, ReadRequest::spans_of(self.0.keys(), start, end)?, timeout, None)
        }

        #[pyo3(
            signature = (start = None, *, timeout = None),
            text_signature = "($self, start='latest', *, timeout=None)"
        )]
        fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<api::Batches> {
            let streams = places_of(self.0.keys(), start, Position::Latest)?;
            api::Batches::new(py, &self.0.core, ReadRequest::Tail { streams }, timeout, None)
        }

        #[pyo3(signature = (*, timeout = None))]
        fn positions<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            let names = self.0.streams.iter().map(|stream| Key::Name(stream.name.to_string()));
            let names = names.collect();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::positions(&client, Some(names), timeout).await
            })
        }

        fn __len__(&self) -> usize {
            self.0.streams.len()
        }

        fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            Ok(self.0.names(py)?.try_iter()?.into_any())
        }

        fn __repr__(&self) -> String {
            let (name, streams) = (self.0.keyed.name(), self.0.streams.len());
            format!("<sbp_native.{} {name:?} in {streams} streams>", Self::NAME)
        }
    }

    writer {
        fn writer<'py>(slf: &Bound<'py, Self>) () options -> PyResult<Bound<'py, PyAny>> {
            let (py, set) = (slf.py(), &slf.get().0);
            set.core.client(py)?;
            let writers = PyDict::new(py);
            for stream in &set.streams {
                let writer = api::Writer::open(py, &set.core, Key::Known(Arc::clone(stream)), &options)?;
                writers.set_item(&*stream.name, Bound::new(py, writer)?)?;
            }
            let class = py.import("sbp_native._keyed")?.getattr(format!("{}Writer", Self::NAME))?;
            class.call1((slf, writers))
        }
    }
}
