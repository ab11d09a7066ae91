//! Appends, waited for or started as an operation: finding the streams, encoding, handing over to the client.

use std::sync::Arc;
use std::time::Instant;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView};
use sbp_locks::Mutex;

use crate::append::input::{AppendInput, AppendOptions};
use crate::append::prepared::{BackpressurePolicy, Draft, NotPrepared, Prepared, keys_and_data};
use crate::bridge::{Operation, RunningLoop};
use crate::client_core::ClientCore;
use crate::requests::{self, Described, Failure, Key};
use crate::results::ack::AckShape;
use crate::results::stream_info::StreamInfo;
use crate::time::duration;

type Started<'py> = PyResult<Bound<'py, Operation>>;

/// Appends one batch and waits until it is stored.
pub(crate) fn block(
    py: Python<'_>,
    core: &ClientCore,
    key: Key,
    input: &AppendInput<'_, '_>,
    timeout: Option<f64>,
    policy: BackpressurePolicy,
) -> PyResult<Py<PyAny>> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let stream = match core.current(py, &key)? {
        Some(stream) => stream,
        None => find(py, core, vec![key], timeout)?
            .pop()
            .ok_or_else(|| Failure::Corrupt("the server described no stream".to_owned()).into_python(py))?,
    };
    let prepared = Prepared::one(&stream, input, deadline).or_else(|not| complete(py, core, not, timeout))?;
    prepared.block(py, core.client(py)?, &AckShape::One(stream), policy)
}

/// Appends one batch to each of several streams, in one frame, and waits until they are stored.
pub(crate) fn block_all(
    py: Python<'_>,
    core: &ClientCore,
    (batches, headers): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
    options: AppendOptions,
    timeout: Option<f64>,
) -> PyResult<Py<PyAny>> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let (keys, data) = keys_and_data(batches)?;
    let streams = match core.all(py, &keys, ClientCore::current)? {
        Some(streams) => streams,
        None => find(py, core, keys, timeout)?,
    };
    let prepared = Prepared::many(&streams, data.into_iter(), headers, options, deadline);
    let prepared = prepared.or_else(|not| complete(py, core, not, timeout))?;
    prepared.block(py, core.client(py)?, &AckShape::Many(streams), BackpressurePolicy::Wait)
}

/// As [`block_all`] for streams that are known, with keys and headers.
pub(crate) fn block_each(
    py: Python<'_>,
    core: &ClientCore,
    batches: &[(Arc<Described>, AppendInput<'_, '_>)],
    timeout: Option<f64>,
) -> PyResult<Py<PyAny>> {
    let deadline = core.deadline(core.client(py)?, timeout)?;
    let prepared = Prepared::each(batches, deadline).or_else(|not| complete(py, core, not, timeout))?;
    let streams = batches.iter().map(|(stream, _)| Arc::clone(stream)).collect();
    prepared.block(py, core.client(py)?, &AckShape::Many(streams), BackpressurePolicy::Wait)
}

/// Prepares an append; where its data has columns that its streams did not have, the streams are described again first.
fn complete(py: Python<'_>, core: &ClientCore, not: NotPrepared, timeout: Option<f64>) -> PyResult<Prepared> {
    let draft = match not {
        NotPrepared::Raised(error) => return Err(error),
        NotPrepared::Draft(draft) => draft,
    };
    let keys = draft.keys();
    let described = core.block(py, timeout, |client, timeout| async move {
        requests::describe_all(&client, &keys, timeout).await
    });
    draft.prepare(py, &described?)
}

fn find(py: Python<'_>, core: &ClientCore, keys: Vec<Key>, timeout: Option<f64>) -> PyResult<Vec<Arc<Described>>> {
    core.block(py, timeout, |client, timeout| async move {
        requests::find_all(&client, &keys, timeout).await
    })
}

/// Starts to append one batch.
pub(crate) fn start<'py>(
    py: Python<'py>,
    core: &Arc<ClientCore>,
    key: Key,
    input: &AppendInput<'_, 'py>,
    timeout: Option<f64>,
    policy: BackpressurePolicy,
) -> Started<'py> {
    let starting = Starting::new(py, core, timeout, policy)?;
    if let Some(stream) = core.known_now(py, &key)? {
        let prepared = Prepared::one(&stream, input, starting.deadline);
        return starting.submit(py, prepared, AckShape::One(stream));
    }
    let kept = Snapshot::One {
        data: snapshot(input.data).unbind(),
        key: input.key.map(|key| key.clone().unbind()),
        headers: input.headers.map(|headers| headers.clone().unbind()),
    };
    starting.look_up(py, vec![key], kept, input.options)
}

