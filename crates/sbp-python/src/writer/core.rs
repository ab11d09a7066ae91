//! What `Writer` and `AsyncWriter` share: the batch writer of the Rust client, and how it takes what Python gives it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyResourceWarning, PyRuntimeWarning, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use sbp_client::codes;
use sbp_client::{BatchWriter, BatchWriterOptions, ClientError, Pushed, Record};
use sbp_locks::Mutex;
use sbp_types::TimestampMs;

use crate::append::encode::{self, NotEncoded};
use crate::append::input::{AppendInput, AppendOptions};
use crate::append::keys_and_headers::{Headers, KeysAndHeaders, in_list, of_one};
use crate::client_core::{self, ClientCore};
use crate::errors;
use crate::interpreter::attach::attach;
use crate::interpreter::warnings;
use crate::memory::arrow;
use crate::memory::buffer::with_value_and_key;
use crate::process::blocking::block_on;
use crate::requests::{self, Described, Failure, Key};
use crate::results::delivery::DeliveryReport;
use crate::time::duration;

/// A writer without its Python objects, so that I/O threads may hold it.
pub(crate) struct WriterCore {
    client: Arc<ClientCore>,
    key: Key,
    options: BatchWriterOptions,
    open: OnceLock<Open>,
    /// A warning has told of the records that it holds.
    warned: AtomicBool,
    /// Why a record was refused that a writer with a name was to take: it takes nothing behind it.
    refused: Mutex<Option<String>>,
    /// Records that an asynchronous writer was given and has not taken yet.
    waiting: AtomicU64,
}

struct Open {
    stream: Arc<Described>,
    writer: BatchWriter,
}

/// Writers of this process that may hold records whose fate is not known. Only locked while attached.
static WRITERS: Mutex<Vec<Weak<WriterCore>>> = Mutex::new(Vec::new());

/// Whether a record was refused for what it is, not for the state of the writer.
fn is_about_the_record(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyOverflowError>(py)
}

impl WriterCore {
    pub(crate) fn new(core: &Arc<ClientCore>, key: Key, options: BatchWriterOptions) -> Arc<Self> {
        let writer = Arc::new(Self {
            client: Arc::clone(core),
            key,
            options,
            open: OnceLock::new(),
            warned: AtomicBool::new(false),
            refused: Mutex::default(),
            waiting: AtomicU64::new(0),
        });
        let mut writers = WRITERS.lock();
        writers.retain(|known| known.strong_count() > 0);
        writers.push(Arc::downgrade(&writer));
        drop(writers);
        writer
    }

    /// Finds the stream, and asks where a writer with a name goes on.
    pub(crate) async fn open(self: Arc<Self>, client: sbp_client::Client) -> Result<(), Failure> {
        if self.open.get().is_some() {
            return Ok(());
        }
        let stream = requests::find(&client, &self.key, None).await?;
        let writer = client.batch_writer(stream.stream.stream_id, self.options);
        if self.options.writer_id.is_some() {
            let opened = writer.open().await;
            opened.map_err(|error| Failure::Named(error, Some(Arc::clone(&stream.name))))?;
        }
        // Of two that open it at once, the first has made the writer that is used.
        let _ = self.open.set(Open { stream, writer });
        Ok(())
    }

    /// The client, for one call.
    pub(crate) fn client(&self, py: Python<'_>) -> PyResult<sbp_client::Client> {
        Ok(self.client.client(py)?.clone())
    }

    fn opened(&self) -> PyResult<&Open> {
        self.open.get().ok_or_else(|| {
            pyo3::exceptions::PyRuntimeError::new_err(
                "the writer is not open yet: use \"async with\", or await it before the first append",
            )
        })
    }

    /// The writer of the client.
    ///
    /// # Errors
    ///
    /// `RuntimeError` before it is open; `ForkedClientError` and `ClosedError` as its client.
    pub(crate) fn writer(&self, py: Python<'_>) -> PyResult<&BatchWriter> {
        self.client.client(py)?;
        Ok(&self.opened()?.writer)
    }

