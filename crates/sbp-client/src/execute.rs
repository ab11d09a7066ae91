//! The loop over attempts: the only place where a call is repeated.
//!
//! Calls whose answer is one thing go through [`call`]. Appends are too many for a task each: their connection asks
//! [`after_failed_append`] what to do, which takes the same decision without waiting for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_frame::OpCode;
use sbp_messages::ErrorCode;
use sbp_types::StreamId;
use tokio::sync::oneshot;

use crate::clock::now;
use crate::config::RetryPolicy;
use crate::connection::command::{Answer, Call, Command, Need};
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::link::Link;
use crate::links::Links;
use crate::retry::{Asked, Decision, Half, Repeat, Target, decide, duration_of};
use crate::retry_budget::RetryBudget;
use crate::routes::Purpose;

/// The connection enforces deadlines; this side only makes sure that a call ends even if it does not.
const LAST_RESORT: Duration = Duration::from_millis(500);

/// Whom a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// The placement driver.
    Placement,
    /// Whoever has a stream.
    Stream(StreamId, Purpose),
}

impl Where {
    fn half(self) -> Half {
        match self {
            Self::Placement => Half::Placement,
            Self::Stream(..) => Half::Ranges,
        }
    }

    fn link(self, links: &Links) -> Arc<Link> {
        match self {
            Self::Placement => links.placement(),
            Self::Stream(stream, purpose) => links.of_stream(stream, purpose),
        }
    }
}

/// What is the same in every attempt of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) opcode: OpCode,
    pub(crate) needs: Need,
    pub(crate) repeat: Repeat,
    pub(crate) to: Where,
    pub(crate) deadline: Instant,
}

/// How far the attempts of one call are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trying {
    pub(crate) repeat: Repeat,
    pub(crate) to: Where,
    pub(crate) deadline: Instant,
    /// Attempts that failed.
    pub(crate) attempt: u32,
    /// Hints where the leader is that were followed.
    hops: u32,
}

impl Trying {
    pub(crate) fn new(repeat: Repeat, to: Where, deadline: Instant) -> Self {
        Self {
            repeat,
            to,
            deadline,
            attempt: 0,
            hops: 0,
        }
    }
}

/// Makes attempts until one succeeds or a failure is final. `encode` gets the time that is left; `read` judges an answer.
pub(crate) async fn call<T>(
    links: &Arc<Links>,
    plan: Plan,
    mut encode: impl FnMut(Duration) -> Bytes,
    mut read: impl FnMut(&Answer) -> Result<T, Cause>,
) -> Result<T, ClientError> {
    let mut trying = Trying::new(plan.repeat, plan.to, plan.deadline);
    let mut before: Option<Failure> = None;
    loop {
        let link = plan.to.link(links);
        keep_quiet(&link, plan).await;
        let header = encode(plan.deadline.saturating_duration_since(now()));
        let failure = match attempt_call(&link, plan, header).await {
            Ok(answer) => {
                let result = read(&answer);
                link.throttles.note(plan.opcode, answer.throttle_ms.get(), now());
                match result {
                    Ok(value) => {
                        link.retries.refund();
                        return Ok(value);
                    }
                    Err(cause) => Failure::new(cause, Some(&answer.endpoint)),
                }
            }
            Err(failure) => failure,
        };
        if let Err(error) = pause(links, &failure, &mut trying).await {
            return Err(match before {
                // That time is over says little; why it took so long says more.
                Some(before) if error.is_timeout() => error.after(&before),
                _ => error,
            });
        }
        before = Some(failure);
    }
}

/// Waits as long as the server asked for, though not beyond the call's time: then its attempt says that time is over.
async fn keep_quiet(link: &Link, plan: Plan) {
    if let Some(until) = link.throttles.until(plan.opcode, now()) {
        tokio::time::sleep_until(tokio::time::Instant::from_std(until.min(plan.deadline))).await;
    }
}

