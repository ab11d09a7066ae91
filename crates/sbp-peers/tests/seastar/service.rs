//! A service for tests: verbs as those of the service that the vectors were taken from.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sbp_peers::seastar::{
    Codec, Exception, Handler, HostConfig, Incoming, Rpc, RpcConfig, RpcServer, ServerConfig, Signature, Value,
    reply_all,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Returns its arguments.
pub(crate) const ECHO: u64 = 1;
/// `i32 i32` returns `i32`: their sum.
pub(crate) const ADD: u64 = 2;
/// Fails with "boom".
pub(crate) const BOOM: u64 = 3;
/// Returns nothing, and remembers its arguments.
pub(crate) const NOTE: u64 = 4;
/// `stream`: sends back what comes on it; returns the stream.
pub(crate) const ECHO_STREAM: u64 = 5;
/// Never answers.
pub(crate) const SILENT: u64 = 6;
/// `stream`: takes one message of it, then cuts it.
pub(crate) const CUT_STREAM: u64 = 7;
/// Returns the isolation cookie.
pub(crate) const WHO: u64 = 8;
/// Waits until ten calls of it are there, and answers all of them at once.
pub(crate) const TEN: u64 = 9;

/// What calls left behind.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) noted: Mutex<Vec<Bytes>>,
    /// Calls that have no answer, for as long as the service runs.
    silent: Mutex<Vec<Incoming>>,
    ten: Mutex<Vec<Incoming>>,
}

struct Service {
    seen: Arc<Seen>,
    noted: UnboundedSender<()>,
}

impl Handler for Service {
    fn call(&self, incoming: Incoming) {
        let payload = incoming.payload.clone();
        match incoming.verb {
            ECHO => incoming.reply(Ok(payload)),
            ADD => {
                let signature: Signature = "i32 i32".parse().expect("a signature");
                let reply = match signature.decode(&payload).as_deref() {
                    Ok([Value::Signed(one), Value::Signed(two)]) => {
                        let sum = i32::try_from(one + two).expect("a small number");
                        Ok(Bytes::copy_from_slice(&sum.to_le_bytes()))
                    }
                    other => Err(Exception::user(format!("{other:?}"))),
                };
                incoming.reply(reply);
            }
            BOOM => incoming.reply(Err(Exception::user("boom"))),
            NOTE => {
                self.seen.noted.lock().unwrap().push(payload);
                let _ = self.noted.send(());
            }
            ECHO_STREAM | CUT_STREAM => {
                let id: [u8; 8] = payload[..].try_into().expect("an id");
                let Some(stream) = incoming.stream(u64::from_le_bytes(id)) else {
                    return incoming.reply(Err(Exception::user("no such stream")));
                };
                let is_cut = incoming.verb == CUT_STREAM;
                incoming.reply(Ok(payload));
                tokio::spawn(async move {
                    while let Ok(Some(message)) = stream.next().await {
                        if is_cut {
                            return;
                        }
                        if stream.send(message).await.is_err() {
                            return;
                        }
                    }
                    let _ = stream.end().await;
                });
            }
            SILENT => self.seen.silent.lock().unwrap().push(incoming),
            WHO => {
                let cookie = incoming.client().isolation.clone().unwrap_or_default();
                incoming.reply(Ok(cookie));
            }
            TEN => {
                let mut ten = self.seen.ten.lock().unwrap();
                ten.push(incoming);
                if ten.len() == 10 {
                    reply_all(ten.drain(..).map(|incoming| {
                        let payload = incoming.payload.clone();
                        (incoming, Ok(payload))
                    }));
                }
            }
            verb => incoming.reply(Err(Exception::UnknownVerb(verb))),
        }
    }
}

/// A service that runs.
pub(crate) struct Running {
    pub(crate) server: RpcServer,
    pub(crate) seen: Arc<Seen>,
    pub(crate) noted: tokio::sync::mpsc::UnboundedReceiver<()>,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    pub(crate) fn start_at(address: &str) -> Self {
        let (sender, noted) = unbounded_channel();
        let seen = Arc::new(Seen::default());
        let handler = Arc::new(Service {
            seen: Arc::clone(&seen),
            noted: sender,
        });
        let config = HostConfig::new(address);
        let server =
            RpcServer::start(handler, &config, ServerConfig::default(), &Handle::current()).expect("it listens");
        Self { server, seen, noted }
    }

    pub(crate) fn address(&self) -> String {
        self.server.address().to_string()
    }

    pub(crate) fn client(&self, codecs: &[Codec]) -> Rpc {
        client(&self.address(), codecs)
    }
}

pub(crate) fn client(address: &str, codecs: &[Codec]) -> Rpc {
    let config = RpcConfig {
        codecs: codecs.to_vec(),
        isolation: Some(Bytes::from_static(b"ck1")),
        negotiation_timeout: Duration::from_secs(20),
        ..RpcConfig::default()
    };
    Rpc::new(address, config, Handle::current())
}
