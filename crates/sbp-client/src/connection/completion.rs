//! Outcomes gathered over one turn of a connection and delivered once per sink.

use std::sync::Arc;

use crate::submission::{AppendResultOf, CompletionSink, Reply, ReplyTo};

/// A sink and what it is about to be told.
struct SinkBatch {
    sink: Arc<dyn CompletionSink>,
    done: Vec<(u64, AppendResultOf)>,
}

/// Gathers outcomes; memory is used again from turn to turn.
pub(crate) struct Completions {
    sinks: Vec<SinkBatch>,
}

impl Completions {
    pub(crate) fn new() -> Self {
        Self { sinks: Vec::new() }
    }

    /// Futures are told at once, which costs one wake-up each; sinks at the end of the turn.
    pub(crate) fn push(&mut self, reply: Reply, result: AppendResultOf) {
        match reply.take() {
            None => {}
            Some(ReplyTo::Future(sender)) => drop(sender.send(result)),
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

    /// Tells every sink what has gathered, and forgets sinks that nobody else holds any more. Returns how many were told.
    pub(crate) fn deliver(&mut self) -> u64 {
        let mut told = 0;
        for batch in &mut self.sinks {
            if !batch.done.is_empty() {
                batch.sink.complete(&mut batch.done);
                batch.done.clear();
                told += 1;
            }
        }
        if told > 0 {
            self.sinks.retain(|batch| Arc::strong_count(&batch.sink) > 1);
        }
        told
    }
}
