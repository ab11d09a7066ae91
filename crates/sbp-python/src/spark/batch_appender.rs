//! Record batches appended with a bounded number on their way, for Spark's workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use sbp_client::codes;
use sbp_client::{BulkEvent, BulkOptions, BulkWriter, ClientError};
use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_record::{Compression, EncodeError, EncodeOptions, StreamSchema, encode_arrow};
use sbp_types::{StreamId, WriterId};

use crate::append::encode;
use crate::client_core::{ClientCore, Settings};
use crate::memory::{arrow, scratch};
use crate::process::blocking::{block_on, dropped, receive_until};
use crate::requests::{self, Described, Failure, Key, StreamChange};
use crate::spark::repeats;
use crate::spark::rows::{BatchLimits, Complete, RowError, RowGatherer, Target};
use crate::spark::span_reader::ClientOrServers;
use crate::spark::typed_rows::TypedGatherer;
use crate::spark::writer_ids::{LeasedWriterId, lease};
use crate::{arguments, errors, time};

/// Bytes of batches that are encoded and not stored, at most: what one appender keeps in memory.
const UNSTORED_BYTES: usize = 16 << 20;

/// Appends record batches, many streams in a frame, as one idempotent writer.
#[pyclass(frozen, module = "sbp_native._native")]
pub(crate) struct BatchAppender {
    core: Arc<ClientCore>,
    /// Nobody else uses the client: it is closed with the appender.
    is_own: bool,
    /// The stream everything goes to, if it is one.
    target: Option<Arc<Described>>,
    options: AppenderOptions,
    /// `None` while a call works with it.
    work: Mutex<Option<Work>>,
}

/// How batches are stored.
struct AppenderOptions {
    compression: Compression,
    max_in_flight: usize,
    /// What streams are to be like that do not exist yet; `None`: they are not created.
    create: Option<Copies>,
    timeout: Duration,
    /// A writer with a name given to it may find that somebody else has stored its batches: those are compared.
    is_named: bool,
}

/// How many servers hold a new stream, and how many of them acknowledge; `None`: the server's default.
#[derive(Clone, Copy)]
struct Copies {
    replicas: Option<i8>,
    acks: Option<i8>,
}

/// What is on its way and what has been stored.
struct Work {
    rows: Gatherer,
    streams: HashMap<Target, Arc<Described>>,
    /// The target's schema, if it was read again because it had grown.
    grown: Option<StreamSchema>,
    bulk: BulkWriter,
    events: Receiver<BulkEvent>,
    /// Keeps the made-up name from being used by another appender.
    _name: Option<LeasedWriterId>,
}

/// Rows of batches that are not complete.
enum Gatherer {
    Records(RowGatherer),
    Typed(TypedGatherer),
}

impl Gatherer {
    fn new(py: Python<'_>, limits: BatchLimits, typed: bool, target: Option<&Described>) -> PyResult<Self> {
        match target {
            None if typed => Err(errors::invalid(py, "body \"arrow\" needs one stream to write to")),
            Some(stream) if typed && stream.schema.is_none() => Err(errors::schema_mismatch(
                py,
                &format!("stream {} has no schema", stream.name),
            )),
            _ if typed => Ok(Self::Typed(TypedGatherer::new(limits))),
            _ => Ok(Self::Records(RowGatherer::new(limits, target.is_some()))),
        }
    }
}

