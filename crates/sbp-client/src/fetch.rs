//! What FETCH returns: frames taken apart into results and record batches.

use bytes::Bytes;
use sbp_frame::Frame;
use sbp_messages::{FetchResponse, FetchResult, Message};
use sbp_record::{inspect, split_batches};
use sbp_types::{Offset, StreamId};

use crate::connection::{refused, undecodable};
use crate::error::ClientError;
use crate::failure::Cause;

/// One record batch as it was read, and which of its records were asked for.
#[derive(Clone, Debug)]
pub struct FetchedBatch {
    /// The stream.
    pub stream: StreamId,
    /// The offset of the batch's first record, which may lie before `from`.
    pub base_offset: Offset,
    /// The offset of the batch's last record, which may lie behind `to`.
    pub last_offset: Offset,
    /// The first offset asked for: earlier records of the batch are not the caller's.
    pub from: Offset,
    /// The first offset not asked for any more: records from here on are not the caller's.
    pub to: Offset,
    /// The stream's confirmed end when the server answered.
    pub high_watermark: Offset,
    /// The whole batch, head, body and padding: a slice of what was received.
    pub bytes: Bytes,
}

impl FetchedBatch {
    /// How many of its records were asked for.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.to.distance_from(self.from)
    }

    /// Whether none of its records was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One result of an answer, with its part of the payload.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) result: FetchResult,
    pub(crate) bytes: Bytes,
}

/// Takes one frame of an answer to a FETCH of `entries` entries apart.
pub(crate) fn parts(frame: Frame, entries: usize) -> Result<Vec<Part>, Cause> {
    let answer = FetchResponse::decode(&frame.header).map_err(|error| undecodable(&frame, &error))?;
    if !answer.status.is_success() {
        return Err(refused(&answer.status, answer.throttle_time_ms));
    }
    let mut payload = frame.payload.into_contiguous();
    let violation = |what: &str| Cause::Protocol {
        what: format!("a FETCH answer {what}"),
    };
    let mut parts = Vec::with_capacity(answer.fetch_responses.len());
    for result in answer.fetch_responses {
        let length = usize::try_from(result.batch_length).unwrap_or(usize::MAX);
        if length > payload.len() {
            return Err(violation("claims more bytes than its payload has"));
        }
        let index = usize::try_from(result.request_index).unwrap_or(usize::MAX);
        if index >= entries {
            return Err(violation("names an entry that was not asked for"));
        }
        let bytes = payload.split_to(length);
        parts.push(Part { index, result, bytes });
    }
    if payload.is_empty() {
        Ok(parts)
    } else {
        Err(violation("has bytes that belong to no result"))
    }
}

/// The batches of one result, which must go on exactly at `next` and leave no gap. Records outside `next .. end` are
/// trimmed by bounds. Returns the offset behind the last batch, at most `end`.
pub(crate) fn batches(
    stream: StreamId,
    bytes: &Bytes,
    high_watermark: Offset,
    next: Offset,
    end: Option<Offset>,
    out: &mut Vec<FetchedBatch>,
) -> Result<Offset, ClientError> {
    let damaged = |what: String, at: Offset| ClientError::damaged(what).with_stream(stream).with_offset(at);
    let mut place = next;
    for batch in split_batches(bytes) {
        let batch = batch.map_err(|error| damaged(error.to_string(), place))?;
        let head = inspect(std::slice::from_ref(&batch), false).map_err(|error| damaged(error.to_string(), place))?;
        let behind = head
            .end_offset()
            .ok_or_else(|| damaged("a batch ends beyond the last offset".into(), place))?;
        let is_first = place == next;
        if head.base_offset > place || (!is_first && head.base_offset < place) {
            let what = format!(
                "records are missing: a batch begins at {} instead of {place}",
                head.base_offset
            );
            return Err(ClientError::incomplete(what).with_stream(stream).with_offset(place));
        }
        if behind <= place || head.record_count == 0 {
            continue;
        }
        let to = end.map_or(behind, |end| end.min(behind));
        if place < to {
            out.push(FetchedBatch {
                stream,
                base_offset: head.base_offset,
                last_offset: Offset(behind.0 - 1),
                from: place,
                to,
                high_watermark,
                bytes: batch,
            });
        }
        place = behind;
    }
    Ok(end.map_or(place, |end| place.min(end).max(next)))
}

#[cfg(test)]
mod tests;
