//! Which terms the other placement drivers have begun lately.

use std::collections::VecDeque;
use std::time::Duration;

use super::Leader;
use crate::term::Term;

/// So many terms of one driver, begun within [`LATELY`], are in vain: whoever can lead has begun one, or a second one if it was
/// restarted.
const IN_VAIN: usize = 3;
/// For how long a term counts.
const LATELY: Duration = Duration::from_secs(10);
/// The most terms that are kept.
const MOST: usize = 64;

/// Terms in the order in which they were seen first.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentTerms {
    seen: VecDeque<(Duration, Term, String)>,
}

impl RecentTerms {
    /// Another driver led when it was looked.
    pub(super) fn note(&mut self, leader: &Leader, now: Duration) {
        while self
            .seen
            .front()
            .is_some_and(|(at, ..)| self.seen.len() >= MOST || *at + LATELY <= now)
        {
            self.seen.pop_front();
        }
        if self.seen.back().is_none_or(|(_, term, _)| *term < leader.term) {
            self.seen.push_back((now, leader.term, leader.address.clone()));
        }
    }

    /// Whether this driver begins term after term and does nothing in them.
    pub(super) fn are_in_vain(&self, address: &str, now: Duration) -> bool {
        let lately = self.seen.iter().filter(|(at, ..)| *at + LATELY > now);
        lately.filter(|(_, _, of)| of == address).count() >= IN_VAIN
    }
}
