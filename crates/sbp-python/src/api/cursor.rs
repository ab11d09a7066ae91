//! Named cursors, for blocking code and for asyncio.

use std::sync::Arc;
use std::time::Duration;

use pyo3::PyClass;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyMapping, PyTuple};
use sbp_client::{Client, CursorOptions, Position};
use sbp_types::{Offset, StreamId};

use crate::api::pair::blocking_and_asyncio;
use crate::client_core::ClientCore;
use crate::errors;
use crate::read::shared_source::BatchListener;
use crate::read::source::ReadRequest;
use crate::requests::{self, Described, Failure, Key};
use crate::results::batch::Batch;
use crate::time::duration;

/// A holder of a cursor: what `Cursor` and `AsyncCursor` share.
pub(crate) struct CursorHolder {
    core: Arc<ClientCore>,
    /// `None` only while it is dropped.
    cursor: Option<sbp_client::Cursor>,
    streams: Vec<Arc<Described>>,
}

impl Drop for CursorHolder {
    fn drop(&mut self) {
        if !self.core.is_of_this_process() {
            // Its commits belong to the parent.
            std::mem::forget(self.cursor.take());
        }
    }
}

/// The streams as they are now: a name may have been given to another one since it was last used. Each once.
async fn described(client: &Client, wanted: &[Key], timeout: Option<Duration>) -> Result<Vec<Arc<Described>>, Failure> {
    let mut streams: Vec<Arc<Described>> = Vec::with_capacity(wanted.len());
    for key in wanted {
        let stream = requests::describe(client, key, timeout).await?;
        if !streams
            .iter()
            .any(|known| known.stream.stream_id == stream.stream.stream_id)
        {
            streams.push(stream);
        }
    }
    Ok(streams)
}

impl CursorHolder {
    /// Opens the cursor of a name.
    pub(super) async fn open(
        client: Client,
        core: Arc<ClientCore>,
        name: String,
        keys: Vec<Key>,
        start: Position,
        timeout: Option<Duration>,
    ) -> Result<Self, Failure> {
        let streams = described(&client, &keys, timeout).await?;
        let known = streams.iter().map(|stream| Arc::clone(&stream.stream)).collect();
        let options = CursorOptions {
            start,
            timeout,
            ..CursorOptions::default()
        };
        let cursor = Some(client.cursor(&name, known, options).await?);
        Ok(Self { core, cursor, streams })
    }

    fn cursor(&self, py: Python<'_>) -> PyResult<&sbp_client::Cursor> {
        self.core.client(py)?;
        self.cursor.as_ref().ok_or_else(|| errors::closed(py, "cursor"))
    }

    fn name(&self) -> &str {
        self.cursor.as_ref().map_or("", sbp_client::Cursor::name)
    }