/// Starts to append one batch to each of several streams, in one frame.
pub(crate) fn start_all<'py>(
    py: Python<'py>,
    core: &Arc<ClientCore>,
    (batches, headers): (&Bound<'py, PyAny>, Option<&Bound<'py, PyAny>>),
    options: AppendOptions,
    timeout: Option<f64>,
) -> Started<'py> {
    let starting = Starting::new(py, core, timeout, BackpressurePolicy::Wait)?;
    let (keys, data) = keys_and_data(batches)?;
    if let Some(streams) = core.all(py, &keys, ClientCore::known_now)? {
        let prepared = Prepared::many(&streams, data.into_iter(), headers, options, starting.deadline);
        return starting.submit(py, prepared, AckShape::Many(streams));
    }
    let kept = Snapshot::Many {
        data: PyList::new(py, data.iter().map(snapshot))?.unbind(),
        headers: headers.map(|headers| headers.clone().unbind()),
    };
    starting.look_up(py, keys, kept, options)
}

/// As [`start_all`] for streams that are known, with keys and headers.
pub(crate) fn start_each<'py>(
    py: Python<'py>,
    core: &Arc<ClientCore>,
    batches: &[(Arc<Described>, AppendInput<'_, 'py>)],
    timeout: Option<f64>,
) -> Started<'py> {
    let starting = Starting::new(py, core, timeout, BackpressurePolicy::Wait)?;
    let prepared = Prepared::each(batches, starting.deadline);
    let streams = batches.iter().map(|(stream, _)| Arc::clone(stream)).collect();
    starting.submit(py, prepared, AckShape::Many(streams))
}

/// An append that is started, on the loop that runs.
struct Starting<'a, 'py> {
    event_loop: RunningLoop<'py>,
    core: &'a Arc<ClientCore>,
    timeout: Option<f64>,
    deadline: Instant,
    policy: BackpressurePolicy,
}

impl<'a, 'py> Starting<'a, 'py> {
    fn new(
        py: Python<'py>,
        core: &'a Arc<ClientCore>,
        timeout: Option<f64>,
        policy: BackpressurePolicy,
    ) -> PyResult<Self> {
        let deadline = core.deadline(core.client(py)?, timeout)?;
        Ok(Self {
            event_loop: RunningLoop::current(py)?,
            core,
            timeout,
            deadline,
            policy,
        })
    }

    /// Submits what is prepared; what has to wait until its streams are described again is submitted then, behind what is
    /// submitted meanwhile.
    fn submit(&self, py: Python<'py>, prepared: Result<Prepared, NotPrepared>, shape: AckShape) -> Started<'py> {
        let draft = match prepared {
            Ok(prepared) => {
                let operation = self.event_loop.operation(shape)?;
                self.event_loop.submit(self.core, prepared, &operation, self.policy)?;
                return Ok(operation);
            }
            Err(NotPrepared::Raised(error)) => return Err(error),
            Err(NotPrepared::Draft(draft)) => draft,
        };
        let (client, keys, limit) = (self.core.client(py)?.clone(), draft.keys(), duration(self.timeout)?);
        let lookup = async move { requests::describe_all(&client, &keys, limit).await };
        self.submit_when_found(lookup, shape, Rest::Draft(Mutex::new(Some(draft))))
    }

    /// Looks the streams up that the client does not know, and encodes and submits the append then.
    fn look_up(&self, py: Python<'py>, keys: Vec<Key>, kept: Snapshot, options: AppendOptions) -> Started<'py> {
        let (client, limit) = (self.core.client(py)?.clone(), duration(self.timeout)?);
        let lookup = async move { requests::find_all(&client, &keys, limit).await };
        let rest = Rest::Encode {
            kept,
            options,
            deadline: self.deadline,
        };
        self.submit_when_found(lookup, AckShape::None, rest)
    }

    /// Submits the append once the server has described its streams.
    fn submit_when_found(
        &self,
        lookup: impl Future<Output = Result<Vec<Arc<Described>>, Failure>> + Send + 'static,
        shape: AckShape,
        rest: Rest,
    ) -> Started<'py> {
        let operation = self.event_loop.operation(shape)?;
        let lookup = self.event_loop.spawn(lookup, |py, streams| {
            Ok(PyList::new(py, streams.into_iter().map(StreamInfo))?
                .into_any()
                .unbind())
        })?;
        if let Some(task) = lookup.get().task() {
            operation.get().set_task(task);
        }
        let then = AppendWhenFound {
            core: Arc::clone(self.core),
            operation: operation.clone().unbind(),
            rest,
            policy: self.policy,
        };
        lookup.call_method1("add_done_callback", (then,))?;
        Ok(operation)
    }
}

/// Data that is encoded later: copied where its owner could change it meanwhile.
pub(crate) fn snapshot<'py>(data: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        let copied = crate::memory::buffer::with_bytes(data, |bytes| PyBytes::new(data.py(), bytes));
        // What is no buffer is refused when it is encoded.
        return copied.map_or_else(|_| data.clone(), Bound::into_any);
    }
    data.clone()
}

