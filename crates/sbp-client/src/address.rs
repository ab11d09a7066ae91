//! Server addresses as users write them.

use std::fmt;

use sbp_messages::check_address;

/// One server: a host name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress(String);

/// How one talks to a server, as it stands in front of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `sbp://`: without TLS.
    Plain,
    /// `sbps://`: with TLS.
    Tls,
}

/// Why a server address could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Nothing was named.
    #[error("no server address given; write host:port, several separated by commas")]
    Empty,
    /// There is no port.
    #[error("server address {0:?} has no port; write host:port, for example 127.0.0.1:12378")]
    NoPort(String),
    /// The port is not a number from 1 to 65535.
    #[error("server address {0:?} has no valid port; a port is a number from 1 to 65535")]
    BadPort(String),
    /// It is written as an URL of another kind.
    #[error("server address {address:?} begins with {scheme:?}; write {plain:?}, or sbps://{plain} for TLS")]
    Scheme {
        /// What was given.
        address: String,
        /// What does not belong there.
        scheme: String,
        /// What was probably meant.
        plain: String,
    },
    /// Something stands behind the port.
    #[error("server address {address:?} has something behind the port; write {plain:?}")]
    Path {
        /// What was given.
        address: String,
        /// What was probably meant.
        plain: String,
    },
    /// Some servers are to be talked to with TLS and some without.
    #[error(
        "some of these servers are written with sbps:// and some with sbp://; a client uses TLS with all or with none"
    )]
    Mixed,
    /// TLS is set up, and the address says not to use it.
    #[error(
        "server address {0:?} says sbp://, which is without TLS, and TLS is set up; write sbps://, or leave the settings out"
    )]
    PlainWithTls(String),
    /// There is no host in front of the port.
    #[error("server address {0:?} has no host; write host:port, for example 127.0.0.1:12378")]
    NoHost(String),
}

impl ServerAddress {
    /// Reads one `host:port`; an IPv6 address stands in brackets.
    ///
    /// # Errors
    ///
    /// [`AddressError`] naming what is missing.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        if text.contains("://") {
            return Err(foreign(text));
        }
        if let Some((plain, _)) = text.split_once('/') {
            return Err(AddressError::Path {
                address: text.to_owned(),
                plain: plain.to_owned(),
            });
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| AddressError::NoPort(text.to_owned()))?;
        if host.is_empty() {
            return Err(AddressError::NoHost(text.to_owned()));
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(AddressError::NoPort(text.to_owned()));
        }
        match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Self(text.to_owned())),
            _ => Err(AddressError::BadPort(text.to_owned())),
        }
    }

    /// An address that a server named, if it is one to dial: what a peer says is looked at more closely than what a user
    /// writes.
    pub(crate) fn of_peer(text: &str) -> Option<Self> {
        check_address(text).ok()?;
        Self::parse(text).ok()
    }

    /// Reads several, separated by commas, each with `sbps://` or `sbp://` in front of it or with neither; repeated ones are
    /// kept once. Returns what stood in front of any of them too: it holds for all.
    ///
    /// # Errors
    ///
    /// [`AddressError`] for the first that cannot be read, when there is none, or when they contradict each other.
    pub fn parse_list(text: &str) -> Result<(Vec<Self>, Option<Scheme>), AddressError> {
        let mut servers = Vec::new();
        let mut scheme = None;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (said, rest) = split_scheme(part)?;
            if scheme.is_some() && said.is_some() && scheme != said {
                return Err(AddressError::Mixed);
            }
            scheme = scheme.or(said);
            let server = Self::parse(rest)?;
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        if servers.is_empty() {
            Err(AddressError::Empty)
        } else {
            Ok((servers, scheme))
        }
    }

    /// The address as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What stands in front of an address, and the rest of it.
fn split_scheme(text: &str) -> Result<(Option<Scheme>, &str), AddressError> {
    match text.split_once("://") {
        None => Ok((None, text)),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("sbp") => Ok((Some(Scheme::Plain), rest)),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("sbps") => Ok((Some(Scheme::Tls), rest)),
        Some(_) => Err(foreign(text)),
    }
}

/// That an address is an URL of another kind.
fn foreign(text: &str) -> AddressError {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    AddressError::Scheme {
        address: text.to_owned(),
        scheme: format!("{scheme}://"),
        plain: rest.split('/').next().unwrap_or_default().to_owned(),
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressError, Scheme, ServerAddress};

    #[test]
    fn lists_are_split_trimmed_and_without_repeats() {
        let (servers, scheme) = ServerAddress::parse_list(" a:1, b:2,a:1 ,").unwrap();
        assert_eq!(scheme, None);
        assert_eq!(
            servers.iter().map(ServerAddress::as_str).collect::<Vec<_>>(),
            ["a:1", "b:2"]
        );
    }

    #[test]
    fn what_stands_in_front_of_one_holds_for_all() {
        for (text, expected) in [
            ("sbps://a:1,b:2", Some(Scheme::Tls)),
            ("a:1, SBPS://b:2", Some(Scheme::Tls)),
            ("sbp://a:1,b:2", Some(Scheme::Plain)),
            ("a:1,b:2", None),
        ] {
            let (servers, scheme) = ServerAddress::parse_list(text).unwrap();
            assert_eq!(scheme, expected, "{text}");
            assert_eq!(
                servers.iter().map(ServerAddress::as_str).collect::<Vec<_>>(),
                ["a:1", "b:2"]
            );
        }
        assert_eq!(
            ServerAddress::parse_list("sbps://a:1,sbp://b:2"),
            Err(AddressError::Mixed)
        );
    }

    #[test]
    fn an_url_is_told_from_an_address() {
        let path = AddressError::Path {
            address: "h:1/stream".into(),
            plain: "h:1".into(),
        };
        assert_eq!(ServerAddress::parse_list("sbp://h:1/stream"), Err(path));
        for (text, scheme, plain) in [
            ("http://127.0.0.1:12378", "http://", "127.0.0.1:12378"),
            ("PLAINTEXT://broker:9092", "PLAINTEXT://", "broker:9092"),
        ] {
            let error = ServerAddress::parse_list(text).unwrap_err();
            let told = AddressError::Scheme {
                address: text.into(),
                scheme: scheme.into(),
                plain: plain.into(),
            };
            assert_eq!(error, told);
            assert!(error.to_string().contains(&format!("write {plain:?}")), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(ServerAddress::parse_list(" , "), Err(AddressError::Empty));
        assert_eq!(ServerAddress::parse("host"), Err(AddressError::NoPort("host".into())));
        assert_eq!(ServerAddress::parse("::1"), Err(AddressError::NoPort("::1".into())));
        assert_eq!(ServerAddress::parse(":7"), Err(AddressError::NoHost(":7".into())));
        assert_eq!(ServerAddress::parse("h:0"), Err(AddressError::BadPort("h:0".into())));
        assert_eq!(
            ServerAddress::parse("h:70000"),
            Err(AddressError::BadPort("h:70000".into()))
        );
        assert!(ServerAddress::parse("[::1]:80").is_ok());
    }
}
