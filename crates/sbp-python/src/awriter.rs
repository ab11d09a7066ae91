//! The writer for asyncio.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyMemoryView, PyWeakrefMethods, PyWeakrefReference};
use sbp_locks::Mutex;

use crate::ack::AckShape;
use crate::append::Appending;
use crate::awriter_queue::{Call, Kept, Queued, WriterQueue};
use crate::bridge::{Here, Operation};
use crate::calls::Key;
use crate::core::{Core, duration};
use crate::encode::NotEncoded;
use crate::pen::{Describe, Given, Pen, WriterArguments, abandon, uuid};
use crate::sending::snapshot;
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
            queue: WriterQueue::default(),
            nowait: Mutex::default(),
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
        describe: Describe,
    ) -> Result<i64, NotEncoded> {
        let given = Given {
            appending: Appending {
                data: value,
                key,
                headers,
                how: arguments::how(timestamp, None, None)?,
            },
            // A list is taken whole; who awaits the append waits for room behind it.
            wait: &|_| Ok(()),
            describe,
        };
        self.pen.take(py, &given)
    }

    /// The rest of an append that was taken: done when there is room for more.
    fn when_room<'py>(&self, here: &Here<'py>, py: Python<'py>, sequence: i64) -> Started<'py> {
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

    /// Puts a call behind those that wait.
    fn wait_behind<'py>(&self, here: &Here<'py>, call: Call) -> Started<'py> {
        let operation = here.operation(AckShape::None)?;
        self.queue.push(Queued {
            call,
            operation: operation.clone().unbind(),
        });
        self.pen.set_waiting(self.queue.records());
        Ok(operation)
    }

    /// Has the stream described again, and then the calls that wait made.
    fn ask(slf: &Bound<'_, Self>, here: &Here<'_>, then: Asked) -> PyResult<()> {
        let py = slf.py();
        let pen = Arc::clone(&slf.get().pen);
        let client = pen.client(py)?;
        let described = here.spawn(pen.describe_again(client), |py, ()| Ok(py.None()))?;
        let writer = slf.clone().unbind();
        described.call_method1("add_done_callback", (Described { writer, then },))?;
        Ok(())
    }

    /// Makes the calls that wait, in their order, until one has to wait itself. `answer` is about the first.
    fn go_on(slf: &Bound<'_, Self>, answer: PyResult<()>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let mut answer = Some(answer);
        while let Some(Queued { call, operation }) = this.queue.pop() {
            this.pen.set_waiting(this.queue.records());
            let described = answer.take();
            let describe = if described.is_some() {
                Describe::Done
            } else {
                Describe::Later
            };
            let made = match described.unwrap_or(Ok(())) {
                Ok(()) => Self::make(slf, &call, describe),
                Err(error) => {
                    // The record keeps its place under a name.
                    this.pen.refuse(py, &error);
                    Err(error.into())
                }
            };
            match (made, call) {
                (Ok(made), _) => {
                    made.call_method1("add_done_callback", (Forward { operation },))?;
                }
                (Err(NotEncoded::Unknown(_, data)), Call::Append(kept)) => {
                    let call = Call::Append(Kept { value: data, ..kept });
                    this.queue.push_front(Queued { call, operation });
                    this.pen.set_waiting(this.queue.records());
                    match Here::now(py).and_then(|here| Self::ask(slf, &here, Asked::Queue)) {
                        Ok(()) => return Ok(()),
                        // Nobody can be asked: that is the answer.
                        Err(error) => answer = Some(Err(error)),
                    }
                }
                (Err(not), _) => Operation::settle(operation.bind(py), Err(not.into_error()))?,
            }
        }
        Ok(())
    }

    /// Makes a call whose turn it is.
    fn make<'py>(slf: &Bound<'py, Self>, call: &Call, describe: Describe) -> Result<Bound<'py, Operation>, NotEncoded> {
        let (py, this) = (slf.py(), slf.get());
        match call {
            Call::Append(kept) => {
                let [key, headers, timestamp] =
                    [&kept.key, &kept.headers, &kept.timestamp].map(|given| given.as_ref().map(|given| given.bind(py)));
                let sequence = this.take(py, kept.value.bind(py), key, headers, timestamp, describe)?;
                Ok(this.when_room(&Here::now(py)?, py, sequence)?)
            }
            Call::Flush { timeout } => Ok(Self::finish(slf, *timeout)?),
            Call::Close => Ok(Self::end(slf)?),
        }
    }

    fn end<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        let py = slf.py();
        if slf.get().pen.end(py)? {
            return Self::finish(slf, None);
        }
        Here::now(py)?.ready(Ok(py.None()))
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
    ///
    /// Columns that the client has not seen may have been given to the stream since: then it is described again first,
    /// and what is called meanwhile waits behind.
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
        let here = Here::now(py)?;
        let kept = |value: Py<PyAny>, records| {
            let unbound = |given: Option<&Bound<'py, PyAny>>| given.map(|given| given.clone().unbind());
            Call::Append(Kept {
                value,
                key: unbound(key),
                headers: unbound(headers),
                timestamp: unbound(timestamp),
                records,
            })
        };
        if this.queue.is_active() {
            return this.wait_behind(&here, kept(snapshot(value).unbind(), records_of(value)));
        }
        match this.take(py, value, key, headers, timestamp, Describe::Later) {
            Ok(sequence) => this.when_room(&here, py, sequence),
            Err(NotEncoded::Raised(error)) => Err(error),
            Err(NotEncoded::Unknown(_, data)) => {
                Self::ask(slf, &here, Asked::Queue)?;
                this.wait_behind(&here, kept(data, records_of(value)))
            }
        }
    }

    /// As :meth:`append`, but raises ``BackPressureError`` while ``max_in_flight`` batches are on their way.
    ///
    /// It raises that, too, while the stream is described again for columns that the client has not seen.
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
        if !this.pen.writer(py)?.has_room() {
            return Err(this.pen.no_room(py));
        }
        if this.queue.is_active() {
            return Err(this.pen.being_described(py));
        }
        let describe = match *this.nowait.lock() {
            Nowait::Answered => Describe::Done,
            Nowait::Idle | Nowait::Asking => Describe::Later,
        };
        match this.take(py, value, key, headers, timestamp, describe) {
            Err(NotEncoded::Unknown(..)) => {
                let is_asking = std::mem::replace(&mut *this.nowait.lock(), Nowait::Asking) == Nowait::Asking;
                if !is_asking {
                    let asked = Here::now(py).and_then(|here| Self::ask(slf, &here, Asked::Nowait));
                    asked.inspect_err(|_| *this.nowait.lock() = Nowait::Idle)?;
                }
                Err(this.pen.being_described(py))
            }
            taken => {
                if describe == Describe::Done {
                    *this.nowait.lock() = Nowait::Idle;
                }
                taken.map_err(NotEncoded::into_error)
            }
        }
    }

    /// Sends what is gathered; done when everything appended so far is stored or has failed.
    #[pyo3(signature = (*, timeout = None))]
    fn flush<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> Started<'py> {
        let this = slf.get();
        this.check(slf.py())?;
        if this.queue.is_active() {
            return this.wait_behind(&Here::now(slf.py())?, Call::Flush { timeout });
        }
        Self::finish(slf, timeout)
    }

    /// Takes no more records, and flushes.
    fn close<'py>(slf: &Bound<'py, Self>) -> Started<'py> {
        let this = slf.get();
        if this.queue.is_active() {
            return this.wait_behind(&Here::now(slf.py())?, Call::Close);
        }
        Self::end(slf)
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
        self.queue.traverse(&visit)?;
        match self.on_delivery.try_lock().as_deref() {
            Some(Some(callback)) => visit.call(callback),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.queue.clear();
        let callback = self.on_delivery.try_lock().and_then(|mut callback| callback.take());
        drop(callback);
    }
}

impl Drop for AsyncWriter {
    fn drop(&mut self) {
        abandon(&self.pen);
    }
}

/// Who asked for the stream to be described again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The first of the calls that wait.
    Queue,
    /// `append_nowait`.
    Nowait,
}

/// Called when the stream was described again, or could not be.
#[pyclass(frozen, module = "sbp_native._native")]
struct Described {
    writer: Py<AsyncWriter>,
    then: Asked,
}

#[pymethods]
impl Described {
    fn __call__(&self, py: Python<'_>, described: &Bound<'_, Operation>) -> PyResult<()> {
        let writer = self.writer.bind(py);
        let answer = described.call_method0("result").map(drop);
        match self.then {
            Asked::Queue => AsyncWriter::go_on(writer, answer),
            Asked::Nowait => {
                // The next one asks again if this went wrong.
                let next = if answer.is_ok() { Nowait::Answered } else { Nowait::Idle };
                *writer.get().nowait.lock() = next;
                Ok(())
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.writer)
    }
}

/// Hands the outcome of a call that had to wait to whoever made it.
#[pyclass(frozen, module = "sbp_native._native")]
struct Forward {
    operation: Py<Operation>,
}

#[pymethods]
impl Forward {
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
