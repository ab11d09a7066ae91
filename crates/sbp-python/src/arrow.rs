//! Arrow's C interfaces, in both directions, as PyCapsules. Nothing here needs pyarrow.
#![allow(
    unsafe_code,
    reason = "the Arrow C interfaces are C structures in capsules; each block says why it is sound"
)]

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Whether the object offers record batches in Arrow form.
pub(crate) fn is_arrow(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.hasattr(intern!(py, "__arrow_c_array__"))? || object.hasattr(intern!(py, "__arrow_c_stream__"))?)
}

/// The record batches that a table, a batch, a data frame or a reader offers, and their schema.
pub(crate) fn import_batches(object: &Bound<'_, PyAny>) -> PyResult<(Schema, Vec<RecordBatch>)> {
    let py = object.py();
    if object.hasattr(intern!(py, "__arrow_c_array__"))? {
        let batch = import_array(object)?;
        return Ok((batch.schema().as_ref().clone(), vec![batch]));
    }
    let capsule = object
        .call_method0(intern!(py, "__arrow_c_stream__"))?
        .cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds such a structure; it is moved out, which marks the original as released, so
    // that the capsule's destructor leaves it alone.
    let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.as_ptr()) }.map_err(from_arrow)?;
    let schema = reader.schema().as_ref().clone();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(from_arrow)?;
    Ok((schema, batches))
}

fn import_array(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let pair = object
        .call_method0(intern!(object.py(), "__arrow_c_array__"))?
        .cast_into::<PyTuple>()?;
    let schema = import_schema_capsule(&pair.get_item(0)?)?;
    let capsule = pair.get_item(1)?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: a capsule of this name holds such a structure; it is moved out, which marks the original as released.
    let array = unsafe { FFI_ArrowArray::from_raw(pointer.as_ptr()) };
    // SAFETY: array and schema come from one call and describe each other; that they follow the C data interface is the
    // exporter's part of its contract.
    let data = unsafe { from_ffi(array, &schema) }.map_err(from_arrow)?;
    if !matches!(data.data_type(), arrow_schema::DataType::Struct(_)) {
        return Err(PyTypeError::new_err(
            "a record batch or a table is needed, not a single column",
        ));
    }
    let metadata = Schema::try_from(&schema)
        .map(|schema| schema.metadata)
        .unwrap_or_default();
    let batch = RecordBatch::from(StructArray::from(data));
    let schema = batch.schema().as_ref().clone().with_metadata(metadata);
    batch.with_schema(schema.into()).map_err(from_arrow)
}

/// The schema that a `pyarrow.Schema`, or anything else with `__arrow_c_schema__`, describes.
pub(crate) fn import_schema(object: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let method = intern!(object.py(), "__arrow_c_schema__");
    if !object.hasattr(method)? {
        return Err(PyTypeError::new_err(
            "a schema is a pyarrow.Schema, or another object with __arrow_c_schema__",
        ));
    }
    Schema::try_from(&import_schema_capsule(&object.call_method0(method)?)?).map_err(from_arrow)
}

fn import_schema_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowSchema> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds such a structure; it is moved out, which marks the original as released.
    Ok(unsafe { FFI_ArrowSchema::from_raw(pointer.as_ptr()) })
}

/// A record batch as the pair of capsules that `__arrow_c_array__` returns.
pub(crate) fn export_batch<'py>(py: Python<'py>, batch: RecordBatch) -> PyResult<Bound<'py, PyTuple>> {
    let schema = export_schema(py, batch.schema().as_ref())?;
    let (array, _) = to_ffi(&StructArray::from(batch).to_data()).map_err(from_arrow)?;
    PyTuple::new(py, [schema, PyCapsule::new_with_value(py, array, ARRAY)?])
}

/// A schema as the capsule that `__arrow_c_schema__` returns.
pub(crate) fn export_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(from_arrow)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// A reader as the capsule that `__arrow_c_stream__` returns. Its consumer calls it from any thread, without the
/// interpreter lock; it must not touch Python.
pub(crate) fn export_stream<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// A schema object of pyarrow, for users; pyarrow is imported here and not before.
pub(crate) fn pyarrow_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyAny>> {
    let holder = Bound::new(py, SchemaHolder(schema.clone()))?;
    py.import(intern!(py, "pyarrow"))?
        .call_method1(intern!(py, "schema"), (holder,))
}

/// Something with `__arrow_c_schema__`, for consumers that take objects and not capsules.
#[pyclass(frozen, module = "sbp_native._native")]
struct SchemaHolder(Schema);

#[pymethods]
impl SchemaHolder {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &self.0)
    }
}

/// Arrow's own complaint about data that a caller gave.
pub(crate) fn from_arrow(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
