//! The token of a client: a text, a file, or a callable that is asked for one.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use sbp_client::{TokenFuture, TokenSource};
use sbp_messages::Token as Secret;
use tokio::sync::oneshot;

use crate::interpreter::attach;

/// Where the answer to one question goes.
type Reply = oneshot::Sender<Result<Secret, String>>;

/// What `token=` said. It holds no Python object, because the client that uses it lives on I/O threads.
#[derive(Clone, Debug)]
pub(crate) enum Token {
    /// The token itself.
    Text(Secret),
    /// A file, read for each connection.
    File(PathBuf),
    /// A thread that calls a callable. It ends when nobody can ask it any more.
    Asked(mpsc::Sender<Reply>),
}

impl Token {
    /// What the environment says, as for `sbp`.
    pub(crate) fn of_environment() -> Option<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = variable("SBP_TOKEN_FILE").map(|file| Self::File(file.into()));
        file.or_else(|| {
            let text = variable("SBP_TOKEN")?.into_string().ok()?;
            Some(Self::Text(Secret::new(text)))
        })
    }

    /// As the client takes it.
    pub(crate) fn source(&self) -> TokenSource {
        match self {
            Self::Text(secret) => TokenSource::Fixed(secret.clone()),
            Self::File(path) => TokenSource::file(path.clone()),
            Self::Asked(thread) => {
                let thread = thread.clone();
                TokenSource::Fresh(Arc::new(move || ask(&thread)))
            }
        }
    }

    /// What a pickle may have of it: the file.
    ///
    /// # Errors
    ///
    /// `TypeError` for a token or a callable, which do not belong in a pickle.
    pub(crate) fn pickled(&self) -> PyResult<PathBuf> {
        match self {
            Self::File(path) => Ok(path.clone()),
            Self::Text(_) | Self::Asked(_) => Err(PyTypeError::new_err(
                "a client with a token is not pickled, because the token would be in the pickle: give it as a file, \
                 token=pathlib.Path(...), which is read where the pickle is used",
            )),
        }
    }
}

fn ask(thread: &mpsc::Sender<Reply>) -> TokenFuture {
    let (reply, answer) = oneshot::channel();
    // An error drops the reply, which the answer tells.
    drop(thread.send(reply));
    Box::pin(async move {
        let answer = answer.await;
        answer.unwrap_or_else(|_dropped| Err("the thread that calls the callable has ended".to_owned()))
    })
}

/// Starts the thread that calls `callable`. It is none of the I/O threads, which never attach to the interpreter.
fn start_thread(callable: Py<PyAny>) -> PyResult<mpsc::Sender<Reply>> {
    let (sender, questions) = mpsc::channel::<Reply>();
    let run = move || {
        for reply in questions {
            let token = attach::attach(|py| call(callable.bind(py)));
            // Who asked may have given up.
            drop(reply.send(token));
        }
        // Without an interpreter there is nothing to give the callable back to.
        match attach::try_attach(|_| ()) {
            Some(()) => attach::attach(|_| drop(callable)),
            None => std::mem::forget(callable),
        }
    };
    let thread = std::thread::Builder::new().name("sbp-token".to_owned()).spawn(run);
    thread.map_err(|error| PyValueError::new_err(format!("cannot start a thread for the token: {error}")))?;
    Ok(sender)
}

/// Calls the callable; the error says what went wrong.
fn call(callable: &Bound<'_, PyAny>) -> Result<Secret, String> {
    let told = callable
        .call0()
        .map_err(|error| format!("the callable given as token raised {error}"))?;
    match told.cast::<PyString>() {
        Ok(text) => match text.to_str() {
            Ok(text) => Ok(Secret::new(text)),
            Err(_) => Err("the callable given as token returned a text that is no UTF-8".to_owned()),
        },
        Err(_) => {
            let kind = told.get_type().name().map(|name| name.to_string()).unwrap_or_default();
            Err(format!("the callable given as token returned {kind}, not str"))
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Token {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(Secret::new(text.to_str()?)));
        }
        if value.hasattr("__fspath__")? {
            return Ok(Self::File(value.extract()?));
        }
        if value.is_callable() {
            return Ok(Self::Asked(start_thread(value.to_owned().unbind())?));
        }
        Err(PyTypeError::new_err(
            "token is a str, the path of a file (pathlib.Path), or a callable that returns a str",
        ))
    }
}
