//! Sockets that connect.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use thiserror::Error;
use tokio::{
    net::{TcpStream, lookup_host},
    task::{JoinError, JoinSet},
    time::{Instant, timeout_at},
};

use crate::socket::accept_options;
use crate::tls::TlsFailure;

/// The head start of an address before the next one is tried beside it (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// Why no connection was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DialError {
    /// The address is not `host:port`, or its host is unknown.
    #[error("cannot resolve {address}: {source}")]
    Resolve {
        /// The address asked for.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Every address of the host refused or failed; the last failure.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address asked for.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Neither success nor failure came in time.
    #[error("cannot connect to {address}: no answer within {timeout:?}")]
    Timeout {
        /// The address asked for.
        address: String,
        /// The time given.
        timeout: Duration,
    },
    /// Connected, but the two sides do not talk to each other over TLS.
    #[error("TLS with {address}: {failure}")]
    Tls {
        /// The address asked for.
        address: String,
        /// Why not.
        #[source]
        failure: TlsFailure,
    },
}

/// Whether what is sent to `address`, `host:port`, stays on this machine: an address of loopback, or the name `localhost`.
#[must_use]
pub fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_name) => host.eq_ignore_ascii_case("localhost"),
    }
}

impl DialError {
    /// Whether it will be the same the next time, until somebody changes a certificate, an address or a setting.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Tls { failure, .. } if failure.is_final())
    }
}

/// Connects to `address`, which is `host:port`, within `timeout`, name resolution included.
///
/// The host's addresses are tried with the families taking turns, each with a short head start before the next one; the
/// first that connects is kept. The socket sends without delay and with keep-alive.
///
/// # Errors
/// [`DialError`].
pub async fn dial(address: &str, timeout: Duration) -> Result<TcpStream, DialError> {
    let deadline = Instant::now() + timeout;
    let timed_out = || DialError::Timeout {
        address: address.to_owned(),
        timeout,
    };
    let resolved = timeout_at(deadline, lookup_host(address))
        .await
        .map_err(|_| timed_out())?;
    let resolve = |source| DialError::Resolve {
        address: address.to_owned(),
        source,
    };
    let candidates = interleave(resolved.map_err(resolve)?);
    if candidates.is_empty() {
        return Err(resolve(io::Error::new(
            io::ErrorKind::NotFound,
            "the host has no address",
        )));
    }
    let connected = timeout_at(deadline, race(candidates)).await.map_err(|_| timed_out())?;
    let stream = connected
        .and_then(|stream| accept_options(&stream).map(|()| stream))
        .map_err(|source| DialError::Connect {
            address: address.to_owned(),
            source,
        })?;
    Ok(stream)
}

/// The addresses with families taking turns, beginning with that of the resolver's first choice.
fn interleave(addresses: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let addresses: Vec<_> = addresses.collect();
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut preferred, mut others): (VecDeque<_>, VecDeque<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let mut order = VecDeque::with_capacity(preferred.len() + others.len());
    while !(preferred.is_empty() && others.is_empty()) {
        order.extend(preferred.pop_front());
        order.extend(others.pop_front());
    }
    order
}

/// Tries all, each with a head start; the first success, or the last failure.
async fn race(mut candidates: VecDeque<SocketAddr>) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(candidate) = candidates.pop_front() {
        attempts.spawn(TcpStream::connect(candidate));
        let next_at = (!candidates.is_empty()).then(|| Instant::now() + STAGGER);
        // The next one is tried earlier where nothing is under way any more.
        while let Some(ended) = join_until(&mut attempts, next_at).await {
            match ended {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error,
                Err(error) => failure = error.into(),
            }
        }
    }
    Err(failure)
}

/// What an attempt came to that ends before that moment; `None` where there is none.
async fn join_until<T: 'static>(attempts: &mut JoinSet<T>, at: Option<Instant>) -> Option<Result<T, JoinError>> {
    match at {
        Some(at) => timeout_at(at, attempts.join_next()).await.ok().flatten(),
        None => attempts.join_next().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1", "127.0.0.2:1"];
        let order = interleave(addresses.iter().map(|address| address.parse().unwrap()));
        let order: Vec<_> = order.iter().map(ToString::to_string).collect();
        assert_eq!(order, ["[::1]:1", "127.0.0.1:1", "[::2]:1", "127.0.0.2:1", "[::3]:1"]);
    }
}
