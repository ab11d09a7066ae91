//! Frames that wait for somebody's decision.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::Seen;

/// What is to become of a held frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Discard,
    Cut,
}

/// A frame that goes no further until this says so, and nor does what comes behind it in its direction.
///
/// It can be sent to another thread: a test keeps an acknowledgement here, does something to the server, and then
/// decides. Dropping it passes the frame on.
#[derive(Debug)]
pub struct Held {
    seen: Seen,
    bytes: Bytes,
    verdict: Option<oneshot::Sender<Verdict>>,
}

impl Held {
    pub(crate) fn new(seen: Seen, bytes: Bytes) -> (Self, oneshot::Receiver<Verdict>) {
        let (sender, receiver) = oneshot::channel();
        let held = Self {
            seen,
            bytes,
            verdict: Some(sender),
        };
        (held, receiver)
    }

    /// What is known about the frame.
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
        self.decide(Verdict::Pass);
    }

    /// Drops the frame; what comes behind it goes on.
    pub fn discard(self) {
        self.decide(Verdict::Discard);
    }

    /// Cuts the connection in front of the frame.
    pub fn cut(self) {
        self.decide(Verdict::Cut);
    }

    fn decide(mut self, verdict: Verdict) {
        if let Some(sender) = self.verdict.take() {
            // The connection may have ended meanwhile: then there is nothing to decide.
            let _ = sender.send(verdict);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(sender) = self.verdict.take() {
            let _ = sender.send(Verdict::Pass);
        }
    }
}

/// Who decides about held frames. Called on the proxy's thread, so it must not block: it decides at once, or hands the
/// [`Held`] to somebody who does.
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
