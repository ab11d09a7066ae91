//! One connection of a client.

use std::sync::Arc;
use std::time::Instant;

use sbp_tank::{Call, CloseReason, Connection, Event, Produce, Refused, Request};
use sbp_transport::{Application, Mailbox};
use sbp_wire::Endpoint;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::Shared;
use super::command::Command;
use super::produce::produce_all;

/// A connection's requests.
#[derive(Debug)]
pub(super) struct TankConnection {
    shared: Arc<Shared>,
    mailbox: Mailbox<Command>,
    /// Questions that are being answered. They end with the connection.
    questions: JoinSet<()>,
    /// Takes what is produced, one after the other; made for the first.
    produce: Option<UnboundedSender<(Call, Produce)>>,
    has_asked: bool,
}

impl TankConnection {
    pub(super) fn new(shared: Arc<Shared>, mailbox: Mailbox<Command>) -> Self {
        Self {
            shared,
            mailbox,
            questions: JoinSet::new(),
            produce: None,
            has_asked: false,
        }
    }

    fn request(&mut self, call: Call, request: Request) {
        self.has_asked = true;
        let request = match request {
            Request::Produce(produce) => return self.produce(call, produce),
            request => request,
        };
        let (shared, mailbox) = (Arc::clone(&self.shared), self.mailbox.clone());
        let runtime = self.shared.client.runtime().clone();
        let answering = async move {
            let command = match shared.answer(request).await {
                Some(answer) => Command::Answer(call, answer),
                None => Command::GiveUp,
            };
            // The connection may be over.
            drop(mailbox.post(command));
        };
        self.questions.spawn_on(answering, &runtime);
    }

    fn produce(&mut self, call: Call, produce: Produce) {
        let sender = self.produce.get_or_insert_with(|| {
            let (sender, requests) = unbounded_channel();
            let task = produce_all(Arc::clone(&self.shared), requests, self.mailbox.clone());
            self.shared.client.runtime().spawn(task);
            sender
        });
        // The task ends when this is dropped.
        drop(sender.send((call, produce)));
    }
}

impl Application for TankConnection {
    type Endpoint = Connection;
    type Command = Command;

    fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: Command) {
        match command {
            Command::Answer(call, answer) => match connection.answer(call, &answer, now) {
                // The client is gone.
                Ok(()) | Err(Refused::Closed | Refused::UnknownCall) => {}
                Err(error) => {
                    tracing::error!(%error, "an answer to a client of TANK cannot be sent");
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
                tracing::debug!(%reason, "the connection of a client of TANK ends");
                self.questions.abort_all();
            }
            _ => {}
        }
    }

    fn finish_turn(&mut self, _: &mut Connection, _: Instant) {
        while self.questions.try_join_next().is_some() {}
    }

    fn is_settled(&self) -> bool {
        self.has_asked
    }

    fn handle_closed(&mut self, _: &CloseReason) {
        self.questions.abort_all();
    }
}
