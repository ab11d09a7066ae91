//! Opens the roles that a configuration asks for.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use sbp_log::LogConfig;
use sbp_messages::{ClientRole, ErrorCode, RangeServer as RangeServerName};
use sbp_transport::{ClientTls, Descriptors};
use sbp_types::ServerId;
use tokio::runtime::{Handle, Runtime};

use crate::cluster_id::{Learned, OwnCluster};
use crate::config::{MetadataConfig, Roles, ServerConfig};
use crate::error::StartError;
use crate::etcd::{Campaign, CampaignParts, Membership};
use crate::followers::{Dialling, FollowerLinks};
use crate::peer::{PeerChannel, PeerConfig, PeerToken};
use crate::placement::{Election, MetadataJob, Outcome, PlacementDriver, Request};
use crate::range::RangeServer;
use crate::refusal::{Done, Refusal};
use crate::roles::{
    AskPlacementDriver, Drivers, Job, RangeRole, RangeStore, RemoteServers, allocate_id, follow_members, greeting,
};
use crate::storage::{self, RangeStorage, Storage, StorageParts};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a placement driver is waited for that is asked for the first id, before it is looked again who leads.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Refusals that stay the same however often it is asked.
const DENIALS: [ErrorCode; 3] = [
    ErrorCode::UNAUTHORIZED,
    ErrorCode::FORBIDDEN,
    ErrorCode::UNSUPPORTED_OPERATION,
];
/// The pause before that.
const PAUSE: Duration = Duration::from_millis(50);

/// The opened parts of a server.
#[derive(Debug)]
pub(crate) struct OpenedRoles {
    /// Its id as a range server; `None` for a process that is only a placement driver.
    pub(crate) server_id: Option<ServerId>,
    pub(crate) placement: Option<Arc<PlacementDriver>>,
    /// What has the placement driver lead, or not, where there are several.
    pub(crate) campaign: Option<Campaign>,
    pub(crate) ranges: Option<Arc<RangeServer>>,
    pub(crate) range_role: Option<Arc<RangeRole>>,
    /// The range server with the log, which owns the directory even where no ranges are served.
    pub(crate) owner: Arc<RangeServer>,
}

/// What the start needs besides the directory.
#[derive(Debug)]
pub(crate) struct StartContext<'a> {
    pub(crate) config: &'a ServerConfig,
    pub(crate) runtime: &'a Runtime,
    pub(crate) descriptors: &'a Arc<Descriptors>,
    /// The address that others are told to dial.
    pub(crate) advertise: &'a str,
    /// TLS towards other servers.
    pub(crate) peer_tls: &'a Option<Arc<ClientTls>>,
}

impl StartContext<'_> {
    fn peer_token(&self) -> Option<PeerToken> {
        let path = self.config.peer_token.clone()?;
        let in_clear = self.config.peer_token_in_clear;
        Some(PeerToken { path, in_clear })
    }

    fn remote_servers(&self, cluster: &Learned) -> Arc<RemoteServers> {
        let hello = greeting(ClientRole::PLACEMENT_DRIVER, None);
        let runtime = self.runtime.handle().clone();
        let (tls, token) = (self.peer_tls.clone(), self.peer_token());
        Arc::new(RemoteServers::new(
            hello,
            OwnCluster::of(cluster),
            runtime,
            Arc::clone(self.descriptors),
            tls,
            token,
        ))
    }

    /// A channel to a placement driver, with this server's identity, and the term that it has followed, if it has one.
    fn channel(
        &self,
        placement_driver: &str,
        me: Option<(RangeServerName, Arc<AtomicU64>)>,
        cluster: &Arc<OwnCluster>,
    ) -> PeerChannel {
        let (me, followed) = me.unzip();
        let config = PeerConfig {
            cluster: Arc::clone(cluster),
            addresses: vec![placement_driver.to_owned()],
            stays: true,
            hello: greeting(ClientRole::RANGE_SERVER, me),
            followed,
            heartbeat_interval: self.config.cluster.heartbeat_interval,
            connect_timeout: CONNECT_TIMEOUT,
            tls: self.peer_tls.clone(),
            token: self.peer_token(),
        };
        PeerChannel::new(config, self.runtime.handle().clone(), Arc::clone(self.descriptors))
    }
}

