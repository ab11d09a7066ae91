//! One FETCH of one place.

use std::time::Duration;

use sbp_frame::OpCode;
use sbp_types::{Offset, StreamId};
use tokio::sync::mpsc;

use crate::call::answers::only;
use crate::call::{self, Trying, Where};
use crate::channel::Channel;
use crate::channel::command::FetchEvent;
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::position::Position;
use crate::read::answer::FetchedBatch;
use crate::read::plan::{self, Wanted};
use crate::read::request::{open, post_fetch};
use crate::retry::Repeat;

/// Bytes that an answer may hold when the caller does not say.
const MAX_BYTES: u32 = 32 << 20;

/// One place to read from, for [`Client::fetch_one`].
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
    /// How long the server may wait for data, at most 60 s.
    pub max_wait: Duration,
    /// Bytes it waits for; 0: it does not wait.
    pub min_bytes: u32,
    /// Bytes that the answer may hold; `None`: 32 MiB. Charged to the receive credit before sending.
    pub max_bytes: Option<u32>,
    /// How long an answer may take beyond `max_wait`; `None`: the client's default.
    pub timeout: Option<Duration>,
}

/// What a FETCH of one place got.
#[derive(Debug)]
pub struct Fetched {
    /// The stream.
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

/// Why an attempt brought nothing.
enum Stop {
    /// The attempt failed and may be repeated.
    Attempt(Failure),
    /// The answer is damaged.
    Final(ClientError),
}

/// What comes of one FETCH. Dropped before the last answer, it has the server end the call.
pub(super) struct Answers<'a> {
    server: &'a Channel,
    pub(super) events: mpsc::UnboundedReceiver<FetchEvent>,
    pub(super) is_over: bool,
}

impl<'a> Answers<'a> {
    pub(super) fn new(server: &'a Channel, events: mpsc::UnboundedReceiver<FetchEvent>) -> Self {
        Self {
            server,
            events,
            is_over: false,
        }
    }
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.events.close();
            self.server.withdraw_abandoned();
        }
    }
}

impl Client {
    /// Reads once from one place: what one FETCH returns, which may be nothing. What fails for the moment is tried again.
    ///
    /// # Errors
    ///
    /// That the stream does not exist, that the place is outside of it, or that no answer came in time.
    pub async fn fetch_one(&self, mut entry: FetchEntry, options: FetchOptions) -> Result<Fetched, ClientError> {
        let deadline = self.deadline(options.timeout) + options.max_wait;
        if entry.from.is_relative() {
            let settled = self.settle(&[(entry.stream, entry.from)], options.timeout).await?;
            entry.from = Position::At(only(settled)?);
        }
        self.pool().find_copies(std::iter::once(entry.stream), deadline).await;
        let (from, time) = entry.from.on_wire();
        let wanted = Wanted {
            stream: entry.stream,
            from,
            end: entry.end,
            time,
            batch_max_bytes: i32::try_from(entry.batch_max_bytes).unwrap_or(i32::MAX),
        };
        let mut trying = Trying::new(Repeat::Harmless, Where::Stream(entry.stream, from), deadline);
        loop {
            match self.attempt_fetch(wanted, options).await {
                Ok(fetched) => return Ok(fetched),
                Err(Stop::Final(error)) => return Err(error),
                Err(Stop::Attempt(failure)) => call::pause(self.pool(), &failure, &mut trying)
                    .await
                    .map_err(|error| error.with_stream(entry.stream))?,
            }
        }
    }

    /// Sends one FETCH to whoever has the place, as far as is known, and gathers its answer.
    async fn attempt_fetch(&self, mut wanted: Wanted, options: FetchOptions) -> Result<Fetched, Stop> {
        let stream = wanted.stream;
        let most = usize::try_from(options.max_bytes.unwrap_or(MAX_BYTES)).unwrap_or(usize::MAX);
        let charge = self.core().credit.charge(1, most.max(1)).await;
        let server = self.pool().for_fetch(stream, wanted.from);
        server.throttles.wait(OpCode::FETCH, None).await;
        let request = plan::request([wanted], options.max_wait, options.min_bytes, charge.bytes());
        let timeout = options.timeout.unwrap_or(self.config().timeout);
        let patience = self.pool().bounds(Some(wanted.place()), timeout);
        let (sender, events) = mpsc::unbounded_channel();
        let mut answers = Answers::new(&server, events);
        post_fetch(&server, &request, patience, charge, (0, sender), None);
        let mut batches = Vec::new();
        let mut last = None;
        while let Some(event) = answers.events.recv().await {
            let opened = open(&[0], event).map_err(Stop::Attempt)?;
            server.throttles.note(OpCode::FETCH, opened.throttle_ms, now());
            for (_, part) in opened.parts {
                let at = part.outcome.as_ref().map_err(|refused| {
                    let cause = Cause::refused(&refused.status, 0);
                    Stop::Attempt(Failure::new(cause, Some(&opened.endpoint)))
                })?;
                // What is gone meanwhile is passed over: where records begin says each answer.
                batches.extend(wanted.take(&part, at).map_err(Stop::Final)?.batches);
                last = Some(*at);
            }
            if opened.is_last {
                answers.is_over = true;
                break;
            }
        }
        let without_result = || Stop::Final(ClientError::protocol("a FETCH was answered without a result"));
        let at = last.ok_or_else(without_result)?;
        Ok(Fetched {
            stream,
            batches,
            next_offset: at.next_offset,
            start_offset: at.start_offset,
            high_watermark: at.high_watermark,
        })
    }
}
