//! The loop over attempts: the only place where a call is repeated.
//!
//! Calls whose answer is one thing go through [`call`]. Appends are too many for a task each: their connection asks
//! [`after_failed_append`] what to do, which takes the same decision without waiting for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_frame::OpCode;
use tokio::sync::oneshot;

use crate::clock::now;
use crate::config::RetryPolicy;
use crate::connection::command::{Answer, Call, Command, Need};
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::link::Link;
use crate::retry::{Asked, Decision, Half, Repeat, Target, Wait, decide, duration_of};

/// The connection enforces deadlines; this side only makes sure that a call ends even if it does not.
const LAST_RESORT: Duration = Duration::from_millis(500);

/// What is the same in every attempt of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) opcode: OpCode,
    pub(crate) needs: Need,
    pub(crate) repeat: Repeat,
    pub(crate) deadline: Instant,
}

/// Makes attempts until one succeeds or a failure is final. `encode` gets the time that is left; `read` judges an answer.
pub(crate) async fn call<T>(
    link: &Arc<Link>,
    plan: Plan,
    mut encode: impl FnMut(Duration) -> Bytes,
    mut read: impl FnMut(&Answer) -> Result<T, Cause>,
) -> Result<T, ClientError> {
    let mut attempt = 0;
    let mut before: Option<Failure> = None;
    loop {
        attempt += 1;
        let header = encode(plan.deadline.saturating_duration_since(now()));
        let failure = match attempt_call(link, plan, header).await {
            Ok(answer) => match read(&answer) {
                Ok(value) => return Ok(value),
                Err(cause) => Failure::new(cause, Some(&answer.endpoint)),
            },
            Err(failure) => failure,
        };
        if let Err(error) = pause(link, &failure, plan.repeat, attempt, plan.deadline).await {
            return Err(match before {
                // That time is over says little; why it took so long says more.
                Some(before) if error.is_timeout() => error.after(&before),
                _ => error,
            });
        }
        before = Some(failure);
    }
}

/// Waits before the next attempt, as decided; the error is the call's when there is none.
pub(crate) async fn pause(
    link: &Arc<Link>,
    failure: &Failure,
    repeat: Repeat,
    attempt: u32,
    deadline: Instant,
) -> Result<(), ClientError> {
    let policy = &link.config.retry;
    let asked = Asked {
        repeat,
        half: Half::Placement,
        servers: 1,
        hops: 0,
    };
    match decide(&failure.cause, asked, attempt, policy) {
        decision @ Decision::Final { .. } => Err(ClientError::from_decision(failure, repeat, decision, attempt)),
        Decision::Again { after, at } => {
            let wait = duration_of(after, attempt, policy);
            if now() + wait >= deadline {
                // Nothing was done, or it does no harm: the last failure says more than that time is over.
                return Err(ClientError::from_failure(failure, repeat, false, attempt));
            }
            if at == Target::Elsewhere {
                link.move_on();
            }
            tokio::time::sleep(wait).await;
            Ok(())
        }
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
}

/// Decides about an append. `attempts` counts the one that failed.
pub(crate) fn after_failed_append(
    failure: &Failure,
    attempts: u32,
    deadline: Instant,
    policy: &RetryPolicy,
) -> NextStep {
    let repeat = Repeat::Twice;
    let asked = Asked {
        repeat,
        half: Half::Ranges,
        servers: 1,
        hops: 0,
    };
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
            let wait = match after {
                Wait::None => Duration::ZERO,
                after => duration_of(after, attempts, policy),
            };
            if now() + wait >= deadline {
                return NextStep::Fail(ClientError::from_failure(failure, repeat, false, attempts));
            }
            NextStep::After {
                wait,
                elsewhere: at == Target::Elsewhere,
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

    fn step(cause: Cause, time_left: Duration) -> NextStep {
        after_failed_append(
            &Failure::from(cause),
            1,
            Instant::now() + time_left,
            &RetryPolicy::default(),
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
        let elsewhere = step(refused(ErrorCode::PD_NOT_LEADER, Duration::ZERO), LONG);
        assert!(matches!(elsewhere, NextStep::After { elsewhere: true, .. }));
    }
}
