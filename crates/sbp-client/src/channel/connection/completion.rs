//! Outcomes gathered over one turn of a connection and delivered once per sink.

use std::sync::Arc;

use crate::submission::attempt::AttemptEnd;
use crate::submission::{AppendResultOf, AttemptSink, CompletionSink, Reply, ReplyTo};

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

/// Gathers outcomes; memory is used again from turn to turn.
pub(crate) struct Completions {
    sinks: Vec<SinkBatch>,
    writers: Vec<WriterBatch>,
}

impl Completions {
    pub(crate) fn new() -> Self {
        Self {
            sinks: Vec::new(),
            writers: Vec::new(),
        }
    }

    /// Futures are told at once, which costs one wake-up each; sinks at the end of the turn.
    pub(crate) fn push(&mut self, reply: Reply, result: AppendResultOf) {
        match reply.take() {
            // A writer's attempts end through `push_attempts`; dropping its reply would tell it less.
            None | Some(ReplyTo::Attempts(..)) => {}
            Some(ReplyTo::Future(sender)) => drop(sender.send(result)),
            Some(ReplyTo::Part(gather, places)) => {
                if let Some((reply, result)) = gather.add(&places, result) {
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

    /// Writers are told at the end of the turn. `ends` are those of the append's entries, in their order.
    pub(crate) fn push_attempts(&mut self, reply: Reply, ends: impl IntoIterator<Item = AttemptEnd>) {
        let Some(ReplyTo::Attempts(sink, tokens)) = reply.take() else {
            return;
        };
        let ended = tokens.into_iter().zip(ends);
        match self.writers.iter_mut().find(|known| Arc::ptr_eq(&known.sink, &sink)) {
            Some(known) => known.ended.extend(ended),
            None => self.writers.push(WriterBatch {
                sink,
                ended: ended.collect(),
            }),
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
        for batch in &mut self.writers {
            if !batch.ended.is_empty() {
                Arc::clone(&batch.sink).ended(&mut batch.ended);
                batch.ended.clear();
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