/// Waits before the next attempt, as decided; the error is the call's when there is none.
pub(crate) async fn pause(links: &Arc<Links>, failure: &Failure, trying: &mut Trying) -> Result<(), ClientError> {
    let home = links.home();
    let policy = &home.config.retry;
    trying.attempt += 1;
    let &mut Trying {
        repeat,
        to,
        deadline,
        attempt,
        hops,
    } = trying;
    if failure.cause.is_damage()
        && let Where::Stream(stream, Purpose::Fetch(offset)) = to
        && !links.has_another_copy(stream, offset)
    {
        return Err(ClientError::from_failure(failure, repeat, false, attempt));
    }
    let asked = Asked {
        repeat,
        half: to.half(),
        servers: home.servers_named(),
        hops,
        routed: links.is_routed(),
    };
    match decide(&failure.cause, asked, attempt, policy) {
        decision @ Decision::Final { .. } => Err(ClientError::from_decision(failure, repeat, decision, attempt)),
        Decision::Again { after, at } => {
            let wait = duration_of(after, attempt, policy);
            let last = || ClientError::from_failure(failure, repeat, false, attempt);
            // Nothing was done, or it does no harm: the last failure says more than that time is over, or that the
            // service has enough to do.
            if now() + wait >= deadline || (failure.cause.burdens() && !home.retries.pay()) {
                return Err(last());
            }
            tokio::time::sleep(wait).await;
            match (at, to) {
                (Target::Same, _) => {
                    if failure.cause.is_loss() {
                        links.forget_leader();
                    }
                }
                (Target::Leader, _) => {
                    if let Cause::Refused {
                        leader: Some(leader), ..
                    } = &failure.cause
                    {
                        trying.hops += 1;
                        links.follow(leader.clone());
                    }
                }
                (Target::Elsewhere | Target::Refreshed, Where::Placement) => links.look_elsewhere(),
                (Target::Elsewhere, Where::Stream(..)) if !links.is_routed() => home.move_on(),
                (Target::Elsewhere | Target::Refreshed, Where::Stream(stream, _)) => {
                    find(links, stream, deadline, last).await?;
                }
            }
            Ok(())
        }
    }
}

/// Asks where a stream is. That it is nowhere, or not to be found in time, ends the call; a server that knows nothing of
/// places cannot say more than the refusal did.
async fn find(
    links: &Arc<Links>,
    stream: StreamId,
    deadline: Instant,
    last: impl FnOnce() -> ClientError,
) -> Result<(), ClientError> {
    match links.refresh(stream, deadline).await {
        Err(error) if error.code() == ErrorCode::UNSUPPORTED_OPERATION => Err(last()),
        found => found,
    }
}

async fn attempt_call(link: &Arc<Link>, plan: Plan, header: Bytes) -> Result<Answer, Failure> {
    let (reply, answer) = oneshot::channel();
    let Plan {
        opcode,
        needs,
        deadline,
        ..
    } = plan;
    link.post(Command::Call(Box::new(Call {
        opcode,
        header,
        needs,
        deadline,
        reply,
    })));
    await_reply(answer, deadline).await
}

/// Waits for what a connection tells about a call.
pub(crate) async fn await_reply<T>(
    answer: oneshot::Receiver<Result<T, Failure>>,
    deadline: Instant,
) -> Result<T, Failure> {
    let last = tokio::time::Instant::from_std(deadline + LAST_RESORT);
    match tokio::time::timeout_at(last, answer).await {
        Ok(Ok(result)) => result,
        Ok(Err(_dropped)) => {
            let reason = "its task was stopped".to_owned();
            Err(Failure::from(Cause::ConnectionLost { sent: true, reason }))
        }
        Err(_elapsed) => Err(Failure::from(Cause::deadline(true))),
    }
}

/// What becomes of an append whose attempt failed.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Its caller is told.
    Fail(ClientError),
    /// It goes first on the next connection: nothing was done here, so nothing may pass it.
    NextConnection,
    /// It is submitted again after a while.
    After {
        /// How long.
        wait: Duration,
        /// Whether another server is to get it.
        elsewhere: bool,
    },
    /// It is asked after a while where its streams are, and then submitted there.
    Reroute {
        /// How long.
        wait: Duration,
    },
}

