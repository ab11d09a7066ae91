//! A server that can be looked at over HTTP.

use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::RawFd;

use sbp_server::{Server, ServerConfig, ShutdownError, StartError, TlsFileError};

use crate::listener::{HttpConfig, HttpServer};

/// A server, and its HTTP listener if it was asked for. Dropping it shuts the server down, then the listener.
#[derive(Debug)]
pub struct ObservedServer {
    // Dropped in this order.
    server: Server,
    http: Option<HttpServer>,
}

impl ObservedServer {
    /// Begins to answer HTTP, then opens the data directory, recovers what is in it, and listens.
    ///
    /// Blocks until the server is ready to serve. HTTP tells of it while it recovers.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what is in the way and what to do about it. Nothing is left running.
    pub fn start(config: ServerConfig, http: Option<&HttpConfig>) -> Result<Self, StartError> {
        let http = http.map(|http| HttpServer::start(http, &config));
        let http = http.transpose()?;
        let server = Server::start(config)?;
        Ok(Self { server, http })
    }

    /// Where it answers HTTP.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::local_addr)
    }

    /// The same as a browser wants it, without a path: `http://host:port`, or with `https://`.
    #[must_use]
    pub fn http_url(&self) -> Option<String> {
        let http = self.http.as_ref()?;
        let scheme = if http.has_tls() { "https" } else { "http" };
        Some(format!("{scheme}://{}", http.local_addr()))
    }

    /// As [`Server::reload_certificates`], for SBP and for HTTP.
    ///
    /// # Errors
    ///
    /// [`TlsFileError`] names the first file that cannot be used; the certificates from before stay in use.
    pub fn reload_certificates(&self) -> Result<(), TlsFileError> {
        let http = self.http.as_ref().map_or(Ok(()), HttpServer::reload_certificate);
        self.server.reload_certificates().and(http)
    }

    /// As [`Server::reload`], with the certificate of HTTP.
    #[must_use]
    pub fn reload(&self) -> Vec<&'static str> {
        if let Some(http) = &self.http {
            // Logged where it is read.
            let _ = http.reload_certificate();
        }
        self.server.reload()
    }

    /// The descriptors that both hold now. Takes no lock, so that a child process can call it right after a fork.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.server.descriptors();
        all.extend(self.http.iter().flat_map(HttpServer::descriptors));
        all
    }

    /// [Ends the server](Server::shutdown). HTTP goes on telling that it has ended, until this is dropped.
    ///
    /// # Errors
    ///
    /// As [`Server::shutdown`].
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        self.server.shutdown()
    }
}

impl Deref for ObservedServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
