//! Several drivers and a store in virtual time, one of which cannot read the metadata.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;

/// How long a driver of an earlier version keeps a lease under which it can do nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// What a driver does that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Present,
    /// It cannot read the metadata, and waits before it claims again.
    Unreading,
    /// It cannot read the metadata, holds its lease for [`PAUSE`], and claims again at once.
    Earlier,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    /// A question has arrived at the store, sent at that time.
    AtStore(usize, Question, Duration),
    Answered(usize, Reply),
    /// A leader that cannot read has waited as long as it does.
    GivesUp(usize, Term),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Grant,
    Announce,
    Look,
    Claim(Lease),
    Dial,
    Revoke(Lease),
    Renew(Lease),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reply {
    Granted(Lease, Duration),
    Announced,
    Found(Option<(String, Lease, Term)>),
    Dialled,
    Revoked,
    Kept(Lease, bool, Duration),
}

struct Race {
    now: Duration,
    one_way: Duration,
    drivers: Vec<(Kind, Leadership)>,
    /// Drivers that look at nobody's terms, as before there was such a rule.
    are_without_rule: bool,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    number: u64,
    leases: BTreeMap<Lease, Duration>,
    key: Option<(String, Lease, Term)>,
    revision: u64,
    /// Who has begun which term, in order.
    terms: Vec<(Duration, usize)>,
}

impl Race {
    /// The first driver starts at once, the others `later`.
    fn new(kinds: &[Kind], one_way: Duration, later: Duration) -> Self {
        let start = |index: usize| {
            if index == 0 {
                Duration::ZERO
            } else {
                later + ms(83) * u32::try_from(index).unwrap()
            }
        };
        let driver = |(index, kind): (usize, &Kind)| (*kind, Leadership::new(format!("{index}:1"), start(index)));
        let mut race = Self {
            now: Duration::ZERO,
            one_way,
            drivers: kinds.iter().enumerate().map(driver).collect(),
            are_without_rule: false,
            events: BinaryHeap::new(),
            number: 0,
            leases: BTreeMap::new(),
            key: None,
            revision: 0,
            terms: Vec::new(),
        };
        for index in 0..kinds.len() {
            race.at(start(index), Event::Wake(index));
        }
        race
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    fn run(&mut self, until: Duration) {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            if time > until {
                self.at(time, event);
                break;
            }
            self.now = time;
            match event {
                Event::Wake(index) => self.wake(index),
                Event::AtStore(index, question, sent) => {
                    let reply = self.store(index, question, sent);
                    self.at(self.now + self.one_way, Event::Answered(index, reply));
                }
                Event::Answered(index, reply) => self.answered(index, reply),
                Event::GivesUp(index, term) => {
                    let (kind, driver) = &mut self.drivers[index];
                    match kind {
                        Kind::Earlier => driver.step_down(term, time),
                        _ => driver.cannot_lead(term, time),
                    }
                    self.wake(index);
                }
            }
        }
        self.now = until;
    }

    /// A driver asks what it has to ask.
    fn wake(&mut self, index: usize) {
        let (now, arrives) = (self.now, self.now + self.one_way);
        let (kind, driver) = &mut self.drivers[index];
        if *kind == Kind::Earlier || self.are_without_rule {
            driver.terms_of_others = RecentTerms::default();
        }
        let renewal = driver.renew(now).map(Question::Renew);
        let asked = driver.next(now).map(|ask| match ask {
            Ask::Grant => Question::Grant,
            Ask::Announce(_) => Question::Announce,
            Ask::Look => Question::Look,
            Ask::Claim(lease) => Question::Claim(lease),
            Ask::Dial(_) => Question::Dial,
            Ask::Revoke(lease) => Question::Revoke(lease),
        });
        let wake = driver.wake_at();
        for question in renewal.into_iter().chain(asked) {
            self.at(arrives, Event::AtStore(index, question, now));
        }
        if let Some(wake) = wake.filter(|wake| *wake > now) {
            self.at(wake, Event::Wake(index));
        }
    }

    fn store(&mut self, index: usize, question: Question, sent: Duration) -> Reply {
        self.leases.retain(|_, until| *until > self.now);
        let leases = &self.leases;
        self.key = self.key.take().filter(|(_, lease, _)| leases.contains_key(lease));
        match question {
            Question::Grant => {
                self.revision += 1;
                let lease = Lease(i64::try_from(self.revision).unwrap());
                self.leases.insert(lease, self.now + LEASE);
                Reply::Granted(lease, sent)
            }
            Question::Announce => Reply::Announced,
            Question::Look => Reply::Found(self.key.clone()),
            Question::Claim(lease) => {
                if self.key.is_none() && self.leases.contains_key(&lease) {
                    self.revision += 1;
                    self.key = Some((format!("{index}:1"), lease, Term(self.revision)));
                    self.terms.push((self.now, index));
                }
                Reply::Found(self.key.clone())
            }
            Question::Dial => Reply::Dialled,
            Question::Revoke(lease) => {
                self.leases.remove(&lease);
                Reply::Revoked
            }
            Question::Renew(lease) => {
                let now = self.now;
                let is_there = self.leases.get_mut(&lease).map(|until| *until = now + LEASE).is_some();
                Reply::Kept(lease, is_there, sent)
            }
        }
    }

