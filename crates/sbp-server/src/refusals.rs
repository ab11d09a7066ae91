//! Requests that were refused: counted by their code, and told in the server's log without filling it.

use std::collections::BTreeMap;
use std::time::Instant;

use sbp_frame::OpCode;
use sbp_locks::Mutex;
use sbp_messages::{ErrorCode, Status};
use sbp_transport::LogRateLimiter;

/// How often each code was the answer to a request or to one entry of it.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: Mutex<BTreeMap<ErrorCode, u64>>,
    /// Limits what is logged of refusals that the caller can change something about.
    of_callers: LogRateLimiter,
    /// Limits what is logged of refusals that the server is the cause of.
    of_the_server: LogRateLimiter,
}

impl Refusals {
    /// Notes a refusal; one per second of each kind is logged, with how many were left out.
    pub(crate) fn note(&self, opcode: OpCode, status: &Status, connection: i64, now: Instant) {
        *self.counts.lock().entry(status.code).or_default() += 1;
        let (code, why) = (status.code, status.message.as_str());
        if is_the_servers(code) {
            if let Some(left_out) = self.of_the_server.due(now) {
                tracing::warn!(%opcode, %code, why, connection, left_out, "refused");
            }
        } else if let Some(left_out) = self.of_callers.due(now) {
            tracing::info!(%opcode, %code, why, connection, left_out, "refused");
        }
    }

    /// The codes that were answered, each with its count.
    pub(crate) fn counts(&self) -> Vec<(ErrorCode, u64)> {
        self.counts.lock().iter().map(|(code, count)| (*code, *count)).collect()
    }
}

/// Whether an operator should look: the server is too busy, its disk is full or broken, or it has failed.
fn is_the_servers(code: ErrorCode) -> bool {
    code == ErrorCode::TOO_MANY_REQUESTS || code == ErrorCode::UNKNOWN || (1500..3000).contains(&code.0)
}
