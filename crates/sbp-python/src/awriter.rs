//! The writer for asyncio.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyWeakrefMethods, PyWeakrefReference};
use sbp_locks::Mutex;

use crate::ack::AckShape;
use crate::append::Appending;
use crate::bridge::{Here, Operation};
use crate::calls::Key;
use crate::core::{Core, duration};
use crate::pen::{Given, Pen, WriterArguments, abandon, uuid};
use crate::{arguments, errors};

type Started<'py> = PyResult<Bound<'py, Operation>>;

/// Gathers records into batches and stores them in order, for asyncio; see :meth:`AsyncClient.writer`.
///
/// Use it in an ``async with`` statement, or await it before the first ``append``.
///
/// >>> async def main():
/// ...     async with sbp.aio.connect(server.address) as client:
/// ...         await client.create_stream("orders")
/// ...         async with client.writer("orders", linger=0.001) as writer:
/// ...             for number in range(1_000):
/// ...                 await writer.append(b"%d" % number)
/// ...         return (await client.positions(["orders"]))["orders"].latest
/// >>> asyncio.run(main())
/// 1000
#[pyclass(frozen, weakref, module = "sbp_native", name = "AsyncWriter")]
pub(crate) struct AsyncWriter {
    pen: Arc<Pen>,
    on_delivery: Mutex<Option<Py<PyAny>>>,
    /// Reports are awaited by an operation of the loop.
    reporting: AtomicBool,
}

impl AsyncWriter {
    /// A writer that opens when it is entered or awaited.
    pub(crate) fn new(
        core: &Arc<Core>,
        key: Key,
        arguments: &WriterArguments<'_, '_>,
        on_delivery: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            pen: Pen::new(core, key, arguments.options()?),
            on_delivery: Mutex::new(on_delivery),
            reporting: AtomicBool::new(false),
        })
    }

    /// Raises the first failure, if nobody is told of them otherwise.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.on_delivery.lock().is_some() {
            return Ok(());
        }
        self.pen.check(py)
    }

    fn take<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<i64> {
        let given = Given {
            appending: Appending {
                data: value,
                key,
                headers,
                how: arguments::how(timestamp, None, None)?,
            },
            // A list is taken whole; who awaits the append waits for room behind it.
            wait: &|_| Ok(()),
            describe: &|_, _| Ok(None),
        };
        self.pen.take(py, &given)
    }

    /// Has the callback called with what comes, until the writer is done. Once it is open.
    fn report(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        if this.on_delivery.lock().is_none() || this.reporting.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        Relay::start(slf)
    }

    fn finish<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> Started<'py> {
        let py = slf.py();
        let this = slf.get();
        let limit = duration(timeout)?;
        let writer = this.pen.writer(py)?.clone();
        let pen = Arc::clone(&this.pen);
        let here = Here::now(py)?;
        let flushed = here.spawn(
            async move {
                match limit {
                    Some(limit) => Ok(tokio::time::timeout(limit, writer.flush()).await.is_ok()),
                    None => {
                        writer.flush().await;
                        Ok(true)
                    }
                }
            },
            move |py, flushed| {
                if flushed {
                    Ok(py.None())
                } else {
                    Err(errors::not_flushed(py, pen.unfinished()))
                }
            },
        )?;
        // Reports are told, and failures raised, before whoever waits goes on.
        Then::chain(&here, &flushed, slf, End::Flushed)
    }
}

#[pymethods]
impl AsyncWriter {
    /// The stream's name.
    #[getter]
    fn stream(&self) -> String {
        self.pen.stream()
    }

    /// The writer's name: the one given, or the one made up for it. ``None`` if it is not idempotent.
    #[getter]
    fn writer_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.pen.writer(py)?.id().map(|id| uuid(py, id)).transpose()
    }

    /// The writer's epoch: which instance of it this is.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.pen.writer(py)?.epoch())
    }

    /// The number of the next record: how many came before it, with a ``writer_id`` in all lives of the writer.
    #[getter]
    fn next_sequence(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.pen.writer(py)?.next_sequence())
    }

    /// Records that were appended and whose fate is not known yet.
    #[getter]
    fn unflushed(&self) -> u64 {
        self.pen.unfinished()
    }

    /// Takes one record, a list of them, or the rows of a table at once; done when there is room for more.
    #[pyo3(signature = (value, *, key = None, headers = None, timestamp = None))]
    fn append<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> Started<'py> {
        self.check(py)?;
        let here = Here::now(py)?;
        let sequence = self.take(py, value, key, headers, timestamp)?;
        let writer = self.pen.writer(py)?;
        if writer.has_room() {
            return here.ready(Ok(sequence.into_pyobject(py)?.into_any().unbind()));
        }
        let writer = writer.clone();
        here.spawn(
            async move {
                writer.room().await;
                Ok(())
            },
            move |py, ()| Ok(sequence.into_pyobject(py)?.into_any().unbind()),
        )
    }

    /// As :meth:`append`, but raises ``BackPressureError`` while ``max_in_flight`` batches are on their way.
    #[pyo3(signature = (value, *, key = None, headers = None, timestamp = None))]
    fn append_nowait<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<i64> {
        self.check(py)?;
        if !self.pen.writer(py)?.has_room() {
            return Err(self.pen.no_room(py));
        }
        self.take(py, value, key, headers, timestamp)
    }

    /// Sends what is gathered; done when everything appended so far is stored or has failed.
    #[pyo3(signature = (*, timeout = None))]
    fn flush<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> Started<'py> {
        slf.get().check(slf.py())?;
        Self::finish(slf, timeout)
    }

    /// Takes no more records, and flushes.
    fn close<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        let this = slf.get();
        let py = slf.py();
        if this.pen.end(py)? {
            return Self::finish(slf, None);
        }
        Here::now(py)?.ready(Ok(py.None()))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        Self::__aenter__(slf)
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        let py = slf.py();
        let pen = Arc::clone(&slf.get().pen);
        let client = pen.client(py)?;
        let here = Here::now(py)?;
        let opened = here.spawn(pen.open(client), |py, ()| Ok(py.None()))?;
        Then::chain(&here, &opened, slf, End::Opened)
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyAny>) -> Started<'py> {
        Self::close(slf)
    }

    fn __repr__(&self) -> String {
        format!(
            "<sbp_native.AsyncWriter of {:?}, {} records unflushed>",
            self.pen.stream(),
            self.pen.unfinished()
        )
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.on_delivery.try_lock().as_deref() {
            Some(Some(callback)) => visit.call(callback),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        let callback = self.on_delivery.try_lock().and_then(|mut callback| callback.take());
        drop(callback);
    }
}

