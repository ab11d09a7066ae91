//! The keys and headers that an append is given beside its values.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

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
}

impl<'py> Many<'py> {
    fn of(given: &Bound<'py, PyAny>, name: &str, what: &str, records: usize) -> PyResult<Self> {
        let Some(many) = several(given) else {
            return Err(PyTypeError::new_err(format!(
                "{name} of a list of records is a list of as many {what}, not {}",
                type_name(given)
            )));
        };
        let length = match &many {
            Self::List(list) => list.len(),
            Self::Tuple(tuple) => tuple.len(),
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
#[derive(Default)]
pub(crate) struct Headers(Vec<(PyBackedStr, Option<Vec<u8>>)>);

impl Headers {
    /// Takes pairs of name and value, or a dict; `index` is the record's place in a list, for errors.
    pub(crate) fn of(given: &Bound<'_, PyAny>, index: Option<usize>) -> PyResult<Self> {
        let wrong = || {
            let place = index.map_or_else(String::new, |index| format!(" of record {index}"));
            PyTypeError::new_err(format!(
                "headers{place} are pairs of a name (str) and a value (bytes or None), or a dict of them"
            ))
        };
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
            return Ok(Self(headers));
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
        Ok(Self(headers))
    }

    /// As the encoder takes them.
    pub(crate) fn pairs(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_deref())).collect()
    }
}
