//! The fault proxy, for users' own tests: what a network does to a client, on purpose and by rule.

use std::mem;
use std::os::fd::RawFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Instant;

use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sbp_locks::Mutex;
use sbp_proxy::{Fault, Held, Hook, ProxyConfig, Rule, RuleCount, RuleId};
use sbp_python_macros::stub_docs;

use crate::errors;
use crate::interpreter::imports;
use crate::interpreter::once::interned;
use crate::process::blocking::receive_until;
use crate::process::fork::{self, Generation, Holder};
use crate::service::server::Server;
use crate::time;

impl Holder for sbp_proxy::Proxy {
    fn descriptors(&self) -> Vec<RawFd> {
        Self::descriptors(self)
    }

    fn stop(&self) {
        self.shutdown();
    }
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native", name = "Proxy")]
pub(crate) struct Proxy {
    /// `None` once closed. In a forked child the remains of the parent's.
    relay: Mutex<Option<Arc<sbp_proxy::Proxy>>>,
    /// The one set last: the relay does not tell.
    target: Mutex<Option<String>>,
    made_by: Generation,
    address: String,
}

impl Proxy {
    fn running(&self, py: Python<'_>) -> PyResult<Arc<sbp_proxy::Proxy>> {
        self.made_by.check(py, "proxy")?;
        let relay = self.relay.lock().clone();
        relay.ok_or_else(|| errors::closed(py, "proxy"))
    }
}

/// `host:port`, or a server of this process.
fn target_of(target: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    let Some(target) = target else {
        return Ok(None);
    };
    let target: String = match target.cast::<Server>() {
        Ok(server) => server.getattr(interned!(target.py(), "address"))?.extract()?,
        Err(_) => target.extract()?,
    };
    if target.starts_with("sbps://") {
        return Err(PyValueError::new_err(format!(
            "{target} speaks TLS, and a proxy reads frames: give it an address without TLS, such as the plain_listening of a \
             Server(plain_listen=...)"
        )));
    }
    Ok(Some(target))
}

fn parse(rule: &str) -> PyResult<Rule> {
    rule.parse()
        .map_err(|error: sbp_proxy::RuleTextError| PyValueError::new_err(error.to_string()))
}

#[stub_docs]
#[pymethods]
impl Proxy {
    #[new]
    #[pyo3(signature = (
        target = None, *, rules = Vec::new(), listen = "127.0.0.1:0", seed = 0, dial_timeout = 5.0, insecure_listen = false,
    ))]
    fn new(
        py: Python<'_>,
        target: Option<&Bound<'_, PyAny>>,
        rules: Vec<String>,
        listen: &str,
        seed: u64,
        dial_timeout: f64,
        insecure_listen: bool,
    ) -> PyResult<Self> {
        let target = target_of(target)?;
        let config = ProxyConfig {
            listen: listen.to_owned(),
            target: target.clone(),
            rules: rules.iter().map(|rule| parse(rule)).collect::<PyResult<_>>()?,
            seed,
            dial_timeout: time::seconds(dial_timeout)?,
            insecure_listen,
            ..ProxyConfig::default()
        };
        let proxy = py
            .detach(|| sbp_proxy::Proxy::start(config))
            .map_err(|error| errors::from_proxy(py, &error))?;
        let address = proxy.address();
        let relay = Arc::new(proxy);
        fork::register(py, &relay);
        Ok(Self {
            relay: Mutex::new(Some(relay)),
            target: Mutex::new(target),
            made_by: fork::current(),
            address,
        })
    }

    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    #[getter]
    fn target(&self) -> Option<String> {
        self.target.lock().clone()
    }

    #[setter]
    fn set_target(&self, py: Python<'_>, target: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let target = target_of(target)?;
        self.running(py)?.set_target(target.clone());
        *self.target.lock() = target;
        Ok(())
    }

    #[getter]
    fn rules(&self, py: Python<'_>) -> PyResult<Vec<ProxyRule>> {
        let counts = self.running(py)?.rules();
        Ok(counts.into_iter().map(ProxyRule::from).collect())
    }

    fn add(&self, py: Python<'_>, rule: &str) -> PyResult<u64> {
        Ok(self.running(py)?.add(parse(rule)?).number())
    }

    fn remove(&self, py: Python<'_>, rule: u64) -> PyResult<ProxyRule> {
        let removed = self.running(py)?.remove(RuleId::from_number(rule));
        removed.map(ProxyRule::from).ok_or_else(|| PyKeyError::new_err(rule))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py)?.clear();
        Ok(())
    }

    #[pyo3(signature = (frames = ""))]
    fn hold(&self, py: Python<'_>, frames: &str) -> PyResult<HeldFrames> {
        let relay = self.running(py)?;
        let (sender, receiver) = mpsc::channel();
        // Called on the proxy's thread, which hands the frame over and goes on. Without a receiver the frame goes on too.
        let hook = Hook::new(move |held| drop(sender.send(held)));
        let rule = parse(&format!("drop {frames}"))?.with_fault(Fault::Hold(hook));
        let id = relay.add(rule);
        Ok(HeldFrames {
            relay: Arc::downgrade(&relay),
            id,
            made_by: self.made_by,
            arrived: Mutex::new(Some(receiver)),
            forgotten: Mutex::new(Some(Arc::default())),
        })
    }

    fn cut(&self, py: Python<'_>) -> PyResult<()> {
        self.running(py)?.cut_all();
        Ok(())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.running(py)?.counts();
        let figures = PyDict::new(py);
        figures.set_item("connections", counts.connections)?;
        figures.set_item("open", counts.open)?;
        figures.set_item("refused", counts.refused)?;
        figures.set_item("foreign", counts.foreign)?;
        figures.set_item("frames_to_server", counts.frames_to_server)?;
        figures.set_item("frames_to_client", counts.frames_to_client)?;
        figures.set_item("bytes_to_server", counts.bytes_to_server)?;
        figures.set_item("bytes_to_client", counts.bytes_to_client)?;
        figures.set_item("dropped", counts.dropped)?;
        figures.set_item("delayed", counts.delayed)?;
        figures.set_item("duplicated", counts.duplicated)?;
        figures.set_item("reordered", counts.reordered)?;
        figures.set_item("cut", counts.cut)?;
        figures.set_item("held", counts.held)?;
        Ok(figures)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.made_by.is_current() {
            return Ok(());
        }
        let relay = self.relay.lock().take();
        if let Some(relay) = relay {
            py.detach(|| relay.shutdown());
        }
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().running(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

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
        let state = match (self.made_by.is_current(), self.relay.lock().is_some()) {
            (false, _) => "of the parent process".to_owned(),
            (true, false) => "closed".to_owned(),
            (true, true) => format!("to {}", self.target.lock().as_deref().unwrap_or("nowhere")),
        };
        format!("<sbp_native.Proxy {} {state}>", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let relay = self.relay.get_mut().take();
        if self.made_by.is_current() {
            // Taking it down waits for its thread, and must not do so with the interpreter lock held.
            crate::interpreter::attach::attach(|py| py.detach(move || drop(relay)));
        } else {
            mem::forget(relay);
        }
    }
}

#[stub_docs]
#[pyclass(frozen, eq, hash, get_all, module = "sbp_native.testing", name = "ProxyRule")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ProxyRule {
    /// Its number.
    id: u64,
    /// The rule as text; ``hold`` stands for :meth:`Proxy.hold`.
    text: String,
    /// How many frames it was about.
    matched: u64,
    /// How many of them it took.
    fired: u64,
}