impl OpenedRoles {
    /// Opens a directory in the configured role.
    pub(crate) fn open(context: &StartContext<'_>, parts: &StorageParts, log: LogConfig) -> Result<Self, StartError> {
        match (&context.config.roles, &context.config.metadata) {
            (Roles::Both, Some(metadata)) => Self::open_both_of_several(context, parts, log, metadata),
            (Roles::Both, None) => {
                let others = context.remote_servers(&parts.cluster);
                let Storage {
                    server_id,
                    placement,
                    ranges,
                } = storage::open(parts, log, Arc::clone(&others) as _)?;
                others.addresses.note(server_id, context.advertise);
                ranges.set_max_pending(context.config.max_pending_bytes);
                Ok(Self {
                    server_id: Some(server_id),
                    placement: Some(Arc::new(placement)),
                    campaign: None,
                    ranges: Some(Arc::clone(&ranges)),
                    range_role: None,
                    owner: ranges,
                })
            }
            (Roles::PlacementDriver, Some(metadata)) => Self::open_one_of_several(context, parts, log, metadata),
            (Roles::PlacementDriver, None) => {
                let others = context.remote_servers(&parts.cluster);
                let (placement, owner) = storage::open_placement_driver(parts, log, others)?;
                Ok(Self {
                    server_id: None,
                    placement: Some(Arc::new(placement)),
                    campaign: None,
                    ranges: None,
                    range_role: None,
                    owner,
                })
            }
            (Roles::RangeServer { .. }, Some(metadata)) => Err(StartError::SharedMetadata {
                location: metadata.location.to_string(),
            }),
            (Roles::RangeServer { placement_driver }, None) => {
                Self::open_range_server(context, parts, log, placement_driver)
            }
        }
    }

    /// Opens the directory of a placement driver that shares its metadata with others, and begins to look who leads.
    fn open_one_of_several(
        context: &StartContext<'_>,
        parts: &StorageParts,
        log: LogConfig,
        metadata: &MetadataConfig,
    ) -> Result<Self, StartError> {
        let directory = log.directory.clone();
        let owner = storage::open_without_metadata(parts, log)?;
        let candidate = Candidate::start(context, parts, metadata, &directory)?;
        Ok(Self {
            server_id: None,
            placement: Some(candidate.driver),
            campaign: Some(candidate.campaign),
            ranges: None,
            range_role: None,
            owner,
        })
    }

    /// Opens a directory as that of a range server beside a placement driver that shares its metadata with others. The two speak
    /// with each other as if each were in a process of its own.
    fn open_both_of_several(
        context: &StartContext<'_>,
        parts: &StorageParts,
        log: LogConfig,
        metadata: &MetadataConfig,
    ) -> Result<Self, StartError> {
        let directory = log.directory.clone();
        let mut storage = storage::open_range_server(parts, log)?;
        // Who leads has to answer: so the directory, which takes its time to recover, is open before.
        let candidate = Candidate::start(context, parts, metadata, &directory)?;
        let server_id = match storage.server_id {
            Some(id) => id,
            None => {
                storage::check_not_restored(&storage, &directory)?;
                let id = candidate.first_id(context)?;
                storage::join(&mut storage, &directory, &parts.cluster, id)?;
                id
            }
        };
        let me = vec![context.advertise.to_owned()];
        let (ranges, role) = range_role(context, parts, &directory, (storage, server_id), &me)?;
        let members = follow_members(Arc::downgrade(&role), candidate.membership.drivers());
        context.runtime.spawn(members);
        Ok(Self {
            server_id: Some(server_id),
            placement: Some(candidate.driver),
            campaign: Some(candidate.campaign),
            ranges: Some(Arc::clone(&ranges)),
            range_role: Some(role),
            owner: ranges,
        })
    }

