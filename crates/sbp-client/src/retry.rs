//! Whether a failed attempt is repeated, where and when: one pure function over a typed failure.

pub(crate) mod budget;

use std::time::Duration;

use sbp_messages::{ErrorCode, Retry};

use crate::codes;
use crate::config::RetryPolicy;
use crate::failure::Cause;

/// Whether doing a call twice does more than doing it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Reads, and calls that name what they want so exactly that the second time changes nothing.
    Harmless,
    /// Appends of a writer: the server knows those it has, so the second time changes nothing. But that nothing was done
    /// is only said where it is certain.
    Deduplicated,
    /// Appends without a writer, streams created without a name: only repeated when the first time certainly did nothing.
    Twice,
}

/// Which half of a service a call is for. A server may be either or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// The placement driver: streams and ranges as such.
    Placement,
    /// The range servers: records.
    Ranges,
}

/// What a decision needs to know of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallFacts {
    pub(crate) repeat: Repeat,
    pub(crate) half: Half,
    /// How many servers were given to connect to.
    pub(crate) servers: u32,
    /// How many hints where the leader is have been followed for this call.
    pub(crate) hops: u32,
    /// Whether a placement driver has said where things are, so that it can say it anew.
    pub(crate) routed: bool,
    /// Whether the leader that a refusal names was silent a moment ago: whoever names it does not know that yet.
    pub(crate) leader_is_silent: bool,
}

impl CallFacts {
    /// An append, which goes to where its stream is known to be.
    pub(crate) fn append(repeat: Repeat) -> Self {
        Self {
            repeat,
            half: Half::Ranges,
            servers: 1,
            hops: 0,
            routed: true,
            leader_is_silent: false,
        }
    }
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

impl Decision {
    /// The failure is final, and nothing was done.
    const NOT_DONE: Self = Self::Final {
        may_have_been_done: false,
    };
    /// The failure is final, and nobody knows what was done.
    const IN_DOUBT: Self = Self::Final {
        may_have_been_done: true,
    };
}

/// Which server gets the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The server that was asked before, or whichever the channel now leads to.
    Same,
    /// The next of the known servers.
    Elsewhere,
    /// Whoever has the range now: the route is asked for again.
    Refreshed,
    /// The leader that the refusal names.
    Leader,
}

/// How long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    None,
    /// Jittered exponential back-off.
    BackOff,
    /// The same, but for a second at most: who is to answer is away, and others take over, or it is back, within seconds.
    Soon,
    /// What the server asked for, and back-off on top.
    Throttled(Duration),
}

/// A server may ask for silence, but not for more of it than this.
pub(crate) const THROTTLE_MAX: Duration = Duration::from_secs(30);

/// The longest pause before it is asked again where something is, or whether a server is back. Longer ones would add to the time
/// that the service stands still.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Hints where the leader is that are followed in one call, so that two servers that name each other end it.
const HOPS_MAX: u32 = 3;

/// Decides. `attempt` counts from 1, the attempt that failed.
pub(crate) fn decide(cause: &Cause, asked: CallFacts, attempt: u32, policy: &RetryPolicy) -> Decision {
    match about(cause, asked, attempt) {
        Decision::Again { .. } if attempt >= policy.max_attempts => Decision::NOT_DONE,
        decision => decision,
    }
}

