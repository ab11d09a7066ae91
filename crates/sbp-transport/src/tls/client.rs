//! The side that dials.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_platform_verifier::Verifier;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::certificate::describe;
use super::failure::{End, Shown, TlsFailure, handshake_failure};
use super::files::{Reloading, TlsFileError, authorities, certified_key};
use super::read_ahead::ReadAhead;
use super::{ALPN, provider};
use crate::socket::Socket;

/// What a client's side of TLS is made of: names of files in PEM format, and what to expect of the server. The default is
/// to trust the authorities that the machine trusts, and to show no certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientTlsFiles {
    /// The authorities that may have issued the server's certificate. `None`: those that the machine trusts.
    pub ca: Option<PathBuf>,
    /// The client's certificate, followed by those that lead from it to an authority. For servers that ask for one.
    pub cert: Option<PathBuf>,
    /// The key of `cert`, not encrypted.
    pub key: Option<PathBuf>,
    /// The host name or IP address that the server's certificate has to be for. `None`: the one that is dialled.
    pub server_name: Option<String>,
}

/// A client's side of TLS. Its files are read again when they change.
#[derive(Debug)]
pub struct ClientTls {
    files: ClientTlsFiles,
    protocol: &'static [u8],
    loaded: Reloading<Loaded>,
}

/// What the files hold.
#[derive(Debug)]
struct Loaded {
    config: ClientConfig,
    verifier: Arc<dyn ServerCertVerifier>,
    /// The client's certificate in words.
    own: Option<Arc<str>>,
}

/// A connection whose handshake is complete as far as this side knows.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: TlsStream<ReadAhead>,
    /// The certificate that was shown, in words.
    pub(crate) own: Option<Arc<str>>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFileError`] names the file and what is wrong with it.
    pub fn new(files: ClientTlsFiles) -> Result<Arc<Self>, TlsFileError> {
        Self::speaking(ALPN, files)
    }

    /// Reads the files, for something else than SBP inside TLS: `protocol` is its name in the handshake (RFC 7301).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn speaking(protocol: &'static [u8], files: ClientTlsFiles) -> Result<Arc<Self>, TlsFileError> {
        if let Some(name) = &files.server_name {
            server_name(name)?;
        }
        let named = [&files.ca, &files.cert, &files.key];
        let named = named.into_iter().flatten().cloned().collect();
        let read = files.clone();
        let loaded = Reloading::new(named, move || load(&read))?;
        Ok(Arc::new(Self {
            files,
            protocol,
            loaded,
        }))
    }

    /// What it is made of.
    #[must_use]
    pub fn files(&self) -> &ClientTlsFiles {
        &self.files
    }

    /// Shakes hands with the server that was dialled as `address`, `host:port`. Takes as long as the peer does.
    pub(crate) async fn connect(&self, address: &str, socket: Socket) -> Result<Connected, TlsFailure> {
        let loaded = self.loaded.current().await;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let expected = self.files.server_name.as_deref().unwrap_or(host);
        let expected = server_name(expected).map_err(|error| TlsFailure::lasting(error.to_string()))?;
        let shown = Shown::default();
        let mut config = loaded.config.clone();
        config.alpn_protocols = vec![self.protocol.to_vec()];
        config.dangerous().set_certificate_verifier(Arc::new(Noting {
            verifier: Arc::clone(&loaded.verifier),
            shown: shown.clone(),
        }));
        let own = loaded.own.clone();
        let connecting = TlsConnector::from(Arc::new(config)).connect(expected, ReadAhead::new(socket));
        match connecting.await {
            Ok(stream) => Ok(Connected { stream, own }),
            Err(error) => {
                let end = End::Client { own: own.as_deref() };
                Err(handshake_failure(&error, end, &shown))
            }
        }
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsFileError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsFileError::ServerName { name: name.to_owned() })
}

fn load(files: &ClientTlsFiles) -> Result<Loaded, TlsFileError> {
    let platform = |error: rustls::Error| TlsFileError::Platform {
        reason: error.to_string(),
    };
    let verifier: Arc<dyn ServerCertVerifier> = match &files.ca {
        Some(path) => {
            let built = WebPkiServerVerifier::builder_with_provider(authorities(path)?, provider()).build();
            built.map_err(|error| TlsFileError::Unusable {
                path: path.clone(),
                reason: error.to_string(),
            })?
        }
        None => Arc::new(Verifier::new(provider()).map_err(platform)?),
    };
    let own = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => Some(certified_key(cert, key)?),
        (None, None) => None,
        (Some(_), None) => return Err(TlsFileError::Incomplete { missing: "the key" }),
        (None, Some(_)) => {
            return Err(TlsFileError::Incomplete {
                missing: "the certificate",
            });
        }
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(platform)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier));
    let words = own
        .as_ref()
        .and_then(|own| own.end_entity_cert().ok())
        .map(|own| Arc::from(describe(own)));
    let mut config = match own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(resolver(own))),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(Loaded {
        config,
        verifier,
        own: words,
    })
}

/// Always this one.
pub(super) fn resolver(own: Arc<CertifiedKey>) -> SingleCertAndKey {
    SingleCertAndKey::from(Arc::unwrap_or_clone(own))
}

/// Judges as another one does, and remembers what it was shown.
#[derive(Debug)]
struct Noting {
    verifier: Arc<dyn ServerCertVerifier>,
    shown: Shown,
}

impl ServerCertVerifier for Noting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.shown.note(end_entity);
        self.verifier
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
