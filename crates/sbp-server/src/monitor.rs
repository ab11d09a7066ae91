//! How others look at a server, from before it recovers until after it has ended.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sbp_locks::Mutex;
use sbp_types::StreamId;

use crate::disk_watch::DiskWatch;
use crate::failure::ServerFailure;
use crate::status::{Permission, Phase, Problem, Query, Readiness, Snapshot, Status, StreamRow};

/// A view of a server. Give it to the server in its configuration; clones are the same view.
///
/// It can be asked from any thread and at any time, before the server is started and after it has ended too. Asking
/// takes locks of the server for moments, and waits for its disk only where [cursors](Query::cursors) are asked for.
#[derive(Clone)]
pub struct Monitor {
    shared: Arc<Mutex<State>>,
    began: Instant,
}

struct State {
    phase: Phase,
    disk: Option<Arc<DiskWatch>>,
    figures: Option<Weak<dyn Figures>>,
}

/// What a running server shows of itself.
pub(crate) trait Figures: Send + Sync {
    /// Everything, with the streams that were asked for.
    fn snapshot(&self, query: &Query) -> Snapshot;
    /// All streams.
    fn stream_ids(&self) -> Vec<StreamId>;
    /// The figures of those of these streams that still exist.
    fn stream_rows(&self, ids: &[StreamId]) -> Vec<StreamRow>;
    /// What an operator should look at.
    fn problems(&self) -> Vec<Problem>;
    /// Whether who has this token may see all of that; empty: no token.
    fn permission(&self, token: &str) -> Permission;
    /// The same, for somebody there who asks for what is under this path. That he may not is written to the audit file.
    fn permission_for(&self, token: &str, from: SocketAddr, path: &str) -> Permission;
    /// Why the server is read-only, if it is.
    fn failure(&self) -> Option<Arc<ServerFailure>>;
}

impl Default for Monitor {
    fn default() -> Self {
        let state = State {
            phase: Phase::Starting,
            disk: None,
            figures: None,
        };
        Self {
            shared: Arc::new(Mutex::new(state)),
            began: Instant::now(),
        }
    }
}

impl Monitor {
    /// The server has come to this phase.
    pub(crate) fn enter(&self, phase: Phase) {
        self.shared.lock().phase = phase;
    }

    /// From now on it is seen whether the disk answers.
    pub(crate) fn watch(&self, disk: Arc<DiskWatch>) {
        self.shared.lock().disk = Some(disk);
    }

    /// From now on the server can be looked at.
    pub(crate) fn show(&self, figures: Weak<dyn Figures>) {
        self.shared.lock().figures = Some(figures);
    }

    /// Where the server stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.shared.lock().phase
    }

    fn look(&self) -> (Phase, Option<Arc<dyn Figures>>) {
        let state = self.shared.lock();
        (state.phase, state.figures.as_ref().and_then(Weak::upgrade))
    }

    /// Whether who has this token may be shown [figures](Self::status), [metrics](crate::Scrape) and
    /// [problems](Self::readiness); empty: no token. As long as the server recovers there is nothing to hide.
    #[must_use]
    pub fn permission(&self, token: &str) -> Permission {
        let (_, figures) = self.look();
        figures.map_or(Permission::Granted, |figures| figures.permission(token))
    }

    /// As [`permission`](Self::permission), for somebody there who asks for what is under this path. That he may not is
    /// written to the audit file.
    #[must_use]
    pub fn permission_for(&self, token: &str, from: SocketAddr, path: &str) -> Permission {
        let (_, figures) = self.look();
        figures.map_or(Permission::Granted, |figures| figures.permission_for(token, from, path))
    }

    /// Whether the server can be sent work, without the problems: takes two locks for moments, and waits for nothing.
    #[must_use]
    pub fn verdict(&self) -> Readiness {
        let (phase, figures) = self.look();
        verdict(phase, figures.as_deref()).0
    }

    /// Whether the server can be sent work, and what an operator should look at.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let (phase, figures) = self.look();
        self.with_problems(phase, figures.as_deref())
    }

    fn disk(&self) -> Option<Arc<DiskWatch>> {
        self.shared.lock().disk.clone()
    }

    fn with_problems(&self, phase: Phase, figures: Option<&dyn Figures>) -> Readiness {
        let (mut readiness, failed) = verdict(phase, figures);
        let failed = failed.map(|failure| Problem {
            kind: "failed",
            text: failure.to_string(),
        });
        let hung = self.disk().and_then(|disk| disk.hung()).map(|hung| Problem {
            kind: "disk-hung",
            text: hung.to_string(),
        });
        let others = figures.map(Figures::problems).unwrap_or_default();
        readiness.problems = failed.into_iter().chain(hung).chain(others).collect();
        readiness
    }

    /// Everything about the server.
    #[must_use]
    pub fn status(&self, query: &Query) -> Status {
        let (phase, figures) = self.look();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            time_ms: i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX),
            uptime: self.began.elapsed(),
            disk_wait: self.disk().map(|disk| disk.wait()).unwrap_or_default(),
            readiness: self.with_problems(phase, figures.as_deref()),
            server: figures.map(|figures| figures.snapshot(query)),
        }
    }

    /// All streams, if the server can be looked at.
    pub(crate) fn stream_ids(&self) -> Vec<StreamId> {
        let (_, figures) = self.look();
        figures.map(|figures| figures.stream_ids()).unwrap_or_default()
    }

    /// The figures of those of these streams that still exist.
    pub(crate) fn stream_rows(&self, ids: &[StreamId]) -> Vec<StreamRow> {
        let (_, figures) = self.look();
        figures.map(|figures| figures.stream_rows(ids)).unwrap_or_default()
    }
}

fn verdict(phase: Phase, figures: Option<&dyn Figures>) -> (Readiness, Option<Arc<ServerFailure>>) {
    let failed = figures.and_then(Figures::failure);
    let readiness = Readiness {
        ready: phase == Phase::Serving && failed.is_none(),
        phase,
        problems: Vec::new(),
    };
    (readiness, failed)
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}
