//! A service, as its client's users see it.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_locks::Mutex;
use sbp_seastar::{ClientConfig, Codec, Connection};
use sbp_transport::{Descriptors, Link, Mailbox, drive, mailbox};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use super::batch::{SinkReply, Submission};
use super::connection::{Answer, Ask, Asked, Call, CallAgain, Caller, Command, Failed, Parent, RpcPeer, Shared};
use super::error::{SeastarError, SeastarErrorKind};
use super::stream::{Stream, StreamCommand, StreamConnection};

/// How often a call is handed to another connection that was certainly not sent over the one before.
const ATTEMPTS: usize = 3;
/// Sockets that are remembered: that of the connection, those that end, and those of streams.
const SOCKETS: usize = 1_024;

/// How a service is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcConfig {
    /// How long dialling may take.
    pub connect_timeout: Duration,
    /// How long the service may take to negotiate.
    pub negotiation_timeout: Duration,
    /// The ways to compress that it is offered, the best first.
    pub codecs: Vec<Codec>,
    /// The isolation cookie, by which it may choose how it schedules the connection.
    pub isolation: Option<Bytes>,
}

impl Default for RpcConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            negotiation_timeout: Duration::from_secs(10),
            codecs: Vec::new(),
            isolation: None,
        }
    }
}

/// A client of one service; clones share its connection. It connects when there is something to say, and again when its
/// connection is lost.
#[derive(Debug, Clone)]
pub struct Rpc {
    shared: Arc<Shared>,
    streams: Arc<Streams>,
}

/// The streams of a client.
#[derive(Debug)]
struct Streams {
    sockets: Arc<Descriptors>,
    /// `None`: the client was closed.
    open: Mutex<Option<Vec<Open>>>,
}

/// A stream's connection, and the task that it runs in.
#[derive(Debug)]
struct Open {
    mailbox: Mailbox<StreamCommand>,
    task: JoinHandle<()>,
}

impl Rpc {
    /// A client of the service at `address`, which is `host:port`. Its tasks run on `runtime`.
    #[must_use]
    pub fn new(address: &str, config: RpcConfig, runtime: Handle) -> Self {
        let sockets = Descriptors::new(SOCKETS);
        let client = ClientConfig {
            codecs: config.codecs,
            isolation: config.isolation,
            parent: None,
            negotiation: config.negotiation_timeout,
        };
        let shared = Shared::new(
            address,
            config.connect_timeout,
            RpcPeer(client),
            Arc::clone(&sockets),
            runtime,
        );
        let streams = Arc::new(Streams {
            sockets,
            open: Mutex::new(Some(Vec::new())),
        });
        Self { shared, streams }
    }

