//! Received batches as Python sees them.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyRange, PyTuple};
use sbp_record::BatchError;
use sbp_types::{Offset, StreamId};

use crate::buffer::Payload;
use crate::{arrow, errors};

/// A run of records of one stream, as they were appended together.
#[pyclass(frozen, module = "sbp_native", name = "Batch")]
pub(crate) struct Batch {
    stream: Arc<str>,
    stream_id: StreamId,
    batch: sbp_record::Batch,
    /// The records shown: a batch is stored whole, and the reader may have asked for a part.
    from: Offset,
    to: Offset,
}

impl Batch {
    /// The records of `batch` from `from` up to, not including, `to`.
    pub(crate) fn new(
        stream: Arc<str>,
        stream_id: StreamId,
        batch: sbp_record::Batch,
        from: Offset,
        to: Offset,
    ) -> Self {
        let from = from.max(batch.base_offset());
        let to = to.min(batch.end_offset()).max(from);
        Self {
            stream,
            stream_id,
            batch,
            from,
            to,
        }
    }

    fn shown(&self) -> PyResult<sbp_record::Records<'_>> {
        let records = self.batch.records().map_err(refused)?;
        Ok(records.between(self.from, self.to))
    }

    fn columns(&self) -> PyResult<arrow_array::RecordBatch> {
        self.batch.to_record_batch(self.from, self.to).map_err(refused)
    }
}

fn refused(error: BatchError) -> PyErr {
    crate::attach::attach(|py| match error {
        BatchError::TypedColumns(_) => pyo3::exceptions::PyTypeError::new_err(
            "the stream has a schema, so its records are rows of columns: use to_arrow()",
        ),
        other => errors::corrupt(py, &other.to_string()),
    })
}

#[pymethods]
impl Batch {
    #[getter]
    fn stream(&self) -> &str {
        &self.stream
    }

    #[getter]
    fn stream_id(&self) -> i64 {
        self.stream_id.0
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
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyRange>> {
        PyRange::new(py, isize::try_from(self.from.0)?, isize::try_from(self.to.0)?)
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
        let skipped = usize::try_from(self.from.distance_from(self.batch.base_offset()))?;
        let payloads = self.batch.payloads().map_err(refused)?;
        let list = PyList::empty(py);
        for value in payloads.skip(skipped).take(self.__len__()) {
            list.append(value.map(|bytes| Py::new(py, Payload(bytes))).transpose()?)?;
        }
        Ok(list)
    }

    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for record in self.shown()? {
            list.append(Py::new(py, Record::from(record))?)?;
        }
        Ok(list)
    }

    fn to_arrow(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        py.import(intern!(py, "pyarrow"))?
            .call_method1(intern!(py, "record_batch"), (slf,))
    }

    fn to_pandas(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        Self::to_arrow(slf)?.call_method0("to_pandas")
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

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::export_schema(py, self.columns()?.schema().as_ref())
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.to.distance_from(self.from)).unwrap_or(usize::MAX)
    }

    fn __repr__(&self) -> String {
        format!("<sbp_native.Batch {:?} [{}, {})>", self.stream, self.from, self.to)
    }
}

/// One record, copied out of its batch.
#[pyclass(frozen, eq, hash, module = "sbp_native", name = "Record")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Record {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl From<sbp_record::Record<'_>> for Record {
    fn from(record: sbp_record::Record<'_>) -> Self {
        Self {
            offset: record.offset.0,
            timestamp: record.timestamp_us,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)))
                .collect(),
        }
    }
}

#[pymethods]
impl Record {
    #[getter]
    fn offset(&self) -> i64 {
        self.offset
    }

    #[getter]
    fn timestamp(&self) -> i64 {
        self.timestamp
    }

    #[getter]
    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    #[getter]
    fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    #[getter]
    fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect()
    }

    fn __repr__(&self) -> String {
        let show = |bytes: &Option<Vec<u8>>| match bytes {
            Some(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
            None => "None".to_owned(),
        };
        format!(
            "Record(offset={}, timestamp={}, key={}, value={})",
            self.offset,
            self.timestamp,
            show(&self.key),
            show(&self.value)
        )
    }
}
