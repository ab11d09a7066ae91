//! One stream, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::api::pair::blocking_and_asyncio;
use crate::append::prepared::BackpressurePolicy;
use crate::arguments;
use crate::client_core::ClientCore;
use crate::read::source::{self, ReadRequest};
use crate::requests::{self, Described, Key, StreamChange};
use crate::results::stream_info::StreamInfo;

/// One stream: what `Stream` and `AsyncStream` share.
pub(crate) struct StreamHandle {
    pub(super) core: Arc<ClientCore>,
    pub(super) described: Arc<Described>,
}

impl StreamHandle {
    /// What the server said of it, with the columns that were added since as far as the client knows.
    fn newest(&self) -> Arc<Described> {
        let client = self.core.unchecked_client();
        let newest = client.and_then(|client| requests::newest(client, &self.described).ok());
        newest.unwrap_or_else(|| Arc::clone(&self.described))
    }

    /// The stream as arguments of calls name it.
    pub(super) fn key(&self) -> Key {
        Key::Known(Arc::clone(&self.described))
    }
}

blocking_and_asyncio! {
    struct Stream and AsyncStream(StreamHandle);

    impl Stream and AsyncStream {
        #[getter]
        fn id(&self) -> i64 {
            self.0.described.stream.stream_id.0
        }

        #[getter]
        fn name(&self) -> &str {
            &self.0.described.name
        }

        #[getter]
        fn identity(&self) -> Option<String> {
            self.0.described.identity()
        }

        #[getter]
        fn schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
            self.0.newest().pyarrow_schema(py)
        }

        #[getter]
        fn info(&self) -> StreamInfo {
            StreamInfo(self.0.newest())
        }

        #[pyo3(signature = (offset, *, max_bytes = 4_194_304, min_bytes = 0, max_wait = 0.0, timeout = None))]
        fn fetch<'py>(
            &self,
            py: Python<'py>,
            offset: &Bound<'py, PyAny>,
            max_bytes: i64,
            min_bytes: i64,
            max_wait: f64,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let wanted = arguments::fetch_request(offset, max_bytes, min_bytes, max_wait)?;
            let (key, copied) = (self.0.key(), Arc::clone(&self.0.core.copied));
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                source::fetch(&client, &key, wanted, &copied, timeout).await
            })
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
            api::Batches::new(py, &self.0.core, ReadRequest::span(self.0.key(), start, end)?, timeout, None)
        }

        #[pyo3(
            signature = (start = None, *, timeout = None),
            text_signature = "($self, start='latest', *, timeout=None)"
        )]
        fn tail(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<api::Batches> {
            api::Batches::new(py, &self.0.core, ReadRequest::tail_of(self.0.key(), start)?, timeout, None)
        }

        #[pyo3(signature = (*, timeout = None))]
        fn positions<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            let key = self.0.key();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::positions_of(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn describe<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            let key = self.0.key();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::describe(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn describe_ranges<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            let key = self.0.key();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::ranges(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (*, name = None, schema = None, retention = None, retention_bytes = None, replicas = None, acks = None, properties = None, timeout = None))]
        #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
        fn update<'py>(
            &self,
            py: Python<'py>,
            name: Option<String>,
            schema: Option<&Bound<'py, PyAny>>,
            retention: Option<&Bound<'py, PyAny>>,
            retention_bytes: Option<&Bound<'py, PyAny>>,
            replicas: Option<i8>,
            acks: Option<i8>,
            properties: Option<&Bound<'py, PyDict>>,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let wanted = StreamChange {
                replicas,
                acks,
                ..arguments::change(name, schema, retention, retention_bytes, properties)?
            };
            let key = self.0.key();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::update(&client, &key, wanted, timeout).await
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn delete<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            let key = self.0.key();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::delete(&client, &key, timeout).await
            })
        }

        #[pyo3(signature = (before, *, timeout = None))]
        fn trim<'py>(&self, py: Python<'py>, before: &Bound<'py, PyAny>, timeout: Option<f64>) -> api::Returned<'py> {
            let (key, before) = (self.0.key(), arguments::position(before)?);
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::trim(&client, &key, before, timeout).await
            })
        }

        #[pyo3(signature = (*, timeout = None))]
        fn seal<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            let key = self.0.key();
            api::run(py, &self.0.core, timeout, |client, timeout| async move {
                requests::seal(&client, &key, timeout).await
            })
        }

        fn __repr__(&self) -> String {
            let described = &self.0.described;
            let (name, id) = (&described.name, described.stream.stream_id);
            format!("<sbp_native.{} {name:?} (id {id})>", Self::NAME)
        }
    }

    appends(&self) to (&self.0.core, self.0.key())

    writer {
        fn writer<'py>(&self, py: Python<'py>) () options -> PyResult<api::Writer> {
            api::Writer::open(py, &self.0.core, self.0.key(), &options)
        }
    }
}
