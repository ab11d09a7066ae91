//! What is a client's own of connections that come and go: what they are, and who is told when there is none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_messages::{ErrorCode, GoAway, Status};
use sbp_session::{Session, SessionConfig};
use sbp_transport::{
    Attempts, ChannelOwner, Descriptors, DialError, LinkSettings, ReconnectPolicy, ReconnectingChannel, TransportStats,
};
use tokio::runtime::Handle;

use super::Channel;
use super::command::Command;
use super::connection::Connection;
use super::header::encoded;
use super::queue::Queue;
use crate::address::ServerAddress;
use crate::clock::now;
use crate::config::ClientConfig;
use crate::failure::{Cause, Failure};
use crate::retry::SOON;

/// The longest pause between two attempts of a client that has never reached a server: it may be starting.
const FIRST_CONNECT_PAUSE: Duration = Duration::from_millis(250);

/// How long one of several servers is dialled at most, and one that others named: they can be asked instead.
const DIALLED: Duration = Duration::from_secs(4);

/// What a server is told before its connection is closed for what it did.
fn violation_header() -> Bytes {
    let status = Status::error(ErrorCode::INVALID_REQUEST, "the server broke the protocol");
    encoded(&GoAway { status, grace_ms: 0 })
}

/// The connections to these servers. Every server is tried once before the first pause.
pub(super) fn connections(
    config: &ClientConfig,
    servers: &[ServerAddress],
    ever_reached: bool,
    runtime: Handle,
    sockets: Arc<Descriptors>,
) -> ReconnectingChannel<Queue> {
    let policy = ReconnectPolicy {
        addresses: servers.len(),
        attempts_per_round: u32::try_from(servers.len()).unwrap_or(1),
        back_off: config.retry.back_off_up_to(SOON),
        longest_before_reached: FIRST_CONNECT_PAUSE,
        forgets_when_idle: false,
    };
    let addresses = servers.iter().map(|server| Arc::from(server.as_str())).collect();
    let links = LinkSettings {
        timeout: if ever_reached || servers.len() > 1 {
            config.connect_timeout.min(DIALLED)
        } else {
            config.connect_timeout
        },
        tls: config.tls.clone(),
        sockets,
    };
    ReconnectingChannel::new(addresses, links, policy, ever_reached, runtime)
}

impl ChannelOwner for Channel {
    type Queue = Queue;
    type Connection = Connection;

    fn channel(&self) -> &ReconnectingChannel<Queue> {
        &self.connections
    }

    fn endpoint(&self, now: Instant) -> Session {
        let mut config = SessionConfig::client();
        config.announce_answers = true;
        config.heartbeat_interval = self.config.heartbeat_interval;
        config.violation_header = violation_header();
        config.limits.own_calls = config.limits.own_calls.max(self.config.max_calls.saturating_add(1_024));
        Session::new(config, now)
    }

    fn connection(self: Arc<Self>, address: &Arc<str>, generation: u64) -> Connection {
        self.counters.add_connection();
        Connection::new(self, Arc::clone(address), generation)
    }

    fn is_tried_last(&self, address: &str) -> bool {
        self.silences.is_asked_last(address, now())
    }

    fn dial_failed(self: &Arc<Self>, error: &DialError) {
        let mut state = self.connections.lock();
        state.dial_failed(error);
        let attempts = &state.reconnect.attempts;
        let failures = attempts.failures();
        if attempts.rounds(failures) == attempts.rounds(failures.saturating_sub(1)) {
            // Other servers are tried first.
            return;
        }
        let hopeless = error.is_final() || self.gives_up(attempts, failures);
        let ever_reached = attempts.ever_reached();
        if hopeless {
            // The next call begins anew.
            state.reconnect.attempts.start_over();
        }
        // Appends wait for a connection as long as they have time: they are in order here, and nobody else keeps that.
        // Only where the server may be elsewhere by now they wait for that to be found out, in order too.
        let moves = self.led_here && !state.queue.is_draining() && !error.is_final();
        let appends = if hopeless || moves {
            state.queue.take_appends()
        } else {
            VecDeque::new()
        };
        // Other calls take their own decisions about the next attempt.
        let others = if hopeless || ever_reached {
            std::mem::take(&mut state.queue.others)
        } else {
            Vec::new()
        };
        drop(state);
        let reason = error.to_string();
        let failure = self.unsent(if error.is_final() {
            Cause::Tls { reason }
        } else {
            Cause::Unreachable { reason, hopeless }
        });
        for command in others {
            self.fail(command, &failure);
        }
        for submissions in appends {
            if moves {
                self.reroute(submissions, Duration::ZERO);
            } else {
                self.fail(Command::Appends(submissions), &failure);
            }
        }
    }

    /// Fails what waits here and has run out of time; nothing of it was sent.
    fn look_after_queue(&self) -> Option<Instant> {
        let now = now();
        let (overdue, next, reason, ever_reached) = {
            let mut state = self.connections.lock();
            let (overdue, next) = state.queue.take_overdue(now);
            let reason = state.last_failure.clone();
            (overdue, next, reason, state.reconnect.attempts.ever_reached())
        };
        if !overdue.is_empty() {
            let failure = self.unsent(match reason {
                // That there is no such server, as far as anybody knows, says more than that time is over.
                Some(reason) if !ever_reached => Cause::Unreachable { reason, hopeless: true },
                waited_for => Cause::Deadline {
                    sent: false,
                    waited_for,
                },
            });
            for command in overdue {
                self.fail(command, &failure);
            }
        }
        next
    }

    fn connection_ended(&self, generation: u64, driver: &TransportStats) {
        self.counters.keep(driver);
        self.connections.lock().queue.drained(generation);
    }
}

impl Channel {
    /// A server refuses all connections for a reason that lasts: what waits here is told.
    pub(super) fn refuse_waiting(&self, cause: Cause) {
        let (appends, others) = {
            let mut state = self.connections.lock();
            (state.queue.take_appends(), std::mem::take(&mut state.queue.others))
        };
        let failure = self.unsent(cause);
        for command in others.into_iter().chain(appends.into_iter().map(Command::Appends)) {
            self.fail(command, &failure);
        }
    }

    /// Why something failed that no single server is to blame for.
    pub(super) fn unsent(&self, cause: Cause) -> Failure {
        Failure::new(cause, Some(&Arc::from(self.connections.name())))
    }

    /// Whether no server was ever reached, in as many attempts and as long a time as are configured.
    pub(super) fn gives_up(&self, attempts: &Attempts, failures: u32) -> bool {
        let policy = &self.config.retry;
        !attempts.ever_reached()
            && attempts.rounds(failures) >= policy.first_connect_rounds
            && attempts.failing_for(now()) >= policy.first_connect_wait
    }
}
