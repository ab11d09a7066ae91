//! How a client behaves: where it connects, how long it waits, how much memory it may hold.

use std::time::Duration;

use std::sync::Arc;

use sbp_transport::{BackOff, ClientTls, ClientTlsFiles, TlsFileError};

use crate::address::{AddressError, Scheme, ServerAddress};
use crate::token::TokenSource;

/// Everything a [`Client`](crate::Client) can be told. [`ClientConfig::new`] fills in the defaults, which suit a process
/// that talks to one server; change fields before the client is built.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Bootstrap servers, tried in turn; never empty.
    pub servers: Vec<ServerAddress>,
    /// TLS with all servers, also those that they lead to. `None`: with none.
    pub tls: Option<Arc<ClientTls>>,
    /// What the client calls itself in HEARTBEAT: shown in the server's log, free text, at most 255 bytes.
    pub client_id: String,
    /// Says who the client is, to servers that ask.
    pub token: Option<TokenSource>,
    /// Sends the token to servers that it is not talked to over TLS with, also on other machines: whoever can read the
    /// network's packets can take it. Without this such servers are told no token, and calls to them fail; those on loopback
    /// are always told.
    pub token_in_clear: bool,
    /// How long a call may take when the caller does not say; also sent to the server. Never infinite.
    pub timeout: Duration,
    /// How long one attempt to connect may take, name resolution included.
    pub connect_timeout: Duration,
    /// How long a connection may be idle before a HEARTBEAT is sent. Three silent intervals close it.
    pub heartbeat_interval: Duration,
    /// Bytes of append bodies that may be on their way on one connection. What is over it waits its turn.
    pub send_credit: usize,
    /// Bytes of FETCH answers that may be asked for and not yet taken by their consumers.
    pub receive_credit: usize,
    /// Bytes of received frames that callers may keep through views; more is copied out of its frame instead.
    pub max_pinned_bytes: usize,
    /// Calls that may be on their way on one connection; the server's `max-calls` is taken when it is smaller.
    pub max_calls: usize,
    /// Appends that may be unfinished altogether, on their way and waiting for it. More are refused.
    pub queue_calls: usize,
    /// Bytes that they may have together.
    pub queue_bytes: usize,
    /// How attempts that failed are repeated.
    pub retry: RetryPolicy,
    /// Bytes a reader asks for per stream and answer. At least one whole batch comes in any case.
    pub batch_max_bytes: u32,
    /// How long the server may hold a tail's FETCH when there is nothing to return; at most 60 s.
    pub tail_wait: Duration,
    /// Which of the servers that hold a range are read from.
    pub read_from: ReadFrom,
}

/// Which of the servers that hold a range are read from. Where a stream ends is the primary's to say in any case, and a server that
/// is away is done without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The one that takes its appends.
    #[default]
    Primary,
    /// Any that has all of it, another one for each stream and client: reads are spread. What is new comes up to 100 ms later from the
    /// others than from the primary.
    Any,
}

/// Why a client cannot be configured so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No server is named, or one cannot be read.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A certificate or key for TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFileError),
}

/// Bounds of the retry loop. Waiting times are "full jitter": uniform between zero and a bound that doubles from
/// `backoff_min` up to `backoff_max`, so that clients that failed together do not come back together.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// The first bound of the back-off.
    pub backoff_min: Duration,
    /// The last bound of the back-off.
    pub backoff_max: Duration,
    /// Attempts after which a call gives up even when time is left.
    pub max_attempts: u32,
    /// How long a client that has never reached a server goes on trying, whatever more time its calls have: a server that
    /// is being started is waited for, and an address that is wrong is told soon.
    pub first_connect_wait: Duration,
    /// Rounds over all servers that such a client makes at least.
    pub first_connect_rounds: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(10),
            max_attempts: 1_000,
            first_connect_wait: Duration::from_secs(5),
            first_connect_rounds: 2,
        }
    }
}

impl RetryPolicy {
    /// The pauses as they double.
    pub(crate) fn back_off(&self) -> BackOff {
        self.back_off_up_to(self.backoff_max)
    }

    /// The same, with none longer than this.
    pub(crate) fn back_off_up_to(&self, longest: Duration) -> BackOff {
        BackOff {
            first: self.backoff_min.min(longest),
            longest: self.backoff_max.min(longest),
            least: 0.0,
        }
    }
}

impl ClientConfig {
    /// The defaults, for the servers named in `servers`: `host:port`, several separated by commas. With `sbps://` in front of
    /// one TLS is used with all, and the authorities are trusted that the machine trusts.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when no server is named or one cannot be read.
    pub fn new(servers: &str) -> Result<Self, ConfigError> {
        Self::with_tls(servers, None)
    }

    /// As [`ClientConfig::new`], with TLS as `tls` says, where that is given: also with servers that have nothing in front of
    /// their address.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when a server cannot be read, when a file of `tls` cannot be used, or when an address says `sbp://`
    /// and `tls` is given.
    pub fn with_tls(servers: &str, tls: Option<ClientTlsFiles>) -> Result<Self, ConfigError> {
        let text = servers;
        let (servers, scheme) = ServerAddress::parse_list(text)?;
        let files = match (scheme, tls) {
            (Some(Scheme::Plain), Some(_)) => return Err(AddressError::PlainWithTls(text.to_owned()).into()),
            (Some(Scheme::Tls), None) => Some(ClientTlsFiles::default()),
            (_, tls) => tls,
        };
        Ok(Self {
            servers,
            tls: files.map(ClientTls::new).transpose()?,
            client_id: format!("sbp-native/{} pid {}", env!("CARGO_PKG_VERSION"), std::process::id()),
            token: None,
            token_in_clear: false,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(30),
            send_credit: 64 << 20,
            receive_credit: 128 << 20,
            max_pinned_bytes: 256 << 20,
            max_calls: 8_192,
            queue_calls: 1 << 20,
            queue_bytes: 1 << 30,
            retry: RetryPolicy::default(),
            // What is read and checked at once stays in a processor's cache; the next is asked for meanwhile.
            batch_max_bytes: 2 << 20,
            tail_wait: Duration::from_secs(10),
            read_from: ReadFrom::Primary,
        })
    }
}
