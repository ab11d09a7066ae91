//! What the failure of a handshake means, in words.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::certificate::{describe, list, moment};

/// Why two peers do not talk to each other over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFailure {
    what: String,
    is_final: bool,
}

impl TlsFailure {
    /// Whether it will be the same the next time, until somebody changes a certificate, an address or a setting. Else it is
    /// the network's, or the peer was cut short.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// The failure that an error of a connection is, if it is one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// A failure that another attempt may not meet.
    pub(crate) fn passing(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_final: false,
        }
    }

    pub(super) fn lasting(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_final: true,
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl Error for TlsFailure {}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        Self::new(io::ErrorKind::ConnectionRefused, failure)
    }
}

/// The certificate that the peer showed in a handshake, for the words about its failure.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(Arc<OnceLock<Vec<u8>>>);

impl Shown {
    pub(super) fn note(&self, certificate: &[u8]) {
        // The first one counts; there is no second in a handshake.
        let _ = self.0.set(certificate.to_vec());
    }

    fn describe(&self) -> String {
        self.0
            .get()
            .map_or_else(|| "its certificate".to_owned(), |shown| describe(shown))
    }
}

/// Which end a failure is told at, and what it knows of itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'a> {
    /// The one that dialled, with its own certificate in words, if it has one.
    Client { own: Option<&'a str> },
    /// The one that accepted.
    Server,
}

/// What went wrong in a handshake.
pub(super) fn handshake_failure(error: &io::Error, end: End<'_>, shown: &Shown) -> TlsFailure {
    let Some(error) = tls_error(error) else {
        return TlsFailure::passing(match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                "the peer ended the connection in the middle of the TLS handshake".to_owned()
            }
            _ => format!("the connection failed in the middle of the TLS handshake: {error}"),
        });
    };
    match (error, end) {
        (rustls::Error::InvalidCertificate(fault), End::Client { .. }) => TlsFailure::lasting(format!(
            "{} is not accepted: {}",
            shown.describe(),
            certificate_fault(fault, "the server")
        )),
        (rustls::Error::InvalidCertificate(fault), End::Server) => TlsFailure::lasting(format!(
            "the client showed {}, which is not accepted: {}",
            shown.describe(),
            certificate_fault(fault, "the client")
        )),
        (rustls::Error::NoCertificatesPresented, _) => {
            TlsFailure::lasting("the client showed no certificate, and one is asked for")
        }
        (rustls::Error::AlertReceived(alert), end) => refused(*alert, end),
        (
            rustls::Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::InvalidEmptyPayload
                | InvalidMessage::MessageTooLarge,
            ),
            End::Client { .. },
        ) => TlsFailure::lasting(
            "the server does not speak TLS: its answer is plain; write sbp://host:port to talk to it without TLS \
             (http://host:port where HTTP is asked), or find its port for TLS",
        ),
        (rustls::Error::InvalidMessage(_), End::Server) => {
            TlsFailure::lasting("the client does not speak TLS; it has to write sbps://host:port")
        }
        (rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol, _) => TlsFailure::lasting(format!(
            "the two sides have nothing in common that they could speak: {error}"
        )),
        (other, _) => TlsFailure::passing(format!("the TLS handshake failed: {other}")),
    }
}

/// What an error means that a client meets before its server has said anything inside TLS. In TLS 1.3 a server judges the
/// client's certificate after the client's side of the handshake is complete, so that its refusal comes as the first thing
/// that is read.
pub(crate) fn refusal(error: &io::Error, own: Option<&str>) -> Option<TlsFailure> {
    match tls_error(error)? {
        rustls::Error::AlertReceived(alert) => Some(refused(*alert, End::Client { own })),
        _ => None,
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The peer has sent an alert instead of going on.
fn refused(alert: AlertDescription, end: End<'_>) -> TlsFailure {
    let reason = alert_words(alert);
    let about_certificate = matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    );
    TlsFailure::lasting(match end {
        End::Client { own: None } if about_certificate || alert == AlertDescription::HandshakeFailure => {
            format!(
                "the server asks for a client certificate and none was given ({reason}); give a certificate and its key"
            )
        }
        End::Client { own: Some(own) } if about_certificate => format!("the server does not accept {own}: {reason}"),
        End::Client { .. } => format!("the server refused the TLS handshake: {reason}"),
        End::Server if about_certificate => format!("the client does not accept this server's certificate: {reason}"),
        End::Server => format!("the client refused the TLS handshake: {reason}"),
    })
}

fn alert_words(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => "it was issued by an authority that is not trusted there".to_owned(),
        AlertDescription::CertificateExpired => "it has expired, or is not valid yet".to_owned(),
        AlertDescription::CertificateRevoked => "it was revoked".to_owned(),
        AlertDescription::CertificateRequired => "a certificate is required".to_owned(),
        AlertDescription::NoApplicationProtocol => "it does not speak sbp/0.1".to_owned(),
        AlertDescription::ProtocolVersion => "it speaks no version of TLS that this side does".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Why a certificate is not accepted, and what to do about it.
fn certificate_fault(fault: &CertificateError, whose: &str) -> String {
    match fault {
        CertificateError::Expired => "it has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, time } => {
            format!("it expired at {}, and it is {} now", moment(*not_after), moment(*time))
        }
        CertificateError::NotValidYet => "it is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { not_before, time } => format!(
            "it counts from {} on, and it is {} now; check the clocks",
            moment(*not_before),
            moment(*time)
        ),
        CertificateError::UnknownIssuer => {
            format!("no authority that is trusted here has issued it; give the file of the authority of {whose}")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            // They come as names of an enumeration's variants: DnsName("a"), IpAddress(::1).
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() {
                "no name".to_owned()
            } else {
                list(&names)
            };
            format!(
                "it is not for {:?}, which was expected, but for {names}; connect by one of its names, or say which name to \
                 expect",
                expected.to_str()
            )
        }
        CertificateError::NotValidForName => "it is for another name".to_owned(),
        CertificateError::BadSignature => format!(
            "an authority of this name is trusted here, but it has another key; give the file of the authority of {whose}"
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("it is not made for {whose} (extended key usage)")
        }
        CertificateError::Other(other) => other.0.to_string(),
        other => other.to_string(),
    }
}

/// What stands in the brackets of `DnsName("a")`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}
