//! Appends on their way from the caller to a connection: one hand-over for everything that was called in a tick.

pub(crate) mod attempt;
pub(crate) mod budget;
pub(crate) mod failed;
pub(crate) mod gather;

pub use self::budget::AppendsInFlight;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sbp_types::{Offset, StreamId};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::codes;
use crate::error::{ClientError, ErrorKind};
use crate::failure::{Cause, Failure};
use crate::outcome::AppendOutcome;
use crate::submission::attempt::AttemptEnd;
use crate::submission::gather::Gather;

/// What a sink and a future are told in the end.
pub type AppendResultOf = Result<AppendOutcome, ClientError>;

/// Where the outcomes of many appends are delivered together.
///
/// Called on a connection's task, once per turn of it with everything the turn completed: it must not block and should
/// do little more than move the batch and wake someone. What it leaves in `batch` is dropped; the vector's memory is
/// used again.
pub trait CompletionSink: Send + Sync {
    /// Takes outcomes with the tokens their appends were submitted under.
    fn complete(&self, batch: &mut Vec<(u64, AppendResultOf)>);
}

/// Who is told the outcome of an append. Dropped untold, it tells that the outcome is unknown, so that nobody waits for
/// ever.
pub struct Reply(Option<ReplyTo>);

/// What a writer knows its attempts by: one for each entry of an append, in their order.
pub(crate) type Tokens = SmallVec<[u64; 1]>;

/// The kinds of receivers.
pub(crate) enum ReplyTo {
    Future(oneshot::Sender<AppendResultOf>),
    Sink(Arc<dyn CompletionSink>, u64),
    Attempts(Arc<dyn AttemptSink>, Tokens),
    Part(Arc<Gather>, SmallVec<[usize; 1]>),
}

/// Where the ends of a writer's attempts are delivered: it decides itself what follows from a failure.
pub(crate) trait AttemptSink: Send + Sync + fmt::Debug {
    /// Takes ends with the tokens of their attempts. What it leaves is dropped. Must not block.
    fn ended(self: Arc<Self>, ends: &mut Vec<(u64, AttemptEnd)>);

    /// Sends what it can. Must not block.
    fn pump(self: Arc<Self>);
}

impl Reply {
    /// A reply that resolves a future.
    #[must_use]
    pub fn future() -> (Self, oneshot::Receiver<AppendResultOf>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(ReplyTo::Future(sender))), receiver)
    }

    /// A reply that goes to `sink` under `token`.
    #[must_use]
    pub fn sink(sink: Arc<dyn CompletionSink>, token: u64) -> Self {
        Self(Some(ReplyTo::Sink(sink, token)))
    }

    /// A reply that tells a writer how the one attempt at each entry ended.
    pub(crate) fn attempts(sink: Arc<dyn AttemptSink>, tokens: Tokens) -> Self {
        Self(Some(ReplyTo::Attempts(sink, tokens)))
    }

    /// A reply that tells of some of the entries of an append.
    pub(crate) fn part(gather: Arc<Gather>, places: SmallVec<[usize; 1]>) -> Self {
        Self(Some(ReplyTo::Part(gather, places)))
    }

    /// Whether it is a writer's, to whom failures are told as they are.
    pub(crate) fn is_attempt(&self) -> bool {
        matches!(self.0, Some(ReplyTo::Attempts(..)))
    }

    /// Tells a writer of attempts that never left this side.
    pub(crate) fn fail_attempts(self, failure: &Failure) {
        if let Some(ReplyTo::Attempts(sink, tokens)) = self.take() {
            fail_attempts(sink, &tokens, failure);
        }
    }

    /// Takes a writer's reply apart; gives back one that is not.
    pub(crate) fn into_attempts(mut self) -> Result<(Arc<dyn AttemptSink>, Tokens), Self> {
        match self.0.take() {
            Some(ReplyTo::Attempts(sink, tokens)) => Ok((sink, tokens)),
            other => Err(Self(other)),
        }
    }

    /// Whether the outcome has been told.
    pub(crate) fn is_told(&self) -> bool {
        self.0.is_none()
    }

    /// Takes the reply out and leaves one that has nothing to tell.
    pub(crate) fn replace_with_told(&mut self) -> Self {
        Self(self.0.take())
    }

    pub(crate) fn take(mut self) -> Option<ReplyTo> {
        self.0.take()
    }

    /// Tells one outcome at once, outside a connection's turn.
    pub(crate) fn send(self, result: AppendResultOf) {
        if let Some(to) = self.take() {
            to.send(result);
        }
    }
}

