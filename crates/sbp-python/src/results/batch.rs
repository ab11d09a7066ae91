//! Received batches as Python sees them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{RecordBatch, RecordBatchIterator};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyIterator, PyList, PyRange, PyTuple};
use sbp_client::ClientError;
use sbp_client::codes;
use sbp_python_macros::stub_docs;
use sbp_record::{BatchError, Source, first_outside_calendar};
use sbp_types::{Offset, StreamId};

use crate::errors;
use crate::interpreter::attach::attach;
use crate::interpreter::imports;
use crate::interpreter::once::interned;
use crate::memory::arrow;
use crate::memory::buffer::Payload;
use crate::results::html;
use crate::results::record::Record;

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "Batch")]
pub(crate) struct Batch {
    stream: Source,
    batch: Arc<sbp_record::Batch>,
    /// The records shown: a batch is stored whole, and the reader may have asked for a part.
    from: Offset,
    to: Offset,
    /// Where the batch lay in the frame it came in; empty where it lay in none.
    received: Range<usize>,
}

impl Batch {
    /// The records of a batch from one offset up to, not including, another. `received`: the bytes it was read from, if they
    /// are kept.
    pub(crate) fn new(
        stream: Source,
        batch: Arc<sbp_record::Batch>,
        (from, to): (Offset, Offset),
        received: &[u8],
    ) -> Self {
        let address = received.as_ptr() as usize;
        Self {
            stream,
            batch,
            from,
            to,
            received: address..address + received.len(),
        }
    }

    /// Its stream, and the offset behind its last record.
    pub(crate) fn behind(&self) -> (StreamId, Offset) {
        (self.stream.id, self.to)
    }

    fn shown(&self) -> PyResult<sbp_record::Records<'_>> {
        let records = self.batch.records().map_err(refused)?;
        Ok(records.between(self.from, self.to))
    }

    /// The records as columns.
    ///
    /// # Errors
    ///
    /// They are damaged, or a time is none that columns can show: batches of other clients, and of earlier versions, may
    /// hold such times.
    pub(crate) fn rows(&self) -> Result<RecordBatch, ClientError> {
        let about = |error: ClientError, offset| {
            let error = error.with_stream(self.stream.id).with_offset(offset);
            error.with_stream_name(&self.stream.name)
        };
        let rows = self.batch.to_record_batch(self.from, self.to).map_err(|error| {
            let error = ClientError::local(codes::CORRUPT_ON_ARRIVAL, error.to_string());
            about(error, self.from)
        })?;
        if self.batch.is_typed() {
            // The columns are the stream's own; times of records are none of them.
            return Ok(rows);
        }
        let times = rows.column_by_name("timestamp");
        let times = times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
        let Some(row) = times.and_then(|times| first_outside_calendar(times.values())) else {
            return Ok(rows);
        };
        let time = times
            .and_then(|times| times.values().get(row).copied())
            .unwrap_or_default();
        let what = format!(
            "the record has the time {time} microseconds, which is not in the years 1 to 9999, and columns cannot show \
             it; records() and values can be read"
        );
        let offsets = rows
            .column_by_name("offset")
            .and_then(|offsets| offsets.as_primitive_opt::<Int64Type>());
        let offset = offsets
            .and_then(|offsets| offsets.values().get(row))
            .map_or(self.from, |at| Offset(*at));
        Err(about(ClientError::invalid(what), offset))
    }

    fn columns(&self) -> PyResult<RecordBatch> {
        let explain = |error: ClientError| attach(|py| errors::from_client(py, error, Some(&*self.stream.name)));
        self.rows().map_err(explain)
    }
}

fn refused(error: BatchError) -> PyErr {
    attach(|py| match error {
        BatchError::TypedColumns(_) => {
            PyTypeError::new_err("the stream has a schema, so its records are rows of columns: use to_arrow()")
        }
        other => errors::corrupt(py, &other.to_string()),
    })
}