    /// The stream's name.
    pub(crate) fn stream(&self) -> String {
        match (self.open.get(), &self.key) {
            (Some(open), _) => open.stream.name.to_string(),
            (None, Key::Known(stream)) => stream.name.to_string(),
            (None, Key::Name(name)) => name.clone(),
            (None, Key::Id(id)) => id.to_string(),
        }
    }

    /// The exception for an error about the stream.
    pub(crate) fn explain(&self, py: Python<'_>, error: ClientError) -> PyErr {
        if let Some(open) = self.open.get() {
            open.stream.note(&error);
        }
        errors::from_client(py, error, Some(&self.stream()))
    }

    /// Records whose fate is not known.
    pub(crate) fn unfinished(&self) -> u64 {
        let taken = self.open.get().map_or(0, |open| open.writer.unfinished());
        taken.saturating_add(self.waiting.load(Ordering::Relaxed))
    }

    /// Says how many records were given and wait to be taken.
    pub(crate) fn set_waiting(&self, records: u64) {
        self.waiting.store(records, Ordering::Relaxed);
    }

    /// Takes records; returns the number of the last one. Those of a list wait for room as the caller says: what is taken
    /// without room waits in memory.
    ///
    /// The number of a record under a name is its place in the input, in all lives of the writer. So a record that is
    /// refused keeps its place, and nothing is taken behind it: the next life begins with it.
    ///
    /// # Errors
    ///
    /// [`NotEncoded::Unknown`] only where the stream is to be described later; nothing is decided then.
    pub(crate) fn take(&self, py: Python<'_>, given: &WriterInput<'_, '_>) -> Result<i64, NotEncoded> {
        let refused = self.refused.lock().clone();
        if let Some(why) = refused {
            let what = format!(
                "the writer has stopped and this was not stored: append refused a record before it ({why}); open the \
                 writer again, and go on at its next_sequence, which is that record"
            );
            let error = ClientError::local(codes::CLOSED, what);
            return Err(self.explain(py, error).into());
        }
        self.take_records(py, given).inspect_err(|not| {
            let is_empty = given.input.data.len().is_ok_and(|items| items == 0);
            if let NotEncoded::Raised(error) = not
                && !is_empty
                && is_about_the_record(py, error)
            {
                self.refuse(py, error);
            }
        })
    }

    /// Notes that a record was refused: a writer with a name takes nothing behind it.
    pub(crate) fn refuse(&self, py: Python<'_>, error: &PyErr) {
        if self.options.writer_id.is_some() {
            *self.refused.lock() = Some(error.value(py).to_string());
        }
    }

    fn take_records(&self, py: Python<'_>, given: &WriterInput<'_, '_>) -> Result<i64, NotEncoded> {
        let data = given.input.data;
        let is_bytes = data.is_instance_of::<PyBytes>();
        let items = items_of(data).filter(|_| !is_bytes);
        if !is_bytes && items.is_none() && !data.is_none() && arrow::is_arrow(data)? {
            return self.take_columns(py, given);
        }
        if self.opened()?.stream.schema.is_some() {
            let what = format!(
                "stream {} has typed columns: give a table or a record batch",
                self.stream()
            );
            return Err(errors::schema_mismatch(py, &what).into());
        }
        if let Some(items) = items {
            return Ok(self.take_list(py, &items, given)?);
        }
        let (key, headers) = of_one(&given.input)?;
        let value = (!data.is_none()).then_some(data);
        if value.is_none() && key.is_none() {
            return Err(PyTypeError::new_err("a record without a value needs a key").into());
        }
        let given = OneRecord {
            value,
            key,
            headers: &headers,
            timestamp: given.input.options.timestamp,
        };
        let pushed = self.take_one(py, &given)?;
        Ok(pushed.sequence)
    }

