//! What the methods of blocking classes are made of; see [`crate::api::pair`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;

pub(crate) use crate::api::batches::Batches;
pub(crate) use crate::api::cursor::Cursor;
pub(crate) use crate::api::keyed::Keyed;
pub(crate) use crate::api::stream::Stream;
use crate::bridge::CallVerbs;
pub(crate) use crate::call::{block as append, block_all as append_all, block_each as append_each};
use crate::owner::{Owner, block};
use crate::requests::Failure;
use crate::results::ack::{AckShape, OfReply};
use crate::results::answer::Answer;
pub(crate) use crate::writer::blocking::Writer;

/// What a call returns: its result.
pub(crate) type Returned<'py> = PyResult<Py<PyAny>>;

/// Makes a call and waits for it: `work` is done by the I/O thread, over Rust data only.
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
    convert(py, block(py, owner, timeout, work)?)
}

/// Calls a verb and waits for its reply. `returns` makes a Python object of it; `None`: it is bytes.
pub(crate) fn call_verb<'py, V: CallVerbs>(
    py: Python<'py>,
    core: &Arc<V>,
    timeout: Option<f64>,
    (verb, payload): (u64, Bytes),
    returns: Option<Arc<dyn OfReply>>,
) -> Returned<'py> {
    let reply = block(py, core, timeout, |client, timeout| {
        V::call(client, verb, payload, timeout)
    })?;
    AckShape::OfVerb(returns).returned(py, &reply)
}