impl Drop for AsyncWriter {
    fn drop(&mut self) {
        abandon(&self.pen);
    }
}

/// What an operation of a writer ends with.
#[derive(Clone, Copy)]
enum End {
    /// The writer itself.
    Opened,
    /// Nothing, or the first failure.
    Flushed,
}

/// The second half of an operation of a writer, on the loop: objects of Python do not travel through I/O threads.
#[pyclass(frozen, module = "sbp_native._native")]
struct Then {
    operation: Py<Operation>,
    writer: Py<AsyncWriter>,
    end: End,
}

impl Then {
    /// An operation that is done when `first` is and what follows it on the loop.
    fn chain<'py>(
        here: &Here<'py>,
        first: &Bound<'py, Operation>,
        writer: &Bound<'py, AsyncWriter>,
        end: End,
    ) -> Started<'py> {
        let operation = here.operation(AckShape::None)?;
        let then = Self {
            operation: operation.clone().unbind(),
            writer: writer.clone().unbind(),
            end,
        };
        first.call_method1("add_done_callback", (then,))?;
        Ok(operation)
    }

    fn outcome(&self, py: Python<'_>, first: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let writer = self.writer.bind(py);
        let result = first.call_method0("result");
        match self.end {
            End::Opened => {
                result?;
                AsyncWriter::report(writer)?;
                Ok(writer.clone().into_any().unbind())
            }
            End::Flushed => {
                let told = tell(writer);
                result?;
                told?;
                Ok(py.None())
            }
        }
    }
}

#[pymethods]
impl Then {
    fn __call__(&self, py: Python<'_>, first: &Bound<'_, PyAny>) -> PyResult<()> {
        let operation = self.operation.bind(py);
        if operation.get().is_settled() {
            // It was cancelled: whoever asks next is told.
            return Ok(());
        }
        let outcome = self.outcome(py, first);
        Operation::settle(operation, outcome)
    }
}

/// Tells the writer's callback of what became of batches. With nobody to tell, the first failure is raised.
fn tell(writer: &Bound<'_, AsyncWriter>) -> PyResult<()> {
    let py = writer.py();
    let this = writer.get();
    let callback = this.on_delivery.lock().as_ref().map(|callback| callback.clone_ref(py));
    match callback {
        Some(callback) => this.pen.tell(py, &callback),
        None => this.pen.check(py),
    }
}

/// Waits for reports, time and again. They are taken on the loop, so that they are told in their order.
#[pyclass(frozen, module = "sbp_native._native")]
struct Relay {
    /// Weak: what waits for reports must not keep the writer.
    writer: Py<PyWeakrefReference>,
}

impl Relay {
    fn start(writer: &Bound<'_, AsyncWriter>) -> PyResult<()> {
        let py = writer.py();
        let deliveries = writer.get().pen.writer(py)?.deliveries();
        let more = Here::now(py)?.spawn(async move { Ok(deliveries.ready().await) }, |py, more| {
            Ok(PyBool::new(py, more).to_owned().into_any().unbind())
        })?;
        let relay = Self {
            writer: PyWeakrefReference::new(writer)?.unbind(),
        };
        more.call_method1("add_done_callback", (relay,))?;
        Ok(())
    }
}

#[pymethods]
impl Relay {
    fn __call__(&self, py: Python<'_>, more: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(writer) = self.writer.bind(py).upgrade() else {
            return Ok(());
        };
        if more.call_method0("cancelled")?.is_truthy()? || !more.call_method0("result")?.is_truthy()? {
            return Ok(());
        }
        let writer = writer.cast_into::<AsyncWriter>()?;
        let told = tell(&writer);
        Self::start(&writer)?;
        told
    }
}
