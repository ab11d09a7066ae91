//! Which servers the next range is opened on.

use sbp_types::ServerId;
use smallvec::SmallVec;

use crate::rules::{Rule, Rules};

/// A server, as a candidate for the next range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The server.
    pub server: ServerId,
    /// Whether it has everything up to the stream's end.
    pub is_complete: bool,
    /// Whether it knows the writers at the end of what it has.
    pub knows_writers: bool,
}

/// Why no next range can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoSuccessor {
    /// Nobody who lives has everything up to the end and knows the writers.
    NobodyKnows,
    /// Fewer servers live than have to acknowledge.
    TooFew,
}

/// The servers of the next range, the primary first: at most `replicas`, at least `acks` of them.
///
/// `alive` are the servers that can be reached, the best first. The primary is the first of them that has everything up to
/// the end and knows the writers there; the others follow in their order.
///
/// # Errors
///
/// If there is no primary, or fewer than `acks` servers live. A range that opens with fewer than `replicas` has to be renewed
/// later.
pub fn choose_next(
    alive: &[Holder],
    replicas: usize,
    acks: usize,
    rules: Rules,
) -> Result<SmallVec<[ServerId; 3]>, NoSuccessor> {
    let may_lead = |holder: &&Holder| {
        (holder.is_complete || !rules.hold(Rule::SuccessorIsComplete))
            && (holder.knows_writers || !rules.hold(Rule::SuccessorKnowsWriters))
    };
    let primary = alive.iter().find(may_lead).ok_or(NoSuccessor::NobodyKnows)?.server;
    let others = alive
        .iter()
        .map(|holder| holder.server)
        .filter(|server| *server != primary);
    let servers: SmallVec<_> = std::iter::once(primary).chain(others).take(replicas.max(1)).collect();
    if servers.len() < acks {
        Err(NoSuccessor::TooFew)
    } else {
        Ok(servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(server: i32, is_complete: bool, knows_writers: bool) -> Holder {
        Holder {
            server: ServerId(server),
            is_complete,
            knows_writers,
        }
    }

    #[test]
    fn who_knows_all_leads_and_the_others_follow() {
        let (all, none) = ((true, true), (false, false));
        let cases = [
            (vec![], 3, 2, Err(NoSuccessor::NobodyKnows)),
            (vec![none, none, none], 3, 2, Err(NoSuccessor::NobodyKnows)),
            (vec![(true, false), (false, true)], 3, 1, Err(NoSuccessor::NobodyKnows)),
            (vec![all], 3, 2, Err(NoSuccessor::TooFew)),
            (vec![none, all], 3, 2, Ok(vec![2, 1])),
            (vec![none, all, all], 3, 2, Ok(vec![2, 1, 3])),
            (vec![none, all, all], 2, 2, Ok(vec![2, 1])),
            (vec![all, all, all], 1, 1, Ok(vec![1])),
        ];
        for (which, (alive, replicas, acks, expected)) in cases.into_iter().enumerate() {
            let alive: Vec<_> = (1..)
                .zip(alive)
                .map(|(id, (complete, knows))| holder(id, complete, knows))
                .collect();
            let chosen = choose_next(&alive, replicas, acks, Rules::default());
            let expected = expected.map(|ids| ids.into_iter().map(ServerId).collect());
            assert_eq!(chosen, expected, "case {which}");
        }
    }
}
