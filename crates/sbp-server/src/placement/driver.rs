//! The placement driver around its pure half: the thread that makes changes durable, and the state that all threads
//! read.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use sbp_locks::{Mutex, RwLock};
use sbp_log::Clock;
use sbp_messages::{ErrorCode, RangeId, RangeServer as RangeServerName, RangeServerStatus, ServerState, StuckRange};
use sbp_replication::Term;
use sbp_types::{RangeKey, ServerId};

use super::choose::ServerLoad;
use super::copies::{CopyCounts, is_news};
use super::drain::{Drain, Stuck};
use super::election::{Election, WITH_STARTS};
use super::life::Life;
use super::range_servers::{RangeServer, RangeServers, reach};
use super::records::ServerRecord;
use super::registry::Registry;
use super::request::MetadataJob;
use super::state::PlacementState;
use super::store::PlacementStore;
use super::worker::{DriverParts, Event, Worker};
use crate::config::ClusterTimes;
use crate::failure::Health;
use crate::refusal::Refusal;

/// The placement driver. Any thread may read its state; one thread changes it, while this placement driver leads.
pub(crate) struct PlacementDriver {
    registry: Arc<Mutex<Registry>>,
    range_servers: Arc<dyn RangeServers>,
    always_up: Option<ServerId>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    times: ClusterTimes,
    /// Who leads; `None`: there is no other placement driver.
    election: Option<Arc<dyn Election>>,
    office: RwLock<Office>,
    /// The highest term of a placement driver that a range server has said that it followed; 0: none.
    highest_followed: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a placement driver has while it leads.
#[derive(Default)]
struct Office {
    /// The term that this belongs to; nothing of it counts in another one.
    term: Term,
    state: Arc<RwLock<PlacementState>>,
    copies: Arc<CopyCounts>,
    /// The way to the thread that changes the state; `None`: there is none.
    events: Option<mpsc::Sender<Event>>,
}

/// A count as messages have it.
fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl fmt::Debug for PlacementDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementDriver").finish_non_exhaustive()
    }
}

impl PlacementDriver {
    /// The only placement driver of its cluster: it leads for as long as it runs. Starts the thread. Operations on one stream
    /// are done in the order in which they are [submitted](Self::submit).
    pub(crate) fn start(parts: DriverParts) -> io::Result<Self> {
        let DriverParts {
            term,
            state,
            store,
            range_servers,
            always_up,
            clock,
            health,
            times,
        } = parts;
        let driver = Self::new(range_servers, always_up, clock, health, times, None);
        driver.lead(term, state, store)?;
        Ok(driver)
    }

    /// One of several placement drivers, which does not lead yet.
    pub(crate) fn elected(
        range_servers: Arc<dyn RangeServers>,
        clock: Arc<dyn Clock>,
        health: Arc<Health>,
        times: ClusterTimes,
        election: Arc<dyn Election>,
    ) -> Self {
        Self::new(range_servers, None, clock, health, times, Some(election))
    }

    fn new(
        range_servers: Arc<dyn RangeServers>,
        always_up: Option<ServerId>,
        clock: Arc<dyn Clock>,
        health: Arc<Health>,
        times: ClusterTimes,
        election: Option<Arc<dyn Election>>,
    ) -> Self {
        let registry = Registry::new(always_up, times.silence, Instant::now());
        Self {
            registry: Arc::new(Mutex::new(registry)),
            range_servers,
            always_up,
            clock,
            health,
            times,
            election,
            office: RwLock::default(),
            highest_followed: AtomicU64::default(),
            thread: Mutex::default(),
        }
    }

    /// Leads from now on, beginning with what the store has. The thread of an earlier term has to have [ended](Self::rest).
    pub(crate) fn lead(&self, term: Term, state: PlacementState, store: Box<dyn PlacementStore>) -> io::Result<()> {
        self.range_servers.lead_in(term);
        for server in state.servers() {
            self.range_servers.locate(server.id, &server.address);
        }
        {
            let mut registry = self.registry.lock();
            registry.begin(state.next_server_id(), Instant::now());
            registry.know_servers(state.servers().map(|server| &**server));
        }
        let published = Arc::new(RwLock::new(state.clone()));
        let (sender, inbox) = mpsc::channel();
        let parts = DriverParts {
            term,
            state,
            store,
            range_servers: Arc::clone(&self.range_servers),
            always_up: self.always_up,
            clock: Arc::clone(&self.clock),
            health: Arc::clone(&self.health),
            times: self.times,
        };
        let registry = Arc::clone(&self.registry);
        let copies = Arc::new(CopyCounts::default());
        let counts = Arc::clone(&copies);
        let worker = Worker::new(parts, Arc::clone(&published), registry, counts, sender.clone());
        let thread = std::thread::Builder::new()
            .name("sbp-metadata".to_owned())
            .spawn(move || worker.run(&inbox))?;
        *self.thread.lock() = Some(thread);
        *self.office.write() = Office {
            term,
            state: published,
            copies,
            events: Some(sender),
        };
        Ok(())
    }

