//! The keys and headers that an append is given beside its values.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use sbp_record::SharedHeader;

use crate::append::input::AppendInput;
use crate::errors;
use crate::memory::buffer::{type_name, with_bytes};

/// Whether there is a key or headers, which a batch of one plain value cannot carry.
pub(crate) fn is_keyed(input: &AppendInput<'_, '_>) -> bool {
    input.key.is_some() || input.headers.is_some()
}

/// Key and headers of the one record that is appended.
pub(crate) fn of_one<'a, 'py>(input: &AppendInput<'a, 'py>) -> PyResult<(Option<&'a Bound<'py, PyAny>>, Headers)> {
    if let Some(key) = input.key.filter(|key| several(key).is_some()) {
        return Err(PyTypeError::new_err(format!(
            "one record has one key: give bytes, not a {}",
            type_name(key)
        )));
    }
    let headers = input.headers.map(|headers| Headers::of(headers, None)).transpose()?;
    Ok((input.key, headers.unwrap_or_default()))
}

/// Headers of all rows of Arrow data, where it may have some: not in the columns of a stream with a schema.
pub(crate) fn of_rows(given: &Bound<'_, PyAny>, has_schema: bool) -> PyResult<Option<Headers>> {
    let optional = match given.cast::<EveryRecord>() {
        Ok(every) => every.get().is_optional,
        Err(_) => is_optional(given),
    };
    match (has_schema, optional) {
        (false, _) => Headers::of(given, None).map(Some),
        (true, true) => Ok(None),
        (true, false) => Err(PyTypeError::new_err(
            "rows of a stream with a schema have its columns and no headers: leave out headers=",
        )),
    }
}

/// Whether headers are left out where records cannot have any, as the contexts of spans are.
fn is_optional(given: &Bound<'_, PyAny>) -> bool {
    given.hasattr("_is_optional").unwrap_or(false)
}

/// Headers that every record of a call gets.
#[pyclass(frozen, module = "sbp_native._native")]
pub(crate) struct EveryRecord {
    headers: Headers,
    is_optional: bool,
}

impl EveryRecord {
    /// Reads the headers that a call was given for all of its records.
    pub(crate) fn of<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let every = Self {
            headers: Headers::of(given, None)?,
            is_optional: is_optional(given),
        };
        Ok(Bound::new(given.py(), every)?.into_any())
    }
}

/// Keys and headers of the records of a list.
pub(crate) struct KeysAndHeaders<'py> {
    keys: Option<Many<'py>>,
    headers: Option<Many<'py>>,
}

impl<'py> KeysAndHeaders<'py> {
    /// Those of `records` records.
    pub(crate) fn of_list(input: &AppendInput<'_, 'py>, records: usize) -> PyResult<Self> {
        let keys = input.key.map(|keys| Many::of(keys, "key", "keys", records));
        let headers = input.headers;
        let headers = headers.map(|headers| Many::of(headers, "headers", "lists of headers", records));
        Ok(Self {
            keys: keys.transpose()?,
            headers: headers.transpose()?,
        })
    }

    /// Those of record `index`.
    pub(crate) fn at(&self, index: usize) -> PyResult<(Option<Bound<'py, PyAny>>, Headers)> {
        let key = self.keys.as_ref().map(|keys| keys.at(index)).transpose()?.flatten();
        let headers = self.headers.as_ref().map(|headers| headers.at(index)).transpose()?;
        let headers = headers.flatten().map(|headers| Headers::of(&headers, Some(index)));
        Ok((key, headers.transpose()?.unwrap_or_default()))
    }
}

/// The exception for record `index` of a list.
pub(crate) fn in_list(py: Python<'_>, index: usize, error: PyErr) -> PyErr {
    match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(format!("item {index} of the list: {}", error.value(py))),
        false => error,
    }
}

/// One item for each record of a list.
enum Many<'py> {
    List(Bound<'py, PyList>),
    Tuple(Bound<'py, PyTuple>),
    /// The same for each.
    Every(Bound<'py, PyAny>),
}

impl<'py> Many<'py> {
    fn of(given: &Bound<'py, PyAny>, name: &str, what: &str, records: usize) -> PyResult<Self> {
        if given.is_instance_of::<EveryRecord>() {
            return Ok(Self::Every(given.clone()));
        }
        let Some(many) = several(given) else {
            return Err(PyTypeError::new_err(format!(
                "{name} of a list of records is a list of as many {what}, not {}",
                type_name(given)
            )));
        };
        let length = match &many {
            Self::List(list) => list.len(),
            Self::Tuple(tuple) => tuple.len(),
            Self::Every(_) => records,
        };
        if length != records {
            let message = format!("there are {records} records and {length} {what}: give one for each, or None");
            return Err(errors::invalid(given.py(), &message));
        }
        Ok(many)
    }

    /// What goes with record `index`, unless it is `None`.
    fn at(&self, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let item = match self {
            Self::List(list) => list.get_item(index)?,
            Self::Tuple(tuple) => tuple.get_item(index)?,
            Self::Every(same) => same.clone(),
        };
        Ok((!item.is_none()).then_some(item))
    }
}

fn several<'py>(given: &Bound<'py, PyAny>) -> Option<Many<'py>> {
    if let Ok(list) = given.cast::<PyList>() {
        return Some(Many::List(list.clone()));
    }
    given.cast::<PyTuple>().ok().map(|tuple| Many::Tuple(tuple.clone()))
}

/// The headers of one record, copied out of the interpreter: they are short.
#[derive(Clone, Default)]
pub(crate) struct Headers(Option<Arc<Vec<Pair>>>);

type Pair = (PyBackedStr, Option<Vec<u8>>);

impl Headers {
    /// Takes pairs of name and value, or a dict; `index` is the record's place in a list, for errors.
    pub(crate) fn of(given: &Bound<'_, PyAny>, index: Option<usize>) -> PyResult<Self> {
        let wrong = || {
            let place = index.map_or_else(String::new, |index| format!(" of record {index}"));
            PyTypeError::new_err(format!(
                "headers{place} are pairs of a name (str) and a value (bytes or None), or a dict of them"
            ))
        };
        if let Ok(every) = given.cast::<EveryRecord>() {
            return Ok(every.get().headers.clone());
        }
        let mut headers = Vec::new();
        let mut add = |name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| -> PyResult<()> {
            let name = name.extract::<PyBackedStr>().map_err(|_| wrong())?;
            let value = match value.is_none() {
                true => None,
                false => Some(with_bytes(value, <[u8]>::to_vec).map_err(|_| wrong())?),
            };
            headers.push((name, value));
            Ok(())
        };
        if let Ok(dict) = given.cast::<PyDict>() {
            for (name, value) in dict.iter() {
                add(&name, &value)?;
            }
            return Ok(Self(Some(Arc::new(headers))));
        }
        if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
            return Err(wrong());
        }
        for pair in given.try_iter().map_err(|_| wrong())? {
            let pair = pair?;
            let (name, value) = pair
                .extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()
                .map_err(|_| wrong())?;
            add(&name, &value)?;
        }
        Ok(Self(Some(Arc::new(headers))))
    }

    /// As the encoder takes them.
    pub(crate) fn pairs(&self) -> Vec<(&str, Option<&[u8]>)> {
        let headers = self.0.iter().flat_map(|headers| headers.iter());
        headers.map(|(name, value)| (&**name, value.as_deref())).collect()
    }

    /// As columns of records take them.
    pub(crate) fn shared(&self) -> Arc<[SharedHeader]> {
        let headers = self.pairs().into_iter();
        headers
            .map(|(name, value)| (name.into(), value.map(Into::into)))
            .collect()
    }
}
