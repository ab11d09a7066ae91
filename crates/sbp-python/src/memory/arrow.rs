//! Arrow's C interfaces, in both directions, as PyCapsules. Nothing here needs pyarrow.
#![allow(
    unsafe_code,
    reason = "the Arrow C interfaces are C structures in capsules; each block says why it is sound"
)]

use std::ffi::CStr;

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{
    Array, ArrayReader, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchOptions, RecordBatchReader, StructArray,
    make_array,
};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use sbp_record::plain_type;

use crate::interpreter::imports;
use crate::interpreter::once::interned;
use crate::process::fork;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Whether the object offers record batches in Arrow form.
pub(crate) fn is_arrow(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.hasattr(interned!(py, "__arrow_c_array__"))? || object.hasattr(interned!(py, "__arrow_c_stream__"))?)
}

/// What an object offers in Arrow form.
pub(crate) enum Offered {
    /// Rows of columns: a table, a record batch, a data frame, a reader.
    Rows(Schema, Vec<RecordBatch>),
    /// One column: an array, or a chunked one.
    Column(Vec<ArrayRef>),
}

/// Rows that were taken from their owner, to be taken once more: some owners give them only once.
#[pyclass(frozen, module = "sbp_native._native")]
pub(crate) struct Imported {
    schema: Schema,
    batches: Vec<RecordBatch>,
}

impl Imported {
    pub(crate) fn new(schema: Schema, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
}

#[pymethods]
impl Imported {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone().into());
        export_stream(py, Box::new(reader))
    }
}

/// Takes what an object offers, without a copy.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Offered> {
    let py = object.py();
    if object.hasattr(interned!(py, "__arrow_c_array__"))? {
        return import_array(object);
    }
    let capsule = object
        .call_method0(interned!(py, "__arrow_c_stream__"))?
        .cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds such a structure; it is moved out, which marks the original as released, so
    // that the capsule's destructor leaves it alone.
    let reader = unsafe { ArrayStreamReader::from_raw(pointer.as_ptr()) }.map_err(from_arrow)?;
    let DataType::Struct(fields) = reader.field().data_type().clone() else {
        let arrays = reader.collect::<Result<_, _>>().map_err(from_arrow)?;
        return Ok(Offered::Column(arrays));
    };
    let schema = Schema::new(fields);
    let batches = reader
        .map(|array| as_rows(array?.as_struct().clone()))
        .collect::<Result<_, _>>()
        .map_err(from_arrow)?;
    Ok(Offered::Rows(schema, batches))
}

/// The record batches that a table, a batch, a data frame or a reader offers, and their schema.
pub(crate) fn import_batches(object: &Bound<'_, PyAny>) -> PyResult<(Schema, Vec<RecordBatch>)> {
    match import(object)? {
        Offered::Rows(schema, batches) => Ok((schema, batches)),
        Offered::Column(_) => Err(PyTypeError::new_err(
            "a record batch or a table is needed, not a single column",
        )),
    }
}

fn import_array(object: &Bound<'_, PyAny>) -> PyResult<Offered> {
    let pair = object
        .call_method0(interned!(object.py(), "__arrow_c_array__"))?
        .cast_into::<PyTuple>()?;
    let schema = import_schema_capsule(&pair.get_item(0)?)?;
    let capsule = pair.get_item(1)?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: a capsule of this name holds such a structure; it is moved out, which marks the original as released.
    let array = unsafe { FFI_ArrowArray::from_raw(pointer.as_ptr()) };
    // SAFETY: array and schema come from one call and describe each other; that they follow the C data interface is the
    // exporter's part of its contract.
    let data = unsafe { from_ffi(array, &schema) }.map_err(from_arrow)?;
    let array = make_array(data);
    match array.as_struct_opt() {
        None => Ok(Offered::Column(vec![array])),
        Some(rows) => {
            let batch = as_rows(rows.clone()).map_err(from_arrow)?;
            Ok(Offered::Rows(batch.schema().as_ref().clone(), vec![batch]))
        }
    }
}

/// Rows as a batch. A row that is null as a whole is none that a stream could hold.
fn as_rows(rows: StructArray) -> Result<RecordBatch, ArrowError> {
    if rows.null_count() > 0 {
        let message = format!("{} rows are null as a whole; drop them", rows.null_count());
        return Err(ArrowError::InvalidArgumentError(message));
    }
    let (fields, columns, _) = rows.clone().into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Schema::new(fields).into(), columns, &options)
}

/// The schema that a `pyarrow.Schema`, or anything else with `__arrow_c_schema__`, describes.
pub(crate) fn import_schema(object: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let method = interned!(object.py(), "__arrow_c_schema__");
    if !object.hasattr(method)? {
        return Err(PyTypeError::new_err(
            "a schema is a pyarrow.Schema, or another object with __arrow_c_schema__",
        ));
    }
    let schema = Schema::try_from(&import_schema_capsule(&object.call_method0(method)?)?).map_err(from_arrow)?;
    // Libraries lay text and bytes out in several ways; what they hold is the same.
    let plain = |field: &FieldRef| field.as_ref().clone().with_data_type(plain_type(field.data_type()));
    Ok(Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>()))
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

/// Record batches of one schema that `pull` gives one by one, as the capsule that `__arrow_c_stream__` returns. A failure is the
/// last; `forked` is what a child of this process is told, for the I/O thread that would answer lives in the parent.
pub(crate) fn export_pulled<'py>(
    py: Python<'py>,
    schema: SchemaRef,
    forked: &'static str,
    mut pull: impl FnMut() -> Result<Option<RecordBatch>, String> + Send + 'static,
) -> PyResult<Bound<'py, PyCapsule>> {
    let (made_by, mut over) = (fork::current(), false);
    let batches = std::iter::from_fn(move || {
        let failed = |text: String| ArrowError::ExternalError(text.into());
        if !made_by.is_current() {
            return Some(Err(failed(forked.to_owned())));
        }
        if over {
            return None;
        }
        let pulled = pull().map_err(failed).transpose();
        over = !matches!(pulled, Some(Ok(_)));
        pulled
    });
    export_stream(py, Box::new(RecordBatchIterator::new(batches, schema)))
}

/// A schema object of pyarrow, for users; pyarrow is imported here and not before.
pub(crate) fn pyarrow_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyAny>> {
    let holder = Bound::new(py, SchemaHolder(schema.clone()))?;
    imports::library(py, "pyarrow", "a schema as a pyarrow.Schema", "'sbp-native[arrow]'")?
        .call_method1(interned!(py, "schema"), (holder,))
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
