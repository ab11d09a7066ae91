//! One connection to a service.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_seastar::{CallFailure, ClientConfig, CloseReason, Connection, Event, Negotiated};
use sbp_transport::Application;
use sbp_wire::Endpoint;
use tokio::sync::{oneshot, watch};

use super::batch::{SinkReply, TurnResults};
use super::error::{SeastarError, SeastarErrorKind};
use crate::calls::{self, Peer, Waiter};

/// What is asked of a connection.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    /// A verb's reply.
    Call {
        verb: u64,
        payload: Bytes,
        deadline: Instant,
    },
    /// A verb without reply.
    Send { verb: u64, payload: Bytes },
    /// Which connection it is, for a stream that is to belong to it.
    Parent,
}

/// What it answers.
#[derive(Debug)]
pub(super) enum Answer {
    Reply { payload: Bytes, handler: Option<Duration> },
    Sent,
    Parent(Parent),
}

/// A connection that a stream can belong to.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) negotiated: Negotiated,
    /// Its sender is gone when the connection is over.
    pub(super) ended: watch::Receiver<()>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// Of a call that was not sent: it may be sent over another connection.
    Unsent(SeastarError),
    For(SeastarError),
}

/// A call.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) ask: Ask,
    /// Whether it was queued on a connection, for who does not wait for its end.
    pub(super) is_sent: Option<Arc<AtomicBool>>,
}

/// Who waits for the end of a call.
#[derive(Debug)]
pub(super) enum Caller {
    /// Whoever holds the other end. Where there is no connection, the call waits for one.
    Future(oneshot::Sender<Result<Answer, Failed>>),
    /// Its result is delivered with others. It takes part in one attempt over a connection that is there: `again` gets what
    /// was not sent over that.
    Sink {
        reply: SinkReply,
        again: Arc<dyn CallAgain>,
    },
}

/// Makes a call anew that was not sent, and has its caller told what becomes of it.
pub(super) trait CallAgain: std::fmt::Debug + Send + Sync + 'static {
    fn call_again(&self, ask: Ask, reply: SinkReply);

    /// The error as callers are told it.
    fn explained(&self, ask: &Ask, error: SeastarError) -> SeastarError;
}

impl Caller {
    fn end(self, asked: Asked, ended: Result<Answer, Failed>, results: &mut TurnResults) {
        match (self, ended) {
            (Self::Future(sender), ended) => drop(sender.send(ended)),
            (Self::Sink { reply, again }, Err(Failed::Unsent(_))) => again.call_again(asked.ask, reply),
            (Self::Sink { reply, again }, Err(Failed::For(error))) => {
                results.add(reply, Err(again.explained(&asked.ask, error)));
            }
            (Self::Sink { reply, .. }, Ok(Answer::Reply { payload, .. })) => results.add(reply, Ok(payload)),
            // Nothing else is asked for in this way; dropped, it says that the outcome is not known.
            (Self::Sink { reply, .. }, Ok(_)) => drop(reply),
        }
    }
}

impl Waiter<RpcPeer> for Caller {
    fn tell(self, asked: Asked, ended: Result<Answer, Failed>) {
        self.end(asked, ended, &mut TurnResults::default());
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Future(sender) => sender.is_closed(),
            Self::Sink { .. } => false,
        }
    }
}

pub(super) type Call = calls::Call<RpcPeer>;
pub(super) type Command = calls::Command<RpcPeer>;
/// What a client shares with its connections.
pub(super) type Shared = calls::Shared<RpcPeer>;

/// A service, to be asked.
#[derive(Debug)]
pub(super) struct RpcPeer(pub(super) ClientConfig);

impl Peer for RpcPeer {
    type Request = Asked;
    type Ended = Result<Answer, Failed>;
    type Waiter = Caller;
    type Connection = RpcConnection;

    fn endpoint(&self, now: Instant) -> Connection {
        Connection::client(self.0.clone(), now)
    }

    fn connection(shared: Arc<Shared>, generation: u64) -> RpcConnection {
        RpcConnection {
            shared,
            generation,
            negotiated: None,
            held: Vec::new(),
            calls: HashMap::new(),
            results: TurnResults::default(),
            last: 0,
            ended: watch::Sender::new(()),
        }
    }

    fn unsent(why: String) -> Result<Answer, Failed> {
        Err(Failed::For(SeastarError::new(SeastarErrorKind::Lost, why)))
    }

    fn closed() -> Result<Answer, Failed> {
        Err(Failed::For(SeastarError::closed()))
    }
}

/// A connection's calls.
#[derive(Debug)]
pub(super) struct RpcConnection {
    shared: Arc<Shared>,
    generation: u64,
    negotiated: Option<Negotiated>,
    /// Calls that wait for the negotiation.
    held: Vec<Call>,
    calls: HashMap<u64, Call>,
    /// What is told when the turn ends.
    results: TurnResults,
    last: u64,
    /// Gone with the connection; the streams that belong to it watch that.
    ended: watch::Sender<()>,
}

