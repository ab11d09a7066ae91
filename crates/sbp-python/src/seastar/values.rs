//! Arguments of verbs, from Python and to Python.

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};
use sbp_peers::seastar::{SeastarError, Signature, Type, Value};

use crate::errors;
use crate::memory::buffer::{owned_bytes, type_name};
use crate::requests::Failure;

/// What arguments are, as text.
pub(super) fn signature(py: Python<'_>, text: &str) -> PyResult<Signature> {
    text.parse()
        .map_err(|error: sbp_peers::seastar::SignatureError| errors::invalid(py, &error.to_string()))
}

/// Values as bytes.
///
/// # Errors
///
/// `TypeError` for too few, too many, or others than the types say; `SeastarOutOfRangeError` for a number that its type cannot
/// have.
pub(super) fn arguments(signature: &Signature, values: &Bound<'_, PyTuple>) -> PyResult<Bytes> {
    let types = signature.types();
    if values.len() > types.len() {
        return Err(PyTypeError::new_err(counted(signature, values.len())));
    }
    let mut all = Vec::with_capacity(values.len());
    for (kind, value) in types.iter().zip(values.iter()) {
        all.push(value_of(kind, &value)?);
    }
    encoded(values.py(), signature, &all)
}

fn counted(signature: &Signature, given: usize) -> String {
    let types: Vec<_> = signature.types().iter().map(ToString::to_string).collect();
    format!("{given} values were given for \"{}\"", types.join(" "))
}

fn encoded(py: Python<'_>, signature: &Signature, values: &[Value]) -> PyResult<Bytes> {
    use sbp_peers::seastar::ArgumentError;

    match signature.encode(values) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error @ ArgumentError::Range { .. }) => {
            Err(Failure::from(SeastarError::of_range(error.to_string())).into_python(py))
        }
        Err(ArgumentError::Count { given, .. }) => Err(PyTypeError::new_err(counted(signature, given))),
        Err(error) => Err(PyTypeError::new_err(error.to_string())),
    }
}

/// What a handler has returned, as bytes: nothing, one value, or a tuple of several.
pub(super) fn result(signature: &Signature, value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let py = value.py();
    match signature.types() {
        [] if value.is_none() => Ok(Bytes::new()),
        [] => Err(PyTypeError::new_err(
            "the verb returns nothing, and its handler returned something",
        )),
        [_] => arguments(signature, &PyTuple::new(py, [value])?),
        _ => match value.cast::<PyTuple>() {
            Ok(values) => arguments(signature, values),
            Err(_) => Err(PyTypeError::new_err(format!(
                "the verb returns several values, and its handler returned no tuple but {}",
                type_name(value)
            ))),
        },
    }
}

fn value_of(kind: &Type, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let wrong = || PyTypeError::new_err(format!("{kind} is expected, not {}", type_name(value)));
    Ok(match kind {
        Type::Optional(_) if value.is_none() => Value::Missing,
        Type::Optional(inner) => value_of(inner, value)?,
        Type::Signed(_) | Type::Unsigned(_) => integer(kind, value.cast::<PyInt>().map_err(|_| wrong())?)?,
        Type::Stream => match value.cast::<PyInt>() {
            Ok(number) => integer(kind, number)?,
            Err(_) => Value::Unsigned(value.getattr("id").and_then(|id| id.extract()).map_err(|_| wrong())?),
        },
        Type::Float | Type::Double => match value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() {
            true => Value::Float(value.extract().map_err(|_| wrong())?),
            false => return Err(wrong()),
        },
        Type::Bool => Value::Bool(value.cast::<PyBool>().map_err(|_| wrong())?.is_true()),
        Type::Bytes => Value::Bytes(owned_bytes(value)?),
        Type::Str => Value::Str(value.cast::<PyString>().map_err(|_| wrong())?.extract()?),
        Type::List(item) => {
            if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
                return Err(wrong());
            }
            let items = value.try_iter().map_err(|_| wrong())?;
            Value::List(items.map(|one| value_of(item, &one?)).collect::<PyResult<_>>()?)
        }
    })
}

fn integer(kind: &Type, number: &Bound<'_, PyInt>) -> PyResult<Value> {
    if let Ok(signed) = number.extract::<i64>() {
        return Ok(match (kind, u64::try_from(signed)) {
            (Type::Stream, Ok(id)) => Value::Unsigned(id),
            _ => Value::Signed(signed),
        });
    }
    number.extract().map(Value::Unsigned).map_err(|_| {
        let what = format!("{number} is a number that {kind} cannot have");
        Failure::from(SeastarError::of_range(what)).into_python(number.py())
    })
}

/// What becomes of the id of a stream.
pub(super) type StreamOf<'a> = &'a dyn Fn(Python<'_>, u64) -> PyResult<Py<PyAny>>;

/// The id itself.
pub(super) fn id(py: Python<'_>, id: u64) -> PyResult<Py<PyAny>> {
    id.into_py_any(py)
}

/// Values as Python objects.
pub(super) fn objects<'py>(
    py: Python<'py>,
    values: Vec<Value>,
    stream: StreamOf<'_>,
    types: &[Type],
) -> PyResult<Bound<'py, PyTuple>> {
    let all: Vec<_> = values
        .into_iter()
        .zip(types)
        .map(|(value, kind)| object(py, value, kind, stream))
        .collect::<PyResult<_>>()?;
    PyTuple::new(py, all)
}

/// What a verb returned: `None`, one value, or a tuple of several.
pub(super) fn returned(py: Python<'_>, verb: u64, signature: &Signature, bytes: &Bytes) -> PyResult<Py<PyAny>> {
    let values = signature
        .decode(bytes)
        .map_err(|fault| Failure::from(SeastarError::of_reply(fault, verb)).into_python(py))?;
    let all = objects(py, values, &id, signature.types())?;
    match all.len() {
        0 => Ok(py.None()),
        1 => Ok(all.get_item(0)?.unbind()),
        _ => all.into_py_any(py),
    }
}

fn object(py: Python<'_>, value: Value, kind: &Type, stream: StreamOf<'_>) -> PyResult<Py<PyAny>> {
    let kind = match kind {
        Type::Optional(inner) => inner,
        kind => kind,
    };
    match (value, kind) {
        (Value::Unsigned(number), Type::Stream) => stream(py, number),
        (Value::Signed(number), _) => number.into_py_any(py),
        (Value::Unsigned(number), _) => number.into_py_any(py),
        (Value::Float(number), _) => number.into_py_any(py),
        (Value::Bool(is), _) => is.into_py_any(py),
        (Value::Bytes(bytes), _) => PyBytes::new(py, &bytes).into_py_any(py),
        (Value::Str(text), _) => text.into_py_any(py),
        (Value::List(items), Type::List(kind)) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(object(py, item, kind, stream)?)?;
            }
            list.into_py_any(py)
        }
        (Value::List(_) | Value::Missing, _) => Ok(py.None()),
    }
}
