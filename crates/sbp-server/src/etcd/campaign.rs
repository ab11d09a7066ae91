//! The task that keeps this placement driver's lease, looks who leads, and has the placement driver lead or rest.
//!
//! It has a thread of its own, so that nothing else that the server does keeps it from renewing the lease, and it is ended,
//! and waited for, by whoever owns it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_etcd::{Client, Committed, Compare, EtcdError, KeyValue, LeaseId, PageRequest, Transaction, Write};
use sbp_locks::Mutex;
use sbp_replication::Term;
use sbp_replication::leadership::{Ask, Kept, LEASE, Leader, Lease, Standing};
use sbp_transport::{DialError, dial};
use sbp_types::ClusterId;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::identify::{NotIdentified, identify};
use super::keys::Keys;
use super::membership::{Membership, NEWEST_FORMAT};
use super::reading::{Read, read_all, read_servers};
use super::records::Next;
use super::store::EtcdStore;
use crate::cluster_id::Learned;
use crate::error::StartError;
use crate::placement::{PlacementDriver, ServerRecord};

/// How long dialling the leader may take. A refusal comes at once, and whoever leads is not looked for meanwhile.
const DIAL_TIMEOUT: Duration = Duration::from_millis(250);
/// How often it is looked which placement drivers live.
const LOOK_AT_DRIVERS: Duration = Duration::from_secs(1);
/// How often the leader has etcd forget what was an hour before.
const COMPACTION: Duration = Duration::from_hours(1);
/// The most placement drivers that are listed.
const MOST_DRIVERS: u32 = 64;
/// How long the start waits for etcd, to know whether the metadata in it are those of this server's cluster.
const FIRST_CALL: Duration = Duration::from_secs(1);
/// How long the end waits for etcd.
const LAST_CALL: Duration = Duration::from_secs(1);
/// How long the end of the thread waits for tasks of connections.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// What a campaign is about.
#[derive(Clone, Debug)]
pub(crate) struct CampaignParts {
    pub(crate) client: Arc<Client>,
    /// The name of the cluster in etcd.
    pub(crate) cluster: String,
    pub(crate) membership: Arc<Membership>,
    pub(crate) driver: Arc<PlacementDriver>,
    /// The data directory of this server.
    pub(crate) directory: PathBuf,
    /// The cluster's id, once it is known. A server whose directory knows it has no part in any other cluster.
    pub(crate) id: Learned,
}

impl CampaignParts {
    async fn identify(&self, keys: &Keys) -> Result<ClusterId, NotIdentified> {
        identify(&self.client, keys, self.id.get().copied()).await
    }

    /// The metadata are those of this server's cluster.
    fn identified(&self, id: ClusterId) {
        self.membership.note_foreign(None);
        if self.id.set(id).is_ok() {
            tracing::info!(%id, "the id of the cluster");
        }
    }

    /// They are not, or that is not known: then `None`.
    fn not_identified(&self, why: NotIdentified) -> Option<StartError> {
        why.into_error(&self.directory, self.id.get().copied(), self.membership.store())
    }
}

