//! The calls of clients and streams but for appends, one function each: from arguments as Python gives them to a [`Call`],
//! which a blocking class waits for and an asynchronous one starts.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sbp_client::{FetchEntry, FetchOptions, Position};

use crate::call::{Call, RequestCall};
use crate::client_core::ClientCore;
use crate::requests::{self, Described, Key, StreamChange};
use crate::results::cluster::{ClusterInfo, RangeInfo};
use crate::results::stream_info::{Positions, StreamInfo};
use crate::time::{duration, seconds, timestamp};
use crate::{arguments, errors};

/// Makes the object of a stream, of the blocking or the asynchronous class.
pub(crate) type MakeStream = fn(Python<'_>, Arc<ClientCore>, Arc<Described>) -> PyResult<Py<PyAny>>;

/// A call whose result is made of the client's, with `convert`.
macro_rules! call {
    ($py:ident, $core:ident, $timeout:ident, |$client:ident| $work:expr, $convert:expr) => {{
        let $client = $core.client($py)?.clone();
        let $timeout = duration($timeout)?;
        Ok(RequestCall::new(async move { $work }, $convert))
    }};
}

fn object<T: for<'py> IntoPyObject<'py>>(py: Python<'_>, value: T) -> PyResult<Py<PyAny>> {
    value.into_pyobject(py).map_err(Into::into).map(|value| {
        use pyo3::BoundObject;
        value.into_any().unbind()
    })
}

/// Creates a stream.
pub(crate) fn create(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    wanted: StreamChange,
    exist_ok: bool,
    timeout: Option<f64>,
    make: MakeStream,
) -> PyResult<impl Call> {
    let owner = Arc::clone(core);
    call!(
        py,
        core,
        timeout,
        |client| requests::create(&client, wanted, exist_ok, timeout).await,
        move |py, described| make(py, owner, described)
    )
}

/// Finds a stream: as it is now, and not as it was when an append asked for it.
pub(crate) fn find(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    key: Key,
    timeout: Option<f64>,
    make: MakeStream,
) -> PyResult<impl Call> {
    let owner = Arc::clone(core);
    call!(
        py,
        core,
        timeout,
        |client| requests::describe(&client, &key, timeout).await,
        move |py, described| make(py, owner, described)
    )
}

/// Describes a stream as it is now.
pub(crate) fn describe(py: Python<'_>, core: &Arc<ClientCore>, key: Key, timeout: Option<f64>) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| requests::describe(&client, &key, timeout).await,
        |py, described| object(py, StreamInfo(described))
    )
}

/// Describes all streams.
pub(crate) fn list(py: Python<'_>, core: &Arc<ClientCore>, timeout: Option<f64>) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| requests::list(&client, timeout).await,
        |py, streams| Ok(PyList::new(py, streams.into_iter().map(StreamInfo))?
            .into_any()
            .unbind())
    )
}

/// Changes a stream's settings.
pub(crate) fn update(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    key: Key,
    wanted: StreamChange,
    timeout: Option<f64>,
) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| requests::update(&client, &key, wanted, timeout).await,
        |py, described| object(py, StreamInfo(described))
    )
}

/// Deletes a stream.
pub(crate) fn delete(py: Python<'_>, core: &Arc<ClientCore>, key: Key, timeout: Option<f64>) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| requests::delete(&client, &key, timeout).await,
        |py, ()| Ok(py.None())
    )
}

/// Deletes a stream's first records.
pub(crate) fn trim(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    key: Key,
    before: &Bound<'_, PyAny>,
    timeout: Option<f64>,
) -> PyResult<impl Call> {
    let before = arguments::position(before)?;
    call!(
        py,
        core,
        timeout,
        |client| requests::trim(&client, &key, before, timeout).await,
        |py, earliest| object(py, earliest.0)
    )
}

/// Ends a stream's open range.
pub(crate) fn seal(py: Python<'_>, core: &Arc<ClientCore>, key: Key, timeout: Option<f64>) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| requests::seal(&client, &key, timeout).await,
        |py, range| object(py, RangeInfo(range))
    )
}