#[stub_docs]
#[pymethods]
impl Batch {
    #[getter]
    fn stream(&self) -> &str {
        &self.stream.name
    }

    #[getter]
    fn stream_id(&self) -> i64 {
        self.stream.id.0
    }

    #[getter]
    fn base_offset(&self) -> i64 {
        self.from.0
    }

    #[getter]
    fn last_offset(&self) -> i64 {
        self.to.0 - 1
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.batch.run_between(self.from, self.to) {
            Some(run) => Ok(PyRange::new(py, isize::try_from(run.start)?, isize::try_from(run.end)?)?.into_any()),
            None => Ok(PyTuple::new(py, self.batch.offsets_between(self.from, self.to))?.into_any()),
        }
    }

    #[getter]
    fn timestamps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if self.batch.is_typed() {
            let micros = self.batch.head().meta.base_timestamp.0.saturating_mul(1_000);
            return PyList::new(py, std::iter::repeat_n(micros, self.__len__()));
        }
        PyList::new(py, self.shown()?.map(|record| record.timestamp_us))
    }

    #[getter]
    fn payloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let payloads = self.batch.payloads().map_err(refused)?.between(self.from, self.to);
        PyList::new(py, payloads.map(|value| value.map(Payload::new)))
    }

    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.shown()?.map(|record| bytes(py, record.value)))
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.shown()?.map(|record| bytes(py, record.key)))
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let pairs = |record: sbp_record::Record<'_>| -> Vec<(String, Option<Bound<'py, PyBytes>>)> {
            let headers = record.headers;
            headers
                .map(|(name, value)| (name.to_owned(), bytes(py, value)))
                .collect()
        };
        PyList::new(py, self.shown()?.map(pairs))
    }

    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.shown()?.map(|record| Record::new(py, record)))
    }

    fn to_arrow(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        imports::library(py, "pyarrow", "Batch.to_arrow", "'sbp-native[arrow]'")?
            .call_method1(interned!(py, "record_batch"), (slf,))
    }

    fn to_pandas(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        imports::library(py, "pandas", "Batch.to_pandas", "'sbp-native[arrow]' pandas")?;
        Self::to_arrow(slf)?.call_method0("to_pandas")
    }

    fn to_polars(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        imports::library(py, "polars", "Batch.to_polars", "polars")?.call_method1(interned!(py, "DataFrame"), (slf,))
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // A wish that the protocol allows an exporter not to grant: the columns have the types they have.
        let _ = requested_schema;
        arrow::export_batch(py, self.columns()?)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let columns = self.columns()?;
        let schema = columns.schema();
        arrow::export_stream(py, Box::new(RecordBatchIterator::new([Ok(columns)], schema)))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::export_schema(py, self.columns()?.schema().as_ref())
    }

    fn __len__(&self) -> usize {
        self.batch.rows_between(self.from, self.to).len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.records(py)?.try_iter()
    }

    fn __repr__(&self) -> String {
        format!("<sbp_native.Batch {:?} [{}, {})>", self.stream.name, self.from, self.to)
    }

    /// The first rows as a table, for notebooks.
    fn _repr_html_(&self) -> PyResult<String> {
        let shown = self.batch.to_record_batch(self.from, self.to).map_err(refused)?;
        let shown = shown.slice(0, shown.num_rows().min(html::ROWS));
        let caption = format!(
            "{} records of {:?}, offsets {} to {}",
            self.__len__(),
            self.stream.name,
            self.from,
            self.last_offset()
        );
        Ok(html::table(&caption, &shown, self.__len__()))
    }

    /// `(address, length)` of the batch in the frame it came in.
    #[getter]
    fn _received(&self) -> (usize, usize) {
        (self.received.start, self.received.len())
    }
}

/// A `bytes` object, or `None`.
fn bytes<'py>(py: Python<'py>, value: Option<&[u8]>) -> Option<Bound<'py, PyBytes>> {
    value.map(|value| PyBytes::new(py, value))
}