impl From<RuleCount> for ProxyRule {
    fn from(count: RuleCount) -> Self {
        Self {
            id: count.id.number(),
            text: count.rule.to_string(),
            matched: count.matched,
            fired: count.fired,
        }
    }
}

#[pymethods]
impl ProxyRule {
    fn __repr__(&self) -> String {
        format!(
            "ProxyRule(id={}, text={:?}, matched={}, fired={})",
            self.id, self.text, self.matched, self.fired
        )
    }
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native.testing", name = "HeldFrames")]
pub(crate) struct HeldFrames {
    relay: Weak<sbp_proxy::Proxy>,
    id: RuleId,
    made_by: Generation,
    /// `None` while a thread waits, and once released. Dropping it passes on what is kept.
    arrived: Mutex<Option<Receiver<Held>>>,
    /// `None` once released.
    forgotten: Mutex<Option<Arc<Forgotten>>>,
}

/// Frames that were handed out, and that nobody can decide about any more. Dropping it passes them on.
type Forgotten = Mutex<Vec<Held>>;

#[stub_docs]
#[pymethods]
impl HeldFrames {
    #[pyo3(signature = (timeout = 30.0))]
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<HeldFrame> {
        self.made_by.check(py, "proxy")?;
        let until = Instant::now()
            .checked_add(time::seconds(timeout)?)
            .ok_or_else(|| PyValueError::new_err("timeout is longer than a clock can tell"))?;
        let taken = self.arrived.lock().take();
        let Some(receiver) = taken else {
            return Err(PyRuntimeError::new_err(
                "the frames were released, or another thread waits for them",
            ));
        };
        let (receiver, received) = receive_until(py, receiver, Some(until));
        *self.arrived.lock() = Some(receiver);
        match received? {
            Ok(held) => Ok(HeldFrame {
                text: held.seen().to_string(),
                held: Mutex::new(Some(held)),
                forgotten: self.forgotten.lock().as_ref().map(Arc::downgrade).unwrap_or_default(),
                made_by: self.made_by,
            }),
            Err(RecvTimeoutError::Timeout) => Err(PyTimeoutError::new_err(format!(
                "no such frame came within {timeout} s"
            ))),
            Err(RecvTimeoutError::Disconnected) => Err(errors::closed(py, "proxy")),
        }
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.made_by.check(py, "proxy")?;
        if let Some(relay) = self.relay.upgrade() {
            let _ = relay.remove(self.id);
        }
        // Each frame goes on when it is dropped.
        drop(self.arrived.lock().take());
        drop(self.forgotten.lock().take());
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.release(py)
    }
}

impl Drop for HeldFrames {
    fn drop(&mut self) {
        if !self.made_by.is_current() {
            mem::forget(self.arrived.get_mut().take());
            mem::forget(self.forgotten.get_mut().take());
        }
    }
}

#[stub_docs]
#[pyclass(frozen, module = "sbp_native.testing", name = "HeldFrame")]
pub(crate) struct HeldFrame {
    text: String,
    held: Mutex<Option<Held>>,
    /// Where the frame goes that is forgotten, so that `frames.wait()` by itself holds it; gone once that is released.
    forgotten: Weak<Forgotten>,
    made_by: Generation,
}

impl HeldFrame {
    fn decide(&self, py: Python<'_>, verdict: fn(Held)) -> PyResult<()> {
        self.made_by.check(py, "proxy")?;
        let held = self.held.lock().take();
        held.map(verdict)
            .ok_or_else(|| PyRuntimeError::new_err("it was decided about this frame before"))
    }
}

#[stub_docs]
#[pymethods]
impl HeldFrame {
    #[getter]
    fn data(&self) -> Option<Vec<u8>> {
        self.held.lock().as_ref().map(|held| held.bytes().to_vec())
    }

    fn forward(&self, py: Python<'_>) -> PyResult<()> {
        self.decide(py, Held::pass)
    }

    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.decide(py, Held::discard)
    }

    fn cut(&self, py: Python<'_>) -> PyResult<()> {
        self.decide(py, Held::cut)
    }

    fn __repr__(&self) -> String {
        format!("<HeldFrame {}>", self.text)
    }
}

impl Drop for HeldFrame {
    fn drop(&mut self) {
        let Some(held) = self.held.get_mut().take() else {
            return;
        };
        if !self.made_by.is_current() {
            mem::forget(held);
        } else if let Some(forgotten) = self.forgotten.upgrade() {
            forgotten.lock().push(held);
        }
    }
}
