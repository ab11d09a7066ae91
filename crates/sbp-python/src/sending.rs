//! Appends of both faces: finding the stream, encoding, handing over.

use std::sync::Arc;
use std::time::Instant;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView};

use crate::ack::AckShape;
use crate::append::{Appending, How, Patience, Prepared, keys_and_data};
use crate::blocking::block_on;
use crate::bridge::{Here, Operation};
use crate::calls::{self, Failure, Key};
use crate::core::{Core, duration};
use crate::describe::{Described, StreamInfo};

type Started<'py> = PyResult<Bound<'py, Operation>>;

/// Appends one batch and waits until it is stored.
pub(crate) fn block(
    py: Python<'_>,
    core: &Core,
    key: Key,
    appending: &Appending<'_, '_>,
    timeout: Option<f64>,
    patience: Patience,
) -> PyResult<Py<PyAny>> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let stream = match core.known(py, &key)? {
        Some(stream) => stream,
        None => find(py, core, vec![key], timeout)?
            .pop()
            .ok_or_else(|| Failure::Corrupt("the server described no stream".to_owned()).into_python(py))?,
    };
    let prepared = Prepared::one(&stream, appending, deadline)?;
    prepared.block(py, core.client(py)?, &AckShape::One(stream), patience)
}

/// Appends one batch to each of several streams, in one frame, and waits until they are stored.
pub(crate) fn block_all(
    py: Python<'_>,
    core: &Core,
    batches: &Bound<'_, PyAny>,
    how: How,
    timeout: Option<f64>,
) -> PyResult<Py<PyAny>> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let (keys, data) = keys_and_data(batches)?;
    let streams = match core.known_all(py, &keys)? {
        Some(streams) => streams,
        None => find(py, core, keys, timeout)?,
    };
    let prepared = Prepared::many(&streams, data.into_iter(), how, deadline)?;
    prepared.block(py, core.client(py)?, &AckShape::Many(streams), Patience::Wait)
}

/// The same for streams that are known, with keys and headers.
pub(crate) fn block_each(
    py: Python<'_>,
    core: &Core,
    batches: &[(Arc<Described>, Appending<'_, '_>)],
    timeout: Option<f64>,
) -> PyResult<Py<PyAny>> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let prepared = Prepared::each(batches, deadline)?;
    let streams = batches.iter().map(|(stream, _)| Arc::clone(stream)).collect();
    prepared.block(py, core.client(py)?, &AckShape::Many(streams), Patience::Wait)
}

fn find(py: Python<'_>, core: &Core, keys: Vec<Key>, timeout: Option<f64>) -> PyResult<Vec<Arc<Described>>> {
    let client = core.client(py)?.clone();
    let timeout = duration(timeout)?;
    let found = block_on(py, async move { calls::find_all(&client, &keys, timeout).await })?;
    found.map_err(|failure| failure.into_python(py))
}

/// Starts to append one batch.
pub(crate) fn start<'py>(
    py: Python<'py>,
    core: &Arc<Core>,
    key: Key,
    appending: &Appending<'_, 'py>,
    timeout: Option<f64>,
    patience: Patience,
) -> Started<'py> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let here = Here::now(py)?;
    if let Some(stream) = core.known(py, &key)? {
        let prepared = Prepared::one(&stream, appending, deadline)?;
        let operation = here.operation(AckShape::One(stream))?;
        here.submit(core, prepared, &operation, patience)?;
        return Ok(operation);
    }
    let kept = Kept::One {
        data: snapshot(appending.data).unbind(),
        key: appending.key.map(|key| key.clone().unbind()),
        headers: appending.headers.map(|headers| headers.clone().unbind()),
    };
    let later = Later {
        kept,
        how: appending.how,
        deadline,
        patience,
    };
    start_when_found(py, &here, core, vec![key], later, timeout)
}

/// Starts to append one batch to each of several streams, in one frame.
pub(crate) fn start_all<'py>(
    py: Python<'py>,
    core: &Arc<Core>,
    batches: &Bound<'py, PyAny>,
    how: How,
    timeout: Option<f64>,
) -> Started<'py> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let (keys, data) = keys_and_data(batches)?;
    let here = Here::now(py)?;
    if let Some(streams) = core.known_all(py, &keys)? {
        let prepared = Prepared::many(&streams, data.into_iter(), how, deadline)?;
        let operation = here.operation(AckShape::Many(streams))?;
        here.submit(core, prepared, &operation, Patience::Wait)?;
        return Ok(operation);
    }
    let later = Later {
        kept: Kept::Many(PyList::new(py, data.iter().map(snapshot))?.unbind()),
        how,
        deadline,
        patience: Patience::Wait,
    };
    start_when_found(py, &here, core, keys, later, timeout)
}

