//! Record batches appended with a bounded number on their way, for Spark's workers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use arrow_array::RecordBatch;
use bytes::{Bytes, BytesMut};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use sbp_client::{AppendEntry, AppendOp, AppendResultOf, Body, CompletionSink, Reply, Submissions};
use sbp_locks::Mutex;
use sbp_record::{EncodeError, EncodeOptions, StreamSchema, encode_arrow};
use sbp_types::StreamId;
use smallvec::SmallVec;

use crate::blocking::{block_on, receive};
use crate::calls::{self, Key};
use crate::core::{Core, Settings};
use crate::describe::Described;
use crate::rows::{RowError, Target, by_stream};
use crate::{arrow, encode, errors};

/// A frame with as many bytes of batches as this is complete.
const FRAME_BYTES: usize = 4 << 20;
/// Batches of one frame; servers take 1,024.
const FRAME_ENTRIES: usize = 512;

/// Appends record batches, many streams in a frame.
#[pyclass(frozen, module = "sbp_native._native")]
pub(crate) struct BatchAppender {
    core: Arc<Core>,
    /// The stream everything goes to, if it is one.
    target: Option<Arc<Described>>,
    typed: bool,
    max_in_flight: usize,
    /// `None` while a call works with it.
    work: Mutex<Option<Work>>,
}

/// What is on its way and what has been stored.
struct Work {
    streams: HashMap<Target, Arc<Described>>,
    in_flight: usize,
    stored: BTreeMap<i64, Stored>,
    sender: Sender<AppendResultOf>,
    receiver: Receiver<AppendResultOf>,
}

/// What one stream got.
struct Stored {
    first: i64,
    last: i64,
    records: i64,
}

/// An encoded batch and the stream it goes to.
type Encoded = (StreamId, Bytes, u32);

impl CompletionSink for Mailbox {
    fn complete(&self, batch: &mut Vec<(u64, AppendResultOf)>) {
        for (_, outcome) in batch.drain(..) {
            // The receiver is gone when the appender was given up; nobody asks for outcomes then.
            let _ = self.0.send(outcome);
        }
    }
}

/// Where outcomes are delivered.
struct Mailbox(Sender<AppendResultOf>);

#[pymethods]
impl BatchAppender {
    #[new]
    #[pyo3(signature = (servers, stream = None, body = "records", timeout = 30.0, max_in_flight = 16))]
    fn new(
        py: Python<'_>,
        servers: &str,
        stream: Option<String>,
        body: &str,
        timeout: f64,
        max_in_flight: usize,
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
        let core = Core::new(py, Settings::new(servers, timeout))?;
        let target = stream.map(|name| find(py, &core, Key::Name(name))).transpose()?;
        match &target {
            None if typed => return Err(errors::invalid(py, "body \"arrow\" needs one stream to write to")),
            Some(stream) if typed && stream.schema.is_none() => {
                return Err(errors::schema_mismatch(
                    py,
                    &format!("stream {} has no schema", stream.name),
                ));
            }
            _ => {}
        }
        let (sender, receiver) = mpsc::channel();
        let work = Work {
            streams: HashMap::new(),
            in_flight: 0,
            stored: BTreeMap::new(),
            sender,
            receiver,
        };
        Ok(Self {
            core,
            target,
            typed,
            max_in_flight: max_in_flight.max(1),
            work: Mutex::new(Some(work)),
        })
    }

    /// Takes one record batch.
    fn append(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut work = self.take()?;
        // Kept out while it works: a failure leaves the appender closed, because what came after it would be a gap.
        work = self.take_batch(py, work, batch)?;
        *self.work.lock() = Some(work);
        Ok(())
    }

    /// Waits for every acknowledgement: (stream id, first offset, last offset, records) per stream.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<(i64, i64, i64, i64)>> {
        let mut work = self.take()?;
        while work.in_flight > 0 {
            work = self.settle_one(py, work)?;
        }
        if let Some(client) = self.core.close() {
            block_on(py, async move { client.close().await })?;
        }
        Ok(work
            .stored
            .into_iter()
            .map(|(id, stored)| (id, stored.first, stored.last, stored.records))
            .collect())
    }

    /// Gives up on what is on its way.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.work.lock().take();
        drop(work);
        match self.core.close() {
            Some(client) => block_on(py, async move { client.close().await }),
            None => Ok(()),
        }
    }
}

impl BatchAppender {
    fn take(&self) -> PyResult<Work> {
        self.work.lock().take().ok_or_else(|| {
            PyRuntimeError::new_err("the appender is finished, has failed, or is used by another thread")
        })
    }

    fn take_batch(&self, py: Python<'_>, mut work: Work, batch: &Bound<'_, PyAny>) -> PyResult<Work> {
        let (_, batches) = arrow::import_batches(batch)?;
        for batch in batches.into_iter().filter(|batch| batch.num_rows() > 0) {
            let encoded = if self.typed {
                self.encode_columns(py, &batch)?
            } else {
                self.encode_rows(py, &mut work, &batch)?
            };
            for frame in frames(encoded) {
                while work.in_flight >= self.max_in_flight {
                    work = self.settle_one(py, work)?;
                }
                self.send(py, &mut work, frame)?;
            }
        }
        Ok(work)
    }

