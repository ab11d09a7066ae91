//! What FETCH returns: frames taken apart into results and record batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_frame::{Frame, OpCode};
use sbp_messages::{FetchInfo, FetchRequest, FetchResponse, FetchResult, Message};
use sbp_record::{Batch, BodyEncoding, inspect, split_batches};
use sbp_types::{Offset, StreamId, TimestampMs};
use tokio::sync::mpsc;

use crate::call::{self, Trying, Where};
use crate::channel::Channel;
use crate::channel::command::FetchEvent;
use crate::channel::{refused, undecodable};
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::pinned::FrameMemory;
use crate::pool::routes::Purpose;
use crate::position::Position;
use crate::read::request::post_fetch;
use crate::retry::Repeat;

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

/// One result of an answer, with its part of the payload.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) result: FetchResult,
    pub(crate) bytes: Bytes,
    /// The frame that `bytes` is a part of.
    pub(crate) frame: Arc<FrameMemory>,
}

/// The results of one frame, and the pause that it asks for.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) parts: Vec<Part>,
    pub(crate) throttle_ms: i32,
}

/// Takes one frame of an answer to a FETCH of `entries` entries apart.
pub(crate) fn parts(frame: Frame, entries: usize) -> Result<Parts, Cause> {
    let answer = FetchResponse::decode(&frame.header).map_err(|error| undecodable(&frame, &error))?;
    if !answer.status.is_success() {
        return Err(refused(&answer.status, answer.throttle_time_ms));
    }
    let mut payload = frame.payload.into_contiguous();
    let memory = FrameMemory::new(&payload);
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
        parts.push(Part {
            index,
            result,
            bytes,
            frame: Arc::clone(&memory),
        });
    }
    if payload.is_empty() {
        Ok(Parts {
            parts,
            throttle_ms: answer.throttle_time_ms,
        })
    } else {
        Err(violation("has bytes that belong to no result"))
    }
}

/// Where reading goes on behind an answer of which only the header is here, if it answers one entry and holds data that
/// goes on at `from`.
pub(crate) fn goes_on_at(header: &[u8], from: Offset) -> Option<Offset> {
    let answer = FetchResponse::decode(header).ok()?;
    let [result] = answer.fetch_responses.as_slice() else {
        return None;
    };
    let plain = answer.status.is_success() && answer.throttle_time_ms <= 0 && result.status.is_success();
    let there = result.start_offset <= from && result.next_offset > from && !result.end_of_range;
    (plain && there).then_some(result.next_offset)
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

/// One place to read from, for [`Client::fetch`].
#[derive(Clone, Copy, Debug)]
pub struct FetchEntry {
    /// The stream.
    pub stream: StreamId,
    /// Where to begin.
    pub from: Position,
    /// The first offset not wanted; `None`: no end.
    pub end: Option<Offset>,
    /// Bytes to return at most, though at least one whole batch; 0: the server's default.
    pub batch_max_bytes: u32,
}

/// How one FETCH waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchOptions {
    /// How long entries may wait for data, at most 60 s.
    pub max_wait: Duration,
    /// Bytes an entry waits for; 0: it does not wait.
    pub min_bytes: u32,
    /// Bytes that all answers together may hold; `None`: 32 MiB. Charged to the receive credit before sending.
    pub max_bytes: Option<u32>,
    /// How long an answer may take beyond `max_wait`; `None`: the client's default.
    pub timeout: Option<Duration>,
}

/// What one entry of a FETCH got.
#[derive(Debug)]
pub struct Fetched {
    /// Which entry.
    pub entry: usize,
    /// Its stream.
    pub stream: StreamId,
    /// The batches, whose records outside the entry's bounds are trimmed by bounds.
    pub batches: Vec<FetchedBatch>,
    /// Where the next FETCH of the stream begins.
    pub next_offset: Offset,
    /// The first offset that is kept.
    pub start_offset: Offset,
    /// The confirmed end.
    pub high_watermark: Offset,
}

impl Fetched {
    /// Adds what came later for the same entry.
    fn add(&mut self, more: Self) {
        self.batches.extend(more.batches);
        self.next_offset = more.next_offset;
        self.start_offset = more.start_offset;
        self.high_watermark = more.high_watermark;
    }
}

