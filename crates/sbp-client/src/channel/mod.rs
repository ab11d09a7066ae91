//! The way to a server: hands work to the connection there is, and keeps what has none yet. When to dial, and what dials, is
//! [`ReconnectingChannel`]'s.
//!
//! Appends that were not sent stay in order across connections. A stream's next append goes out on a new connection only
//! when the old one's appends are over, so that the server sees them in the order they were submitted.

pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod credit;
mod denial;
mod greetings;
pub(crate) mod header;
mod ping_pace;
mod queue;
mod reconnecting;
mod round_trips;
mod silences;
mod stats;
mod throttle;

pub use self::round_trips::RoundTripStats;
pub use self::stats::{ClientMetrics, ClientStats};

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_session::CloseReason;
use sbp_transport::{Descriptors, ReconnectingChannel, SleepingDriver, TransportStats};
use sbp_types::{ServerId, StreamId};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::queue::Queue;
use crate::address::ServerAddress;
use crate::channel::command::Command;
use crate::channel::denial::Denial;
use crate::channel::greetings::Greetings;
use crate::channel::ping_pace::PingPace;
use crate::channel::silences::Silences;
use crate::channel::stats::Counters;
use crate::channel::throttle::Throttles;
use crate::clock::now;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::features::Features;
use crate::retry::budget::RetryBudget;
use crate::retry::{Repeat, Target};
use crate::submission::budget::Budget;
use crate::submission::{AppendOp, AttemptSink, Submissions};

/// Sockets that are remembered at once.
const SOCKETS: usize = 16;

/// Submissions kept for use again.
const RECYCLED: usize = 16;

/// Takes appends that belong to another server than the one they were sent to.
pub(crate) trait Reroute: Send + Sync + std::fmt::Debug {
    /// Finds out where the streams of appends are, after a while, then hands them over there.
    fn reroute(self: Arc<Self>, submissions: Submissions, wait: Duration);

    /// Has it asked again where streams are, when next something is appended to them.
    fn forget(&self, streams: &mut dyn Iterator<Item = StreamId>);

    /// Whether it is known where streams are.
    fn knows_places(&self) -> bool;

    /// Whether others can go on with what is appended to a stream, when the server that takes it is silent.
    fn is_held_elsewhere(&self, stream: StreamId) -> bool;
}

/// FETCHes of tails that wait at one server at once. A server lets 256 wait on a connection, and others wait there too.
pub(crate) const WAITS: usize = 192;

/// A client's lasting way to one of its servers, over connections that come and go.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) config: Arc<ClientConfig>,
    /// The servers it leads to, tried in turn.
    servers: Vec<ServerAddress>,
    /// Whoever finds out where appends belong.
    elsewhere: Weak<dyn Reroute>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) retries: Arc<RetryBudget>,
    /// Places for FETCHes of tails that wait at its server, in the order in which they are asked for.
    pub(crate) waits: Arc<Semaphore>,
    /// Pauses that its server asks for.
    pub(crate) throttles: Throttles,
    /// Turns of its PINGs.
    pub(crate) pings: PingPace,
    connections: ReconnectingChannel<Queue>,
    greetings: Mutex<Greetings>,
    recycled: Arc<Mutex<Vec<Submissions>>>,
    /// That its server does not serve this client.
    denial: Mutex<Denial>,
    /// Whether a placement driver named its server, not the configuration: the server may be at another address by now.
    led_here: bool,
    /// Which servers of the client were found silent.
    pub(crate) silences: Arc<Silences>,
}

impl Channel {
    /// The channel to the servers that the configuration names.
    pub(crate) fn new(config: Arc<ClientConfig>, handle: Handle, elsewhere: Weak<dyn Reroute>) -> Arc<Self> {
        let sockets = Descriptors::new(SOCKETS);
        Arc::new(Self {
            connections: reconnecting::connections(&config, &config.servers, false, handle, sockets),
            servers: config.servers.clone(),
            elsewhere,
            config,
            counters: Arc::default(),
            budget: Arc::default(),
            retries: Arc::default(),
            waits: Arc::new(Semaphore::new(WAITS)),
            throttles: Throttles::default(),
            pings: PingPace::default(),
            greetings: Mutex::default(),
            recycled: Arc::default(),
            denial: Mutex::default(),
            led_here: false,
            silences: Arc::default(),
        })
    }

