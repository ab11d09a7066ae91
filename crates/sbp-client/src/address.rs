//! Server addresses as users write them.

use std::fmt;

use sbp_messages::check_address;

/// One server: a host name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress(String);

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
    /// It is written as an URL.
    #[error("server address {address:?} begins with {scheme:?}; leave that out and write {plain:?}")]
    Scheme {
        /// What was given.
        address: String,
        /// What does not belong there.
        scheme: String,
        /// What was probably meant.
        plain: String,
    },
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
        if let Some((scheme, rest)) = text.split_once("://") {
            return Err(AddressError::Scheme {
                address: text.to_owned(),
                scheme: format!("{scheme}://"),
                plain: rest.split('/').next().unwrap_or_default().to_owned(),
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

    /// Reads several, separated by commas; repeated ones are kept once.
    ///
    /// # Errors
    ///
    /// [`AddressError`] for the first that cannot be read, or when there is none.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, AddressError> {
        let mut servers = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let server = Self::parse(part)?;
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        if servers.is_empty() {
            Err(AddressError::Empty)
        } else {
            Ok(servers)
        }
    }

    /// The address as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressError, ServerAddress};

    #[test]
    fn lists_are_split_trimmed_and_without_repeats() {
        let servers = ServerAddress::parse_list(" a:1, b:2,a:1 ,").unwrap();
        assert_eq!(
            servers.iter().map(ServerAddress::as_str).collect::<Vec<_>>(),
            ["a:1", "b:2"]
        );
    }

    #[test]
    fn an_url_is_told_from_an_address() {
        for (text, scheme, plain) in [
            ("http://127.0.0.1:12378", "http://", "127.0.0.1:12378"),
            ("PLAINTEXT://broker:9092", "PLAINTEXT://", "broker:9092"),
            ("sbp://h:1/stream", "sbp://", "h:1"),
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