    fn open_range_server(
        context: &StartContext<'_>,
        parts: &StorageParts,
        log: LogConfig,
        placement_driver: &[String],
    ) -> Result<Self, StartError> {
        let directory = log.directory.clone();
        let mut storage = storage::open_range_server(parts, log)?;
        let server_id = match storage.server_id {
            Some(id) => id,
            None => {
                storage::check_not_restored(&storage, &directory)?;
                // It is kept with the number.
                let cluster = OwnCluster::joining(&parts.cluster, &directory, true, |_, _| {});
                let drivers = Drivers::new(placement_driver, |address| context.channel(address, None, &cluster));
                let asked = allocate_id(&drivers, context.advertise, context.config.default_timeout);
                let id = context
                    .runtime
                    .block_on(asked)
                    .map_err(|error| StartError::PlacementDriver {
                        reason: error.to_string(),
                    })?;
                storage::join(&mut storage, &directory, &parts.cluster, id)?;
                id
            }
        };
        let (ranges, role) = range_role(context, parts, &directory, (storage, server_id), placement_driver)?;
        Ok(Self {
            server_id: Some(server_id),
            placement: None,
            campaign: None,
            ranges: Some(Arc::clone(&ranges)),
            range_role: Some(role),
            owner: ranges,
        })
    }
}

/// Makes a range server of an opened directory that asks these placement drivers.
fn range_role(
    context: &StartContext<'_>,
    parts: &StorageParts,
    directory: &Path,
    (storage, server_id): (RangeStorage, ServerId),
    placement_drivers: &[String],
) -> Result<(Arc<RangeServer>, Arc<RangeRole>), StartError> {
    let RangeStorage {
        ranges,
        hosted_ranges,
        store,
        starts,
        has_joined,
        ..
    } = storage;
    ranges.set_max_pending(context.config.max_pending_bytes);
    let range_store = RangeStore::start(hosted_ranges, store, Arc::clone(&ranges), Arc::clone(&parts.health));
    let range_store = range_store.map_err(StartError::io("start the metadata thread"))?;
    let followed = range_store.followed();
    let cluster = joining(parts, directory, has_joined, &range_store);
    let me = RangeServerName {
        server_id,
        advertise_addr: context.advertise.to_owned(),
        starts: i64::try_from(starts).unwrap_or(i64::MAX),
        zone: context.config.zone.clone(),
        ..sbp_messages::RangeServer::default()
    };
    let runtime: Handle = context.runtime.handle().clone();
    let hello = greeting(ClientRole::RANGE_SERVER, None);
    let followers = FollowerLinks::new(
        &ranges,
        server_id,
        Dialling {
            hello: Dialling::hello(hello, server_id),
            cluster: OwnCluster::of(&parts.cluster),
            runtime: runtime.clone(),
            descriptors: Arc::clone(context.descriptors),
            tls: context.peer_tls.clone(),
            token: context.peer_token(),
            patience: context.config.replica_silence,
            copy_bytes_per_second: context.config.copy_bytes_per_second,
        },
    );
    let role = Arc::new(RangeRole {
        server_id,
        _followers: followers,
        drivers: Drivers::new(placement_drivers, |address| {
            context.channel(address, Some((me.clone(), Arc::clone(&followed))), &cluster)
        }),
        range_store,
        ranges: Arc::downgrade(&ranges),
        runtime,
        learned_on: AtomicU64::new(0),
        questions: AtomicU64::new(0),
    });
    ranges.set_upstream(Arc::new(AskPlacementDriver(Arc::downgrade(&role))));
    Ok((ranges, role))
}

/// The cluster of this directory, for the channels to its placement drivers. What they say is made durable by the range store.
fn joining(parts: &StorageParts, directory: &Path, has_joined: bool, store: &RangeStore) -> Arc<OwnCluster> {
    let jobs = store.sender();
    OwnCluster::joining(&parts.cluster, directory, has_joined, move |own, cluster| {
        let own = Arc::clone(own);
        let done: Done<()> = Box::new(move |kept| match kept {
            Ok(()) => own.note_kept(),
            // The answer to the next HEARTBEAT has it tried again.
            Err(refusal) => tracing::warn!(why = refusal.message, %cluster, "the cluster's id is not kept yet"),
        });
        // The receiving end has ended if the server is shutting down.
        let _stopped = jobs.send(Job::Join { cluster, done });
    })
}

