//! The writer for asyncio.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyMemoryView, PyWeakrefMethods, PyWeakrefReference};
use sbp_locks::Mutex;
use sbp_python_macros::stub_docs;

use crate::append::encode::NotEncoded;
use crate::bridge::{Operation, RunningLoop};
use crate::call::snapshot;
use crate::client_core::ClientCore;
use crate::requests::Key;
use crate::results::ack::AckShape;
use crate::writer::core::{UnknownColumns, WriterCore, WriterInput, abandon};
use crate::writer::delivery_callback::DeliveryCallback;
use crate::writer::options::{WriterArguments, uuid};
use crate::writer::waiting_calls::{QueuedCall, WaitingAppend, WaitingCall, WriterQueue};
use crate::{arguments, errors};

type Started<'py> = PyResult<Bound<'py, Operation>>;

#[stub_docs]
#[pyclass(frozen, weakref, module = "sbp_native", name = "AsyncWriter")]
pub(crate) struct AsyncWriter {
    core: Arc<WriterCore>,
    on_delivery: DeliveryCallback,
    /// Reports are awaited by an operation of the loop.
    reporting: AtomicBool,
    /// Calls behind an append for which the stream is described again.
    queue: WriterQueue,
    /// The stream is being described again for `append_nowait`, and was, for the next one.
    nowait: Mutex<Nowait>,
}

/// What `append_nowait` knows of columns that the client has not seen.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Nowait {
    #[default]
    Idle,
    Asking,
    /// The stream was described since an append was refused.
    Answered,
}

impl AsyncWriter {
    /// A writer that opens when it is entered or awaited.
    pub(crate) fn open(
        py: Python<'_>,
        core: &Arc<ClientCore>,
        key: Key,
        arguments: &WriterArguments<'_, '_>,
    ) -> PyResult<Self> {
        core.client(py)?;
        Ok(Self {
            core: WriterCore::new(core, key, arguments.options()?),
            on_delivery: DeliveryCallback::new(arguments.callback(py)),
            reporting: AtomicBool::new(false),
            queue: WriterQueue::default(),
            nowait: Mutex::default(),
        })
    }

