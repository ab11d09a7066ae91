//! Arguments of calls to brokers.

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyString, PyTuple};
use sbp_client::Position;
use sbp_peers::tank::{EncodeError, End, Message, ReadOptions, ReadPart, Start, TankError, encode_bundle};

use crate::arguments::position;
use crate::errors;
use crate::memory::buffer::with_bytes;
use crate::read::tank::TankRequest;
use crate::requests::Failure;
use crate::time;

/// Records as a bundle: each its content, or a pair of its key and its content.
pub(super) fn bundle(records: &Bound<'_, PyAny>, timestamp: Option<&Bound<'_, PyAny>>) -> PyResult<Bytes> {
    let py = records.py();
    let time = timestamp.map_or_else(|| Ok(time::now()), time::timestamp)?;
    let time_ms = u64::try_from(time.0).map_err(|_| errors::invalid(py, "a message's time is 1970 or later"))?;
    if records.is_instance_of::<PyBytes>() || records.is_instance_of::<PyString>() {
        let what =
            "records are an iterable of bytes-like objects, or of pairs of a key and such an object, not one of them";
        return Err(PyTypeError::new_err(what));
    }
    let mut rows = Vec::new();
    for record in records.try_iter()? {
        let record = record?;
        rows.push(match record.cast::<PyTuple>() {
            Ok(pair) => {
                let (key, content): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
                let key = if key.is_none() { None } else { Some(immutable(&key)?) };
                (key, immutable(&content)?)
            }
            Err(_) => (None, immutable(&record)?),
        });
    }
    let messages: Vec<_> = rows
        .iter()
        .map(|(key, content)| Message {
            sequence: 0,
            time_ms,
            key: key.as_ref().map(|key| key.as_bytes()),
            content: content.as_bytes(),
        })
        .collect();
    // Messages are compressed meanwhile; nobody changes `bytes` objects, and they are held here.
    py.detach(|| encode_bundle(&messages))
        .map_err(|error| refused(py, error))
}

/// A bytes-like object as one that nobody can change.
fn immutable<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => with_bytes(object, |bytes| PyBytes::new(object.py(), bytes)),
    }
}

fn refused(py: Python<'_>, error: EncodeError) -> PyErr {
    match error {
        EncodeError::NoMessages => errors::invalid(py, "there are no records: give at least one"),
        error => Failure::from(TankError::of_limit(error.to_string())).into_python(py),
    }
}

/// What is to be read: all partitions, or these; from one place to another, or each from its own to its own.
pub(super) fn request(
    partitions: Option<&Bound<'_, PyAny>>,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<TankRequest> {
    let named = partitions.map(numbers).transpose()?;
    let (starts, ends) = (mapping(start), mapping(end));
    if starts.is_none() && ends.is_none() {
        return Ok(TankRequest::Same(ReadOptions {
            partitions: named.unwrap_or_default(),
            start: start.map_or(Ok(Start::Earliest), start_of)?,
            end: end.map_or(Ok(End::Never), end_of)?,
        }));
    }
    let all = match named {
        Some(named) => named,
        None => {
            let mut all = Vec::new();
            for places in [starts, ends].into_iter().flatten() {
                all.extend(numbers(places.keys()?.as_any())?);
            }
            all
        }
    };
    let part = |partition: u16| {
        Ok(ReadPart {
            partition,
            start: match starts {
                Some(starts) => start_of(&place_of(starts, partition)?)?,
                None => start.map_or(Ok(Start::Earliest), start_of)?,
            },
            end: match ends {
                Some(ends) => end_of(&place_of(ends, partition)?)?,
                None => end.map_or(Ok(End::Never), end_of)?,
            },
        })
    };
    Ok(TankRequest::Parts(all.into_iter().map(part).collect::<PyResult<_>>()?))
}

/// Places by partition, where they are given so.
fn mapping<'a, 'py>(places: Option<&'a Bound<'py, PyAny>>) -> Option<&'a Bound<'py, PyMapping>> {
    places.and_then(|places| places.cast::<PyMapping>().ok())
}

/// That of one partition.
fn place_of<'py>(places: &Bound<'py, PyMapping>, partition: u16) -> PyResult<Bound<'py, PyAny>> {
    let none = |_| PyTypeError::new_err(format!("no place is named for partition {partition}"));
    places.get_item(partition).map_err(none)
}

/// One partition or several.
fn numbers(partitions: &Bound<'_, PyAny>) -> PyResult<Vec<u16>> {
    let number = |value: &Bound<'_, PyAny>| {
        let wrong = || errors::invalid(value.py(), "a partition is a number from 0 to 65535");
        value.extract::<u16>().map_err(|_| wrong())
    };
    if let Ok(several) = partitions.try_iter() {
        let several: Vec<u16> = several.map(|one| number(&one?)).collect::<PyResult<_>>()?;
        return match several.is_empty() {
            true => Err(errors::invalid(
                partitions.py(),
                "no partitions are named: give at least one",
            )),
            false => Ok(several),
        };
    }
    Ok(vec![number(partitions)?])
}

fn start_of(value: &Bound<'_, PyAny>) -> PyResult<Start> {
    match position(value)? {
        Position::Earliest => Ok(Start::Earliest),
        Position::Latest => Ok(Start::Latest),
        Position::At(offset) => Ok(Start::At(unsigned(offset.0))),
        Position::AfterEarliest(count) => Ok(Start::AfterEarliest(count)),
        Position::BeforeLatest(count) => Ok(Start::BeforeLatest(count)),
        // Before 1970 there is nothing.
        Position::Time(time) => Ok(Start::Time(unsigned(time.0))),
    }
}

fn end_of(value: &Bound<'_, PyAny>) -> PyResult<End> {
    if value.is_none() {
        return Ok(End::Never);
    }
    match position(value)? {
        Position::Latest => Ok(End::Latest),
        Position::At(offset) => Ok(End::At(unsigned(offset.0))),
        _ => {
            let what = "reading of a TANK topic ends in front of a sequence number, at \"latest\", or never (None)";
            Err(errors::invalid(value.py(), what))
        }
    }
}

/// A place is never negative.
fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or_default()
}
