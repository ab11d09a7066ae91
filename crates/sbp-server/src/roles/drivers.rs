//! The placement drivers of a cluster as a range server sees them: a channel to each, and which of them is asked.
//!
//! Any of them may lead next, so each hears HEARTBEATs and reports. Questions go to the leader: to the one that answered as
//! such last, to the one that another names, or, while nobody knows, to one after the other. One that does not answer is not
//! waited for where there are others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_messages::{ErrorCode, Message, PlacementDriverCluster, Status, check_address};
use tokio::sync::watch;

use crate::peer::{PeerChannel, PeerError};

/// The most placement drivers that are dialled; a peer that claims more is not believed.
pub(super) const MOST: usize = 16;
/// Where others may be asked, one of which nothing was heard for so long is not waited for.
const SILENCE: Duration = Duration::from_millis(2_500);
/// How often it is looked whether that is so.
const LOOK: Duration = Duration::from_millis(250);
/// The pause before another one is asked, where nobody knows who leads.
const PAUSE: Duration = Duration::from_millis(100);

/// The placement drivers that are known.
#[derive(Debug)]
pub(crate) struct Drivers {
    known: Mutex<Known>,
    /// How often another one was chosen to be asked.
    chosen: watch::Sender<u64>,
}

#[derive(Debug)]
struct Known {
    drivers: Vec<Driver>,
    /// The place of the one to ask. There always is one.
    leader: usize,
}

#[derive(Clone, Debug)]
struct Driver {
    address: String,
    channel: Arc<PeerChannel>,
    /// It was configured, and stays whatever others say.
    is_given: bool,
    /// When it was known first.
    since: Instant,
}

impl Driver {
    fn answers(&self) -> bool {
        self.channel.is_connected() && self.channel.silence() < SILENCE
    }
}

/// One to ask.
struct Asked {
    channel: Arc<PeerChannel>,
    address: String,
}

/// What a call to one of them came to.
enum Attempt<A> {
    Ended(Result<Vec<A>, PeerError>),
    /// Another one is to be asked: the leader, where it is named.
    Elsewhere(PeerError, Option<String>),
}

impl Drivers {
    /// Those that are configured. `channel` makes the way to one.
    pub(crate) fn new(addresses: &[String], channel: impl Fn(&str) -> PeerChannel) -> Self {
        let driver = |address: &String| Driver {
            address: address.clone(),
            channel: Arc::new(channel(address)),
            is_given: true,
            since: Instant::now(),
        };
        Self {
            known: Mutex::new(Known {
                drivers: addresses.iter().map(driver).collect(),
                leader: 0,
            }),
            chosen: watch::Sender::new(0),
        }
    }