    /// Tells what became of batches, or raises the first failure if there is nobody to tell.
    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        self.on_delivery.deliver(py, &self.core)
    }

    /// Raises the first failure, if nobody is told of them otherwise.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.on_delivery.is_set() {
            return Ok(());
        }
        self.core.check(py)
    }

    fn take<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        describe: UnknownColumns,
    ) -> Result<i64, NotEncoded> {
        let given = WriterInput {
            input: arguments::append_input((value, key, headers), timestamp, None, None)?,
            // A list is taken whole; who awaits the append waits for room behind it.
            wait: &|_| Ok(()),
            describe,
        };
        self.core.take(py, &given)
    }

    /// The rest of an append that was taken: done when there is room for more.
    fn when_room<'py>(&self, event_loop: &RunningLoop<'py>, py: Python<'py>, sequence: i64) -> Started<'py> {
        let writer = self.core.writer(py)?;
        if writer.has_room() {
            return event_loop.ready(Ok(sequence.into_pyobject(py)?.into_any().unbind()));
        }
        let writer = writer.clone();
        event_loop.spawn(
            async move {
                writer.room().await;
                Ok(())
            },
            move |py, ()| Ok(sequence.into_pyobject(py)?.into_any().unbind()),
        )
    }

    /// Puts a call behind those that wait.
    fn wait_behind<'py>(&self, event_loop: &RunningLoop<'py>, call: WaitingCall) -> Started<'py> {
        let operation = event_loop.operation(AckShape::None)?;
        self.queue.push(QueuedCall {
            call,
            operation: operation.clone().unbind(),
        });
        self.core.set_waiting(self.queue.records());
        Ok(operation)
    }

    /// Has the stream described again, and then the calls that wait made.
    fn ask(slf: &Bound<'_, Self>, event_loop: &RunningLoop<'_>, then: Then) -> PyResult<()> {
        let py = slf.py();
        let core = Arc::clone(&slf.get().core);
        let client = core.client(py)?;
        let described = event_loop.spawn(core.describe_again(client), |py, ()| Ok(py.None()))?;
        WriterCallback::add(&described, slf, then)
    }

    /// Makes the calls that wait, in their order, until one has to wait itself. `answer` is about the first.
    fn go_on(slf: &Bound<'_, Self>, answer: PyResult<()>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let mut answer = Some(answer);
        while let Some(QueuedCall { call, operation }) = this.queue.pop() {
            this.core.set_waiting(this.queue.records());
            let described = answer.take();
            let describe = if described.is_some() {
                UnknownColumns::Refuse
            } else {
                UnknownColumns::Report
            };
            let made = match described.unwrap_or(Ok(())) {
                Ok(()) => Self::make(slf, &call, describe),
                Err(error) => {
                    // The record keeps its place under a name.
                    this.core.refuse(py, &error);
                    Err(error.into())
                }
            };
            match (made, call) {
                (Ok(made), _) => {
                    made.call_method1("add_done_callback", (ForwardOutcome { operation },))?;
                }
                (Err(NotEncoded::Unknown(_, data)), WaitingCall::Append(kept)) => {
                    let call = WaitingCall::Append(WaitingAppend { value: data, ..kept });
                    this.queue.push_front(QueuedCall { call, operation });
                    this.core.set_waiting(this.queue.records());
                    match RunningLoop::current(py).and_then(|event_loop| Self::ask(slf, &event_loop, Then::GoOn)) {
                        Ok(()) => return Ok(()),
                        // The stream cannot be described: the append ends with that error.
                        Err(error) => answer = Some(Err(error)),
                    }
                }
                (Err(not), _) => Operation::settle(operation.bind(py), Err(not.into_error()))?,
            }
        }
        Ok(())
    }

    /// Makes a call whose turn it is.
    fn make<'py>(
        slf: &Bound<'py, Self>,
        call: &WaitingCall,
        describe: UnknownColumns,
    ) -> Result<Bound<'py, Operation>, NotEncoded> {
        let (py, this) = (slf.py(), slf.get());
        match call {
            WaitingCall::Append(kept) => {
                let [key, headers, timestamp] =
                    [&kept.key, &kept.headers, &kept.timestamp].map(|given| given.as_ref().map(|given| given.bind(py)));
                let sequence = this.take(py, kept.value.bind(py), key, headers, timestamp, describe)?;
                Ok(this.when_room(&RunningLoop::current(py)?, py, sequence)?)
            }
            WaitingCall::Flush { timeout } => Ok(Self::finish(slf, *timeout)?),
            WaitingCall::Close => Ok(Self::end(slf)?),
        }
    }

    fn end<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        let py = slf.py();
        if slf.get().core.end(py)? {
            return Self::finish(slf, None);
        }
        RunningLoop::current(py)?.ready(Ok(py.None()))
    }

    /// Has the callback called with each delivery report, until the writer is closed. Called once the writer is open.
    fn report(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        if !this.on_delivery.is_set() || this.reporting.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        DeliveryRelay::start(slf)
    }

    fn finish<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> Started<'py> {
        let py = slf.py();
        let this = slf.get();
        let flush = this.core.flush(py, timeout)?;
        let core = Arc::clone(&this.core);
        let event_loop = RunningLoop::current(py)?;
        let flushed = event_loop.spawn(async move { Ok(flush.await) }, move |py, flushed| {
            if flushed {
                Ok(py.None())
            } else {
                Err(errors::not_flushed(py, core.unfinished()))
            }
        })?;
        // Reports are told, and failures raised, before whoever waits goes on.
        WriterCallback::chain(&event_loop, &flushed, slf, Then::Flushed)
    }
}

#[stub_docs]
#[pymethods]
impl AsyncWriter {
    #[getter]
    fn stream(&self) -> String {
        self.core.stream()
    }

