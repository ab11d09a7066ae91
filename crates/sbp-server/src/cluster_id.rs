//! The id of the cluster: which one this server belongs to, and whether another server belongs to it too.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use sbp_messages::{ClientRole, Feature, HeartbeatRequest, HeartbeatResponse, features};
use sbp_types::ClusterId;

use crate::refusal::Refusal;

/// The id of the cluster that this server belongs to, which is learned once and stays the same.
pub(crate) type Learned = Arc<OnceLock<ClusterId>>;

/// What to do about servers of two clusters.
const REMEDY: &str =
    "give the server the addresses of the placement drivers of its own cluster, or start it with an empty directory";

/// What `features` say of the cluster; `None`: nothing, or nothing that can be read.
fn told(features: &[Feature]) -> Option<ClusterId> {
    features::find(features, features::CLUSTER)?.parse().ok()
}

/// Checks that another server, which greets this one, belongs to no other cluster. A server of an earlier version does not say
/// to which one it belongs, and a client has none.
///
/// # Errors
///
/// It belongs to another one.
pub(crate) fn check_greeting(own: &Learned, request: &HeartbeatRequest) -> Result<(), Refusal> {
    let peer = match (request.client_role, &request.range_server) {
        (ClientRole::RANGE_SERVER, Some(server)) => format!("range server {}", server.server_id),
        (ClientRole::RANGE_SERVER, None) => "a range server".to_owned(),
        (ClientRole::PLACEMENT_DRIVER, _) => "a placement driver".to_owned(),
        _ => return Ok(()),
    };
    match (own.get(), told(&request.features)) {
        (Some(own), Some(theirs)) if *own != theirs => Err(Refusal::invalid(format!(
            "{peer} belongs to the cluster {theirs}, and the server that it has called to the cluster {own}: {REMEDY}"
        ))),
        _ => Ok(()),
    }
}

/// The cluster of this server, as it tells its peers and holds against what they tell.
pub(crate) struct OwnCluster {
    id: Learned,
    joining: Option<Joining>,
}

/// The directory of a range server, which belongs to the cluster of the first placement driver that takes it in.
struct Joining {
    directory: PathBuf,
    is_kept: AtomicBool,
    keep: Keep,
}

/// Makes the id durable in the directory, and calls [`OwnCluster::note_kept`] when it is.
type Keep = Box<dyn Fn(&Arc<OwnCluster>, ClusterId) + Send + Sync>;