#[pymethods]
impl BatchAppender {
    #[new]
    #[pyo3(signature = (
        servers, stream = None, body = "records", timeout = 30.0, max_in_flight = 16, *, writer_id = None, epoch = 0,
        batch_rows = 10_000, batch_bytes = 1_048_576, compression = None, create_streams = false,
        replicas = None, acks = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python call")]
    fn new(
        py: Python<'_>,
        servers: ClientOrServers<'_>,
        stream: Option<String>,
        body: &str,
        timeout: f64,
        max_in_flight: usize,
        writer_id: Option<[u8; 16]>,
        epoch: i64,
        batch_rows: usize,
        batch_bytes: usize,
        compression: Option<&str>,
        create_streams: bool,
        replicas: Option<i8>,
        acks: Option<i8>,
    ) -> PyResult<Self> {
        let typed = match body {
            "records" => false,
            "arrow" => true,
            other => {
                return Err(PyValueError::new_err(format!(
                    "body is \"records\" or \"arrow\", not {other:?}"
                )));
            }
        };
        let (core, is_own) = match servers {
            ClientOrServers::Client(client) => (Arc::clone(client.get().core()), false),
            ClientOrServers::Servers(servers) => (ClientCore::new(py, Settings::new(&servers, timeout))?, true),
        };
        let options = AppenderOptions {
            compression: arguments::compression(compression)?,
            max_in_flight: max_in_flight.max(1),
            create: create_streams.then_some(Copies { replicas, acks }),
            timeout: time::seconds(timeout)?,
            is_named: writer_id.is_some(),
        };
        let target = stream
            .map(|name| find(py, &core, Key::Name(name), options.create))
            .transpose()?;
        let limits = BatchLimits {
            rows: batch_rows.max(1),
            bytes: batch_bytes.max(1),
        };
        let rows = Gatherer::new(py, limits, typed, target.as_deref())?;
        let name = writer_id.is_none().then(lease);
        let (id, epoch) = match (&name, writer_id) {
            (None, Some(id)) => (named(id)?, epoch),
            (Some(name), _) => (name.id, name.epoch),
            (None, None) => return Err(PyValueError::new_err("a writer has a name")),
        };
        let (sender, events) = mpsc::channel();
        let bulk = BulkOptions {
            writer_id: id,
            epoch,
            window: window(py, &core)?,
            timeout: options.timeout,
            retry: core.client(py)?.config().retry,
        };
        let work = Work {
            rows,
            streams: HashMap::new(),
            grown: None,
            bulk: BulkWriter::new(bulk, sender),
            events,
            _name: name,
        };
        Ok(Self {
            core,
            is_own,
            target,
            options,
            work: Mutex::new(Some(work)),
        })
    }

    /// Takes one record batch.
    fn append(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut work = self.take()?;
        // Kept out while it works: a failure leaves the appender closed, because what came after it would be a gap.
        let (_, batches) = arrow::import_batches(batch)?;
        for batch in batches.into_iter().filter(|batch| batch.num_rows() > 0) {
            self.gather(py, &mut work, Some(&batch))?;
            work = self.settle(py, work, UNSTORED_BYTES)?;
        }
        *self.work.lock() = Some(work);
        Ok(())
    }

    /// Sends what is left and waits for every acknowledgement: (stream id, first offset, last offset, records) per
    /// stream; offsets are -1 where the server no longer knows where it had stored a repeat.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<(i64, i64, i64, i64)>> {
        let mut work = self.take()?;
        self.gather(py, &mut work, None)?;
        work = self.settle(py, work, 0)?;
        self.check_ends(py, &work)?;
        self.leave(py)?;
        let place = |offset: Option<sbp_types::Offset>| offset.map_or(-1, |offset| offset.0);
        Ok(work
            .bulk
            .stored()
            .into_iter()
            .map(|(stream, stored)| (stream.0, place(stored.first), place(stored.last), stored.records))
            .collect())
    }

    /// Gives up on what is on its way.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.work.lock().take();
        drop(work);
        self.leave(py)
    }
}