/// The task, and the thread that it runs on.
#[derive(Debug)]
pub(crate) struct Campaign {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    runtime: Runtime,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Campaign {
    /// Begins.
    ///
    /// # Errors
    ///
    /// The metadata in etcd are those of another cluster. An etcd that does not answer at once is no error: before it does, this
    /// placement driver does not lead.
    pub(crate) fn start(parts: CampaignParts) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("sbp-election")
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::io("start a thread that keeps the lease"))?;
        let keys = Keys::new(&parts.cluster);
        let identified = runtime.block_on(async { timeout(FIRST_CALL, parts.identify(&keys)).await });
        let is_identified = match identified {
            Ok(Ok(id)) => {
                parts.identified(id);
                true
            }
            Ok(Err(why)) => match parts.not_identified(why) {
                Some(error) => {
                    runtime.shutdown_timeout(CLOSING_TIME);
                    return Err(error);
                }
                None => false,
            },
            Err(_) => false,
        };
        let (stop, stopped) = watch::channel(false);
        let task = Task {
            keys,
            is_identified,
            parts,
            runtime: runtime.handle().clone(),
            asked: JoinSet::new(),
            office: Office::None,
            drivers_due: Instant::now(),
            looks_at_members: false,
            compaction: None,
        };
        let task = runtime.spawn(task.run(stopped));
        Ok(Self {
            running: Mutex::new(Some(Running { runtime, stop, task })),
        })
    }

    /// Ends it: the placement driver rests, and others may lead at once. Blocks; not to be called on a thread of a runtime.
    pub(crate) fn stop(&self) {
        let Some(Running { runtime, stop, task }) = self.running.lock().take() else {
            return;
        };
        stop.send_replace(true);
        if runtime.block_on(task).is_err() {
            tracing::error!("the task that keeps the lease of this placement driver panicked");
        }
        runtime.shutdown_timeout(CLOSING_TIME);
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the placement driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Office {
    None,
    /// Everything is being read, to lead in this term.
    Reading(Term),
    Held(Term),
    /// Its thread is about to end.
    Leaving,
}

/// What came of something that was asked.
enum Answer {
    Granted(Option<Lease>, Duration),
    Announced(bool),
    Looked(Result<Option<Leader>, ()>),
    Dialled(bool),
    Revoked(bool),
    Kept(Lease, Kept, Duration),
    Read(Term, Box<Result<Read, String>>),
    Identified(Result<ClusterId, NotIdentified>),
    Drivers(Option<Vec<(String, Bytes)>>),
    /// The records of range servers, for a placement driver that does not lead.
    Servers(Option<Vec<ServerRecord>>),
    Members(Vec<(String, Option<String>)>),
    Compacted(Option<i64>),
    Left,
}

struct Task {
    parts: CampaignParts,
    keys: Keys,
    runtime: Handle,
    /// What is under way.
    asked: JoinSet<Answer>,
    office: Office,
    drivers_due: Instant,
    /// The metadata are those of this server's cluster. Before that is known nothing is asked that has it lead.
    is_identified: bool,
    /// Whether every member of etcd is being asked whether it answers.
    looks_at_members: bool,
    /// When the next compaction is due, and up to which revision.
    compaction: Option<(Instant, i64)>,
}

impl Task {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            self.parts.driver.go_on();
            self.ask();
            self.take_or_leave_office();
            let wake = self.wake_at();
            let membership = Arc::clone(&self.parts.membership);
            tokio::select! {
                Some(answer) = self.asked.join_next() => match answer {
                    Ok(answer) => self.take(answer),
                    Err(error) => tracing::error!(%error, "a question about the leadership panicked"),
                },
                () = sleep_until(wake) => {}
                () = membership.changed() => {}
                _ = stopped.changed() => {}
            }
        }
        self.end().await;
    }

    fn wake_at(&self) -> Instant {
        let membership = &self.parts.membership;
        if !self.is_identified {
            return self.drivers_due;
        }
        let of_lease = membership.leadership().wake_at();
        let of_lease = of_lease.map(|at| Instant::from_std(membership.at(at)));
        of_lease.map_or(self.drivers_due, |at| at.min(self.drivers_due))
    }

    /// Asks what is to be asked now.
    fn ask(&mut self) {
        let membership = Arc::clone(&self.parts.membership);
        let now = membership.now();
        let (renewal, ask) = match self.is_identified {
            true => {
                let mut leadership = membership.leadership();
                (leadership.renew(now), leadership.next(now))
            }
            false => (None, None),
        };
        if let Some(lease) = renewal {
            let client = Arc::clone(&self.parts.client);
            self.asked.spawn(async move {
                let kept = match client.keep_alive(LeaseId(lease.0)).await {
                    Ok(true) => Kept::Alive,
                    Ok(false) => Kept::Ended,
                    Err(error) => {
                        note(&membership, Some(&error));
                        Kept::Unknown
                    }
                };
                Answer::Kept(lease, kept, now)
            });
        }
        if let Some(ask) = ask {
            let asking = Asking {
                client: Arc::clone(&self.parts.client),
                keys: self.keys.clone(),
                membership: Arc::clone(&self.parts.membership),
            };
            self.asked.spawn(asking.ask(ask));
        }
        if self.drivers_due <= Instant::now() {
            self.drivers_due = Instant::now() + LOOK_AT_DRIVERS;
            let (client, keys) = (Arc::clone(&self.parts.client), self.keys.clone());
            self.asked
                .spawn(async move { Answer::Drivers(drivers(&client, &keys).await) });
            if !self.is_identified {
                let (parts, keys) = (self.parts.clone(), self.keys.clone());
                self.asked
                    .spawn(async move { Answer::Identified(parts.identify(&keys).await) });
            }
            if self.office == Office::None {
                let (client, keys) = (Arc::clone(&self.parts.client), self.keys.clone());
                self.asked.spawn(async move {
                    let servers = timeout(LOOK_AT_DRIVERS, read_servers(&client, &keys)).await;
                    Answer::Servers(servers.ok().and_then(Result::ok))
                });
            }
            if !std::mem::replace(&mut self.looks_at_members, true) {
                let (client, key) = (Arc::clone(&self.parts.client), self.keys.leader());
                self.asked
                    .spawn(async move { Answer::Members(client.look_at_members(key).await) });
            }
            self.compact();
        }
    }

    /// Has etcd forget what was before the last time this was done.
    fn compact(&mut self) {
        let Office::Held(_) = self.office else {
            self.compaction = None;
            return;
        };
        let due = self.compaction.map(|(at, revision)| (at <= Instant::now(), revision));
        let revision = match due {
            Some((false, _)) => return,
            Some((true, revision)) => Some(revision),
            None => None,
        };
        self.compaction = Some((Instant::now() + COMPACTION, revision.unwrap_or(0)));
        let (client, key) = (Arc::clone(&self.parts.client), self.keys.leader());
        self.asked.spawn(async move {
            if let Some(revision) = revision.filter(|revision| *revision > 0)
                && let Err(error) = client.compact(revision).await
            {
                tracing::warn!(%error, "etcd does not forget what was an hour before");
            }
            Answer::Compacted(client.get(key).await.ok().map(|(_, revision)| revision))
        });
    }

    fn take(&mut self, answer: Answer) {
        let membership = &self.parts.membership;
        let now = membership.now();
        match answer {
            Answer::Granted(lease, sent) => membership.leadership().granted(lease, sent, now),
            Answer::Announced(done) => membership.leadership().announced(done, now),
            Answer::Looked(found) => membership.leadership().looked(found, now),
            Answer::Dialled(refused) => membership.leadership().dialled(refused, now),
            Answer::Revoked(done) => membership.leadership().revoked(done, now),
            Answer::Kept(lease, kept, sent) => membership.leadership().kept(lease, kept, sent, now),
            Answer::Identified(Ok(id)) => {
                self.parts.identified(id);
                self.is_identified = true;
            }
            Answer::Identified(Err(NotIdentified::Store(error))) => note(membership, Some(&error)),
            Answer::Identified(Err(why)) => {
                let why = self.parts.not_identified(why).map(|error| error.to_string());
                if membership.note_foreign(why.clone()) {
                    tracing::error!(why, "this placement driver does not lead");
                }
            }
            Answer::Drivers(Some(drivers)) => {
                note(membership, None);
                membership.note_drivers(drivers);
            }
            Answer::Drivers(None) | Answer::Servers(None) => {}
            Answer::Servers(Some(servers)) if self.office == Office::None => {
                self.parts.driver.know_servers(servers.iter());
            }
            Answer::Servers(Some(_)) => {}
            Answer::Members(members) => {
                membership.note_members(members);
                self.looks_at_members = false;
            }
            Answer::Compacted(Some(revision)) => {
                if let Some((_, until)) = &mut self.compaction {
                    *until = revision;
                }
            }
            Answer::Compacted(None) => {}
            Answer::Left => self.office = Office::None,
            Answer::Read(term, read) => self.begin(term, *read),
        }
    }

    /// Everything is read: the placement driver leads, if it still may.
    fn begin(&mut self, term: Term, read: Result<Read, String>) {
        self.office = Office::None;
        let CampaignParts {
            client,
            membership,
            driver,
            ..
        } = &self.parts;
        let led = match read {
            Err(why) => Err(why),
            Ok(_) if !membership.leads_in(term) => return,
            Ok(Read { state, count }) => {
                let next = Next {
                    stream: state.next_stream_id(),
                    server: state.next_server_id(),
                };
                let store = EtcdStore {
                    client: Arc::clone(client),
                    runtime: self.runtime.clone(),
                    keys: self.keys.clone(),
                    membership: Arc::clone(membership),
                    term,
                    count,
                    number: 0,
                    next,
                    over: None,
                };
                let streams = state.stream_count();
                let led = driver.lead(term, state, Box::new(store));
                led.map(|()| streams).map_err(|error| error.to_string())
            }
        };
        match led {
            Ok(streams) => {
                self.office = Office::Held(term);
                membership.leadership().began(term);
                tracing::info!(%term, streams, "this placement driver leads its cluster");
            }
            Err(why) => {
                tracing::error!(%term, why, "this placement driver cannot lead its cluster: it cannot use the metadata");
                membership.leadership().cannot_lead(term, membership.now());
            }
        }
    }

    /// Begins to read when this placement driver leads, and to rest when it does not any more.
    fn take_or_leave_office(&mut self) {
        let leads = match self.parts.membership.standing() {
            Standing::Leads(term) => Some(term),
            _ => None,
        };
        match (self.office, leads) {
            (Office::None, Some(term)) => {
                self.office = Office::Reading(term);
                let (client, keys) = (Arc::clone(&self.parts.client), self.keys.clone());
                self.asked
                    .spawn(async move { Answer::Read(term, Box::new(read_all(&client, &keys).await)) });
            }
            (Office::Held(term), leads) if leads != Some(term) => {
                tracing::warn!(%term, "this placement driver does not lead its cluster any more");
                self.office = Office::Leaving;
                let driver = Arc::clone(&self.parts.driver);
                let left = tokio::task::spawn_blocking(move || driver.rest());
                self.asked.spawn(async move {
                    if left.await.is_err() {
                        tracing::error!("the end of a term panicked");
                    }
                    Answer::Left
                });
            }
            _ => {}
        }
    }

    /// Lets others lead at once.
    async fn end(self) {
        let Self { parts, mut asked, .. } = self;
        let driver = Arc::clone(&parts.driver);
        // What has begun is brought to its end before.
        let rested = tokio::task::spawn_blocking(move || driver.stop()).await;
        if rested.is_err() {
            tracing::error!("the end of the placement driver panicked");
        }
        asked.abort_all();
        let lease = parts.membership.leadership().lease();
        if let Some(lease) = lease
            && !matches!(
                timeout(LAST_CALL, parts.client.revoke(LeaseId(lease.0))).await,
                Ok(Ok(()))
            )
        {
            tracing::warn!("others have to wait until the lease of this placement driver ends by itself");
        }
        while asked.join_next().await.is_some() {}
    }
}

