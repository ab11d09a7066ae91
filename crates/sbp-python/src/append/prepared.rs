//! The encoded batches of one append, and how they are handed to the client.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use sbp_client::{AppendEntry, AppendOp, AppendResultOf, Client, CompletionSink, Reply, Submissions};
use sbp_types::{Offset, StreamId};
use smallvec::{SmallVec, smallvec};

use crate::append::encode::{Encoded, NotEncoded, encode};
use crate::append::input::{AppendInput, AppendOptions};
use crate::errors;
use crate::memory::buffer;
use crate::process::blocking::{self, Answer};
use crate::requests::{Described, Key};
use crate::results::ack::AckShape;

/// What an append does when the client has as much unanswered work as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackpressurePolicy {
    /// Wait for room.
    Wait,
    /// Fail at once.
    Fail,
}

/// The batches of one append, encoded, for one frame.
pub(crate) struct Prepared {
    entries: SmallVec<[(StreamId, Encoded); 1]>,
    expected_offset: Option<Offset>,
    deadline: Instant,
}

/// Why the batches of an append were not encoded.
pub(crate) enum NotPrepared {
    /// It cannot be.
    Raised(PyErr),
    /// Its streams are to be described again first.
    Draft(Box<Draft>),
}

impl From<PyErr> for NotPrepared {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// The exception for data with columns that its stream does not have, and the data.
type Unknown = (PyErr, Py<PyAny>);

/// An append with data that has columns which its stream did not have when it was described.
pub(crate) struct Draft {
    entries: Vec<(Arc<Described>, Result<Encoded, Unknown>)>,
    options: AppendOptions,
    deadline: Instant,
}

impl Draft {
    /// The streams that are to be described again.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let unknown = self.entries.iter().filter(|(_, encoded)| encoded.is_err());
        unknown.map(|(stream, _)| Key::Known(Arc::clone(stream))).collect()
    }

    /// Encodes the rest, for those streams as they are now.
    ///
    /// # Errors
    ///
    /// The streams still do not have the columns.
    pub(crate) fn prepare(self, py: Python<'_>, described: &[Arc<Described>]) -> PyResult<Prepared> {
        let mut described = described.iter();
        let mut entries = SmallVec::with_capacity(self.entries.len());
        for (stream, encoded) in self.entries {
            let id = stream.stream.stream_id;
            let encoded = match encoded {
                Ok(encoded) => encoded,
                Err((error, data)) => {
                    let now = described.next().filter(|now| now.stream.schema != stream.stream.schema);
                    let Some(now) = now else { return Err(error) };
                    let input = AppendInput {
                        data: data.bind(py),
                        key: None,
                        headers: None,
                        options: self.options,
                    };
                    encode(&input, id, now.schema.as_ref()).map_err(NotEncoded::into_error)?
                }
            };
            entries.push((id, encoded));
        }
        Ok(Prepared {
            entries,
            expected_offset: self.options.expected_offset,
            deadline: self.deadline,
        })
    }
}

impl Prepared {
    /// One batch for one stream.
    pub(crate) fn one(
        stream: &Arc<Described>,
        input: &AppendInput<'_, '_>,
        deadline: Instant,
    ) -> Result<Self, NotPrepared> {
        let id = stream.stream.stream_id;
        match encode(input, id, stream.schema.as_ref()) {
            Ok(encoded) => Ok(Self {
                entries: smallvec![(id, encoded)],
                expected_offset: input.options.expected_offset,
                deadline,
            }),
            Err(NotEncoded::Raised(error)) => Err(error.into()),
            Err(NotEncoded::Unknown(error, data)) => Err(NotPrepared::Draft(Box::new(Draft {
                entries: vec![(Arc::clone(stream), Err((error, data)))],
                options: input.options,
                deadline,
            }))),
        }
    }

