//! The one mapping from errors of the core to Python exceptions.
//!
//! The classes live in `sbp_native.errors`; which one a code becomes is a column of the error table in `sbp-messages`.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use sbp_client::{ClientError, ErrorKind};
use sbp_messages::{ErrorCode, PYTHON_CLASSES};
use sbp_server::{ServerFailure, StartError};

/// What an exception of ours carries.
#[derive(Default)]
struct Facts<'a> {
    code: i16,
    retriable: bool,
    indeterminate: bool,
    stream: Option<String>,
    range: Option<i32>,
    offset: Option<i64>,
    endpoint: Option<&'a str>,
    attempts: u32,
}

/// The exception for an error of the client; `name` is the stream's where the caller knows it and the client may not.
pub(crate) fn from_client(py: Python<'_>, error: ClientError, name: Option<&str>) -> PyErr {
    let facts = Facts {
        code: error.code().0,
        retriable: error.is_retriable(),
        indeterminate: error.is_indeterminate(),
        stream: error
            .stream_name()
            .or(name)
            .map(str::to_owned)
            .or_else(|| error.stream().map(|stream| stream.to_string())),
        range: error.range().map(|range| range.0),
        offset: error.offset().map(|offset| offset.0),
        endpoint: error.endpoint(),
        attempts: error.attempts(),
    };
    build(py, class_of(&error), &error.to_string(), &facts)
}

/// The class for an error of the client: the code's, unless that says something else about the outcome than the client
/// found out.
fn class_of(error: &ClientError) -> &'static str {
    let class = error.code().rule().python_class;
    match error.kind() {
        ErrorKind::Indeterminate if !is_below(class, "IndeterminateError") => {
            if error.is_timeout() {
                "OutcomeUnknownTimeoutError"
            } else {
                "IndeterminateError"
            }
        }
        ErrorKind::Unreachable | ErrorKind::ConnectionLost => "ConnectionFailedError",
        _ => class,
    }
}

/// Whether a class of the tree is, or derives from, another.
fn is_below(class: &str, ancestor: &str) -> bool {
    let mut class = class;
    loop {
        if class == ancestor {
            return true;
        }
        match PYTHON_CLASSES.iter().find(|row| row.name == class) {
            Some(row) => class = row.base,
            None => return false,
        }
    }
}

/// The exception for a server that did not start.
pub(crate) fn from_start(py: Python<'_>, error: &StartError) -> PyErr {
    let class = match error {
        StartError::PortTaken { .. } => "PortTakenError",
        StartError::DirectoryLocked { .. } => "DirectoryLockedError",
        StartError::BadAddress { .. } | StartError::InsecureListen { .. } => "ServerConfigError",
        _ => "ServerStartError",
    };
    build(py, class, &with_causes(error), &Facts::default())
}

/// The exception that tells why a running server takes no more appends.
pub(crate) fn from_failure(py: Python<'_>, failure: &ServerFailure) -> PyErr {
    let code = ErrorCode::LOG_FAILED;
    build(
        py,
        code.rule().python_class,
        &with_causes(failure),
        &Facts {
            code: code.0,
            ..Facts::default()
        },
    )
}

/// The exception for an argument that no server could accept.
pub(crate) fn invalid(py: Python<'_>, message: &str) -> PyErr {
    local(py, ErrorCode::BAD_ARGUMENT, message)
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
    local(
        py,
        ErrorCode::ALREADY_EXISTS,
        &format!("stream {name} exists already; or pass exist_ok=True"),
    )
}

/// The exception for received data that cannot be read.
pub(crate) fn corrupt(py: Python<'_>, message: &str) -> PyErr {
    local(py, ErrorCode::CORRUPT_ON_ARRIVAL, message)
}

/// The exception for a call on something that was closed.
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    local(py, ErrorCode::CLOSED, &format!("the {what} is closed"))
}

/// The exception for a call, in a forked child, on something that its parent made.
pub(crate) fn forked(py: Python<'_>, what: &str) -> PyErr {
    local(
        py,
        ErrorCode::FORKED_CLIENT,
        &format!("this {what} was made before a fork, in the parent process"),
    )
}

/// The exception for a tail that had nothing to return in time. Asking it again goes on where it was.
pub(crate) fn nothing_came(py: Python<'_>, limit: Duration) -> PyErr {
    let code = ErrorCode::DEADLINE_BEFORE_SEND;
    let message = format!(
        "[SBP-{:04}] nothing was appended for {limit:?}; can be tried again; wait longer",
        code.0
    );
    let facts = Facts {
        code: code.0,
        retriable: true,
        ..Facts::default()
    };
    build(py, code.rule().python_class, &message, &facts)
}

/// An error of this side: number, what happened and what to do, in the form the client gives its own.
fn local(py: Python<'_>, code: ErrorCode, what: &str) -> PyErr {
    let rule = code.rule();
    let message = format!("[SBP-{:04}] {what}; {}", code.0, rule.advice);
    build(
        py,
        rule.python_class,
        &message,
        &Facts {
            code: code.0,
            ..Facts::default()
        },
    )
}

fn build(py: Python<'_>, class: &str, message: &str, facts: &Facts<'_>) -> PyErr {
    let made = module(py).and_then(|module| {
        let keywords = PyDict::new(py);
        keywords.set_item("code", facts.code)?;
        keywords.set_item("retriable", facts.retriable)?;
        keywords.set_item("indeterminate", facts.indeterminate)?;
        keywords.set_item("stream", facts.stream.as_deref())?;
        keywords.set_item("range", facts.range)?;
        keywords.set_item("offset", facts.offset)?;
        keywords.set_item("endpoint", facts.endpoint)?;
        keywords.set_item("attempts", facts.attempts)?;
        module.getattr(class)?.call((message,), Some(&keywords))
    });
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    MODULE
        .get_or_try_init(py, || Ok(py.import("sbp_native.errors")?.unbind()))
        .map(|module| module.bind(py))
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

/// The exception tree of the error table: `(name, base, built-in base or None)`, parents first.
#[pyfunction]
pub(crate) fn error_classes() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    PYTHON_CLASSES
        .iter()
        .map(|class| (class.name, class.base, class.builtin))
        .collect()
}

/// The error table: `(code, name, class, may have been done, advice)`.
#[pyfunction]
pub(crate) fn error_codes() -> Vec<(i16, &'static str, &'static str, bool, &'static str)> {
    ErrorCode::ALL
        .iter()
        .map(|code| {
            let rule = code.rule();
            (
                code.0,
                rule.name,
                rule.python_class,
                rule.may_have_been_done,
                rule.advice,
            )
        })
        .collect()
}
