//! A client of Pravega, for blocking code and for asyncio.

use std::sync::Arc;

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments;
use super::core::{MadeWith, PravegaCore, reduce};
use super::results::{Described, Name};
use super::writer::{AsyncPravegaWriter, PravegaWriter, WriterCore};
use crate::api::pair::blocking_and_asyncio;
use crate::bridge::{Operation, RunningLoop};
use crate::errors;
use crate::owner::block;
use crate::process::blocking::block_on;
use crate::read::pravega::{PravegaClient, PravegaSource};
use crate::read::shared_source::AnySource;
use crate::requests::{Effect, Failure};

/// Has the server answer something.
async fn connected(client: PravegaClient) -> Result<(), Failure> {
    client.within(None, Effect::None, client.pravega.connect()).await
}

/// Connects to a controller, or to a segment store.
#[pyfunction]
#[pyo3(signature = (controller = None, *, segment_store = None, timeout = 30.0, token = String::new()), text_signature = "(controller=None, *, segment_store=None, timeout=30.0, token='')")]
pub(crate) fn pravega_connect(
    py: Python<'_>,
    controller: Option<String>,
    segment_store: Option<String>,
    timeout: f64,
    token: String,
) -> PyResult<Pravega> {
    let core = PravegaCore::new(
        py,
        MadeWith {
            controller,
            segment_store,
            timeout,
            token,
        },
    )?;
    block(py, &core, None, |client, _| connected(client))?;
    Ok(Pravega(core))
}

/// A client that connects when it is awaited or entered.
#[pyfunction]
#[pyo3(signature = (controller = None, *, segment_store = None, timeout = 30.0, token = String::new()), text_signature = "(controller=None, *, segment_store=None, timeout=30.0, token='')")]
pub(crate) fn pravega_aio_connect(
    py: Python<'_>,
    controller: Option<String>,
    segment_store: Option<String>,
    timeout: f64,
    token: String,
) -> PyResult<AsyncPravega> {
    let made_with = MadeWith {
        controller,
        segment_store,
        timeout,
        token,
    };
    Ok(AsyncPravega(PravegaCore::new(py, made_with)?))
}