impl BatchAppender {
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        // A worker without a task keeps no memory for the next.
        scratch::clear();
        match self.is_own.then(|| self.core.close()).flatten() {
            Some(client) => block_on(py, async move { client.close().await }),
            None => Ok(()),
        }
    }

    fn take(&self) -> PyResult<Work> {
        self.work.lock().take().ok_or_else(|| {
            PyRuntimeError::new_err("the appender is finished, has failed, or is used by another thread")
        })
    }

    /// Takes rows, or with `None` completes what was begun, and encodes the batches that are complete.
    fn gather(&self, py: Python<'_>, work: &mut Work, batch: Option<&RecordBatch>) -> PyResult<()> {
        match &mut work.rows {
            Gatherer::Records(rows) => {
                let mut complete = Complete::new();
                let gathered = py.detach(|| match batch {
                    Some(batch) => rows.push(batch, &mut complete),
                    None => {
                        rows.sweep(&mut complete);
                        Ok(())
                    }
                });
                gathered.map_err(|error| match error {
                    RowError::Encode(error) => encode::refused(py, error),
                    other => errors::schema_mismatch(py, &other.to_string()),
                })?;
                self.encode_rows(py, work, complete)
            }
            Gatherer::Typed(rows) => {
                let mut complete = Vec::new();
                let gathered = py.detach(|| match batch {
                    Some(batch) => rows.push(batch, &mut complete),
                    None => rows.sweep(&mut complete),
                });
                gathered.map_err(arrow::from_arrow)?;
                self.encode_columns(py, work, &complete)
            }
        }
    }

    fn encode_options(&self, work: &Work, stream: StreamId) -> EncodeOptions {
        EncodeOptions {
            stream_id: stream,
            timestamp: time::now(),
            compression: self.options.compression,
            writer: Some(work.bulk.stamp(stream)),
        }
    }

    fn encode_rows(&self, py: Python<'_>, work: &mut Work, complete: Complete) -> PyResult<()> {
        for (target, mut builder) in complete {
            let stream = self.stream(py, work, &target)?.stream.stream_id;
            let options = self.encode_options(work, stream);
            let records = u32::try_from(builder.len()).unwrap_or(u32::MAX);
            let batch = py.detach(|| {
                let mut out = scratch::take(builder.body_length());
                builder.finish(&options, &mut out).map(|_| scratch::freeze(out))
            });
            let batch = batch.map_err(|error| encode::refused(py, error))?;
            work.bulk.push(stream, batch, records);
            if let Gatherer::Records(rows) = &mut work.rows {
                rows.give_back(builder);
            }
        }
        Ok(())
    }

    fn encode_columns(&self, py: Python<'_>, work: &mut Work, complete: &[RecordBatch]) -> PyResult<()> {
        let Some((stream, schema)) = self
            .target
            .as_ref()
            .and_then(|stream| Some((stream, stream.schema.as_ref()?)))
        else {
            return Err(errors::invalid(py, "body \"arrow\" needs one stream with a schema"));
        };
        for batch in complete {
            let mut schema = work.grown.clone().unwrap_or_else(|| schema.clone());
            if schema.check_names(batch.schema_ref()).is_err() {
                // A worker's client keeps what it was told once; the columns may have been added since.
                let key = Key::Known(Arc::clone(stream));
                let describe = |client, _| async move { requests::describe(&client, &key, None).await };
                work.grown = self.core.block(py, None, describe)?.schema.clone();
                schema = work.grown.clone().unwrap_or(schema);
            }
            py.detach(|| self.encode_parts(work, stream.stream.stream_id, &schema, batch))
                .map_err(|error| encode::refused(py, error))?;
        }
        Ok(())
    }

    /// Encodes typed columns as one batch, or as several where one would be too large.
    fn encode_parts(
        &self,
        work: &mut Work,
        stream: StreamId,
        schema: &StreamSchema,
        batch: &RecordBatch,
    ) -> Result<(), EncodeError> {
        let mut out = scratch::take(batch.get_array_memory_size());
        match encode_arrow(&self.encode_options(work, stream), schema, batch, &mut out) {
            Ok(_) => {
                let records = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
                work.bulk.push(stream, scratch::freeze(out), records);
                Ok(())
            }
            Err(EncodeError::TooLarge { .. }) if batch.num_rows() > 1 => {
                let half = batch.num_rows() / 2;
                self.encode_parts(work, stream, schema, &batch.slice(0, half))?;
                let rest = batch.slice(half, batch.num_rows() - half);
                self.encode_parts(work, stream, schema, &rest)
            }
            Err(error) => Err(error),
        }
    }

    fn stream(&self, py: Python<'_>, work: &mut Work, target: &Target) -> PyResult<Arc<Described>> {
        if let Some(stream) = &self.target {
            return Ok(Arc::clone(stream));
        }
        if let Some(known) = work.streams.get(target) {
            return Ok(Arc::clone(known));
        }
        let key = match target {
            Target::Name(name) => Key::Name(name.clone()),
            Target::Id(id) => Key::Id(*id),
            Target::Given => return Err(errors::invalid(py, "no stream is named")),
        };
        let found = find(py, &self.core, key, self.options.create)?;
        if found.schema.is_some() {
            let what = format!(
                "stream {} ({}) has a schema, so it takes no records: write to it with body=arrow",
                found.name, found.stream.stream_id
            );
            return Err(errors::schema_mismatch(py, &what));
        }
        work.streams.insert(target.clone(), Arc::clone(&found));
        Ok(found)
    }

    /// Sends what may be sent, and waits until no more than `bytes` of batches are not stored.
    fn settle(&self, py: Python<'_>, mut work: Work, bytes: usize) -> PyResult<Work> {
        loop {
            work.bulk.send(self.core.client(py)?, self.options.max_in_flight);
            self.check(py, &mut work)?;
            if work.bulk.bytes() <= bytes && (bytes > 0 || work.bulk.is_idle()) {
                return Ok(work);
            }
            let has_room = work.bulk.in_flight() < self.options.max_in_flight;
            let until = has_room.then(|| work.bulk.poll_timeout()).flatten();
            let (events, event) = receive_until(py, work.events, until);
            work.events = events;
            match event? {
                Ok(event) => work.bulk.handle(event),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(dropped()),
            }
            self.check(py, &mut work)?;
        }
    }

    /// Looks whether the writer has failed, and at the repeats that it has found.
    fn check(&self, py: Python<'_>, work: &mut Work) -> PyResult<()> {
        if let Some(error) = work.bulk.failure() {
            return Err(self.failed(py, work, error.clone()));
        }
        self.compare_repeats(py, work)
    }

    /// Compares what was to be stored with what somebody else had stored in its place.
    fn compare_repeats(&self, py: Python<'_>, work: &mut Work) -> PyResult<()> {
        let found = work.bulk.take_repeats();
        if !self.options.is_named {
            return Ok(());
        }
        for repeat in found {
            let schema = self.target.as_ref().and_then(|target| target.schema.clone());
            let (client, timeout) = (self.core.client(py)?.clone(), self.options.timeout);
            let compared = block_on(
                py,
                async move { repeats::compare(&client, &repeat, schema, timeout).await },
            )?;
            compared.map_err(|error| self.failed(py, work, error))?;
        }
        Ok(())
    }

    /// Whether somebody else has stored more under this name and epoch than this appender.
    fn check_ends(&self, py: Python<'_>, work: &Work) -> PyResult<()> {
        if !self.options.is_named {
            return Ok(());
        }
        for (stream, stored) in work.bulk.stored() {
            if stored.repeats == 0 {
                continue;
            }
            let (client, stamp) = (self.core.client(py)?.clone(), work.bulk.stamp(stream));
            let checked = block_on(py, async move { repeats::check_end(&client, stream, stamp).await })?;
            checked.map_err(|error| self.failed(py, work, error))?;
        }
        Ok(())
    }

    /// What the caller is told; a stream that is gone is looked up anew by the next appender.
    fn failed(&self, py: Python<'_>, work: &Work, error: ClientError) -> PyErr {
        let mut known = work.streams.values().chain(&self.target);
        let named = known.find(|known| error.stream() == Some(known.stream.stream_id));
        if let Some(stream) = named {
            stream.note(&error);
        }
        errors::from_client(py, error, named.map(|known| &*known.name))
    }
}

