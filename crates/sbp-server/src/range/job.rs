//! A batch on its way to the log, and the context that the log returns with its outcome.

use std::sync::Arc;
use std::time::Instant;

use sbp_frame::CallId;
use sbp_log::{EntryHead, EntryKind, LogEntry};
use sbp_record::{stamp_base_offset, without_stamp};
use sbp_types::{Offset, Position, RangeKey, TimestampMs, WriterId};
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
    /// The entry was sent by another server that holds the range.
    Taken(TakenContext),
    /// The entry was a part of the state of the writers that begins a shared range. The place behind it.
    Begun(RangeKey, Position),
    /// The entry was a barrier: everything that a shared range had queued when it was fenced has ended.
    Fenced(RangeKey),
    /// The entry was a barrier: everything that the range accepted before its seal has ended.
    Drained(RangeKey),
}

impl LogContext {
    /// Whether the entry belongs to a range that others hold too.
    pub(super) fn is_of_copy(&self) -> bool {
        match self {
            Self::Append(append) => append.until.is_some(),
            Self::Taken(_) | Self::Begun(..) | Self::Fenced(_) => true,
            Self::Drained(_) => false,
        }
    }

    /// When the append arrived, if it is one.
    pub(super) fn arrived(&self) -> Option<Instant> {
        match self {
            Self::Append(context) => Some(context.entry.arrived),
            Self::Taken(_) | Self::Begun(..) | Self::Fenced(_) | Self::Drained(_) => None,
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
    /// In a range that others hold too, the place behind the entry: the append is answered when that is confirmed.
    pub(super) until: Option<(RangeKey, Position)>,
}

/// How to answer another server that has sent an entry.
#[derive(Debug)]
pub(crate) struct TakenContext {
    pub(super) requester: Arc<dyn Requester>,
    pub(super) entry: EntryId,
    pub(super) key: RangeKey,
    /// The place behind it.
    pub(super) to: Position,
    /// Whether it was written back or copied, not sent by the primary as it took it.
    pub(super) is_written_back: bool,
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

/// The log entry for a batch with this head.
pub(super) fn batch_entry(
    requester: &Arc<dyn Requester>,
    job: &AppendJob,
    head: EntryHead,
    generation: u32,
    next_sequence: Option<i64>,
) -> LogEntry<LogContext> {
    let (key, base) = (head.key, head.base_offset);
    LogEntry {
        head,
        prefix: SmallVec::from_slice(&stamp_base_offset(base)),
        chunks: without_stamp(&job.chunks),
        context: LogContext::Append(AppendContext {
            requester: Arc::clone(requester),
            entry: job.id(),
            stored: Stored {
                base_offset: Some(base),
                next_offset: head.end_offset().unwrap_or(base),
                next_marks: 0,
                duplicate: false,
                next_sequence,
            },
            promise: Promise::Batch { key, generation, base },
            until: None,
        }),
    }
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
                next_marks: 0,
                duplicate: false,
                next_sequence: Some(next_sequence),
            },
            promise: Promise::Fence {
                writer: claim.writer,
                epoch: claim.epoch,
            },
            until: None,
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

    pub(crate) fn refuse(&self, refusal: Refusal) -> AppendDone {
        self.id().done(Err(refusal.into()))
    }
}
