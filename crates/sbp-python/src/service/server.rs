//! The embedded server as a context manager, blocking and asynchronous.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_client::ServerAddress;
use sbp_http::HttpConfig;
use sbp_locks::Mutex;
use sbp_peers::seastar::HostConfig;
use sbp_python_macros::stub_docs;
use sbp_server::{AccessConfig, Durability, JwtConfig, KeySource, Roles, ServerConfig};

use crate::errors;
use crate::interpreter::imports;
use crate::interpreter::once::interned;
use crate::process::fork::{self, Generation};
use crate::process::{logging, runtime};
use crate::service::embedded::{Configuration, Embedded, GatewayRequest};
use crate::time;
use crate::tls::Tls;

/// Where a server stands. `Configured → Starting → Running → Closed`; a start that fails leads back to `Configured`, and
/// closing leads to `Closed` from everywhere.
enum State {
    /// Made on the thread of a running event loop, which must not wait for a disk: it is started when it is entered.
    Configured(Box<Configuration>),
    /// A thread starts it.
    Starting,
    Running(Arc<Embedded>),
    Closed,
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "Server")]
pub(crate) struct Server {
    /// Only locked while attached, and never across a release of the interpreter lock. In a forked child the remains of the
    /// parent's.
    state: Mutex<State>,
    made_by: Generation,
}

impl Server {
    /// The server, which is started if it was not.
    fn running(&self, py: Python<'_>) -> PyResult<Arc<Embedded>> {
        self.made_by.check(py, "server")?;
        logging::install(py)?;
        let runtime = runtime::handle(py)?;
        let config = {
            let mut state = self.state.lock();
            match mem::replace(&mut *state, State::Starting) {
                State::Configured(config) => config,
                State::Running(embedded) => {
                    *state = State::Running(Arc::clone(&embedded));
                    return Ok(embedded);
                }
                State::Starting => {
                    let message = "the server is being started by another task; await its `async with` first";
                    return Err(PyRuntimeError::new_err(message));
                }
                State::Closed => {
                    *state = State::Closed;
                    drop(state);
                    return Err(errors::closed(py, "server"));
                }
            }
        };
        let started = py.detach(|| Embedded::start(&config, &runtime));
        let mut state = self.state.lock();
        let wanted = matches!(*state, State::Starting);
        match started {
            Ok(server) if wanted => {
                let embedded = Arc::new(server);
                *state = State::Running(Arc::clone(&embedded));
                drop(state);
                fork::register(py, &embedded);
                Ok(embedded)
            }
            Ok(unwanted) => {
                drop(state);
                py.detach(|| drop(unwanted));
                Err(errors::closed(py, "server"))
            }
            Err(error) => {
                if wanted {
                    *state = State::Configured(config);
                }
                drop(state);
                Err(error.into_python(py))
            }
        }
    }

    /// Ends it for good; what has to be shut down, if this process made it.
    fn take(&self) -> Option<Arc<Embedded>> {
        if !self.made_by.is_current() {
            return None;
        }
        match mem::replace(&mut *self.state.lock(), State::Closed) {
            State::Running(embedded) => Some(embedded),
            State::Configured(_) | State::Starting | State::Closed => None,
        }
    }
}

