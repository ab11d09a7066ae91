//! Streams as the server described them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use sbp_client::ClientError;
use sbp_messages::ErrorCode;
use sbp_record::{SchemaError, Source, StreamSchema};

use crate::memory::arrow;

/// A stream the server described, and its schema read once.
pub(crate) struct Described {
    pub(crate) stream: Arc<sbp_messages::Stream>,
    pub(crate) name: Arc<str>,
    pub(crate) schema: Option<StreamSchema>,
    /// The server has said since that there is no such stream.
    gone: AtomicBool,
}

impl Described {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// The schema cannot be read.
    pub(crate) fn new(stream: Arc<sbp_messages::Stream>) -> Result<Arc<Self>, SchemaError> {
        let schema = stream
            .schema
            .as_ref()
            .map(|message| StreamSchema::from_ipc(message))
            .transpose()?;
        Ok(Arc::new(Self {
            name: Arc::from(name_of(&stream)),
            stream,
            schema,
            gone: AtomicBool::new(false),
        }))
    }

    /// What batches say of it.
    pub(crate) fn source(&self) -> Source {
        Source {
            name: Arc::clone(&self.name),
            id: self.stream.stream_id,
        }
    }

    /// Notes what an error says about the stream.
    pub(crate) fn note(&self, error: &ClientError) {
        if error.code() == ErrorCode::NOT_FOUND {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the stream has to be looked up anew: its name may be another one's by now.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// The stream's identity as Python sees it.
    pub(crate) fn identity(&self) -> Option<String> {
        self.stream.identity.map(|identity| identity.to_string())
    }

    /// The schema as a `pyarrow.Schema`.
    pub(crate) fn pyarrow_schema<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.schema
            .as_ref()
            .map(|schema| arrow::pyarrow_schema(py, schema.arrow()))
            .transpose()
    }
}

/// What a stream is called: one without a name by its id.
pub(crate) fn name_of(stream: &sbp_messages::Stream) -> String {
    if stream.name.is_empty() {
        stream.stream_id.to_string()
    } else {
        stream.name.clone()
    }
}
