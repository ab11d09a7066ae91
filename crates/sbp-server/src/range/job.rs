//! A batch on its way to the log, and the context that the log returns with its outcome.

use std::sync::Arc;
use std::time::Instant;

use sbp_frame::CallId;
use sbp_log::{EntryHead, EntryKind, LogEntry};
use sbp_types::{Offset, RangeKey, TimestampMs, WriterId};
use smallvec::SmallVec;

use super::append::{AppendEntry, Fence};
use super::outcome::{AppendDone, EntryId, Stored};
use super::requester::Requester;
use crate::access::Gate;
use crate::refusal::Refusal;

/// One batch on its way from a connection to the log.
#[derive(Debug)]
pub(crate) struct AppendJob {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    pub(crate) entry: AppendEntry,
    pub(crate) max_timestamp: TimestampMs,
    /// When the connection's task had read it.
    pub(crate) arrived: Instant,
    /// The deadline that the peer gave, after which the append must not be started.
    pub(crate) expires: Option<Instant>,
    /// What its peer may do. An append that has waited is judged by it again: its stream may have another name.
    pub(crate) gate: Gate,
    /// The batch as it was received.
    pub(crate) chunks: SmallVec<[bytes::Bytes; 1]>,
}

/// The context of a log entry, which the log returns when the entry is synced or has failed.
#[derive(Debug)]
pub(crate) enum LogContext {
    /// The entry was a batch or a writer's fence.
    Append(AppendContext),
    /// The entry was a barrier: everything that the range accepted before its seal has ended.
    Drained(RangeKey),
}

impl LogContext {
    /// When the append arrived, if it is one.
    pub(super) fn arrived(&self) -> Option<Instant> {
        match self {
            Self::Append(context) => Some(context.entry.arrived),
            Self::Drained(_) => None,
        }
    }
}

/// How to answer an append, and what to undo if it fails.
#[derive(Debug)]
pub(crate) struct AppendContext {
    pub(super) requester: Arc<dyn Requester>,
    pub(super) entry: EntryId,
    /// The answer once the log has synced it.
    pub(super) stored: Stored,
    pub(super) promise: Promise,
}

/// What an append was promised, which is taken back if the log does not store it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Promise {
    /// Offsets of a range for a batch, from `base` on.
    Batch {
        key: RangeKey,
        generation: u32,
        base: Offset,
    },
    /// That the writer's epoch becomes current.
    Fence { writer: WriterId, epoch: i64 },
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
            kind: EntryKind::Fence,
            epoch,
            base_offset,
            append_time,
            writer: claim.writer,
            writer_epoch: claim.epoch,
            base_sequence: next_sequence,
            ..EntryHead::default()
        },
        prefix: SmallVec::new(),
        chunks: SmallVec::new(),
        context: LogContext::Append(AppendContext {
            requester: Arc::clone(requester),
            entry: job.id(),
            stored: Stored {
                base_offset: None,
                next_offset: base_offset,
                duplicate: false,
                next_sequence: Some(next_sequence),
            },
            promise: Promise::Fence {
                writer: claim.writer,
                epoch: claim.epoch,
            },
        }),
    }
}

impl AppendJob {
    pub(super) fn id(&self) -> EntryId {
        EntryId {
            call: self.call,
            request_index: self.request_index,
            stream: self.entry.stream,
            arrived: self.arrived,
        }
    }

    pub(super) fn refuse(&self, refusal: Refusal) -> AppendDone {
        self.id().done(Err(refusal.into()))
    }
}