    #[getter]
    fn writer_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.core.writer(py)?.id().map(|id| uuid(py, id)).transpose()
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.core.writer(py)?.epoch())
    }

    #[getter]
    fn next_sequence(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.core.writer(py)?.next_sequence())
    }

    #[getter]
    fn unflushed(&self) -> u64 {
        self.core.unfinished()
    }

    #[pyo3(signature = (value, *, key = None, headers = None, timestamp = None))]
    fn append<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> Started<'py> {
        let (py, this) = (slf.py(), slf.get());
        this.check(py)?;
        let event_loop = RunningLoop::current(py)?;
        let kept = |value: Py<PyAny>, records| {
            let unbound = |given: Option<&Bound<'py, PyAny>>| given.map(|given| given.clone().unbind());
            WaitingCall::Append(WaitingAppend {
                value,
                key: unbound(key),
                headers: unbound(headers),
                timestamp: unbound(timestamp),
                records,
            })
        };
        if this.queue.is_active() {
            return this.wait_behind(&event_loop, kept(snapshot(value).unbind(), records_of(value)));
        }
        match this.take(py, value, key, headers, timestamp, UnknownColumns::Report) {
            Ok(sequence) => this.when_room(&event_loop, py, sequence),
            Err(NotEncoded::Raised(error)) => Err(error),
            Err(NotEncoded::Unknown(_, data)) => {
                Self::ask(slf, &event_loop, Then::GoOn)?;
                this.wait_behind(&event_loop, kept(data, records_of(value)))
            }
        }
    }

    #[pyo3(signature = (value, *, key = None, headers = None, timestamp = None))]
    fn append_nowait<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<i64> {
        let (py, this) = (slf.py(), slf.get());
        this.check(py)?;
        if !this.core.writer(py)?.has_room() {
            return Err(this.core.no_room(py));
        }
        if this.queue.is_active() {
            return Err(this.core.being_described(py));
        }
        let describe = match *this.nowait.lock() {
            Nowait::Answered => UnknownColumns::Refuse,
            Nowait::Idle | Nowait::Asking => UnknownColumns::Report,
        };
        match this.take(py, value, key, headers, timestamp, describe) {
            Err(NotEncoded::Unknown(..)) => {
                let is_asking = std::mem::replace(&mut *this.nowait.lock(), Nowait::Asking) == Nowait::Asking;
                if !is_asking {
                    let asked =
                        RunningLoop::current(py).and_then(|event_loop| Self::ask(slf, &event_loop, Then::NoteColumns));
                    asked.inspect_err(|_| *this.nowait.lock() = Nowait::Idle)?;
                }
                Err(this.core.being_described(py))
            }
            taken => {
                if describe == UnknownColumns::Refuse {
                    *this.nowait.lock() = Nowait::Idle;
                }
                taken.map_err(NotEncoded::into_error)
            }
        }
    }

    #[pyo3(signature = (*, timeout = None))]
    fn flush<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> Started<'py> {
        let this = slf.get();
        this.check(slf.py())?;
        if this.queue.is_active() {
            return this.wait_behind(&RunningLoop::current(slf.py())?, WaitingCall::Flush { timeout });
        }
        Self::finish(slf, timeout)
    }

    fn close<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        let this = slf.get();
        if this.queue.is_active() {
            return this.wait_behind(&RunningLoop::current(slf.py())?, WaitingCall::Close);
        }
        Self::end(slf)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        Self::__aenter__(slf)
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        let py = slf.py();
        let core = Arc::clone(&slf.get().core);
        let client = core.client(py)?;
        let event_loop = RunningLoop::current(py)?;
        let opened = event_loop.spawn(core.open(client), |py, ()| Ok(py.None()))?;
        WriterCallback::chain(&event_loop, &opened, slf, Then::Opened)
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyAny>) -> Started<'py> {
        Self::close(slf)
    }

    fn __repr__(&self) -> String {
        format!(
            "<sbp_native.AsyncWriter of {:?}, {} records unflushed>",
            self.core.stream(),
            self.core.unfinished()
        )
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.queue.traverse(&visit)?;
        self.on_delivery.traverse(&visit)
    }

    fn __clear__(&self) {
        self.queue.clear();
        self.on_delivery.clear();
    }
}

impl Drop for AsyncWriter {
    fn drop(&mut self) {
        abandon(&self.core);
    }
}

/// Hands the outcome of a call that had to wait to whoever made it.
#[pyclass(frozen, module = "sbp_native._native")]
struct ForwardOutcome {
    operation: Py<Operation>,
}

#[pymethods]
impl ForwardOutcome {
    fn __call__(&self, py: Python<'_>, made: &Bound<'_, Operation>) -> PyResult<()> {
        let outcome = made.call_method0("result").map(Bound::unbind);
        Operation::settle(self.operation.bind(py), outcome)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.operation)
    }
}

