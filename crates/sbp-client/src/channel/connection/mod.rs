//! One connection as the client uses it: what is sent, what answers mean, who is told.
//!
//! Runs inside the connection's task as the [`Application`] of the transport. It never blocks and holds no lock while
//! the socket is written.

mod appends;
mod completion;
mod entries;
pub(crate) mod hello;
pub(crate) mod identity;
mod in_flight;
mod silence;
mod unasked;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_frame::{CallId, Frame};
use sbp_messages::{AppendResponse, FetchRequest, Message, Retry};
use sbp_session::{CallFailure, CloseReason, Event, SendError, Session};
use sbp_transport::{Application, TlsFailure};
use slab::Slab;
use smallvec::SmallVec;

use self::appends::AppendPipeline;
use self::identity::{Identity, is_denial};
use self::in_flight::{InFlight, request, token};
use crate::channel::Channel;
use crate::channel::command::{Answer, Call, Command, Fetch, Need, Ping};
use crate::channel::header::encoded;
use crate::codes;
use crate::failure::{Cause, Failure};
use crate::features::{Durability, Features};

/// Why a connection whose peer says nothing is given up.
const UNANSWERED: &str = "the server did not answer HEARTBEAT in time";

/// Why a connection that drains takes nothing new.
const GOES_AWAY: &str = "the connection is being replaced by another one";

/// How long the answers to what was sent are waited for when the client is closed.
const CLOSING_TIME: Duration = Duration::from_secs(5);

/// What all parts of a connection share.
pub(crate) struct Context {
    pub(crate) channel: Arc<Channel>,
    pub(crate) endpoint: Arc<str>,
    /// What the peer said of itself; absent until its first HEARTBEAT answer.
    pub(crate) features: Option<Arc<Features>>,
}

impl Context {
    fn durability(&self) -> Durability {
        self.features
            .as_ref()
            .map_or(Durability::Unknown, |features| features.durability)
    }

    /// A failure at this peer.
    fn failure(&self, cause: Cause) -> Failure {
        Failure::new(cause, Some(&self.endpoint))
    }
}

/// The application side of one connection.
pub(crate) struct Connection {
    context: Context,
    /// Which of the channel's connections this is.
    generation: u64,
    calls: Slab<InFlight>,
    /// How many of them were no appends when that was last told.
    requests: usize,
    appends: AppendPipeline,
    /// Calls that need to know what the peer can do, until it has said.
    held: Vec<Command>,
    hello: hello::Hello,
    /// Why no other connection will do better, where that is known.
    refused: Option<Cause>,
    identity: Identity,
    /// Why the server does not serve this client.
    denied: Option<Cause>,
    phase: Phase,
    silence: silence::Watch,
}

/// How far the connection is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Everything is accepted.
    Open,
    /// Nothing new is sent: the peer said that it goes away, or ids ran out. What was sent is waited for.
    Draining {
        /// Whether the channel has been told that the last append is answered.
        appends_over: bool,
    },
    /// The client is being closed: what was sent is waited for.
    Closing {
        /// Until then; nothing once it is over.
        until: Option<Instant>,
    },
}

impl Connection {
    pub(crate) fn new(channel: Arc<Channel>, endpoint: Arc<str>, generation: u64) -> Self {
        Self {
            hello: hello::Hello::new(&channel.config.client_id),
            context: Context {
                channel,
                endpoint,
                features: None,
            },
            generation,
            calls: Slab::new(),
            requests: 0,
            appends: AppendPipeline::default(),
            identity: Identity::Unsaid,
            denied: None,
            held: Vec::new(),
            refused: None,
            phase: Phase::Open,
            silence: silence::Watch::default(),
        }
    }

