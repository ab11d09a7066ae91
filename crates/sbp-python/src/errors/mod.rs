//! The one mapping from errors of the core to Python exceptions.
//!
//! The classes live in `sbp_native.errors`; which one a code becomes is said in `classes`.

mod classes;

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule};
use sbp_client::codes;
use sbp_client::{ClientError, ErrorKind};
use sbp_messages::{ErrorCode, Retry};
use sbp_peers::seastar::HostError;
use sbp_proxy::{ListenError, ProxyError};
use sbp_server::StartError;

use crate::interpreter::once::OncePy;

/// The exception for an error of the client; `name` is the stream's where the caller knows it and the client may not.
pub(crate) fn from_client(py: Python<'_>, error: ClientError, name: Option<&str>) -> PyErr {
    let error = match name {
        Some(name) => error.with_stream_name(name),
        None => error,
    };
    exception(py, &error).map_or_else(|error| error, PyErr::from_value)
}

/// The exception, with what it carries.
fn exception<'py>(py: Python<'py>, error: &ClientError) -> PyResult<Bound<'py, PyAny>> {
    let id = || error.stream().map(|stream| stream.to_string());
    let carried = PyDict::new(py);
    carried.set_item("code", error.code().0)?;
    carried.set_item("retriable", error.is_retriable())?;
    carried.set_item("indeterminate", error.is_indeterminate())?;
    carried.set_item("stream", error.stream_name().map(str::to_owned).or_else(id))?;
    carried.set_item("range", error.range().map(|range| range.0))?;
    carried.set_item("offset", error.offset().map(|offset| offset.0))?;
    carried.set_item("endpoint", error.endpoint())?;
    carried.set_item("attempts", error.attempts())?;
    module(py)?
        .getattr(class_of(error))?
        .call((error.to_string(),), Some(&carried))
}

/// The class for an error of the client: the code's, unless that says something else about the outcome than the client
/// found out.
fn class_of(error: &ClientError) -> &'static str {
    let class = classes::of(error.code());
    match error.kind() {
        ErrorKind::Indeterminate if !codes::rule(error.code()).may_have_been_done => {
            if error.is_timeout() {
                "OutcomeUnknownTimeoutError"
            } else {
                "IndeterminateError"
            }
        }
        _ if error.code() == codes::TLS_FAILED => class,
        ErrorKind::Unreachable | ErrorKind::ConnectionLost => "ConnectionFailedError",
        _ => class,
    }
}

/// The exception for a server that did not start.
pub(crate) fn from_start(py: Python<'_>, error: &StartError) -> PyErr {
    let code = match error {
        StartError::PortTaken { .. } => codes::PORT_TAKEN,
        StartError::DirectoryLocked { .. } => codes::DIRECTORY_LOCKED,
        StartError::BadAddress { .. }
        | StartError::InsecureListen { .. }
        | StartError::HttpHost { .. }
        | StartError::Tls(_)
        | StartError::Access(_) => codes::BAD_SERVER_CONFIG,
        _ => codes::SERVER_NOT_STARTED,
    };
    local(py, code, &with_causes(error))
}

/// The exception for a proxy that did not start.
pub(crate) fn from_proxy(py: Python<'_>, error: &ProxyError) -> PyErr {
    let code = match error {
        ProxyError::Listen(ListenError::PortTaken { .. }) => codes::PORT_TAKEN,
        ProxyError::Listen(ListenError::InvalidAddress { .. }) | ProxyError::InsecureListen { .. } => {
            codes::BAD_SERVER_CONFIG
        }
        _ => codes::SERVER_NOT_STARTED,
    };
    local(py, code, &with_causes(error))
}

/// The exception for a server of another protocol that did not start.
pub(crate) fn from_host(py: Python<'_>, error: &HostError) -> PyErr {
    let code = match error {
        HostError::Address { .. } | HostError::Insecure { .. } => codes::BAD_SERVER_CONFIG,
        HostError::Listen(ListenError::PortTaken { .. }) => codes::PORT_TAKEN,
        HostError::Listen(ListenError::InvalidAddress { .. }) => codes::BAD_SERVER_CONFIG,
        _ => codes::SERVER_NOT_STARTED,
    };
    local(py, code, &with_causes(error))
}