/// A placement driver that shares its metadata with others, and what has it lead or not.
struct Candidate {
    driver: Arc<PlacementDriver>,
    campaign: Campaign,
    membership: Arc<Membership>,
    /// The cluster's id, once it is known.
    cluster: Learned,
}

impl Candidate {
    /// Begins to look who leads.
    fn start(
        context: &StartContext<'_>,
        parts: &StorageParts,
        metadata: &MetadataConfig,
        directory: &Path,
    ) -> Result<Self, StartError> {
        let client = sbp_etcd::Client::new(sbp_etcd::ClientConfig {
            members: metadata.location.members.clone(),
            tls: metadata.tls.clone(),
            call_timeout: sbp_etcd::ClientConfig::CALL_TIMEOUT,
            sockets: Arc::clone(context.descriptors),
        })?;
        let membership = Arc::new(Membership::new(context.advertise, metadata.location.to_string()));
        let driver = Arc::new(PlacementDriver::elected(
            context.remote_servers(&parts.cluster),
            Arc::clone(&parts.clock),
            Arc::clone(&parts.health),
            parts.times,
            Arc::clone(&membership) as _,
        ));
        let campaign = Campaign::start(CampaignParts {
            client: Arc::new(client),
            cluster: metadata.location.name.clone(),
            membership: Arc::clone(&membership),
            driver: Arc::clone(&driver),
            directory: directory.to_owned(),
            id: Arc::clone(&parts.cluster),
        });
        Ok(Self {
            driver,
            campaign: campaign?,
            membership,
            cluster: Arc::clone(&parts.cluster),
        })
    }

    /// An id for the range server of this process, before anybody can dial it: given out by this placement driver if it leads,
    /// else by the one that does. That one has its own id soon, and then listens.
    fn first_id(&self, context: &StartContext<'_>) -> Result<ServerId, StartError> {
        let deadline = Instant::now() + context.config.default_timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let given = match self.driver.check_leads() {
                // Which cluster has given the number is kept with it.
                _ if self.cluster.get().is_none() => Err(self.membership.unreachable()),
                Ok(()) => self.give_id(deadline),
                Err(refusal) => match self.leader_elsewhere() {
                    Some(leader) => {
                        let cluster = OwnCluster::of(&self.cluster);
                        let drivers = Drivers::new(&[leader], |address| context.channel(address, None, &cluster));
                        let asked = allocate_id(&drivers, context.advertise, left.min(ASK_AGAIN));
                        context.runtime.block_on(asked).map_err(|error| error.to_refusal())
                    }
                    None => Err(refusal),
                },
            };
            match given {
                Ok(id) => return Ok(id),
                Err(refusal) if DENIALS.contains(&refusal.code) || left.is_zero() => {
                    return Err(StartError::PlacementDriver {
                        reason: refusal.message,
                    });
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn leader_elsewhere(&self) -> Option<String> {
        let cluster = self.membership.cluster();
        let leader = cluster.leader()?.advertise_addr.clone();
        (leader != self.membership.address()).then_some(leader)
    }

    /// Gives out an id here.
    fn give_id(&self, deadline: Instant) -> Result<ServerId, Refusal> {
        let (reply, answer) = mpsc::channel();
        self.driver.submit(MetadataJob {
            done: Box::new(move |outcomes| {
                // Whoever starts the server may not wait any more.
                let _ = reply.send(outcomes);
            }),
            deadline,
            request: Request::AllocateServerId,
        })?;
        let outcomes = answer.recv().unwrap_or_else(|_| Err(Refusal::not_leader_any_more()))?;
        match outcomes.into_iter().next() {
            Some(Ok(Outcome::Server(id))) => Ok(id),
            Some(Err(refusal)) => Err(refusal),
            _ => Err(Refusal::unanswered()),
        }
    }
}