    /// Nothing new goes out here any more; the channel dials the successor, and this connection ends when what it has sent
    /// is over.
    fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining { appends_over: false };
            self.context.channel.clone().connection_drains(self.generation);
            self.fail_held(GOES_AWAY);
        }
    }

    /// Gives back the calls that waited for the peer's features: nothing of them was sent.
    fn fail_held(&mut self, reason: &str) {
        for command in std::mem::take(&mut self.held) {
            command.fail(self.unsent(reason));
        }
    }

    /// That something was not sent here, for a reason that another connection may not have.
    fn unsent(&self, reason: &str) -> Failure {
        self.context.failure(Cause::ConnectionLost {
            sent: false,
            reason: reason.to_owned(),
        })
    }

    /// Lets a command through whose peer can do what it needs. Others are refused, or held until the peer has said what it
    /// can do.
    fn admit(&mut self, command: Command) -> Option<Command> {
        let needs = command.needs();
        let failure = match &self.context.features {
            // Nothing is served before the HEARTBEAT with the token, which is not sent yet.
            _ if let Some(cause) = self.denied.as_ref().filter(|_| command.is_for_the_peer()) => {
                self.context.failure(cause.clone())
            }
            _ if self.waits_for_token() && command.is_for_the_peer() => {
                self.held.push(command);
                return None;
            }
            _ if needs == Need::Nothing => return Some(command),
            None if self.phase == Phase::Open => {
                self.held.push(command);
                return None;
            }
            None => self.unsent(GOES_AWAY),
            Some(features) => match needs.lacking(features) {
                None => return Some(command),
                Some(feature) => self.context.failure(Cause::Unsupported { feature }),
            },
        };
        command.fail(failure);
        None
    }

    fn start_call(&mut self, session: &mut Session, now: Instant, mut call: Box<Call>) {
        let (opcode, header, deadline) = (call.opcode, std::mem::take(&mut call.header), call.deadline);
        let (sent, frames) = (now, SmallVec::new());
        let place = self.calls.insert(InFlight::Call { call, sent, frames });
        let sent = session.send_request(now, request(opcode, &header, place, deadline));
        self.after_send(place, sent.map(drop), header.len());
    }

    fn start_fetch(&mut self, session: &mut Session, now: Instant, mut fetch: Box<Fetch>) {
        if fetch.is_abandoned() {
            return;
        }
        let (header, deadline) = (std::mem::take(&mut fetch.header), fetch.deadline);
        let receive_charge = u32::try_from(fetch.charge.bytes()).unwrap_or(u32::MAX);
        let place = self.calls.insert(InFlight::Fetch {
            fetch,
            sent: now,
            id: None,
        });
        let mut outgoing = request(FetchRequest::OPCODE, &header, place, deadline);
        outgoing.receive_charge = receive_charge;
        let sent = session.send_request(now, outgoing);
        if let (Ok(call), Some(InFlight::Fetch { id, .. })) = (&sent, self.calls.get_mut(place)) {
            *id = Some(*call);
        }
        self.after_send(place, sent.map(drop), header.len());
    }

    /// Has the server end the FETCHes that nobody waits for any more, where it can. They stay in the table until their
    /// last answer is here, as any call.
    fn withdraw_abandoned(&mut self, session: &mut Session, now: Instant) {
        if !self.context.features.as_ref().is_some_and(|features| features.withdraw) {
            return;
        }
        let abandoned = |(_, call): (usize, &mut InFlight)| match call {
            InFlight::Fetch { fetch, id, .. } if fetch.is_abandoned() => id.take(),
            _ => None,
        };
        let ids: Vec<CallId> = self.calls.iter_mut().filter_map(abandoned).collect();
        let deadline = now + self.context.channel.config.timeout;
        for id in ids {
            let header = encoded(&FetchRequest::withdrawal(id.raw()));
            let place = self.calls.insert(InFlight::Withdrawal);
            let sent = session.send_request(now, request(FetchRequest::OPCODE, &header, place, deadline));
            self.after_send(place, sent.map(drop), header.len());
        }
    }

    fn start_ping(&mut self, session: &mut Session, now: Instant, ping: Box<Ping>) {
        let deadline = ping.deadline;
        let place = self.calls.insert(InFlight::Ping(ping));
        let sent = session.send_ping(now, token(place), Some(deadline));
        self.after_send(place, sent.map(drop), 0);
    }

    fn after_send(&mut self, place: usize, sent: Result<(), SendError>, bytes: usize) {
        match sent {
            Ok(()) => self.context.channel.counters.add_call(bytes),
            Err(error) => {
                let cause = send_failure(&error).unwrap_or(Cause::NotStarted);
                if error == SendError::CallIdsExhausted {
                    self.drain();
                }
                if let Some(call) = self.calls.try_remove(place) {
                    call.fail(self.context.failure(cause));
                }
            }
        }
    }

    fn handle_response(&mut self, session: &mut Session, now: Instant, place: usize, frame: Frame, end: bool) {
        let Some(call) = self.calls.get_mut(place) else { return };
        self.context.channel.counters.add_answer(frame.payload.len());
        match call {
            // The session tells the answer to a PING as an event of its own.
            InFlight::Ping(_) | InFlight::Probe => return,
            InFlight::Withdrawal | InFlight::GivenUp => {}
            InFlight::Heartbeat => {
                if end {
                    let answer = self.hello.agreed(&frame);
                    self.handle_greeting(session, now, answer);
                }
            }
            InFlight::Append { results, .. } if !end => match AppendResponse::decode(&frame.header) {
                Ok(part) => results.extend(part.append_responses),
                // The frame with END will find results missing.
                Err(error) => tracing::warn!(endpoint = %self.context.endpoint, %error, "unreadable append answer"),
            },
            InFlight::Append { id, sent, results } => {
                self.context
                    .channel
                    .counters
                    .round_trips
                    .record(now.saturating_duration_since(*sent));
                let (id, results) = (*id, std::mem::take(results));
                let answer = match Cause::system_error(&frame) {
                    Some(cause) => Err(cause),
                    None => AppendResponse::decode(&frame.header).map_err(|error| Cause::undecodable(&frame, &error)),
                };
                self.calls.try_remove(place);
                return self.appends.answered(&self.context, now, id, results, answer);
            }
            InFlight::Call { frames, .. } => {
                frames.push(frame);
                if end {
                    self.handle_answer(now, place);
                }
                return;
            }
            InFlight::Fetch { fetch, sent, .. } => match Cause::system_error(&frame) {
                Some(cause) => fetch.fail(self.context.failure(cause)),
                None => {
                    if end {
                        let took = &self.context.channel.counters.took;
                        let histogram = if fetch.waits { &took.fetch_wait } else { &took.fetch };
                        histogram.observe(now.saturating_duration_since(*sent), 1);
                    }
                    fetch.pass_on(frame, end, &self.context.endpoint);
                }
            },
        }
        if end {
            self.calls.try_remove(place);
        }
    }

    /// The whole answer to a call is here.
    fn handle_answer(&mut self, now: Instant, place: usize) {
        let Some(InFlight::Call { call, sent, frames }) = self.calls.try_remove(place) else {
            return;
        };
        let (counters, took) = (&self.context.channel.counters, now.saturating_duration_since(sent));
        counters.round_trips.record(took);
        counters.took.call.observe(took, 1);
        let result = match frames.last().and_then(Cause::system_error) {
            Some(cause) => Err(self.context.failure(cause)),
            None => Ok(Answer {
                frames,
                endpoint: Arc::clone(&self.context.endpoint),
                throttle_ms: Cell::new(0),
            }),
        };
        drop(call.reply.send(result));
    }

    fn handle_beginning(&mut self, place: usize, header: Bytes) {
        if let Some(InFlight::Fetch { fetch, .. }) = self.calls.get_mut(place)
            && let Some(begins) = fetch.begins.take()
        {
            // Who does not wait for it has the whole answer soon.
            drop(begins.send(header));
        }
    }

    /// A HEARTBEAT was answered. Only the first answer of a connection settles what the peer can do.
    fn handle_greeting(&mut self, session: &mut Session, now: Instant, answer: Result<Features, Cause>) {
        if self.context.features.is_some() {
            return;
        }
        match answer {
            Ok(features) => self.know(session, now, features, true),
            // The server does not know this client, or does not serve it.
            Err(cause) if is_denial(&cause) => self.be_denied(cause),
            // Refused for the moment: what the peer can do, another connection will show.
            Err(Cause::Refused { code, message, .. }) if codes::rule(code).retry != Retry::Never => {
                self.greeting_failed(format!("the server refused HEARTBEAT for now: {message}"));
            }
            // The server is there, and does not know HEARTBEAT as this client means it: a plain peer.
            Err(_refused_or_unreadable) => self.know(session, now, Features::default(), false),
        }
    }

    /// The first HEARTBEAT of this connection was not answered in time. A plain peer may discard what it does not know,
    /// HEARTBEAT included, and still answers other things; one that answers nothing at all is stalled, or no server. A
    /// server of ours may have answered too late, or its answer is lost.
    fn greeting_overdue(&mut self, session: &mut Session, now: Instant) {
        if self.context.features.is_some() || self.phase != Phase::Open {
            return;
        }
        if self.context.channel.has_greeted(&self.context.endpoint) {
            self.greeting_failed(UNANSWERED.to_owned());
        } else if session.stats().frames_in > 0 {
            self.greeting_missed(session, now);
        } else {
            self.send_probe(session, now);
        }
    }

    /// The peer answers, only not HEARTBEAT. Its answer may be lost, or late: another connection will show. A peer that
    /// never has one knows no HEARTBEAT, and is served as a plain one in the end.
    fn greeting_missed(&mut self, session: &mut Session, now: Instant) {
        if self.context.features.is_some() || self.phase != Phase::Open {
            return;
        }
        if self.context.channel.greeting_missed(&self.context.endpoint) {
            self.know(session, now, Features::default(), false);
        } else {
            tracing::debug!(endpoint = %self.context.endpoint, "{UNANSWERED}, and other things: asking again");
            self.drain();
        }
    }

    /// Asks a silent peer for the one answer that every peer has.
    fn send_probe(&mut self, session: &mut Session, now: Instant) {
        let place = self.calls.insert(InFlight::Probe);
        let deadline = now + self.context.channel.config.connect_timeout;
        if session.send_ping(now, token(place), Some(deadline)).is_err() {
            self.calls.try_remove(place);
            self.greeting_failed(UNANSWERED.to_owned());
        }
    }

    /// What the peer can do cannot be found out here: the channel goes on with another connection.
    fn greeting_failed(&mut self, reason: String) {
        self.context.channel.greeting_failed(self.generation, reason);
        self.drain();
    }

    /// What the peer can do is settled: what waited for that goes out, and its limits count. `greeted`: the peer has said
    /// it, in an answer to HEARTBEAT.
    fn know(&mut self, session: &mut Session, now: Instant, features: Features, greeted: bool) {
        if self.context.features.is_some() {
            return;
        }
        let features = Arc::new(features);
        let Context { channel, endpoint, .. } = &self.context;
        channel.peer_known(self.generation, endpoint, &features, greeted);
        if greeted {
            // The connection of before was replaced when the server was silent.
            channel.silences.heard(endpoint);
        }
        self.context.features = Some(features);
        for command in std::mem::take(&mut self.held) {
            self.handle_command(session, now, command);
        }
    }

    fn handle_call_failed(&mut self, session: &mut Session, now: Instant, place: usize, cause: Cause) {
        match self.calls.try_remove(place) {
            None => {}
            Some(InFlight::Heartbeat) => {
                if matches!(cause, Cause::Deadline { .. }) {
                    self.greeting_overdue(session, now);
                }
            }
            Some(InFlight::Probe) if matches!(cause, Cause::Deadline { .. }) && self.context.features.is_none() => {
                self.greeting_failed(UNANSWERED.to_owned());
            }
            Some(InFlight::Probe | InFlight::Withdrawal | InFlight::GivenUp) => {}
            Some(InFlight::Append { id, .. }) => self.appends.failed(&self.context, id, cause),
            Some(call) => {
                let cause = self.hopeless(cause);
                call.fail(self.context.failure(cause));
            }
        }
    }

    /// A peer that has never answered HEARTBEAT, at an address that never led to one that did, is no server.
    fn hopeless(&self, cause: Cause) -> Cause {
        match cause {
            Cause::ConnectionLost { reason, .. }
                if self.context.features.is_none() && self.context.channel.is_hopeless() =>
            {
                Cause::Unreachable { reason, hopeless: true }
            }
            cause => cause,
        }
    }

    fn send_heartbeat(&mut self, session: &mut Session, now: Instant) {
        let place = self.calls.insert(InFlight::Heartbeat);
        let deadline = now + self.context.channel.config.connect_timeout;
        let outgoing = request(hello::OPCODE, self.hello.request(), place, deadline);
        if session.send_request(now, outgoing).is_err() {
            self.calls.try_remove(place);
        }
    }

    /// Tells everybody who still waits that the connection is gone.
    fn fail_everything(&mut self, reason: &CloseReason) {
        let text = reason.to_string();
        self.fail_held(&text);
        let left: Vec<_> = self.calls.drain().collect();
        for call in left {
            let cause = self.refused.clone().unwrap_or_else(|| Cause::ConnectionLost {
                sent: true,
                reason: text.clone(),
            });
            match call {
                InFlight::Append { id, .. } => self.appends.failed(&self.context, id, cause),
                call => call.fail(self.context.failure(cause)),
            }
        }
    }
}