/// How many records an append is, as far as that is known before it is taken.
fn records_of(value: &Bound<'_, PyAny>) -> u64 {
    let is_one = value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>();
    let records = if is_one { None } else { value.len().ok() };
    records.map_or(1, |records| u64::try_from(records).unwrap_or(u64::MAX))
}

/// What is done on the loop when an operation is done that a writer has begun: objects of Python do not travel through I/O
/// threads.
#[pyclass(frozen, module = "sbp_native._native")]
struct WriterCallback {
    writer: Py<AsyncWriter>,
    then: Then,
}

enum Then {
    /// The stream was described again, or could not be: the calls that wait are made.
    GoOn,
    /// The same, for `append_nowait`.
    NoteColumns,
    /// The writer is open: it is the result of this operation.
    Opened(Py<Operation>),
    /// What was appended is stored or has failed: this operation results in nothing, or the first failure.
    Flushed(Py<Operation>),
}

impl WriterCallback {
    fn add(operation: &Bound<'_, Operation>, writer: &Bound<'_, AsyncWriter>, then: Then) -> PyResult<()> {
        let writer = writer.clone().unbind();
        operation.call_method1("add_done_callback", (Self { writer, then },))?;
        Ok(())
    }

    /// An operation that is done when `first` is and what follows it on the loop.
    fn chain<'py>(
        event_loop: &RunningLoop<'py>,
        first: &Bound<'py, Operation>,
        writer: &Bound<'py, AsyncWriter>,
        then: fn(Py<Operation>) -> Then,
    ) -> Started<'py> {
        let operation = event_loop.operation(AckShape::None)?;
        Self::add(first, writer, then(operation.clone().unbind()))?;
        Ok(operation)
    }
}

#[pymethods]
impl WriterCallback {
    fn __call__(&self, py: Python<'_>, done: &Bound<'_, Operation>) -> PyResult<()> {
        let writer = self.writer.bind(py);
        let result = || done.call_method0("result").map(drop);
        match &self.then {
            Then::GoOn => AsyncWriter::go_on(writer, result()),
            Then::NoteColumns => {
                // The next append has the stream described again if this went wrong.
                let next = result().map_or(Nowait::Idle, |()| Nowait::Answered);
                *writer.get().nowait.lock() = next;
                Ok(())
            }
            // It was cancelled: the next call of the writer tells of deliveries.
            Then::Opened(operation) | Then::Flushed(operation) if operation.get().is_settled() => Ok(()),
            Then::Opened(operation) => {
                let opened = result().and_then(|()| AsyncWriter::report(writer));
                Operation::settle(operation.bind(py), opened.map(|()| writer.clone().into_any().unbind()))
            }
            Then::Flushed(operation) => {
                let told = writer.get().deliver(py);
                Operation::settle(operation.bind(py), result().and(told).map(|()| py.None()))
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.writer)?;
        match &self.then {
            Then::GoOn | Then::NoteColumns => Ok(()),
            Then::Opened(operation) | Then::Flushed(operation) => visit.call(operation),
        }
    }
}

/// Waits for delivery reports, time and again. They are taken on the loop, so that they are told in their order.
#[pyclass(frozen, module = "sbp_native._native")]
struct DeliveryRelay {
    /// Weak: what waits for reports must not keep the writer.
    writer: Py<PyWeakrefReference>,
}

impl DeliveryRelay {
    fn start(writer: &Bound<'_, AsyncWriter>) -> PyResult<()> {
        let py = writer.py();
        let deliveries = writer.get().core.writer(py)?.deliveries();
        let more = RunningLoop::current(py)?.spawn(async move { Ok(deliveries.ready().await) }, |py, more| {
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
impl DeliveryRelay {
    fn __call__(&self, py: Python<'_>, more: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(writer) = self.writer.bind(py).upgrade() else {
            return Ok(());
        };
        if more.call_method0("cancelled")?.is_truthy()? || !more.call_method0("result")?.is_truthy()? {
            return Ok(());
        }
        let writer = writer.cast_into::<AsyncWriter>()?;
        let told = writer.get().deliver(py);
        Self::start(&writer)?;
        told
    }
}