/// Batches that the server remembers of each writer and stream.
fn window(py: Python<'_>, core: &ClientCore) -> PyResult<usize> {
    let mut features = core.client(py)?.features();
    if features.is_none() {
        core.block(py, None, |client, _| async move { client.connect(None).await })?;
        features = core.client(py)?.features();
    }
    features.and_then(|features| features.idempotence).ok_or_else(|| {
        let what = "the server does not offer idempotent writers, which a write needs";
        let error = ClientError::local(codes::FEATURE_NOT_OFFERED, what);
        errors::from_client(py, error, None)
    })
}

fn named(id: [u8; 16]) -> PyResult<WriterId> {
    let (high, low) = id.split_at(8);
    let half = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).unwrap_or_default();
    let id = WriterId {
        high: half(high),
        low: half(low),
    };
    if id.is_some() {
        Ok(id)
    } else {
        Err(PyValueError::new_err("writer_id is 16 bytes that are not all zero"))
    }
}

/// The stream with this name or id, created where that is wanted.
fn find(py: Python<'_>, core: &ClientCore, key: Key, create: Option<Copies>) -> PyResult<Arc<Described>> {
    if let Some(known) = core.current(py, &key)? {
        return Ok(known);
    }
    core.block(py, None, |client, _| async move {
        match (requests::find(&client, &key, None).await, key, create) {
            (Err(failure), Key::Name(name), Some(Copies { replicas, acks })) if is_missing(&failure) => {
                let wanted = StreamChange {
                    name: Some(name),
                    replicas,
                    acks,
                    ..StreamChange::default()
                };
                requests::create(&client, wanted, true, None).await
            }
            (found, ..) => found,
        }
    })
}

fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::Client(error) | Failure::Named(error, _) if error.code() == ErrorCode::NOT_FOUND)
}
