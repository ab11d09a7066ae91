//! The keywords of a writer.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use sbp_client::BatchWriterOptions;
use sbp_types::WriterId;

use crate::arguments;
use crate::time::seconds;

/// The keywords that a writer is made with, as Python gives them.
pub(crate) struct WriterArguments<'a, 'py> {
    pub(crate) batch_bytes: usize,
    pub(crate) linger: f64,
    pub(crate) compression: Option<&'a str>,
    pub(crate) idempotent: bool,
    pub(crate) writer_id: Option<&'a Bound<'py, PyAny>>,
    pub(crate) epoch: Option<i64>,
    pub(crate) max_in_flight: usize,
    pub(crate) on_delivery: Option<Py<PyAny>>,
    pub(crate) timeout: f64,
}

impl WriterArguments<'_, '_> {
    /// Who is told of batches that were stored or have failed.
    pub(crate) fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.on_delivery.as_ref().map(|callback| callback.clone_ref(py))
    }

    /// As the client takes them.
    pub(crate) fn options(&self) -> PyResult<BatchWriterOptions> {
        let wrong = |what: &str| Err(PyValueError::new_err(what.to_owned()));
        if !(1..=8 << 20).contains(&self.batch_bytes) {
            return wrong("batch_bytes is 1 to 8388608");
        }
        if self.max_in_flight == 0 || (self.idempotent && self.max_in_flight > 64) {
            return wrong("max_in_flight is 1 to 64 batches; more only with idempotent=False");
        }
        if !self.idempotent && (self.writer_id.is_some() || self.epoch.is_some_and(|epoch| epoch != 0)) {
            return wrong("writer_id and epoch are an idempotent writer's: leave them out with idempotent=False");
        }
        if self.epoch.is_some_and(|epoch| epoch < 0) {
            return wrong("epoch is 0 or more");
        }
        let Ok(linger) = Duration::try_from_secs_f64(self.linger) else {
            return wrong(&format!("linger is seconds, 0 or more and finite, not {}", self.linger));
        };
        Ok(BatchWriterOptions {
            batch_bytes: self.batch_bytes,
            linger,
            compression: arguments::compression(self.compression)?,
            idempotent: self.idempotent,
            writer_id: self.writer_id.map(writer_id).transpose()?,
            epoch: self.epoch,
            max_in_flight: self.max_in_flight,
            reports: self.on_delivery.is_some(),
            timeout: seconds(self.timeout)?,
        })
    }
}

/// A writer's name: a UUID, or one that is made of a text.
fn writer_id(value: &Bound<'_, PyAny>) -> PyResult<WriterId> {
    let py = value.py();
    let wrong = || PyTypeError::new_err("writer_id is a uuid.UUID, or a name as str");
    let uuid = if value.is_instance_of::<PyString>() {
        if value.len()? == 0 {
            return Err(PyValueError::new_err(
                "writer_id is empty: a writer's name has at least one character",
            ));
        }
        let module = py.import("uuid")?;
        module.call_method1("uuid5", (module.getattr("NAMESPACE_OID")?, value))?
    } else {
        value.clone()
    };
    let number: u128 = uuid
        .getattr("int")
        .map_err(|_| wrong())?
        .extract()
        .map_err(|_| wrong())?;
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or_default();
    let id = WriterId {
        high: half(number >> 64),
        low: half(number),
    };
    if id.is_some() {
        Ok(id)
    } else {
        Err(PyValueError::new_err("writer_id is not the nil UUID"))
    }
}

/// A writer's name as Python sees it.
pub(crate) fn uuid(py: Python<'_>, id: WriterId) -> PyResult<Bound<'_, PyAny>> {
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item("int", (u128::from(id.high) << 64) | u128::from(id.low))?;
    py.import("uuid")?.getattr("UUID")?.call((), Some(&keywords))
}
