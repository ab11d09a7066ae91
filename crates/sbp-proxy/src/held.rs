//! Frames that wait for a hook's decision.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::Seen;

/// A decision about a held frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldDecision {
    Pass,
    Discard,
    Cut,
}

/// A frame that is held, together with everything behind it in its direction, until a method here decides about it.
///
/// It can be sent to another thread: a test can hold an acknowledgement, do something to the server, and then decide.
/// Dropping it passes the frame on.
#[derive(Debug)]
pub struct Held {
    seen: Seen,
    bytes: Bytes,
    verdict: Option<oneshot::Sender<HeldDecision>>,
}

impl Held {
    pub(crate) fn new(seen: Seen, bytes: Bytes) -> (Self, oneshot::Receiver<HeldDecision>) {
        let (sender, receiver) = oneshot::channel();
        let held = Self {
            seen,
            bytes,
            verdict: Some(sender),
        };
        (held, receiver)
    }

    /// What the proxy knows about the frame.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The whole frame as it is on the wire.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Passes the frame on.
    pub fn pass(self) {
        self.decide(HeldDecision::Pass);
    }

    /// Drops the frame; later frames are passed on.
    pub fn discard(self) {
        self.decide(HeldDecision::Discard);
    }

    /// Cuts the connection before the frame.
    pub fn cut(self) {
        self.decide(HeldDecision::Cut);
    }

    fn decide(mut self, verdict: HeldDecision) {
        if let Some(sender) = self.verdict.take() {
            // If the connection has ended meanwhile, the decision is not needed.
            let _ = sender.send(verdict);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(sender) = self.verdict.take() {
            let _ = sender.send(HeldDecision::Pass);
        }
    }
}

/// A callback that decides about held frames. Called on the proxy's thread, so it must not block: it decides at once,
/// or passes the [`Held`] on to another thread.
#[derive(Clone)]
pub struct Hook(Arc<dyn Fn(Held) + Send + Sync>);

impl Hook {
    /// A hook that calls `decide` for each frame.
    pub fn new(decide: impl Fn(Held) + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    pub(crate) fn call(&self, held: Held) {
        (self.0)(held);
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hook")
    }
}