/// What is left to do for an append once its streams are described.
enum Rest {
    /// Encode and submit: the client did not know the streams.
    Encode {
        kept: Snapshot,
        options: AppendOptions,
        deadline: Instant,
    },
    /// Encode the data with columns that the streams did not have when they were described, and submit.
    Draft(Mutex<Option<Box<Draft>>>),
}

enum Snapshot {
    One {
        data: Py<PyAny>,
        key: Option<Py<PyAny>>,
        headers: Option<Py<PyAny>>,
    },
    Many {
        data: Py<PyList>,
        headers: Option<Py<PyAny>>,
    },
}

/// The rest of an append whose streams had to be looked up: the callback of the look-up.
#[pyclass(frozen, module = "sbp_native._native")]
struct AppendWhenFound {
    core: Arc<ClientCore>,
    operation: Py<Operation>,
    rest: Rest,
    policy: BackpressurePolicy,
}

#[pymethods]
impl AppendWhenFound {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.operation)?;
        match &self.rest {
            Rest::Encode {
                kept: Snapshot::One { data, key, headers },
                ..
            } => {
                visit.call(data)?;
                visit.call(key)?;
                visit.call(headers)
            }
            Rest::Encode {
                kept: Snapshot::Many { data, headers },
                ..
            } => {
                visit.call(data)?;
                visit.call(headers)
            }
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
        let event_loop = RunningLoop::current(py)?;
        let (kept, options, deadline) = match &self.rest {
            Rest::Encode {
                kept,
                options,
                deadline,
            } => (kept, options, deadline),
            Rest::Draft(draft) => {
                let Some(draft) = draft.lock().take() else {
                    return Ok(());
                };
                return event_loop.submit(&self.core, draft.prepare(py, &streams)?, operation, self.policy);
            }
        };
        let (prepared, shape) = match (kept, streams.as_slice()) {
            (Snapshot::One { data, key, headers }, [stream]) => {
                let key = key.as_ref().map(|key| key.bind(py));
                let headers = headers.as_ref().map(|headers| headers.bind(py));
                let input = AppendInput {
                    data: data.bind(py),
                    key,
                    headers,
                    options: *options,
                };
                let prepared = Prepared::one(stream, &input, *deadline);
                (prepared, AckShape::One(Arc::clone(stream)))
            }
            (Snapshot::One { .. }, _) => {
                return Err(Failure::Corrupt("the server described no stream".to_owned()).into_python(py));
            }
            (Snapshot::Many { data, headers }, streams) => {
                let headers = headers.as_ref().map(|headers| headers.bind(py));
                let prepared = Prepared::many(streams, data.bind(py).iter(), headers, *options, *deadline);
                (prepared, AckShape::Many(streams.to_vec()))
            }
        };
        // They were described just now.
        let prepared = prepared.or_else(|not| match not {
            NotPrepared::Raised(error) => Err(error),
            NotPrepared::Draft(draft) => draft.prepare(py, &streams),
        })?;
        operation.get().set_shape(shape);
        event_loop.submit(&self.core, prepared, operation, self.policy)
    }
}
