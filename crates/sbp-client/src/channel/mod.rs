//! The way to a server: dials, hands work to the connection, dials again, and keeps what has no connection yet.
//!
//! ```text
//!            work                    dialled
//!   Idle ----------> Connecting ---------------> Ready
//!    ^                 |    ^                      | lost, or GOAWAY: the old connection drains by itself
//!    | nothing to do   v    | time over            v
//!    +-------------- BackingOff <------------- Connecting, or Idle when there is no work
//! ```
//!
//! Appends that were not sent stay in order across connections. A stream's next append goes out on a new connection only
//! when the old one's appends are over, so that the server sees them in the order they were submitted.

pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod credit;
pub(crate) mod header;
mod ping_pace;
mod round_trips;
mod runner;
mod slab;
mod stats;
mod throttle;

pub(crate) use self::connection::{refused, undecodable};
pub use self::round_trips::RoundTripStats;
pub use self::stats::ClientStats;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_transport::{Descriptors, Mailbox, SleepingDriver, TransportStats};
use sbp_types::ServerId;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::runner::Runner;
use crate::address::ServerAddress;
use crate::channel::command::{Command, FetchEvent};
use crate::channel::ping_pace::PingPace;
use crate::channel::stats::Counters;
use crate::channel::throttle::Throttles;
use crate::clock::now;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::features::Features;
use crate::retry::Repeat;
use crate::retry::budget::RetryBudget;
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
}

/// One client's way to its servers.
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
    /// Pauses that its server asks for.
    pub(crate) throttles: Throttles,
    /// Turns of its PINGs.
    pub(crate) pings: PingPace,
    handle: Handle,
    state: Mutex<State>,
    recycled: Arc<Mutex<Vec<Submissions>>>,
    /// Woken when the channel is closed, and when a connection has ended.
    changed: Notify,
    /// Its connections' sockets: one, and those that drain.
    pub(crate) sockets: Arc<Descriptors>,
    /// Whether a placement driver named its server, not the configuration: the server may be at another address by now.
    led_here: bool,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Appends without a connection, in order.
    appends: VecDeque<Submissions>,
    /// How many at the front of `appends` came back from a connection: more that come back go behind them.
    returned: usize,
    /// Everything else without a connection.
    others: Vec<Command>,
    /// Connections that go away and still have appends in flight.
    draining: Vec<u64>,
    generation: u64,
    /// Which of the servers is next.
    candidate: usize,
    /// Attempts to connect that failed since the last success.
    failures: u32,
    not_before: Option<Instant>,
    /// When the first attempt to connect failed, of a channel that has never reached a server.
    failing_since: Option<Instant>,
    /// Why there was no connection last time, for those who run out of time without one.
    last_failure: Option<String>,
    ever_reached: bool,
    /// The servers that have answered a HEARTBEAT: one of these that is silent is stalled, not a peer without features.
    greeted: Vec<Arc<str>>,
    /// The connections that are not over, the ready one and those that drain, by their generation.
    connections: Vec<(u64, Mailbox<Command>)>,
    /// Runners that have not ended: each dials, or serves one connection.
    runners: usize,
    closed: bool,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Connecting,
    Ready(Ready),
}

#[derive(Debug)]
struct Ready {
    generation: u64,
    mailbox: Mailbox<Command>,
    features: Option<Arc<Features>>,
    /// What was dialled.
    address: Arc<str>,
}

impl Channel {
    /// The channel to the servers that the configuration names.
    pub(crate) fn new(config: Arc<ClientConfig>, handle: Handle, elsewhere: Weak<dyn Reroute>) -> Arc<Self> {
        Arc::new(Self {
            servers: config.servers.clone(),
            elsewhere,
            config,
            counters: Arc::default(),
            budget: Arc::default(),
            retries: Arc::default(),
            throttles: Throttles::default(),
            pings: PingPace::default(),
            handle,
            state: Mutex::new(State::new(false)),
            recycled: Arc::default(),
            changed: Notify::new(),
            sockets: Descriptors::new(SOCKETS),
            led_here: false,
        })
    }

