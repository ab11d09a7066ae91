//! An issuer's web server: the keys of OAuth tokens at an address, over TLS or without.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sbp_server::{JwtConfig, KeySource, ServerTlsFiles};
use sbp_transport::{Descriptors, Link, ServerTls, Socket, listen};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

use sbp_e2e::certificates::Issued;
use sbp_e2e::issuer::{AUDIENCE, ISSUER, SigningKey};

/// After which time the keys are fetched again: a tenth of it has to pass between two times.
pub(crate) const REFRESH: Duration = Duration::from_secs(3);

/// The server. Dropping it ends it; nobody listens at its address then.
#[derive(Debug)]
pub(crate) struct KeyServer {
    url: String,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    tls: Option<Arc<ServerTls>>,
    /// What stands in front of the body, and the body.
    answer: Mutex<(String, String)>,
    asked: AtomicUsize,
}

impl KeyServer {
    /// A server on loopback with the public halves of these keys; with a certificate it speaks TLS.
    pub(crate) fn new(keys: &[&SigningKey], certificate: Option<&Issued>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let tls = certificate.map(|issued| {
            let files = ServerTlsFiles {
                cert: issued.cert.clone(),
                key: issued.key.clone(),
                client_ca: None,
            };
            ServerTls::speaking(b"http/1.1", files).unwrap()
        });
        let listener = {
            let _inside = runtime.enter();
            listen("127.0.0.1:0").unwrap()
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/keys", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            tls,
            answer: Mutex::default(),
            asked: AtomicUsize::new(0),
        });
        runtime.spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { shared.answer(Socket::new(stream, &Descriptors::new(1))).await });
                }
            }
        });
        let server = Self {
            url,
            shared,
            runtime: Some(runtime),
        };
        server.publish(keys);
        server
    }

    /// Has other keys from now on.
    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        let keys: Vec<_> = keys.iter().map(|key| &key.public).collect();
        self.say("200 OK", &json!({ "keys": keys }).to_string());
    }

    /// Says something else.
    pub(crate) fn say(&self, status: &str, body: &str) {
        *self.shared.answer.lock().unwrap() = (status.to_owned(), body.to_owned());
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// What a server is told of it.
    pub(crate) fn config(&self, ca: Option<PathBuf>) -> JwtConfig {
        JwtConfig {
            keys: KeySource::Url {
                url: self.url.clone(),
                ca,
                refresh: REFRESH,
            },
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
        }
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    async fn answer(&self, socket: Socket) {
        let mut link = match &self.tls {
            None => Link::plain(socket),
            Some(tls) => match Link::accept(socket, tls, Duration::from_secs(10)).await {
                Ok(accepted) => accepted.link,
                // Somebody who does not trust it.
                Err(_) => return,
            },
        };
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            match link.read_buf(&mut asked).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
        assert!(
            asked.starts_with(b"GET /keys HTTP/1.1\r\n"),
            "{}",
            String::from_utf8_lossy(&asked)
        );
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (status, body) = self.answer.lock().unwrap().clone();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        // It may have gone.
        let _ = link.write_all(format!("{head}{body}").as_bytes()).await;
        let _ = link.shutdown().await;
    }
}
