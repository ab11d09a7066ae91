//! Appends as futures, and putting record batches into submissions.

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sbp_messages::ErrorCode;
use sbp_record::{
    Compression, EncodeError, EncodeOptions, MAX_BATCH_LENGTH, RecordsBuilder, encode_raw, encode_raw_head,
};
use sbp_types::{Offset, StreamId, TimestampMs};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::clock::wall_clock;
use crate::error::{ClientError, ErrorKind};
use crate::outcome::{Ack, AppendOutcome};
use crate::submission::{AppendEntry, AppendOp, AppendResultOf, Body, Reply, Submissions};

/// Bodies of at least this many bytes are sent by reference; smaller ones are cheaper to copy.
const SHARE_FROM: usize = 16 * 1024;

/// The records of one batch.
#[derive(Debug)]
pub enum Records {
    /// One opaque record.
    Raw(Bytes),
    /// Several records with keys, times and headers.
    Several(Box<RecordsBuilder>),
    /// A batch that is encoded already, and how many records it holds.
    Encoded {
        /// The whole batch.
        batch: Bytes,
        /// Its records.
        count: u32,
    },
}

impl From<&'static [u8]> for Records {
    fn from(record: &'static [u8]) -> Self {
        Self::Raw(Bytes::from_static(record))
    }
}

impl From<Vec<u8>> for Records {
    fn from(record: Vec<u8>) -> Self {
        Self::Raw(record.into())
    }
}

impl From<Bytes> for Records {
    fn from(record: Bytes) -> Self {
        Self::Raw(record)
    }
}

impl From<RecordsBuilder> for Records {
    fn from(records: RecordsBuilder) -> Self {
        Self::Several(Box::new(records))
    }
}

/// How a batch is appended.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendOptions {
    /// The time of records that have none of their own; `None`: this machine's clock.
    pub timestamp: Option<TimestampMs>,
    /// How bodies are stored.
    pub compression: Compression,
    /// The offset the first record must get, else nothing is appended. Needs a server that offers it.
    pub expected_offset: Option<Offset>,
    /// How long to wait for the acknowledgement; `None`: the client's default.
    pub timeout: Option<Duration>,
}

impl AppendOptions {
    /// What the encoder of a batch needs to know.
    #[must_use]
    pub fn encode_options(&self, stream: StreamId) -> EncodeOptions {
        EncodeOptions {
            stream_id: stream,
            timestamp: self.timestamp.unwrap_or_else(wall_clock),
            compression: self.compression,
            writer: None,
        }
    }
}

impl Client {
    /// Appends one batch and waits until the server has acknowledged it.
    ///
    /// # Errors
    ///
    /// Kind [`Rejected`](ErrorKind::Rejected) and the others that say so: nothing was stored. Kind
    /// [`Indeterminate`](ErrorKind::Indeterminate): it may have been.
    pub async fn append(
        &self,
        stream: StreamId,
        records: impl Into<Records>,
        options: &AppendOptions,
    ) -> Result<Ack, ClientError> {
        self.append_all(vec![(stream, records.into())], options).await?.single()
    }

    /// Appends one batch to each of many streams, all in one frame. They are answered together, and each for itself.
    ///
    /// # Errors
    ///
    /// As for [`Client::append`], when the frame as a whole failed.
    pub async fn append_all(
        &self,
        batches: Vec<(StreamId, Records)>,
        options: &AppendOptions,
    ) -> Result<AppendOutcome, ClientError> {
        if batches.is_empty() {
            return Ok(AppendOutcome {
                entries: SmallVec::new(),
            });
        }
        let streams: SmallVec<[StreamId; 1]> = batches.iter().map(|(stream, _)| *stream).collect();
        let outcome = self.submit_batches(batches, options)?;
        let outcome = outcome.await.unwrap_or_else(|_told_nobody| Err(ClientError::closed()));
        if outcome
            .as_ref()
            .is_err_and(|error| error.code() == ErrorCode::NOT_FOUND)
        {
            streams.iter().for_each(|&stream| self.forget_stream(stream));
        }
        outcome
    }
}

