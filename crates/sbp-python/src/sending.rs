//! Appends of both faces: finding the stream, encoding, handing over.

use std::sync::Arc;
use std::time::Instant;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView};
use sbp_locks::Mutex;

use crate::ack::AckShape;
use crate::append::{Appending, Draft, How, NotPrepared, Patience, Prepared, keys_and_data};
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
    let stream = match core.current(py, &key)? {
        Some(stream) => stream,
        None => find(py, core, vec![key], timeout)?
            .pop()
            .ok_or_else(|| Failure::Corrupt("the server described no stream".to_owned()).into_python(py))?,
    };
    let prepared = Prepared::one(&stream, appending, deadline).or_else(|not| complete(py, core, not, timeout))?;
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
    let streams = match core.all(py, &keys, Core::current)? {
        Some(streams) => streams,
        None => find(py, core, keys, timeout)?,
    };
    let prepared = Prepared::many(&streams, data.into_iter(), how, deadline);
    let prepared = prepared.or_else(|not| complete(py, core, not, timeout))?;
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
    let prepared = Prepared::each(batches, deadline).or_else(|not| complete(py, core, not, timeout))?;
    let streams = batches.iter().map(|(stream, _)| Arc::clone(stream)).collect();
    prepared.block(py, core.client(py)?, &AckShape::Many(streams), Patience::Wait)
}

/// Prepares an append once its streams are described again, where that is what it lacks.
fn complete(py: Python<'_>, core: &Core, not: NotPrepared, timeout: Option<f64>) -> PyResult<Prepared> {
    let draft = match not {
        NotPrepared::Raised(error) => return Err(error),
        NotPrepared::Draft(draft) => draft,
    };
    let (client, keys, timeout) = (core.client(py)?.clone(), draft.keys(), duration(timeout)?);
    let described = block_on(py, async move { calls::describe_all(&client, &keys, timeout).await })?;
    draft.prepare(py, &described.map_err(|failure| failure.into_python(py))?)
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
    if let Some(stream) = core.known_now(py, &key)? {
        let prepared = Prepared::one(&stream, appending, deadline);
        return submit(py, &here, core, prepared, AckShape::One(stream), patience, timeout);
    }
    let kept = Kept::One {
        data: snapshot(appending.data).unbind(),
        key: appending.key.map(|key| key.clone().unbind()),
        headers: appending.headers.map(|headers| headers.clone().unbind()),
    };
    let rest = Rest::Encode {
        kept,
        how: appending.how,
        deadline,
    };
    let (client, limit) = (core.client(py)?.clone(), duration(timeout)?);
    let lookup = async move { calls::find_all(&client, &[key], limit).await };
    start_when_found(&here, core, lookup, here.operation(AckShape::None)?, rest, patience)
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
    if let Some(streams) = core.all(py, &keys, Core::known_now)? {
        let prepared = Prepared::many(&streams, data.into_iter(), how, deadline);
        return submit(
            py,
            &here,
            core,
            prepared,
            AckShape::Many(streams),
            Patience::Wait,
            timeout,
        );
    }
    let rest = Rest::Encode {
        kept: Kept::Many(PyList::new(py, data.iter().map(snapshot))?.unbind()),
        how,
        deadline,
    };
    let (client, limit) = (core.client(py)?.clone(), duration(timeout)?);
    let lookup = async move { calls::find_all(&client, &keys, limit).await };
    let operation = here.operation(AckShape::None)?;
    start_when_found(&here, core, lookup, operation, rest, Patience::Wait)
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
    let prepared = Prepared::each(batches, deadline);
    let streams = batches.iter().map(|(stream, _)| Arc::clone(stream)).collect();
    submit(
        py,
        &here,
        core,
        prepared,
        AckShape::Many(streams),
        Patience::Wait,
        timeout,
    )
}

