//! Answers taken apart: about many things, with a result for each, or about one.

use std::sync::Arc;

use sbp_messages::{Message, Status};

use crate::channel::command::Answer;
use crate::error::ClientError;
use crate::failure::Cause;

/// A result for each thing that was asked for, in the order of asking.
pub type Each<T> = Vec<Result<T, ClientError>>;

/// The results of all frames of an answer, in their order. The last frame's status speaks for the call.
pub(crate) fn gather<M: Message, R>(
    answer: &Answer,
    mut take: impl FnMut(M) -> (Vec<R>, Status, i32),
) -> Result<Vec<R>, Cause> {
    let mut results = Vec::new();
    let mut last = (Status::success(), 0);
    for frame in &answer.frames {
        let message = M::decode(&frame.header).map_err(|error| Cause::undecodable(frame, &error))?;
        let (part, status, throttle) = take(message);
        results.extend(part);
        last = (status, throttle);
    }
    let (status, throttle) = last;
    answer.throttle_ms.set(throttle);
    if status.is_success() {
        Ok(results)
    } else {
        Err(Cause::refused(&status, throttle))
    }
}

/// The one frame of an answer that is not about many things.
pub(crate) fn single<M: Message, R>(answer: &Answer, take: impl FnOnce(M) -> (R, Status)) -> Result<R, Cause> {
    let Some(frame) = answer.frames.last() else {
        return Err(Cause::Protocol {
            what: "a call ended without an answer".into(),
        });
    };
    let message = M::decode(&frame.header).map_err(|error| Cause::undecodable(frame, &error))?;
    let (result, status) = take(message);
    if status.is_success() {
        Ok(result)
    } else {
        Err(Cause::refused(&status, 0))
    }
}

pub(crate) fn expect_results(asked: usize, got: usize) -> Result<(), ClientError> {
    if asked == got {
        return Ok(());
    }
    Err(ClientError::protocol(format!(
        "{asked} things were asked for and {got} answered"
    )))
}

/// What one entry got: the thing itself, which goes with success, or why not.
pub(crate) fn entry<T>(status: &Status, server: &Arc<str>, found: Option<T>, what: &str) -> Result<T, ClientError> {
    match (status.is_success(), found) {
        (true, Some(found)) => Ok(found),
        (true, None) => {
            let error = ClientError::protocol(format!("{what} is not described"));
            Err(error.with_endpoint(Some(server)))
        }
        (false, _) => Err(ClientError::entry(status, Some(server))),
    }
}

/// The one result of a call about one thing.
pub(crate) fn only<T>(mut each: Each<T>) -> Result<T, ClientError> {
    each.pop()
        .unwrap_or_else(|| Err(ClientError::protocol("what was asked for is not answered")))
}
