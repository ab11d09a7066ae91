//! Streams as callers name them: by a name, an id, or an object that stands for a stream.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use sbp_types::StreamId;

use crate::api::stream::{AsyncStream, Stream};
use crate::requests::Key;
use crate::results::stream_info::StreamInfo;

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = object.cast::<PyString>() {
            return Ok(Self::Name(name.to_str()?.to_owned()));
        }
        if let Ok(stream) = object.cast::<Stream>() {
            return Ok(stream.get().0.key());
        }
        if let Ok(stream) = object.cast::<AsyncStream>() {
            return Ok(stream.get().0.key());
        }
        if let Ok(info) = object.cast::<StreamInfo>() {
            return Ok(Self::Known(Arc::clone(&info.get().0)));
        }
        match object.extract::<i64>() {
            Ok(id) if !object.is_instance_of::<PyBool>() => Ok(Self::Id(StreamId(id))),
            _ => Err(PyTypeError::new_err(
                "a stream is named by its name (str), its id (int), or a Stream",
            )),
        }
    }
}
