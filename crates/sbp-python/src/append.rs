//! One append, from its arguments to the client.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use sbp_client::{AppendEntry, AppendOp, AppendResultOf, Client, CompletionSink, Reply, Submissions};
use sbp_record::Compression;
use sbp_types::{Offset, StreamId, TimestampMs};
use smallvec::{SmallVec, smallvec};

use crate::ack::AckShape;
use crate::blocking::Answer;
use crate::calls::Key;
use crate::describe::Described;
use crate::encode::{Encoded, encode};
use crate::{blocking, buffer, errors};

/// What one append is given: the records, and how they are stored.
#[derive(Clone, Copy)]
pub(crate) struct Appending<'a, 'py> {
    /// One record, several, or the rows of a table.
    pub(crate) data: &'a Bound<'py, PyAny>,
    /// The key of one record, or a list of the keys of several.
    pub(crate) key: Option<&'a Bound<'py, PyAny>>,
    /// The headers of one record, or a list of those of several.
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) how: How,
}

/// How records are stored.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    /// The time of the records; `None`: now.
    pub(crate) timestamp: Option<TimestampMs>,
    /// The offset the first record must get.
    pub(crate) expected_offset: Option<Offset>,
    pub(crate) compression: Compression,
}

/// What to do when as much is on its way as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
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

impl Prepared {
    /// One batch for one stream.
    pub(crate) fn one(stream: &Described, appending: &Appending<'_, '_>, deadline: Instant) -> PyResult<Self> {
        let id = stream.stream.stream_id;
        let encoded = encode(appending, id, stream.schema.as_ref())?;
        Ok(Self {
            entries: smallvec![(id, encoded)],
            expected_offset: appending.how.expected_offset,
            deadline,
        })
    }

    /// One batch for each of several streams.
    pub(crate) fn many<'py>(
        streams: &[Arc<Described>],
        data: impl Iterator<Item = Bound<'py, PyAny>>,
        how: How,
        deadline: Instant,
    ) -> PyResult<Self> {
        let entries = streams
            .iter()
            .zip(data)
            .map(|(stream, data)| {
                let id = stream.stream.stream_id;
                let appending = Appending {
                    data: &data,
                    key: None,
                    headers: None,
                    how,
                };
                Ok((id, encode(&appending, id, stream.schema.as_ref())?))
            })
            .collect::<PyResult<_>>()?;
        Ok(Self {
            entries,
            expected_offset: how.expected_offset,
            deadline,
        })
    }

    /// One batch for each of several streams, each with keys and headers of its own. They are stored in one way.
    pub(crate) fn each(batches: &[(Arc<Described>, Appending<'_, '_>)], deadline: Instant) -> PyResult<Self> {
        let entries = batches.iter().map(|(stream, appending)| {
            let id = stream.stream.stream_id;
            Ok((id, encode(appending, id, stream.schema.as_ref())?))
        });
        Ok(Self {
            entries: entries.collect::<PyResult<_>>()?,
            expected_offset: None,
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
        patience: Patience,
    ) -> PyResult<Py<PyAny>> {
        let (answer, waiting) = blocking::rendezvous()?;
        let mut submissions = Submissions::new();
        self.join(&mut submissions, Reply::sink(Arc::new(Handoff(answer)), 0));
        match patience {
            Patience::Wait => py.detach(|| client.submit_now(&mut submissions)),
            Patience::Fail => client
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
