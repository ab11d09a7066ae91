//! Arguments of calls to Pravega.

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyString, PyTuple};
use sbp_client::Position;
use sbp_peers::pravega::{End, NewEvent, ReadPart, Segment, SegmentId, Start, StreamName};

use crate::arguments::position;
use crate::errors;
use crate::memory::buffer::with_bytes;
use crate::read::pravega::PravegaRequest;
use crate::requests::Failure;

/// `scope/stream`.
pub(super) fn stream(py: Python<'_>, name: &str) -> PyResult<StreamName> {
    StreamName::parse(name).map_err(|error| Failure::from(error).into_python(py))
}

/// A segment: its name, or its number in a stream.
pub(super) fn segment(stream: &StreamName, key: &Bound<'_, PyAny>) -> PyResult<Segment> {
    if let Ok(name) = key.cast::<PyString>() {
        let named = Segment::parse(name.to_str()?);
        let of_stream = |named: &Segment| named.scope == stream.scope && named.stream == stream.stream;
        return named.filter(of_stream).ok_or_else(|| {
            let what = format!("a segment of {stream} is written {stream}/0.#epoch.0, or is its number in the stream");
            errors::invalid(key.py(), &what)
        });
    }
    let id: i64 = key
        .extract()
        .map_err(|_| PyTypeError::new_err("a segment is its name, or its number in the stream"))?;
    Ok(Segment {
        scope: stream.scope.clone(),
        stream: stream.stream.clone(),
        id: SegmentId(id),
    })
}

/// An event, and its routing key.
pub(super) fn event(data: &Bound<'_, PyAny>, key: Option<String>) -> PyResult<NewEvent> {
    let content = match data.cast::<PyString>() {
        Ok(_) => {
            return Err(PyTypeError::new_err(
                "an event is a bytes-like object, not text: encode it",
            ));
        }
        Err(_) => with_bytes(data, Bytes::copy_from_slice)?,
    };
    Ok(NewEvent { content, key })
}

/// Events: each its content, or a pair of its routing key and its content.
pub(super) fn events(events: &Bound<'_, PyAny>) -> PyResult<Vec<NewEvent>> {
    if events.is_instance_of::<PyBytes>() || events.is_instance_of::<PyString>() {
        let what =
            "events are an iterable of bytes-like objects, or of pairs of a key and such an object, not one of them";
        return Err(PyTypeError::new_err(what));
    }
    let mut all = Vec::new();
    for given in events.try_iter()? {
        let given = given?;
        all.push(match given.cast::<PyTuple>() {
            Ok(pair) => {
                let (key, content): (Option<String>, Bound<'_, PyAny>) = pair.extract()?;
                event(&content, key)?
            }
            Err(_) => event(&given, None)?,
        });
    }
    Ok(all)
}

/// What is to be read: all segments from one place to another, or each from its own to its own.
pub(super) fn request(
    stream: &StreamName,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<PravegaRequest> {
    let (starts, ends) = (mapping(start), mapping(end));
    if starts.is_none() && ends.is_none() {
        let (first, last) = (start_of(start)?, end_of(end)?);
        let at = match (start, end) {
            (Some(place), _) if matches!(first, Start::At(_)) => Some(place),
            (_, Some(place)) if matches!(last, End::At(_)) => Some(place),
            _ => None,
        };
        return match at {
            Some(place) => {
                let what = "a byte is one of a segment: give a mapping from segments to places";
                Err(errors::invalid(place.py(), what))
            }
            None => Ok(PravegaRequest::Same(first, last)),
        };
    }
    let mut parts: Vec<ReadPart> = Vec::new();
    for places in [starts, ends].into_iter().flatten() {
        for key in places.keys()?.iter() {
            let segment = segment(stream, &key)?;
            if parts.iter().any(|part| part.segment == segment) {
                continue;
            }
            let first = start_of(place(starts, start, &key)?.as_ref())?;
            let last = end_of(place(ends, end, &key)?.as_ref())?;
            parts.push(ReadPart {
                segment,
                start: first,
                end: last,
            });
        }
    }
    Ok(PravegaRequest::Parts(parts))
}

/// That of one segment, of those that are given for each, or of the one for all.
fn place<'py>(
    places: Option<&Bound<'py, PyMapping>>,
    for_all: Option<&Bound<'py, PyAny>>,
    segment: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match places {
        Some(places) => {
            let none = |_| PyTypeError::new_err(format!("no place is named for segment {segment}"));
            places.get_item(segment).map(Some).map_err(none)
        }
        None => Ok(for_all.cloned()),
    }
}

/// Places by segment, where they are given so.
fn mapping<'a, 'py>(places: Option<&'a Bound<'py, PyAny>>) -> Option<&'a Bound<'py, PyMapping>> {
    places.and_then(|places| places.cast::<PyMapping>().ok())
}

fn start_of(value: Option<&Bound<'_, PyAny>>) -> PyResult<Start> {
    let Some(value) = value else {
        return Ok(Start::Earliest);
    };
    match position(value)? {
        Position::Earliest => Ok(Start::Earliest),
        Position::Latest => Ok(Start::Latest),
        Position::At(offset) => Ok(Start::At(offset.0)),
        _ => {
            let what = "reading of a Pravega stream begins at \"earliest\", \"latest\", or the bytes of its segments";
            Err(errors::invalid(value.py(), what))
        }
    }
}

fn end_of(value: Option<&Bound<'_, PyAny>>) -> PyResult<End> {
    let Some(value) = value.filter(|value| !value.is_none()) else {
        return Ok(End::Never);
    };
    match position(value)? {
        Position::Latest => Ok(End::Latest),
        Position::At(offset) => Ok(End::At(offset.0)),
        _ => {
            let what = "reading of a Pravega stream ends at \"latest\", at bytes of its segments, or never (None)";
            Err(errors::invalid(value.py(), what))
        }
    }
}
