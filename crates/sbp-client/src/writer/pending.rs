//! A batch on its way from a caller to its acknowledgement.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sbp_record::{EncodeOptions, MAX_BATCH_LENGTH, WriterStamp, encode_empty, encode_fence, stamp_writer};
use smallvec::smallvec;
use tokio::sync::oneshot;

use crate::append::{Records, too_large};
use crate::error::ClientError;
use crate::outcome::Ack;
use crate::submission::{AppendEntry, AppendOp, AttemptSink, Body, Reply, Submissions};

/// Who is told of one append.
pub(super) type Waiter = oneshot::Sender<Result<Ack, ClientError>>;

/// One encoded batch, kept until it is answered, and who waits for that.
#[derive(Debug)]
pub(super) struct PendingBatch {
    arena: Bytes,
    entry: AppendEntry,
    /// The stamp it is encoded with.
    stamp: WriterStamp,
    waiter: Waiter,
}

impl PendingBatch {
    /// Encodes `records` with `options`, whose stamp may turn out to be another one.
    pub(super) fn new(options: &EncodeOptions, records: Records, waiter: Waiter) -> Result<Self, ClientError> {
        let is_encoded = matches!(records, Records::Encoded { .. });
        let mut encoded = Submissions::new();
        let entry = encoded.place_records(options, records)?;
        let stamp = options.writer.unwrap_or_default();
        let mut pending = Self {
            arena: encoded.arena.freeze(),
            entry,
            stamp,
            waiter,
        };
        if is_encoded {
            pending.stamp(stamp)?;
        }
        match pending.entry.body.len() {
            length if length > MAX_BATCH_LENGTH => Err(too_large(length).with_stream(pending.entry.stream)),
            _ => Ok(pending),
        }
    }

    /// How many records it holds.
    pub(super) fn records(&self) -> i64 {
        self.entry.records.into()
    }

    /// Adds the batch to what is sent, with the stamp it now has.
    pub(super) fn send(
        &mut self,
        stamp: WriterStamp,
        deadline: Instant,
        sink: Arc<dyn AttemptSink>,
        token: u64,
        out: &mut Submissions,
    ) -> Result<(), ClientError> {
        if self.stamp != stamp {
            self.stamp(stamp)?;
        }
        let op = AppendOp::new(
            smallvec![self.entry.clone()],
            deadline,
            Reply::attempts(sink, smallvec![token]),
        );
        out.adopt(op, &self.arena);
        Ok(())
    }

    /// Writes the head anew. The body stays as it is.
    fn stamp(&mut self, stamp: WriterStamp) -> Result<(), ClientError> {
        let wrong = |error: sbp_record::BatchError| {
            ClientError::invalid(format!("the batch cannot be a writer's: {error}")).with_stream(self.entry.stream)
        };
        let mut arena = BytesMut::new();
        let records;
        self.entry.body = match &self.entry.body {
            Body::Copied(range) => {
                let batch = self.arena.get(range.clone()).unwrap_or_default();
                let found = stamp_writer(batch, &stamp, &mut arena).map_err(wrong)?;
                arena.extend_from_slice(batch.get(found.body_from..).unwrap_or_default());
                records = found.records;
                Body::Copied(0..arena.len())
            }
            Body::Shared { head, body, padding } if head.is_empty() => {
                let found = stamp_writer(body, &stamp, &mut arena).map_err(wrong)?;
                records = found.records;
                Body::Shared {
                    head: 0..arena.len(),
                    body: body.slice(found.body_from.min(body.len())..),
                    padding: *padding,
                }
            }
            Body::Shared { head, body, padding } => {
                let old = self.arena.get(head.clone()).unwrap_or_default();
                records = stamp_writer(old, &stamp, &mut arena).map_err(wrong)?.records;
                Body::Shared {
                    head: 0..arena.len(),
                    body: body.clone(),
                    padding: *padding,
                }
            }
        };
        self.entry.records = u32::try_from(records).unwrap_or(0);
        self.arena = arena.freeze();
        self.stamp = stamp;
        Ok(())
    }

    /// Tells who waits.
    pub(super) fn tell(self, result: Result<Ack, ClientError>) {
        // An error means that nobody waits any more.
        drop(self.waiter.send(result));
    }
}

/// Adds the question where a writer stands, or that its epoch becomes current.
pub(super) fn send_question(
    options: &EncodeOptions,
    is_fence: bool,
    deadline: Instant,
    reply: Reply,
    out: &mut Submissions,
) -> Result<(), ClientError> {
    let encode = if is_fence { encode_fence } else { encode_empty };
    let body = out
        .place(|arena| encode(options, arena).map(drop))
        .map_err(|error| ClientError::invalid(error.to_string()))?;
    let entry = AppendEntry {
        is_fence,
        ..AppendEntry::new(options.stream_id, body, 0)
    };
    out.push(AppendOp::new(smallvec![entry], deadline, reply));
    Ok(())
}