blocking_and_asyncio! {
    struct Pravega and AsyncPravega(Arc<PravegaCore>) of "sbp_native.pravega";

    impl Pravega and AsyncPravega {
        #[getter]
        fn address(&self) -> &str {
            self.0.address()
        }

        #[pyo3(
            signature = (stream, *, start = None, end = None, timeout = None),
            text_signature = "($self, stream, *, start='earliest', end=None, timeout=None)"
        )]
        fn read(
            &self,
            py: Python<'_>,
            stream: &str,
            start: Option<&Bound<'_, PyAny>>,
            end: Option<&Bound<'_, PyAny>>,
            timeout: Option<f64>,
        ) -> PyResult<api::Batches> {
            let stream = arguments::stream(py, stream)?;
            let wanted = arguments::request(&stream, start, end)?;
            let client = self.0.client.get(py)?.clone();
            let source = AnySource::Pravega(PravegaSource::new(client, stream, wanted));
            api::Batches::of(py, Arc::clone(&self.0) as _, source, timeout, None)
        }

        #[pyo3(signature = (*, timeout = None))]
        fn scopes<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                let scopes = client.within(timeout, Effect::None, client.pravega.scopes()).await?;
                Ok(scopes.into_iter().map(Name).collect::<Vec<_>>())
            })
        }

        #[pyo3(signature = (scope, *, timeout = None))]
        fn streams<'py>(&self, py: Python<'py>, scope: String, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                let streams = client.within(timeout, Effect::None, client.pravega.streams(&scope)).await?;
                Ok(streams.into_iter().map(|name| Name(name.to_string())).collect::<Vec<_>>())
            })
        }

        #[pyo3(signature = (stream, *, timeout = None))]
        fn segments<'py>(&self, py: Python<'py>, stream: &str, timeout: Option<f64>) -> api::Returned<'py> {
            let stream = arguments::stream(py, stream)?;
            api::run(py, &self.0, timeout, |client, timeout| async move {
                let described = async {
                    let mut all = Vec::new();
                    for owned in client.pravega.current_segments(&stream).await? {
                        let info = client.pravega.segment_info(&owned.segment).await?;
                        all.push(Described(owned, info));
                    }
                    Ok(all)
                };
                client.within(timeout, Effect::None, described).await
            })
        }

        #[pyo3(signature = (scope, *, timeout = None))]
        fn create_scope<'py>(&self, py: Python<'py>, scope: String, timeout: Option<f64>) -> api::Returned<'py> {
            api::run(py, &self.0, timeout, |client, timeout| async move {
                client.within(timeout, Effect::Perhaps, client.pravega.create_scope(&scope)).await
            })
        }

        #[pyo3(signature = (stream, segments = 1, *, timeout = None))]
        fn create_stream<'py>(
            &self,
            py: Python<'py>,
            stream: &str,
            segments: i32,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let stream = arguments::stream(py, stream)?;
            if segments < 1 {
                return Err(errors::invalid(py, "a stream has at least one segment"));
            }
            api::run(py, &self.0, timeout, move |client, timeout| async move {
                let call = client.pravega.create_stream(&stream, segments);
                client.within(timeout, Effect::Perhaps, call).await
            })
        }

        #[pyo3(signature = (stream, *, timeout = None))]
        fn seal_stream<'py>(&self, py: Python<'py>, stream: &str, timeout: Option<f64>) -> api::Returned<'py> {
            let stream = arguments::stream(py, stream)?;
            api::run(py, &self.0, timeout, |client, timeout| async move {
                client.within(timeout, Effect::Perhaps, client.pravega.seal_stream(&stream)).await
            })
        }

        #[pyo3(signature = (stream, *, timeout = None))]
        fn delete_stream<'py>(&self, py: Python<'py>, stream: &str, timeout: Option<f64>) -> api::Returned<'py> {
            let stream = arguments::stream(py, stream)?;
            api::run(py, &self.0, timeout, |client, timeout| async move {
                client.within(timeout, Effect::Perhaps, client.pravega.delete_stream(&stream)).await
            })
        }

        #[pyo3(signature = (stream, segment, offset, *, timeout = None))]
        fn truncate_segment<'py>(
            &self,
            py: Python<'py>,
            stream: &str,
            segment: &Bound<'py, PyAny>,
            offset: i64,
            timeout: Option<f64>,
        ) -> api::Returned<'py> {
            let segment = arguments::segment(&arguments::stream(py, stream)?, segment)?;
            api::run(py, &self.0, timeout, move |client, timeout| async move {
                let call = client.pravega.truncate_segment(&segment, offset);
                client.within(timeout, Effect::Perhaps, call).await
            })
        }

        fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.0.stats(py)
        }

        fn __repr__(&self) -> String {
            format!("<sbp_native.pravega.{} of {}>", Self::NAME, self.0.address())
        }
    }

    impl Pravega {
        #[pyo3(signature = (stream))]
        fn writer(&self, py: Python<'_>, stream: &str) -> PyResult<PravegaWriter> {
            let stream = arguments::stream(py, stream)?;
            self.0.client.get(py)?;
            Ok(PravegaWriter::of(WriterCore::new(Arc::clone(&self.0), stream)))
        }

        fn close(&self, py: Python<'_>) -> PyResult<()> {
            match self.0.client.close() {
                Some(client) => block_on(py, async move { client.pravega.close().await }),
                None => Ok(()),
            }
        }

        fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
            slf.get().0.client.get(slf.py())?;
            Ok(slf)
        }

        #[pyo3(signature = (*_exception))]
        fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.0, "pravega_connect")
        }
    }

    impl AsyncPravega {
        #[pyo3(signature = (stream))]
        fn writer(&self, py: Python<'_>, stream: &str) -> PyResult<AsyncPravegaWriter> {
            let stream = arguments::stream(py, stream)?;
            self.0.client.get(py)?;
            Ok(AsyncPravegaWriter::of(WriterCore::new(Arc::clone(&self.0), stream)))
        }

        fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Operation>> {
            let event_loop = RunningLoop::current(py)?;
            match self.0.client.close() {
                Some(client) => event_loop.spawn(
                    async move {
                        client.pravega.close().await;
                        Ok(())
                    },
                    |py, ()| Ok(py.None()),
                ),
                None => event_loop.ready(Ok(py.None())),
            }
        }

        fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            Self::__aenter__(slf)
        }

        fn __aenter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Operation>> {
            let py = slf.py();
            let core = Arc::clone(&slf.get().0);
            let client = core.client.get(py)?.clone();
            // Another object of the same client: a reference to this one must not travel through the I/O thread.
            RunningLoop::current(py)?.spawn(connected(client), move |py, ()| Ok(Py::new(py, Self(core))?.into_any()))
        }

        #[pyo3(signature = (*_exception))]
        fn __aexit__<'py>(&self, py: Python<'py>, _exception: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Operation>> {
            self.close(py)
        }

        fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            reduce(py, &self.0, "pravega_aio_connect")
        }
    }
}

impl Pravega {
    /// What it shares with what is made of it.
    pub(super) fn core(&self) -> &Arc<PravegaCore> {
        &self.0
    }
}
