//! Judges one entry of an APPEND: stored, refused, answered at once or kept waiting.

use sbp_messages::ErrorCode;
use sbp_record::MAX_BATCH_LENGTH;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId};

use super::not_taken::{cut_off, not_taken};
use super::outcome::{NotStored, Stored};
use super::stream::{HostedStream, Phase, RangeState};
use super::writers::{SequenceCheck, Until, Writer, WriterSequence, expected, stand};
use crate::refusal::Refusal;

/// The fields of an APPEND entry that the judgement depends on.
#[derive(Clone, Debug)]
pub(crate) struct AppendEntry {
    pub(crate) stream: StreamId,
    /// The range to append to; `None`: the open one.
    pub(crate) range: Option<RangeIndex>,
    /// The epoch the sender believes the range to have; `None`: any.
    pub(crate) epoch: Option<Epoch>,
    /// The offset the first record must get; `None`: any.
    pub(crate) expected_offset: Option<Offset>,
    /// Bytes of the batch.
    pub(crate) length: usize,
    /// What the batch's head says, or the refusal to answer with where the head cannot be read.
    pub(crate) head: Result<HeadFacts, Refusal>,
}

/// What the decision needs from a batch's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadFacts {
    /// 0: an empty batch, which asks for the writer's next sequence or, as a fence, makes the writer's epoch current.
    pub(crate) record_count: i64,
    /// Whether an empty batch is a fence.
    pub(crate) is_fence: bool,
    /// The schema's fingerprint, when the body is typed columns.
    pub(crate) columns: Option<u64>,
    /// The idempotent writer, if there is one.
    pub(crate) claim: Option<WriterSequence>,
}

/// A fence to be written: an empty batch that makes its writer's epoch current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) key: RangeKey,
    /// The epoch of the range; the writer's is in `claim`.
    pub(crate) epoch: Epoch,
    /// The range's next offset. A fence takes none, so the next record gets this offset.
    pub(crate) base_offset: Offset,
    pub(crate) claim: WriterSequence,
    /// The sequence that the writer goes on at: a fence does not change it.
    pub(crate) next_sequence: i64,
}

/// What to do with an APPEND entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AppendDecision {
    /// Write the batch at these offsets.
    Store {
        key: RangeKey,
        epoch: Epoch,
        generation: u32,
        base_offset: Offset,
        next_offset: Offset,
        /// The writer's sequence after this batch, if there is a writer.
        next_sequence: Option<i64>,
    },
    /// Write the fence of a writer.
    Fence(Fence),
    /// There is nothing to write; the answer is success.
    Done(Stored),
    /// The batch repeats one that is not synced yet: answer with `stored` when everything before `until` is synced.
    After { until: Offset, stored: Stored },
    /// The writer asks for its next sequence while batches or fences of it are unsynced: answer when the last of them
    /// is synced or has failed.
    Ask { until: Until },
    /// The refusal rests on what is not confirmed yet: answer with it when that is.
    RefuseAfter { until: Until, refused: NotStored },
    /// The range is being sealed: judge the entry again when the next range is here, or the seal is undone.
    Park,
    /// Write nothing and answer with an error.
    Refuse(NotStored),
}

/// Judges an entry. Of several faults the first in this order is answered: stream, size, head, schema, writer epoch,
/// repeat, range, seal, range epoch, sequence, expected offset.
///
/// An empty batch that is no new fence is judged only up to "repeat", so it succeeds on a sealed range too. With
/// `waits`, an append that names no range waits while the last range is being sealed.
pub(super) fn judge_append(stream: &HostedStream, waits: bool, entry: &AppendEntry) -> AppendDecision {
    let (facts, last) = match judge_batch(stream, entry) {
        Ok(found) => found,
        Err(refusal) => return AppendDecision::Refuse(refusal.into()),
    };
    let writer = facts.claim.as_ref().and_then(|claim| stream.writer(claim.writer));
    let standing = facts
        .claim
        .map_or(SequenceCheck::Next, |claim| stand(writer, &claim, facts.record_count));
    if let SequenceCheck::Fenced { by } = standing {
        return AppendDecision::Refuse(fenced(entry.stream, by).into());
    }
    let next_sequence = expected(writer, facts.claim.as_ref());
    let new_fence = facts.claim.filter(|claim| {
        let is_new = writer.is_none_or(|writer| claim.epoch > writer.epoch());
        facts.record_count == 0 && facts.is_fence && is_new
    });
    if facts.record_count == 0 && new_fence.is_none() {
        let is_repeat = facts.is_fence && facts.claim.is_some();
        return match writer.and_then(Writer::promised_until) {
            Some(until) => AppendDecision::Ask { until },
            None => AppendDecision::Done(Stored {
                base_offset: None,
                next_offset: last.next,
                next_marks: 0,
                duplicate: is_repeat,
                next_sequence,
            }),
        };
    }
    if let (SequenceCheck::Repeat { base_offset }, None) = (standing, new_fence) {
        return repeat(stream, last, base_offset, facts.record_count, next_sequence);
    }
    if waits && entry.range.is_none() && matches!(last.phase, Phase::Sealing { .. }) {
        return AppendDecision::Park;
    }
    writable_range(stream, last, entry)
        .map_err(NotStored::from)
        .and_then(|range| {
            if let Some(claim) = new_fence {
                return Ok(AppendDecision::Fence(Fence {
                    key: range.key(entry.stream),
                    epoch: range.epoch,
                    base_offset: range.next,
                    claim,
                    next_sequence: writer.map_or(0, Writer::next_sequence),
                }));
            }
            check_sequence(entry, standing)?;
            store(range, entry, facts)
        })
        .unwrap_or_else(|refused| {
            AppendDecision::Refuse(NotStored {
                next_sequence,
                ..refused
            })
        })
}

