//! One append that went several ways: to several servers, or some of its entries once more.

use std::sync::Arc;

use sbp_locks::Mutex;
use smallvec::SmallVec;

use crate::codes;
use crate::error::{ClientError, ErrorKind};
use crate::outcome::{Ack, AppendOutcome};
use crate::submission::{AppendOp, AppendResultOf, AttemptSink, Reply, Tokens};

type EntryResult = Result<Ack, ClientError>;

/// Gathers the outcomes of all entries, and tells them together.
#[derive(Debug)]
pub(crate) struct Gather {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    entries: Vec<Option<EntryResult>>,
    reply: Reply,
}

impl Gather {
    /// For an append of which some entries may be over already.
    pub(crate) fn new(entries: Vec<Option<EntryResult>>, reply: Reply) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { entries, reply }),
        })
    }

    /// The outcome of the entries at `places`. With the last ones, whom to tell what.
    pub(crate) fn add(&self, places: &[usize], result: AppendResultOf) -> Option<(Reply, AppendResultOf)> {
        let mut state = self.state.lock();
        match result {
            Ok(outcome) => {
                for (&place, result) in places.iter().zip(outcome.entries) {
                    if let Some(entry) = state.entries.get_mut(place) {
                        *entry = Some(result);
                    }
                }
            }
            Err(error) => {
                for &place in places {
                    if let Some(entry) = state.entries.get_mut(place) {
                        *entry = Some(Err(error.clone()));
                    }
                }
            }
        }
        if state.entries.iter().any(Option::is_none) || state.reply.is_told() {
            return None;
        }
        let entries = std::mem::take(&mut state.entries);
        let unknown = || {
            let what = "an entry of an append has no outcome";
            Err(ClientError::new(ErrorKind::Indeterminate, codes::CANCELLED, what))
        };
        let entries: SmallVec<_> = entries.into_iter().map(|entry| entry.unwrap_or_else(unknown)).collect();
        Some((state.reply.replace_with_told(), Ok(AppendOutcome { entries })))
    }
}

/// Splits an append by where its entries go: entries whose keys are the same stay together. Bodies stay where they are.
pub(crate) fn split<K: Clone>(op: AppendOp, keys: &[K], same: impl Fn(&K, &K) -> bool) -> Vec<(K, AppendOp)> {
    let mut groups: Vec<(K, SmallVec<[usize; 1]>)> = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        match groups.iter_mut().find(|(known, _)| same(known, key)) {
            Some((_, places)) => places.push(place),
            None => groups.push((key.clone(), SmallVec::from_iter([place]))),
        }
    }
    if groups.len() <= 1 {
        return groups.into_iter().map(|(key, _)| key).zip([op]).collect();
    }
    let answers = Answers::new(op.reply, keys.len());
    let parts = groups.into_iter().map(|(key, places)| {
        let entries = places
            .iter()
            .filter_map(|&place| op.entries.get(place).cloned())
            .collect();
        let part = AppendOp {
            entries,
            deadline: op.deadline,
            reply: answers.part(places),
            attempts: op.attempts,
            since: op.since,
            refusal: op.refusal.clone(),
        };
        (key, part)
    });
    parts.collect()
}

/// Who is told of the parts of an append.
enum Answers {
    /// Its caller, of all of them together.
    Together(Arc<Gather>),
    /// A writer, of each entry for itself.
    Each(Arc<dyn AttemptSink>, Tokens),
}

impl Answers {
    fn new(reply: Reply, entries: usize) -> Self {
        match reply.into_attempts() {
            Ok((sink, tokens)) => Self::Each(sink, tokens),
            Err(reply) => Self::Together(Gather::new(vec![None; entries], reply)),
        }
    }

