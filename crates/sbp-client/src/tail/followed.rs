//! One stream that is followed: where it is read from next, and what an answer means for that. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, FetchInfo};
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::failure::Failure;
use crate::fetch::{FetchedBatch, Part, batches, skip_older};
use crate::gap::Gap;
use crate::retry::{Asked, Decision, Half, Repeat, Target, decide, duration_of};

/// The longest a stream goes unasked for whose ranges end here and that goes on nowhere yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One stream that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) stream: StreamId,
    /// Where it is read from next; below zero until the first answer has resolved it.
    next: Offset,
    /// Where to start by time; used until the first answer.
    time: Option<TimestampMs>,
    /// The FETCH under way that asks for it. Older ones may list it too, but have answered it.
    pub(super) asked: Option<u32>,
    /// It is not asked for before.
    pub(super) not_before: Option<Instant>,
    /// A placement driver is being asked where it is.
    pub(super) finding: bool,
    /// Attempts in a row that brought nothing, and when following ends because of them.
    failures: u32,
    give_up_at: Option<Instant>,
}

/// What an answer brought.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Records that are gone, before all batches.
    pub(super) gap: Option<Gap>,
    pub(super) batches: VecDeque<FetchedBatch>,
    /// The stream goes on elsewhere.
    pub(super) ended_here: bool,
}

/// What to do about an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It is asked for again, after its pause.
    Again,
    /// And first it is asked where it is.
    Find,
    /// And the next of the servers that were named is tried.
    Elsewhere,
}

impl Followed {
    pub(super) fn new(stream: StreamId, next: Offset, time: Option<TimestampMs>) -> Self {
        Self {
            stream,
            next,
            time,
            asked: None,
            not_before: None,
            finding: false,
            failures: 0,
            give_up_at: None,
        }
    }

    /// What it is read at.
    pub(super) fn next(&self) -> Offset {
        self.next
    }

    pub(super) fn request(&self, request_index: i32, batch_max_bytes: usize) -> FetchInfo {
        FetchInfo {
            stream_id: self.stream,
            request_index,
            fetch_offset: self.next,
            batch_max_bytes: i32::try_from(batch_max_bytes).unwrap_or(i32::MAX),
            end_offset: Offset(-1),
            start_timestamp_ms: self.time.unwrap_or(TimestampMs(-1)),
        }
    }

    /// Whether it can be asked for now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.asked.is_none() && !self.finding && self.not_before.is_none_or(|at| at <= now)
    }

    /// Takes an answer that is no refusal for the moment. The error ends the tail.
    pub(super) fn take(&mut self, part: Part, endpoint: &Arc<str>) -> Result<Taken, ClientError> {
        let Part {
            result, bytes, frame, ..
        } = part;
        let mut taken = Taken::default();
        let resolved = self.next.0 >= 0 && self.time.is_none();
        let out_of_bounds = result.status.code == ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS;
        if out_of_bounds || (resolved && result.status.is_success()) {
            taken.gap = Gap::between(self.stream, self.next, result.start_offset);
        }
        if let Some(gap) = taken.gap {
            self.next = gap.to;
        }
        if !result.status.is_success() {
            if taken.gap.is_some() {
                self.succeeded();
                return Ok(taken);
            }
            return Err(self.refused(&result.status, endpoint));
        }
        self.succeeded();
        // The first answer resolves where the stream is read from; from then on no gap is allowed.
        let start = if resolved {
            self.next
        } else {
            result.base_offset.max(result.start_offset)
        };
        let mut found = Vec::new();
        let placed = batches(
            self.stream,
            (&bytes, &frame),
            result.high_watermark,
            start,
            None,
            &mut found,
        );
        self.next = placed.map_err(|error| error.with_endpoint(Some(endpoint)))?;
        if let Some(time) = self.time.take() {
            skip_older(&mut found, time).map_err(|error| error.with_endpoint(Some(endpoint)))?;
        }
        taken.ended_here = bytes.is_empty() && result.end_of_range;
        taken.batches.extend(found);
        Ok(taken)
    }

    fn refused(&self, status: &sbp_messages::Status, endpoint: &Arc<str>) -> ClientError {
        let cause = crate::connection::refused(status, 0);
        let error = ClientError::entry(status.code, &cause.to_string(), Some(endpoint)).of_a_read();
        let error = error.with_stream(self.stream);
        if self.next.0 >= 0 {
            error.with_offset(self.next)
        } else {
            error
        }
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.give_up_at = None;
        self.not_before = None;
    }

    /// Its ranges end here and it is not known where it goes on: it is asked for again for ever, ever less often.
    pub(super) fn look_again(&mut self, now: Instant, policy: &RetryPolicy) {
        self.failures = self.failures.saturating_add(1);
        let wait = duration_of(crate::retry::Wait::BackOff, self.failures, policy);
        self.not_before = Some(now + wait.min(LOOK_AGAIN));
    }

    /// An attempt failed. The error ends the tail: it cannot be repeated, or too much time has gone by.
    pub(super) fn failed(
        &mut self,
        failure: &Failure,
        now: Instant,
        patience: Duration,
        policy: &RetryPolicy,
        servers: u32,
        routed: bool,
    ) -> Result<Then, ClientError> {
        self.failures = self.failures.saturating_add(1);
        let give_up_at = *self.give_up_at.get_or_insert(now + patience);
        let asked = Asked {
            repeat: Repeat::Harmless,
            half: Half::Ranges,
            servers,
            hops: 0,
            routed,
        };
        let place = |error: ClientError| {
            let error = error.with_stream(self.stream);
            if self.next.0 >= 0 {
                error.with_offset(self.next)
            } else {
                error
            }
        };
        match decide(&failure.cause, asked, self.failures, policy) {
            decision @ Decision::Final { .. } => Err(place(ClientError::from_decision(
                failure,
                asked.repeat,
                decision,
                self.failures,
            ))),
            Decision::Again { after, at } => {
                let wait = duration_of(after, self.failures, policy);
                if now + wait >= give_up_at {
                    let error = ClientError::from_failure(failure, asked.repeat, false, self.failures);
                    return Err(place(error));
                }
                self.not_before = Some(now + wait);
                Ok(match at {
                    Target::Same | Target::Leader => Then::Again,
                    Target::Refreshed => Then::Find,
                    Target::Elsewhere => Then::Elsewhere,
                })
            }
        }
    }
}
