//! One connection of a client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sbp_pravega::{Call, CloseReason, Conditional, Connection, Event, Refused, Request, WriterId, put_event};
use sbp_transport::{Application, Mailbox};
use sbp_types::StreamId;
use sbp_wire::Endpoint;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::Shared;
use super::ahead::Ahead;
use super::append::{Teller, What};
use super::command::Command;
use super::failed::no_such;
use super::pacing::Pacing;

/// The last session of a writer that was set up, of all connections.
static LAST_SESSION: AtomicU64 = AtomicU64::new(0);

/// A connection's requests.
#[derive(Debug)]
pub(super) struct PravegaConnection {
    shared: Arc<Shared>,
    mailbox: Mailbox<Command>,
    /// Questions that are being answered, and the task that takes appends. They end with the connection.
    questions: JoinSet<()>,
    /// Takes appends, one after the other; made for the first.
    appends: Option<UnboundedSender<(Call, Request)>>,
    pacing: Pacing,
    /// What its next reads will want.
    ahead: Arc<Ahead>,
    has_asked: bool,
}

impl PravegaConnection {
    pub(super) fn new(shared: Arc<Shared>, mailbox: Mailbox<Command>) -> Self {
        Self {
            shared,
            mailbox,
            questions: JoinSet::new(),
            appends: None,
            pacing: Pacing::new(),
            ahead: Arc::default(),
            has_asked: false,
        }
    }

    fn request(&mut self, call: Call, request: Request) {
        self.has_asked = true;
        let runtime = self.shared.client.runtime().clone();
        if matches!(
            request,
            Request::SetupAppend { .. } | Request::Append { .. } | Request::ConditionalAppend { .. }
        ) {
            let sender = self.appends.get_or_insert_with(|| {
                let (sender, requests) = unbounded_channel();
                let writers = Writers {
                    shared: Arc::clone(&self.shared),
                    mailbox: self.mailbox.clone(),
                    writers: HashMap::new(),
                };
                self.questions.spawn_on(writers.take_all(requests), &runtime);
                sender
            });
            // The task ends with the connection.
            drop(sender.send((call, request)));
            return;
        }
        let (shared, mailbox) = (Arc::clone(&self.shared), self.mailbox.clone());
        let (turns, ahead) = (self.pacing.turns(), Arc::clone(&self.ahead));
        let answering = async move {
            let (reply, turn, advance) = shared.answer(request, &ahead, turns).await;
            let command = match reply {
                Some(reply) => Command::Answer(call, reply),
                None => Command::GiveUp,
            };
            // The connection may be over.
            drop(mailbox.post(command));
            drop(turn);
            if let Some(advance) = advance {
                // Where it cannot be fetched, the read that wants it is told why.
                drop(shared.segments.advance(advance).await);
            }
        };
        self.questions.spawn_on(answering, &runtime);
    }
}

impl Application for PravegaConnection {
    type Endpoint = Connection;
    type Command = Command;

    fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: Command) {
        match command {
            Command::Answer(call, reply) => match connection.answer(call, &reply, now) {
                // The client is gone.
                Ok(()) | Err(Refused::Closed | Refused::UnknownCall) => {}
                Err(error) => {
                    tracing::error!(%error, "a reply to a client of Pravega cannot be sent");
                    connection.close();
                }
            },
            Command::GiveUp => connection.close(),
        }
    }

    fn handle_event(&mut self, _: &mut Connection, _: Instant, event: Event) {
        match event {
            Event::Request { call, request } => self.request(call, request),
            Event::Closing { reason } => {
                tracing::debug!(%reason, "the connection of a client of Pravega ends");
                self.questions.abort_all();
            }
            _ => {}
        }
    }

    fn finish_turn(&mut self, connection: &mut Connection, now: Instant) {
        while self.questions.try_join_next().is_some() {}
        self.pacing.note(connection.transmit_len(), now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pacing.look_at()
    }

    fn held_bytes(&self) -> usize {
        self.ahead.held_bytes()
    }

    fn is_settled(&self) -> bool {
        self.has_asked
    }

    fn handle_closed(&mut self, _: &CloseReason) {
        self.questions.abort_all();
    }
}

/// A writer that was set up on a connection.
#[derive(Debug)]
struct Writing {
    segment: Arc<str>,
    stream: StreamId,
    session: u64,
}

/// The writers of a connection.
#[derive(Debug)]
struct Writers {
    shared: Arc<Shared>,
    mailbox: Mailbox<Command>,
    writers: HashMap<WriterId, Writing>,
}

impl Writers {
    /// Takes what a client asks of writers, in its order.
    async fn take_all(mut self, mut requests: UnboundedReceiver<(Call, Request)>) {
        while let Some((call, request)) = requests.recv().await {
            match request {
                Request::SetupAppend { writer, segment, .. } => self.set_up(call, writer, segment).await,
                Request::Append {
                    writer,
                    data,
                    events,
                    last,
                } => self.want(call, writer, What::Append { data, events, last }),
                Request::ConditionalAppend {
                    writer,
                    number,
                    expected,
                    data,
                } => match bytes_of(data) {
                    Some(data) => self.want(call, writer, What::Conditional { data, number, expected }),
                    None => self.give_up(),
                },
                _ => {}
            }
        }
    }

    async fn set_up(&mut self, call: Call, writer: WriterId, segment: String) {
        let held = match self.shared.bytes_of(&segment).await {
            Ok(Some(held)) => held,
            Ok(None) => {
                // The connection may be over.
                return drop(self.mailbox.post(Command::Answer(call, no_such(segment, None))));
            }
            Err(failed) => {
                tracing::warn!(?failed, segment, "a writer of Pravega cannot be set up");
                return self.give_up();
            }
        };
        let writing = Writing {
            segment: segment.into(),
            stream: held.id(),
            session: LAST_SESSION.fetch_add(1, Ordering::Relaxed) + 1,
        };
        if let Some(before) = self.writers.insert(writer, writing) {
            self.shared.appending.leave(before.stream, writer, before.session);
        }
        self.want(call, writer, What::SetUp);
        if held.is_sealed() {
            self.shared.appending.sealed(held.id());
        }
    }

    fn want(&self, call: Call, writer: WriterId, what: What) {
        let Some(writing) = self.writers.get(&writer) else {
            // Its segment was not there.
            return self.give_up();
        };
        let teller = Teller {
            segment: Arc::clone(&writing.segment),
            call,
            mailbox: self.mailbox.clone(),
        };
        let Writing { stream, session, .. } = *writing;
        self.shared.appending.want(stream, writer, session, what, teller);
    }

    fn give_up(&self) {
        drop(self.mailbox.post(Command::GiveUp));
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        for (writer, writing) in &self.writers {
            self.shared.appending.leave(writing.stream, *writer, writing.session);
        }
    }
}

/// What a conditional append adds to the segment.
fn bytes_of(data: Conditional) -> Option<Bytes> {
    match data {
        Conditional::Bytes(bytes) => Some(bytes),
        Conditional::Event(content) => {
            let mut bytes = BytesMut::with_capacity(content.len() + sbp_pravega::EVENT_HEAD);
            put_event(&mut bytes, &content).ok()?;
            Some(bytes.freeze())
        }
    }
}