fn about(cause: &Cause, asked: CallFacts, attempt: u32) -> Decision {
    let twice = asked.repeat == Repeat::Twice;
    let again = |after, at| Decision::Again { after, at };
    let at_first = |wait| if attempt <= 1 { Wait::None } else { wait };
    match cause {
        Cause::Refused { .. } => about_refusal(cause, asked, attempt),
        Cause::ConnectionLost { sent: true, .. } | Cause::Silent { sent: true } if twice => Decision::IN_DOUBT,
        Cause::ConnectionLost { .. } | Cause::NotStarted => again(at_first(Wait::Soon), Target::Same),
        // Whoever goes on without the server is known where the ranges are; the channel to several servers is at the next one.
        Cause::Silent { .. } if asked.routed && asked.half == Half::Ranges => {
            again(at_first(Wait::Soon), Target::Refreshed)
        }
        Cause::Silent { .. } => again(at_first(Wait::Soon), Target::Same),
        // A server that was named may have come back under another address, and others may have what it has.
        Cause::Unreachable { .. } if asked.routed && asked.half == Half::Ranges => again(Wait::Soon, Target::Refreshed),
        Cause::Unreachable { hopeless: false, .. } => again(Wait::Soon, Target::Same),
        // Another server may have the same, or the stream may be elsewhere by now. The call's own time bounds it.
        Cause::Deadline { .. } if asked.routed && asked.half == Half::Ranges && asked.repeat == Repeat::Harmless => {
            again(at_first(Wait::Soon), Target::Refreshed)
        }
        Cause::Deadline { sent, .. } => Decision::Final {
            may_have_been_done: *sent && asked.repeat != Repeat::Harmless,
        },
        Cause::Protocol { .. } if asked.repeat == Repeat::Deduplicated => again(Wait::BackOff, Target::Same),
        Cause::Protocol { .. } => Decision::Final {
            may_have_been_done: twice,
        },
        Cause::Unreachable { hopeless: true, .. }
        | Cause::Tls { .. }
        | Cause::Unsupported { .. }
        | Cause::Invalid { .. }
        | Cause::Closed => Decision::NOT_DONE,
    }
}

fn about_refusal(cause: &Cause, asked: CallFacts, attempt: u32) -> Decision {
    let Cause::Refused {
        code, throttle, leader, ..
    } = cause
    else {
        return Decision::IN_DOUBT;
    };
    let rule = codes::rule(*code);
    let wait = match throttle.is_zero() {
        false => Wait::Throttled((*throttle).min(THROTTLE_MAX)),
        true if cause.is_about_places() => Wait::Soon,
        true => Wait::BackOff,
    };
    let again = |after, at| Decision::Again { after, at };
    match (asked.half, *code) {
        (_, ErrorCode::PD_NOT_LEADER) if leader.is_some() && asked.hops < HOPS_MAX && !asked.leader_is_silent => {
            return again(Wait::None, Target::Leader);
        }
        // A server of the other half. Another of those that were named may be of this one.
        (Half::Placement, ErrorCode::UNSUPPORTED_OPERATION) if attempt < asked.servers => {
            return again(Wait::None, Target::Elsewhere);
        }
        // A placement driver says where the stream is. More than once: the server that has it may be on its way back.
        (Half::Ranges, ErrorCode::UNSUPPORTED_OPERATION) => {
            return again(if attempt <= 1 { Wait::None } else { wait }, Target::Refreshed);
        }
        _ => {}
    }
    match rule.retry {
        _ if rule.may_have_been_done && asked.repeat == Repeat::Twice => Decision::IN_DOUBT,
        Retry::Never => Decision::Final {
            may_have_been_done: rule.may_have_been_done && asked.repeat == Repeat::Deduplicated,
        },
        Retry::Now | Retry::Later => again(wait, Target::Same),
        Retry::Elsewhere => again(wait, Target::Elsewhere),
        Retry::Refresh if attempt <= 1 && throttle.is_zero() => again(Wait::None, Target::Refreshed),
        Retry::Refresh => again(wait, Target::Refreshed),
    }
}

/// A wait drawn uniformly up to the bound ("full jitter").
pub(crate) fn backoff(attempt: u32, policy: &RetryPolicy) -> Duration {
    policy.back_off().pause(attempt, fastrand::f64())
}

/// How long a [`Wait`] is.
pub(crate) fn duration_of(wait: Wait, attempt: u32, policy: &RetryPolicy) -> Duration {
    match wait {
        Wait::None => Duration::ZERO,
        Wait::BackOff => backoff(attempt, policy),
        Wait::Soon => policy.back_off_up_to(SOON).pause(attempt, fastrand::f64()),
        Wait::Throttled(asked) => asked + backoff(attempt, policy),
    }
}

#[cfg(test)]
mod tests;
