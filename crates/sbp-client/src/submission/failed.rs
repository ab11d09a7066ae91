//! What becomes of an append whose attempt failed. Appends are too many for a task each: their connection asks here what to
//! do, which takes the same decision as the loop over a call's attempts without waiting for it.

use std::time::{Duration, Instant};

use crate::clock::now;
use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::failure::Failure;
use crate::retry::budget::RetryBudget;
use crate::retry::{CallFacts, Decision, Repeat, Target, decide, duration_of};

/// What becomes of an append whose attempt failed.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// Its caller is told.
    Fail(ClientError),
    /// It goes first on the next connection: nothing was done here, so nothing may pass it.
    NextConnection,
    /// It is submitted again after a while.
    Again {
        /// How long.
        wait: Duration,
        /// Which server gets it.
        at: Target,
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
    let repeat = Repeat::Twice;
    match decide(&failure.cause, CallFacts::append(repeat), attempts, policy) {
        Decision::Final { may_have_been_done } => {
            NextStep::Fail(ClientError::from_failure(failure, repeat, may_have_been_done, attempts))
        }
        Decision::Again { after, at } => {
            if failure.cause.is_loss() {
                return NextStep::NextConnection;
            }
            let wait = duration_of(after, attempts, policy);
            if now() + wait >= deadline || (failure.cause.burdens() && !retries.pay()) {
                return NextStep::Fail(ClientError::from_failure(failure, repeat, false, attempts));
            }
            NextStep::Again { wait, at }
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
    use crate::retry::Target;
    use crate::retry::budget::RetryBudget;

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
        let NextStep::Again { wait, at } = step(throttled(), LONG) else {
            panic!("it may pass")
        };
        assert!(wait >= asked && at == Target::Same);
        let NextStep::Fail(error) = step(throttled(), Duration::from_secs(1)) else {
            panic!("there is no time")
        };
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Rejected, ErrorCode::TOO_MANY_REQUESTS)
        );
        let elsewhere = step(refused(ErrorCode::RS_DATA_CORRUPTED, Duration::ZERO), LONG);
        assert!(matches!(
            elsewhere,
            NextStep::Again {
                at: Target::Elsewhere,
                ..
            }
        ));
        for code in [ErrorCode::RANGE_NOT_FOUND, ErrorCode::UNSUPPORTED_OPERATION] {
            let refreshed = step(refused(code, Duration::ZERO), LONG);
            assert!(matches!(refreshed, NextStep::Again { wait, at: Target::Refreshed } if wait.is_zero()));
        }
    }

    #[test]
    fn appends_that_burden_the_service_are_repeated_only_as_long_as_others_succeed() {
        let retries = RetryBudget::default();
        let failure = Failure::from(refused(ErrorCode::INSUFFICIENT_STORAGE, Duration::ZERO));
        let repeated = || {
            let deadline = Instant::now() + LONG;
            let step = after_failed_append(&failure, 1, deadline, &RetryPolicy::default(), &retries);
            matches!(step, NextStep::Again { at: Target::Same, .. })
        };
        assert_eq!((0..1_000).filter(|_| repeated()).count(), 100);
        (0..5).for_each(|_| retries.refund());
        assert!(repeated() && !repeated());
    }
}
