//! Calls of clients, and those who answer them.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use sbp_locks::Mutex;
use sbp_seastar::{Call, CloseReason, Connection, Event, Exception, Negotiated, Refused};
use sbp_transport::{Application, Mailbox};
use sbp_wire::Endpoint;

use super::stream::{Stream, StreamCommand, StreamShared, StreamSide};

/// Streams that one client may have at once.
const STREAMS: usize = 1_024;

/// Answers calls.
pub trait Handler: Send + Sync + 'static {
    /// A client calls. Runs inside the connection's task and must not block: what takes time goes elsewhere, with the call.
    fn call(&self, incoming: Incoming);

    /// A client is gone that may have called.
    fn gone(&self, client: &ClientInfo) {
        let _ = client;
    }
}

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// Where it is.
    pub address: SocketAddr,
    /// The id of its connection.
    pub connection_id: u64,
    /// Its isolation cookie.
    pub isolation: Option<Bytes>,
}

/// What a connection of a server is told.
#[derive(Debug)]
pub(super) enum ServerCommand {
    Reply(Call, Result<Bytes, Exception>),
    Forget(Call),
    Stream(StreamCommand),
    End,
}

/// A call of a client. Dropped, it has no reply, as verbs that return nothing have none.
pub struct Incoming {
    /// What is to be done.
    pub verb: u64,
    /// The arguments.
    pub payload: Bytes,
    /// When the client stops waiting, where it says so.
    pub due: Option<Instant>,
    client: Arc<ClientInfo>,
    /// `None`: it was answered.
    call: Option<Call>,
    mailbox: Mailbox<ServerCommand>,
    clients: Arc<Clients>,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("verb", &self.verb)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Incoming {
    /// Who calls.
    #[must_use]
    pub fn client(&self) -> &Arc<ClientInfo> {
        &self.client
    }

    /// Whether the client has stopped waiting.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Answers it: with what the verb returns, or an exception.
    pub fn reply(mut self, reply: Result<Bytes, Exception>) {
        if let Some(call) = self.call.take() {
            // The client may have gone.
            drop(self.mailbox.post(ServerCommand::Reply(call, reply)));
        }
    }

    /// The stream with this id of the same client, as it stands in arguments. It is handed out once.
    #[must_use]
    pub fn stream(&self, id: u64) -> Option<Stream> {
        self.clients.take_stream(self.client.connection_id, id)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            drop(self.mailbox.post(ServerCommand::Forget(call)));
        }
    }
}

/// Answers several calls, those of one client in one go.
pub fn reply_all(replies: impl IntoIterator<Item = (Incoming, Result<Bytes, Exception>)>) {
    let mut by_client: HashMap<u64, (Mailbox<ServerCommand>, Vec<ServerCommand>)> = HashMap::new();
    for (mut incoming, reply) in replies {
        let Some(call) = incoming.call.take() else { continue };
        let id = incoming.client.connection_id;
        let (_, commands) = by_client
            .entry(id)
            .or_insert_with(|| (incoming.mailbox.clone(), Vec::new()));
        commands.push(ServerCommand::Reply(call, reply));
    }
    for (mailbox, mut commands) in by_client.into_values() {
        // The client may have gone.
        mailbox.post_all(&mut commands);
    }
}

/// The clients of a server that have negotiated, and their streams that no call has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<HashMap<u64, Streams>>);

/// The streams of a client, by their ids.
#[derive(Debug, Default)]
struct Streams(HashMap<u64, (Mailbox<ServerCommand>, Option<Stream>)>);

impl Clients {
    fn enter(&self, id: u64) {
        self.0.lock().insert(id, Streams::default());
    }

    /// A client is gone, and its streams with it.
    fn leave(&self, id: u64) {
        let streams = self.0.lock().remove(&id);
        for (mailbox, _) in streams.unwrap_or_default().0.into_values() {
            // It may have ended.
            drop(mailbox.post(ServerCommand::Stream(StreamCommand::Abort)));
        }
    }

    /// Lets a stream in, if there is its parent.
    fn add_stream(&self, parent: u64, id: u64, mailbox: Mailbox<ServerCommand>, stream: Stream) -> bool {
        let mut clients = self.0.lock();
        let Some(streams) = clients.get_mut(&parent).filter(|streams| streams.0.len() < STREAMS) else {
            // What it holds posts to its own connection, which is this one.
            drop(clients);
            return false;
        };
        streams.0.insert(id, (mailbox, Some(stream)));
        true
    }

    fn take_stream(&self, parent: u64, id: u64) -> Option<Stream> {
        self.0.lock().get_mut(&parent)?.0.get_mut(&id)?.1.take()
    }

