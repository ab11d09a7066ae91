//! Whether a failed attempt is repeated, where and when: one pure function over a typed failure.

use std::time::Duration;

use sbp_messages::Retry;

use crate::config::RetryPolicy;
use crate::failure::Cause;

/// Whether doing a call twice does more than doing it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Reads, and calls that name what they want so exactly that the second time changes nothing.
    Harmless,
    /// Appends without a writer, streams created without a name: only repeated when the first time certainly did nothing.
    Twice,
}

/// What to do about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Again, `after` this long.
    Again {
        /// How long to wait first, before jitter.
        after: Wait,
        /// Where.
        at: Target,
    },
    /// The failure is final: it is an error of the call.
    Final {
        /// Whether the call may have taken effect.
        may_have_been_done: bool,
    },
}

/// Which server gets the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The same as before, or whichever the link now leads to.
    Same,
    /// The next of the known servers.
    Elsewhere,
    /// Whoever has the range now: the route is asked for again.
    Refreshed,
}

/// How long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    None,
    /// Jittered exponential back-off.
    BackOff,
    /// What the server asked for, and back-off on top.
    Throttled(Duration),
}

/// A server may ask for silence, but not for more of it than this.
const THROTTLE_MAX: Duration = Duration::from_secs(30);

/// Decides. `attempt` counts from 1, the attempt that failed.
pub(crate) fn decide(cause: &Cause, repeat: Repeat, attempt: u32, policy: &RetryPolicy) -> Decision {
    let decision = match cause {
        Cause::Refused { code, throttle, .. } => {
            let rule = code.rule();
            let done = rule.may_have_been_done && repeat == Repeat::Twice;
            let wait = if throttle.is_zero() {
                Wait::BackOff
            } else {
                Wait::Throttled((*throttle).min(THROTTLE_MAX))
            };
            match rule.retry {
                _ if done => Decision::Final {
                    may_have_been_done: true,
                },
                Retry::Never => Decision::Final {
                    may_have_been_done: false,
                },
                Retry::Now | Retry::Later => Decision::Again {
                    after: wait,
                    at: Target::Same,
                },
                Retry::Elsewhere => Decision::Again {
                    after: wait,
                    at: Target::Elsewhere,
                },
                Retry::Refresh => Decision::Again {
                    after: wait,
                    at: Target::Refreshed,
                },
            }
        }
        Cause::ConnectionLost { sent: true, .. } if repeat == Repeat::Twice => Decision::Final {
            may_have_been_done: true,
        },
        Cause::ConnectionLost { .. } | Cause::NotStarted => {
            let after = if attempt <= 1 { Wait::None } else { Wait::BackOff };
            Decision::Again {
                after,
                at: Target::Same,
            }
        }
        Cause::Unreachable { hopeless: false, .. } => Decision::Again {
            after: Wait::BackOff,
            at: Target::Same,
        },
        Cause::Deadline { sent, .. } => Decision::Final {
            may_have_been_done: *sent && repeat == Repeat::Twice,
        },
        Cause::Protocol { .. } => Decision::Final {
            may_have_been_done: repeat == Repeat::Twice,
        },
        Cause::Unreachable { hopeless: true, .. }
        | Cause::Unsupported { .. }
        | Cause::Invalid { .. }
        | Cause::Closed => Decision::Final {
            may_have_been_done: false,
        },
    };
    match decision {
        Decision::Again { .. } if attempt >= policy.max_attempts => Decision::Final {
            may_have_been_done: false,
        },
        decision => decision,
    }
}

/// The bound of the wait before attempt `attempt + 1`: doubles from the first to the last bound of the policy.
pub(crate) fn backoff_bound(attempt: u32, policy: &RetryPolicy) -> Duration {
    let doublings = attempt.saturating_sub(1).min(20);
    policy
        .backoff_min
        .saturating_mul(1 << doublings)
        .min(policy.backoff_max)
}

/// A wait drawn uniformly up to the bound ("full jitter").
pub(crate) fn backoff(attempt: u32, policy: &RetryPolicy) -> Duration {
    backoff_bound(attempt, policy).mul_f64(fastrand::f64())
}

/// How long a [`Wait`] is.
pub(crate) fn duration_of(wait: Wait, attempt: u32, policy: &RetryPolicy) -> Duration {
    match wait {
        Wait::None => Duration::ZERO,
        Wait::BackOff => backoff(attempt, policy),
        Wait::Throttled(asked) => asked + backoff(attempt, policy),
    }
}

#[cfg(test)]
mod tests;