    fn take_list(&self, py: Python<'_>, items: &[Bound<'_, PyAny>], given: &WriterInput<'_, '_>) -> PyResult<i64> {
        let keys_and_headers = KeysAndHeaders::of_list(&given.input, items.len())?;
        let each = |index: usize, item: &Bound<'_, PyAny>, act: &mut dyn FnMut(OneRecord<'_, '_>) -> PyResult<()>| {
            let (key, headers) = keys_and_headers.at(index)?;
            act(OneRecord {
                value: (!item.is_none()).then_some(item),
                key: key.as_ref(),
                headers: &headers,
                timestamp: given.input.options.timestamp,
            })
        };
        // A list is taken whole or not at all: what is wrong with one of them is found before the first has its place.
        for (index, item) in items.iter().enumerate() {
            each(index, item, &mut |one| self.check_one(py, index, &one))?;
        }
        let mut last = None;
        for (index, item) in items.iter().enumerate() {
            (given.wait)(py)?;
            each(index, item, &mut |one| {
                last = Some(self.take_one(py, &one)?.sequence);
                Ok(())
            })?;
        }
        last.ok_or_else(|| errors::invalid(py, "the list is empty; append at least one record"))
    }

    fn check_one(&self, py: Python<'_>, index: usize, given: &OneRecord<'_, '_>) -> PyResult<()> {
        let writer = self.writer(py)?;
        let checked = given.with_record(|record| writer.check(record));
        let checked = checked.map_err(|error| in_list(py, index, error))?;
        checked.map_err(|error| {
            let what = format!("item {index} of the list: {}", error.what());
            self.explain(py, ClientError::local(error.code(), what))
        })
    }

    fn take_one(&self, py: Python<'_>, given: &OneRecord<'_, '_>) -> PyResult<Pushed> {
        let writer = self.writer(py)?;
        let pushed = given.with_record(|record| writer.push(record))?;
        let pushed = pushed.map_err(|error| self.explain(py, error))?;
        if pushed.is_full {
            // Encoding a batch takes time that other threads can use.
            py.detach(|| writer.send());
        }
        Ok(pushed)
    }

    /// Describes the stream again, so that the next append knows its columns.
    pub(crate) async fn describe_again(self: Arc<Self>, client: sbp_client::Client) -> Result<(), Failure> {
        let key = match self.open.get() {
            Some(open) => Key::Known(Arc::clone(&open.stream)),
            None => self.key.clone(),
        };
        requests::describe(&client, &key, None).await.map(drop)
    }

    /// The stream as it is now.
    fn describe(&self, py: Python<'_>, key: &Key) -> PyResult<Arc<Described>> {
        let key = key.clone();
        let describe = |client, _| async move { requests::describe(&client, &key, None).await };
        self.client.block(py, None, describe)
    }

    fn take_columns(&self, py: Python<'_>, given: &WriterInput<'_, '_>) -> Result<i64, NotEncoded> {
        let open = self.opened()?;
        let input = AppendInput {
            options: AppendOptions {
                compression: self.options.compression,
                ..given.input.options
            },
            ..given.input
        };
        let id = open.stream.stream.stream_id;
        let key = Key::Known(Arc::clone(&open.stream));
        let stream = self.client.known(py, &key)?;
        let stream = stream.as_ref().unwrap_or(&open.stream);
        let encoded = encode::encode(&input, id, stream.schema.as_ref()).or_else(|not| match not {
            NotEncoded::Raised(error) => Err(NotEncoded::Raised(error)),
            // The stream may have been given these columns since.
            NotEncoded::Unknown(error, data) => match given.describe {
                UnknownColumns::Report => Err(NotEncoded::Unknown(error, data)),
                UnknownColumns::Refuse => Err(NotEncoded::Raised(error)),
                UnknownColumns::DescribeNow => match self.describe(py, &key)? {
                    now if now.schema != stream.schema => {
                        let input = AppendInput {
                            data: data.bind(py),
                            ..input
                        };
                        let encoded = encode::encode(&input, id, now.schema.as_ref());
                        encoded.map_err(|not| NotEncoded::Raised(not.into_error()))
                    }
                    _ => Err(NotEncoded::Raised(error)),
                },
            },
        })?;
        let count = encoded.records;
        let batch = encoded.into_bytes();
        let taken = self.writer(py)?.push_batch(batch, count);
        taken.map_err(|error| self.explain(py, error).into())
    }

    /// Sends what is gathered, and waits at most `timeout` seconds until it is stored or has failed: whether it was.
    ///
    /// # Errors
    ///
    /// As [`Self::writer`], or the timeout is no time.
    pub(crate) fn flush(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> PyResult<impl Future<Output = bool> + Send + 'static> {
        let limit = duration(timeout)?;
        let writer = self.writer(py)?.clone();
        Ok(async move {
            match limit {
                Some(limit) => tokio::time::timeout(limit, writer.flush()).await.is_ok(),
                None => {
                    writer.flush().await;
                    true
                }
            }
        })
    }

    /// Tells what became of batches, in their order. Every report is told, whatever is made of those before it; then the
    /// first exception is raised.
    pub(crate) fn tell(&self, py: Python<'_>, callback: &Py<PyAny>) -> PyResult<()> {
        let Some(open) = self.open.get().filter(|open| open.writer.has_deliveries()) else {
            return Ok(());
        };
        let mut first = None;
        for delivery in open.writer.take_deliveries() {
            if let Err(error) = &delivery.result {
                open.stream.note(error);
            }
            let report = DeliveryReport::new(Arc::clone(&open.stream.name), delivery);
            if let Err(error) = callback.call1(py, (report,)) {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Raises the first failure that nobody was told of.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        let Some(open) = self.open.get().filter(|open| open.writer.has_deliveries()) else {
            return Ok(());
        };
        let failed = open
            .writer
            .take_deliveries()
            .into_iter()
            .find_map(|delivery| delivery.result.err());
        failed.map_or(Ok(()), |error| Err(self.explain(py, error)))
    }

    /// The exception for a writer that has as much on its way as it may.
    pub(crate) fn no_room(&self, py: Python<'_>) -> PyErr {
        let what = format!(
            "a writer of stream {} has {} records on their way, in as many batches as may be",
            self.stream(),
            self.unfinished()
        );
        errors::back_pressure(py, &what)
    }

    /// The exception for columns that the client has not seen, while the stream is described again.
    pub(crate) fn being_described(&self, py: Python<'_>) -> PyErr {
        let what = format!(
            "stream {} is asked whether it was given columns that this client has not seen; nothing was taken",
            self.stream()
        );
        errors::back_pressure(py, &what)
    }

    /// Takes no more records. Whether it can be flushed: in a child of its process, and behind its client, it cannot.
    pub(crate) fn end(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(open) = self.open.get().filter(|_| self.is_of_this_process()) else {
            return Ok(false);
        };
        open.writer.close();
        if self.client.client(py).is_ok() {
            return Ok(true);
        }
        self.warn(py, "was closed behind its client")?;
        Ok(false)
    }

    /// Warns of records whose fate is not known.
    fn warn(&self, py: Python<'_>, when: &str) -> PyResult<()> {
        let unfinished = self.unfinished();
        if unfinished == 0 || !self.client.is_of_this_process() || self.warned.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let message = format!(
            "a writer of stream {} {when} with {unfinished} records that were not acknowledged yet: close it, or use it \
             in a with statement",
            self.stream()
        );
        warnings::warn::<PyResourceWarning>(py, &message)
    }

    /// Warns, for all to see, of records that are not stored at the end of the process, or perhaps are not.
    fn warn_lost(&self, py: Python<'_>) -> PyResult<()> {
        let Some(open) = self.open.get() else { return Ok(()) };
        let (mut lost, mut why) = (i64::try_from(self.unfinished()).unwrap_or(i64::MAX), None);
        for delivery in open.writer.take_deliveries() {
            if let Err(error) = delivery.result {
                lost = lost.saturating_add(delivery.last_sequence - delivery.first_sequence + 1);
                why.get_or_insert(error);
            }
        }
        if lost == 0 {
            return Ok(());
        }
        let why = why.map_or_else(|| "no answer came in time".to_owned(), |error| error.what().to_owned());
        let message = format!(
            "a writer of stream {} was not closed, and {lost} records were not acknowledged before the process ended: {why}",
            self.stream()
        );
        warnings::warn::<PyRuntimeWarning>(py, &message)
    }

    /// Warns, from a place that cannot raise.
    pub(crate) fn warn_dropped(&self) {
        if self.unfinished() == 0 || !self.client.is_of_this_process() {
            return;
        }
        attach(|py| {
            warnings::beside_exception(py, || {
                if let Err(error) = self.warn(py, "was dropped") {
                    error.write_unraisable(py, None);
                }
            });
        });
    }

    /// Leaves the remains alone in a child of the process that made it.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.client.is_of_this_process()
    }
}

