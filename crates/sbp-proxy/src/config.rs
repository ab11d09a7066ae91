//! What a proxy is told when it starts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Action, Rule, Seen};

/// Somebody who is told of every frame and what becomes of it. Called on the proxy's thread, so it must not block.
#[derive(Clone)]
pub struct Observer(Arc<See>);

type See = dyn Fn(&Seen, Action) + Send + Sync;

impl Observer {
    /// An observer that calls `see` for each frame, when the frame's first bytes have come.
    pub fn new(see: impl Fn(&Seen, Action) + Send + Sync + 'static) -> Self {
        Self(Arc::new(see))
    }

    pub(crate) fn see(&self, seen: &Seen, action: Action) {
        (self.0)(seen, action);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Observer")
    }
}

/// How a [`Proxy`](crate::Proxy) is set up. Fill in what differs from [`ProxyConfig::default`].
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// `host:port` to listen on. Port 0 lets the system choose one; [`Proxy::address`](crate::Proxy::address) tells
    /// which.
    pub listen: String,
    /// `host:port` that connections are passed on to. `None`: connections are closed as they come, until
    /// [`Proxy::set_target`](crate::Proxy::set_target) names one.
    pub target: Option<String>,
    /// The rules at the start, asked in this order.
    pub rules: Vec<Rule>,
    /// The seed of all chances: the same frames in the same order then meet the same faults.
    pub seed: u64,
    /// How long the target may take to accept a connection.
    pub dial_timeout: Duration,
    /// Allows `listen` to name an address that other machines can reach.
    pub insecure_listen: bool,
    /// Who is told of every frame.
    pub observer: Option<Observer>,
}

impl ProxyConfig {
    /// A proxy for `target`, on any free port of this machine, without rules.
    #[must_use]
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: Some(target.into()),
            ..Self::default()
        }
    }
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            target: None,
            rules: Vec::new(),
            seed: 0,
            dial_timeout: Duration::from_secs(5),
            insecure_listen: false,
            observer: None,
        }
    }
}
