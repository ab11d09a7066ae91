//! The configuration of a proxy.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Action, Rule, Seen};

/// A callback for every frame and what is done with it. Called on the proxy's thread, so it must not block.
#[derive(Clone)]
pub struct Observer(Arc<See>);

type See = dyn Fn(&Seen, Action) + Send + Sync;

impl Observer {
    /// An observer that calls `see` for each frame when its first bytes have been received.
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

/// The configuration of a [`Proxy`](crate::Proxy). Change what is to differ from [`ProxyConfig::default`].
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// `host:port` to listen on. Port 0 lets the system choose one; [`Proxy::address`](crate::Proxy::address) tells
    /// which.
    pub listen: String,
    /// `host:port` of the server to connect to. `None`: connections are closed at once, until
    /// [`Proxy::set_target`](crate::Proxy::set_target) sets a target.
    pub target: Option<String>,
    /// The rules at the start, tried in this order.
    pub rules: Vec<Rule>,
    /// The seed of random decisions: the same frames in the same order meet the same faults.
    pub seed: u64,
    /// How long the target may take to accept a connection.
    pub dial_timeout: Duration,
    /// Allows `listen` to name an address that other machines can reach.
    pub insecure_listen: bool,
    /// Called for every frame.
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