/// How long the end of the process waits for records of writers that nobody closed.
const EXIT_GRACE: Duration = Duration::from_secs(5);

/// Flushes writers that still have records whose fate is not known, and warns of them, aloud where records were not stored;
/// warns of clients with appends of their own on their way. For the exit hook only.
#[pyfunction]
pub(crate) fn warn_unflushed(py: Python<'_>) -> PyResult<()> {
    let writers: Vec<_> = std::mem::take(&mut *WRITERS.lock())
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    // A writer's batches are appends of its client: one warning is enough.
    let told: Vec<_> = writers
        .iter()
        .filter(|writer| writer.unfinished() > 0)
        .map(|writer| Arc::as_ptr(&writer.client))
        .collect();
    let left: Vec<_> = writers.iter().filter(|writer| writer.unfinished() > 0).collect();
    left.iter().try_for_each(|writer| writer.warn(py, "is open at exit"))?;
    let writers: Vec<_> = left
        .iter()
        .filter(|writer| writer.is_of_this_process())
        .filter_map(|writer| writer.writer(py).ok().cloned())
        .collect();
    if !writers.is_empty() {
        let flushed = async move {
            for writer in &writers {
                writer.close();
                writer.flush().await;
            }
        };
        block_on(py, async move {
            // What is not stored in time is told below.
            drop(tokio::time::timeout(EXIT_GRACE, flushed).await);
        })?;
        left.iter().try_for_each(|writer| writer.warn_lost(py))?;
    }
    client_core::warn_in_flight(py, &told)
}

