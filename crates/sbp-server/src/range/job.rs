//! A batch on its way to the log, and the context that the log returns with its outcome.

use std::sync::Arc;
use std::time::Instant;

use sbp_frame::CallId;
use sbp_log::{EntryHead, LogEntry};
use sbp_types::{Offset, RangeKey, StreamId, TimestampMs, WriterId};
use smallvec::SmallVec;

use super::append::{AppendEntry, Fence};
use super::outcome::{AppendDone, NotStored, Stored};
use super::requester::Requester;
use crate::refusal::Refusal;

/// One batch on its way from a connection to the log.
#[derive(Debug)]
pub(crate) struct AppendJob {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    pub(crate) entry: AppendEntry,
    pub(crate) max_timestamp: TimestampMs,
    /// The deadline that the peer gave, after which the append must not be started.
    pub(crate) expires: Option<Instant>,
    /// The batch as it was received.
    pub(crate) chunks: SmallVec<[bytes::Bytes; 1]>,
}

/// The context of a log entry, which the log returns when the entry is synced or has failed.
#[derive(Debug)]
pub(crate) enum LogContext {
    /// The entry was a batch.
    Append(AppendContext),
    /// The entry was a writer's fence.
    Fence(FenceContext),
    /// The entry was a barrier: everything that the range accepted before its seal has ended.
    Drained(RangeKey),
}

/// How to answer a batch's append, and what to undo if it fails.
#[derive(Debug)]
pub(crate) struct AppendContext {
    pub(super) requester: Arc<dyn Requester>,
    pub(super) call: CallId,
    pub(super) request_index: i32,
    pub(super) key: RangeKey,
    pub(super) generation: u32,
    pub(super) base_offset: Offset,
    pub(super) next_offset: Offset,
    /// The writer's sequence after the batch; -1 without a writer.
    pub(super) next_sequence: i64,
}

/// How to answer a writer's fence.
#[derive(Clone, Debug)]
pub(crate) struct FenceContext {
    pub(super) requester: Arc<dyn Requester>,
    pub(super) call: CallId,
    pub(super) request_index: i32,
    pub(super) stream: StreamId,
    pub(super) writer: WriterId,
    pub(super) epoch: i64,
    next_offset: Offset,
    next_sequence: i64,
}

impl FenceContext {
    /// The answer to the fence's sender.
    pub(super) fn done(&self, failed: Option<&Refusal>) -> AppendDone {
        let stored = Stored {
            base_offset: Offset(-1),
            next_offset: self.next_offset,
            duplicate: false,
            next_sequence: self.next_sequence,
        };
        AppendDone {
            call: self.call,
            request_index: self.request_index,
            stream: self.stream,
            outcome: failed.map_or(Ok(stored), |refusal| Err(refusal.clone().into())),
        }
    }
}

/// What is needed to refuse an entry that the log did not queue.
pub(super) enum Promised {
    Batch {
        call: CallId,
        request_index: i32,
        key: RangeKey,
        base_offset: Offset,
    },
    Fence(FenceContext),
}

/// The log entry for a fence.
pub(super) fn fence_entry(
    requester: &Arc<dyn Requester>,
    job: &AppendJob,
    append_time: TimestampMs,
    fence: &Fence,
) -> LogEntry<LogContext> {
    let Fence {
        key,
        epoch,
        base_offset,
        claim,
        next_sequence,
    } = *fence;
    LogEntry {
        head: EntryHead {
            key,
            epoch,
            base_offset,
            count: 0,
            append_time,
            max_timestamp: TimestampMs(0),
            writer: claim.writer,
            writer_epoch: claim.epoch,
            base_sequence: next_sequence,
        },
        prefix: SmallVec::new(),
        chunks: SmallVec::new(),
        context: LogContext::Fence(FenceContext {
            requester: Arc::clone(requester),
            call: job.call,
            request_index: job.request_index,
            stream: key.stream,
            writer: claim.writer,
            epoch: claim.epoch,
            next_offset: base_offset,
            next_sequence,
        }),
    }
}

impl LogContext {
    pub(super) fn promised(&self) -> Option<Promised> {
        match self {
            Self::Append(context) => Some(Promised::Batch {
                call: context.call,
                request_index: context.request_index,
                key: context.key,
                base_offset: context.base_offset,
            }),
            Self::Fence(context) => Some(Promised::Fence(context.clone())),
            Self::Drained(_) => None,
        }
    }
}

impl AppendJob {
    pub(super) fn done(&self, outcome: Result<Stored, NotStored>) -> AppendDone {
        AppendDone {
            call: self.call,
            request_index: self.request_index,
            stream: self.entry.stream,
            outcome,
        }
    }

    pub(super) fn refuse(&self, refusal: Refusal) -> AppendDone {
        self.done(Err(refusal.into()))
    }
}
