//! The side that accepts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::certificate::{describe, first_name, time_left};
use super::client::resolver;
use super::failure::{End, Shown, TlsFailure, handshake_failure};
use super::files::{Reloading, TlsFileError, authorities, certified_key};
use super::read_ahead::ReadAhead;
use super::{ALPN, provider};
use crate::socket::Socket;

/// From this long before its end on a certificate is warned about.
const RENEW_WITHIN: Duration = Duration::from_secs(14 * 86_400);

/// What a server's side of TLS is made of: names of files in PEM format.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerTlsFiles {
    /// The server's certificate, followed by those that lead from it to an authority.
    pub cert: PathBuf,
    /// The key of `cert`, not encrypted.
    pub key: PathBuf,
    /// The authorities that may have issued a client's certificate: a client has to show one. `None`: none is asked for.
    pub client_ca: Option<PathBuf>,
}

/// A server's side of TLS. Its files are read again when they change; connections that are there stay.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerTlsFiles,
    protocol: &'static [u8],
    loaded: Reloading<Loaded>,
}

/// What the files hold.
#[derive(Debug)]
struct Loaded {
    resolver: Arc<dyn ResolvesServerCert>,
    clients: Clients,
    /// The server's certificate in words.
    own: String,
}

/// What is asked of clients.
#[derive(Debug)]
enum Clients {
    /// Nothing: all connections are made alike.
    Anybody(Arc<ServerConfig>),
    /// A certificate, that this verifies.
    Certified(Arc<dyn ClientCertVerifier>),
}

/// A client whose handshake is complete.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TlsStream<ReadAhead>,
    /// Who it is by its certificate.
    pub(crate) peer_name: Option<Arc<str>>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFileError`] names the file and what is wrong with it.
    pub fn new(files: ServerTlsFiles) -> Result<Arc<Self>, TlsFileError> {
        Self::speaking(ALPN, files)
    }

    /// Reads the files, for something else than SBP inside TLS: `protocol` is its name in the handshake (RFC 7301).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn speaking(protocol: &'static [u8], files: ServerTlsFiles) -> Result<Arc<Self>, TlsFileError> {
        let mut named = vec![files.cert.clone(), files.key.clone()];
        named.extend(files.client_ca.clone());
        let read = files.clone();
        let loaded = Reloading::new(named, move || load(&read, protocol))?;
        Ok(Arc::new(Self {
            files,
            protocol,
            loaded,
        }))
    }

    /// What it is made of.
    #[must_use]
    pub fn files(&self) -> &ServerTlsFiles {
        &self.files
    }

    /// The server's certificate in words. Waits for the disk that has it.
    #[must_use]
    pub fn certificate(&self) -> String {
        // What cannot be used is logged, and leaves in place what there was.
        let _ = self.loaded.reload();
        self.loaded.last().own.clone()
    }

    /// Reads the files again if they have changed. They are looked at for new connections too, at most once a second. Waits for
    /// the disk that has them.
    ///
    /// # Errors
    /// [`TlsFileError`]; what there was stays in use.
    pub fn reload(&self) -> Result<(), TlsFileError> {
        self.loaded.reload()
    }

    /// Shakes hands with a client. Takes as long as the client does. The socket comes back with a failure, because to drop it
    /// at once could take back what was just written to say why.
    pub(crate) async fn accept(&self, socket: Socket) -> Result<Accepted, (TlsFailure, ReadAhead)> {
        let socket = ReadAhead::of_stranger(socket);
        let loaded = self.loaded.current().await;
        let shown = Shown::default();
        let config = match config(&loaded, self.protocol, &shown) {
            Ok(config) => config,
            Err(error) => return Err((TlsFailure::passing(error.to_string()), socket)),
        };
        // On the heap, once: the future of each caller up to the connection's task would have room for it as well.
        let accepting = Box::pin(TlsAcceptor::from(config).accept(socket).into_fallible());
        match accepting.await {
            Ok(mut stream) => {
                stream.get_mut().0.end_handshake();
                let (_, connection) = stream.get_ref();
                let certificate = connection.peer_certificates().and_then(<[_]>::first);
                let peer_name = certificate.and_then(|shown| first_name(shown)).map(Arc::from);
                Ok(Accepted { stream, peer_name })
            }
            Err((error, socket)) => Err((handshake_failure(&error, End::Server, &shown), socket)),
        }
    }
}

fn load(files: &ServerTlsFiles, protocol: &[u8]) -> Result<Loaded, TlsFileError> {
    let key = certified_key(&files.cert, &files.key)?;
    let own = key.end_entity_cert().map(|own| describe(own)).unwrap_or_default();
    let left = key.end_entity_cert().ok().and_then(|own| time_left(own));
    if left.is_some_and(|left| left < RENEW_WITHIN) {
        tracing::warn!(
            certificate = own,
            "this server's certificate has expired or soon will: renew it"
        );
    }
    let resolver: Arc<dyn ResolvesServerCert> = Arc::new(resolver(key));
    let clients = match &files.client_ca {
        None => {
            let built = config_of(None, &resolver, protocol).map_err(|error| TlsFileError::Unusable {
                path: files.cert.clone(),
                reason: error.to_string(),
            })?;
            Clients::Anybody(Arc::new(built))
        }
        Some(path) => {
            let built = WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider()).build();
            let built = built.map_err(|error| TlsFileError::Unusable {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            Clients::Certified(built)
        }
    };
    Ok(Loaded { resolver, clients, own })
}

/// The configuration of one connection: what its client shows is noted for it alone.
fn config(loaded: &Loaded, protocol: &[u8], shown: &Shown) -> Result<Arc<ServerConfig>, rustls::Error> {
    match &loaded.clients {
        Clients::Anybody(config) => Ok(Arc::clone(config)),
        Clients::Certified(verifier) => {
            let verifier = Noting {
                verifier: Arc::clone(verifier),
                shown: shown.clone(),
            };
            config_of(Some(verifier), &loaded.resolver, protocol).map(Arc::new)
        }
    }
}

fn config_of(
    clients: Option<Noting>,
    resolver: &Arc<dyn ResolvesServerCert>,
    protocol: &[u8],
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(Arc::new(verifier)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::clone(resolver));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Judges as another one does, and remembers what it was shown.
#[derive(Debug)]
struct Noting {
    verifier: Arc<dyn ClientCertVerifier>,
    shown: Shown,
}

impl ClientCertVerifier for Noting {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.shown.note(end_entity);
        self.verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
