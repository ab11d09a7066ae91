//! Calls about streams, ranges and servers: each asks about many things and gets a result for each.

mod balance;
mod caution;
mod cluster;
mod known;
mod moves;
mod ranges;
mod streams;

pub use self::balance::{Move, plan_balance};
pub use self::caution::caution_about_copies;
pub use self::ranges::{ForcedEnd, SealOptions};

use std::sync::Arc;
use std::time::Duration;

use sbp_messages::{Message, Status, Stream};

use crate::call::answers::{Each, expect_results, gather, single};
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
    /// `take` takes an answer's frame apart, and `read` says what the server's result means
    /// for one thing. There is one outcome for each, in their order.
    async fn ask_each<A, M: Message, N: Message, R, T>(
        &self,
        plan: Plan,
        asked: &[A],
        mut request: impl FnMut(i32, &[A]) -> M,
        mut take: impl FnMut(N) -> (Vec<R>, Status, i32),
        mut read: impl FnMut(&A, R, &Arc<str>) -> Result<T, ClientError>,
    ) -> Result<Each<T>, ClientError> {
        let mut each = Vec::with_capacity(asked.len());
        for part in asked.chunks(ENTRIES) {
            let encode = |left| encoded(&request(millis(left), part));
            let gather = |answer: &Answer| Ok((gather(answer, &mut take)?, Arc::clone(&answer.endpoint)));
            let (results, server) = call::call(self.pool(), plan, encode, gather).await?;
            expect_results(part.len(), results.len())?;
            each.extend(
                part.iter()
                    .zip(results)
                    .map(|(asked, result)| read(asked, result, &server)),
            );
        }
        Ok(each)
    }

    /// Asks about one thing. `take` takes the answer apart.
    async fn ask_one<M: Message, N: Message, R>(
        &self,
        timeout: Option<Duration>,
        mut request: impl FnMut(i32) -> M,
        take: impl Fn(N) -> (R, Status),
    ) -> Result<R, ClientError> {
        let encode = |left| encoded(&request(millis(left)));
        let read = |answer: &Answer| single(answer, &take);
        call::call(self.pool(), self.harmless::<M>(timeout), encode, read).await
    }

    /// Remembers a stream that a server described.
    fn known(&self, stream: Stream) -> Arc<Stream> {
        let stream = Arc::new(stream);
        self.remember(&stream);
        stream
    }
}