impl RpcConnection {
    fn start(&mut self, connection: &mut Connection, now: Instant, call: Call) {
        if call.reply.is_closed() {
            return;
        }
        let user = self.last + 1;
        let queued = match &call.request.ask {
            Ask::Call { deadline, .. } if *deadline <= now => return self.not_sent(call),
            Ask::Call {
                verb,
                payload,
                deadline,
            } => connection.call(*verb, payload, *deadline, user, now),
            Ask::Send { verb, payload } => connection.send(*verb, payload, user, now),
            Ask::Parent => {
                let Some(negotiated) = self.negotiated.clone().filter(|_| connection.close_reason().is_none()) else {
                    return self.shared.submit(call);
                };
                let ended = self.ended.subscribe();
                return call.tell(Ok(Answer::Parent(Parent { negotiated, ended })));
            }
        };
        match queued {
            Ok(()) => {
                self.last = user;
                if let Some(is_sent) = &call.request.is_sent {
                    is_sent.store(true, Ordering::Release);
                }
                self.calls.insert(user, call);
            }
            // The next connection takes it.
            Err(sbp_seastar::Refused::Closed) => self.pass_on(call),
            Err(refused) => call.tell(Err(Failed::For(SeastarError::of_refused(refused)))),
        }
    }

    fn end(&mut self, user: u64, result: Result<Answer, Failed>) {
        if let Some(call) = self.calls.remove(&user) {
            call.reply.end(call.request, result, &mut self.results);
        }
    }

    /// The call waits for another connection.
    fn pass_on(&self, call: Call) {
        match &call.reply {
            Caller::Future(_) => self.shared.submit(call),
            Caller::Sink { .. } => self.not_sent(call),
        }
    }

    /// The call is not sent over this connection: who waits for it himself sees that by its being dropped.
    fn not_sent(&self, call: Call) {
        if let Caller::Sink { reply, again } = call.reply {
            again.call_again(call.request.ask, reply);
        }
    }

    /// Calls that were never sent: a peer that does not negotiate is none.
    fn give_up_held(&mut self, reason: &CloseReason) {
        for call in std::mem::take(&mut self.held) {
            call.tell(Err(Failed::For(error_of(reason))));
        }
    }
}

fn error_of(reason: &CloseReason) -> SeastarError {
    SeastarError::new(SeastarErrorKind::of_close(reason), reason.to_string())
}

impl Application for RpcConnection {
    type Endpoint = Connection;
    type Command = Command;

    fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: Command) {
        match command {
            // One that comes when the connection has just ended goes to the next.
            Command::Call(call) if self.negotiated.is_some() || connection.close_reason().is_some() => {
                self.start(connection, now, call);
            }
            Command::Call(call) if matches!(call.reply, Caller::Sink { .. }) => self.not_sent(call),
            Command::Call(call) => self.held.push(call),
            Command::Close => connection.close(),
        }
    }

    fn handle_event(&mut self, connection: &mut Connection, now: Instant, event: Event) {
        match event {
            Event::Negotiated(negotiated) => {
                self.negotiated = Some(negotiated);
                self.shared.greeted();
                for call in std::mem::take(&mut self.held) {
                    self.start(connection, now, call);
                }
            }
            Event::Replied { user, reply, handler } => {
                let result = match reply {
                    Ok(payload) => Ok(Answer::Reply { payload, handler }),
                    Err(exception) => Err(Failed::For(SeastarError::of_exception(&exception))),
                };
                self.end(user, result);
            }
            Event::Sent { user } => self.end(user, Ok(Answer::Sent)),
            Event::CallFailed {
                user,
                failure,
                bytes_sent,
            } => {
                let lost = |what: String| SeastarError::new(SeastarErrorKind::Lost, what);
                let error = match (failure, connection.close_reason()) {
                    (CallFailure::ConnectionClosed, Some(reason @ CloseReason::Violation(_))) => error_of(reason),
                    (CallFailure::ConnectionClosed, Some(reason)) => {
                        lost(format!("the connection ended before the reply came: {reason}"))
                    }
                    (failure, _) => lost(failure.to_string()).timed_out(),
                };
                let failed = match bytes_sent {
                    true => Failed::For(error.perhaps_done()),
                    false => Failed::Unsent(error),
                };
                self.end(user, Err(failed));
            }
            Event::Closing { reason } => {
                self.shared.drains(self.generation, &reason);
                self.give_up_held(&reason);
                self.ended = watch::Sender::new(());
            }
            _ => {}
        }
    }

    fn finish_turn(&mut self, _: &mut Connection, _: Instant) {
        self.results.deliver();
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.give_up_held(reason);
        self.results.deliver();
    }
}
