//! Which of several placement drivers leads: what one of them asks of the store that they share, and when it may answer as
//! the leader. The time is the caller's own: it must not go back.
//!
//! ```text
//!                      granted             the key is free: claimed
//!   without a lease ------------> waiting ---------------------------> leading
//!        ^                        |    ^ looks who leads                  |
//!        |   the lease has ended  |    |                                  | the lease has ended, or for LEASE no
//!        +------------------------+----+----------------------------------+ keep-alive was answered, or a write found
//!                                                                           another leader: the lease is revoked
//! ```
//!
//! The key of the leader is put where there is none, under a lease that ends by itself. Its create revision is the term. A
//! leader answers as such only within [`LEASE`] of *sending* a keep-alive that was answered: the store counts from later, so
//! nobody else leads before that is over, whatever happened to messages on the way. Its clock has to run as fast as the
//! store's, to within what the store takes to notice that a lease has ended. No record depends on even that: each write
//! names the term that it is made in.
//!
//! Who leads and cannot read the metadata ends its term and waits before it claims again ([`Leadership::cannot_lead`]). An earlier
//! version does not wait: it has the next term milliseconds later, before anybody has looked. So a driver whose terms follow on
//! each other so, and last no longer, does not keep the lease of the third one: another one ends it, and claims.

use std::time::Duration;

use crate::term::Term;

mod recent_terms;

use recent_terms::RecentTerms;

/// How long a lease lasts that nobody keeps alive.
pub const LEASE: Duration = Duration::from_secs(3);
/// How long after a keep-alive was sent the next one is.
pub const RENEWAL: Duration = Duration::from_millis(500);
/// How often it is looked who leads, and how long after a failure something is asked again.
pub const LOOK: Duration = Duration::from_millis(250);
/// How long a driver that could not lead waits, the first time, before it claims again: others look twice before that is over.
pub const WAIT: Duration = Duration::from_millis(500);
/// How long it waits at most, when that happens time after time.
pub const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// A lease, by the store's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub i64);

/// What is in the key of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// Where it is dialled.
    pub address: String,
    /// What its key goes with.
    pub lease: Lease,
    /// The create revision of its key.
    pub term: Term,
}

/// What to ask next. One question at a time is under way; keep-alives go beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// A lease of [`LEASE`]: answer with [`Leadership::granted`].
    Grant,
    /// Put the key that says that this driver lives, under the lease: answer with [`Leadership::announced`].
    Announce(Lease),
    /// Read the key of the leader: answer with [`Leadership::looked`].
    Look,
    /// Put the key of the leader under the lease, if there is none: answer with [`Leadership::looked`] and what is there
    /// afterwards. Asked again unchanged after no answer, it finds its own lease there if it had happened.
    Claim(Lease),
    /// See whether something listens where the leader is: answer with [`Leadership::dialled`].
    Dial(Leader),
    /// End a lease: answer with [`Leadership::revoked`].
    Revoke(Lease),
}

/// What this driver is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It leads in this term, and may answer.
    Leads(Term),
    /// Another one led when it was looked last.
    Follows(Leader),
    /// Nobody leads, as far as is known: somebody will within moments.
    Vacant,
    /// The store has not answered for [`LEASE`].
    Unreachable,
}

/// What became of a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The lease lasts.
    Alive,
    /// There is no such lease any more.
    Ended,
    /// No answer came.
    Unknown,
}

/// The lease of this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    lease: Lease,
    /// When its grant, or the last keep-alive that was answered, was sent.
    since: Duration,
    /// When the last keep-alive was sent, answered or not.
    renewed: Duration,
}

/// One placement driver among several.
#[derive(Clone, Debug)]
pub struct Leadership {
    address: String,
    held: Option<Held>,
    /// A keep-alive is under way.
    renewing: bool,
    asking: Option<Ask>,
    announced: bool,
    /// The term in which this driver leads.
    term: Option<Term>,
    /// What was in the leader's key when it was looked last.
    leader: Option<Leader>,
    /// Whether the leader is to be dialled before it is looked again.
    dial: bool,
    /// Leases that are to be ended.
    revoke: Vec<Lease>,
    /// When something is asked next.
    due: Duration,
    /// When the store answered last.
    heard: Option<Duration>,
    /// How long this driver waits before it claims, when it cannot lead the next time.
    wait: Duration,
    /// It claims nothing before that.
    claims_from: Duration,
    /// The terms that others have begun.
    terms_of_others: RecentTerms,
}

