//! A segment store: requests to it, and their replies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_pravega::{CallFailure, ClientConfig, CloseReason, Connection, Event, Refused, Reply, Request, Violation};
use sbp_transport::{Application, Descriptors};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::error::{PravegaError, PravegaErrorKind};
use crate::calls::{self, Peer};

/// How often a request that changes nothing, or was not sent, is sent at most.
const ATTEMPTS: usize = 3;

type Call = calls::Call<StorePeer>;
type Command = calls::Command<StorePeer>;
type Shared = calls::Shared<StorePeer>;

/// A segment store, to be asked.
#[derive(Debug)]
struct StorePeer(ClientConfig);

/// What is asked.
#[derive(Debug)]
struct Asked {
    request: Request,
    /// The connection that it has to be asked over; `None`: any.
    over: Option<u64>,
}

/// How a call ended.
#[derive(Debug)]
enum Ended {
    /// With a reply, over the connection with this number.
    Replied(Reply, u64),
    /// There is no connection to the server, or none any more.
    Lost { why: String, bytes_sent: bool },
    /// No reply came in time.
    Late(String),
    /// The server broke the protocol before the reply came.
    Broken { kind: PravegaErrorKind, why: String },
    /// The request cannot be sent.
    Unfit(String),
    /// The client was closed before the request was sent.
    Closed,
}

impl Peer for StorePeer {
    type Request = Asked;
    type Ended = Ended;
    type Waiter = oneshot::Sender<Ended>;
    type Connection = StoreConnection;

    fn endpoint(&self, now: Instant) -> Connection {
        Connection::client(self.0, now)
    }

    fn connection(shared: Arc<Shared>, generation: u64) -> StoreConnection {
        StoreConnection {
            shared,
            generation,
            is_greeted: false,
            held: Vec::new(),
            calls: HashMap::new(),
            last: 0,
        }
    }

    fn unsent(why: String) -> Ended {
        Ended::Lost { why, bytes_sent: false }
    }

    fn closed() -> Ended {
        Ended::Closed
    }
}

/// A connection's calls.
#[derive(Debug)]
struct StoreConnection {
    shared: Arc<Shared>,
    generation: u64,
    is_greeted: bool,
    /// Calls that wait for the server's Hello.
    held: Vec<Call>,
    calls: HashMap<u64, Call>,
    last: u64,
}

impl StoreConnection {
    fn start(&mut self, connection: &mut Connection, now: Instant, call: Call) {
        if call.reply.is_closed() {
            return;
        }
        if call.request.over.is_some_and(|over| over != self.generation) {
            return call.tell(Ended::Lost {
                why: String::from("the connection was lost before the request was sent"),
                bytes_sent: false,
            });
        }
        self.last += 1;
        match connection.send(&call.request.request, self.last, now) {
            Ok(()) => drop(self.calls.insert(self.last, call)),
            Err(Refused::Unfit(fault)) => call.tell(Ended::Unfit(fault.to_string())),
            // The next connection takes it.
            Err(_) => self.shared.submit(call),
        }
    }

    fn end(&mut self, user: u64, ended: Ended) {
        if let Some(call) = self.calls.remove(&user) {
            call.tell(ended);
        }
    }

    /// Calls that were never sent: a server that does not greet is none.
    fn give_up_held(&mut self, reason: &CloseReason) {
        for call in std::mem::take(&mut self.held) {
            call.tell(match reason {
                CloseReason::Violation(_) => broken(reason),
                reason => Ended::Lost {
                    why: reason.to_string(),
                    bytes_sent: false,
                },
            });
        }
    }
}

/// How calls end whose server breaks the protocol.
fn broken(reason: &CloseReason) -> Ended {
    let why = match reason {
        CloseReason::Violation(Violation::Content { fault, .. }) => {
            format!("the server's reply cannot be read: {fault}")
        }
        CloseReason::Violation(violation) => violation.to_string(),
        reason => reason.to_string(),
    };
    Ended::Broken {
        kind: PravegaErrorKind::of_close(reason),
        why,
    }
}

impl Application for StoreConnection {
    type Endpoint = Connection;
    type Command = Command;

    fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: Command) {
        match command {
            Command::Call(call) if self.is_greeted => self.start(connection, now, call),
            Command::Call(call) => self.held.push(call),
            Command::Close => sbp_wire::Endpoint::close(connection),
        }
    }

    fn handle_event(&mut self, connection: &mut Connection, now: Instant, event: Event) {
        match event {
            Event::Greeted => {
                self.is_greeted = true;
                self.shared.greeted();
                for call in std::mem::take(&mut self.held) {
                    self.start(connection, now, call);
                }
            }
            Event::Answered { user, reply } => self.end(user, Ended::Replied(reply, self.generation)),
            Event::CallFailed {
                user,
                failure,
                bytes_sent,
            } => {
                let reason = sbp_wire::Endpoint::close_reason(connection);
                let ended = match (failure, reason) {
                    (CallFailure::ConnectionClosed, Some(reason @ CloseReason::Violation(_))) => broken(reason),
                    (CallFailure::ConnectionClosed, _) => Ended::Lost {
                        why: String::from("the connection was lost before the reply came"),
                        bytes_sent,
                    },
                    (failure, _) => Ended::Late(failure.to_string()),
                };
                self.end(user, ended);
            }
            Event::Closing { reason } => {
                self.shared.drains(self.generation, &reason);
                self.give_up_held(&reason);
            }
            _ => {}
        }
    }

    fn finish_turn(&mut self, _: &mut Connection, _: Instant) {}

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.give_up_held(reason);
    }
}

/// A segment store; clones share its connection.
#[derive(Debug, Clone)]
pub(super) struct Store(Arc<Shared>);

impl Store {
    pub(super) fn new(
        address: &str,
        connect_timeout: Duration,
        client: ClientConfig,
        sockets: Arc<Descriptors>,
        runtime: Handle,
    ) -> Self {
        Self(Shared::new(
            address,
            connect_timeout,
            StorePeer(client),
            sockets,
            runtime,
        ))
    }

    pub(super) fn address(&self) -> String {
        self.0.name()
    }

    /// Asks what changes nothing.
    pub(super) async fn ask(&self, request: Request) -> Result<Reply, PravegaError> {
        self.ask_numbered(request).await.map(|(reply, _)| reply)
    }

    /// The same, with the number of the connection that it was asked over.
    pub(super) async fn ask_numbered(&self, request: Request) -> Result<(Reply, u64), PravegaError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let asked = Asked {
                request: request.clone(),
                over: None,
            };
            match self.call(asked).await {
                // Only a connection that was lost is worth another one at once: one that was not made is not made now either.
                Ok(Ended::Lost { bytes_sent: true, .. }) if attempts < ATTEMPTS => {}
                ended => return self.replied(ended, true),
            }
        }
    }

    /// Asks what changes something, once; over the connection with this number, if there is one.
    pub(super) async fn change(&self, request: Request, over: Option<u64>) -> Result<Reply, PravegaError> {
        let ended = self.call(Asked { request, over }).await;
        self.replied(ended, false).map(|(reply, _)| reply)
    }

    /// `None`: the runtime has ended, and with it the connection.
    async fn call(&self, request: Asked) -> Result<Ended, oneshot::error::RecvError> {
        let (reply, ended) = oneshot::channel();
        self.0.submit(Call { request, reply });
        ended.await
    }

    fn replied(
        &self,
        ended: Result<Ended, oneshot::error::RecvError>,
        changes_nothing: bool,
    ) -> Result<(Reply, u64), PravegaError> {
        let (error, bytes_sent) = match ended {
            Ok(Ended::Replied(reply, over)) => return Ok((reply, over)),
            Ok(Ended::Lost { why, bytes_sent }) => (PravegaError::new(PravegaErrorKind::Lost, why), bytes_sent),
            Ok(Ended::Late(why)) => (PravegaError::new(PravegaErrorKind::Lost, why).late(), true),
            Ok(Ended::Broken { kind, why }) => (PravegaError::new(kind, why), true),
            Ok(Ended::Unfit(why)) => (PravegaError::new(PravegaErrorKind::Limit, why), false),
            Ok(Ended::Closed) => (closed(), false),
            Err(_) => (closed(), true),
        };
        let error = error.at(&self.address());
        Err(match bytes_sent && !changes_nothing {
            true => error.perhaps_done(),
            false => error,
        })
    }

    pub(super) fn close(&self) {
        self.0.close();
    }

    pub(super) async fn wait_closed(&self) {
        self.0.wait_closed().await;
    }
}

pub(super) fn closed() -> PravegaError {
    PravegaError::new(PravegaErrorKind::Lost, "the client was closed").for_good()
}
