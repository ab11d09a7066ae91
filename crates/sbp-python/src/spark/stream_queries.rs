//! What Spark's driver asks about all its streams at every micro-batch: plain numbers by id, and no object per stream,
//! because there may be thousands. Unlike the calls of a client, none of these fails for a stream that is gone.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sbp_client::{ClientError, Each};
use sbp_messages::{ErrorCode, Stream};
use sbp_types::{StreamId, TimestampMs};

use crate::api::client::Client;
use crate::requests::{Failure, name_of};

/// A stream's id, its name, its schema as an Arrow IPC message, and its identity.
type StreamRow<'py> = (i64, String, Option<Bound<'py, PyBytes>>, Option<String>);

/// Where the streams with these ids begin and end now, by id. A stream that does not exist is in neither.
#[pyfunction]
#[pyo3(signature = (client, ids, timeout = None))]
pub(crate) fn stream_bounds<'py>(
    py: Python<'py>,
    client: &Client,
    ids: Vec<i64>,
    timeout: Option<f64>,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let found = client.core().block(py, timeout, |client, timeout| async move {
        let ids: Vec<_> = ids.into_iter().map(StreamId).collect();
        client.positions(&ids, timeout).await
    })?;
    let (earliest, latest) = (PyDict::new(py), PyDict::new(py));
    for bounds in existing(py, found)? {
        earliest.set_item(bounds.stream.0, bounds.earliest.0)?;
        latest.set_item(bounds.stream.0, bounds.latest.0)?;
    }
    Ok((earliest, latest))
}

/// For each stream the first offset of the first batch that is as new as a time, its end where there is none, by id. A
/// stream that does not exist is left out.
#[pyfunction]
#[pyo3(signature = (client, ids, time_ms, timeout = None))]
pub(crate) fn stream_offsets_at<'py>(
    py: Python<'py>,
    client: &Client,
    ids: Vec<i64>,
    time_ms: i64,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = client.core().block(py, timeout, |client, timeout| async move {
        let times: Vec<_> = ids.iter().map(|&id| (StreamId(id), TimestampMs(time_ms))).collect();
        let offsets = client.batches_for_times(&times, timeout).await?;
        let named = ids.into_iter().zip(offsets);
        Ok::<_, ClientError>(named.map(|(id, offset)| offset.map(|offset| (id, offset))).collect())
    })?;
    let offsets = PyDict::new(py);
    for (id, offset) in existing(py, found)? {
        offsets.set_item(id, offset.0)?;
    }
    Ok(offsets)
}

/// The streams behind a place in the list of all streams, by id, and the place to ask from next time; an empty place is
/// the beginning.
#[pyfunction]
#[pyo3(signature = (client, place, timeout = None))]
pub(crate) fn stream_list<'py>(
    py: Python<'py>,
    client: &Client,
    place: &[u8],
    timeout: Option<f64>,
) -> PyResult<(Vec<StreamRow<'py>>, Bound<'py, PyBytes>)> {
    let place = Bytes::copy_from_slice(place);
    let (streams, place) = client.core().block(py, timeout, |client, timeout| async move {
        client.list_streams_from(place, timeout).await
    })?;
    let head = |stream: Arc<Stream>| {
        let schema = stream.schema.as_ref().map(|message| PyBytes::new(py, message));
        let identity = stream.identity.map(|identity| identity.to_string());
        (stream.stream_id.0, name_of(&stream), schema, identity)
    };
    Ok((streams.into_iter().map(head).collect(), PyBytes::new(py, &place)))
}

/// The results of streams that exist; any other failure than that is one of the whole.
fn existing<T>(py: Python<'_>, found: Each<T>) -> PyResult<Vec<T>> {
    let mut existing = Vec::new();
    for result in found {
        match result {
            Ok(value) => existing.push(value),
            Err(error) if error.code() == ErrorCode::NOT_FOUND => {}
            Err(error) => return Err(Failure::from(error).into_python(py)),
        }
    }
    Ok(existing)
}