impl ReplyTo {
    fn send(self, result: AppendResultOf) {
        match self {
            // An error means that nobody waits any more.
            Self::Future(sender) => drop(sender.send(result)),
            Self::Sink(sink, token) => sink.complete(&mut vec![(token, result)]),
            Self::Attempts(sink, tokens) => {
                let reason = "its task was stopped".to_owned();
                fail_attempts(sink, &tokens, &Cause::ConnectionLost { sent: true, reason }.into());
            }
            Self::Part(gather, places) => {
                if let Some((reply, result)) = gather.add(&places, result) {
                    reply.send(result);
                }
            }
        }
    }
}

fn fail_attempts(sink: Arc<dyn AttemptSink>, tokens: &[u64], failure: &Failure) {
    let end = |&token: &u64| (token, AttemptEnd::failed(failure.clone()));
    sink.ended(&mut tokens.iter().map(end).collect());
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to.send(Err(ClientError::new(
                ErrorKind::Indeterminate,
                codes::CANCELLED,
                "the client stopped before the outcome was known",
            )));
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

/// One encoded record batch: where its bytes are.
#[derive(Clone, Debug)]
pub enum Body {
    /// In the arena, whole.
    Copied(Range<usize>),
    /// Head in the arena, body by reference, then this many zero bytes.
    Shared {
        /// The head's place in the arena.
        head: Range<usize>,
        /// The stored body.
        body: Bytes,
        /// Zero bytes behind the body, fewer than 16.
        padding: usize,
    },
}

impl Body {
    /// The batch's length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Copied(range) => range.len(),
            Self::Shared { head, body, padding } => head.len() + body.len() + padding,
        }
    }

    /// Whether there are no bytes, which no batch has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One batch for one stream.
#[derive(Clone, Debug)]
pub struct AppendEntry {
    /// The stream.
    pub stream: StreamId,
    /// The encoded batch.
    pub body: Body,
    /// How many records it holds.
    pub records: u32,
    /// The offset it must get, else it is refused; `None`: the server assigns.
    pub expected_offset: Option<Offset>,
    /// It makes a writer's epoch current and is nothing else, which not every server understands.
    pub(crate) is_fence: bool,
}

impl AppendEntry {
    /// An entry for whose batch the server assigns the offset.
    #[must_use]
    pub fn new(stream: StreamId, body: Body, records: u32) -> Self {
        Self {
            stream,
            body,
            records,
            expected_offset: None,
            is_fence: false,
        }
    }
}

/// One append: its entries travel in one frame and are answered together.
#[derive(Debug)]
pub struct AppendOp {
    pub(crate) entries: SmallVec<[AppendEntry; 1]>,
    pub(crate) deadline: Instant,
    pub(crate) reply: Reply,
    /// Attempts that have failed so far.
    pub(crate) attempts: u32,
    /// When it was submitted.
    pub(crate) since: Option<Instant>,
    /// Why the last one was refused, if it was: says more than that time is over while it waits for the next.
    pub(crate) refusal: Option<Box<Failure>>,
}

impl AppendOp {
    /// An append of `entries` that must be answered by `deadline`.
    #[must_use]
    pub fn new(entries: SmallVec<[AppendEntry; 1]>, deadline: Instant, reply: Reply) -> Self {
        Self {
            entries,
            deadline,
            reply,
            attempts: 0,
            since: None,
            refusal: None,
        }
    }

    /// What its caller is told of a failure. That time is over says less than why the append was refused before; but that a
    /// placement driver takes no appends says less than that the server could not be reached which it named.
    pub(crate) fn reason(&mut self, failure: Failure) -> Failure {
        match (&failure.cause, self.refusal.take()) {
            (Cause::Deadline { sent: false, .. }, Some(refusal))
                if !refusal.cause.is_misdirected() || refusal.endpoint == failure.endpoint =>
            {
                *refusal
            }
            _ => failure,
        }
    }