/// In a range that others hold too, a refusal that rests on what is not confirmed waits until it is: what it rests on may
/// turn out not to be stored.
pub(super) fn put_off(stream: &HostedStream, entry: &AppendEntry, verdict: AppendDecision) -> AppendDecision {
    let AppendDecision::Refuse(refused) = verdict else {
        return verdict;
    };
    let until = match stream.last() {
        Some(last) if last.replica.is_some() => rests_on(stream, last, entry, refused.refusal.code),
        _ => None,
    };
    match until {
        Some(until) => AppendDecision::RefuseAfter { until, refused },
        None => AppendDecision::Refuse(refused),
    }
}

/// What is not confirmed and a refusal with this code rests on.
fn rests_on(stream: &HostedStream, last: &RangeState, entry: &AppendEntry, code: ErrorCode) -> Option<Until> {
    match code {
        ErrorCode::PRECONDITION_FAILED => (last.next > last.confirmed).then_some(Until::Synced(last.next)),
        ErrorCode::SEQUENCE_GAP | ErrorCode::SEQUENCE_OVERLAP | ErrorCode::WRITER_FENCED => {
            let claim = entry.head.as_ref().ok()?.claim?;
            stream.writer(claim.writer)?.promised_until()
        }
        _ => None,
    }
}

/// The refusal for a batch with a lower epoch than its writer's current one, `by`.
pub(super) fn fenced(stream: StreamId, by: i64) -> Refusal {
    let message = format!(
        "this writer of stream {stream} was opened again elsewhere: epoch {by} is current, and only a higher one can take over"
    );
    Refusal::new(ErrorCode::WRITER_FENCED, message).with_detail(by.to_be_bytes())
}

/// The checks that do not depend on the range: stream, size, head, numbers in range, schema.
fn judge_batch<'a>(
    stream: &'a HostedStream,
    entry: &'a AppendEntry,
) -> Result<(&'a HeadFacts, &'a RangeState), Refusal> {
    let last = stream.last().ok_or_else(|| Refusal::no_stream(entry.stream))?;
    if entry.length > MAX_BATCH_LENGTH {
        let message = format!(
            "the batch for stream {} has {} bytes; {MAX_BATCH_LENGTH} is the most",
            entry.stream, entry.length
        );
        return Err(Refusal::new(ErrorCode::PAYLOAD_TOO_LARGE, message));
    }
    let facts = entry.head.as_ref().map_err(Refusal::clone)?;
    if let Some(range) = entry.range.filter(|range| range.0 < 0) {
        return Err(Refusal::invalid(format!("{range} is no range: they start at 0")));
    }
    if let Some(epoch) = entry.epoch.filter(|epoch| epoch.0 < 0) {
        return Err(Refusal::invalid(format!("{epoch} is no epoch: they start at 0")));
    }
    match schema_mismatch(stream, entry.stream, facts) {
        Some(mismatch) => Err(Refusal::new(ErrorCode::SCHEMA_MISMATCH, mismatch)),
        None => Ok((facts, last)),
    }
}

