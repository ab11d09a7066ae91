//! Answers to FETCH: frames taken apart into results and record batches.

use std::sync::Arc;

use bytes::Bytes;
use sbp_frame::Frame;
use sbp_messages::{FetchResponse, FetchResult, Message, Status};
use sbp_record::{Batch, BodyEncoding, inspect, split_batches};
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::client::Client;
use crate::error::ClientError;
use crate::failure::Cause;
use crate::pinned::FrameMemory;

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
    /// The frame it is a slice of.
    pub(crate) frame: Arc<FrameMemory>,
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

impl FetchedBatch {
    /// The batch's bytes for a caller that may keep them for long: a view of the received frame, which is counted
    /// ([`ClientStats::bytes_pinned`](crate::ClientStats::bytes_pinned)) until the last view is gone; or a copy, of
    /// batches of up to 16 KiB, of those that came in small frames, and of all while the frames kept come to
    /// [`ClientConfig::max_pinned_bytes`](crate::ClientConfig::max_pinned_bytes).
    #[must_use]
    pub fn keep(&self, client: &Client) -> Bytes {
        client.core().pinned.keep(self.bytes.clone(), &self.frame)
    }
}

/// Where an entry that was answered stands in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchedPlace {
    /// The first batch's first record; without data, the offset that was asked for.
    pub(crate) base_offset: Offset,
    /// Where reading goes on.
    pub(crate) next_offset: Offset,
    /// The first offset that is kept.
    pub(crate) start_offset: Offset,
    /// The confirmed end.
    pub(crate) high_watermark: Offset,
    /// The range is sealed and `next_offset` is its end.
    pub(crate) end_of_range: bool,
}

/// An entry that was refused.
#[derive(Clone, Debug)]
pub(crate) struct RefusedEntry {
    pub(crate) status: Status,
    /// The first offset that is kept and the confirmed end, if the server says them.
    pub(crate) bounds: Option<(Offset, Offset)>,
}

/// What an answer says of one entry. A success without its offsets breaks the protocol.
pub(crate) fn outcome(result: FetchResult) -> Result<Result<FetchedPlace, RefusedEntry>, Cause> {
    if !result.status.is_success() {
        return Ok(Err(RefusedEntry {
            bounds: result.start_offset.zip(result.high_watermark),
            status: result.status,
        }));
    }
    let place = || {
        Some(FetchedPlace {
            base_offset: result.base_offset?,
            next_offset: result.next_offset?,
            start_offset: result.start_offset?,
            high_watermark: result.high_watermark?,
            end_of_range: result.end_of_range,
        })
    };
    place()
        .map(Ok)
        .ok_or_else(|| violation("does not say where its records are"))
}

fn violation(what: &str) -> Cause {
    Cause::Protocol {
        what: format!("a FETCH answer {what}"),
    }
}

/// What an answer says of one entry, with its part of the payload.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) outcome: Result<FetchedPlace, RefusedEntry>,
    pub(crate) bytes: Bytes,
    /// The frame that `bytes` is a part of.
    pub(crate) frame: Arc<FrameMemory>,
}

/// Takes one frame of an answer to a FETCH of `entries` entries apart: its results, and the pause that it asks for in ms.
pub(crate) fn parts(frame: Frame, entries: usize) -> Result<(Vec<Part>, i32), Cause> {
    let answer = FetchResponse::decode(&frame.header).map_err(|error| Cause::undecodable(&frame, &error))?;
    if !answer.status.is_success() {
        return Err(Cause::refused(&answer.status, answer.throttle_time_ms));
    }
    let mut payload = frame.payload.into_contiguous();
    let memory = FrameMemory::new(&payload);
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
        parts.push(Part {
            index,
            outcome: outcome(result)?,
            bytes,
            frame: Arc::clone(&memory),
        });
    }
    if payload.is_empty() {
        Ok((parts, answer.throttle_time_ms))
    } else {
        Err(violation("has bytes that belong to no result"))
    }
}

/// Where reading goes on behind an answer of which only the header is here, if it answers one entry and holds data that
/// goes on at `from`.
pub(crate) fn goes_on_at(header: &[u8], from: Offset) -> Option<Offset> {
    let answer = FetchResponse::decode(header).ok()?;
    let plain = answer.status.is_success() && answer.throttle_time_ms <= 0;
    let mut results = answer.fetch_responses.into_iter();
    let (Some(result), None) = (results.next(), results.next()) else {
        return None;
    };
    let place = outcome(result).ok()?.ok()?;
    let there = place.start_offset <= from && place.next_offset > from && !place.end_of_range;
    (plain && there).then_some(place.next_offset)
}

/// The batches of one result, which must go on exactly at `next` and leave no gap. Records outside `next .. end` are
/// trimmed by bounds. Returns the offset behind the last batch, at most `end`.
pub(crate) fn batches(
    stream: StreamId,
    (bytes, frame): (&Bytes, &Arc<FrameMemory>),
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
                frame: Arc::clone(frame),
            });
        }
        place = behind;
    }
    Ok(end.map_or(place, |end| place.min(end).max(next)))
}

/// Trims the records of the first batch that are older than `time`: whole batches are returned, from the first that
/// reaches the time. A batch that does not reach it was appended later, or its head promises a record that it does not
/// have, and is wanted whole.
pub(crate) fn skip_older(found: &mut Vec<FetchedBatch>, time: TimestampMs) -> Result<(), ClientError> {
    let Some(first) = found.first_mut() else { return Ok(()) };
    if let Some(wanted) = first_reaching(first, time)? {
        first.from = first.from.max(wanted);
        if first.is_empty() {
            found.remove(0);
        }
    }
    Ok(())
}

/// The offset of a batch's first record whose time is this one or later.
pub(crate) fn first_reaching(fetched: &FetchedBatch, time: TimestampMs) -> Result<Option<Offset>, ClientError> {
    let damaged = |error: sbp_record::BatchError| {
        ClientError::damaged(error.to_string())
            .with_stream(fetched.stream)
            .with_offset(fetched.from)
    };
    let head = inspect(std::slice::from_ref(&fetched.bytes), false).map_err(damaged)?;
    // All rows of columns have one time.
    if head.meta.body_encoding == BodyEncoding::ARROW {
        return Ok((head.meta.base_timestamp >= time).then_some(fetched.base_offset));
    }
    // Heads of plain peers tell only the time that their records count from.
    if head.meta.max_timestamp < time && head.meta.max_timestamp.0 != 0 {
        return Ok(None);
    }
    let batch = Batch::decode(fetched.bytes.clone(), None).map_err(damaged)?;
    Ok(Some(batch.first_offset_at(time)).filter(|wanted| *wanted < batch.end_offset()))
}

#[cfg(test)]
pub(super) mod tests;
