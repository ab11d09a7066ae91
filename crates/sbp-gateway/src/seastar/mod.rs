//! Streams as verbs of Seastar RPC: services in C++ append to them and read them with the library that they have.
//!
//! | verb | takes | returns |
//! | --- | --- | --- |
//! | 1001 append | `str` stream, records, optionally 16 bytes writer, `i64` epoch, `i64` sequence | `i64` base, `i64` next, `bool` duplicate |
//! | 1002 append, no reply | the same | |
//! | 1003 fetch | `str` stream, `i64` offset (-1 latest, -2 earliest), `u32` max bytes, `u32` wait ms | `i64` base, `i64` next, `i64` end, records |
//! | 1004 positions | `str` stream | `i64` earliest, `i64` latest |
//! | 1005 create | `str` stream | `i64` its id |
//! | 1006 tail | `str` stream, `i64` offset, `stream` | the stream, on which `i64` base and records come |
//! | 1007 ingest | `str` stream, `stream` | the stream: records, each answered with `i64` base, `i64` next |
//!
//! A record is `i64` milliseconds since 1970 (-1: now), `bytes` key and `bytes` value; a length of 0xffffffff is null.

mod append;
mod coding;
mod read;
mod refusal;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use bytes::Bytes;
use sbp_client::{Client, ClientError};
use sbp_locks::Mutex;
use sbp_messages::Stream;
use sbp_peers::seastar::{ClientInfo, Exception, Handler, Incoming, RpcServer, ServerConfig};
pub use sbp_peers::seastar::{HostConfig as SeastarConfig, HostError as SeastarError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::refusal::Failed;
pub use self::refusal::outcome;
use crate::appends::Appends;
use crate::watch::Watch;

const APPEND: u64 = 1001;
const APPEND_SILENTLY: u64 = 1002;
const FETCH: u64 = 1003;
const POSITIONS: u64 = 1004;
const CREATE: u64 = 1005;
const TAIL: u64 = 1006;
const INGEST: u64 = 1007;

/// A server of these verbs.
#[derive(Debug)]
pub struct SeastarServer(RpcServer);

impl SeastarServer {
    /// Serves clients from the streams of the service that `client` is one of. Everything runs in the client's runtime.
    ///
    /// # Errors
    /// [`SeastarError`].
    pub fn start(client: &Client, config: &SeastarConfig) -> Result<Self, SeastarError> {
        let _inside = client.runtime().enter();
        let verbs = Verbs {
            shared: Arc::new(Shared {
                appends: Appends::new(client.clone()),
                watch: Watch::new(client.clone()),
                client: client.clone(),
            }),
            appending: Mutex::new(HashMap::new()),
        };
        RpcServer::start(Arc::new(verbs), config, ServerConfig::default(), client.runtime()).map(Self)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Accepts nobody more, and ends all connections. What was handed over to the service is stored or not, as it would be
    /// were a connection lost.
    pub async fn close(&self) {
        self.0.close().await;
    }

    /// The descriptors of its sockets. Takes no lock: a forked child closes them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.0.descriptors().snapshot()
    }
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    client: Client,
    appends: Appends,
    watch: Watch,
}

/// Answers calls.
#[derive(Debug)]
struct Verbs {
    shared: Arc<Shared>,
    /// Takes the appends of a client, one after the other; made for the first.
    appending: Mutex<HashMap<u64, UnboundedSender<Incoming>>>,
}

impl Handler for Verbs {
    fn call(&self, incoming: Incoming) {
        let shared = Arc::clone(&self.shared);
        let runtime = self.shared.client.runtime();
        match incoming.verb {
            APPEND | APPEND_SILENTLY => {
                let mut appending = self.appending.lock();
                let sender = appending.entry(incoming.client().connection_id).or_insert_with(|| {
                    let (sender, calls) = unbounded_channel();
                    runtime.spawn(append::append_all(shared, calls));
                    sender
                });
                // The task ends when this is dropped.
                drop(sender.send(incoming));
            }
            FETCH | POSITIONS | CREATE | TAIL | INGEST => {
                runtime.spawn(async move {
                    let reply = shared.answer(&incoming).await;
                    incoming.reply(reply.map_err(Failed::exception));
                });
            }
            verb => incoming.reply(Err(Exception::UnknownVerb(verb))),
        }
    }

    fn gone(&self, client: &ClientInfo) {
        let sender = self.appending.lock().remove(&client.connection_id);
        drop(sender);
    }
}

impl Shared {
    async fn answer(self: &Arc<Self>, incoming: &Incoming) -> Result<Bytes, Failed> {
        let arguments = incoming.payload.clone();
        match incoming.verb {
            FETCH => self.fetch(arguments).await,
            POSITIONS => self.positions(arguments).await,
            CREATE => self.create(arguments).await,
            TAIL => self.tail(arguments, incoming).await,
            _ => self.ingest(arguments, incoming).await,
        }
    }

    /// The stream with this name.
    async fn stream(&self, name: &str) -> Result<Arc<Stream>, Failed> {
        Ok(self.client.find_stream(name, None).await?)
    }

    async fn create(&self, mut arguments: Bytes) -> Result<Bytes, Failed> {
        let wanted = Stream {
            name: coding::text(&mut arguments)?,
            ..Stream::default()
        };
        let mut created = self.client.create_streams(vec![wanted], None).await?;
        let created = created
            .pop()
            .unwrap_or_else(|| Err(ClientError::invalid("a stream was made without an answer")))?;
        Ok(Bytes::copy_from_slice(&created.stream_id.0.to_le_bytes()))
    }
}
