//! One FETCH of many places, and what its answers bring.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sbp_frame::OpCode;
use sbp_types::{Offset, StreamId};
use tokio::sync::mpsc;

use crate::call::{self, Trying, Where};
use crate::channel::Channel;
use crate::channel::command::FetchEvent;
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::pool::routes::Purpose;
use crate::position::Position;
use crate::read::answer::{FetchedBatch, Part};
use crate::read::plan::{self, ServerRequest, Wanted};
use crate::read::request::{by_server, open, post_fetch};
use crate::retry::Repeat;

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
    requests: Vec<ServerRequest<Arc<Channel>>>,
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
        let wanted: Vec<Wanted> = entries.iter().map(FetchEntry::wanted).collect();
        let requests = by_server(self.pool(), wanted.iter().copied().enumerate(), ENTRIES);
        for request in &requests {
            request.server.throttles.wait(OpCode::FETCH, None).await;
        }
        let share = charge.bytes().div_ceil(requests.len().max(1));
        let timeout = options.timeout.unwrap_or(self.config().timeout);
        let (sender, events) = mpsc::unbounded_channel();
        for (asked, tag) in requests.iter().zip(0..) {
            let charge = charge.split_held(share);
            let own = asked.places.iter().filter_map(|&place| wanted.get(place).copied());
            let request = plan::request(own, options.max_wait, options.min_bytes, charge.bytes());
            post_fetch(&asked.server, &request, timeout, charge, (tag, sender.clone()), None);
        }
        Ok(FetchAnswers {
            entries,
            open: requests.len(),
            requests,
            events: Some(events),
            ready: VecDeque::new(),
            failure: None,
        })
    }
}

impl FetchEntry {
    fn wanted(&self) -> Wanted {
        let (from, time) = self.from.on_wire();
        Wanted {
            stream: self.stream,
            from,
            end: self.end,
            time,
            batch_max_bytes: i32::try_from(self.batch_max_bytes).unwrap_or(i32::MAX),
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
            let Some(event) = event else {
                self.events = None;
                continue;
            };
            let (FetchEvent::Frame { tag, .. } | FetchEvent::Failed { tag, .. }) = &event;
            let Some(request) = usize::try_from(*tag).ok().and_then(|tag| self.requests.get(tag)) else {
                continue;
            };
            let is_last = match open(&request.places, event) {
                Ok(opened) => {
                    let throttles = &request.server.throttles;
                    throttles.note(OpCode::FETCH, opened.throttle_ms, now());
                    let parts = opened.parts.into_iter();
                    self.ready = parts
                        .filter_map(|(place, part)| self.take(place, &part, &opened.endpoint))
                        .collect();
                    opened.is_last
                }
                Err(failure) => {
                    self.fail(&failure);
                    true
                }
            };
            self.open = self.open.saturating_sub(usize::from(is_last));
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.ready
            .push_back(Err(ClientError::from_failure(failure, Repeat::Harmless, false, 1)));
        self.failure = Some(failure.clone());
    }

    fn take(&mut self, index: usize, part: &Part, endpoint: &Arc<str>) -> Option<Result<Fetched, ClientError>> {
        let result = &part.result;
        let entry = *self.entries.get(index)?;
        if !result.status.is_success() {
            let status = &result.status;
            let error = ClientError::entry(status, Some(endpoint)).of_a_read();
            self.failure = Some(Failure::new(Cause::refused(status, 0), Some(endpoint)));
            let error = error.with_stream(entry.stream);
            return Some(Err(match entry.from {
                Position::At(offset) => error.with_offset(offset),
                _ => error,
            }));
        }
        // What is gone meanwhile is passed over: where records begin says each answer.
        let brought = entry.wanted().take(part);
        Some(brought.map(|brought| Fetched {
            entry: index,
            stream: entry.stream,
            batches: brought.batches,
            next_offset: result.next_offset,
            start_offset: result.start_offset,
            high_watermark: result.high_watermark,
        }))
    }
}