    /// Asks the leader, whoever that is by then, and waits for all frames of its answer. Sent again when a connection is lost,
    /// so only for requests that may be carried out twice.
    pub(crate) async fn call<Q: Message, A: Message>(
        &self,
        request: &Q,
        timeout: Duration,
    ) -> Result<Vec<A>, PeerError> {
        let deadline = Instant::now() + timeout;
        loop {
            let Some(asked) = self.asked() else {
                return Err(PeerError::Closed);
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match self.attempt(&asked, request, left).await {
                Attempt::Ended(ended) => return ended,
                Attempt::Elsewhere(error, leader) => {
                    let is_named = leader.is_some_and(|leader| self.follow(&asked, &leader));
                    if Instant::now() + PAUSE >= deadline {
                        return Err(error);
                    }
                    if !is_named {
                        self.move_on(&asked);
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    async fn attempt<Q: Message, A: Message>(&self, asked: &Asked, request: &Q, left: Duration) -> Attempt<A> {
        let began = Instant::now();
        let mut answer = std::pin::pin!(asked.channel.call(request, left));
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer,
                () = tokio::time::sleep(LOOK) => {
                    let is_silent = asked.channel.silence() >= SILENCE;
                    if is_silent && (self.is_another_there(asked) || !self.is_alone() && began.elapsed() >= SILENCE) {
                        return Attempt::Elsewhere(asked.silent(), None);
                    }
                }
            }
        };
        match answer {
            Err(PeerError::Refused { peer, status }) if is_of_the_driver(&status) => {
                let leader = leader(&status);
                Attempt::Elsewhere(PeerError::Refused { peer, status }, leader)
            }
            answer => Attempt::Ended(answer),
        }
    }

    /// Whether another one answers.
    fn is_another_there(&self, asked: &Asked) -> bool {
        let known = self.known.lock();
        let mut others = known.drivers.iter().filter(|driver| driver.address != asked.address);
        others.any(Driver::answers)
    }

    fn is_alone(&self) -> bool {
        self.known.lock().drivers.len() == 1
    }

    /// The one to ask: the leader, or the next one that answers if that one does not.
    fn asked(&self) -> Option<Asked> {
        let mut known = self.known.lock();
        let count = known.drivers.len();
        let places = (0..count).map(|step| (known.leader + step) % count);
        let place = places
            .into_iter()
            .find(|place| known.drivers.get(*place).is_some_and(Driver::answers))
            .unwrap_or(known.leader);
        if place != known.leader {
            known.leader = place;
            self.chosen.send_modify(|chosen| *chosen += 1);
        }
        known.drivers.get(place).map(|driver| Asked {
            channel: Arc::clone(&driver.channel),
            address: driver.address.clone(),
        })
    }

    /// The leader is at this address, as one of them says. Returns whether it is asked from now on.
    fn follow(&self, asked: &Asked, address: &str) -> bool {
        if asked.address == address || check_address(address).is_err() {
            return false;
        }
        let mut known = self.known.lock();
        let place = known.drivers.iter().position(|driver| driver.address == address);
        let place = match place {
            Some(place) => place,
            None if known.drivers.len() < MOST => {
                known.drivers.push(Driver {
                    address: address.to_owned(),
                    channel: Arc::new(asked.channel.to(address)),
                    is_given: false,
                    since: Instant::now(),
                });
                known.drivers.len() - 1
            }
            None => return false,
        };
        known.leader = place;
        self.chosen.send_modify(|chosen| *chosen += 1);
        known.drivers.get(place).is_some_and(Driver::answers)
    }

    /// The next one is asked from now on, unless that has changed already.
    fn move_on(&self, asked: &Asked) {
        let mut known = self.known.lock();
        let count = known.drivers.len();
        let is_still = known
            .drivers
            .get(known.leader)
            .is_some_and(|driver| driver.address == asked.address);
        if is_still && count > 1 {
            known.leader = (known.leader + 1) % count;
            self.chosen.send_modify(|chosen| *chosen += 1);
        }
    }

    /// These are the placement drivers that live. The others are forgotten, but for those that are configured, or answer: who was
    /// asked may not have heard yet of one that has begun since.
    pub(super) fn know(&self, addresses: &[&str]) {
        self.know_at(addresses, Instant::now());
    }

    fn know_at(&self, addresses: &[&str], now: Instant) {
        let mut known = self.known.lock();
        let Some(like) = known.drivers.first().map(|driver| Arc::clone(&driver.channel)) else {
            return;
        };
        let leader = known.drivers.get(known.leader).map(|driver| driver.address.clone());
        known.drivers.retain(|driver| {
            let is_new = now.saturating_duration_since(driver.since) < SILENCE;
            let is_named = addresses.contains(&&*driver.address) || Some(&driver.address) == leader.as_ref();
            driver.is_given || is_named || is_new || driver.answers()
        });
        for address in addresses {
            let is_known = known.drivers.iter().any(|driver| driver.address == *address);
            if !is_known && known.drivers.len() < MOST {
                known.drivers.push(Driver {
                    address: (*address).to_owned(),
                    channel: Arc::new(like.to(address)),
                    is_given: false,
                    since: now,
                });
            }
        }
        let place = known
            .drivers
            .iter()
            .position(|driver| Some(&driver.address) == leader.as_ref());
        known.leader = place.unwrap_or(0);
    }

    /// Those that are not asked, and are to be told all the same.
    pub(super) fn others(&self) -> Vec<Arc<PeerChannel>> {
        let known = self.known.lock();
        let others = known
            .drivers
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != known.leader);
        others.map(|(_, driver)| Arc::clone(&driver.channel)).collect()
    }

    fn leader(&self) -> Option<Arc<PeerChannel>> {
        let known = self.known.lock();
        known
            .drivers
            .get(known.leader)
            .map(|driver| Arc::clone(&driver.channel))
    }

    /// The number of the connection to the one that is asked: no two connections have the same; 0: there is none.
    pub(crate) fn standing(&self) -> u64 {
        let standing = self.asked().map_or(0, |asked| asked.channel.standing());
        match standing {
            0 => 0,
            standing => (*self.chosen.borrow() << 32) | (standing & u64::from(u32::MAX)),
        }
    }

    /// Whether the one that is asked is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.standing() != 0
    }

    /// What tells of changes of [`standing`](Self::standing): that another one is asked, that its connection is another one.
    pub(crate) fn changes(&self) -> Option<(watch::Receiver<u64>, watch::Receiver<u64>)> {
        // In this order: what happens in between is seen.
        let chosen = self.chosen.subscribe();
        Some((chosen, self.leader()?.connections()))
    }

    /// What the one that is asked is called in messages.
    pub(crate) fn name(&self) -> String {
        self.leader().map(|leader| leader.name()).unwrap_or_default()
    }

    /// What went wrong last with the one that is asked.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.leader()?.last_failure()
    }

    /// Ends all connections after what was asked is answered.
    pub(crate) fn close(&self) {
        for driver in &self.known.lock().drivers {
            driver.channel.close();
        }
    }
}

impl Asked {
    fn silent(&self) -> PeerError {
        PeerError::TimedOut {
            peer: self.address.clone(),
            waited: SILENCE,
            last: self.channel.last_failure(),
        }
    }
}

/// Whether a call was refused as a whole because of who was asked: it does not lead, or its store does not answer.
fn is_of_the_driver(status: &Status) -> bool {
    [ErrorCode::PD_NOT_LEADER, ErrorCode::PD_NO_AVAILABLE_RS].contains(&status.code)
}

/// Whom a refusal names as the leader.
fn leader(status: &Status) -> Option<String> {
    let cluster = PlacementDriverCluster::from_detail(&status.detail).ok()?;
    cluster.leader().map(|leader| leader.advertise_addr.clone())
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::peer::tests::{PATIENCE, channel, nobody, start};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn who_answers_is_not_forgotten_because_another_one_has_not_heard_of_it() {
        let server = start("127.0.0.1:0");
        let (given, there, away) = (nobody(), server.address().to_owned(), nobody());
        let drivers = Drivers::new(std::slice::from_ref(&given), |address| channel(&[address], false));
        let known = || {
            let known = drivers.known.lock();
            known
                .drivers
                .iter()
                .map(|driver| driver.address.clone())
                .collect::<Vec<_>>()
        };
        let began = Instant::now();
        drivers.know_at(&[&there, &away], began);
        // An answer that was given before these two began.
        drivers.know_at(&[], began);
        assert_eq!(
            known(),
            [given.clone(), there.clone(), away],
            "they have had no time to answer"
        );
        let connections = |place: usize| drivers.known.lock().drivers[place].channel.connections();
        let mut connected = connections(1);
        let standing = timeout(PATIENCE, connected.wait_for(|number| *number != 0));
        standing.await.unwrap().unwrap();
        drivers.know_at(&[], began + SILENCE);
        assert_eq!(known(), [given.clone(), there]);
        drop(server);
        let is_gone = async {
            while drivers.known.lock().drivers[1].answers() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, is_gone).await.unwrap();
        drivers.know_at(&[], began + SILENCE);
        assert_eq!(known(), [given]);
    }
}