impl Application for Connection {
    type Endpoint = Session;
    type Command = Command;

    fn handle_command(&mut self, session: &mut Session, now: Instant, command: Command) {
        let Some(command) = self.admit(command) else { return };
        match command {
            Command::Appends(submissions) => self.appends.accept(submissions, now),
            Command::Call(call) => self.start_call(session, now, call),
            Command::Fetch(fetch) => self.start_fetch(session, now, fetch),
            Command::Ping(ping) => self.start_ping(session, now, ping),
            Command::Withdraw => self.withdraw_abandoned(session, now),
            Command::Pump(writer) => writer.pump(),
            Command::Token(token) => self.handle_token(session, now, token),
            Command::Close => self.start_closing(now),
            Command::Drain => self.drain(),
        }
    }

    fn handle_event(&mut self, session: &mut Session, now: Instant, event: Event) {
        match event {
            Event::Response { user, frame, end, .. } => self.handle_response(session, now, place(user), frame, end),
            Event::ResponseBegins { user, header, .. } => self.handle_beginning(place(user), header),
            Event::CallFailed {
                user,
                failure,
                bytes_sent,
                ..
            } => {
                let cause = call_failure(&failure, bytes_sent, session.close_reason());
                self.handle_call_failed(session, now, place(user), cause);
            }
            Event::HeartbeatDue => self.say_hello(session, now),
            Event::PeerGoAway { .. } => self.drain(),
            Event::Closing { reason } => {
                tracing::debug!(endpoint = %self.context.endpoint, %reason, "connection closes");
                self.context.channel.connection_closes(&reason);
                self.refused = lasting_refusal(&reason);
                if let Some(cause) = &self.refused {
                    for command in std::mem::take(&mut self.held) {
                        command.fail(self.context.failure(cause.clone()));
                    }
                }
                self.drain();
            }
            Event::Reject {
                raw_call_id,
                opcode,
                reason,
                must_answer: true,
            } => {
                unasked::refuse(session, raw_call_id, opcode, reason);
                if opcode == hello::OPCODE {
                    // The server asks who this is: the token is about to expire.
                    self.ask_for_token(session, now);
                }
            }
            // A session that dialled lets no request through.
            Event::Request(_) | Event::Reject { .. } => {}
            Event::Pong { user, rtt } => match self.calls.try_remove(place(user)) {
                Some(InFlight::Ping(ping)) => {
                    self.context.channel.counters.round_trips.record(rtt);
                    drop(ping.reply.send(Ok(rtt)));
                }
                // Asked because the server was silent, or because it did not answer HEARTBEAT.
                Some(InFlight::Probe) if self.context.features.is_none() => self.greeting_missed(session, now),
                _ => {}
            },
        }
    }

