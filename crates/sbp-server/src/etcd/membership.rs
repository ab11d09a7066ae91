//! Who leads and who lives, for whoever asks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_locks::{Mutex, MutexGuard};
use sbp_messages::{Encoder, ErrorCode, MetadataStoreMember, PlacementDriverCluster, PlacementDriverNode};
use sbp_replication::Term;
use sbp_replication::leadership::{Leader, Leadership, Standing};
use tokio::sync::{Notify, watch};

use crate::placement::Election;
use crate::refusal::Refusal;

/// What a placement driver is called in the list of them.
const NAME: &str = "placement-driver";

/// What a placement driver says where it says that it lives: the newest format of records that it reads. The first versions say
/// nothing.
pub(super) const NEWEST_FORMAT: &str = "3";

/// The placement driver of this process among the others. The time is that since this was made.
#[derive(Debug)]
pub(crate) struct Membership {
    /// `host:port`, under which others find it.
    address: String,
    /// Where the store is, for messages.
    store: String,
    began: Instant,
    leadership: Mutex<Leadership>,
    /// The placement drivers that lived when it was looked last.
    drivers: watch::Sender<Vec<String>>,
    /// The newest format that all of them read; 0 where that is not known.
    all_read: AtomicU32,
    /// The members of the store, and why those did not answer that did not, when they were asked last.
    members: Mutex<Vec<(String, Option<String>)>>,
    /// Why the store did not answer last, if it did not.
    trouble: Mutex<Option<String>>,
    /// Why this placement driver has no part in the cluster whose metadata are in the store, if it has none.
    foreign: Mutex<Option<String>>,
    /// Woken when there is something to ask of the store before its time.
    changed: Notify,
}

impl Membership {
    pub(crate) fn new(address: &str, store: String) -> Self {
        Self {
            address: address.to_owned(),
            store,
            began: Instant::now(),
            leadership: Mutex::new(Leadership::new(address, Duration::ZERO)),
            drivers: watch::Sender::default(),
            all_read: AtomicU32::new(0),
            members: Mutex::default(),
            trouble: Mutex::default(),
            foreign: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What is in the store is another cluster's, as far as could be read. Returns whether that is new.
    pub(super) fn note_foreign(&self, why: Option<String>) -> bool {
        let mut known = self.foreign.lock();
        let is_new = known.is_some() != why.is_some();
        *known = why;
        is_new
    }

    /// Where the store is, for messages.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// When that is, by the clock of tasks.
    pub(super) fn at(&self, time: Duration) -> Instant {
        self.began + time
    }

    pub(super) fn leadership(&self) -> MutexGuard<'_, Leadership> {
        self.leadership.lock()
    }

    pub(super) fn standing(&self) -> Standing {
        let leadership = self.leadership.lock();
        leadership.standing(self.now())
    }

    /// Whether this placement driver leads in this term.
    pub(super) fn leads_in(&self, term: Term) -> bool {
        self.standing() == Standing::Leads(term)
    }

    /// A write of this term has found that it is over, or may not be made any more.
    pub(super) fn step_down(&self, term: Term) {
        self.leadership.lock().step_down(term, self.now());
        self.changed.notify_one();
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn note_members(&self, members: Vec<(String, Option<String>)>) {
        *self.members.lock() = members;
    }

    /// Notes which placement drivers live, and what each of them says of itself where it says that it lives.
    pub(super) fn note_drivers(&self, drivers: Vec<(String, Bytes)>) {
        let format = |said: &Bytes| std::str::from_utf8(said).ok()?.parse().ok();
        let formats = drivers.iter().map(|(_, said)| format(said).unwrap_or(0));
        self.all_read.store(formats.min().unwrap_or(0), Ordering::Relaxed);
        let drivers: Vec<_> = drivers.into_iter().map(|(address, _)| address).collect();
        self.drivers.send_if_modified(|known| {
            let is_new = *known != drivers;
            *known = drivers;
            is_new
        });
    }

    /// The placement drivers that live, whenever others do.
    pub(crate) fn drivers(&self) -> watch::Receiver<Vec<String>> {
        self.drivers.subscribe()
    }

    /// Notes why the store did not answer, or that it does. Returns whether that has changed.
    pub(super) fn note_trouble(&self, trouble: Option<String>) -> bool {
        let mut known = self.trouble.lock();
        let is_new = known.is_some() != trouble.is_some();
        *known = trouble;
        is_new
    }

    fn node(&self, address: &str, leader: Option<&str>) -> PlacementDriverNode {
        PlacementDriverNode {
            name: NAME.to_owned(),
            advertise_addr: address.to_owned(),
            is_leader: leader == Some(address),
        }
    }

    fn led_by(&self, leader: &Leader) -> Refusal {
        let cluster = PlacementDriverCluster {
            nodes: vec![self.node(&leader.address, Some(&leader.address))],
            term: i64::try_from(leader.term.0).unwrap_or(i64::MAX),
            ..PlacementDriverCluster::default()
        };
        let message = format!("{} leads the placement drivers, not this one", leader.address);
        Refusal {
            detail: cluster.to_detail(&mut Encoder::new()),
            ..Refusal::new(ErrorCode::PD_NOT_LEADER, message)
        }
    }

    /// Nothing can be asked of the store, or it is another cluster's.
    pub(crate) fn unreachable(&self) -> Refusal {
        if let Some(why) = &*self.foreign.lock() {
            return Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, why.clone());
        }
        let why = self.trouble.lock().clone();
        let why = why.unwrap_or_else(|| "it has not answered yet".to_owned());
        let message = format!(
            "metadata store unreachable: {} ({why}); appends and fetches of what is placed go on; try again",
            self.store
        );
        Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message)
    }
}

impl Election for Membership {
    fn all_read(&self, format: u32) -> bool {
        self.all_read.load(Ordering::Relaxed) >= format
    }

    fn term(&self) -> Result<Term, Refusal> {
        match self.standing() {
            Standing::Leads(term) => Ok(term),
            // This one in its life before, whose lease is about to end.
            Standing::Follows(leader) if leader.address != self.address => Err(self.led_by(&leader)),
            Standing::Follows(_) | Standing::Vacant => {
                let message = "no placement driver leads at the moment: one will within seconds";
                Err(Refusal::new(ErrorCode::PD_NOT_LEADER, message))
            }
            Standing::Unreachable => Err(self.unreachable()),
        }
    }

    fn cluster(&self) -> PlacementDriverCluster {
        let (leader, term) = match self.standing() {
            Standing::Leads(term) => (Some(self.address.clone()), term),
            Standing::Follows(leader) => (Some(leader.address), leader.term),
            Standing::Vacant | Standing::Unreachable => (None, Term::default()),
        };
        let members: Vec<_> = self
            .members
            .lock()
            .iter()
            .map(|(address, trouble)| MetadataStoreMember {
                address: address.clone(),
                is_up: trouble.is_none(),
                trouble: trouble.clone().unwrap_or_default(),
            })
            .collect();
        let mut addresses = self.drivers.borrow().clone();
        addresses.extend(leader.clone());
        addresses.push(self.address.clone());
        addresses.sort_unstable();
        addresses.dedup();
        PlacementDriverCluster {
            nodes: addresses
                .iter()
                .map(|address| self.node(address, leader.as_deref()))
                .collect(),
            term: i64::try_from(term.0).unwrap_or(i64::MAX),
            metadata_store: (!members.is_empty()).then_some(members),
            ..PlacementDriverCluster::default()
        }
    }
}