/// Describes a stream's ranges.
pub(crate) fn ranges(py: Python<'_>, core: &Arc<ClientCore>, key: Key, timeout: Option<f64>) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| requests::ranges(&client, &key, timeout).await,
        |py, ranges| Ok(PyList::new(py, ranges.into_iter().map(RangeInfo))?.into_any().unbind())
    )
}

/// Describes the servers that place streams.
pub(crate) fn cluster(py: Python<'_>, core: &Arc<ClientCore>, timeout: Option<f64>) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| Ok(client.describe_cluster(timeout).await?),
        |py, cluster| object(py, ClusterInfo(cluster))
    )
}

/// Measures a round trip.
pub(crate) fn ping(py: Python<'_>, core: &Arc<ClientCore>, timeout: Option<f64>) -> PyResult<impl Call> {
    call!(
        py,
        core,
        timeout,
        |client| Ok(client.ping(timeout).await?),
        |py, round_trip: Duration| object(py, round_trip.as_secs_f64())
    )
}

/// What streams hold now.
pub(crate) fn positions(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    streams: Option<&Bound<'_, PyAny>>,
    timeout: Option<f64>,
) -> PyResult<impl Call> {
    let keys = streams.map(arguments::keys).transpose()?;
    call!(
        py,
        core,
        timeout,
        |client| requests::positions(&client, keys, timeout).await,
        |py, found| {
            let positions = PyDict::new(py);
            for (stream, found) in found {
                positions.set_item(&*stream.name, Positions::from(&found).into_pyobject(py)?)?;
            }
            Ok(positions.into_any().unbind())
        }
    )
}

/// What one stream holds now.
pub(crate) fn positions_of(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    stream: &Arc<Described>,
    timeout: Option<f64>,
) -> PyResult<impl Call> {
    let key = Key::Known(Arc::clone(stream));
    call!(
        py,
        core,
        timeout,
        |client| requests::positions_of(&client, &key, timeout).await,
        |py, found| object(py, Positions::from(&found))
    )
}

/// For each stream the first offset whose batch is as new as a time.
pub(crate) fn offsets_for_time(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    streams: &Bound<'_, PyAny>,
    time: &Bound<'_, PyAny>,
    timeout: Option<f64>,
) -> PyResult<impl Call> {
    let keys = arguments::keys(streams)?;
    let time = timestamp(time)?;
    call!(
        py,
        core,
        timeout,
        |client| requests::offsets_for_time(&client, &keys, time, timeout).await,
        |py, found| {
            let offsets = PyDict::new(py);
            for (stream, offset) in found {
                offsets.set_item(&*stream.name, offset.0)?;
            }
            Ok(offsets.into_any().unbind())
        }
    )
}

/// How much one FETCH brings, and how long it waits for that.
#[derive(Clone, Copy)]
pub(crate) struct FetchBounds {
    pub(crate) max_bytes: i64,
    pub(crate) min_bytes: i64,
    pub(crate) max_wait: f64,
}

/// Reads once.
pub(crate) fn fetch(
    py: Python<'_>,
    core: &Arc<ClientCore>,
    key: Key,
    from: &Bound<'_, PyAny>,
    bounds: FetchBounds,
    timeout: Option<f64>,
) -> PyResult<impl Call> {
    let from: Position = arguments::position(from)?;
    let max_wait = match bounds.max_wait {
        0.0 => Duration::ZERO,
        wait => seconds(wait)?,
    };
    let bytes = |name: &str, given: i64| {
        let wrong = |_| {
            errors::invalid(
                py,
                &format!("{name} is a number of bytes from 0 to 4294967295, not {given}"),
            )
        };
        u32::try_from(given).map_err(wrong)
    };
    let max_bytes = bytes("max_bytes", bounds.max_bytes)?;
    let min_bytes = bytes("min_bytes", bounds.min_bytes)?;
    let counter = Arc::clone(&core.copied);
    call!(
        py,
        core,
        timeout,
        |client| {
            let options = FetchOptions {
                max_wait,
                min_bytes,
                max_bytes: None,
                timeout,
            };
            let entry = |stream| FetchEntry {
                stream,
                from,
                end: None,
                batch_max_bytes: max_bytes,
            };
            crate::read::source::fetch(&client, &key, entry, options, &counter).await
        },
        |py, batches| Ok(PyList::new(py, batches)?.into_any().unbind())
    )
}