    fn encode_columns(&self, py: Python<'_>, batch: &RecordBatch) -> PyResult<Vec<Encoded>> {
        let Some((stream, schema)) = self
            .target
            .as_ref()
            .and_then(|stream| Some((stream, stream.schema.as_ref()?)))
        else {
            return Err(errors::invalid(py, "body \"arrow\" needs one stream with a schema"));
        };
        let options = EncodeOptions {
            stream_id: stream.stream.stream_id,
            timestamp: encode::now(),
            ..EncodeOptions::default()
        };
        let mut encoded = Vec::new();
        py.detach(|| encode_parts(&options, schema, batch, &mut encoded))
            .map_err(|error| encode::refused(py, error))?;
        Ok(encoded)
    }

    fn encode_rows(&self, py: Python<'_>, work: &mut Work, batch: &RecordBatch) -> PyResult<Vec<Encoded>> {
        let has_target = self.target.is_some();
        let sorted = py
            .detach(|| by_stream(batch, has_target))
            .map_err(|error| match error {
                RowError::Encode(error) => encode::refused(py, error),
                other => errors::schema_mismatch(py, &other.to_string()),
            })?;
        let timestamp = encode::now();
        let mut encoded = Vec::new();
        for (target, builders) in sorted {
            let stream = self.stream(py, work, &target)?;
            let stream_id = stream.stream.stream_id;
            let options = EncodeOptions {
                stream_id,
                timestamp,
                ..EncodeOptions::default()
            };
            py.detach(|| {
                for mut builder in builders {
                    let records = u32::try_from(builder.len()).unwrap_or(u32::MAX);
                    let mut out = BytesMut::new();
                    builder.finish(&options, &mut out)?;
                    encoded.push((stream_id, out.freeze(), records));
                }
                Ok::<_, EncodeError>(())
            })
            .map_err(|error| encode::refused(py, error))?;
        }
        Ok(encoded)
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
        let found = find(py, &self.core, key)?;
        work.streams.insert(target.clone(), Arc::clone(&found));
        Ok(found)
    }

    fn send(&self, py: Python<'_>, work: &mut Work, frame: Vec<Encoded>) -> PyResult<()> {
        let client = self.core.client(py)?;
        let entries: SmallVec<_> = frame
            .into_iter()
            .map(|(stream, batch, records)| {
                AppendEntry::new(
                    stream,
                    Body::Shared {
                        head: 0..0,
                        body: batch,
                        padding: 0,
                    },
                    records,
                )
            })
            .collect();
        let sink: Arc<dyn CompletionSink> = Arc::new(Mailbox(work.sender.clone()));
        let mut submissions = Submissions::new();
        submissions.push(AppendOp::new(entries, client.deadline(None), Reply::sink(sink, 0)));
        client.submit(&mut submissions);
        work.in_flight += 1;
        Ok(())
    }

    /// Waits for one frame's outcome and notes what was stored.
    fn settle_one(&self, py: Python<'_>, mut work: Work) -> PyResult<Work> {
        let (receiver, outcome) = receive(py, work.receiver);
        work.receiver = receiver;
        work.in_flight -= 1;
        let acks = outcome?.and_then(|outcome| outcome.all());
        for ack in acks.map_err(|error| errors::from_client(py, error, None))? {
            let records = ack.last_offset.0 - ack.base_offset.0 + 1;
            let stored = work.stored.entry(ack.stream.0).or_insert(Stored {
                first: ack.base_offset.0,
                last: ack.last_offset.0,
                records: 0,
            });
            stored.first = stored.first.min(ack.base_offset.0);
            stored.last = stored.last.max(ack.last_offset.0);
            stored.records += records;
        }
        Ok(work)
    }
}

fn find(py: Python<'_>, core: &Core, key: Key) -> PyResult<Arc<Described>> {
    let client = core.client(py)?.clone();
    let found = block_on(py, async move { calls::find(&client, &key, None).await })?;
    found.map_err(|failure| failure.into_python(py))
}

/// Encodes typed columns as one batch, or as several where one would be too large.
fn encode_parts(
    options: &EncodeOptions,
    schema: &StreamSchema,
    batch: &RecordBatch,
    encoded: &mut Vec<Encoded>,
) -> Result<(), EncodeError> {
    let mut out = BytesMut::new();
    match encode_arrow(options, schema, batch, &mut out) {
        Ok(_) => {
            let records = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
            encoded.push((options.stream_id, out.freeze(), records));
            Ok(())
        }
        Err(EncodeError::TooLarge { .. }) if batch.num_rows() > 1 => {
            let half = batch.num_rows() / 2;
            encode_parts(options, schema, &batch.slice(0, half), encoded)?;
            encode_parts(options, schema, &batch.slice(half, batch.num_rows() - half), encoded)
        }
        Err(error) => Err(error),
    }
}

/// Batches gathered into frames, in order.
fn frames(encoded: Vec<Encoded>) -> Vec<Vec<Encoded>> {
    let mut frames: Vec<Vec<Encoded>> = Vec::new();
    let mut bytes = 0;
    for batch in encoded {
        let length = batch.1.len();
        match frames.last_mut() {
            Some(frame) if bytes + length <= FRAME_BYTES && frame.len() < FRAME_ENTRIES => {
                bytes += length;
                frame.push(batch);
            }
            _ => {
                bytes = length;
                frames.push(vec![batch]);
            }
        }
    }
    frames
}