/// The answer to a batch that repeats an earlier one: at once if that is synced, else when it is.
fn repeat(
    stream: &HostedStream,
    last: &RangeState,
    base_offset: Option<Offset>,
    count: i64,
    next_sequence: Option<i64>,
) -> AppendDecision {
    let end = base_offset.and_then(|base| base.checked_add(count));
    let stored = Stored {
        base_offset,
        next_offset: end.unwrap_or(last.next),
        next_marks: 0,
        duplicate: true,
        next_sequence,
    };
    match end {
        Some(until) if until > stream.confirmed_end() => AppendDecision::After { until, stored },
        _ => AppendDecision::Done(stored),
    }
}

fn check_sequence(entry: &AppendEntry, standing: SequenceCheck) -> Result<(), Refusal> {
    match standing {
        SequenceCheck::Gap { expected } => Err(Refusal::new(
            ErrorCode::SEQUENCE_GAP,
            format!(
                "stream {} expects sequence {expected} of this writer next",
                entry.stream
            ),
        )),
        SequenceCheck::Overlap { expected } => Err(Refusal::new(
            ErrorCode::SEQUENCE_OVERLAP,
            format!(
                "part of the batch is in stream {} already, which expects sequence {expected} of this writer next",
                entry.stream
            ),
        )),
        SequenceCheck::Next | SequenceCheck::Repeat { .. } | SequenceCheck::Fenced { .. } => Ok(()),
    }
}

/// The range that the entry names, or the last one; an error unless it is open and has the epoch the sender expects.
fn writable_range<'a>(
    stream: &'a HostedStream,
    last: &'a RangeState,
    entry: &AppendEntry,
) -> Result<&'a RangeState, Refusal> {
    let range = match entry.range {
        None => last,
        Some(index) => stream.ranges.iter().find(|range| range.index == index).ok_or_else(|| {
            let message = format!("stream {} has no range {index} here", entry.stream);
            Refusal::new(ErrorCode::RANGE_NOT_FOUND, message)
        })?,
    };
    let name = range.key(entry.stream);
    match range.phase {
        Phase::Open => {}
        Phase::Sealing { .. } | Phase::Sealed => {
            return Err(Refusal::new(
                ErrorCode::RANGE_ALREADY_SEALED,
                format!("range {name} is sealed"),
            ));
        }
        Phase::EndDamaged => {
            let message = format!("the end of range {name} is damaged on disk, so its next offset is unknown");
            return Err(Refusal::new(ErrorCode::RS_DATA_CORRUPTED, message));
        }
    }
    Refusal::check_epoch(name, range.epoch, entry.epoch)?;
    if let Some(replica) = &range.replica
        && let Err(why) = replica.takes_appends()
    {
        return Err(not_taken(name, why, replica.range().primary()));
    }
    if range.is_cut_off {
        return Err(cut_off(name));
    }
    Ok(range)
}

fn store(range: &RangeState, entry: &AppendEntry, facts: &HeadFacts) -> Result<AppendDecision, NotStored> {
    if let Some(expected) = entry.expected_offset.filter(|expected| *expected != range.next) {
        let message = format!("stream {} is at offset {}, not {expected}", entry.stream, range.next);
        let refusal = Refusal::new(ErrorCode::PRECONDITION_FAILED, message);
        return Err(NotStored {
            next_offset: Some(range.next),
            ..refusal.into()
        });
    }
    let count = facts.record_count;
    let next_offset = range.next.checked_add(count).filter(|next| *next > range.next);
    let next_offset = next_offset.ok_or_else(|| {
        Refusal::invalid(format!(
            "{count} records do not fit behind offset {} of stream {}",
            range.next, entry.stream
        ))
    })?;
    Ok(AppendDecision::Store {
        key: range.key(entry.stream),
        epoch: range.epoch,
        generation: range.generation,
        base_offset: range.next,
        next_offset,
        next_sequence: facts.claim.map(|claim| claim.sequence.saturating_add(count)),
    })
}

/// Why the batch's columns do not fit the stream's schema; `None` if they do.
fn schema_mismatch(stream: &HostedStream, id: StreamId, facts: &HeadFacts) -> Option<String> {
    if facts.record_count == 0 {
        // An empty batch has no columns, whatever fingerprint its head gives.
        return None;
    }
    match (facts.columns, stream.facts.fingerprints.is_empty()) {
        (None, true) => None,
        (None, false) => Some(format!("stream {id} has typed columns and takes only batches of them")),
        (Some(_), true) => Some(format!("stream {id} has no schema and takes no typed columns")),
        (Some(found), false) if stream.facts.fingerprints.contains(&found) => None,
        (Some(found), false) => Some(format!(
            "stream {id} has other columns than the batch (fingerprint {found:016x})"
        )),
    }
}
