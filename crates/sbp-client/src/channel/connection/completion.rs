//! Outcomes gathered over one turn of a connection and delivered once per sink.

use std::sync::Arc;

use crate::submission::attempt::AttemptEnd;
use crate::submission::{AppendResultOf, AttemptSink, CompletionSink, Reply, ReplyTo};

/// Outcomes, each with the token that its append was submitted under.
type Outcomes<T> = Vec<(u64, T)>;

/// Sinks and what they are about to be told.
struct Gathered<S: ?Sized, T>(Vec<(Arc<S>, Outcomes<T>)>);

impl<S: ?Sized, T> Default for Gathered<S, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S: ?Sized, T> Gathered<S, T> {
    fn add(&mut self, sink: Arc<S>, outcomes: impl IntoIterator<Item = (u64, T)>) {
        // A process has one or two sinks (an event loop, a thread pool), so a search beats a map.
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &sink)) {
            Some((_, gathered)) => gathered.extend(outcomes),
            None => self.0.push((sink, outcomes.into_iter().collect())),
        }
    }

    /// Tells every sink what has gathered, and forgets sinks that nobody else holds any more. Returns how many were told.
    fn deliver(&mut self, tell: impl Fn(&Arc<S>, &mut Outcomes<T>)) -> u64 {
        let mut told = 0;
        for (sink, gathered) in self.0.iter_mut().filter(|(_, gathered)| !gathered.is_empty()) {
            tell(sink, gathered);
            gathered.clear();
            told += 1;
        }
        if told > 0 {
            self.0.retain(|(sink, _)| Arc::strong_count(sink) > 1);
        }
        told
    }
}

/// Gathers outcomes; memory is used again from turn to turn.
#[derive(Default)]
pub(crate) struct Completions {
    sinks: Gathered<dyn CompletionSink, AppendResultOf>,
    writers: Gathered<dyn AttemptSink, AttemptEnd>,
}

impl Completions {
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
            Some(ReplyTo::Sink(sink, token)) => self.sinks.add(sink, [(token, result)]),
        }
    }

    /// Writers are told at the end of the turn. `ends` are those of the append's entries, in their order.
    pub(crate) fn push_attempts(&mut self, reply: Reply, ends: impl IntoIterator<Item = AttemptEnd>) {
        if let Some(ReplyTo::Attempts(sink, tokens)) = reply.take() {
            self.writers.add(sink, tokens.into_iter().zip(ends));
        }
    }

    /// Tells everybody what has gathered. Returns how many were told.
    pub(crate) fn deliver(&mut self) -> u64 {
        let sinks = self.sinks.deliver(|sink, done| sink.complete(done));
        sinks + self.writers.deliver(|sink, ended| Arc::clone(sink).ended(ended))
    }
}