/// The answers to one FETCH, as they arrive. Dropping it gives up on those that are still to come.
#[derive(Debug)]
pub struct FetchAnswers {
    entries: Vec<FetchEntry>,
    /// Which entries each FETCH asked for.
    asked: Vec<Vec<usize>>,
    /// FETCHes that are not over.
    open: usize,
    events: Option<mpsc::UnboundedReceiver<FetchEvent>>,
    ready: VecDeque<Result<Fetched, ClientError>>,
    /// What the last error came of.
    failure: Option<Failure>,
}

impl Client {
    /// Reads once from one place: what one FETCH returns, which may be nothing. What fails for the moment is tried again.
    ///
    /// # Errors
    ///
    /// That the stream does not exist, that the place is outside of it, or that no answer came in time.
    pub async fn fetch_one(&self, entry: FetchEntry, options: FetchOptions) -> Result<Fetched, ClientError> {
        let deadline = self.deadline(options.timeout) + options.max_wait;
        let mut entry = entry;
        if entry.from.is_relative() {
            let settled = self.settle(&[(entry.stream, entry.from)], options.timeout).await?.pop();
            let missing = || ClientError::protocol("a position is missing");
            entry.from = Position::At(settled.ok_or_else(missing)??);
        }
        let to = Where::Stream(entry.stream, Purpose::Fetch(entry.from.on_wire().0));
        let mut trying = Trying::new(Repeat::Harmless, to, deadline);
        loop {
            let mut answers = self.fetch(vec![entry], options).await?;
            let mut whole: Option<Fetched> = None;
            let error = loop {
                match answers.next().await {
                    Some(Ok(part)) => match &mut whole {
                        Some(whole) => whole.add(part),
                        None => whole = Some(part),
                    },
                    Some(Err(error)) => break error,
                    None => return whole.ok_or_else(|| ClientError::protocol("a FETCH was answered without a result")),
                }
            };
            match answers.failure.take() {
                Some(failure) => call::pause(self.pool(), &failure, &mut trying)
                    .await
                    .map_err(|error| error.with_stream(entry.stream))?,
                None => return Err(error),
            }
        }
    }

    /// Sends one FETCH to each server that has some of the streams, as far as is known, whose entries are answered one by
    /// one as data arrives for them: the raw operation under [`Client::reader`] and [`Client::tail`]. Nothing is retried
    /// and nothing asked for again.
    ///
    /// # Errors
    ///
    /// That there are no entries, or too many for one request.
    pub async fn fetch(&self, entries: Vec<FetchEntry>, options: FetchOptions) -> Result<FetchAnswers, ClientError> {
        const ENTRIES: usize = 1_024;
        const MAX_BYTES: u32 = 32 << 20;
        if entries.is_empty() || entries.len() > ENTRIES {
            return Err(ClientError::invalid(format!(
                "a FETCH has 1 to {ENTRIES} entries, not {}",
                entries.len()
            )));
        }
        let wanted = usize::try_from(options.max_bytes.unwrap_or(MAX_BYTES)).unwrap_or(usize::MAX);
        let mut charge = self.core().credit.charge(1, wanted.max(1)).await;
        let groups = self.by_place(&entries).await?;
        let share = charge.bytes().div_ceil(groups.len().max(1));
        let timeout = options.timeout.unwrap_or(self.config().timeout);
        let (sender, events) = mpsc::unbounded_channel();
        let mut asked = Vec::with_capacity(groups.len());
        for ((channel, places), tag) in groups.into_iter().zip(0..) {
            let wanted = places.iter().filter_map(|&place| entries.get(place));
            let charge = charge.split_held(share);
            let request = FetchRequest {
                max_wait_ms: i32::try_from(options.max_wait.as_millis()).unwrap_or(i32::MAX),
                min_bytes: i32::try_from(options.min_bytes).unwrap_or(i32::MAX),
                fetch_requests: wanted.zip(0..).map(|(entry, index)| entry.on_wire(index)).collect(),
                max_bytes: i32::try_from(charge.bytes()).unwrap_or(i32::MAX),
            };
            post_fetch(&channel, &request, timeout, charge, (tag, sender.clone()), None);
            asked.push(places);
        }
        Ok(FetchAnswers {
            entries,
            open: asked.len(),
            asked,
            events: Some(events),
            ready: VecDeque::new(),
            failure: None,
        })
    }