/// Who may do what, as it was asked for.
fn access(
    auth: Option<PathBuf>,
    jwks: Option<PathBuf>,
    jwks_ca: Option<PathBuf>,
    issuer: Option<String>,
    audience: Option<String>,
) -> PyResult<Option<AccessConfig>> {
    let jwt = match (jwks, issuer, audience) {
        (None, None, None) => None,
        (Some(keys), Some(issuer), Some(audience)) if auth.is_some() => Some(JwtConfig {
            keys: KeySource::named(keys, jwks_ca),
            issuer,
            audience,
        }),
        _ => {
            let message = "jwks, jwt_issuer and jwt_audience belong together, beside auth";
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(auth.map(|file| AccessConfig { file, jwt }))
}

/// Addresses of servers: one text with commas between them, or several.
#[derive(FromPyObject)]
enum Addresses {
    One(String),
    Several(Vec<String>),
}

/// Whether the disk is waited for, as it was asked for.
fn durability(asked: &str) -> PyResult<Durability> {
    match asked {
        "fsync" => Ok(Durability::Fsync),
        "none" => Ok(Durability::None),
        other => Err(PyValueError::new_err(format!(
            "durability is \"fsync\" or \"none\", not {other:?}"
        ))),
    }
}

/// Which roles were asked for.
fn roles(py: Python<'_>, role: &str, placement_driver: Option<Addresses>) -> PyResult<Roles> {
    match (role, placement_driver) {
        ("range-server", Some(addresses)) => {
            let list = match addresses {
                Addresses::One(list) => list,
                Addresses::Several(addresses) => addresses.join(","),
            };
            let (addresses, _) =
                ServerAddress::parse_list(&list).map_err(|error| errors::bad_server_config(py, &error.to_string()))?;
            Ok(Roles::RangeServer {
                placement_driver: addresses.iter().map(ToString::to_string).collect(),
            })
        }
        ("range-server", None) => Err(PyValueError::new_err(
            "role=\"range-server\" needs placement_driver=, the host:port of the placement driver",
        )),
        ("both" | "placement-driver", Some(_)) => {
            Err(PyValueError::new_err("placement_driver= is for role=\"range-server\""))
        }
        ("both", None) => Ok(Roles::Both),
        ("placement-driver", None) => Ok(Roles::PlacementDriver),
        (other, _) => Err(PyValueError::new_err(format!(
            "role is \"both\", \"placement-driver\" or \"range-server\", not {other:?}"
        ))),
    }
}

/// How clients of another protocol are served, if they are. The first two are its name, and its name in arguments.
fn gateway(
    (protocol, argument): (&str, &str),
    (listen, token): (Option<String>, Option<PathBuf>),
    role: &str,
    insecure_listen: bool,
    max_connections: Option<usize>,
) -> PyResult<Option<GatewayRequest>> {
    let Some(listen) = listen else {
        let error = || {
            let message = format!("{argument}_token_file= is for clients of {protocol}: give {argument}= too");
            PyValueError::new_err(message)
        };
        return token.map_or(Ok(None), |_| Err(error()));
    };
    if role == "range-server" {
        let message = format!(
            "{argument}= is for servers that are a placement driver: beside a range server alone use `sbp gateway`"
        );
        return Err(PyValueError::new_err(message));
    }
    let mut config = HostConfig::new(&listen);
    config.insecure_listen = insecure_listen;
    if let Some(count) = max_connections {
        config.max_connections = count;
        config.max_connections_per_address = count;
    }
    Ok(Some(GatewayRequest { config, token }))
}

/// How many connections there may be at once, and how many of them from clients that are not known yet, where it was asked for.
fn bound_connections(config: &mut ServerConfig, all: Option<usize>, unauthenticated: Option<usize>) {
    if let Some(count) = all {
        config.max_connections = count;
        config.max_connections_per_address = count;
    }
    if let Some(count) = unauthenticated {
        config.max_unauthenticated_connections = count;
    }
}

/// How the status page is served.
fn http(listen: String, hosts: Option<Vec<String>>, insecure_listen: bool, per_stream: bool) -> HttpConfig {
    HttpConfig {
        listen,
        hosts: hosts.unwrap_or_default(),
        insecure_listen,
        per_stream,
        ..HttpConfig::default()
    }
}

/// As clients write it.
fn address(server: &sbp_server::Server) -> String {
    let scheme = if server.has_tls() { "sbps://" } else { "" };
    format!("{scheme}{}", server.address())
}

#[stub_docs]
#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (
        data_dir = None, *, listen = "127.0.0.1:0", advertise = None, durability = "fsync", insecure_listen = false,
        max_connections = None, retention_interval = None, shutdown_grace = None, tls = None, plain_listen = None, auth = None,
        jwks = None, jwt_issuer = None, jwt_audience = None, audit = None, http = None, http_hosts = None,
        metrics_per_stream = false, max_unauthenticated_connections = None, jwks_ca = None, role = "both",
        placement_driver = None, tank = None, tank_token_file = None, pravega = None, pravega_token_file = None,
        seastar = None, seastar_token_file = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn new(
        py: Python<'_>,
        data_dir: Option<PathBuf>,
        listen: &str,
        advertise: Option<String>,
        durability: &str,
        insecure_listen: bool,
        max_connections: Option<usize>,
        retention_interval: Option<f64>,
        shutdown_grace: Option<f64>,
        tls: Option<Tls>,
        plain_listen: Option<String>,
        auth: Option<PathBuf>,
        jwks: Option<PathBuf>,
        jwt_issuer: Option<String>,
        jwt_audience: Option<String>,
        audit: Option<PathBuf>,
        http: Option<String>,
        http_hosts: Option<Vec<String>>,
        metrics_per_stream: bool,
        max_unauthenticated_connections: Option<usize>,
        jwks_ca: Option<PathBuf>,
        role: &str,
        placement_driver: Option<Addresses>,
        tank: Option<String>,
        tank_token_file: Option<PathBuf>,
        pravega: Option<String>,
        pravega_token_file: Option<PathBuf>,
        seastar: Option<String>,
        seastar_token_file: Option<PathBuf>,
    ) -> PyResult<Self> {
        let durability = self::durability(durability)?;
        let asked = |protocol, told| gateway(protocol, told, role, insecure_listen, max_connections);
        let tank = asked(("TANK", "tank"), (tank, tank_token_file))?;
        let pravega = asked(("Pravega", "pravega"), (pravega, pravega_token_file))?;
        let seastar = asked(("Seastar RPC", "seastar"), (seastar, seastar_token_file))?;
        let roles = roles(py, role, placement_driver)?;
        // One with both roles has no other servers to talk to.
        let peer_tls = tls.as_ref().filter(|_| roles != Roles::Both).map(Tls::client);
        let mut config = ServerConfig {
            roles,
            peer_tls,
            data_dir,
            listen: listen.to_owned(),
            advertise,
            durability,
            insecure_listen,
            tls: tls.map(|tls| tls.server(py)).transpose()?,
            plain_listen,
            access: access(auth, jwks, jwks_ca, jwt_issuer, jwt_audience)?,
            audit,
            ..ServerConfig::default()
        };
        bound_connections(&mut config, max_connections, max_unauthenticated_connections);
        if let Some(interval) = time::duration(retention_interval)? {
            config.retention_interval = interval;
        }
        if let Some(grace) = time::duration(shutdown_grace)? {
            config.shutdown_grace = grace;
        }
        let http = http.map(|listen| self::http(listen, http_hosts, insecure_listen, metrics_per_stream));
        let configuration = Configuration {
            server: config,
            http,
            tank,
            pravega,
            seastar,
        };
        let server = Self {
            state: Mutex::new(State::Configured(Box::new(configuration))),
            made_by: fork::current(),
        };
        if !imports::in_running_loop(py)? {
            server.running(py)?;
        }
        Ok(server)
    }

    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<String> {
        // In a child the parent's address is still good to know.
        if !self.made_by.is_current()
            && let State::Running(embedded) = &*self.state.lock()
        {
            return Ok(address(embedded));
        }
        let embedded = self.running(py)?;
        Ok(address(&embedded))
    }

    #[getter]
    fn listening(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.running(py)?.local_addr().to_string())
    }

    #[getter]
    fn plain_listening(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.running(py)?.plain_addr().map(|address| address.to_string()))
    }

    #[getter]
    fn http_address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let url = self.running(py)?.http_url();
        // As `address` is: a scheme only where it says that TLS is spoken.
        Ok(url.map(|url| url.strip_prefix("http://").map(str::to_owned).unwrap_or(url)))
    }

    #[getter]
    fn tank_address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.running(py)?.tank_address().map(|address| address.to_string()))
    }

    #[getter]
    fn pravega_address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.running(py)?.pravega_address().map(|address| address.to_string()))
    }

    #[getter]
    fn seastar_address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.running(py)?.seastar_address().map(|address| address.to_string()))
    }

    #[getter]
    fn error(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let failure = self.running(py)?.error();
        Ok(failure.map(|failure| errors::log_failed(py, &failure).into_value(py).into_any()))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.running(py)?.stats();
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
        figures.set_item("syncs", stats.syncs)?;
        figures.set_item("sync_seconds", stats.sync_times.sum())?;
        figures.set_item("refusals", stats.refusals)?;
        figures.set_item("damaged_ranges", stats.damaged_ranges)?;
        figures.set_item("durability", stats.durability)?;
        Ok(figures)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(embedded) = self.take() else {
            return Ok(());
        };
        py.detach(|| embedded.shutdown())
            .map_err(|error| errors::log_failed(py, &error))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().running(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    /// Starts it on a thread of the loop's executor: recovering a log takes as long as the log is large.
    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        imports::to_thread(py)?.call1((slf.getattr(interned!(py, "__enter__"))?,))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        imports::to_thread(py)?.call1((slf.getattr(interned!(py, "close"))?,))
    }

    fn __repr__(&self) -> String {
        if !self.made_by.is_current() {
            return "<sbp_native.Server of the parent process>".to_owned();
        }
        match &*self.state.lock() {
            State::Configured(_) => "<sbp_native.Server not started>".to_owned(),
            State::Starting => "<sbp_native.Server starting>".to_owned(),
            State::Running(embedded) => format!("<sbp_native.Server {} running>", address(embedded)),
            State::Closed => "<sbp_native.Server closed>".to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let state = mem::replace(self.state.get_mut(), State::Closed);
        if self.made_by.is_current() {
            // Shutting down waits for the disk, and must not do so with the interpreter lock held.
            crate::interpreter::attach::attach(|py| py.detach(move || drop(state)));
        } else {
            mem::forget(state);
        }
    }
}
