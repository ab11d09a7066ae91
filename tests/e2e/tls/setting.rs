//! A server with TLS, its authority, and clients of it.

use std::time::Duration;

use sbp_client::{Client, ClientConfig, ClientError, ClientTlsFiles, ConfigError};
use sbp_e2e::certificates::{Authority, Issued};
use sbp_e2e::servers::quick_config;
use sbp_server::{Server, ServerConfig, ServerTlsFiles};
use tempfile::TempDir;
use tokio::runtime::Handle;

/// Where a test's certificates are, and who issues them.
pub(crate) struct Setting {
    pub(crate) directory: TempDir,
    pub(crate) authority: Authority,
}

/// What a client is named by in its certificate.
pub(crate) const CLIENT: &str = "reader.example.com";

impl Setting {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new(directory.path(), "authority");
        Self { directory, authority }
    }

    /// A certificate for a server on this machine.
    pub(crate) fn server_certificate(&self) -> Issued {
        self.authority.issue("server", &["localhost", "127.0.0.1"])
    }

    pub(crate) fn server(&self) -> Server {
        self.server_with(&self.server_certificate(), |_| ())
    }

    pub(crate) fn server_with(&self, issued: &Issued, change: impl FnOnce(&mut ServerConfig)) -> Server {
        let mut config = quick_config(None, "127.0.0.1:0");
        config.tls = Some(ServerTlsFiles {
            cert: issued.cert.clone(),
            key: issued.key.clone(),
            client_ca: None,
        });
        change(&mut config);
        Server::start(config).unwrap()
    }

    /// A server that asks for certificates of this authority.
    pub(crate) fn mutual_server(&self) -> Server {
        let ca = self.authority.file();
        self.server_with(&self.server_certificate(), |config| {
            config.tls.as_mut().unwrap().client_ca = Some(ca);
        })
    }

    /// A client's settings that trust this authority.
    pub(crate) fn trusting(&self) -> ClientTlsFiles {
        ClientTlsFiles {
            ca: Some(self.authority.file()),
            ..ClientTlsFiles::default()
        }
    }

    /// The same, with a certificate to show.
    pub(crate) fn showing(&self, issued: &Issued) -> ClientTlsFiles {
        ClientTlsFiles {
            cert: Some(issued.cert.clone()),
            key: Some(issued.key.clone()),
            ..self.trusting()
        }
    }

    pub(crate) fn client(&self, server: &Server) -> Client {
        client(server.address(), Some(self.trusting())).unwrap()
    }
}

pub(crate) fn client(servers: &str, tls: Option<ClientTlsFiles>) -> Result<Client, ConfigError> {
    let mut config = ClientConfig::with_tls(servers, tls)?;
    config.timeout = Duration::from_secs(20);
    config.retry.backoff_min = Duration::from_millis(5);
    config.retry.backoff_max = Duration::from_millis(100);
    Ok(Client::new(config, Handle::current()))
}

/// How a client fails that cannot connect: at once, for one error, which nobody need send again.
pub(crate) async fn refusal(client: &Client) -> ClientError {
    let connected = sbp_e2e::wait::bounded(client.connect(None)).await;
    let error = connected.unwrap_err();
    assert_eq!(error.code().0, 9020, "{error}");
    assert!(!error.is_retriable(), "{error}");
    assert!(!error.is_indeterminate(), "{error}");
    assert_eq!(error.attempts(), 1, "{error}");
    error
}

/// Fails unless a text has all of these in it.
pub(crate) fn says(error: &impl ToString, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}