impl Client {
    /// Hands over one batch at once. The future waits for its outcome.
    pub(crate) fn start_append(
        &self,
        stream: StreamId,
        records: Records,
        options: &AppendOptions,
    ) -> impl Future<Output = Result<Ack, ClientError>> + Send + 'static {
        let outcome = self.submit_batches(vec![(stream, records)], options);
        async move {
            let outcome = outcome?.await.unwrap_or_else(|_told_nobody| Err(ClientError::closed()));
            outcome?.single().map_err(|error| error.with_stream(stream))
        }
    }

    fn submit_batches(
        &self,
        batches: Vec<(StreamId, Records)>,
        options: &AppendOptions,
    ) -> Result<oneshot::Receiver<AppendResultOf>, ClientError> {
        let mut submissions = self.channel().fresh();
        let mut entries: SmallVec<[AppendEntry; 1]> = SmallVec::with_capacity(batches.len());
        for (stream, records) in batches {
            let mut entry = submissions.place_records(&options.encode_options(stream), records)?;
            entry.expected_offset = options.expected_offset;
            entries.push(entry);
        }
        let (reply, outcome) = Reply::future();
        submissions.push(AppendOp::new(entries, self.deadline(options.timeout), reply));
        self.submit(&mut submissions);
        Ok(outcome)
    }
}

impl Submissions {
    /// Puts one batch of records here: small ones are copied into the arena, large raw ones go by reference.
    ///
    /// # Errors
    ///
    /// That the batch would be larger than a server takes, or holds nothing.
    pub fn place_records(&mut self, options: &EncodeOptions, records: Records) -> Result<AppendEntry, ClientError> {
        match records {
            Records::Raw(body) => self.place_raw(options, body),
            Records::Several(mut builder) => self.place_built(options, &mut builder),
            Records::Encoded { batch, count } => {
                if batch.len() > MAX_BATCH_LENGTH {
                    return Err(too_large(batch.len()).with_stream(options.stream_id));
                }
                let body = if batch.len() < SHARE_FROM {
                    self.place_encoded(&batch)
                } else {
                    Body::Shared {
                        head: 0..0,
                        body: batch,
                        padding: 0,
                    }
                };
                Ok(AppendEntry::new(options.stream_id, body, count))
            }
        }
    }

    /// Puts one opaque record here.
    ///
    /// # Errors
    ///
    /// That it is larger than a server takes.
    pub fn place_raw(&mut self, options: &EncodeOptions, record: Bytes) -> Result<AppendEntry, ClientError> {
        if record.len() < SHARE_FROM || options.compression != Compression::NONE {
            return self.place_raw_copy(options, &record);
        }
        let start = self.arena.len();
        let padding =
            encode_raw_head(options, &record, &mut self.arena).map_err(|e| encode_error(&e, options.stream_id))?;
        let body = Body::Shared {
            head: start..self.arena.len(),
            body: record,
            padding,
        };
        Ok(AppendEntry::new(options.stream_id, body, 1))
    }

    /// Puts a copy of one opaque record here.
    ///
    /// # Errors
    ///
    /// That it is larger than a server takes.
    pub fn place_raw_copy(&mut self, options: &EncodeOptions, record: &[u8]) -> Result<AppendEntry, ClientError> {
        self.place_with(options, 1, |out| encode_raw(options, record, out))
    }

    /// Puts the records of a builder here; the builder keeps them.
    ///
    /// # Errors
    ///
    /// That there are none, or that the batch is larger than a server takes.
    pub fn place_built(
        &mut self,
        options: &EncodeOptions,
        records: &mut RecordsBuilder,
    ) -> Result<AppendEntry, ClientError> {
        let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
        self.place_with(options, count, |out| records.finish(options, out))
    }

    /// Puts a batch of `count` records here that `encode` writes.
    ///
    /// # Errors
    ///
    /// What `encode` found wrong.
    pub fn place_with(
        &mut self,
        options: &EncodeOptions,
        count: u32,
        encode: impl FnOnce(&mut BytesMut) -> Result<usize, EncodeError>,
    ) -> Result<AppendEntry, ClientError> {
        let body = self
            .place(|out| encode(out).map(drop))
            .map_err(|error| encode_error(&error, options.stream_id))?;
        Ok(AppendEntry::new(options.stream_id, body, count))
    }
}

pub(crate) fn encode_error(error: &EncodeError, stream: StreamId) -> ClientError {
    let refused = match error {
        EncodeError::TooLarge { .. } => {
            ClientError::new(ErrorKind::Invalid, ErrorCode::PAYLOAD_TOO_LARGE, error.to_string())
        }
        other => ClientError::invalid(other.to_string()),
    };
    refused.with_stream(stream)
}

pub(crate) fn too_large(length: usize) -> ClientError {
    let what = format!("a batch of {length} bytes is over the limit of {MAX_BATCH_LENGTH}");
    ClientError::new(ErrorKind::Invalid, ErrorCode::PAYLOAD_TOO_LARGE, what)
}