    fn answered(&mut self, index: usize, reply: Reply) {
        let now = self.now;
        let (kind, driver) = &mut self.drivers[index];
        let led = driver.term();
        match reply {
            Reply::Granted(lease, sent) => driver.granted(Some(lease), sent, now),
            Reply::Announced => driver.announced(true, now),
            Reply::Found(found) => driver.looked(
                Ok(found.map(|(address, lease, term)| Leader { address, lease, term })),
                now,
            ),
            Reply::Dialled => driver.dialled(false, now),
            Reply::Revoked => driver.revoked(true, now),
            Reply::Kept(lease, true, sent) => driver.kept(lease, Kept::Alive, sent, now),
            Reply::Kept(lease, false, sent) => driver.kept(lease, Kept::Ended, sent, now),
        }
        if let Some(term) = driver.term().filter(|term| led != Some(*term)) {
            match kind {
                Kind::Present => driver.began(term),
                Kind::Unreading => self.at(now + ms(1), Event::GivesUp(index, term)),
                Kind::Earlier => self.at(now + PAUSE, Event::GivesUp(index, term)),
            }
        }
        self.wake(index);
    }

    /// When the last term began, and who has begun it.
    fn last_term(&self) -> (Duration, Kind) {
        let (at, index) = *self.terms.last().unwrap();
        (at, self.drivers[index].0)
    }
}

/// Round trips of the store, and when the others start.
fn settings() -> impl Iterator<Item = (Duration, Duration)> {
    let trips = [100, 1_000, 5_000, 20_000].map(Duration::from_micros);
    trips
        .into_iter()
        .flat_map(|trip| (0..15).map(move |step| (trip, ms(500 + 97 * step))))
}

#[test]
fn a_driver_of_before_that_claims_again_at_once_does_not_keep_others_from_leading() {
    for kinds in [
        &[Kind::Earlier, Kind::Present, Kind::Present][..],
        &[Kind::Earlier, Kind::Present],
        &[Kind::Earlier, Kind::Earlier, Kind::Present],
    ] {
        for (trip, later) in settings() {
            let mut race = Race::new(kinds, trip / 2, later);
            race.run(ms(20_000));
            let (at, kind) = race.last_term();
            assert_eq!(kind, Kind::Present, "{kinds:?} {trip:?} {later:?}");
            // Each driver of before may have had two terms, and keeps the third one until it is looked.
            let earlier = kinds.iter().filter(|kind| **kind == Kind::Earlier).count();
            let bound = later + ms(83) * 2 + ms(3_000) * u32::try_from(earlier).unwrap();
            assert!(at <= bound, "{kinds:?} {trip:?} {later:?}: {at:?}");
        }
    }
}

#[test]
fn without_that_rule_it_leads_term_after_term() {
    let stuck = settings().filter(|(trip, later)| {
        let mut race = Race::new(&[Kind::Earlier, Kind::Present, Kind::Present], *trip / 2, *later);
        race.are_without_rule = true;
        race.run(ms(20_000));
        race.last_term().1 == Kind::Earlier
    });
    assert!(stuck.count() > 0, "these races show nothing");
}

#[test]
fn who_cannot_read_the_metadata_leaves_the_leadership_to_others() {
    for kinds in [
        &[Kind::Unreading, Kind::Present, Kind::Present][..],
        &[Kind::Unreading, Kind::Unreading, Kind::Present],
    ] {
        for (trip, later) in settings() {
            let mut race = Race::new(kinds, trip / 2, later);
            race.run(ms(20_000));
            let (at, kind) = race.last_term();
            assert_eq!(kind, Kind::Present, "{kinds:?} {trip:?} {later:?}");
            assert!(at <= later + ms(1_000), "{kinds:?} {trip:?} {later:?}: {at:?}");
        }
    }
}

#[test]
fn where_nobody_can_read_them_each_tries_less_and_less_often() {
    let mut race = Race::new(&[Kind::Unreading; 3], ms(1), ms(700));
    race.run(ms(60_000));
    let late = race.terms.iter().filter(|(at, _)| *at > ms(20_000)).count();
    // In 40 s each of three tries every 8 s, and is asked every 250 ms whether it may.
    assert!((9..=18).contains(&late), "{late}");
}

#[test]
fn a_leader_that_works_is_left_alone_however_often_another_one_that_does_not_has_tried() {
    let kinds = [Kind::Earlier, Kind::Present, Kind::Present, Kind::Present];
    for (trip, later) in settings() {
        let mut race = Race::new(&kinds, trip / 2, later);
        race.run(ms(20_000));
        let of_present = race
            .terms
            .iter()
            .filter(|(_, index)| race.drivers[*index].0 == Kind::Present);
        assert_eq!(of_present.count(), 1, "{trip:?} {later:?}");
    }
}