    /// A channel to another server of the same service, for the same client. That the server exists is known from those
    /// that named it, so it is waited for.
    pub(crate) fn sibling(&self, server: ServerAddress) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(&self.config),
            servers: vec![server],
            elsewhere: Weak::clone(&self.elsewhere),
            counters: Arc::clone(&self.counters),
            budget: Arc::clone(&self.budget),
            retries: Arc::clone(&self.retries),
            throttles: Throttles::default(),
            pings: PingPace::default(),
            handle: self.handle.clone(),
            state: Mutex::new(State::new(true)),
            recycled: Arc::clone(&self.recycled),
            changed: Notify::new(),
            sockets: Arc::clone(&self.sockets),
            led_here: true,
        })
    }

    /// Runs work of the client that belongs to no connection.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Finds out where appends belong, after a while.
    pub(crate) fn reroute(self: Arc<Self>, submissions: Submissions, wait: Duration) {
        match self.elsewhere.upgrade() {
            Some(elsewhere) => elsewhere.reroute(submissions, wait),
            None => self.refuse_closed(Command::Appends(submissions)),
        }
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
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            self.refuse_closed(command);
            return None;
        }
        let behind = matches!(command, Command::Appends(_)) && !state.appends.is_empty();
        let command = match &state.phase {
            Phase::Ready(ready) if !behind => match ready.mailbox.post_for(command) {
                Ok(sleeping) => return sleeping,
                // It has just ended: its runner finds the command when it looks for work.
                Err(command) => command,
            },
            _ => command,
        };
        match command {
            Command::Appends(submissions) => state.appends.push_back(submissions),
            other => state.others.push(other),
        }
        self.ensure_runner(&mut state);
        None
    }

    /// Has the connection run a writer's pump. Given back where there is no connection.
    pub(crate) fn post_pump(&self, writer: Arc<dyn AttemptSink>) -> Result<(), Command> {
        let command = Command::Pump(writer);
        match &self.state.lock().phase {
            Phase::Ready(ready) => ready.mailbox.post(command),
            Phase::Idle | Phase::Connecting => Err(command),
        }
    }

    /// Takes back appends that were not sent; they go out before all that came later.
    pub(crate) fn requeue(self: &Arc<Self>, submissions: Submissions) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return self.refuse_closed(Command::Appends(submissions));
        }
        let place = state.returned.min(state.appends.len());
        state.appends.insert(place, submissions);
        state.returned = place + 1;
        self.ensure_runner(&mut state);
    }

    /// Submits again after a while, perhaps to the next server.
    pub(crate) fn resubmit_after(self: Arc<Self>, submissions: Submissions, wait: Duration, elsewhere: bool) {
        if elsewhere {
            self.move_on();
        }
        self.handle.clone().spawn(async move {
            tokio::time::sleep(wait).await;
            self.post(Command::Appends(submissions));
        });
    }

    /// The present connection answers nothing: it takes nothing new any more, and another one is made.
    pub(crate) fn reconnect(&self) {
        if let Phase::Ready(ready) = &self.state.lock().phase {
            // An error means that it has ended already.
            drop(ready.mailbox.post(Command::Drain));
        }
    }

    /// The next connection is to another server, if there is one.
    pub(crate) fn move_on(&self) {
        if self.servers.len() > 1 {
            let mut state = self.state.lock();
            state.candidate = state.candidate.wrapping_add(1);
            if let Phase::Ready(ready) = &state.phase {
                // An error means that it has ended already.
                drop(ready.mailbox.post(Command::Close));
                let generation = ready.generation;
                state.draining.push(generation);
                state.phase = Phase::Idle;
            }
        }
    }

    /// How many servers were named.
    pub(crate) fn servers_named(&self) -> u32 {
        u32::try_from(self.servers.len()).unwrap_or(u32::MAX)
    }

    /// Whether one more failure ends the attempts to reach a server for the first time.
    pub(crate) fn is_hopeless(&self) -> bool {
        let state = self.state.lock();
        self.gives_up(&state, state.failures + 1)
    }

    /// Whether no server was ever reached, in as many attempts and as long a time as are configured.
    fn gives_up(&self, state: &State, failures: u32) -> bool {
        let policy = &self.config.retry;
        let waited = state.failing_since.map(|since| now().saturating_duration_since(since));
        !state.ever_reached
            && self.rounds(failures) >= policy.first_connect_rounds
            && waited.unwrap_or_default() >= policy.first_connect_wait
    }

    /// How often every server has been tried.
    fn rounds(&self, failures: u32) -> u32 {
        failures / u32::try_from(self.servers.len()).unwrap_or(1).max(1)
    }

    /// What was agreed with the peer of the present connection.
    pub(crate) fn features(&self) -> Option<Arc<Features>> {
        match &self.state.lock().phase {
            Phase::Ready(ready) => ready.features.clone(),
            Phase::Idle | Phase::Connecting => None,
        }
    }

    /// Whether the present connection leads to a server, known by the number it told or by where it was dialled.
    pub(crate) fn leads_to(&self, server: ServerId, address: &str) -> bool {
        match &self.state.lock().phase {
            Phase::Ready(ready) => match ready.features.as_ref().and_then(|features| features.server_id) {
                Some(told) => told == server.0,
                None => *ready.address == *address,
            },
            Phase::Idle | Phase::Connecting => self.servers.iter().any(|named| named.as_str() == address),
        }
    }

    /// What the present connection's driver counts.
    pub(crate) fn driver(&self) -> Option<Arc<TransportStats>> {
        match &self.state.lock().phase {
            Phase::Ready(ready) => Some(Arc::clone(ready.mailbox.stats())),
            Phase::Idle | Phase::Connecting => None,
        }
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
        let mut state = self.state.lock();
        state.failures = 0;
        state.not_before = None;
        state.ever_reached = true;
        if greeted && !state.greeted.contains(endpoint) {
            state.greeted.push(Arc::clone(endpoint));
        }
        if let Phase::Ready(ready) = &mut state.phase
            && ready.generation == generation
        {
            ready.features = Some(Arc::clone(features));
        }
    }

    /// Whether a server has ever answered a HEARTBEAT of this channel.
    pub(crate) fn has_greeted(&self, endpoint: &Arc<str>) -> bool {
        self.state.lock().greeted.contains(endpoint)
    }

    /// A server that has answered HEARTBEATs before left a connection's first one without a useful answer: that counts
    /// as a failure to connect to it, so that the next attempt waits, or goes to the next server.
    pub(crate) fn greeting_failed(&self, generation: u64, reason: String) {
        let mut state = self.state.lock();
        if matches!(&state.phase, Phase::Ready(ready) if ready.generation == generation) {
            self.count_failure(&mut state, reason);
        }
    }

    /// A connection takes nothing new any more. Its task goes on until what it sent is answered.
    pub(crate) fn connection_drains(self: Arc<Self>, generation: u64) {
        let mut state = self.state.lock();
        state.draining.push(generation);
        if matches!(&state.phase, Phase::Ready(ready) if ready.generation == generation) {
            state.phase = Phase::Idle;
            if state.has_work() {
                self.ensure_runner(&mut state);
            }
        }
    }

    /// A connection that goes away has no appends in flight any more: those that waited for that may go.
    pub(crate) fn appends_drained(self: Arc<Self>, generation: u64) {
        let mut state = self.state.lock();
        state.draining.retain(|&draining| draining != generation);
        state.hand_over();
        if state.has_work() {
            self.ensure_runner(&mut state);
        }
    }

    /// Accepts nothing more. What is with a connection is finished there, also with one that drains; what is not is
    /// refused. A runner that still dials finds the channel closed when it is done.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.closed = true;
        let appends = std::mem::take(&mut state.appends);
        let others = std::mem::take(&mut state.others);
        for (_, mailbox) in &state.connections {
            // An error means that it has ended already.
            drop(mailbox.post(Command::Close));
        }
        drop(state);
        self.changed.notify_waiters();
        for submissions in appends {
            self.refuse_closed(Command::Appends(submissions));
        }
        for command in others {
            self.refuse_closed(command);
        }
    }

    /// Waits until the last connection is over, and nobody dials any more.
    pub(crate) async fn wait_closed(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state.lock().runners == 0 {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn refuse_closed(&self, command: Command) {
        self.fail(command, &Failure::from(Cause::Closed));
    }

    /// Tells the callers of something that never left this channel.
    fn fail(&self, command: Command, failure: &Failure) {
        let failure = failure.clone();
        match command {
            Command::Appends(submissions) => {
                for op in submissions.ops {
                    self.fail_append(op, &failure);
                }
            }
            // An error means that the caller has given up.
            Command::Call(call) => drop(call.reply.send(Err(failure))),
            Command::Ping(ping) => drop(ping.reply.send(Err(failure))),
            Command::Fetch(fetch) => {
                let tag = fetch.tag;
                drop(fetch.events.send(FetchEvent::Failed { tag, failure }));
            }
            Command::Pump(_) | Command::Close | Command::Drain => {}
        }
    }

    fn fail_append(&self, mut op: AppendOp, failure: &Failure) {
        self.budget.release(1, op.bytes());
        if op.reply.is_attempt() {
            return op.reply.fail_attempt(failure.clone());
        }
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
            return op.reply.fail_attempt(Cause::NotStarted.into());
        }
        op.reply.send(Err(error));
    }

    fn ensure_runner(self: &Arc<Self>, state: &mut State) {
        if matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Connecting;
            state.runners += 1;
            self.handle.spawn(Runner(Arc::clone(self)).run());
        }
    }
}

impl State {
    fn new(ever_reached: bool) -> Self {
        Self {
            phase: Phase::Idle,
            appends: VecDeque::new(),
            returned: 0,
            others: Vec::new(),
            draining: Vec::new(),
            generation: 0,
            candidate: 0,
            failures: 0,
            not_before: None,
            failing_since: None,
            last_failure: None,
            ever_reached,
            greeted: Vec::new(),
            connections: Vec::new(),
            runners: 0,
            closed: false,
        }
    }

    fn has_work(&self) -> bool {
        !self.others.is_empty() || (!self.appends.is_empty() && self.draining.is_empty())
    }

    /// Gives the connection what waits for it; appends only when no older connection has appends in flight.
    fn hand_over(&mut self) {
        let Phase::Ready(ready) = &self.phase else { return };
        let mut commands = std::mem::take(&mut self.others);
        if self.draining.is_empty() {
            commands.extend(self.appends.drain(..).map(Command::Appends));
            self.returned = 0;
        }
        if !ready.mailbox.post_all(&mut commands) {
            // It has ended meanwhile: its runner comes back to these.
            for command in commands {
                match command {
                    Command::Appends(submissions) => self.appends.push_back(submissions),
                    other => self.others.push(other),
                }
            }
        }
    }
}
