//! The embedded server as a context manager.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_server::{Durability, ServerConfig};

use crate::errors;
use crate::fork::{self, Generation, Holder};

/// Servers to stop when the interpreter ends. Only locked while attached and never across a release of the interpreter
/// lock: a fork never copies it locked.
static RUNNING: Mutex<Vec<(Generation, Weak<Embedded>)>> = Mutex::new(Vec::new());

struct Embedded {
    server: sbp_server::Server,
}

impl Holder for Embedded {
    fn descriptors(&self) -> Vec<RawFd> {
        self.server.descriptors()
    }
}

/// A durable server inside this process, on threads of its own.
#[pyclass(frozen, module = "sbp_native", name = "Server")]
pub(crate) struct Server {
    /// `None` once stopped. In a forked child the remains of the parent's.
    embedded: Mutex<Option<Arc<Embedded>>>,
    made_by: Generation,
    address: String,
}

impl Server {
    fn running(&self, py: Python<'_>) -> PyResult<Arc<Embedded>> {
        self.made_by.check(py, "server")?;
        self.embedded.lock().clone().ok_or_else(|| errors::closed(py, "server"))
    }
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (data_dir = None, *, listen = "127.0.0.1:0", advertise = None, durability = "fsync", insecure_listen = false))]
    fn new(
        py: Python<'_>,
        data_dir: Option<PathBuf>,
        listen: &str,
        advertise: Option<String>,
        durability: &str,
        insecure_listen: bool,
    ) -> PyResult<Self> {
        let durability = match durability {
            "fsync" => Durability::Fsync,
            "none" => Durability::None,
            other => {
                return Err(PyValueError::new_err(format!(
                    "durability is \"fsync\" or \"none\", not {other:?}"
                )));
            }
        };
        let config = ServerConfig {
            data_dir,
            listen: listen.to_owned(),
            advertise,
            durability,
            insecure_listen,
            ..ServerConfig::default()
        };
        let server = py
            .detach(|| sbp_server::Server::start(config))
            .map_err(|error| errors::from_start(py, &error))?;
        let address = server.address().to_owned();
        let embedded = Arc::new(Embedded { server });
        let as_holder: Weak<dyn Holder> = Arc::downgrade(&(Arc::clone(&embedded) as Arc<dyn Holder>));
        fork::register(py, as_holder);
        RUNNING.lock().push((fork::current(), Arc::downgrade(&embedded)));
        Ok(Self {
            embedded: Mutex::new(Some(embedded)),
            made_by: fork::current(),
            address,
        })
    }

    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Why the server takes no more appends, as an exception; `None` while all is well.
    #[getter]
    fn error(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let failure = self.running(py)?.server.error();
        Ok(failure.map(|failure| errors::from_failure(py, &failure).into_value(py).into_any()))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.running(py)?.server.stats();
        let figures = PyDict::new(py);
        figures.set_item("connections_accepted", stats.connections_accepted)?;
        figures.set_item("connections_open", stats.connections_open)?;
        figures.set_item("streams", stats.streams)?;
        figures.set_item("appends", stats.appends)?;
        figures.set_item("records_appended", stats.records_appended)?;
        figures.set_item("appends_refused", stats.appends_refused)?;
        figures.set_item("fetches", stats.fetches)?;
        figures.set_item("bytes_fetched", stats.bytes_fetched)?;
        figures.set_item("groups", stats.groups)?;
        figures.set_item("durability", stats.durability)?;
        Ok(figures)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.made_by.is_current() {
            return Ok(());
        }
        let Some(embedded) = self.embedded.lock().take() else {
            return Ok(());
        };
        py.detach(|| embedded.server.shutdown())
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().running(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let state = match (self.made_by.is_current(), self.embedded.lock().is_some()) {
            (false, _) => "of the parent process",
            (true, true) => "running",
            (true, false) => "closed",
        };
        format!("<sbp_native.Server {} {state}>", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let embedded = self.embedded.get_mut().take();
        if self.made_by.is_current() {
            // Shutting down waits for the disk, and must not do so with the interpreter lock held.
            crate::attach::attach(|py| py.detach(move || drop(embedded)));
        } else {
            std::mem::forget(embedded);
        }
    }
}

/// Stops what still runs. Registered with `atexit`.
#[pyfunction]
pub(crate) fn stop_servers(py: Python<'_>) {
    let running = std::mem::take(&mut *RUNNING.lock());
    // A child knows its parent's servers, whose threads it does not have.
    let own = running.iter().filter(|(made_by, _)| made_by.is_current());
    for embedded in own.filter_map(|(_, embedded)| embedded.upgrade()) {
        // Acknowledged records are on disk already; a failure here has nobody left to hear it.
        let _ = py.detach(|| embedded.server.shutdown());
    }
}