impl Leadership {
    /// A driver at this address that has just started.
    #[must_use]
    pub fn new(address: impl Into<String>, now: Duration) -> Self {
        Self {
            address: address.into(),
            held: None,
            renewing: false,
            asking: None,
            announced: false,
            term: None,
            leader: None,
            dial: false,
            revoke: Vec::new(),
            due: now,
            heard: None,
            wait: WAIT,
            claims_from: now,
            terms_of_others: RecentTerms::default(),
        }
    }

    /// What this driver is.
    #[must_use]
    pub fn standing(&self, now: Duration) -> Standing {
        if let (Some(term), Some(held)) = (self.term, self.held)
            && lasts(held.since, now)
        {
            return Standing::Leads(term);
        }
        match (&self.leader, self.heard) {
            (_, None) => Standing::Unreachable,
            (_, Some(heard)) if !lasts(heard, now) => Standing::Unreachable,
            (Some(leader), _) if Some(leader.lease) != self.held.map(|held| held.lease) => {
                Standing::Follows(leader.clone())
            }
            _ => Standing::Vacant,
        }
    }

    /// The term in which this driver leads, if it has not given up leading.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.term
    }

    /// The lease of this driver, if it has one: to be ended when the driver does.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.held.map(|held| held.lease)
    }

    /// The lease of which a keep-alive is to be sent now.
    pub fn renew(&mut self, now: Duration) -> Option<Lease> {
        self.look_at_clock(now);
        let held = self.held.as_mut()?;
        if self.renewing || now < held.renewed + RENEWAL {
            return None;
        }
        held.renewed = now;
        self.renewing = true;
        Some(held.lease)
    }

    /// What to ask now, besides keep-alives.
    pub fn next(&mut self, now: Duration) -> Option<Ask> {
        self.look_at_clock(now);
        if self.asking.is_some() {
            return None;
        }
        let ask = match (self.revoke.last(), self.held) {
            (Some(lease), _) => Ask::Revoke(*lease),
            (None, None) => Ask::Grant,
            (None, Some(held)) if !self.announced => Ask::Announce(held.lease),
            // It knows who leads.
            (None, Some(_)) if self.term.is_some() => return None,
            (None, Some(held)) => match &self.leader {
                Some(leader) if self.dial => Ask::Dial(leader.clone()),
                Some(_) => Ask::Look,
                None if self.heard.is_some() && self.may_claim(now) => Ask::Claim(held.lease),
                None => Ask::Look,
            },
        };
        if now < self.due {
            return None;
        }
        self.asking = Some(ask.clone());
        Some(ask)
    }

    /// When [`next`](Self::next) or [`renew`](Self::renew) have something to say at the latest, if nothing is heard before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        let question = (self.asking.is_none() && !(self.term.is_some() && self.announced && self.revoke.is_empty()))
            .then_some(self.due);
        let renewal = self.held.filter(|_| !self.renewing).map(|held| held.renewed + RENEWAL);
        let end = self.held.filter(|_| self.term.is_some()).map(|held| held.since + LEASE);
        question.into_iter().chain(renewal).chain(end).min()
    }

    /// The answer to [`Ask::Grant`] that was sent at `sent`; `None`: there is none.
    pub fn granted(&mut self, lease: Option<Lease>, sent: Duration, now: Duration) {
        self.answered(lease.is_some(), now);
        if let Some(lease) = lease {
            self.held = Some(Held {
                lease,
                since: sent,
                renewed: sent,
            });
            self.announced = false;
        }
    }

    /// The answer to [`Ask::Announce`]: whether the key is there.
    pub fn announced(&mut self, done: bool, now: Duration) {
        self.answered(done, now);
        self.announced = done;
    }

    /// What became of a keep-alive of `lease` that was sent at `sent`.
    pub fn kept(&mut self, lease: Lease, kept: Kept, sent: Duration, now: Duration) {
        self.renewing = false;
        if kept != Kept::Unknown {
            self.heard = Some(now);
        }
        let Some(held) = self.held.as_mut().filter(|held| held.lease == lease) else {
            return;
        };
        match kept {
            Kept::Alive => held.since = held.since.max(sent),
            Kept::Ended => {
                self.held = None;
                self.term = None;
                self.leader = None;
                self.due = now;
            }
            Kept::Unknown => {}
        }
        self.look_at_clock(now);
    }

    /// The answer to [`Ask::Look`] or [`Ask::Claim`]: what is in the leader's key; `Err`: no answer came.
    pub fn looked(&mut self, found: Result<Option<Leader>, ()>, now: Duration) {
        let claimed = matches!(self.asking, Some(Ask::Claim(_)));
        self.answered(found.is_ok(), now);
        let Ok(found) = found else { return };
        self.dial = false;
        match &found {
            // The claim comes at once, and after it a pause.
            None if !claimed && self.may_claim(now) => self.due = now,
            None => {}
            Some(leader) if self.held.is_some_and(|held| held.lease == leader.lease) => self.term = Some(leader.term),
            // Whoever had this address before does not live any more: this driver has it.
            Some(leader) if leader.address == self.address => self.revoke(leader.lease, now),
            Some(leader) => {
                self.terms_of_others.note(leader, now);
                let is_in_vain = self.terms_of_others.are_in_vain(&leader.address, now);
                // Only by who claims at once: otherwise it would be the same driver's again.
                if is_in_vain && self.announced && self.held.is_some() && self.may_claim(now) {
                    self.revoke(leader.lease, now);
                } else {
                    self.dial = true;
                }
            }
        }
        self.leader = found;
    }

    /// The answer to [`Ask::Dial`]: whether it was refused, so that nothing listens there.
    pub fn dialled(&mut self, refused: bool, now: Duration) {
        self.asking = None;
        self.dial = false;
        // Whoever does not answer may have no lease any more.
        self.due = now;
        if refused && let Some(leader) = &self.leader {
            let lease = leader.lease;
            self.revoke(lease, now);
        }
    }

    /// The answer to [`Ask::Revoke`]: whether that lease has ended.
    pub fn revoked(&mut self, done: bool, now: Duration) {
        let asked = self.asking.clone();
        self.answered(done, now);
        if let (true, Some(Ask::Revoke(lease))) = (done, asked) {
            self.revoke.retain(|left| *left != lease);
            if self.leader.as_ref().is_some_and(|leader| leader.lease == lease) {
                self.leader = None;
            }
            self.due = now;
        }
    }

    /// This driver has begun its work as the leader: what kept it from that before is over.
    pub fn began(&mut self, term: Term) {
        if self.term == Some(term) {
            self.wait = WAIT;
        }
    }

    /// This driver can do nothing as the leader, because it cannot read the metadata or not use them: its lease is ended, and
    /// it claims again only after a while, longer each time.
    pub fn cannot_lead(&mut self, term: Term, now: Duration) {
        if self.term == Some(term) {
            self.claims_from = now + self.wait;
            self.wait = LONGEST_WAIT.min(self.wait * 2);
            self.give_up(now);
        }
    }

    /// A write of this term has found that it is over.
    pub fn step_down(&mut self, term: Term, now: Duration) {
        if self.term == Some(term) {
            self.give_up(now);
        }
    }

    /// Who leads may not answer any more once its keep-alives are too old, and then never again in this term: what it has
    /// in memory may be outdated.
    fn look_at_clock(&mut self, now: Duration) {
        if self.term.is_some() && self.held.is_none_or(|held| !lasts(held.since, now)) {
            self.give_up(now);
        }
    }

    fn give_up(&mut self, now: Duration) {
        self.term = None;
        self.leader = None;
        self.announced = false;
        if let Some(held) = self.held.take() {
            self.revoke(held.lease, now);
        }
    }

    fn may_claim(&self, now: Duration) -> bool {
        now >= self.claims_from
    }

    fn revoke(&mut self, lease: Lease, now: Duration) {
        if !self.revoke.contains(&lease) {
            self.revoke.push(lease);
        }
        self.due = now;
    }

    fn answered(&mut self, answered: bool, now: Duration) {
        let asked = self.asking.take();
        if answered {
            self.heard = Some(now);
        }
        let goes_on = answered && matches!(asked, Some(Ask::Grant | Ask::Announce(_)));
        self.due = if goes_on { now } else { now + LOOK };
    }
}

fn lasts(since: Duration, now: Duration) -> bool {
    now.saturating_sub(since) < LEASE
}

#[cfg(test)]
mod tests;