    /// One batch for each of several streams; `headers` are those of every record.
    pub(crate) fn many<'py>(
        streams: &[Arc<Described>],
        data: impl Iterator<Item = Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        options: AppendOptions,
        deadline: Instant,
    ) -> Result<Self, NotPrepared> {
        let batches = streams.iter().zip(data).map(|(stream, data)| {
            let input = AppendInput {
                data: &data,
                key: None,
                headers,
                options,
            };
            let encoded = encode(&input, stream.stream.stream_id, stream.schema.as_ref());
            (stream, encoded)
        });
        Self::of(batches, options, deadline)
    }

    /// One batch for each of several streams, each with keys and headers of its own. They are stored in one way.
    pub(crate) fn each(
        batches: &[(Arc<Described>, AppendInput<'_, '_>)],
        deadline: Instant,
    ) -> Result<Self, NotPrepared> {
        let options = batches.first().map(|(_, input)| input.options).unwrap_or_default();
        let batches = batches.iter().map(|(stream, input)| {
            let encoded = encode(input, stream.stream.stream_id, stream.schema.as_ref());
            (stream, encoded)
        });
        let options = AppendOptions {
            expected_offset: None,
            ..options
        };
        Self::of(batches, options, deadline)
    }

    fn of<'a>(
        batches: impl Iterator<Item = (&'a Arc<Described>, Result<Encoded, NotEncoded>)>,
        options: AppendOptions,
        deadline: Instant,
    ) -> Result<Self, NotPrepared> {
        let mut entries = Vec::with_capacity(batches.size_hint().0);
        for (stream, encoded) in batches {
            let encoded = match encoded {
                Ok(encoded) => Ok(encoded),
                Err(NotEncoded::Raised(error)) => return Err(error.into()),
                Err(NotEncoded::Unknown(error, data)) => Err((error, data)),
            };
            entries.push((Arc::clone(stream), encoded));
        }
        let draft = Draft {
            entries,
            options,
            deadline,
        };
        if draft.entries.iter().any(|(_, encoded)| encoded.is_err()) {
            return Err(NotPrepared::Draft(Box::new(draft)));
        }
        let encoded =
            |(stream, encoded): (Arc<Described>, Result<Encoded, _>)| Some((stream.stream.stream_id, encoded.ok()?));
        Ok(Self {
            entries: draft.entries.into_iter().filter_map(encoded).collect(),
            expected_offset: options.expected_offset,
            deadline,
        })
    }

    /// How many bytes are to be sent.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.iter().map(|(_, encoded)| encoded.bytes()).sum()
    }

    /// Joins the submissions of a client.
    pub(crate) fn join(self, submissions: &mut Submissions, reply: Reply) {
        let entries = self
            .entries
            .into_iter()
            .map(|(stream, encoded)| {
                let records = encoded.records;
                let mut entry = AppendEntry::new(stream, encoded.place(submissions), records);
                entry.expected_offset = self.expected_offset;
                entry
            })
            .collect();
        submissions.push(AppendOp::new(entries, self.deadline, reply));
    }

    /// Appends and waits for the outcome.
    pub(crate) fn block(
        self,
        py: Python<'_>,
        client: &Client,
        shape: &AckShape,
        policy: BackpressurePolicy,
    ) -> PyResult<Py<PyAny>> {
        let (answer, waiting) = blocking::rendezvous()?;
        let mut submissions = Submissions::new();
        self.join(&mut submissions, Reply::sink(Arc::new(Handoff(answer)), 0));
        match policy {
            BackpressurePolicy::Wait => py.detach(|| client.submit_now(&mut submissions)),
            BackpressurePolicy::Fail => client
                .try_submit(&mut submissions)
                .map_err(|error| shape.explain(error.into()).into_python(py))?,
        }
        let outcome = waiting.wait(py)?;
        buffer::release_pins(py);
        match outcome {
            Ok(outcome) => shape.build(py, outcome),
            Err(error) => Err(shape.explain(error.into()).into_python(py)),
        }
    }
}

/// Takes the one outcome that a blocking call waits for.
struct Handoff(Answer<AppendResultOf>);

impl CompletionSink for Handoff {
    fn complete(&self, batch: &mut Vec<(u64, AppendResultOf)>) {
        for (_, outcome) in batch.drain(..) {
            self.0.send(outcome);
        }
    }
}

/// The streams and data of an `append_all`, in the order given.
pub(crate) fn keys_and_data<'py>(batches: &Bound<'py, PyAny>) -> PyResult<(Vec<Key>, Vec<Bound<'py, PyAny>>)> {
    let wrong = |_| PyTypeError::new_err("append_all takes a mapping from streams to data");
    let mut keys = Vec::new();
    let mut data = Vec::new();
    if let Ok(batches) = batches.cast::<PyDict>() {
        for (key, value) in batches.iter() {
            keys.push(key.extract().map_err(wrong)?);
            data.push(value);
        }
    } else {
        for item in batches
            .cast::<PyMapping>()
            .map_err(|error| wrong(error.into()))?
            .items()?
            .iter()
        {
            let (key, value) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
            keys.push(key.extract().map_err(wrong)?);
            data.push(value);
        }
    }
    if keys.is_empty() {
        return Err(errors::invalid(batches.py(), "append_all was given no streams"));
    }
    Ok((keys, data))
}
