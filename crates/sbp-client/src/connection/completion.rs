//! Outcomes gathered over one turn of a connection and delivered once per sink.

use std::sync::Arc;

use crate::submission::{AppendResultOf, AttemptSink, CompletionSink, Reply, ReplyTo};
use crate::writer::AttemptEnd;

/// So many ends of attempts are told before the turn is over: a writer's callers then add the next appends while the
/// connection still takes the answers to the last ones.
const EARLY: usize = 16;

/// A sink and what it is about to be told.
struct SinkBatch {
    sink: Arc<dyn CompletionSink>,
    done: Vec<(u64, AppendResultOf)>,
}

/// A writer and how attempts of its ended.
struct WriterBatch {
    sink: Arc<dyn AttemptSink>,
    ended: Vec<(u64, AttemptEnd)>,
}

impl WriterBatch {
    /// Whether it pays to tell before the turn is over. Not of failures: they come together, and what is sent again is
    /// sent in one row.
    fn is_worth_telling(&self) -> bool {
        self.ended.len() >= EARLY && self.ended.iter().all(|(_, end)| end.outcome.is_ok())
    }

    fn tell(&mut self) {
        Arc::clone(&self.sink).ended(&mut self.ended);
        self.ended.clear();
    }
}

/// Gathers outcomes; memory is used again from turn to turn.
pub(crate) struct Completions {
    sinks: Vec<SinkBatch>,
    writers: Vec<WriterBatch>,
    /// How many deliveries were made before the turn is over.
    early: u64,
}

impl Completions {
    pub(crate) fn new() -> Self {
        Self {
            sinks: Vec::new(),
            writers: Vec::new(),
            early: 0,
        }
    }

    /// Futures are told at once, which costs one wake-up each; sinks at the end of the turn.
    pub(crate) fn push(&mut self, reply: Reply, result: AppendResultOf) {
        match reply.take() {
            // A writer's attempts end through `push_attempt`; dropping its reply would tell it less.
            None | Some(ReplyTo::Attempts(..)) => {}
            Some(ReplyTo::Future(sender)) => drop(sender.send(result)),
            Some(ReplyTo::Part(joint, places)) => {
                if let Some((reply, result)) = joint.add(&places, result) {
                    self.push(reply, result);
                }
            }
            Some(ReplyTo::Sink(sink, token)) => {
                // A process has one or two sinks (an event loop, a thread pool), so a search beats a map.
                match self.sinks.iter_mut().find(|known| Arc::ptr_eq(&known.sink, &sink)) {
                    Some(known) => known.done.push((token, result)),
                    None => self.sinks.push(SinkBatch {
                        sink,
                        done: vec![(token, result)],
                    }),
                }
            }
        }
    }

    /// Writers are told at the end of the turn, or when there is enough to tell.
    pub(crate) fn push_attempt(&mut self, reply: Reply, end: AttemptEnd) {
        let Some(ReplyTo::Attempts(sink, token)) = reply.take() else {
            return;
        };
        match self.writers.iter_mut().find(|known| Arc::ptr_eq(&known.sink, &sink)) {
            Some(known) => {
                known.ended.push((token, end));
                if known.is_worth_telling() {
                    known.tell();
                    self.early += 1;
                }
            }
            None => self.writers.push(WriterBatch {
                sink,
                ended: vec![(token, end)],
            }),
        }
    }

    /// Tells every sink what has gathered, and forgets sinks that nobody else holds any more. Returns how many were told.
    pub(crate) fn deliver(&mut self) -> u64 {
        let mut told = std::mem::take(&mut self.early);
        for batch in &mut self.sinks {
            if !batch.done.is_empty() {
                batch.sink.complete(&mut batch.done);
                batch.done.clear();
                told += 1;
            }
        }
        for batch in &mut self.writers {
            if !batch.ended.is_empty() {
                batch.tell();
                told += 1;
            }
        }
        if told > 0 {
            self.sinks.retain(|batch| Arc::strong_count(&batch.sink) > 1);
            self.writers.retain(|batch| Arc::strong_count(&batch.sink) > 1);
        }
        told
    }
}