    fn finish_turn(&mut self, session: &mut Session, now: Instant) {
        if let Some(cause) = &self.denied {
            self.appends.fail_waiting(&self.context, cause);
        }
        let leave = session.is_going_away() || matches!(self.phase, Phase::Draining { .. });
        if leave {
            self.drain();
        } else {
            self.appends.send(
                &self.context,
                session,
                &mut self.calls,
                self.context.features.as_deref(),
                now,
            );
        }
        self.appends.finish_turn(&self.context, leave);
        self.count_requests();
        self.watch_silence(session, now);
        match &mut self.phase {
            Phase::Draining { appends_over } if !*appends_over && self.appends.in_flight() == 0 => {
                *appends_over = true;
                self.context.channel.clone().appends_drained(self.generation);
            }
            Phase::Open | Phase::Draining { .. } | Phase::Closing { .. } => {}
        }
        if self.is_finished(session) {
            session.close();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.appends.poll_timeout().into_iter().chain(self.silence.due()).min();
        match self.phase {
            Phase::Closing { until } => expiry.into_iter().chain(until).min(),
            Phase::Open | Phase::Draining { .. } => expiry,
        }
    }

    fn handle_timeout(&mut self, session: &mut Session, now: Instant) {
        self.appends.expire(&self.context, now);
        self.check_silence(session, now);
        if matches!(self.phase, Phase::Closing { until: Some(until) } if now >= until) {
            self.phase = Phase::Closing { until: None };
            session.close();
        }
    }

    fn handle_closed(&mut self, reason: &CloseReason) {
        tracing::debug!(endpoint = %self.context.endpoint, %reason, "connection ended");
        self.fail_everything(reason);
        self.appends.finish_turn(&self.context, true);
        self.count_requests();
        if self.phase == (Phase::Draining { appends_over: false }) {
            self.phase = Phase::Draining { appends_over: true };
            self.context.channel.clone().appends_drained(self.generation);
        }
        if let Some(cause) = self.refused.take() {
            self.context.channel.refuse_waiting(cause);
        }
    }
}

impl Connection {
    /// Tells how many requests other than appends are on their way.
    fn count_requests(&mut self) {
        let requests = self.calls.len().saturating_sub(self.appends.in_flight());
        if requests != self.requests {
            self.context.channel.counters.set_requests(self.requests, requests);
            self.requests = requests;
        }
    }

