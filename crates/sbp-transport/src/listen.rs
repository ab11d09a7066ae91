//! Sockets that accept.

use std::{io, net::ToSocketAddrs};

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::net::TcpListener;

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 1024;

/// Why nothing can be accepted at an address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address is not `host:port`, or its host is unknown.
    #[error("cannot listen on {address}: not an address of this machine; write host:port")]
    InvalidAddress {
        /// The address asked for.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Somebody else listens there.
    #[error("cannot listen on {address}: the port is taken by another process; choose another one, or 0 for any")]
    PortTaken {
        /// The address asked for.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The system refuses for another reason.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// The address asked for.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Listens on `address`, which is `host:port`; port 0 lets the system choose. Must run inside a tokio runtime.
///
/// A host name is resolved on the calling thread. A port whose last connections are still winding down can be taken
/// again (`SO_REUSEADDR`), one with a living listener cannot.
///
/// # Errors
/// [`ListenError`], for the last of the host's addresses where there are several.
pub fn listen(address: &str) -> Result<TcpListener, ListenError> {
    let invalid = |source| ListenError::InvalidAddress {
        address: address.to_owned(),
        source,
    };
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for candidate in address.to_socket_addrs().map_err(invalid)? {
        match bind(candidate) {
            Ok(listener) => return Ok(listener),
            Err(source) => failure = source,
        }
    }
    let (address, source) = (address.to_owned(), failure);
    Err(match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::PortTaken { address, source },
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::NotFound => ListenError::InvalidAddress { address, source },
        _ => ListenError::System { address, source },
    })
}

fn bind(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