/// Records on their way into a writer.
pub(crate) struct WriterInput<'a, 'py> {
    pub(crate) input: AppendInput<'a, 'py>,
    /// Called before each record of a list.
    pub(crate) wait: &'a dyn Fn(Python<'_>) -> PyResult<()>,
    pub(crate) describe: UnknownColumns,
}

/// What is done about columns that the client does not know: the stream may have been given them since it was described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownColumns {
    /// The stream is described again, and the caller waits.
    DescribeNow,
    /// The caller gets [`NotEncoded::Unknown`], has the stream described, and comes again.
    Report,
    /// The stream was described just now: the record is refused.
    Refuse,
}

/// One record on its way into a writer.
struct OneRecord<'a, 'py> {
    value: Option<&'a Bound<'py, PyAny>>,
    key: Option<&'a Bound<'py, PyAny>>,
    headers: &'a Headers,
    timestamp: Option<TimestampMs>,
}

impl OneRecord<'_, '_> {
    /// Calls `act` with the record's bytes, where they lie.
    fn with_record<R>(&self, act: impl FnOnce(&Record<'_>) -> R) -> PyResult<R> {
        let headers = self.headers.pairs();
        with_value_and_key(self.value, self.key, |value, key| {
            act(&Record {
                value,
                key,
                timestamp_us: self.timestamp.map(|time| time.0.saturating_mul(1_000)),
                headers: &headers,
            })
        })
    }
}

fn items_of<'py>(data: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = data.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    data.cast::<PyTuple>().ok().map(|tuple| tuple.iter().collect())
}

/// What becomes of a writer whose object is dropped: what is gathered is sent, and a warning says that nobody looked.
pub(crate) fn abandon(writer: &Arc<WriterCore>) {
    if writer.is_of_this_process() {
        writer.warn_dropped();
    } else {
        std::mem::forget(Arc::clone(writer));
    }
}