    /// The client is closed: what was sent may still be answered, for so long. A second time changes nothing.
    fn start_closing(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Closing { .. }) {
            self.phase = Phase::Closing {
                until: Some(now + CLOSING_TIME),
            };
        }
    }

    /// Whether the connection is on its way out and has nothing left to do. Looked at in every turn, so the calls are only
    /// gone through on the way out.
    fn is_finished(&self, session: &Session) -> bool {
        match self.phase {
            Phase::Open | Phase::Draining { appends_over: false } => false,
            // What was sent may still be answered, and every call ends at its deadline.
            Phase::Draining { appends_over: true } => self.calls.iter().all(|(_, call)| call.is_upkeep()),
            // Nobody who closes a client waits for FETCHes.
            Phase::Closing { .. } => self.appends.is_empty() && session.own_calls() == self.fetches(),
        }
    }

    fn fetches(&self) -> usize {
        let is_fetch = |(_, call): &(usize, &InFlight)| matches!(call, InFlight::Fetch { .. } | InFlight::Withdrawal);
        self.calls.iter().filter(is_fetch).count()
    }
}

/// The place of the call that the session knows by this token.
fn place(token: u64) -> usize {
    usize::try_from(token).unwrap_or(usize::MAX)
}

/// Errors of sending that no other connection would spare the caller; for all others another connection will do.
fn send_failure(error: &SendError) -> Option<Cause> {
    match error {
        SendError::HeaderTooLarge { .. } | SendError::FrameTooLarge(_) => Some(Cause::Invalid {
            what: format!("the request is too large: {error}"),
        }),
        _ => None,
    }
}

/// What the session says about a call that ended without an answer.
fn call_failure(failure: &CallFailure, sent: bool, closed: Option<&CloseReason>) -> Cause {
    match failure {
        CallFailure::DeadlineExceeded => Cause::deadline(sent),
        CallFailure::NotStarted => Cause::NotStarted,
        CallFailure::ConnectionClosed => closed
            .and_then(lasting_refusal)
            .unwrap_or_else(|| Cause::ConnectionLost {
                sent,
                reason: closed.map_or_else(|| failure.to_string(), ToString::to_string),
            }),
        other => Cause::Protocol {
            what: other.to_string(),
        },
    }
}

/// That a server wants no connection made like this one: it has refused the client's certificate, or speaks TLS where the
/// client does not. Nothing that was sent has been read by it.
fn lasting_refusal(reason: &CloseReason) -> Option<Cause> {
    let reason = match reason {
        CloseReason::SpeaksTls => {
            "the server speaks TLS, and this connection is plain; write sbps://host:port".to_owned()
        }
        CloseReason::Transport(error) => {
            format!("TLS: {}", TlsFailure::of(error).filter(|failure| failure.is_final())?)
        }
        _ => return None,
    };
    Some(Cause::Tls { reason })
}