/// Submits what is prepared; what has to wait until its streams are described again is submitted then, behind what is
/// submitted meanwhile.
fn submit<'py>(
    py: Python<'py>,
    here: &Here<'py>,
    core: &Arc<Core>,
    prepared: Result<Prepared, NotPrepared>,
    shape: AckShape,
    patience: Patience,
    timeout: Option<f64>,
) -> Started<'py> {
    let draft = match prepared {
        Ok(prepared) => {
            let operation = here.operation(shape)?;
            here.submit(core, prepared, &operation, patience)?;
            return Ok(operation);
        }
        Err(NotPrepared::Raised(error)) => return Err(error),
        Err(NotPrepared::Draft(draft)) => draft,
    };
    let (client, keys, limit) = (core.client(py)?.clone(), draft.keys(), duration(timeout)?);
    let lookup = async move { calls::describe_all(&client, &keys, limit).await };
    let rest = Rest::Draft(Mutex::new(Some(draft)));
    start_when_found(here, core, lookup, here.operation(shape)?, rest, patience)
}

/// What is kept of data that is encoded later: what its owner could change meanwhile is copied.
pub(crate) fn snapshot<'py>(data: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        let copied = crate::buffer::with_bytes(data, |bytes| PyBytes::new(data.py(), bytes));
        // What is no buffer is refused when it is encoded.
        return copied.map_or_else(|_| data.clone(), Bound::into_any);
    }
    data.clone()
}

/// What is to be done about an append once its streams are described.
enum Rest {
    /// All of it: the client did not know them.
    Encode { kept: Kept, how: How, deadline: Instant },
    /// They are described again, for columns that they did not have.
    Draft(Mutex<Option<Box<Draft>>>),
}

enum Kept {
    One {
        data: Py<PyAny>,
        key: Option<Py<PyAny>>,
        headers: Option<Py<PyAny>>,
    },
    Many(Py<PyList>),
}

/// The append waits until the server has said what its streams are.
fn start_when_found<'py>(
    here: &Here<'py>,
    core: &Arc<Core>,
    lookup: impl Future<Output = Result<Vec<Arc<Described>>, Failure>> + Send + 'static,
    operation: Bound<'py, Operation>,
    rest: Rest,
    patience: Patience,
) -> Started<'py> {
    let lookup = here.spawn(lookup, |py, streams| {
        Ok(PyList::new(py, streams.into_iter().map(StreamInfo))?
            .into_any()
            .unbind())
    })?;
    if let Some(task) = lookup.get().task() {
        operation.get().set_task(task);
    }
    let then = AppendWhenFound {
        core: Arc::clone(core),
        operation: operation.clone().unbind(),
        rest,
        patience,
    };
    lookup.call_method1("add_done_callback", (then,))?;
    Ok(operation)
}

/// The rest of an append whose streams had to be looked up: the callback of the look-up.
#[pyclass(frozen, module = "sbp_native._native")]
struct AppendWhenFound {
    core: Arc<Core>,
    operation: Py<Operation>,
    rest: Rest,
    patience: Patience,
}

#[pymethods]
impl AppendWhenFound {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.operation)?;
        match &self.rest {
            Rest::Encode {
                kept: Kept::One { data, key, headers },
                ..
            } => {
                visit.call(data)?;
                visit.call(key)?;
                visit.call(headers)
            }
            Rest::Encode {
                kept: Kept::Many(data), ..
            } => visit.call(data),
            // Columns that were taken from their owner refer to nothing of Python's.
            Rest::Draft(_) => Ok(()),
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
        let operation = self.operation.bind(py);
        let here = Here::now(py)?;
        let (kept, how, deadline) = match &self.rest {
            Rest::Encode { kept, how, deadline } => (kept, how, deadline),
            Rest::Draft(draft) => {
                let Some(draft) = draft.lock().take() else {
                    return Ok(());
                };
                return here.submit(&self.core, draft.prepare(py, &streams)?, operation, self.patience);
            }
        };
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
                let prepared = Prepared::one(stream, &appending, *deadline);
                (prepared, AckShape::One(Arc::clone(stream)))
            }
            (Kept::One { .. }, _) => {
                return Err(Failure::Corrupt("the server described no stream".to_owned()).into_python(py));
            }
            (Kept::Many(data), streams) => {
                let prepared = Prepared::many(streams, data.bind(py).iter(), *how, *deadline);
                (prepared, AckShape::Many(streams.to_vec()))
            }
        };
        // They were described just now.
        let prepared = prepared.or_else(|not| match not {
            NotPrepared::Raised(error) => Err(error),
            NotPrepared::Draft(draft) => draft.prepare(py, &streams),
        })?;
        operation.get().set_shape(shape);
        here.submit(&self.core, prepared, operation, self.patience)
    }
}