    fn remove_stream(&self, parent: u64, id: u64) {
        let mut clients = self.0.lock();
        let removed = clients.get_mut(&parent).and_then(|streams| streams.0.remove(&id));
        drop(clients);
        drop(removed);
    }
}

/// What a connection turned out to be.
#[derive(Debug)]
enum Kind {
    Unknown,
    Calls(Arc<ClientInfo>),
    Stream {
        parent: u64,
        side: StreamSide,
    },
    /// It was one of these.
    Gone,
}

/// A connection of a client.
pub(super) struct ServerConnection {
    handler: Arc<dyn Handler>,
    clients: Arc<Clients>,
    mailbox: Mailbox<ServerCommand>,
    address: SocketAddr,
    id: u64,
    kind: Kind,
}

impl ServerConnection {
    pub(super) fn new(
        handler: Arc<dyn Handler>,
        clients: Arc<Clients>,
        mailbox: Mailbox<ServerCommand>,
        address: SocketAddr,
        id: u64,
    ) -> Self {
        Self {
            handler,
            clients,
            mailbox,
            address,
            id,
            kind: Kind::Unknown,
        }
    }

    fn negotiated(&mut self, connection: &mut Connection, now: Instant, negotiated: Negotiated) {
        let Some(parent) = negotiated.parent else {
            self.clients.enter(self.id);
            self.kind = Kind::Calls(Arc::new(ClientInfo {
                address: self.address,
                connection_id: self.id,
                isolation: negotiated.isolation,
            }));
            return;
        };
        let shared = StreamShared::new(self.id);
        let mailbox = self.mailbox.clone();
        let stream = Stream::new(Arc::clone(&shared), move |command| {
            mailbox.post(ServerCommand::Stream(command)).is_ok()
        });
        let is_known = self.clients.add_stream(parent, self.id, self.mailbox.clone(), stream);
        if !is_known || connection.admit(now).is_err() {
            tracing::debug!(parent, "a stream whose parent there is not is closed");
            return connection.close();
        }
        let mut side = StreamSide::new(shared);
        side.ready(connection, now);
        self.kind = Kind::Stream { parent, side };
    }

    fn leave(&mut self) {
        match std::mem::replace(&mut self.kind, Kind::Gone) {
            Kind::Unknown | Kind::Gone => {}
            Kind::Calls(client) => {
                self.clients.leave(self.id);
                self.handler.gone(&client);
            }
            Kind::Stream { parent, .. } => self.clients.remove_stream(parent, self.id),
        }
    }
}

impl Application for ServerConnection {
    type Endpoint = Connection;
    type Command = ServerCommand;

    fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: ServerCommand) {
        match command {
            ServerCommand::Reply(call, reply) => match connection.reply(call, reply.as_ref(), now) {
                // The client is gone.
                Ok(()) | Err(Refused::Closed | Refused::UnknownCall) => {}
                Err(error) => {
                    tracing::warn!(%error, "a reply cannot be sent");
                    let exception = Exception::user(format!("the reply cannot be sent: {error}"));
                    // It is short.
                    let _ = connection.reply(call, Err(&exception), now);
                }
            },
            ServerCommand::Forget(call) => connection.forget(call),
            ServerCommand::Stream(command) => {
                if let Kind::Stream { side, .. } = &mut self.kind {
                    side.handle_command(connection, now, command);
                }
            }
            ServerCommand::End => {
                // No answer would be sent any more.
                connection.forget_all();
                connection.close();
            }
        }
    }

    fn handle_event(&mut self, connection: &mut Connection, now: Instant, event: Event) {
        match (event, &mut self.kind) {
            (Event::Negotiated(negotiated), _) => self.negotiated(connection, now, negotiated),
            (
                Event::Called {
                    call,
                    verb,
                    payload,
                    due,
                },
                Kind::Calls(client),
            ) => {
                let incoming = Incoming {
                    verb,
                    payload,
                    due,
                    client: Arc::clone(client),
                    call: Some(call),
                    mailbox: self.mailbox.clone(),
                    clients: Arc::clone(&self.clients),
                };
                self.handler.call(incoming);
            }
            (event, kind) => {
                if let Event::Closing { reason } = &event {
                    tracing::debug!(%reason, "the connection of a client of Seastar RPC ends");
                }
                if let Kind::Stream { side, .. } = kind {
                    side.handle_event(connection, now, event);
                } else if matches!(event, Event::Closing { .. }) {
                    self.leave();
                }
            }
        }
    }

    fn finish_turn(&mut self, _: &mut Connection, _: Instant) {}

    fn is_settled(&self) -> bool {
        !matches!(self.kind, Kind::Unknown)
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        if let Kind::Stream { side, .. } = &mut self.kind {
            side.handle_closed(reason);
        }
        self.leave();
    }
}
