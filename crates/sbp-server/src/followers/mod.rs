//! Sends entries of shared ranges to the servers that hold them too.
//!
//! There is one task for each such server, with a connection of its own. It sends what the range server has for that
//! server, several frames at a time, and gives back the answers. What a copy may do is decided in `range`. Another task has
//! those servers tell what damage has taken from the copies here.

mod link;
mod mend;
mod refused;
mod request;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_messages::{ClientRole, Feature, HeartbeatRequest, RangeServer as RangeServerName, features};
use sbp_transport::{ClientTls, Descriptors};
use sbp_types::ServerId;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cluster_id::OwnCluster;
use crate::peer::{PeerChannel, PeerConfig, PeerToken};
use crate::range::{Followers, RangeServer, Repeated};

/// How often it is looked which servers are missed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// How other range servers are dialled.
#[derive(Debug)]
pub(crate) struct Dialling {
    pub(crate) hello: HeartbeatRequest,
    pub(crate) cluster: Arc<OwnCluster>,
    pub(crate) runtime: Handle,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) tls: Option<Arc<ClientTls>>,
    pub(crate) token: Option<PeerToken>,
    /// Who was not heard for so long is missed.
    pub(crate) patience: Duration,
    /// The most bytes of sealed ranges that are sent each second, over all servers.
    pub(crate) copy_bytes_per_second: u64,
}

/// The links to all servers that hold ranges of this one too. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct FollowerLinks {
    ranges: Weak<RangeServer>,
    dialling: Dialling,
    links: Mutex<HashMap<ServerId, Link>>,
    /// Looks which servers are missed.
    look: OnceLock<JoinHandle<()>>,
    /// Mends damaged copies.
    mend: OnceLock<JoinHandle<()>>,
}

/// The task for one server.
#[derive(Debug)]
struct Link {
    wake: Arc<Notify>,
    task: OnceLock<JoinHandle<()>>,
}

impl FollowerLinks {
    /// The links of the server `me`.
    pub(crate) fn new(ranges: &Arc<RangeServer>, me: ServerId, dialling: Dialling) -> Arc<Self> {
        let links = Arc::new(Self {
            ranges: Arc::downgrade(ranges),
            dialling,
            links: Mutex::default(),
            look: OnceLock::new(),
            mend: OnceLock::new(),
        });
        ranges.bound_copies(links.dialling.copy_bytes_per_second);
        ranges.listen(me, ranges.running_for(), links.dialling.patience);
        let look = look_who_is_missed(Arc::downgrade(ranges));
        let _first = links.look.set(links.dialling.runtime.spawn(look));
        let mend = mend::mend_what_is_damaged(Arc::downgrade(&links), me);
        let _first = links.mend.set(links.dialling.runtime.spawn(mend));
        ranges.hub.set_followers(Arc::new(WakeLinks(Arc::downgrade(&links))));
        links
    }

    fn channel(&self, address: String) -> PeerChannel {
        let dialling = &self.dialling;
        let config = PeerConfig {
            cluster: Arc::clone(&dialling.cluster),
            addresses: vec![address],
            hello: dialling.hello.clone(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            connect_timeout: CONNECT_TIMEOUT,
            tls: dialling.tls.clone(),
            token: dialling.token.clone(),
            followed: None,
            stays: false,
        };
        PeerChannel::new(config, dialling.runtime.clone(), Arc::clone(&dialling.descriptors))
    }
}

impl Dialling {
    /// What a range server says first to another one that it sends entries to. It names itself and no address: it does not
    /// report that it is there.
    pub(crate) fn hello(mut greeting: HeartbeatRequest, me: ServerId) -> HeartbeatRequest {
        greeting.client_role = ClientRole::RANGE_SERVER;
        greeting.features.push(Feature::new(features::REPLICATION, "1"));
        greeting.range_server = Some(RangeServerName {
            server_id: me,
            ..RangeServerName::default()
        });
        greeting
    }
}

async fn look_who_is_missed(ranges: Weak<RangeServer>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(ranges) = ranges.upgrade() else { return };
        ranges.look_who_is_missed(ranges.running_for());
    }
}

/// What the range server wakes.
#[derive(Debug)]
struct WakeLinks(Weak<FollowerLinks>);

impl Followers for WakeLinks {
    fn compare(&self, repeated: Vec<Repeated>) {
        let Some(links) = self.0.upgrade() else { return };
        let Some(ranges) = links.ranges.upgrade() else { return };
        // Nobody waits for its end but those who are answered.
        drop(links.dialling.runtime.spawn_blocking(move || ranges.compare(repeated)));
    }

    fn wake(&self, server: ServerId) {
        let Some(links) = self.0.upgrade() else { return };
        let mut by_server = links.links.lock();
        let link = by_server.entry(server).or_insert_with(|| Link {
            wake: Arc::new(Notify::new()),
            task: OnceLock::new(),
        });
        link.wake.notify_one();
        if link.task.get().is_none() {
            let run = link::run(Arc::downgrade(&links), server, Arc::clone(&link.wake));
            let _first = link.task.set(links.dialling.runtime.spawn(run));
        }
    }
}

impl Drop for FollowerLinks {
    fn drop(&mut self) {
        for task in [&self.look, &self.mend].into_iter().filter_map(OnceLock::get) {
            task.abort();
        }
        for link in self.links.lock().values() {
            if let Some(task) = link.task.get() {
                task.abort();
            }
        }
    }
}