    /// The reply for the entries at `places`.
    fn part(&self, places: SmallVec<[usize; 1]>) -> Reply {
        match self {
            Self::Together(gather) => Reply::part(Arc::clone(gather), places),
            Self::Each(sink, tokens) => {
                let own = places.iter().filter_map(|&place| tokens.get(place).copied());
                Reply::attempts(Arc::clone(sink), own.collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use sbp_locks::Mutex;
    use sbp_types::StreamId;
    use smallvec::smallvec;

    use super::split;
    use crate::error::ClientError;
    use crate::failure::Cause;
    use crate::outcome::AppendOutcome;
    use crate::submission::attempt::AttemptEnd;
    use crate::submission::{AppendEntry, AppendOp, AttemptSink, Reply, Submissions};

    #[tokio::test]
    async fn entries_that_went_several_ways_are_told_together_and_in_order() {
        let mut submissions = Submissions::new();
        let entries = (0..4).map(|id| AppendEntry::new(StreamId(id), submissions.place_encoded(b"x"), 1));
        let (reply, outcome) = Reply::future();
        let op = AppendOp::new(entries.collect(), Instant::now(), reply);
        let mut parts = split(op, &['a', 'b', 'a', 'c'], |one, other| one == other);
        let streams: Vec<(char, Vec<i64>)> = parts
            .iter()
            .map(|(key, part)| (*key, part.entries.iter().map(|entry| entry.stream.0).collect()))
            .collect();
        assert_eq!(streams, [('a', vec![0, 2]), ('b', vec![1]), ('c', vec![3])]);
        let refused = |what: &str| Err(ClientError::invalid(what));
        let both = AppendOutcome {
            entries: [refused("first"), refused("third")].into_iter().collect(),
        };
        parts.remove(0).1.reply.send(Ok(both));
        parts.remove(0).1.reply.send(Err(ClientError::closed()));
        let fourth = AppendOutcome {
            entries: [refused("fourth")].into_iter().collect(),
        };
        parts.remove(0).1.reply.send(Ok(fourth));
        let told = outcome.await.unwrap().unwrap();
        let words: Vec<_> = told
            .entries
            .iter()
            .map(|entry| entry.as_ref().unwrap_err().what().to_owned())
            .collect();
        assert_eq!(words, ["first", "the client is closed", "third", "fourth"]);
    }

    #[tokio::test]
    async fn what_goes_one_way_is_not_taken_apart() {
        let mut submissions = Submissions::new();
        let entries = (0..2).map(|id| AppendEntry::new(StreamId(id), submissions.place_encoded(b"x"), 1));
        let (reply, outcome) = Reply::future();
        let op = AppendOp::new(entries.collect(), Instant::now(), reply);
        let mut parts = split(op, &[1, 1], |one, other| one == other);
        assert_eq!(parts.len(), 1);
        parts.remove(0).1.reply.send(Err(ClientError::closed()));
        assert!(outcome.await.unwrap().is_err());
    }

    /// Keeps the tokens of attempts that ended, and whether they may have been stored.
    #[derive(Debug, Default)]
    struct Ended(Mutex<Vec<(u64, bool)>>);

    impl AttemptSink for Ended {
        fn ended(self: Arc<Self>, ends: &mut Vec<(u64, AttemptEnd)>) {
            let told = ends.drain(..).map(|(token, end)| {
                let failure = end.outcome.expect_err("nothing is stored");
                (token, failure.cause.may_have_been_done())
            });
            self.0.lock().extend(told);
        }

        fn pump(self: Arc<Self>) {}
    }

    #[test]
    fn a_writer_is_told_of_each_entry_of_each_part() {
        let mut submissions = Submissions::new();
        let entries = (0..4).map(|id| AppendEntry::new(StreamId(id), submissions.place_encoded(b"x"), 1));
        let sink = Arc::new(Ended::default());
        let reply = Reply::attempts(sink.clone(), smallvec![10, 11, 12, 13]);
        let op = AppendOp::new(entries.collect(), Instant::now(), reply);
        let mut parts = split(op, &['a', 'b', 'a', 'b'], |one, other| one == other);
        assert!(parts.iter().all(|(_, part)| part.reply.is_attempt()));
        let (_, last) = parts.remove(1);
        last.reply.fail_attempts(&Cause::NotStarted.into());
        assert_eq!(*sink.0.lock(), [(11, false), (13, false)]);
        drop(parts);
        assert_eq!(
            sink.0.lock()[2..],
            [(10, true), (12, true)],
            "nobody knows of the other part"
        );
    }
}
