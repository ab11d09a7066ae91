//! Acknowledgements as Python sees them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sbp_client::AppendOutcome;
use sbp_python_macros::stub_docs;
use sbp_types::Offset;

use crate::errors;
use crate::requests::{Described, Failure};

#[stub_docs]
#[pyclass(frozen, eq, hash, module = "sbp_native", name = "Ack")]
#[derive(PartialEq, Eq)]
pub(crate) struct Ack {
    stream: Arc<str>,
    inner: sbp_client::Ack,
}

impl Hash for Ack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.inner.stream, self.inner.base_offset).hash(state);
    }
}

impl Ack {
    pub(crate) fn new(stream: Arc<str>, inner: sbp_client::Ack) -> Self {
        Self { stream, inner }
    }
}

#[stub_docs]
#[pymethods]
impl Ack {
    #[getter]
    fn stream(&self) -> &str {
        &self.stream
    }

    #[getter]
    fn stream_id(&self) -> i64 {
        self.inner.stream.0
    }

    #[getter]
    fn base_offset(&self) -> i64 {
        number(self.inner.base_offset)
    }

    #[getter]
    fn last_offset(&self) -> i64 {
        number(self.inner.last_offset())
    }

    #[getter]
    fn append_time(&self) -> i64 {
        self.inner.append_time.0
    }

    #[getter]
    fn durability(&self) -> &'static str {
        self.inner.durability.as_str()
    }

    #[getter]
    fn duplicate(&self) -> bool {
        self.inner.duplicate
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.records).unwrap_or(usize::MAX)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!(
            "Ack(stream={:?}, base_offset={}, last_offset={}, append_time={}, durability={:?}, duplicate={})",
            self.stream,
            self.base_offset(),
            self.last_offset(),
            self.inner.append_time.0,
            self.inner.durability.as_str(),
            if self.inner.duplicate { "True" } else { "False" }
        )
    }
}

/// An offset as callers see it: -1 where the server does not remember it.
fn number(offset: Option<Offset>) -> i64 {
    offset.map_or(-1, |offset| offset.0)
}

/// Makes a Python object of what a verb has returned.
pub(crate) trait OfReply: Send + Sync {
    /// The object, or an exception for bytes that are none.
    fn object(&self, py: Python<'_>, reply: &Bytes) -> PyResult<Py<PyAny>>;
}

/// What the outcome of an append, or of a call of a verb, becomes.
pub(crate) enum AckShape {
    /// The operation is neither, or not yet.
    None,
    /// One [`Ack`].
    One(Arc<Described>),
    /// A dict from stream name to [`Ack`].
    Many(Vec<Arc<Described>>),
    /// What this makes of a verb's reply; `None`: the reply itself, as bytes.
    OfVerb(Option<Arc<dyn OfReply>>),
}

impl AckShape {
    /// The failure, with the stream's name where it is about one.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        match (failure, self) {
            (Failure::Client(error), Self::One(stream)) => {
                stream.note(&error);
                Failure::Named(error, Some(Arc::clone(&stream.name)))
            }
            (Failure::Client(error), Self::Many(streams)) => {
                let concerned = |stream: &&Arc<Described>| Some(stream.stream.stream_id) == error.stream();
                let name = streams.iter().find(concerned).map(|stream| Arc::clone(&stream.name));
                Failure::Named(error, name)
            }
            (failure, _) => failure,
        }
    }

    /// The Python object for what a verb has returned.
    pub(crate) fn returned(&self, py: Python<'_>, reply: &Bytes) -> PyResult<Py<PyAny>> {
        match self {
            Self::OfVerb(Some(returns)) => returns.object(py, reply),
            _ => PyBytes::new(py, reply).into_py_any(py),
        }
    }

    /// The Python object for an outcome, or the exception of the first entry that was refused.
    pub(crate) fn build(&self, py: Python<'_>, outcome: AppendOutcome) -> PyResult<Py<PyAny>> {
        match self {
            Self::One(stream) => {
                let inner = outcome
                    .single()
                    .inspect_err(|error| stream.note(error))
                    .map_err(|error| errors::from_client(py, error, Some(&stream.name)))?;
                Ack::new(Arc::clone(&stream.name), inner).into_py_any(py)
            }
            Self::Many(streams) => {
                let acks = PyDict::new(py);
                let mut refused = None;
                for (stream, entry) in streams.iter().zip(outcome.entries) {
                    match entry {
                        Ok(inner) => acks.set_item(&*stream.name, Ack::new(Arc::clone(&stream.name), inner))?,
                        Err(error) => {
                            stream.note(&error);
                            refused.get_or_insert((error, stream));
                        }
                    }
                }
                match refused {
                    None => Ok(acks.into_any().unbind()),
                    Some((error, stream)) => {
                        let error = errors::from_client(py, error, Some(&stream.name));
                        error.value(py).setattr("acks", acks)?;
                        Err(error)
                    }
                }
            }
            Self::None | Self::OfVerb(_) => unreachable!("only appends are answered with an append's outcome"),
        }
    }
}