    /// The batches' bytes, together.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.body.len()).sum()
    }
}

/// Appends collected for one hand-over, and the arena their small bodies lie in.
///
/// Fill it, then give it to [`Client::submit`](crate::Client::submit), which leaves an empty one in its place whose
/// memory has been used before.
#[derive(Debug, Default)]
pub struct Submissions {
    pub(crate) ops: Vec<AppendOp>,
    pub(crate) arena: BytesMut,
}

impl Submissions {
    /// How many appends are worth a hand-over of their own. Caller, client and server then work at the same time; with
    /// everything handed over at once each waits while another works.
    const ENOUGH: usize = 64;

    /// An empty collection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are enough for a hand-over although more will follow: 64.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ops.len() >= Self::ENOUGH
    }

    /// How many appends were collected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Bytes of all bodies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ops.iter().map(AppendOp::bytes).sum()
    }

    /// Adds an append whose bodies were put here before.
    pub fn push(&mut self, op: AppendOp) {
        self.ops.push(op);
    }

    /// Lets `write` append one whole batch to the arena and returns where it is.
    pub fn place<E>(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<Body, E> {
        let start = self.arena.len();
        match write(&mut self.arena) {
            Ok(()) => Ok(Body::Copied(start..self.arena.len())),
            Err(error) => {
                self.arena.truncate(start);
                Err(error)
            }
        }
    }

    /// Copies a batch that is encoded already.
    pub fn place_encoded(&mut self, batch: &[u8]) -> Body {
        let start = self.arena.len();
        self.arena.extend_from_slice(batch);
        Body::Copied(start..self.arena.len())
    }

    /// They are submitted now, but for those that were before.
    pub(crate) fn submitted(&mut self, now: Instant) {
        for op in &mut self.ops {
            op.since.get_or_insert(now);
        }
    }

    /// Forgets everything and keeps the memory, unless a rare large load made it big.
    pub(crate) fn recycle(&mut self) {
        const KEEP: usize = 1 << 20;
        self.ops.clear();
        if self.arena.capacity() > KEEP {
            self.arena = BytesMut::new();
        } else {
            self.arena.clear();
        }
    }

    /// Takes over an append whose bodies lie in another arena.
    pub(crate) fn adopt(&mut self, mut op: AppendOp, arena: &[u8]) {
        for entry in &mut op.entries {
            let range = match &mut entry.body {
                Body::Copied(range) | Body::Shared { head: range, .. } => range,
            };
            let start = self.arena.len();
            self.arena
                .extend_from_slice(arena.get(range.clone()).unwrap_or_default());
            *range = start..self.arena.len();
        }
        self.ops.push(op);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use sbp_locks::Mutex;
    use sbp_types::StreamId;
    use smallvec::smallvec;

    use super::{AppendEntry, AppendOp, AppendResultOf, Body, CompletionSink, Reply, Submissions};

    #[derive(Default)]
    struct Collected(Mutex<Vec<(u64, bool)>>);

    impl CompletionSink for Collected {
        fn complete(&self, batch: &mut Vec<(u64, AppendResultOf)>) {
            let told = batch
                .drain(..)
                .map(|(token, result)| (token, result.is_err_and(|e| e.is_indeterminate())));
            self.0.lock().extend(told);
        }
    }

    #[test]
    fn a_reply_that_is_dropped_says_that_the_outcome_is_unknown() {
        let sink = Arc::new(Collected::default());
        drop(Reply::sink(sink.clone(), 5));
        assert_eq!(*sink.0.lock(), [(5, true)]);
    }

    #[test]
    fn adopted_appends_keep_their_bytes() {
        let mut from = Submissions::new();
        from.place_encoded(b"someone else's");
        let body = from.place_encoded(b"mine");
        let (reply, _receiver) = Reply::future();
        let entry = AppendEntry::new(StreamId(1), body, 1);
        let op = AppendOp::new(smallvec![entry], Instant::now(), reply);
        let mut to = Submissions::new();
        to.place_encoded(b"other");
        to.adopt(op, &from.arena);
        let Body::Copied(range) = to.ops[0].entries[0].body.clone() else {
            panic!("a copied body")
        };
        assert_eq!(&to.arena[range], b"mine");
    }
}
