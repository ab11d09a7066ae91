//! One connection to a broker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_tank::{CallFailure, CloseReason, Connection, Event, Refused, Request, Violation};
use sbp_transport::Application;
use sbp_wire::Endpoint;
use tokio::sync::oneshot;

use super::error::TankErrorKind;
use super::shared::{Call, Command, Ended, Fetched, Shared, TankPeer};
use crate::calls::Peer;

/// How long a connection may be idle. Brokers close theirs after 16 s without a word, and a request that crosses the end of
/// its connection has an unknown outcome: this side closes first.
const IDLE: Duration = Duration::from_secs(12);

/// A connection's calls.
#[derive(Debug)]
pub(super) struct BrokerConnection {
    shared: Arc<Shared>,
    generation: u64,
    is_greeted: bool,
    /// Calls that wait for the broker's greeting.
    held: Vec<Call>,
    calls: HashMap<u64, Waiting>,
    last: u64,
    /// When something was last heard or said.
    active_at: Option<Instant>,
}

/// A call that was sent.
#[derive(Debug)]
struct Waiting {
    call: Call,
    fetched: Fetched,
}

impl Peer for TankPeer {
    type Request = Request;
    type Ended = Ended;
    type Waiter = oneshot::Sender<Ended>;
    type Connection = BrokerConnection;

    fn endpoint(&self, now: Instant) -> Connection {
        Connection::client(self.0, now)
    }

    fn connection(shared: Arc<Shared>, generation: u64) -> BrokerConnection {
        BrokerConnection::new(shared, generation)
    }

    fn unsent(why: String) -> Ended {
        Ended::Lost { why, bytes_sent: false }
    }

    fn closed() -> Ended {
        Ended::Closed
    }
}

impl BrokerConnection {
    pub(super) fn new(shared: Arc<Shared>, generation: u64) -> Self {
        Self {
            shared,
            generation,
            is_greeted: false,
            held: Vec::new(),
            calls: HashMap::new(),
            last: 0,
            active_at: None,
        }
    }

    fn start(&mut self, connection: &mut Connection, now: Instant, call: Call) {
        if call.reply.is_closed() {
            return;
        }
        self.last += 1;
        match connection.send(&call.request, self.last, now) {
            Ok(()) => {
                let fetched = Fetched::default();
                self.calls.insert(self.last, Waiting { call, fetched });
            }
            Err(Refused::Unfit(fault)) => call.tell(Ended::Unfit(fault.to_string())),
            // The next connection takes it.
            Err(_) => self.shared.submit(call),
        }
    }

    /// Where the parts of an answer go; nowhere, where nobody waits for it any more.
    fn fetched(&mut self, user: u64) -> Option<&mut Fetched> {
        let waiting = self.calls.get_mut(&user)?;
        if waiting.call.reply.is_closed() {
            waiting.fetched = Fetched::default();
            return None;
        }
        Some(&mut waiting.fetched)
    }

    fn end(&mut self, user: u64, ended: impl FnOnce(Fetched) -> Ended) {
        if let Some(Waiting { call, fetched }) = self.calls.remove(&user) {
            call.tell(ended(fetched));
        }
    }

    /// Calls that were never sent: a broker that does not greet is none.
    fn give_up_held(&mut self, reason: &CloseReason) {
        for call in std::mem::take(&mut self.held) {
            let ended = match reason {
                CloseReason::Violation(_) => broken(reason),
                reason => Ended::Lost {
                    why: reason.to_string(),
                    bytes_sent: false,
                },
            };
            call.tell(ended);
        }
    }
}

/// How calls end whose broker breaks the protocol.
fn broken(reason: &CloseReason) -> Ended {
    let why = match reason {
        CloseReason::Violation(Violation::Content { fault, .. }) => {
            format!("the broker's answer cannot be read: {fault}")
        }
        CloseReason::Violation(violation) => violation.to_string(),
        reason => reason.to_string(),
    };
    Ended::Broken {
        kind: TankErrorKind::of_close(reason),
        why,
    }
}

