//! The task that keeps a channel connected while there is work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_messages::{ErrorCode, GoAway, Status};
use sbp_session::{Session, SessionConfig};
use sbp_transport::{CloseReason, DialError, Socket, drive_shared, mailbox};
use tokio::net::TcpStream;

use super::{Channel, Phase, Ready, State};
use crate::channel::command::Command;
use crate::channel::connection::Connection;
use crate::channel::header::encoded;
use crate::clock::now;
use crate::failure::{Cause, Failure};
use crate::retry;
use crate::submission::Submissions;

/// The longest pause between two attempts of a client that has never reached a server: it may be starting.
const FIRST_CONNECT_PAUSE: Duration = Duration::from_millis(250);

/// How often deadlines are looked at while there is no connection.
const SWEEP: Duration = Duration::from_millis(50);

/// What a server is told before its connection is closed for what it did.
fn violation_header() -> Bytes {
    let status = Status::error(ErrorCode::INVALID_REQUEST, "the server broke the protocol");
    encoded(&GoAway { status, grace_ms: 0 })
}

/// A task of a channel's that is counted among its runners, however it ends: whoever closes the channel waits for it.
pub(super) struct Runner(pub(super) Arc<Channel>);

impl Runner {
    /// Connects, serves, and connects again while there is work. One runner owns the phase `Connecting` at a time; one
    /// whose connection was replaced while it drained just ends.
    pub(super) async fn run(self) {
        let channel = &self.0;
        while let Some(address) = channel.next_address().await {
            let goes_on = match channel.dial(&address).await {
                None => true,
                Some(Err(error)) => {
                    channel.dial_failed(&error);
                    true
                }
                Some(Ok(socket)) => channel.serve(socket, &address).await,
            };
            if !goes_on {
                break;
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.state.lock().runners -= 1;
        self.0.changed.notify_waiters();
    }
}

/// A connection in its channel's list, however its task ends.
struct Listed<'a> {
    channel: &'a Channel,
    generation: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let connections = &mut self.channel.state.lock().connections;
        connections.retain(|(generation, _)| *generation != self.generation);
    }
}

impl Channel {
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
                    let servers = &self.servers;
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
    async fn serve(self: &Arc<Self>, socket: TcpStream, address: &str) -> bool {
        let mut config = SessionConfig::client();
        config.announce_answers = true;
        config.heartbeat_interval = self.config.heartbeat_interval;
        config.violation_header = violation_header();
        config.limits.own_calls = config.limits.own_calls.max(self.config.max_calls.saturating_add(1_024));
        let session = Session::new(config, now());
        let (mailbox, inbox) = mailbox();
        let driver = Arc::clone(mailbox.stats());
        let listed = {
            let mut state = self.state.lock();
            if state.closed {
                // Closed while this runner dialled, which tells it to end where it looks for an address.
                return true;
            }
            state.generation += 1;
            let generation = state.generation;
            state.connections.push((generation, mailbox.clone()));
            state.phase = Phase::Ready(Ready {
                generation,
                mailbox,
                features: None,
                address: Arc::from(address),
            });
            state.hand_over();
            Listed {
                channel: self,
                generation,
            }
        };
        let generation = listed.generation;
        self.counters.add_connection();
        let endpoint: Arc<str> = Arc::from(address);
        let connection = Connection::new(Arc::clone(self), Arc::clone(&endpoint), generation);
        let reason = drive_shared(Socket::new(socket, &self.sockets), session, connection, inbox).await;
        tracing::debug!(%endpoint, %reason, "connection ended");
        self.counters.keep(&driver);
        drop(listed);
        let mut state = self.state.lock();
        state.draining.retain(|&draining| draining != generation);
        let mine = matches!(&state.phase, Phase::Ready(ready) if ready.generation == generation);
        let orderly = matches!(reason, CloseReason::Local | CloseReason::WentAway);
        if !orderly {
            self.count_failure(&mut state, reason.to_string());
        }
        if mine {
            state.phase = Phase::Connecting;
        } else if state.has_work() {
            state.hand_over();
            self.ensure_runner(&mut state);
        }
        mine
    }