    /// Leads no more: what is under way is given up, and its thread has ended when this returns.
    pub(crate) fn rest(&self) {
        self.end(Event::Deposed);
        // What it knew may be outdated.
        *self.office.write() = Office::default();
    }

    /// Who leads, where there are several placement drivers.
    pub(crate) fn election(&self) -> Option<&Arc<dyn Election>> {
        self.election.as_ref()
    }

    /// Whether this placement driver leads, and so may answer about streams and ranges.
    ///
    /// # Errors
    ///
    /// Another one leads, or nobody does, or it is not known.
    pub(crate) fn check_leads(&self) -> Result<(), Refusal> {
        let Some(election) = &self.election else {
            return self.check_newest(self.office.read().term);
        };
        let term = election.term()?;
        let office = self.office.read();
        if office.events.is_some() && office.term == term {
            return self.check_newest(term);
        }
        let message = "this placement driver has just begun to lead its cluster, and reads the metadata: try again";
        Err(Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message))
    }

    /// Notes the highest term of a placement driver that a range server has followed.
    pub(crate) fn note_followed(&self, server: ServerId, followed: i64) {
        let followed = Term(u64::try_from(followed).unwrap_or(0));
        let is_news = self.highest_followed.fetch_max(followed.0, Ordering::Relaxed) < followed.0;
        let leads_in = {
            let office = self.office.read();
            office.events.as_ref().map(|_| office.term)
        };
        if is_news
            && let Some(term) = leads_in
            && let Err(refusal) = self.check_newest(term)
        {
            tracing::error!(%server, "{}", refusal.message);
        }
    }

    /// Whether nobody has followed a later term than this: metadata that were put back from an older copy give numbers of
    /// streams out again, and know nothing of what was decided since.
    fn check_newest(&self, term: Term) -> Result<(), Refusal> {
        let followed = Term(self.highest_followed.load(Ordering::Relaxed));
        if followed <= term {
            return Ok(());
        }
        let message = format!(
            "this placement driver leads in term {term}, and a range server has followed one of term {followed}: another one \
             leads by now, or the metadata were put back from an older copy. Such a copy is followed by nobody; give the \
             placement drivers the newest metadata that there are"
        );
        Err(Refusal::new(ErrorCode::PD_NOT_LEADER, message))
    }

    /// Whether a range server with an id of which this placement driver does not know that it was given out may be noted:
    /// one that does not lead knows of none, and has to know who is up when it does.
    pub(crate) fn takes_on_trust(&self, server: ServerId) -> bool {
        self.check_leads().is_err() && server.0 >= 1 && self.registry.lock().has_room_for(server)
    }

    /// The term in which this placement driver leads, for answers: to be asked for before what is answered, so that this is no
    /// older than it says. 0: it does not lead.
    pub(crate) fn term(&self) -> i64 {
        i64::try_from(self.office.read().term.0).unwrap_or(i64::MAX)
    }

    /// Gives `look` the durable metadata, under a lock that must be held for moments only.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&PlacementState) -> R) -> R {
        let state = Arc::clone(&self.office.read().state);
        let state = state.read();
        look(&state)
    }

    /// Queues a request.
    ///
    /// # Errors
    ///
    /// The server is shutting down, or does not lead any more; nothing was done.
    pub(crate) fn submit(&self, job: MetadataJob) -> Result<(), Refusal> {
        match self.send(Event::Job(job)) {
            true => Ok(()),
            false if self.election.is_some() => Err(Refusal::not_leader_any_more()),
            false => Err(Refusal::shutting_down()),
        }
    }

    /// The regular look at the clock while another placement driver leads: so time in which this process was stopped is not taken
    /// for the silence of range servers, and all other time is.
    pub(crate) fn go_on(&self) {
        self.registry.lock().go_on(Instant::now());
    }

    /// The range servers that are registered, as the placement driver that leads has stored it.
    pub(crate) fn know_servers<'a>(&self, servers: impl Iterator<Item = &'a ServerRecord>) {
        self.registry.lock().know_servers(servers);
    }

    /// Notes what a range server says of itself on this connection.
    ///
    /// # Errors
    ///
    /// It is not the one with this number that belongs to the cluster, or that is not known yet.
    pub(crate) fn admit(&self, server: ServerId, connection: i64, life: &Life) -> Result<(), Refusal> {
        let leads = self.check_leads().is_ok();
        let mut registry = self.registry.lock();
        registry.admit(server, connection, life, leads, Instant::now())
    }

    /// Whether every placement driver that could lead next reads how often a range server was started, for certain.
    pub(crate) fn may_store_starts(&self) -> bool {
        self.election
            .as_ref()
            .is_none_or(|election| election.all_read(WITH_STARTS))
    }

    /// Notes a HEARTBEAT of a range server.
    pub(crate) fn heard(&self, server: ServerId, connection: i64, replicates: bool) {
        let is_new = self
            .registry
            .lock()
            .heard(server, connection, replicates, Instant::now());
        if is_new {
            tracing::info!(%server, "a range server is up");
        }
        self.send(Event::Settle(server));
    }

    /// Notes where a range server says that it stands.
    pub(crate) fn stands_in(&self, server: ServerId, zone: &str) {
        self.registry.lock().stands_in(server, zone);
    }

    /// Notes the load that a range server has reported.
    pub(crate) fn report(&self, server: ServerId, load: ServerLoad) {
        self.registry.lock().report(server, load, Instant::now());
    }

    /// A range server lacks some of these sealed ranges, as far as it says so.
    pub(crate) fn lacks(&self, server: ServerId, incomplete: &[RangeId]) {
        let named = incomplete.iter().filter_map(|range| {
            let key = RangeKey {
                stream: range.stream_id,
                range: range.range_index?,
            };
            Some((key, range.epoch?))
        });
        // What is known already is not asked of the thread.
        let news: Vec<_> = self.read(|state| {
            named
                .filter(|(key, epoch)| is_news(state, server, *key, *epoch))
                .collect()
        });
        if !news.is_empty() {
            self.send(Event::Lacks(server, news));
        }
    }

    /// Notes that a connection to a range server has closed.
    pub(crate) fn closed(&self, server: ServerId, connection: i64) {
        if self.registry.lock().closed(server, connection) {
            self.send(Event::Lost(server));
        }
    }

    /// Whether the range server is up, and the load that it last reported.
    pub(crate) fn presence(&self, server: ServerId) -> (bool, ServerLoad) {
        let registry = self.registry.lock();
        (registry.is_up(server, Instant::now()), registry.load(server))
    }

    /// The range servers as this placement driver sees them: `own`, the one in the same process, and those that said where
    /// they are.
    pub(crate) fn range_server_statuses(&self, own: Option<RangeServerName>) -> Vec<RangeServerStatus> {
        let state = Arc::clone(&self.office.read().state);
        let state = state.read();
        let registry = self.registry.lock();
        let now = Instant::now();
        let own_id = own.as_ref().map(|own| own.server_id);
        let others = state.servers().filter(|record| Some(record.id) != own_id);
        let others = others.map(|record| RangeServerName {
            server_id: record.id,
            advertise_addr: record.address.clone(),
            starts: i64::try_from(record.starts).unwrap_or(i64::MAX),
            ..RangeServerName::default()
        });
        let drain = Drain::new(&state, &registry, now);
        let status = |server: RangeServerName| {
            let id = server.server_id;
            let is_draining = state.is_draining(id);
            let Stuck { count: stuck, named } = match is_draining {
                true => drain.stuck(id),
                false => Stuck::default(),
            };
            let named = named.into_iter().map(|(key, reason)| StuckRange {
                stream_id: key.stream,
                range_index: key.range,
                reason,
            });
            let ServerLoad {
                free_bytes: free,
                withheld,
                ..
            } = registry.load(id);
            let silence = registry.silence(id, now).map(|silence| silence.as_millis());
            RangeServerStatus {
                range_server: Some(RangeServerName {
                    zone: registry.zone_of(id).to_owned(),
                    ..server
                }),
                state: match is_draining {
                    true => ServerState::DRAINING,
                    false => ServerState::IN_USE,
                },
                is_up: registry.is_up(id, now),
                silent_ms: silence.map_or(-1, |millis| i64::try_from(millis).unwrap_or(i64::MAX)),
                open_range_cnt: count(state.open_ranges_on(id)),
                missing_replica_cnt: count(state.ranges_lacking_replicas_on(id)),
                follower_range_cnt: count(state.followed_ranges_on(id)),
                sealed_range_cnt: count(state.sealed_ranges_on(id)),
                incomplete_range_cnt: count(state.incomplete_ranges_on(id)),
                disk_free_space: free.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
                stuck_range_cnt: count(stuck),
                stuck: named.collect(),
                withheld_range_cnt: withheld.ranges,
                withheld_bytes: withheld.bytes,
            }
        };
        own.into_iter().chain(others).map(status).collect()
    }

    /// How many copies of sealed ranges are being made, and how many sealed ranges wait for one.
    pub(crate) fn copy_counts(&self) -> (i32, i32) {
        let (made, waiting) = self.office.read().copies.read();
        (count(made), count(waiting))
    }

    /// The range server, if it is up and its address is known.
    pub(crate) fn range_server(&self, server: ServerId) -> Result<Arc<dyn RangeServer>, Refusal> {
        reach(&*self.range_servers, &self.registry, server)
    }

    /// Checks now which deleted streams can be forgotten, instead of waiting for the next regular check.
    #[cfg(test)]
    pub(crate) fn sweep(&self) {
        self.send(Event::Sweep);
    }

    /// Ends the thread once what was submitted is done. Answers of range servers are waited for only for a limited
    /// time.
    pub(crate) fn stop(&self) {
        self.end(Event::Stop);
    }

    fn end(&self, last: Event) {
        // From here on nobody sends requests to the thread.
        if let Some(events) = self.office.write().events.take() {
            let _ended = events.send(last);
        }
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the metadata thread panicked");
        }
    }

    fn send(&self, event: Event) -> bool {
        let office = self.office.read();
        office.events.as_ref().is_some_and(|events| events.send(event).is_ok())
    }
}
