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

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sbp_session::{Session, SessionConfig};
use sbp_transport::{CloseReason, DialError, Mailbox, drive, mailbox};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::budget::Budget;
use crate::clock::now;
use crate::config::ClientConfig;
use crate::connection::command::{Command, FetchEvent};
use crate::connection::{Connection, fail_unsent};
use crate::execute::{self, NextStep};
use crate::failure::{Cause, Failure};
use crate::features::Features;
use crate::retry;
use crate::stats::{ClientStats, Counters};
use crate::submission::{AppendOp, Submissions};

/// Submissions kept for use again.
const POOL: usize = 16;
/// How often deadlines are looked at while there is no connection.
const SWEEP: Duration = Duration::from_millis(50);

/// One client's way to its servers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) budget: Budget,
    handle: Handle,
    state: Mutex<State>,
    pool: Mutex<Vec<Submissions>>,
    /// Woken when the link is closed, and when a connection has ended.
    changed: Notify,
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
    ever_reached: bool,
    /// Connections that are not over.
    alive: usize,
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
}

impl Link {
    pub(crate) fn new(config: Arc<ClientConfig>, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            config,
            counters: Arc::default(),
            budget: Budget::default(),
            handle,
            state: Mutex::new(State {
                phase: Phase::Idle,
                appends: VecDeque::new(),
                returned: 0,
                others: Vec::new(),
                draining: Vec::new(),
                generation: 0,
                candidate: 0,
                failures: 0,
                not_before: None,
                ever_reached: false,
                alive: 0,
                closed: false,
            }),
            pool: Mutex::new(Vec::new()),
            changed: Notify::new(),
        })
    }

    /// Hands a command to the connection, or keeps it for the next one.
    pub(crate) fn post(self: &Arc<Self>, command: Command) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return self.refuse_closed(command);
        }
        let behind = matches!(command, Command::Appends(_)) && !state.appends.is_empty();
        let command = match &state.phase {
            Phase::Ready(ready) if !behind => match ready.mailbox.post(command) {
                Ok(()) => return,
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

    /// The next connection is to another server, if there is one.
    pub(crate) fn move_on(&self) {
        if self.config.servers.len() > 1 {
            let mut state = self.state.lock();
            state.candidate = state.candidate.wrapping_add(1);
            if let Phase::Ready(ready) = &state.phase {
                // An error means that it has ended already.
                drop(ready.mailbox.post(Command::Close));
                state.phase = Phase::Idle;
            }
        }
    }

    /// Whether no server was ever reached, and one more failure ends the configured rounds.
    pub(crate) fn is_hopeless(&self) -> bool {
        let state = self.state.lock();
        !state.ever_reached && self.rounds(state.failures + 1) >= self.config.retry.first_connect_rounds
    }

    /// How often every server has been tried.
    fn rounds(&self, failures: u32) -> u32 {
        failures / u32::try_from(self.config.servers.len()).unwrap_or(1).max(1)
    }

    /// What was agreed with the peer of the present connection.
    pub(crate) fn features(&self) -> Option<Arc<Features>> {
        match &self.state.lock().phase {
            Phase::Ready(ready) => ready.features.clone(),
            Phase::Idle | Phase::Connecting => None,
        }
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let state = self.state.lock();
        match &state.phase {
            Phase::Ready(ready) => self.counters.snapshot(Some(ready.mailbox.stats())),
            Phase::Idle | Phase::Connecting => self.counters.snapshot(None),
        }
    }

    /// Submissions with memory that has been used before.
    pub(crate) fn fresh(&self) -> Submissions {
        self.pool.lock().pop().unwrap_or_default()
    }

    /// Keeps the memory of submissions that are over.
    pub(crate) fn recycle(&self, mut submissions: Submissions) {
        submissions.recycle();
        let mut pool = self.pool.lock();
        if pool.len() < POOL {
            pool.push(submissions);
        }
    }

    /// The peer has answered HEARTBEAT: it is there, and the next failure starts counting anew.
    pub(crate) fn peer_known(&self, generation: u64, features: &Arc<Features>) {
        let mut state = self.state.lock();
        state.failures = 0;
        state.not_before = None;
        state.ever_reached = true;
        if let Phase::Ready(ready) = &mut state.phase
            && ready.generation == generation
        {
            ready.features = Some(Arc::clone(features));
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

    /// Accepts nothing more. What is with a connection is finished there; what is not is refused.
    pub(crate) fn close(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.closed = true;
        let appends = std::mem::take(&mut state.appends);
        let others = std::mem::take(&mut state.others);
        if let Phase::Ready(ready) = &state.phase {
            // An error means that it has ended already.
            drop(ready.mailbox.post(Command::Close));
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

    /// Waits until the last connection is over.
    pub(crate) async fn wait_closed(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state.lock().alive == 0 {
                return;
            }
            changed.await;
        }
    }

    fn refuse_closed(&self, command: Command) {
        let failure = Failure::from(Cause::Closed);
        match command {
            Command::Appends(submissions) => {
                for op in submissions.ops {
                    self.fail_append(op, &failure);
                }
            }
            Command::Call(call) => drop(call.reply.send(Err(failure))),
            Command::Ping(ping) => drop(ping.reply.send(Err(failure))),
            Command::Fetch(fetch) => drop(fetch.events.send(FetchEvent::Failed {
                tag: fetch.tag,
                failure,
            })),
            Command::Close => {}
        }
    }

    /// Tells an append that waited here that it failed for good; returns it when it may still go on.
    fn fail_append(&self, mut op: AppendOp, failure: &Failure) -> Option<AppendOp> {
        op.attempts += 1;
        match execute::after_failed_append(failure, op.attempts, op.deadline, &self.config.retry) {
            NextStep::Fail(error) => {
                self.budget.release(1, op.bytes());
                let stream = op.entries.first().map(|entry| entry.stream);
                let error = stream.map_or_else(|| error.clone(), |stream| error.clone().with_stream(stream));
                op.reply.send(Err(error));
                None
            }
            NextStep::NextConnection | NextStep::After { .. } => Some(op),
        }
    }

    fn ensure_runner(self: &Arc<Self>, state: &mut State) {
        if matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Connecting;
            state.alive += 1;
            self.handle.spawn(Arc::clone(self).run());
        }
    }

    /// Connects, serves, and connects again while there is work. One runner owns the phase `Connecting` at a time; one
    /// whose connection was replaced while it drained just ends.
    async fn run(self: Arc<Self>) {
        while let Some(address) = self.next_address().await {
            let goes_on = match self.dial(&address).await {
                None => true,
                Some(Err(error)) => {
                    self.dial_failed(&error);
                    true
                }
                Some(Ok(socket)) => Arc::clone(&self).serve(socket, &address).await,
            };
            if !goes_on {
                break;
            }
        }
        self.state.lock().alive -= 1;
        self.changed.notify_waiters();
    }

    /// Waits until an attempt is allowed, and says where to. `None`: there is nothing to connect for.
    async fn next_address(self: &Arc<Self>) -> Option<String> {
        loop {
            let wait = {
                let mut state = self.state.lock();
                if state.closed || !state.has_work() {
                    state.phase = Phase::Idle;
                    return None;
                }
                let wait = state
                    .not_before
                    .map(|at| at.saturating_duration_since(now()))
                    .unwrap_or_default();
                if wait.is_zero() {
                    let servers = &self.config.servers;
                    let index = state.candidate % servers.len().max(1);
                    return servers.get(index).map(|server| server.as_str().to_owned());
                }
                wait
            };
            let changed = self.changed.notified();
            tokio::select! {
                () = tokio::time::sleep(wait.min(SWEEP)) => {}
                () = changed => {}
            }
            self.sweep();
        }
    }

    /// Connects while looking after the deadlines of what waits. `None`: nothing waits any more.
    async fn dial(self: &Arc<Self>, address: &str) -> Option<Result<TcpStream, DialError>> {
        let dial = sbp_transport::dial(address, self.config.connect_timeout);
        tokio::pin!(dial);
        loop {
            let changed = self.changed.notified();
            tokio::select! {
                result = &mut dial => return Some(result),
                () = tokio::time::sleep(SWEEP) => {}
                () = changed => {}
            }
            self.sweep();
            let state = self.state.lock();
            if state.closed || !state.has_work() {
                return None;
            }
        }
    }

    /// Runs one connection to its end. Returns whether this runner goes on.
    async fn serve(self: Arc<Self>, socket: TcpStream, address: &str) -> bool {
        let mut config = SessionConfig::client();
        config.heartbeat_interval = self.config.heartbeat_interval;
        config.limits.own_calls = config.limits.own_calls.max(self.config.max_calls.saturating_add(1_024));
        let session = Session::new(config, now());
        let (mailbox, inbox) = mailbox();
        let driver = Arc::clone(mailbox.stats());
        let generation = {
            let mut state = self.state.lock();
            state.generation += 1;
            let generation = state.generation;
            state.phase = Phase::Ready(Ready {
                generation,
                mailbox,
                features: None,
            });
            state.hand_over();
            generation
        };
        self.counters.add_connection();
        let endpoint: Arc<str> = Arc::from(address);
        let connection = Connection::new(Arc::clone(&self), Arc::clone(&endpoint), generation);
        let reason = drive(socket, session, connection, inbox).await;
        tracing::debug!(%endpoint, %reason, "connection ended");
        self.counters.keep(&driver);
        let mut state = self.state.lock();
        state.draining.retain(|&draining| draining != generation);
        let mine = matches!(&state.phase, Phase::Ready(ready) if ready.generation == generation);
        let orderly = matches!(reason, CloseReason::Local | CloseReason::WentAway);
        if !orderly {
            self.count_failure(&mut state);
        }
        if mine {
            state.phase = Phase::Connecting;
        } else if state.has_work() {
            state.hand_over();
            self.ensure_runner(&mut state);
        }
        mine
    }

    fn count_failure(&self, state: &mut State) {
        state.failures += 1;
        state.candidate = state.candidate.wrapping_add(1);
        // Every server is tried once before the first wait.
        let rounds = self.rounds(state.failures);
        state.not_before = (rounds > 0).then(|| now() + retry::backoff(rounds, &self.config.retry));
    }

    fn dial_failed(&self, error: &DialError) {
        let mut state = self.state.lock();
        self.count_failure(&mut state);
        let servers = u32::try_from(self.config.servers.len()).unwrap_or(1).max(1);
        let rounds = self.rounds(state.failures);
        let all_tried = state.failures.is_multiple_of(servers);
        let hopeless = !state.ever_reached && rounds >= self.config.retry.first_connect_rounds;
        if !all_tried {
            return;
        }
        if hopeless {
            // The next call begins anew.
            state.failures = 0;
            state.not_before = None;
        }
        let others = if hopeless || state.ever_reached {
            std::mem::take(&mut state.others)
        } else {
            Vec::new()
        };
        let appends = if hopeless {
            std::mem::take(&mut state.appends)
        } else {
            VecDeque::new()
        };
        drop(state);
        let endpoint = self
            .config
            .servers
            .iter()
            .map(|server| server.as_str())
            .collect::<Vec<_>>()
            .join(",");
        let cause = Cause::Unreachable {
            reason: error.to_string(),
            hopeless,
        };
        let failure = Failure::new(cause, Some(&Arc::from(endpoint)));
        for command in others {
            match command {
                Command::Call(call) => drop(call.reply.send(Err(failure.clone()))),
                Command::Ping(ping) => drop(ping.reply.send(Err(failure.clone()))),
                Command::Fetch(fetch) => {
                    drop(fetch.events.send(FetchEvent::Failed {
                        tag: fetch.tag,
                        failure: failure.clone(),
                    }));
                }
                Command::Appends(_) | Command::Close => {}
            }
        }
        for op in appends.into_iter().flat_map(|submissions| submissions.ops) {
            // A hopeless failure is final for every append.
            drop(self.fail_append(op, &failure));
        }
    }

    /// Fails what waits here and has run out of time; nothing of it was sent.
    fn sweep(&self) {
        let now = now();
        let mut expired = Vec::new();
        let mut overdue = Vec::new();
        {
            let mut state = self.state.lock();
            for submissions in &mut state.appends {
                expired.extend(submissions.ops.extract_if(.., |op| op.deadline <= now));
            }
            let emptied = state
                .appends
                .iter()
                .take(state.returned)
                .filter(|waiting| waiting.is_empty())
                .count();
            state.returned -= emptied;
            state.appends.retain(|submissions| !submissions.is_empty());
            overdue.extend(
                state
                    .others
                    .extract_if(.., |command| command.deadline().is_some_and(|at| at <= now)),
            );
        }
        let failure = Failure::from(Cause::Deadline { sent: false });
        for op in expired {
            // A passed deadline is final.
            drop(self.fail_append(op, &failure));
        }
        for command in overdue {
            match command {
                Command::Call(call) => drop(call.reply.send(Err(failure.clone()))),
                Command::Ping(ping) => drop(ping.reply.send(Err(failure.clone()))),
                other => fail_unsent(other, &Arc::from(""), "the deadline passed"),
            }
        }
    }
}

impl State {
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