impl std::fmt::Debug for OwnCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnCluster")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl OwnCluster {
    /// For channels to peers that do not decide to which cluster this server belongs.
    pub(crate) fn of(id: &Learned) -> Arc<Self> {
        Arc::new(Self {
            id: Arc::clone(id),
            joining: None,
        })
    }

    /// For channels to placement drivers. Where `id` is not known yet, the first one that takes this server in gives it.
    pub(crate) fn joining(
        id: &Learned,
        directory: &Path,
        is_kept: bool,
        keep: impl Fn(&Arc<Self>, ClusterId) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: Arc::clone(id),
            joining: Some(Joining {
                directory: directory.to_owned(),
                is_kept: AtomicBool::new(is_kept),
                keep: Box::new(keep),
            }),
        })
    }

    /// What a peer is told, so that it tells its own cluster: an empty value where none is known.
    pub(crate) fn feature(&self) -> Feature {
        let id = self.id.get().map(ToString::to_string);
        Feature::new(features::CLUSTER, id.unwrap_or_default())
    }

    /// The id is durable in the directory.
    pub(crate) fn note_kept(&self) {
        if let Some(joining) = &self.joining {
            joining.is_kept.store(true, Ordering::Relaxed);
        }
    }

    /// Takes what the peer `address` has answered to a HEARTBEAT. A refusal makes no server part of a cluster.
    ///
    /// # Errors
    ///
    /// The peer belongs to another cluster.
    pub(crate) fn take(self: &Arc<Self>, address: &str, answer: &HeartbeatResponse) -> Result<(), String> {
        let Some(told) = told(&answer.features) else {
            return Ok(());
        };
        let joining = self.joining.as_ref().filter(|_| answer.status.is_success());
        let known = match joining {
            Some(_) => Some(*self.id.get_or_init(|| told)),
            None => self.id.get().copied(),
        };
        if let Some(known) = known.filter(|known| *known != told) {
            let whose = match &self.joining {
                Some(joining) => format!("the data directory {}", joining.directory.display()),
                None => "this server".to_owned(),
            };
            return Err(format!(
                "{whose} belongs to the cluster {known}, and {address} to the cluster {told}: {REMEDY}"
            ));
        }
        if let Some(joining) = joining.filter(|joining| !joining.is_kept.load(Ordering::Relaxed)) {
            (joining.keep)(self, told);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sbp_messages::{ErrorCode, RangeServer, Status};
    use sbp_types::{ServerId, StreamIdentity};

    use super::*;

    fn id(byte: u8) -> ClusterId {
        ClusterId(StreamIdentity([byte; 16]))
    }

    fn says(id: Option<ClusterId>) -> Vec<Feature> {
        let features = id.map(|id| Feature::new(features::CLUSTER, id.to_string()));
        features.into_iter().collect()
    }

    #[test]
    fn a_server_of_another_cluster_is_refused_and_who_tells_none_is_not() {
        let (a, b) = (id(1), id(2));
        let greeting = |role, told| HeartbeatRequest {
            client_role: role,
            range_server: Some(RangeServer {
                server_id: ServerId(7),
                ..RangeServer::default()
            }),
            features: says(told),
            ..HeartbeatRequest::default()
        };
        for (role, own, theirs, together) in [
            (ClientRole::RANGE_SERVER, None, None, true),
            (ClientRole::RANGE_SERVER, Some(a), None, true),
            (ClientRole::RANGE_SERVER, None, Some(a), true),
            (ClientRole::RANGE_SERVER, Some(a), Some(a), true),
            (ClientRole::RANGE_SERVER, Some(a), Some(b), false),
            (ClientRole::PLACEMENT_DRIVER, Some(a), Some(a), true),
            (ClientRole::PLACEMENT_DRIVER, Some(a), Some(b), false),
            (ClientRole::CLIENT, Some(a), Some(b), true),
        ] {
            let own: Learned = Arc::new(own.map_or_else(OnceLock::new, OnceLock::from));
            let checked = check_greeting(&own, &greeting(role, theirs));
            assert_eq!(checked.is_ok(), together, "{own:?} {theirs:?}");
            if let Err(refusal) = checked {
                assert_eq!(refusal.code, ErrorCode::INVALID_REQUEST);
                for part in [a.to_string(), b.to_string()] {
                    assert!(refusal.message.contains(&part), "{}", refusal.message);
                }
            }
        }
    }

    #[test]
    fn a_directory_joins_the_first_cluster_that_takes_it_in_and_refuses_all_others() {
        let learned = Learned::default();
        let own = OwnCluster::joining(&learned, Path::new("/data/one"), false, |own, _| own.note_kept());
        let answer = |told, code| HeartbeatResponse {
            features: says(told),
            status: match code {
                None => Status::success(),
                Some(code) => Status::error(code, "no"),
            },
            ..HeartbeatResponse::default()
        };
        assert_eq!(own.feature().value, "");
        assert_eq!(own.take("pd:1", &answer(None, None)), Ok(()));
        assert_eq!(
            own.take("pd:1", &answer(Some(id(2)), Some(ErrorCode::INVALID_REQUEST))),
            Ok(())
        );
        assert_eq!(learned.get(), None, "it was refused there");
        assert_eq!(own.take("pd:1", &answer(Some(id(1)), None)), Ok(()));
        assert_eq!(own.feature().value, id(1).to_string());
        for code in [None, Some(ErrorCode::INVALID_REQUEST)] {
            let refused = own.take("pd:2", &answer(Some(id(2)), code)).unwrap_err();
            for part in ["/data/one", "pd:2", &id(1).to_string(), &id(2).to_string()] {
                assert!(refused.contains(part), "{refused}");
            }
        }
        assert_eq!(
            own.take("pd:1", &answer(Some(id(1)), None)),
            Ok(()),
            "it goes on with its own"
        );
    }

    #[test]
    fn an_id_is_kept_again_until_it_is_durable_and_other_peers_give_none() {
        let learned = Learned::default();
        let answer = HeartbeatResponse {
            features: says(Some(id(1))),
            status: Status::success(),
            ..HeartbeatResponse::default()
        };
        assert_eq!(OwnCluster::of(&learned).take("rs:1", &answer), Ok(()));
        assert_eq!(learned.get(), None, "a range server makes nobody part of its cluster");
        let times = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&times);
        let own = OwnCluster::joining(&learned, Path::new("/d"), false, move |own, kept| {
            assert_eq!(kept, id(1));
            // The disk is full the first time.
            if counted.fetch_add(1, Ordering::Relaxed) == 1 {
                own.note_kept();
            }
        });
        for _ in 0..4 {
            assert_eq!(own.take("pd:1", &answer), Ok(()));
        }
        assert_eq!(times.load(Ordering::Relaxed), 2);
    }
}