/// The exception for a server whose log has failed: it takes no more appends, or could not be closed.
pub(crate) fn log_failed(py: Python<'_>, error: &dyn std::error::Error) -> PyErr {
    local(py, ErrorCode::LOG_FAILED, &with_causes(error))
}

/// The exception for something that an embedded server cannot be.
pub(crate) fn bad_server_config(py: Python<'_>, message: &str) -> PyErr {
    local(py, codes::BAD_SERVER_CONFIG, message)
}

/// The exception for an argument that no server could accept.
pub(crate) fn invalid(py: Python<'_>, message: &str) -> PyErr {
    local(py, codes::BAD_ARGUMENT, message)
}

/// The exception for a batch that no server could store.
pub(crate) fn too_large(py: Python<'_>, message: &str) -> PyErr {
    local(py, ErrorCode::PAYLOAD_TOO_LARGE, message)
}

/// The exception for data that does not fit its stream.
pub(crate) fn schema_mismatch(py: Python<'_>, message: &str) -> PyErr {
    local(py, ErrorCode::SCHEMA_MISMATCH, message)
}

/// The exception for a name that is taken.
pub(crate) fn already_exists(py: Python<'_>, name: &str) -> PyErr {
    let what = "the stream exists already, and exist_ok was not given";
    from_client(py, ClientError::local(ErrorCode::ALREADY_EXISTS, what), Some(name))
}

/// The exception for received data that cannot be read.
pub(crate) fn corrupt(py: Python<'_>, message: &str) -> PyErr {
    local(py, codes::CORRUPT_ON_ARRIVAL, message)
}

/// The exception for a call on something that was closed.
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    local(py, codes::CLOSED, &format!("the {what} is closed"))
}

/// The exception for a call, in a forked child, on something that its parent made.
pub(crate) fn forked(py: Python<'_>, what: &str) -> PyErr {
    local(
        py,
        codes::FORKED_CLIENT,
        &format!("this {what} was made before a fork, in the parent process"),
    )
}

/// The exception for a tail that had nothing to return in time. Asking it again goes on where it was.
pub(crate) fn nothing_came(py: Python<'_>, limit: Duration) -> PyErr {
    let what = format!("nothing was appended for {limit:?}");
    local(py, codes::DEADLINE_BEFORE_SEND, &what)
}

/// The exception for a call that would have to wait for room, and is not to.
pub(crate) fn back_pressure(py: Python<'_>, what: &str) -> PyErr {
    local(py, codes::BACK_PRESSURE, what)
}

/// The exception for a flush that took too long. What is on its way stays there.
pub(crate) fn not_flushed(py: Python<'_>, records: u64) -> PyErr {
    let what = format!("{records} records of the writer were not acknowledged in time; they are still on their way");
    local(py, codes::DEADLINE_AFTER_SEND, &what)
}

/// An error of this side.
fn local(py: Python<'_>, code: ErrorCode, what: &str) -> PyErr {
    from_client(py, ClientError::local(code, what), None)
}

fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: OncePy<PyModule> = OncePy::new();
    MODULE.get(py, || Ok(py.import("sbp_native.errors")?.unbind()))
}

/// An error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

/// A row of the error table: `(code, name, class, retry, may have been done, meaning, advice)`.
type Row = (
    i16,
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static str,
    &'static str,
);

/// The error table.
#[pyfunction]
pub(crate) fn error_codes() -> Vec<Row> {
    ErrorCode::ALL
        .iter()
        .chain(codes::ALL)
        .map(|code| {
            let rule = codes::rule(*code);
            let retry = match rule.retry {
                Retry::Never => "no",
                Retry::Now => "now",
                Retry::Later => "later",
                Retry::Elsewhere => "elsewhere",
                Retry::Refresh => "refresh",
            };
            let done = rule.may_have_been_done;
            (
                code.0,
                rule.name,
                classes::of(*code),
                retry,
                done,
                rule.meaning,
                rule.advice,
            )
        })
        .collect()
}