impl Application for BrokerConnection {
    type Endpoint = Connection;
    type Command = Command;

    fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: Command) {
        self.active_at = Some(now);
        match command {
            Command::Call(call) if self.is_greeted => self.start(connection, now, call),
            Command::Call(call) => self.held.push(call),
            Command::Close => connection.close(),
        }
    }

    fn handle_event(&mut self, connection: &mut Connection, now: Instant, event: Event) {
        self.active_at = Some(now);
        match event {
            Event::Greeted => {
                self.is_greeted = true;
                self.shared.greeted();
                for call in std::mem::take(&mut self.held) {
                    self.start(connection, now, call);
                }
            }
            Event::Answered { user, answer } => self.end(user, |_| Ended::Answered(answer)),
            Event::Consumed { user, partitions } => {
                if let Some(fetched) = self.fetched(user) {
                    fetched.partitions = partitions;
                }
            }
            Event::Bundle { user, place, bundle } => {
                if let Some(fetched) = self.fetched(user) {
                    fetched.add(place, bundle);
                }
            }
            Event::CutBundle { user, place, length } => {
                if let Some(fetched) = self.fetched(user) {
                    fetched.add_cut(place, length);
                }
            }
            Event::ConsumeEnded { user } => self.end(user, Ended::Fetched),
            Event::CallFailed {
                user,
                failure,
                bytes_sent,
            } => {
                let reason = connection.close_reason();
                let ended = match (failure, reason) {
                    (CallFailure::ConnectionClosed, Some(reason @ CloseReason::Violation(_))) => broken(reason),
                    (CallFailure::ConnectionClosed, _) => Ended::Lost {
                        why: String::from("the connection was lost before the answer came"),
                        bytes_sent,
                    },
                    (failure, _) => Ended::Lost {
                        why: failure.to_string(),
                        bytes_sent,
                    },
                };
                self.end(user, |_| ended);
            }
            Event::Closing { reason } => {
                self.shared.drains(self.generation, &reason);
                self.give_up_held(&reason);
            }
            _ => {}
        }
    }

    fn finish_turn(&mut self, _: &mut Connection, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        let is_idle = self.is_greeted && self.calls.is_empty();
        self.active_at.filter(|_| is_idle).map(|at| at + IDLE)
    }

    fn handle_timeout(&mut self, connection: &mut Connection, _: Instant) {
        self.active_at = None;
        connection.close();
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        self.give_up_held(reason);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sbp_tank::ClientConfig;
    use sbp_transport::Descriptors;
    use tokio::runtime::Handle;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_nobody_waits_for_any_more_is_not_collected() {
        let limit = Duration::from_secs(1);
        let config = ClientConfig::default();
        let shared = Shared::new(
            "127.0.0.1:1",
            limit,
            TankPeer(config),
            Descriptors::new(1),
            Handle::current(),
        );
        let now = Instant::now();
        let (mut calls, mut connection) = (BrokerConnection::new(shared, 1), Connection::client(config, now));
        let (reply, waits) = oneshot::channel();
        let call = Call {
            request: Request::Status,
            reply,
        };
        let fetched = Fetched::default();
        calls.calls.insert(1, Waiting { call, fetched });
        let mut receive = |calls: &mut BrokerConnection| {
            let bundle = Event::Bundle {
                user: 1,
                place: 0,
                bundle: Bytes::from_static(b"bundle"),
            };
            calls.handle_event(&mut connection, now, bundle);
            calls.calls.get(&1).map(|waiting| waiting.fetched.bundles.len())
        };
        assert_eq!(receive(&mut calls), Some(1));
        assert_eq!(receive(&mut calls), Some(2));
        drop(waits);
        assert_eq!(receive(&mut calls), Some(0));
    }
}