/// Who asks etcd one question of the leadership.
struct Asking {
    client: Arc<Client>,
    keys: Keys,
    membership: Arc<Membership>,
}

impl Asking {
    async fn ask(self, ask: Ask) -> Answer {
        match ask {
            Ask::Grant => {
                let sent = self.membership.now();
                let granted = self.client.grant(LEASE).await;
                Answer::Granted(self.noted(granted).map(|lease| Lease(lease.0)), sent)
            }
            Ask::Announce(lease) => {
                let key = self.keys.driver(self.membership.address());
                let transaction = Transaction {
                    writes: vec![Write::Put(key, NEWEST_FORMAT.into(), Some(LeaseId(lease.0)))],
                    ..Transaction::default()
                };
                let announced = self.client.commit(&transaction).await;
                Answer::Announced(self.noted(announced).is_some())
            }
            Ask::Look => {
                let found = self.client.get(self.keys.leader()).await;
                let found = self.noted(found).map(|(found, _)| found.map(|found| leader(&found)));
                Answer::Looked(found.ok_or(()))
            }
            Ask::Claim(lease) => Answer::Looked(self.claim(lease).await.ok_or(())),
            Ask::Dial(leader) => {
                let dialled = dial(&leader.address, DIAL_TIMEOUT).await;
                Answer::Dialled(matches!(
                    &dialled,
                    Err(DialError::Connect { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused
                ))
            }
            Ask::Revoke(lease) => {
                let revoked = self.client.revoke(LeaseId(lease.0)).await;
                Answer::Revoked(self.noted(revoked).is_some())
            }
        }
    }

    /// Puts the leader's key where there is none, and says who leads then.
    async fn claim(&self, lease: Lease) -> Option<Option<Leader>> {
        let key = self.keys.leader();
        let address = self.membership.address();
        let transaction = Transaction {
            compares: vec![Compare::Absent(key.clone())],
            writes: vec![Write::Put(
                key.clone(),
                address.to_owned().into(),
                Some(LeaseId(lease.0)),
            )],
            otherwise_read: vec![key],
        };
        let committed = self.client.commit(&transaction).await;
        match self.noted(committed)? {
            Committed::Done { revision } => Some(Some(Leader {
                address: address.to_owned(),
                lease,
                term: term(revision),
            })),
            Committed::Refused { found } => Some(found.into_iter().next().flatten().map(|found| leader(&found))),
        }
    }

    /// Notes whether etcd answers.
    fn noted<T>(&self, answer: Result<T, EtcdError>) -> Option<T> {
        note(&self.membership, answer.as_ref().err());
        answer.ok()
    }
}

fn note(membership: &Membership, error: Option<&EtcdError>) {
    let is_new = membership.note_trouble(error.map(ToString::to_string));
    match error {
        Some(error) if is_new => tracing::warn!(%error, "the metadata store does not answer"),
        None if is_new => tracing::info!("the metadata store answers again"),
        _ => {}
    }
}

fn term(revision: i64) -> Term {
    Term(u64::try_from(revision).unwrap_or(0))
}

fn leader(found: &KeyValue) -> Leader {
    Leader {
        address: String::from_utf8_lossy(&found.value).into_owned(),
        lease: Lease(found.lease.map_or(0, |lease| lease.0)),
        term: term(found.create_revision),
    }
}

/// The placement drivers that live.
async fn drivers(client: &Client, keys: &Keys) -> Option<Vec<(String, Bytes)>> {
    let request = PageRequest {
        prefix: keys.drivers(),
        after: None,
        limit: MOST_DRIVERS,
        revision: None,
    };
    let page = timeout(LOOK_AT_DRIVERS, client.page(&request)).await.ok()?.ok()?;
    let said = page
        .keys
        .iter()
        .filter_map(|found| Some((keys.address_of(&found.key)?, found.value.clone())));
    Some(said.collect())
}