    /// Entries by the server that has their streams.
    async fn by_place(&self, entries: &[FetchEntry]) -> Result<Vec<(Arc<Channel>, Vec<usize>)>, ClientError> {
        let mut groups: Vec<(Arc<Channel>, Vec<usize>)> = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let purpose = Purpose::Fetch(entry.from.on_wire().0);
            let channel = self.pool().of_stream(entry.stream, purpose);
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &channel)) {
                Some((_, places)) => places.push(place),
                None => groups.push((channel, vec![place])),
            }
        }
        for (channel, _) in &groups {
            if let Some(until) = channel.throttles.until(OpCode::FETCH, now()) {
                tokio::time::sleep_until(tokio::time::Instant::from_std(until)).await;
            }
        }
        Ok(groups)
    }
}

impl FetchEntry {
    fn on_wire(&self, request_index: i32) -> FetchInfo {
        let (fetch_offset, time) = self.from.on_wire();
        FetchInfo {
            stream_id: self.stream,
            request_index,
            fetch_offset,
            batch_max_bytes: i32::try_from(self.batch_max_bytes).unwrap_or(i32::MAX),
            end_offset: self.end,
            start_timestamp_ms: time,
        }
    }
}

impl FetchAnswers {
    /// The next entry's answer; `None` when all have come.
    ///
    /// # Errors
    ///
    /// An entry's refusal, after which others may still come; or why no more will come, after which `None` does.
    pub async fn next(&mut self) -> Option<Result<Fetched, ClientError>> {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Some(answer);
            }
            let event = match &mut self.events {
                _ if self.open == 0 => return None,
                None => return None,
                Some(events) => events.recv().await,
            };
            match event {
                Some(FetchEvent::Frame {
                    tag,
                    frame,
                    end,
                    endpoint,
                    ..
                }) => {
                    let places = usize::try_from(tag).ok().and_then(|tag| self.asked.get(tag));
                    let places = places.map(Vec::as_slice).unwrap_or_default();
                    let over = match parts(frame, places.len()) {
                        Ok(taken) => {
                            let places = places.to_vec();
                            let fetched = taken
                                .parts
                                .into_iter()
                                .filter_map(|part| self.take(*places.get(part.index)?, part, &endpoint))
                                .collect();
                            self.ready = fetched;
                            end
                        }
                        Err(cause) => {
                            self.fail(&Failure::new(cause, Some(&endpoint)));
                            true
                        }
                    };
                    self.open -= usize::from(over);
                }
                Some(FetchEvent::Failed { failure, .. }) => {
                    self.fail(&failure);
                    self.open = self.open.saturating_sub(1);
                }
                None => self.events = None,
            }
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.ready
            .push_back(Err(ClientError::from_failure(failure, Repeat::Harmless, false, 1)));
        self.failure = Some(failure.clone());
    }

    fn take(&mut self, index: usize, part: Part, endpoint: &Arc<str>) -> Option<Result<Fetched, ClientError>> {
        let Part {
            result, bytes, frame, ..
        } = part;
        let entry = *self.entries.get(index)?;
        if !result.status.is_success() {
            let status = &result.status;
            let message = if status.message.is_empty() {
                status.code.name()
            } else {
                &status.message
            };
            let error = ClientError::entry(status.code, message, Some(endpoint)).of_a_read();
            self.failure = Some(Failure::new(refused(status, 0), Some(endpoint)));
            let error = error.with_stream(entry.stream);
            return Some(Err(match entry.from {
                Position::At(offset) => error.with_offset(offset),
                _ => error,
            }));
        }
        let start = match entry.from {
            Position::At(offset) => offset.max(result.start_offset),
            _ => result.base_offset.max(result.start_offset),
        };
        let mut found = Vec::new();
        let mut placed = batches(
            entry.stream,
            (&bytes, &frame),
            result.high_watermark,
            start,
            entry.end,
            &mut found,
        );
        if let (Position::Time(time), Ok(_)) = (entry.from, &placed)
            && let Err(error) = skip_older(&mut found, time)
        {
            placed = Err(error);
        }
        Some(placed.map(|_| Fetched {
            entry: index,
            stream: entry.stream,
            batches: found,
            next_offset: result.next_offset,
            start_offset: result.start_offset,
            high_watermark: result.high_watermark,
        }))
    }
}

#[cfg(test)]
mod tests;