    /// Where the service is.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.name()
    }

    /// Whether there is a connection, now and from now on. There is none before the first call.
    #[must_use]
    pub fn watch_connected(&self) -> watch::Receiver<bool> {
        self.shared.watch_connected()
    }

    /// The descriptors of its sockets. Takes no lock: a forked child closes them.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.streams.sockets.snapshot()
    }

    /// Connects, and waits until the service has negotiated.
    ///
    /// # Errors
    /// [`SeastarError`]: there is no service.
    pub async fn connect(&self) -> Result<(), SeastarError> {
        self.parent().await.map(drop)
    }

    /// Calls a verb, and waits for what it returns. A service may never answer: `deadline` is when this call gives up, and what
    /// the service is told where it wants to know.
    ///
    /// # Errors
    /// [`SeastarError`]. Where it is not [certain](SeastarError::is_certain) that nothing was done, the verb's handler may have
    /// run.
    pub async fn call(&self, verb: u64, payload: Bytes, deadline: Instant) -> Result<Bytes, SeastarError> {
        self.measured_call(verb, payload, deadline)
            .await
            .map(|(payload, _)| payload)
    }

    /// As [`Self::call`], with how long the handler took, where the service says so.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn measured_call(
        &self,
        verb: u64,
        payload: Bytes,
        deadline: Instant,
    ) -> Result<(Bytes, Option<Duration>), SeastarError> {
        let ask = Ask::Call {
            verb,
            payload,
            deadline,
        };
        match self
            .ask(ask, Some(deadline))
            .await
            .map_err(|error| error.of_verb(verb))?
        {
            Answer::Reply { payload, handler } => Ok((payload, handler)),
            _ => Err(self.odd()),
        }
    }

    /// Calls a verb that returns nothing, and waits until the call is written. What the service does with it is not known.
    ///
    /// # Errors
    /// [`SeastarError`], as of [`Self::call`].
    pub async fn send(&self, verb: u64, payload: Bytes, deadline: Instant) -> Result<(), SeastarError> {
        let ask = Ask::Send { verb, payload };
        let sent = self.ask(ask, Some(deadline)).await;
        sent.map(drop).map_err(|error| error.of_verb(verb))
    }

    /// Makes calls, as [`Self::call`] does, with one hand-over for all of them, and leaves `calls` empty. The replies of each turn
    /// of the connection are delivered together.
    pub fn submit(&self, calls: &mut Vec<Submission>) {
        let again: Arc<dyn CallAgain> = Arc::new(self.clone());
        let command = |call: Submission| {
            let Submission {
                verb,
                payload,
                deadline,
                reply,
            } = call;
            let ask = Ask::Call {
                verb,
                payload,
                deadline,
            };
            let again = Arc::clone(&again);
            Command::Call(Call {
                request: Asked { ask, is_sent: None },
                reply: Caller::Sink { reply, again },
            })
        };
        let mut commands = calls.drain(..).map(command).collect();
        self.shared.post_all(&mut commands);
        for command in commands {
            if let Command::Call(Call { request, reply }) = command
                && let Caller::Sink { reply, .. } = reply
            {
                self.call_again(request.ask, reply);
            }
        }
    }

    async fn parent(&self) -> Result<Parent, SeastarError> {
        match self.ask(Ask::Parent, None).await? {
            Answer::Parent(parent) => Ok(parent),
            _ => Err(self.odd()),
        }
    }

    /// Opens a stream: a second connection that belongs to the first. A verb is then given its [id](Stream::id). It ends when
    /// the first connection does.
    ///
    /// # Errors
    /// [`SeastarError`]: the service has no streams, or cannot be reached.
    pub async fn stream(&self) -> Result<Stream, SeastarError> {
        let Parent { negotiated, mut ended } = self.parent().await?;
        let Some(parent) = negotiated.connection_id else {
            let what = "the service gives connections no id: it has no streams";
            return Err(self.error(SeastarErrorKind::Peer, what).for_good());
        };
        let channel = &self.shared.channel;
        let dialled = Link::dial(&self.address(), channel.links()).await;
        let link = dialled.map_err(|error| self.error(SeastarErrorKind::Lost, error.to_string()))?;
        let config = ClientConfig {
            parent: Some(parent),
            ..self.shared.peer.0.clone()
        };
        let (mailbox, inbox) = mailbox();
        let (opened, waits) = oneshot::channel();
        let endpoint = Connection::client(config, now());
        let driving = drive(link, endpoint, StreamConnection::new(opened), inbox);
        let aborts = mailbox.clone();
        {
            let mut open = self.streams.open.lock();
            let Some(open) = open.as_mut() else {
                return Err(SeastarError::closed().at(self.address()));
            };
            open.retain(|open| !open.task.is_finished());
            let task = channel.runtime().spawn(async move {
                let mut driving = std::pin::pin!(driving);
                tokio::select! {
                    _ = &mut driving => return,
                    // An error: the connection that it belongs to is over.
                    _ = ended.changed() => drop(aborts.post(StreamCommand::Abort)),
                }
                driving.await;
            });
            let mailbox = mailbox.clone();
            open.push(Open { mailbox, task });
        }
        // The task has ended with the runtime.
        let shared = waits.await.unwrap_or_else(|_| Err(SeastarError::closed()));
        let shared = shared.map_err(|error| error.at(self.address()))?;
        Ok(Stream::new(shared, move |command| mailbox.post(command).is_ok()))
    }

    /// Ends the connections, and waits until they are over.
    pub async fn close(&self) {
        self.shared.close();
        let open = self.streams.open.lock().take();
        for Open { mailbox, task } in open.into_iter().flatten() {
            // It may be over.
            drop(mailbox.post(StreamCommand::Abort));
            drop(task.await);
        }
        self.shared.wait_closed().await;
    }

    /// Asks a connection, and another one where it is certain that nothing was sent over the one before.
    async fn ask(&self, ask: Ask, deadline: Option<Instant>) -> Result<Answer, SeastarError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (reply, answer) = oneshot::channel();
            let is_sent = Arc::new(AtomicBool::new(false));
            let request = Asked {
                ask: ask.clone(),
                is_sent: Some(Arc::clone(&is_sent)),
            };
            let reply = Caller::Future(reply);
            let call = Call { request, reply };
            self.shared.submit(call);
            let answered = match deadline {
                None => answer.await,
                Some(deadline) => match timeout_at(deadline.into(), answer).await {
                    Ok(answered) => answered,
                    Err(_) => return Err(self.too_late(is_sent.load(Ordering::Acquire))),
                },
            };
            let failed = match answered {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failed)) => failed,
                // A call without time is not sent; or the runtime has ended, and with it the connection.
                Err(_) if deadline.is_some_and(|deadline| deadline <= now()) => {
                    return Err(self.too_late(is_sent.load(Ordering::Acquire)));
                }
                Err(_) => return Err(SeastarError::closed().perhaps_done().at(self.address())),
            };
            match failed {
                Failed::Unsent(_) if attempts < ATTEMPTS => {}
                Failed::Unsent(error) | Failed::For(error) => return Err(error.at(self.address())),
            }
        }
    }

    fn too_late(&self, is_sent: bool) -> SeastarError {
        match is_sent {
            true => {
                let error = self.error(SeastarErrorKind::Lost, "no reply came in time");
                error.perhaps_done().timed_out()
            }
            false => {
                let error = self.error(SeastarErrorKind::Lost, "there was no connection in time");
                error.timed_out()
            }
        }
    }

    fn odd(&self) -> SeastarError {
        self.error(SeastarErrorKind::Peer, "the service answers something else")
    }

    fn error(&self, kind: SeastarErrorKind, what: impl Into<String>) -> SeastarError {
        SeastarError::new(kind, what).at(self.address())
    }
}

impl CallAgain for Rpc {
    fn call_again(&self, ask: Ask, reply: SinkReply) {
        let Ask::Call {
            verb,
            payload,
            deadline,
        } = ask
        else {
            return;
        };
        let rpc = self.clone();
        let calling = async move { reply.send(rpc.call(verb, payload, deadline).await) };
        self.shared.channel.runtime().spawn(calling);
    }

    fn explained(&self, ask: &Ask, error: SeastarError) -> SeastarError {
        let error = match error.is_timeout() {
            true => self.too_late(true),
            false => error.at(self.address()),
        };
        match ask {
            Ask::Call { verb, .. } | Ask::Send { verb, .. } => error.of_verb(*verb),
            Ask::Parent => error,
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
