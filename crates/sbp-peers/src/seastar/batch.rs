//! Calls that are handed over together, and whose replies are delivered together.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::error::SeastarError;

/// What a call ends with: what its verb returns, or why it returns nothing.
pub type CallResult = Result<Bytes, SeastarError>;

/// Where the replies of many calls are delivered together.
///
/// Called on a connection's task, once for all replies of a turn of it: it must not block, and should do little more than move
/// the batch and wake someone. What it leaves in `batch` is dropped; the vector's memory is used again.
pub trait ReplySink: Send + Sync {
    /// Takes results, with the tokens that their calls were submitted with.
    fn complete(&self, batch: &mut Vec<(u64, CallResult)>);
}

/// A call, and where its result goes.
#[derive(Debug)]
pub struct Submission {
    /// The verb that is called.
    pub verb: u64,
    /// Its arguments.
    pub payload: Bytes,
    /// When the call gives up.
    pub deadline: Instant,
    /// Who is told.
    pub reply: SinkReply,
}

/// Who is told the result of a call. Dropped untold, it tells that the outcome is unknown, so that nobody waits for ever.
pub struct SinkReply {
    /// `None`: it was told.
    sink: Option<Arc<dyn ReplySink>>,
    token: u64,
}

impl SinkReply {
    /// A result that goes to `sink`, with this token.
    #[must_use]
    pub fn new(sink: Arc<dyn ReplySink>, token: u64) -> Self {
        Self {
            sink: Some(sink),
            token,
        }
    }

    /// Tells one result at once, outside a connection's turn.
    pub(super) fn send(mut self, result: CallResult) {
        if let Some(sink) = self.sink.take() {
            sink.complete(&mut vec![(self.token, result)]);
        }
    }
}

impl Drop for SinkReply {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            let stopped = SeastarError::closed().perhaps_done();
            sink.complete(&mut vec![(self.token, Err(stopped))]);
        }
    }
}

impl fmt::Debug for SinkReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkReply")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// The results of a turn of a connection, until it ends.
#[derive(Default)]
pub(super) struct TurnResults {
    /// Whose the results are.
    sink: Option<Arc<dyn ReplySink>>,
    results: Vec<(u64, CallResult)>,
}

impl TurnResults {
    /// Adds one. What another sink is to be told leaves at once.
    pub(super) fn add(&mut self, mut reply: SinkReply, result: CallResult) {
        let Some(sink) = reply.sink.take() else { return };
        if self.sink.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &sink)) {
            self.deliver();
            self.sink = Some(sink);
        }
        self.results.push((reply.token, result));
    }

    /// Delivers what there is.
    pub(super) fn deliver(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.complete(&mut self.results);
            self.results.clear();
        }
    }
}

impl Drop for TurnResults {
    fn drop(&mut self) {
        self.deliver();
    }
}

impl fmt::Debug for TurnResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnResults")
            .field("results", &self.results)
            .finish_non_exhaustive()
    }
}
