//! Calls about streams, ranges and servers: each asks about many things and gets a result for each.

mod cluster;
mod ranges;
mod streams;

pub(crate) use self::ranges::list_ranges;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sbp_messages::{Encoder, ErrorCode, Message, Status};

use crate::client::Client;
use crate::connection::command::{Answer, Need};
use crate::connection::{refused, undecodable};
use crate::error::ClientError;
use crate::execute::{self, Plan, Where};
use crate::failure::Cause;
use crate::retry::Repeat;

/// Entries of one request; more are split over several.
const ENTRIES: usize = 1_024;

/// A result for each thing that was asked for, in the order of asking.
pub type Each<T> = Vec<Result<T, ClientError>>;

impl Client {
    /// A call that does no harm when it is made twice, and that every server can take.
    fn harmless<M: Message>(&self, timeout: Option<Duration>) -> Plan {
        self.needing::<M>(Need::Nothing, timeout)
    }

    /// As [`Self::harmless`], but for servers that have a feature.
    fn needing<M: Message>(&self, needs: Need, timeout: Option<Duration>) -> Plan {
        Plan {
            opcode: M::OPCODE,
            needs,
            repeat: Repeat::Harmless,
            to: Where::Placement,
            deadline: self.deadline(timeout),
        }
    }

    /// Asks about many things, as many in one request as a server takes. `request` makes the request for a part of them,
    /// `take` takes an answer's frame apart. The results are as many as the things, in their order; each comes with who
    /// gave it.
    async fn ask_each<A, M: Message, N: Message, R>(
        &self,
        plan: Plan,
        asked: &[A],
        mut request: impl FnMut(i32, &[A]) -> M,
        mut take: impl FnMut(N) -> (Vec<R>, Status, i32),
    ) -> Result<Vec<(R, Arc<str>)>, ClientError> {
        let mut results = Vec::with_capacity(asked.len());
        for part in asked.chunks(ENTRIES) {
            let encode = |left| encoded(&request(millis(left), part));
            let read = |answer: &Answer| Ok((gather(answer, &mut take)?, Arc::clone(&answer.endpoint)));
            let (more, server) = execute::call(self.links(), plan, encode, read).await?;
            expect_results(part.len(), more.len())?;
            results.extend(more.into_iter().map(|result| (result, Arc::clone(&server))));
        }
        Ok(results)
    }
}

/// The time that is left, as requests carry it.
pub(crate) fn millis(left: Duration) -> i32 {
    i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1)
}

pub(crate) fn encoded<M: Message>(message: &M) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    out.freeze()
}

/// The results of all frames of an answer, in their order. The last frame's status speaks for the call.
fn gather<M: Message, R>(answer: &Answer, mut take: impl FnMut(M) -> (Vec<R>, Status, i32)) -> Result<Vec<R>, Cause> {
    let mut results = Vec::new();
    let mut last = (Status::success(), 0);
    for frame in &answer.frames {
        let message = M::decode(&frame.header).map_err(|error| undecodable(frame, &error))?;
        let (part, status, throttle) = take(message);
        results.extend(part);
        last = (status, throttle);
    }
    let (status, throttle) = last;
    answer.throttle_ms.set(throttle);
    if status.is_success() {
        Ok(results)
    } else {
        Err(refused(&status, throttle))
    }
}

/// The one frame of an answer that is not about many things.
fn single<M: Message, R>(answer: &Answer, take: impl FnOnce(M) -> (R, Status)) -> Result<R, Cause> {
    let Some(frame) = answer.frames.last() else {
        return Err(Cause::Protocol {
            what: "a call ended without an answer".into(),
        });
    };
    let message = M::decode(&frame.header).map_err(|error| undecodable(frame, &error))?;
    let (result, status) = take(message);
    if status.is_success() {
        Ok(result)
    } else {
        Err(refused(&status, 0))
    }
}

fn expect_results(asked: usize, got: usize) -> Result<(), ClientError> {
    if asked == got {
        return Ok(());
    }
    Err(ClientError::protocol(format!(
        "{asked} things were asked for and {got} answered"
    )))
}

/// What one entry got: the thing itself, which goes with success, or why not.
fn entry<T>(status: &Status, server: &Arc<str>, found: Option<T>, what: &str) -> Result<T, ClientError> {
    match (status.is_success(), found) {
        (true, Some(found)) => Ok(found),
        (true, None) => {
            let error = ClientError::protocol(format!("{what} is not described"));
            Err(error.with_endpoint(Some(server)))
        }
        (false, _) => Err(entry_error(status, server)),
    }
}

pub(crate) fn entry_error(status: &Status, server: &Arc<str>) -> ClientError {
    let message = if status.message.is_empty() {
        ErrorCode::name(status.code)
    } else {
        &status.message
    };
    ClientError::entry(status.code, message, Some(server))
}

/// Remembers a stream that a server described.
fn known(client: &Client, stream: sbp_messages::Stream) -> Arc<sbp_messages::Stream> {
    let stream = Arc::new(stream);
    client.remember(&stream);
    stream
}
