//! Opens the roles that a configuration asks for.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sbp_log::LogConfig;
use sbp_messages::{ClientRole, RangeServer as RangeServerName};
use sbp_transport::{ClientTls, Descriptors};
use sbp_types::ServerId;
use tokio::runtime::{Handle, Runtime};

use crate::config::{MetadataConfig, Roles, ServerConfig};
use crate::error::StartError;
use crate::etcd::{Campaign, CampaignParts, Membership};
use crate::followers::{Dialling, FollowerLinks};
use crate::peer::{PeerChannel, PeerConfig, PeerToken};
use crate::placement::PlacementDriver;
use crate::range::RangeServer;
use crate::roles::{AskPlacementDriver, Drivers, RangeRole, RangeStore, RemoteServers, allocate_id, greeting};
use crate::storage::{self, RangeStorage, Storage, StorageParts};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

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

    fn remote_servers(&self) -> Arc<RemoteServers> {
        let hello = greeting(ClientRole::PLACEMENT_DRIVER, None);
        let runtime = self.runtime.handle().clone();
        let (tls, token) = (self.peer_tls.clone(), self.peer_token());
        Arc::new(RemoteServers::new(
            hello,
            runtime,
            Arc::clone(self.descriptors),
            tls,
            token,
        ))
    }

    /// A channel to a placement driver, with this server's identity if it has one.
    fn channel(&self, placement_driver: &str, me: Option<RangeServerName>) -> PeerChannel {
        let config = PeerConfig {
            addresses: vec![placement_driver.to_owned()],
            stays: true,
            hello: greeting(ClientRole::RANGE_SERVER, me),
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
        if let (Some(metadata), role) = (&context.config.metadata, &context.config.roles)
            && *role != Roles::PlacementDriver
        {
            return Err(StartError::SharedMetadata {
                location: metadata.location.to_string(),
                role: role.name(),
            });
        }
        match &context.config.roles {
            Roles::Both => {
                let others = context.remote_servers();
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
            Roles::PlacementDriver => {
                if let Some(metadata) = &context.config.metadata {
                    return Self::open_one_of_several(context, parts, log, metadata);
                }
                let (placement, owner) = storage::open_placement_driver(parts, log, context.remote_servers())?;
                Ok(Self {
                    server_id: None,
                    placement: Some(Arc::new(placement)),
                    campaign: None,
                    ranges: None,
                    range_role: None,
                    owner,
                })
            }
            Roles::RangeServer { placement_driver } => Self::open_range_server(context, parts, log, placement_driver),
        }
    }

    /// Opens the directory of a placement driver that shares its metadata with others, and begins to look who leads.
    fn open_one_of_several(
        context: &StartContext<'_>,
        parts: &StorageParts,
        log: LogConfig,
        metadata: &MetadataConfig,
    ) -> Result<Self, StartError> {
        let owner = storage::open_without_metadata(parts, log)?;
        let client = sbp_etcd::Client::new(sbp_etcd::ClientConfig {
            members: metadata.location.members.clone(),
            tls: metadata.tls.clone(),
            call_timeout: sbp_etcd::ClientConfig::CALL_TIMEOUT,
            sockets: Arc::clone(context.descriptors),
        })?;
        let membership = Arc::new(Membership::new(context.advertise, metadata.location.to_string()));
        let placement = Arc::new(PlacementDriver::elected(
            context.remote_servers(),
            Arc::clone(&parts.clock),
            Arc::clone(&parts.health),
            parts.times,
            Arc::clone(&membership) as _,
        ));
        let campaign = Campaign::start(CampaignParts {
            client: Arc::new(client),
            cluster: metadata.location.name.clone(),
            membership,
            driver: Arc::clone(&placement),
        });
        Ok(Self {
            server_id: None,
            placement: Some(placement),
            campaign: Some(campaign.map_err(StartError::io("start a thread that keeps the lease"))?),
            ranges: None,
            range_role: None,
            owner,
        })
    }

    fn open_range_server(
        context: &StartContext<'_>,
        parts: &StorageParts,
        log: LogConfig,
        placement_driver: &[String],
    ) -> Result<Self, StartError> {
        let directory = log.directory.clone();
        let RangeStorage {
            server_id,
            ranges,
            hosted_ranges,
            store,
        } = storage::open_range_server(parts, log)?;
        ranges.set_max_pending(context.config.max_pending_bytes);
        let server_id = match server_id {
            Some(id) => id,
            None => {
                let drivers = Drivers::new(placement_driver, |address| context.channel(address, None));
                let asked = allocate_id(&drivers, context.advertise, context.config.default_timeout);
                let id = context
                    .runtime
                    .block_on(asked)
                    .map_err(|error| StartError::PlacementDriver {
                        reason: error.to_string(),
                    })?;
                storage::set_server_id(&ranges, &directory, id)?;
                id
            }
        };
        let range_store = RangeStore::start(hosted_ranges, store, Arc::clone(&ranges), Arc::clone(&parts.health));
        let range_store = range_store.map_err(StartError::io("start the metadata thread"))?;
        let me = RangeServerName {
            server_id,
            advertise_addr: context.advertise.to_owned(),
            ..sbp_messages::RangeServer::default()
        };
        let runtime: Handle = context.runtime.handle().clone();
        let hello = greeting(ClientRole::RANGE_SERVER, None);
        let followers = FollowerLinks::new(
            &ranges,
            server_id,
            Dialling {
                hello: Dialling::hello(hello, server_id),
                runtime: runtime.clone(),
                descriptors: Arc::clone(context.descriptors),
                tls: context.peer_tls.clone(),
                token: context.peer_token(),
                patience: context.config.replica_silence,
            },
        );
        let role = Arc::new(RangeRole {
            server_id,
            _followers: followers,
            drivers: Drivers::new(placement_driver, |address| context.channel(address, Some(me.clone()))),
            range_store,
            ranges: Arc::downgrade(&ranges),
            runtime,
            learned_on: AtomicU64::new(0),
            questions: AtomicU64::new(0),
        });
        ranges.set_upstream(Arc::new(AskPlacementDriver(Arc::downgrade(&role))));
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
