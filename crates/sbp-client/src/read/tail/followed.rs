//! One stream that is followed: where it is read from next, and what an answer means for that. Pure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, Status};
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::read::answer::{Part, RefusedEntry};
use crate::read::plan::{Brought, Wanted};
use crate::retry::{CallFacts, Decision, Half, Repeat, Target, Wait, decide, duration_of};

/// The longest a stream goes unasked for whose ranges end here and that goes on nowhere yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Bytes asked for per stream and answer: a tail asks for many streams, most of which have nothing.
pub(super) const BATCH_MAX: i32 = 256 << 10;

/// One stream that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    /// Where it is read from next, without end.
    pub(super) wanted: Wanted,
    /// The FETCH under way that asks for it. Older ones may list it too, but have answered it.
    pub(super) asked: Option<u32>,
    /// The stream is not asked for before this moment.
    pub(super) not_before: Option<Instant>,
    /// A placement driver is being asked where it is.
    pub(super) finding: bool,
    /// Following the stream failed, and nobody has come for what follows the error.
    pub(super) stopped: bool,
    /// Attempts in a row that brought nothing, and when the first of them ended.
    failures: u32,
    failing_since: Option<Instant>,
}

/// What to do about an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The stream is asked for again, after its pause.
    Again,
    /// As [`Then::Again`], and the placement driver is asked before where the stream is.
    Find,
    /// As [`Then::Again`], at the next of the servers that were named.
    Elsewhere,
}

impl Followed {
    pub(super) fn new(stream: StreamId, from: Offset, time: Option<TimestampMs>) -> Self {
        Self {
            wanted: Wanted {
                stream,
                from,
                end: None,
                time,
                batch_max_bytes: BATCH_MAX,
            },
            asked: None,
            not_before: None,
            finding: false,
            stopped: false,
            failures: 0,
            failing_since: None,
        }
    }

    /// Whether it can be asked for now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.asked.is_none() && !self.finding && !self.stopped && self.not_before.is_none_or(|at| at <= now)
    }

    /// Takes an answer that is no refusal for the moment. The error stops following.
    pub(super) fn take(&mut self, part: &Part, endpoint: &Arc<str>) -> Result<Brought, ClientError> {
        match &part.outcome {
            Ok(at) => {
                self.succeeded();
                let brought = self.wanted.take(part, at);
                brought.map_err(|error| error.with_endpoint(Some(endpoint)))
            }
            Err(RefusedEntry { status, bounds }) => {
                let out_of_bounds = status.code == ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS;
                let bounds = bounds.filter(|_| out_of_bounds);
                let gap = bounds.and_then(|(start, _)| self.wanted.gap(start));
                let Some(gap) = gap else {
                    return Err(self.refused(status, endpoint));
                };
                self.wanted.from = gap.to;
                self.succeeded();
                Ok(Brought {
                    gap: Some(gap),
                    ..Brought::default()
                })
            }
        }
    }

    fn refused(&self, status: &Status, endpoint: &Arc<str>) -> ClientError {
        let told = Status::error(status.code, Cause::refused(status, 0).to_string());
        self.placed(ClientError::entry(&told, Some(endpoint)).of_a_read())
    }

    /// Adds where it is read.
    fn placed(&self, error: ClientError) -> ClientError {
        let error = error.with_stream(self.wanted.stream);
        if self.wanted.from.0 >= 0 {
            error.with_offset(self.wanted.from)
        } else {
            error
        }
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.failing_since = None;
        self.not_before = None;
    }

    /// A stream that had stopped is asked for again, as if nothing had failed before.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.stopped) {
            self.succeeded();
        }
    }

    /// The stream's ranges end at this server, and where it goes on is not known: it is asked for again for ever, ever less
    /// often.
    pub(super) fn look_again(&mut self, now: Instant, policy: &RetryPolicy) {
        self.failures = self.failures.saturating_add(1);
        let wait = duration_of(Wait::BackOff, self.failures, policy);
        self.not_before = Some(now + wait.min(LOOK_AGAIN));
    }

    /// An attempt failed. The error stops following: the attempt cannot be repeated, or nothing came for longer than
    /// `patience`. Without `patience` it is repeated for ever.
    pub(super) fn failed(
        &mut self,
        failure: &Failure,
        now: Instant,
        patience: Option<Duration>,
        policy: &RetryPolicy,
        servers: u32,
        routed: bool,
    ) -> Result<Then, ClientError> {
        self.failures = self.failures.saturating_add(1);
        let failing_since = *self.failing_since.get_or_insert(now);
        let asked = CallFacts {
            repeat: Repeat::Harmless,
            half: Half::Ranges,
            servers,
            hops: 0,
            routed,
            leader_is_silent: false,
        };
        let decision = match &failure.cause {
            // The server was silent for longer than an answer may take. It may answer the next time, or another one does.
            Cause::Deadline { .. } => Decision::Again {
                after: Wait::Soon,
                at: if routed { Target::Refreshed } else { Target::Same },
            },
            // However often.
            cause => decide(
                cause,
                asked,
                self.failures.min(policy.max_attempts.saturating_sub(1)),
                policy,
            ),
        };
        match decision {
            Decision::Final { may_have_been_done } => {
                let error = ClientError::from_failure(failure, asked.repeat, may_have_been_done, self.failures);
                Err(self.placed(error))
            }
            Decision::Again { after, at } => {
                let wait = duration_of(after, self.failures, policy);
                if patience.is_some_and(|patience| now + wait >= failing_since + patience) {
                    let error = ClientError::from_failure(failure, asked.repeat, false, self.failures);
                    return Err(self.placed(error));
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
