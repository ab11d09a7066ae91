//! Calls about streams, ranges and servers: each asks about many things and gets a result for each.

mod cluster;
mod known;
mod ranges;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use sbp_messages::{Message, Status};

use crate::call::answers::{expect_results, gather};
use crate::call::{self, Plan, Where};
use crate::channel::command::{Answer, Need};
use crate::channel::header::{encoded, millis};
use crate::client::Client;
use crate::error::ClientError;
use crate::retry::Repeat;

/// Entries of one request; more are split over several.
const ENTRIES: usize = 1_024;

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
            let (more, server) = call::call(self.pool(), plan, encode, read).await?;
            expect_results(part.len(), more.len())?;
            results.extend(more.into_iter().map(|result| (result, Arc::clone(&server))));
        }
        Ok(results)
    }
}

/// Remembers a stream that a server described.
fn known_stream(client: &Client, stream: sbp_messages::Stream) -> Arc<sbp_messages::Stream> {
    let stream = Arc::new(stream);
    client.remember(&stream);
    stream
}
