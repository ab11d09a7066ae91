//! One question over HTTP/1.1, with TLS or without.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use sbp_transport::{ClientTls, ClientTlsFiles, Descriptors, Link, LinkSettings, is_loopback};
use tokio::time::timeout;

/// What HTTP/1.1 is called inside TLS.
const PROTOCOL: &[u8] = b"http/1.1";

/// Where something is that is asked for over HTTP: `http://host:port/path`, or `https://`.
#[derive(Clone, Debug)]
pub struct HttpUrl {
    /// As it was given.
    text: String,
    is_tls: bool,
    /// `host` or `host:port`, as it stands there.
    host: String,
    /// `host:port`.
    address: String,
    path: String,
}

impl HttpUrl {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("it is no address: {error}"))?;
        let (is_tls, port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err("it begins with neither https:// nor http://".to_owned()),
        };
        let authority = uri.authority().ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("a name and a password in it are not sent".to_owned());
        }
        let port = authority.port_u16().unwrap_or(port);
        Ok(Self {
            text: text.to_owned(),
            is_tls,
            host: authority.as_str().to_owned(),
            address: format!("{}:{port}", authority.host()),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// Whether nobody on the way can change what is answered: it comes over TLS, or from this machine.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.is_tls || is_loopback(&self.address)
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A way to ask, whom to trust included.
#[derive(Clone, Debug)]
pub struct HttpAsker {
    settings: LinkSettings,
    longest: usize,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// 200: as one hopes.
    pub status: StatusCode,
    /// The whole of it.
    pub body: Bytes,
}

impl HttpAsker {
    /// Reads the files of `tls`, where `url` is asked over TLS. An answer takes `within`, with all that it needs, and has
    /// `longest` bytes at most.
    ///
    /// # Errors
    ///
    /// The files cannot be used.
    pub fn new(url: &HttpUrl, tls: ClientTlsFiles, within: Duration, longest: usize) -> Result<Self, String> {
        let tls = url.is_tls.then(|| ClientTls::speaking(PROTOCOL, tls)).transpose();
        let settings = LinkSettings {
            timeout: within,
            tls: tls.map_err(|error| error.to_string())?,
            sockets: Descriptors::new(1),
        };
        Ok(Self { settings, longest })
    }

    /// Asks, with a bearer token if there is one. A redirection is an answer as any other: it is not followed.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn get(&self, url: &HttpUrl, token: &str) -> Result<HttpAnswer, String> {
        let within = self.settings.timeout;
        match timeout(within, self.ask(url, token)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer in {within:?}")),
        }
    }

    async fn ask(&self, url: &HttpUrl, token: &str) -> Result<HttpAnswer, Box<dyn Error + Send + Sync>> {
        let link = Link::dial(&url.address, &self.settings).await?;
        let (mut sender, connection) = handshake(TokioIo::new(link)).await?;
        let mut request = Request::get(&url.path).header(HOST, &url.host);
        if !token.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let asked = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), self.longest).collect().await?;
            Ok(HttpAnswer {
                status,
                body: body.to_bytes(),
            })
        };
        // The connection moves the bytes while the answer is waited for.
        let (answer, _ended) = tokio::join!(asked, connection);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let parts = |text: &str| {
            let url = HttpUrl::parse(text).expect(text);
            (url.address.clone(), url.path.clone(), url.is_safe())
        };
        let told = |address: &str, path: &str, is_safe| (address.to_owned(), path.to_owned(), is_safe);
        assert_eq!(
            parts("https://login.example/keys?a=b"),
            told("login.example:443", "/keys?a=b", true)
        );
        assert_eq!(
            parts("https://login.example:8443"),
            told("login.example:8443", "/", true)
        );
        assert_eq!(parts("http://127.0.0.1:8080/k"), told("127.0.0.1:8080", "/k", true));
        assert_eq!(parts("http://[::1]/k"), told("[::1]:80", "/k", true));
        assert_eq!(parts("http://login.example/k"), told("login.example:80", "/k", false));
        for text in [
            "",
            "login.example/k",
            "ftp://login.example/k",
            "https://",
            "https://a:b@c/",
            "https:///k",
        ] {
            assert!(HttpUrl::parse(text).is_err(), "{text}");
        }
    }
}