/// The same for streams that are known, with keys and headers.
pub(crate) fn start_each<'py>(
    py: Python<'py>,
    core: &Arc<Core>,
    batches: &[(Arc<Described>, Appending<'_, 'py>)],
    timeout: Option<f64>,
) -> Started<'py> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let here = Here::now(py)?;
    let prepared = Prepared::each(batches, deadline)?;
    let streams = batches.iter().map(|(stream, _)| Arc::clone(stream)).collect();
    let operation = here.operation(AckShape::Many(streams))?;
    here.submit(core, prepared, &operation, Patience::Wait)?;
    Ok(operation)
}

/// What is kept of data that is encoded later: what its owner could change meanwhile is copied.
fn snapshot<'py>(data: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        let copied = crate::buffer::with_bytes(data, |bytes| PyBytes::new(data.py(), bytes));
        // What is no buffer is refused when it is encoded.
        return copied.map_or_else(|_| data.clone(), Bound::into_any);
    }
    data.clone()
}

/// An append whose stream the client has to ask for first.
struct Later {
    kept: Kept,
    how: How,
    deadline: Instant,
    patience: Patience,
}

enum Kept {
    One {
        data: Py<PyAny>,
        key: Option<Py<PyAny>>,
        headers: Option<Py<PyAny>>,
    },
    Many(Py<PyList>),
}

/// Some stream is new to this client: the append waits until the server has said which it is.
fn start_when_found<'py>(
    py: Python<'py>,
    here: &Here<'py>,
    core: &Arc<Core>,
    keys: Vec<Key>,
    later: Later,
    timeout: Option<f64>,
) -> Started<'py> {
    let operation = here.operation(AckShape::None)?;
    let client = core.client(py)?.clone();
    let timeout = duration(timeout)?;
    let lookup = here.spawn(
        async move { calls::find_all(&client, &keys, timeout).await },
        |py, streams| {
            Ok(PyList::new(py, streams.into_iter().map(StreamInfo))?
                .into_any()
                .unbind())
        },
    )?;
    if let Some(task) = lookup.get().task() {
        operation.get().set_task(task);
    }
    let then = AppendWhenFound {
        core: Arc::clone(core),
        operation: operation.clone().unbind(),
        later,
    };
    lookup.call_method1("add_done_callback", (then,))?;
    Ok(operation)
}

/// The rest of an append whose streams had to be looked up: the callback of the look-up.
#[pyclass(frozen, module = "sbp_native._native")]
struct AppendWhenFound {
    core: Arc<Core>,
    operation: Py<Operation>,
    later: Later,
}

#[pymethods]
impl AppendWhenFound {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.operation)?;
        match &self.later.kept {
            Kept::One { data, key, headers } => {
                visit.call(data)?;
                visit.call(key)?;
                visit.call(headers)
            }
            Kept::Many(data) => visit.call(data),
        }
    }

    fn __call__(&self, py: Python<'_>, lookup: &Bound<'_, Operation>) -> PyResult<()> {
        let operation = self.operation.bind(py);
        if operation.get().is_settled() {
            return Ok(());
        }
        match self.submit(py, lookup) {
            Ok(()) => Ok(()),
            Err(error) => Operation::settle(operation, Err(error)),
        }
    }
}

impl AppendWhenFound {
    fn submit(&self, py: Python<'_>, lookup: &Bound<'_, Operation>) -> PyResult<()> {
        let found = lookup.call_method0("result")?;
        let streams = found
            .try_iter()?
            .map(|info| Ok(Arc::clone(&info?.cast::<StreamInfo>()?.get().0)))
            .collect::<PyResult<Vec<_>>>()?;
        let Later {
            kept,
            how,
            deadline,
            patience,
        } = &self.later;
        let (prepared, shape) = match (kept, streams.as_slice()) {
            (Kept::One { data, key, headers }, [stream]) => {
                let key = key.as_ref().map(|key| key.bind(py));
                let headers = headers.as_ref().map(|headers| headers.bind(py));
                let appending = Appending {
                    data: data.bind(py),
                    key,
                    headers,
                    how: *how,
                };
                let prepared = Prepared::one(stream, &appending, *deadline)?;
                (prepared, AckShape::One(Arc::clone(stream)))
            }
            (Kept::One { .. }, _) => {
                return Err(Failure::Corrupt("the server described no stream".to_owned()).into_python(py));
            }
            (Kept::Many(data), streams) => {
                let prepared = Prepared::many(streams, data.bind(py).iter(), *how, *deadline)?;
                (prepared, AckShape::Many(streams.to_vec()))
            }
        };
        let operation = self.operation.bind(py);
        operation.get().set_shape(shape);
        Here::now(py)?.submit(&self.core, prepared, operation, *patience)
    }
}
