//! Appends that wait until it is known where their streams are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_types::StreamId;

use crate::clock::now;
use crate::error::ClientError;
use crate::joint;
use crate::links::Links;
use crate::submission::{AppendOp, Submissions};

/// Streams that a placement driver is being asked for, and appends to them, in order.
#[derive(Debug, Default)]
pub(crate) struct Reroutes {
    asking: HashMap<StreamId, Submissions>,
    closed: bool,
}

impl Reroutes {
    pub(crate) fn is_asking(&self, stream: StreamId) -> bool {
        self.asking.contains_key(&stream)
    }

    /// Adds an append to those that wait for its stream. Returns whether nobody asked for it yet.
    pub(crate) fn wait(&mut self, op: AppendOp, arena: &[u8]) -> bool {
        let Some(stream) = op.entries.first().map(|entry| entry.stream) else {
            return false;
        };
        let is_first = !self.is_asking(stream);
        self.asking.entry(stream).or_default().adopt(op, arena);
        is_first
    }

    /// Nothing waits here any more. Returns what did.
    pub(crate) fn close(&mut self) -> Vec<Submissions> {
        self.closed = true;
        self.asking.drain().map(|(_, submissions)| submissions).collect()
    }

    /// When the first of those that wait for a stream gives up; `None`: none waits.
    fn deadline(&self, stream: StreamId) -> Option<Instant> {
        self.asking.get(&stream)?.ops.iter().map(|op| op.deadline).min()
    }

    fn expired(&mut self, stream: StreamId, now: Instant) -> Vec<AppendOp> {
        let Some(waiting) = self.asking.get_mut(&stream) else {
            return Vec::new();
        };
        waiting.ops.extract_if(.., |op| op.deadline <= now).collect()
    }
}

impl Links {
    /// Finds out where the streams of appends are, then hands them over there.
    pub(crate) fn reroute(self: &Arc<Self>, submissions: Submissions, wait: Duration) {
        self.set_routed();
        let Submissions { ops, arena } = submissions;
        for op in ops {
            let places: Vec<usize> = (0..op.entries.len()).collect();
            let pieces = joint::split(op, &places, |one, other| one == other);
            // Each counts for itself from now on.
            self.home().budget.add(pieces.len().saturating_sub(1), 0);
            for (_, piece) in pieces {
                let stream = piece.entries.first().map(|entry| entry.stream);
                let is_first = {
                    let mut reroutes = self.reroutes.lock();
                    if reroutes.closed {
                        drop(reroutes);
                        self.home().end_append(piece, ClientError::closed());
                        continue;
                    }
                    reroutes.wait(piece, &arena)
                };
                if let (true, Some(stream)) = (is_first, stream) {
                    self.home().spawn(Arc::clone(self).find(stream, wait));
                }
            }
        }
    }

    /// Asks where a stream is until it is known, and ends the appends that cannot wait for it.
    async fn find(self: Arc<Self>, stream: StreamId, wait: Duration) {
        tokio::time::sleep(wait).await;
        loop {
            let Some(deadline) = self.reroutes.lock().deadline(stream) else {
                self.reroutes.lock().asking.remove(&stream);
                return;
            };
            let error = match self.refresh(stream, deadline).await {
                Ok(()) => {
                    let found = self.reroutes.lock().asking.remove(&stream);
                    return self.post_appends(found.unwrap_or_default());
                }
                Err(error) => error,
            };
            // The list was asked for again and again while there was time for the first of those that wait.
            let over = if error.is_timeout() || error.is_retriable() {
                self.reroutes.lock().expired(stream, now().max(deadline))
            } else {
                let all = self.reroutes.lock().asking.remove(&stream);
                all.map(|submissions| submissions.ops).unwrap_or_default()
            };
            for op in over {
                self.home().end_append(op, error.clone().with_stream(stream));
            }
        }
    }
}
