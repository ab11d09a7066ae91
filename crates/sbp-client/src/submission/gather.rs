//! One append that went several ways: to several servers, or some of its entries once more.

use std::sync::Arc;

use sbp_locks::Mutex;
use smallvec::SmallVec;

use crate::codes;
use crate::error::{ClientError, ErrorKind};
use crate::outcome::{Ack, AppendOutcome};
use crate::submission::{AppendOp, AppendResultOf, Reply};

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
    let gather = Gather::new(vec![None; keys.len()], op.reply);
    let pieces = groups.into_iter().map(|(key, places)| {
        let entries = places
            .iter()
            .filter_map(|&place| op.entries.get(place).cloned())
            .collect();
        let piece = AppendOp {
            entries,
            deadline: op.deadline,
            reply: Reply::part(Arc::clone(&gather), places),
            attempts: op.attempts,
            refusal: op.refusal.clone(),
        };
        (key, piece)
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sbp_types::StreamId;

    use super::split;
    use crate::error::ClientError;
    use crate::outcome::AppendOutcome;
    use crate::submission::{AppendEntry, AppendOp, Reply, Submissions};

    #[tokio::test]
    async fn entries_that_went_several_ways_are_told_together_and_in_order() {
        let mut submissions = Submissions::new();
        let entries = (0..4).map(|id| AppendEntry::new(StreamId(id), submissions.place_encoded(b"x"), 1));
        let (reply, outcome) = Reply::future();
        let op = AppendOp::new(entries.collect(), Instant::now(), reply);
        let mut pieces = split(op, &['a', 'b', 'a', 'c'], |one, other| one == other);
        let streams: Vec<(char, Vec<i64>)> = pieces
            .iter()
            .map(|(key, piece)| (*key, piece.entries.iter().map(|entry| entry.stream.0).collect()))
            .collect();
        assert_eq!(streams, [('a', vec![0, 2]), ('b', vec![1]), ('c', vec![3])]);
        let refused = |what: &str| Err(ClientError::invalid(what));
        let both = AppendOutcome {
            entries: [refused("first"), refused("third")].into_iter().collect(),
        };
        pieces.remove(0).1.reply.send(Ok(both));
        pieces.remove(0).1.reply.send(Err(ClientError::closed()));
        let fourth = AppendOutcome {
            entries: [refused("fourth")].into_iter().collect(),
        };
        pieces.remove(0).1.reply.send(Ok(fourth));
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
        let mut pieces = split(op, &[1, 1], |one, other| one == other);
        assert_eq!(pieces.len(), 1);
        pieces.remove(0).1.reply.send(Err(ClientError::closed()));
        assert!(outcome.await.unwrap().is_err());
    }
}
