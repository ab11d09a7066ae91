//! What happens to one entry of an APPEND.

use sbp_messages::ErrorCode;
use sbp_record::MAX_BATCH_LENGTH;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId};

use super::table::{HostedStream, Phase, RangeState};
use crate::refusal::Refusal;

/// One entry, as far as the decision looks at it.
#[derive(Clone, Debug)]
pub(crate) struct AppendEntry {
    pub(crate) stream: StreamId,
    /// [`RangeIndex::OPEN`]: the open range.
    pub(crate) range: RangeIndex,
    /// [`Epoch::ANY`]: not compared.
    pub(crate) epoch: Epoch,
    /// The offset the sender insists on; `None`: the next one, whatever it is.
    pub(crate) expected_offset: Option<Offset>,
    /// Bytes of the batch.
    pub(crate) length: usize,
    /// What the batch's head says, or why it says nothing.
    pub(crate) head: Result<HeadFacts, Refusal>,
}

/// What the decision needs from a batch's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadFacts {
    /// 0: an empty batch, which asks where the writer stands.
    pub(crate) record_count: i64,
    /// The schema's fingerprint, when the body is typed columns.
    pub(crate) columns: Option<u64>,
}

/// What to do with an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Write it at these offsets.
    Store {
        key: RangeKey,
        epoch: Epoch,
        generation: u32,
        base_offset: Offset,
        next_offset: Offset,
    },
    /// There is nothing to write; the answer is success.
    Empty { next_offset: Offset },
    /// The range is being sealed and the next one will be here: judge it again when it is.
    Park,
    /// Nothing is written.
    Refuse {
        refusal: Refusal,
        next_offset: Option<Offset>,
    },
}

impl Verdict {
    fn refuse(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Refuse {
            refusal: Refusal::new(code, message),
            next_offset: None,
        }
    }
}

/// Judges an entry, first fault first: stream, size, head, schema, writer, range, seal, epoch, expected offset.
///
/// The writer's fields are stored with the batch and not judged yet; an empty batch is judged only up to there, so it
/// succeeds on a sealed range too. With `waits` an append to the open range waits for the next one while there is none.
pub(super) fn judge_append(stream: &HostedStream, waits: bool, entry: &AppendEntry) -> Verdict {
    let Some(last) = stream.last() else {
        return Verdict::Refuse {
            refusal: Refusal::no_stream(entry.stream),
            next_offset: None,
        };
    };
    if entry.length > MAX_BATCH_LENGTH {
        return Verdict::refuse(
            ErrorCode::PAYLOAD_TOO_LARGE,
            format!(
                "the batch for stream {} has {} bytes; {MAX_BATCH_LENGTH} is the most",
                entry.stream, entry.length
            ),
        );
    }
    let facts = match &entry.head {
        Err(refusal) => {
            return Verdict::Refuse {
                refusal: refusal.clone(),
                next_offset: None,
            };
        }
        Ok(_) if entry.range < RangeIndex::OPEN || entry.epoch < Epoch::ANY => {
            let message = format!("range {} and epoch {} name nothing", entry.range, entry.epoch);
            return Verdict::refuse(ErrorCode::INVALID_REQUEST, message);
        }
        Ok(facts) => facts,
    };
    if let Some(mismatch) = schema_mismatch(stream, entry.stream, facts) {
        return Verdict::refuse(ErrorCode::SCHEMA_MISMATCH, mismatch);
    }
    if facts.record_count == 0 {
        return Verdict::Empty { next_offset: last.next };
    }
    if waits && entry.range == RangeIndex::OPEN && matches!(last.phase, Phase::Sealing { .. }) {
        return Verdict::Park;
    }
    match writable_range(stream, last, entry) {
        Ok(range) => store(range, entry, facts.record_count),
        Err(refusal) => Verdict::Refuse {
            refusal,
            next_offset: None,
        },
    }
}

/// The range the entry goes to, if it takes appends.
fn writable_range<'a>(
    stream: &'a HostedStream,
    last: &'a RangeState,
    entry: &AppendEntry,
) -> Result<&'a RangeState, Refusal> {
    let range = if entry.range == RangeIndex::OPEN {
        last
    } else {
        stream
            .ranges
            .iter()
            .find(|range| range.index == entry.range)
            .ok_or_else(|| {
                let message = format!("stream {} has no range {} here", entry.stream, entry.range);
                Refusal::new(ErrorCode::RANGE_NOT_FOUND, message)
            })?
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
    if entry.epoch != Epoch::ANY && entry.epoch != range.epoch {
        let message = format!("range {name} has epoch {}, not {}", range.epoch, entry.epoch);
        return Err(Refusal::new(ErrorCode::EXPIRED_RANGE_EPOCH, message));
    }
    Ok(range)
}

fn store(range: &RangeState, entry: &AppendEntry, record_count: i64) -> Verdict {
    if let Some(expected) = entry.expected_offset.filter(|expected| *expected != range.next) {
        let message = format!("stream {} is at offset {}, not {expected}", entry.stream, range.next);
        let refusal = Refusal::new(ErrorCode::PRECONDITION_FAILED, message);
        return Verdict::Refuse {
            refusal,
            next_offset: Some(range.next),
        };
    }
    match range.next.checked_add(record_count).filter(|next| *next > range.next) {
        Some(next_offset) => Verdict::Store {
            key: range.key(entry.stream),
            epoch: range.epoch,
            generation: range.generation,
            base_offset: range.next,
            next_offset,
        },
        None => Verdict::refuse(
            ErrorCode::INVALID_REQUEST,
            format!(
                "{record_count} records do not fit behind offset {} of stream {}",
                range.next, entry.stream
            ),
        ),
    }
}

/// Why a batch cannot go into a stream, as far as types are concerned.
fn schema_mismatch(stream: &HostedStream, id: StreamId, facts: &HeadFacts) -> Option<String> {
    match (facts.columns, stream.facts.fingerprints.is_empty()) {
        (None, true) => None,
        (None, false) if facts.record_count == 0 => None,
        (None, false) => Some(format!("stream {id} has typed columns and takes only batches of them")),
        (Some(_), true) => Some(format!("stream {id} has no schema and takes no typed columns")),
        (Some(found), false) if stream.facts.fingerprints.contains(&found) => None,
        (Some(found), false) => Some(format!(
            "stream {id} has other columns than the batch (fingerprint {found:016x})"
        )),
    }
}
