//! The loop over attempts: the only place where a call is repeated.
//!
//! Calls whose answer is one thing go through [`call`]. Appends are too many for a task each: see
//! [`after_failed_append`](crate::submission::failed::after_failed_append).

pub(crate) mod answers;
pub(crate) mod ranges;
mod route;

pub use self::answers::Each;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_frame::OpCode;
use sbp_messages::ErrorCode;
use sbp_types::{Offset, StreamId};
use tokio::sync::oneshot;

use crate::channel::Channel;
use crate::channel::command::{Answer, Call, Command, Need};
use crate::clock::now;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::pool::ConnectionPool;
use crate::retry::{CallFacts, Decision, Half, Repeat, Target, decide, duration_of};

/// The connection enforces deadlines; this side only makes sure that a call ends even if it does not.
const LAST_RESORT: Duration = Duration::from_millis(500);

/// Whom a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// The placement driver.
    Placement,
    /// Whoever has a stream at an offset.
    Stream(StreamId, Offset),
}

impl Where {
    fn half(self) -> Half {
        match self {
            Self::Placement => Half::Placement,
            Self::Stream(..) => Half::Ranges,
        }
    }

    /// Whether others can answer while the server is silent that is asked.
    fn has_elsewhere(self, pool: &ConnectionPool) -> bool {
        match self {
            Self::Placement => pool.has_another_driver(),
            Self::Stream(stream, offset) => pool.has_another_copy(stream, offset),
        }
    }

    fn channel(self, pool: &ConnectionPool) -> Arc<Channel> {
        match self {
            Self::Placement => pool.placement(),
            Self::Stream(stream, offset) => pool.for_fetch(stream, offset),
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

impl Plan {
    /// One attempt: where others may answer as well, one server may not be silent for all of the call's time.
    fn attempt(self, pool: &ConnectionPool) -> Self {
        let Where::Stream(stream, offset) = self.to else {
            return self;
        };
        if self.repeat != Repeat::Harmless {
            return self;
        }
        let began = now();
        let left = self.deadline.saturating_duration_since(began);
        Self {
            deadline: began + pool.patience(Some((stream, offset)), left),
            ..self
        }
    }
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
    pool: &Arc<ConnectionPool>,
    plan: Plan,
    mut encode: impl FnMut(Duration) -> Bytes,
    mut read: impl FnMut(&Answer) -> Result<T, Cause>,
) -> Result<T, ClientError> {
    let mut trying = Trying::new(plan.repeat, plan.to, plan.deadline);
    let mut before: Option<Failure> = None;
    loop {
        let channel = plan.to.channel(pool);
        let attempt = plan.attempt(pool);
        // Not beyond the call's time: then its attempt says that time is over.
        channel.throttles.wait(plan.opcode, Some(plan.deadline)).await;
        let header = encode(attempt.deadline.saturating_duration_since(now()));
        let failure = match attempt_call(&channel, attempt, plan.to.has_elsewhere(pool), header).await {
            Ok(answer) => {
                let result = read(&answer);
                channel.throttles.note(plan.opcode, answer.throttle_ms.get(), now());
                match result {
                    Ok(value) => {
                        channel.retries.refund();
                        return Ok(value);
                    }
                    Err(cause) => Failure::new(cause, Some(&answer.endpoint)),
                }
            }
            Err(failure) => failure,
        };
        if let Err(error) = pause(pool, &failure, &mut trying).await {
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
    pool: &Arc<ConnectionPool>,
    failure: &Failure,
    trying: &mut Trying,
) -> Result<(), ClientError> {
    let home = pool.home();
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
        && let Where::Stream(stream, offset) = to
        && !pool.has_another_copy(stream, offset)
    {
        return Err(ClientError::from_failure(failure, repeat, false, attempt).of_the_only_copy());
    }
    let asked = CallFacts {
        repeat,
        half: to.half(),
        servers: home.servers_named(),
        hops,
        routed: pool.is_routed(),
        leader_is_silent: pool.is_leader_silent(&failure.cause),
    };
    match decide(&failure.cause, asked, attempt, policy) {
        Decision::Final { may_have_been_done } => {
            if to == Where::Placement && matches!(failure.cause, Cause::Silent { .. }) {
                pool.forget_leader();
            }
            if to == Where::Placement && matches!(failure.cause, Cause::Deadline { .. }) {
                // Who is silent is not asked again where others can be: another one may lead by now.
                pool.look_elsewhere();
            }
            Err(ClientError::from_failure(failure, repeat, may_have_been_done, attempt))
        }
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
                    if failure.cause.is_loss() || failure.cause.is_silence() {
                        pool.forget_leader();
                    }
                }
                (Target::Leader, _) => {
                    if let Cause::Refused {
                        leader: Some(leader), ..
                    } = &failure.cause
                    {
                        trying.hops += 1;
                        pool.follow(leader.clone());
                    }
                }
                (Target::Elsewhere | Target::Refreshed, Where::Placement) => pool.look_elsewhere(),
                (Target::Elsewhere, Where::Stream(..)) if !pool.is_routed() => home.move_on(),
                (Target::Elsewhere | Target::Refreshed, Where::Stream(stream, offset)) => {
                    // One that is silent may not know what the others have decided without it.
                    let is_silent = failure.cause.is_silence();
                    let has_another = failure.cause.is_of_one_server() && pool.read_elsewhere(stream, offset);
                    if is_silent || !has_another {
                        find(pool, stream, deadline, last).await?;
                    }
                }
            }
            Ok(())
        }
    }
}

/// Asks where a stream is. That it is nowhere, or not to be found in time, ends the call; a server that knows nothing of
/// places cannot say more than the refusal did.
async fn find(
    pool: &Arc<ConnectionPool>,
    stream: StreamId,
    deadline: Instant,
    last: impl FnOnce() -> ClientError,
) -> Result<(), ClientError> {
    match pool.refresh(stream, deadline).await {
        Err(error) if error.code() == ErrorCode::UNSUPPORTED_OPERATION => Err(last()),
        found => found,
    }
}

async fn attempt_call(
    channel: &Arc<Channel>,
    plan: Plan,
    has_elsewhere: bool,
    header: Bytes,
) -> Result<Answer, Failure> {
    let (reply, answer) = oneshot::channel();
    channel.post(Command::Call(Box::new(Call {
        opcode: plan.opcode,
        header,
        needs: plan.needs,
        deadline: plan.deadline,
        has_elsewhere,
        reply,
    })));
    await_reply(answer, plan.deadline).await
}

/// Waits for what a connection tells about a call.
pub(crate) async fn await_reply<T>(
    answer: oneshot::Receiver<Result<T, Failure>>,
    deadline: Instant,
) -> Result<T, Failure> {
    match tokio::time::timeout_at((deadline + LAST_RESORT).into(), answer).await {
        Ok(Ok(result)) => result,
        Ok(Err(_dropped)) => {
            let reason = "its task was stopped".to_owned();
            Err(Failure::from(Cause::ConnectionLost { sent: true, reason }))
        }
        Err(_elapsed) => Err(Failure::from(Cause::deadline(true))),
    }
}