    /// Places by stream name.
    fn dict<'py>(&self, py: Python<'py>, places: Vec<(StreamId, Offset)>) -> PyResult<Bound<'py, PyDict>> {
        let by_name = PyDict::new(py);
        for (id, next) in places {
            let stream = self.streams.iter().find(|stream| stream.stream.stream_id == id);
            if let Some(stream) = stream {
                by_name.set_item(&*stream.name, next.0)?;
            }
        }
        Ok(by_name)
    }

    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let places = self.cursor.as_ref().map(sbp_client::Cursor::positions);
        self.dict(py, places.unwrap_or_default())
    }

    /// The stream of this holder's that a caller names.
    fn stream(&self, py: Python<'_>, key: &Key) -> PyResult<StreamId> {
        let is_it = |stream: &&Arc<Described>| match key {
            Key::Name(name) => **name == *stream.name,
            Key::Id(id) => *id == stream.stream.stream_id,
            Key::Known(known) => known.stream.stream_id == stream.stream.stream_id,
        };
        let found = self.streams.iter().find(is_it);
        found.map(|stream| stream.stream.stream_id).ok_or_else(|| {
            let what = format!("cursor {} was not opened for stream {key}", self.name());
            errors::invalid(py, &what)
        })
    }

    /// What is to be committed: everything handed out, a batch, or places by stream.
    fn places(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(StreamId, Offset)>> {
        let Some(value) = value else {
            return Ok(self.cursor(py)?.reached());
        };
        if let Ok(batch) = value.cast::<Batch>() {
            let (stream, next) = batch.get().behind();
            return Ok(vec![(self.stream(py, &Key::Id(stream))?, next)]);
        }
        let wrong = || {
            PyTypeError::new_err(
                "commit takes a batch, or a dict from streams to the offsets that are next; without either it commits \
                 what was handed out",
            )
        };
        let places = value.cast::<PyMapping>().map_err(|_| wrong())?;
        let mut read = Vec::with_capacity(places.len()?);
        for item in places.items()?.iter() {
            let (key, next) = item.extract::<(Key, Bound<'_, PyAny>)>()?;
            if next.is_instance_of::<PyBool>() {
                return Err(wrong());
            }
            let next = next.extract::<i64>().map_err(|_| wrong())?;
            read.push((self.stream(py, &key)?, Offset(next)));
        }
        Ok(read)
    }

    /// What is read from where reading got to: for ever, or up to the end as it is now.
    fn wanted(&self, py: Python<'_>, bounded: bool) -> PyResult<ReadRequest> {
        let cursor = self.cursor(py)?;
        if let Some(lost) = cursor.lost() {
            return Err(errors::from_client(py, lost, None));
        }
        let places = self.streams.iter().filter_map(|stream| {
            let reached = cursor.reached();
            let (_, next) = reached.iter().find(|(id, _)| *id == stream.stream.stream_id)?;
            Some((Key::Known(Arc::clone(stream)), Position::At(*next)))
        });
        Ok(if bounded {
            let spans = places.map(|(key, start)| (key, start, Position::Latest));
            ReadRequest::Spans {
                streams: spans.collect(),
            }
        } else {
            ReadRequest::Tail {
                streams: places.collect(),
            }
        })
    }

    /// Who notes what was handed out.
    fn taken(&self, py: Python<'_>) -> PyResult<BatchListener> {
        let cursor = self.cursor(py)?.clone();
        Ok(Box::new(move |batch: &Batch| {
            let (stream, next) = batch.behind();
            cursor.advance(stream, next);
        }))
    }
}

blocking_and_asyncio! {
    struct Cursor and AsyncCursor(CursorHolder);

    impl Cursor and AsyncCursor {
        #[getter]
        fn name(&self) -> &str {
            self.0.name()
        }

        #[getter]
        fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
            PyTuple::new(py, self.0.streams.iter().map(|stream| &*stream.name))
        }

        #[getter]
        fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.0.positions(py)
        }

        #[getter]
        fn reached<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            let places = self.0.cursor.as_ref().map(sbp_client::Cursor::reached);
            self.0.dict(py, places.unwrap_or_default())
        }

        #[pyo3(signature = (positions = None, *, timeout = None))]
        fn commit<'py>(
            &self,
            py: Python<'py>,
            positions: Option<&Bound<'py, PyAny>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let places = self.0.places(py, positions)?;
            // The order of calls is that of commits: it is settled here.
            let commit = self.0.cursor(py)?.commit(places, duration(timeout)?);
            api::run(py, &self.0.core, timeout, |_, _| async move { Ok(commit.await?) })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn lag<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            let keys = self.0.streams.iter().map(|stream| Key::Known(Arc::clone(stream))).collect();
            let reached = self.0.cursor(py)?.reached();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                let found = requests::positions(&client, Some(keys), timeout).await?.into_iter();
                let lag = found.map(|(stream, bounds)| {
                    let place = reached.iter().find(|(id, _)| *id == stream.stream.stream_id);
                    let next = place.map_or(bounds.earliest, |(_, next)| *next);
                    (stream, bounds.latest.distance_from(next))
                });
                Ok(lag.collect::<Vec<_>>())
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn read(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<api::Batches> {
            let wanted = self.0.wanted(py, true)?;
            api::Batches::new(py, &self.0.core, wanted, timeout, Some(self.0.taken(py)?))
        }

        #[pyo3(signature = (*, timeout = None))]
        fn tail(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<api::Batches> {
            let wanted = self.0.wanted(py, false)?;
            api::Batches::new(py, &self.0.core, wanted, timeout, Some(self.0.taken(py)?))
        }

        fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
            let positions = self.0.positions(py)?.repr()?;
            Ok(format!("<sbp_native.{} {:?} at {positions}>", Self::NAME, self.0.name()))
        }
    }

    impl Cursor {
        fn __iter__(&self, py: Python<'_>) -> PyResult<api::Batches> {
            self.tail(py, None)
        }
    }

    impl AsyncCursor {
        fn __aiter__(&self, py: Python<'_>) -> PyResult<api::Batches> {
            self.tail(py, None)
        }
    }
}