/// Decides about an append. `attempts` counts the one that failed; `retries` pays for those that make work.
pub(crate) fn after_failed_append(
    failure: &Failure,
    attempts: u32,
    deadline: Instant,
    policy: &RetryPolicy,
    retries: &RetryBudget,
) -> NextStep {
    let asked = Asked {
        repeat: Repeat::Twice,
        half: Half::Ranges,
        servers: 1,
        hops: 0,
        routed: true,
    };
    let repeat = asked.repeat;
    match decide(&failure.cause, asked, attempts, policy) {
        decision @ Decision::Final { .. } => {
            NextStep::Fail(ClientError::from_decision(failure, repeat, decision, attempts))
        }
        Decision::Again { after, at } => {
            if matches!(
                failure.cause,
                Cause::ConnectionLost { .. } | Cause::NotStarted | Cause::Unreachable { .. }
            ) {
                return NextStep::NextConnection;
            }
            let wait = duration_of(after, attempts, policy);
            if now() + wait >= deadline || (failure.cause.burdens() && !retries.pay()) {
                return NextStep::Fail(ClientError::from_failure(failure, repeat, false, attempts));
            }
            match at {
                Target::Same => NextStep::After { wait, elsewhere: false },
                Target::Elsewhere | Target::Leader => NextStep::After { wait, elsewhere: true },
                Target::Refreshed => NextStep::Reroute { wait },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use sbp_messages::ErrorCode;

    use super::{NextStep, after_failed_append};
    use crate::config::RetryPolicy;
    use crate::error::ErrorKind;
    use crate::failure::{Cause, Failure};
    use crate::retry_budget::RetryBudget;

    fn step(cause: Cause, time_left: Duration) -> NextStep {
        after_failed_append(
            &Failure::from(cause),
            1,
            Instant::now() + time_left,
            &RetryPolicy::default(),
            &RetryBudget::default(),
        )
    }

    fn refused(code: ErrorCode, throttle: Duration) -> Cause {
        Cause::Refused {
            code,
            message: "no".to_owned(),
            throttle,
            leader: None,
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_was_not_started_goes_first_on_the_next_connection() {
        let lost = Cause::ConnectionLost {
            sent: false,
            reason: "reset".to_owned(),
        };
        assert!(matches!(step(lost, LONG), NextStep::NextConnection));
        assert!(matches!(step(Cause::NotStarted, LONG), NextStep::NextConnection));
    }

    #[test]
    fn what_may_have_been_stored_is_never_sent_again() {
        let lost = Cause::ConnectionLost {
            sent: true,
            reason: "reset".to_owned(),
        };
        for cause in [
            lost,
            refused(ErrorCode::RS_INTERNAL_SERVER_ERROR, Duration::ZERO),
            Cause::deadline(true),
        ] {
            let NextStep::Fail(error) = step(cause, LONG) else {
                panic!("it is sent again")
            };
            assert_eq!(error.kind(), ErrorKind::Indeterminate);
        }
    }

    #[test]
    fn a_refusal_that_may_pass_is_waited_for_only_while_there_is_time() {
        let asked = Duration::from_secs(2);
        let throttled = || refused(ErrorCode::TOO_MANY_REQUESTS, asked);
        let NextStep::After { wait, elsewhere } = step(throttled(), LONG) else {
            panic!("it may pass")
        };
        assert!(wait >= asked && !elsewhere);
        let NextStep::Fail(error) = step(throttled(), Duration::from_secs(1)) else {
            panic!("there is no time")
        };
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Rejected, ErrorCode::TOO_MANY_REQUESTS)
        );
        let elsewhere = step(refused(ErrorCode::RS_DATA_CORRUPTED, Duration::ZERO), LONG);
        assert!(matches!(elsewhere, NextStep::After { elsewhere: true, .. }));
        for code in [ErrorCode::RANGE_NOT_FOUND, ErrorCode::UNSUPPORTED_OPERATION] {
            let refreshed = step(refused(code, Duration::ZERO), LONG);
            assert!(matches!(refreshed, NextStep::Reroute { wait } if wait.is_zero()));
        }
    }

    #[test]
    fn appends_that_burden_the_service_are_repeated_only_as_long_as_others_succeed() {
        let retries = RetryBudget::default();
        let failure = Failure::from(refused(ErrorCode::INSUFFICIENT_STORAGE, Duration::ZERO));
        let repeated = || {
            let deadline = Instant::now() + LONG;
            let step = after_failed_append(&failure, 1, deadline, &RetryPolicy::default(), &retries);
            matches!(step, NextStep::After { .. })
        };
        assert_eq!((0..1_000).filter(|_| repeated()).count(), 100);
        (0..5).for_each(|_| retries.refund());
        assert!(repeated() && !repeated());
    }
}