    pub(super) fn count_failure(&self, state: &mut State, reason: String) {
        state.failures += 1;
        state.last_failure = Some(reason);
        state.candidate = state.candidate.wrapping_add(1);
        // Every server is tried once before the first wait.
        let rounds = self.rounds(state.failures);
        let mut wait = retry::backoff(rounds, &self.config.retry);
        if !state.ever_reached {
            state.failing_since.get_or_insert_with(now);
            wait = wait.min(FIRST_CONNECT_PAUSE);
        }
        state.not_before = (rounds > 0).then(|| now() + wait);
    }

    fn dial_failed(self: &Arc<Self>, error: &DialError) {
        let mut state = self.state.lock();
        self.count_failure(&mut state, error.to_string());
        let rounds = self.rounds(state.failures);
        let hopeless = self.gives_up(&state, state.failures);
        let all_tried = rounds > self.rounds(state.failures - 1);
        if !all_tried {
            return;
        }
        if hopeless {
            // The next call begins anew.
            state.failures = 0;
            state.not_before = None;
            state.failing_since = None;
        }
        // Appends wait for a connection as long as they have time: they are in order here, and nobody else keeps that.
        // Only where the server may be elsewhere by now they wait for that to be found out, in order too.
        let moves = self.led_here && state.draining.is_empty();
        let appends = if hopeless || moves {
            state.returned = 0;
            std::mem::take(&mut state.appends)
        } else {
            VecDeque::new()
        };
        // Other calls take their own decisions about the next attempt.
        let others = if hopeless || state.ever_reached {
            std::mem::take(&mut state.others)
        } else {
            Vec::new()
        };
        drop(state);
        let reason = error.to_string();
        let failure = Failure::new(Cause::Unreachable { reason, hopeless }, Some(&self.all_servers()));
        for command in others {
            self.fail(command, &failure);
        }
        for submissions in appends {
            if moves {
                Arc::clone(self).reroute(submissions, Duration::ZERO);
            } else {
                self.fail(Command::Appends(submissions), &failure);
            }
        }
    }

    /// The addresses as they were configured, for errors that no single one is to blame for.
    fn all_servers(&self) -> Arc<str> {
        let servers: Vec<_> = self.servers.iter().map(|server| server.as_str()).collect();
        Arc::from(servers.join(","))
    }

    /// Fails what waits here and has run out of time; nothing of it was sent.
    fn sweep(&self) {
        let now = now();
        let mut expired = Submissions::new();
        let mut overdue: Vec<Command>;
        let (reason, ever_reached);
        {
            let mut state = self.state.lock();
            for submissions in &mut state.appends {
                expired
                    .ops
                    .extend(submissions.ops.extract_if(.., |op| op.deadline <= now));
            }
            let returned = state.appends.iter().take(state.returned);
            state.returned -= returned.filter(|waiting| waiting.is_empty()).count();
            state.appends.retain(|submissions| !submissions.is_empty());
            let late = |command: &mut Command| command.deadline().is_some_and(|at| at <= now);
            overdue = state.others.extract_if(.., late).collect();
            reason = state.last_failure.clone();
            ever_reached = state.ever_reached;
        }
        if !expired.is_empty() {
            overdue.push(Command::Appends(expired));
        }
        if overdue.is_empty() {
            return;
        }
        let cause = match reason {
            // That there is no such server, as far as anybody knows, says more than that time is over.
            Some(reason) if !ever_reached => Cause::Unreachable { reason, hopeless: true },
            waited_for => Cause::Deadline {
                sent: false,
                waited_for,
            },
        };
        let failure = Failure::new(cause, Some(&self.all_servers()));
        for command in overdue {
            self.fail(command, &failure);
        }
    }
}
