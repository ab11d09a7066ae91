//! The token of a client: a text, a file, or a callable that is asked for one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, TrySendError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple};
use sbp_client::{TokenFuture, TokenSource};
use sbp_messages::Token as Secret;
use tokio::sync::oneshot;

use crate::interpreter::{attach, imports};
use crate::process::fork::{self, Generation};

/// Questions that may wait for the callable: one for each server that is connected to at the moment, and some.
const QUESTIONS: usize = 64;

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
    Asked(Arc<Questions>),
}

/// The way to the thread that calls a callable.
#[derive(Debug)]
pub(crate) struct Questions {
    /// Always there, until it is dropped.
    sender: Option<mpsc::SyncSender<Reply>>,
    made_by: Generation,
}

impl Drop for Questions {
    fn drop(&mut self) {
        // In a forked child the thread does not exist, and may have been inside the channel when it was copied.
        if !self.made_by.is_current() {
            std::mem::forget(self.sender.take());
        }
    }
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
                let thread = Arc::clone(thread);
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

/// Whether the environment lets a token be sent without TLS, as for `sbp`.
pub(crate) fn environment_allows_clear() -> bool {
    std::env::var("SBP_TOKEN_IN_CLEAR").is_ok_and(|said| said == "true")
}

fn ask(thread: &Questions) -> TokenFuture {
    let (reply, answer) = oneshot::channel();
    // Of an I/O thread, which never waits for the callable.
    let asked = thread.sender.as_ref().map(|sender| sender.try_send(reply));
    Box::pin(async move {
        match asked {
            Some(Err(TrySendError::Full(_))) => {
                Err("the callable given as token has not answered others yet".to_owned())
            }
            // Dropped with the thread.
            None | Some(Ok(()) | Err(TrySendError::Disconnected(_))) => {
                let answer = answer.await;
                answer.unwrap_or_else(|_dropped| Err("the thread that calls the callable has ended".to_owned()))
            }
        }
    })
}

/// Starts the thread that has `callable` called, once for each question, one after the other. It is none of the I/O threads,
/// which never attach to the interpreter, and it waits for the callable without being attached.
fn start_thread(callable: Py<PyAny>) -> PyResult<Arc<Questions>> {
    let (sender, questions) = mpsc::sync_channel::<Reply>(QUESTIONS);
    let run = move || {
        // Who asked may have given up while the callable answered somebody else.
        for reply in questions.into_iter().filter(|reply| !reply.is_closed()) {
            drop(reply.send(answer(&callable)));
        }
        let mut callable = Some(callable);
        attach::attach_briefly(|_| drop(callable.take()));
        // Without an interpreter there is nothing to give the callable back to.
        std::mem::forget(callable);
    };
    let thread = std::thread::Builder::new().name("sbp-token".to_owned()).spawn(run);
    thread.map_err(|error| PyValueError::new_err(format!("cannot start a thread for the token: {error}")))?;
    Ok(Arc::new(Questions {
        sender: Some(sender),
        made_by: fork::current(),
    }))
}

/// Has the callable called, and waits for what it says.
fn answer(callable: &Py<PyAny>) -> Result<Secret, String> {
    let (sender, told) = mpsc::sync_channel(1);
    let asked = attach::attach_briefly(|py| {
        let give = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
            // There is room for one answer, and there is no second.
            drop(sender.try_send(judge(&arguments.get_item(0)?, &arguments.get_item(1)?)));
            Ok(())
        };
        let give = PyCFunction::new_closure(py, None, None, give)?;
        imports::ask_for_token(py)?.call1((callable, give)).map(drop)
    });
    match asked {
        Some(Ok(())) => told
            .recv()
            .unwrap_or_else(|_| Err("the thread that calls the callable has ended".to_owned())),
        Some(Err(error)) => Err(format!("the callable given as token cannot be called: {error}")),
        None => Err("the process ends".to_owned()),
    }
}

/// What the callable said; the error says what went wrong.
fn judge(told: &Bound<'_, PyAny>, raised: &Bound<'_, PyAny>) -> Result<Secret, String> {
    if !raised.is_none() {
        let error = PyErr::from_value(raised.clone());
        return Err(format!("the callable given as token raised {error}"));
    }
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
