//! What the methods of asynchronous classes are made of; see [`crate::api::pair`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;

pub(crate) use crate::api::batches::AsyncBatches as Batches;
pub(crate) use crate::api::cursor::AsyncCursor as Cursor;
pub(crate) use crate::api::keyed::AsyncKeyed as Keyed;
pub(crate) use crate::api::stream::AsyncStream as Stream;
use crate::bridge::{CallVerbs, Operation, RunningLoop};
pub(crate) use crate::call::{start as append, start_all as append_all, start_each as append_each};
use crate::owner::Owner;
use crate::requests::Failure;
use crate::results::ack::OfReply;
use crate::results::answer::Answer;
use crate::time::duration;
pub(crate) use crate::writer::asyncio::AsyncWriter as Writer;

/// What a call returns: the operation that it is, which can be awaited.
pub(crate) type Returned<'py> = PyResult<Bound<'py, Operation>>;

/// Starts a call: `work` is done by the I/O thread, over Rust data only.
pub(crate) fn run<'py, O: Owner, T: Answer, F: Future<Output = Result<T, Failure>> + Send + 'static>(
    py: Python<'py>,
    owner: &O,
    timeout: Option<f64>,
    work: impl FnOnce(O::Client, Option<Duration>) -> F,
) -> Returned<'py> {
    run_into(py, owner, timeout, work, |py, result: T| result.into_python(py))
}

/// As [`run`]; `convert` makes a Python object of the result.
pub(crate) fn run_into<'py, O: Owner, T: Send + 'static, F: Future<Output = Result<T, Failure>> + Send + 'static>(
    py: Python<'py>,
    owner: &O,
    timeout: Option<f64>,
    work: impl FnOnce(O::Client, Option<Duration>) -> F,
    convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> Returned<'py> {
    let work = work(owner.owned().get(py)?.clone(), duration(timeout)?);
    RunningLoop::current(py)?.spawn(work, convert)
}

/// Calls a verb, together with what else is called in this tick. `returns` makes a Python object of the reply; `None`: it is bytes.
pub(crate) fn call_verb<'py, V: CallVerbs>(
    py: Python<'py>,
    core: &Arc<V>,
    timeout: Option<f64>,
    call: (u64, Bytes),
    returns: Option<Arc<dyn OfReply>>,
) -> Returned<'py> {
    RunningLoop::current(py)?.call(core, call, duration(timeout)?, returns)
}