    /// A channel to another server of the same service, for the same client. That the server exists is known from those
    /// that named it, so it is waited for.
    pub(crate) fn sibling(&self, server: ServerAddress) -> Arc<Self> {
        let (runtime, sockets) = (self.connections.runtime().clone(), Arc::clone(self.sockets()));
        let servers = vec![server];
        Arc::new(Self {
            connections: reconnecting::connections(&self.config, &servers, true, runtime, sockets),
            config: Arc::clone(&self.config),
            servers,
            elsewhere: Weak::clone(&self.elsewhere),
            counters: Arc::clone(&self.counters),
            budget: Arc::clone(&self.budget),
            retries: Arc::clone(&self.retries),
            waits: Arc::new(Semaphore::new(WAITS)),
            throttles: Throttles::default(),
            pings: PingPace::default(),
            greetings: Mutex::default(),
            recycled: Arc::clone(&self.recycled),
            denial: Mutex::default(),
            led_here: true,
            silences: Arc::clone(&self.silences),
        })
    }

    /// Runs work of the client that belongs to no connection.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.connections.runtime().spawn(work);
    }

    /// The sockets of the channel's connections: of the one that takes work, and of those that drain.
    pub(crate) fn sockets(&self) -> &Arc<Descriptors> {
        &self.connections.links().sockets
    }

    /// Finds out where appends belong, after a while.
    fn reroute(&self, submissions: Submissions, wait: Duration) {
        match self.elsewhere.upgrade() {
            Some(elsewhere) => elsewhere.reroute(submissions, wait),
            None => self.refuse_closed(Command::Appends(submissions)),
        }
    }

    /// An append has failed. A server that said nothing until its time was over may not have its streams any more: whoever
    /// appends next asks where they are. Locks are taken: nobody holds that of the connections.
    pub(super) fn note_failed(&self, op: &AppendOp, cause: &Cause) {
        if let (true, Some(elsewhere)) = (cause.is_silence(), self.elsewhere.upgrade()) {
            elsewhere.forget(&mut op.entries.iter().map(|entry| entry.stream));
        }
    }

    /// Submits again after a while: here, to the next server, or to where the streams are then.
    pub(crate) fn submit_again(self: Arc<Self>, submissions: Submissions, wait: Duration, at: Target) {
        match at {
            Target::Refreshed => return self.reroute(submissions, wait),
            Target::Elsewhere | Target::Leader => self.move_on(),
            Target::Same => {}
        }
        self.connections.runtime().clone().spawn(async move {
            tokio::time::sleep(wait).await;
            self.post(Command::Appends(submissions));
        });
    }

    /// Hands a command to the connection, or keeps it for the next one.
    pub(crate) fn post(self: &Arc<Self>, command: Command) {
        drop(self.post_for(command));
    }

    /// As [`Self::post`], for one who waits for nothing else: a connection that sleeps is driven on this thread.
    pub(crate) fn post_and_drive(self: &Arc<Self>, command: Command) {
        if let Some(sleeping) = self.post_for(command) {
            sleeping.drive();
        }
    }

    fn post_for(self: &Arc<Self>, command: Command) -> Option<SleepingDriver> {
        let mut state = self.connections.lock();
        if state.reconnect.is_closed() {
            drop(state);
            self.refuse_closed(command);
            return None;
        }
        let behind = matches!(command, Command::Appends(_)) && !state.queue.appends.is_empty();
        let command = if behind {
            command
        } else {
            match state.post(command) {
                Ok(sleeping) => return sleeping,
                // There is no connection, or it has just ended: the next one gets it.
                Err(command) => command,
            }
        };
        if let Some(cause) = self.denied(&command) {
            drop(state);
            self.fail(command, &self.unsent(cause));
            return None;
        }
        let is_urgent = state.queue.push(command, now());
        self.connections.ensure_connecting(self, &mut state);
        drop(state);
        if is_urgent {
            self.connections.look_after_queue();
        }
        None
    }

    /// Tells one connection something, if it still takes work.
    pub(crate) fn post_to(&self, generation: u64, command: Command) {
        let mut state = self.connections.lock();
        if state.reconnect.ready_mut(generation).is_some() {
            // An error means that it has just ended.
            drop(state.post(command));
        }
    }

    /// Has the connection run a writer's pump. Given back where there is no connection.
    pub(crate) fn post_pump(&self, writer: Arc<dyn AttemptSink>) -> Result<(), Command> {
        let state = self.connections.lock();
        state.post(Command::Pump(writer)).map(drop)
    }

    /// Takes back appends that were not sent; they go out before all that came later.
    pub(crate) fn requeue(self: &Arc<Self>, submissions: Submissions) {
        let mut state = self.connections.lock();
        if state.reconnect.is_closed() {
            drop(state);
            return self.refuse_closed(Command::Appends(submissions));
        }
        let is_urgent = state.queue.push_returned(submissions, now());
        self.connections.ensure_connecting(self, &mut state);
        drop(state);
        if is_urgent {
            self.connections.look_after_queue();
        }
    }

    /// The present connection answers nothing: it takes nothing new any more, and another one is made.
    pub(crate) fn reconnect(&self) {
        // An error means that there is none, or that it has ended already.
        drop(self.connections.lock().post(Command::Drain));
    }

    /// Somebody who waited for answers to FETCHes does not any more, and has closed what takes them: the server need not
    /// hold them until their time is over. What has no connection is not sent at all.
    pub(crate) fn withdraw_abandoned(&self) {
        // An error means that there is no connection.
        drop(self.connections.lock().post(Command::Withdraw));
    }

    /// The next connection is to another server, if there is one.
    pub(crate) fn move_on(&self) {
        if self.servers.len() > 1 {
            let mut state = self.connections.lock();
            if let Some(generation) = state.move_on(|| Command::Close) {
                state.queue.drains(generation);
            }
        }
    }

    /// How many servers were named.
    pub(crate) fn servers_named(&self) -> u32 {
        u32::try_from(self.servers.len()).unwrap_or(u32::MAX)
    }

    /// Whether one more failure ends the attempts to reach a server for the first time.
    pub(crate) fn is_hopeless(&self) -> bool {
        let state = self.connections.lock();
        let attempts = &state.reconnect.attempts;
        self.gives_up(attempts, attempts.failures() + 1)
    }

    /// What was agreed with the peer of the present connection.
    pub(crate) fn features(&self) -> Option<Arc<Features>> {
        self.connections.lock().ready()?.learned.clone()
    }

    /// Whether the present connection leads to a server, known by the number it told or by where it was dialled. Where there is
    /// none, the next one does if it is the only server named.
    pub(crate) fn leads_to(&self, server: ServerId, address: &str) -> bool {
        match self.connections.lock().ready() {
            Some(ready) => match ready.learned.as_ref().and_then(|features| features.server_id) {
                Some(told) => told == server.0,
                None => *ready.address == *address,
            },
            None => matches!(&*self.servers, [named] if named.as_str() == address),
        }
    }

    /// What the present connection's driver counts.
    pub(crate) fn driver(&self) -> Option<Arc<TransportStats>> {
        let state = self.connections.lock();
        state.ready().map(|ready| Arc::clone(ready.mailbox.stats()))
    }

    /// Submissions with memory that has been used before.
    pub(crate) fn fresh(&self) -> Submissions {
        self.recycled.lock().pop().unwrap_or_default()
    }

    /// Keeps the memory of submissions that are over.
    pub(crate) fn recycle(&self, mut submissions: Submissions) {
        submissions.recycle();
        let mut recycled = self.recycled.lock();
        if recycled.len() < RECYCLED {
            recycled.push(submissions);
        }
    }

    /// What the peer of a connection can do is settled: it is there, and the next failure starts counting anew.
    /// `greeted`: it has said so itself, by answering HEARTBEAT.
    pub(crate) fn peer_known(&self, generation: u64, endpoint: &Arc<str>, features: &Arc<Features>, greeted: bool) {
        self.denial.lock().forget();
        if greeted {
            self.greetings.lock().answered(endpoint);
        }
        let mut state = self.connections.lock();
        state.reconnect.attempts.reached();
        if let Some(ready) = state.reconnect.ready_mut(generation) {
            ready.learned = Some(Arc::clone(features));
        }
    }

    /// The server does not serve this client. What waits here is told so.
    pub(crate) fn be_denied(&self, cause: &Cause) {
        self.denial.lock().note(cause, now(), fastrand::f64());
        self.refuse_waiting(cause.clone());
    }

    /// Why a command need not be sent: its server has just refused to serve this client.
    fn denied(&self, command: &Command) -> Option<Cause> {
        let is_sent = command.is_for_the_peer() || matches!(command, Command::Appends(_));
        is_sent.then(|| self.denial.lock().answer(now()).cloned()).flatten()
    }

    /// Whether a server has ever answered a HEARTBEAT of this channel.
    pub(crate) fn has_greeted(&self, endpoint: &Arc<str>) -> bool {
        self.greetings.lock().has_answered(endpoint)
    }

    /// A server answers, and has left a connection's HEARTBEAT without an answer. Whether it has done so often enough to
    /// count as one that knows none.
    pub(crate) fn greeting_missed(&self, endpoint: &Arc<str>) -> bool {
        self.greetings.lock().missed(endpoint)
    }

    /// A server that has answered HEARTBEATs before left a connection's first one without a useful answer: that counts
    /// as a failure to connect to it, so that the next attempt waits, or goes to the next server.
    pub(crate) fn greeting_failed(&self, generation: u64, reason: String) {
        let mut state = self.connections.lock();
        if state.reconnect.is_ready(generation) {
            state.lost(reason);
        }
    }

    /// Whether there may be others to go to while its server is silent.
    pub(crate) fn has_others(&self) -> bool {
        let knows_places = || {
            self.elsewhere
                .upgrade()
                .is_some_and(|elsewhere| elsewhere.knows_places())
        };
        self.led_here || self.servers.len() > 1 || knows_places()
    }

    /// Whether an append need not wait for this server.
    pub(crate) fn is_held_elsewhere(&self, op: &AppendOp) -> bool {
        let Some(elsewhere) = self.elsewhere.upgrade() else {
            return false;
        };
        op.entries.iter().any(|entry| elsewhere.is_held_elsewhere(entry.stream))
    }

    /// Whether appends that were not sent can be handed to whoever has their streams.
    pub(crate) fn knows_places(&self) -> bool {
        self.elsewhere
            .upgrade()
            .is_some_and(|elsewhere| elsewhere.knows_places())
    }

    /// The server of a connection was found silent: until it is heard, or for a while, others are asked first. Where the channel
    /// leads to several, the next one is tried.
    pub(crate) fn note_silent(&self, generation: u64, endpoint: &Arc<str>, reason: &str) {
        self.silences.note(endpoint, now());
        if self.servers.len() > 1 {
            self.greeting_failed(generation, reason.to_owned());
        }
    }

    /// The server that it leads to now, if that was silent when it was last asked, which is not long ago.
    pub(crate) fn is_silent(&self) -> bool {
        let connected = self.connections.lock().ready().map(|ready| Arc::clone(&ready.address));
        match (connected, &*self.servers) {
            (Some(address), _) => self.silences.is_asked_last(&address, now()),
            (None, [only]) => self.silences.is_asked_last(only.as_str(), now()),
            (None, _) => false,
        }
    }

    /// A connection closes. Unless it does so in order, that counts as a failure to connect too.
    pub(crate) fn connection_closes(&self, reason: &CloseReason) {
        self.connections.lock().closing(reason);
    }

    /// A connection takes nothing new any more. Its task goes on until what it sent is answered.
    pub(crate) fn connection_drains(self: Arc<Self>, generation: u64) {
        let mut state = self.connections.lock();
        state.queue.drains(generation);
        if state.reconnect.drains(generation) {
            self.connections.ensure_connecting(&self, &mut state);
        }
    }

    /// A connection that goes away has no appends in flight any more: those that waited for that may go.
    pub(crate) fn appends_drained(self: Arc<Self>, generation: u64) {
        let mut state = self.connections.lock();
        state.queue.drained(generation);
        state.hand_over();
        self.connections.ensure_connecting(&self, &mut state);
    }

    /// Accepts nothing more. What is with a connection is finished there, also with one that drains; what is not is
    /// refused. Who still dials gives up.
    pub(crate) fn close(self: &Arc<Self>) {
        let Some(left) = self.connections.close(|| Command::Close) else {
            return;
        };
        for submissions in left.appends {
            self.refuse_closed(Command::Appends(submissions));
        }
        for command in left.others {
            self.refuse_closed(command);
        }
    }

    /// Waits until the last connection is over, and nobody dials any more.
    pub(crate) async fn wait_closed(&self) {
        self.connections.wait_closed().await;
    }

    pub(crate) fn refuse_closed(&self, command: Command) {
        self.fail(command, &Failure::from(Cause::Closed));
    }

    /// Tells the callers of something that never left this channel.
    fn fail(&self, command: Command, failure: &Failure) {
        match command {
            Command::Appends(submissions) => {
                for op in submissions.ops {
                    self.fail_append(op, failure);
                }
            }
            other => other.fail(failure.clone()),
        }
    }

    fn fail_append(&self, mut op: AppendOp, failure: &Failure) {
        self.budget.release(1, op.bytes());
        if op.reply.is_attempt() {
            return op.reply.fail_attempts(failure);
        }
        self.note_failed(&op, &failure.cause);
        let failure = op.reason(failure.clone());
        let mut error = ClientError::from_failure(&failure, Repeat::Twice, false, op.attempts);
        if let [entry] = op.entries.as_slice() {
            error = error.with_stream(entry.stream);
        }
        op.reply.send(Err(error));
    }

    /// Tells the caller of an append that is with no connection why it ends.
    pub(crate) fn end_append(&self, op: AppendOp, error: ClientError) {
        self.budget.release(1, op.bytes());
        if op.reply.is_attempt() {
            // A writer finds out for itself.
            return op.reply.fail_attempts(&Cause::NotStarted.into());
        }
        op.reply.send(Err(error));
    }
}
