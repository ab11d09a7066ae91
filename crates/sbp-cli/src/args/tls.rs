//! TLS on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sbp_client::ClientTlsFiles;
use sbp_server::ServerTlsFiles;

/// How a client talks to its servers over TLS. Any of these asks for TLS, and so does sbps:// in front of a server.
#[derive(Args, Clone, Debug, Default)]
#[command(
    next_help_heading = "TLS (used when a server is written with sbps:// or https:// in front, or when any of these is given)"
)]
pub(crate) struct ClientTls {
    /// Authorities that may have issued the servers' certificates, a file in PEM format. Without it those count that this
    /// machine trusts.
    #[arg(long, env = "SBP_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate to show to servers that ask for one, a file in PEM format.
    #[arg(long, env = "SBP_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate, not encrypted.
    #[arg(long, env = "SBP_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name that the servers' certificates have to be for, if it is not the one that is connected to.
    #[arg(long, env = "SBP_TLS_SERVER_NAME", value_name = "NAME")]
    tls_server_name: Option<String>,
}

impl ClientTls {
    /// What was given, if anything was.
    pub(crate) fn files(&self) -> Option<ClientTlsFiles> {
        let files = ClientTlsFiles {
            ca: self.tls_ca.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            server_name: self.tls_server_name.clone(),
        };
        (files != ClientTlsFiles::default()).then_some(files)
    }
}

/// TLS of a server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "TLS")]
pub(crate) struct ServerTls {
    /// The server's certificate, followed by those that lead from it to its authority, a file in PEM format. With it the
    /// server speaks TLS and nothing else. The file is read again when it changes, and on SIGHUP; connections stay.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate, not encrypted.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities of clients: each client has to show a certificate that one of them has issued.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Authorities of the other servers of a cluster, if they are not those of --tls-client-ca; else those count that this
    /// machine trusts. The server shows its own certificate to them.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// A second address, on loopback, to listen on without TLS, for programs on this machine.
    #[arg(long, value_name = "HOST:PORT", requires = "tls_cert")]
    pub(crate) plain_listen: Option<String>,
}

impl ServerTls {
    /// TLS on the address listened on.
    pub(crate) fn files(&self) -> Option<ServerTlsFiles> {
        Some(ServerTlsFiles {
            cert: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone(),
        })
    }

    /// TLS towards other servers.
    pub(crate) fn peer_files(&self) -> Option<ClientTlsFiles> {
        let ServerTlsFiles { cert, key, client_ca } = self.files()?;
        Some(ClientTlsFiles {
            ca: self.tls_ca.clone().or(client_ca),
            cert: Some(cert),
            key: Some(key),
            server_name: None,
        })
    }
}

/// TLS towards etcd.
#[derive(Args, Clone, Debug)]
pub(crate) struct MetadataTls {
    /// Authorities that may have issued etcd's certificates, a file in PEM format. Any of these three settings asks for TLS
    /// with etcd; without this one those authorities count that this machine trusts.
    #[arg(long, value_name = "FILE", requires = "metadata")]
    metadata_tls_ca: Option<PathBuf>,
    /// Certificate to show to etcd, a file in PEM format.
    #[arg(long, value_name = "FILE", requires_all = ["metadata", "metadata_tls_key"])]
    metadata_tls_cert: Option<PathBuf>,
    /// Private key of that certificate, not encrypted.
    #[arg(long, value_name = "FILE", requires_all = ["metadata", "metadata_tls_cert"])]
    metadata_tls_key: Option<PathBuf>,
}

impl MetadataTls {
    /// What was given, if anything was.
    pub(crate) fn files(self) -> Option<ClientTlsFiles> {
        let files = ClientTlsFiles {
            ca: self.metadata_tls_ca,
            cert: self.metadata_tls_cert,
            key: self.metadata_tls_key,
            server_name: None,
        };
        (files != ClientTlsFiles::default()).then_some(files)
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp tls dev ./tls                        an authority, and certificates for a server and a client of this machine
  sbp tls dev ./tls --name db.example.com  the server's certificate is for that name too

Then:
  sbp serve --data-dir ./data --tls-cert ./tls/server.crt --tls-key ./tls/server.key --tls-client-ca ./tls/ca.crt
  sbp ping --servers sbps://127.0.0.1:12378 --tls-ca ./tls/ca.crt --tls-cert ./tls/client.crt --tls-key ./tls/client.key")]
pub(crate) struct Tls {
    #[command(subcommand)]
    pub(crate) action: TlsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TlsAction {
    /// Make an authority and certificates to try TLS with. Whoever has the directory can issue more, so it is not for
    /// production.
    Dev(TlsDev),
}

#[derive(Args, Debug)]
pub(crate) struct TlsDev {
    /// Where the files go; created when it does not exist. An authority that is there issues the new certificates.
    pub(crate) dir: PathBuf,
    /// A host name or IP address of the server, beside localhost, 127.0.0.1 and ::1; may be given several times.
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// What the client is called in its certificate.
    #[arg(long, default_value = "client.localhost", value_name = "NAME")]
    pub(crate) client: String,
    /// Days that the certificates count.
    #[arg(long, default_value_t = 90, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) days: u32,
}
