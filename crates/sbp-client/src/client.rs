//! The handle.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_messages::HeartbeatResponse;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::call::answers::single;
use crate::call::{self, Plan, Trying, Where};
use crate::channel::Channel;
use crate::channel::command::{Answer, Command, Need, Ping};
use crate::channel::connection::identity::is_denial;
use crate::channel::credit::ReceiveCredit;
use crate::channel::{ClientMetrics, ClientStats};
use crate::clock::now;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::features::Features;
use crate::known::Known;
use crate::pinned::PinnedMemory;
use crate::pool::ConnectionPool;
use crate::retry::Repeat;
use crate::submission::Submissions;
use crate::submission::budget::AppendsInFlight;

/// A client of one SBP service. Clones share everything; nothing is connected until it is used.
///
/// All work runs as tasks of the tokio runtime it was given, so its futures may be awaited on any executor. The last
/// clone closes the connections when it is dropped, after what is on its way has been answered.
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) handle: Handle,
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) credit: Arc<ReceiveCredit>,
    pub(crate) pinned: Arc<PinnedMemory>,
    /// Streams that were described.
    pub(crate) known: Mutex<Known>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl Client {
    /// A client that will run on `handle`'s runtime, which must have its time and I/O drivers enabled.
    #[must_use]
    pub fn new(config: ClientConfig, handle: Handle) -> Self {
        let config = Arc::new(config);
        Self {
            core: Arc::new(Core {
                pool: ConnectionPool::new(Arc::clone(&config), handle.clone()),
                credit: ReceiveCredit::new(config.receive_credit),
                pinned: PinnedMemory::new(config.max_pinned_bytes),
                config,
                handle,
                known: Mutex::default(),
            }),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The channel to the servers that were named.
    pub(crate) fn channel(&self) -> &Arc<Channel> {
        self.core.pool.home()
    }

    pub(crate) fn pool(&self) -> &Arc<ConnectionPool> {
        &self.core.pool
    }

    /// How this client was configured.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.core.config
    }

    /// The runtime its tasks run on.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.core.handle
    }

    /// The moment at which a call that starts now gives up: after `timeout`, or the configured default.
    #[must_use]
    pub fn deadline(&self, timeout: Option<Duration>) -> Instant {
        now() + timeout.unwrap_or(self.core.config.timeout)
    }

    /// Connects if need be and exchanges HEARTBEATs: proves that an SBP server answers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) when no server could be connected to, after a few
    /// rounds over all of them.
    pub async fn connect(&self, timeout: Option<Duration>) -> Result<(), ClientError> {
        let plan = Plan {
            opcode: crate::channel::connection::hello::OPCODE,
            needs: Need::Nothing,
            repeat: Repeat::Harmless,
            to: Where::Placement,
            deadline: self.deadline(timeout),
        };
        let hello = crate::channel::connection::hello::Hello::new(&self.core.config.client_id);
        let header = bytes::Bytes::copy_from_slice(hello.request());
        let judge = |answer: &Answer| match single(answer, |hello: HeartbeatResponse| ((), hello.status)) {
            // The server is there, and does not serve this client.
            Err(cause) if is_denial(&cause) => Err(cause),
            // Anything else shows that it is there.
            _ => Ok(()),
        };
        call::call(self.pool(), plan, |_left| header.clone(), judge).await
    }

    /// Measures one round trip with PING, connecting if need be. Beyond a burst of a hundred, at most fifty a second go out,
    /// which servers put up with; more wait for their turn.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], or that no answer came in time.
    pub async fn ping(&self, timeout: Option<Duration>) -> Result<Duration, ClientError> {
        let deadline = self.deadline(timeout);
        let mut trying = Trying::new(Repeat::Harmless, Where::Placement, deadline);
        loop {
            let turn = self.channel().pings.turn(now());
            if !turn.is_zero() {
                let left = deadline.saturating_duration_since(now());
                tokio::time::sleep(turn.min(left)).await;
            }
            let (reply, answer) = oneshot::channel();
            self.channel().post(Command::Ping(Box::new(Ping { deadline, reply })));
            match call::await_reply(answer, deadline).await {
                Ok(round_trip) => return Ok(round_trip),
                Err(failure) => call::pause(self.pool(), &failure, &mut trying).await?,
            }
        }
    }

    /// Hands over all appends in `submissions` at once and leaves an empty one in its place, whose memory has been used
    /// before. What is over the connection's budget waits there, in order.
    ///
    /// Appends submitted while earlier ones to the same stream are unanswered are stored in the order of submission,
    /// except that one the server refused for the moment (throttled, shutting down) is sent again behind them.
    pub fn submit(&self, submissions: &mut Submissions) {
        if let Some(full) = self.take_out(submissions) {
            self.pool().post_appends(full);
        }
    }

    /// As [`Client::submit`], for a caller that has nothing to do before the answer: where the connection sleeps, this
    /// thread writes to the socket itself and wakes nobody. Not for appends one after the other, which would be a write
    /// each. The outcomes of others may be delivered on this thread.
    pub fn submit_now(&self, submissions: &mut Submissions) {
        if let Some(full) = self.take_out(submissions) {
            self.pool().post_appends_and_drive(full);
        }
    }

    /// What is to be handed over, if there is anything, counted among what is under way.
    fn take_out(&self, submissions: &mut Submissions) -> Option<Submissions> {
        if submissions.is_empty() {
            return None;
        }
        self.channel().budget.add(submissions.len(), submissions.bytes());
        Some(self.exchange(submissions))
    }

    /// What is handed over now; an empty one is left in its place.
    fn exchange(&self, submissions: &mut Submissions) -> Submissions {
        submissions.submitted(now());
        std::mem::replace(submissions, self.channel().fresh())
    }

    /// As [`Client::submit`], but hands over nothing when the client already holds as much unfinished work as its
    /// configuration allows: `submissions` is then left as it is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Backpressure`](crate::ErrorKind::Backpressure).
    pub fn try_submit(&self, submissions: &mut Submissions) -> Result<(), ClientError> {
        if submissions.is_empty() {
            return Ok(());
        }
        let config = &self.core.config;
        let channel = self.channel();
        if !channel.budget.try_add(
            submissions.len(),
            submissions.bytes(),
            config.max_calls,
            config.send_credit,
        ) {
            return Err(self.no_room((0, 0)));
        }
        let full = self.exchange(submissions);
        self.pool().post_appends(full);
        Ok(())
    }

    /// Whether one more append of so many bytes may go out behind those that `waiting` holds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Backpressure`](crate::ErrorKind::Backpressure): as much is on its way as the configuration allows.
    pub fn check_room(&self, waiting: &Submissions, bytes: usize) -> Result<(), ClientError> {
        let config = &self.core.config;
        let waiting = (waiting.len(), waiting.bytes());
        if self
            .channel()
            .budget
            .has_room(waiting, bytes, config.max_calls, config.send_credit)
        {
            return Ok(());
        }
        Err(self.no_room(waiting))
    }

    /// Whether the client's queue takes more appends, although they will wait. Bounds what callers pile up that never
    /// wait for an outcome; to be asked once for each hand-over.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Backpressure`](crate::ErrorKind::Backpressure).
    pub fn check_queue(&self) -> Result<(), ClientError> {
        let config = &self.core.config;
        let budget = &self.channel().budget;
        let (calls, bytes) = (budget.calls(), budget.bytes());
        if calls < config.queue_calls && bytes <= config.queue_bytes {
            return Ok(());
        }
        Err(ClientError::backpressure(format!(
            "{calls} appends of {bytes} bytes are on their way or wait for it; at most {} and {} bytes may be",
            config.queue_calls, config.queue_bytes
        )))
    }

    fn no_room(&self, waiting: (usize, usize)) -> ClientError {
        let config = &self.core.config;
        let budget = &self.channel().budget;
        ClientError::backpressure(format!(
            "{} appends of {} bytes are on their way; at most {} and {} bytes may be",
            budget.calls() + waiting.0,
            budget.bytes() + waiting.1,
            config.max_calls,
            config.send_credit
        ))
    }

    /// What was agreed with the server; `None` while there is no connection, or before its first answer.
    #[must_use]
    pub fn features(&self) -> Option<Arc<Features>> {
        self.channel().features()
    }

    /// What this client has done so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let budget = &self.channel().budget;
        let stats = self.pool().stats();
        ClientStats {
            in_flight: stats
                .in_flight
                .saturating_add(u64::try_from(budget.calls()).unwrap_or(u64::MAX)),
            bytes_in_flight: u64::try_from(budget.bytes()).unwrap_or(u64::MAX),
            bytes_pinned: self.core.pinned.bytes(),
            bytes_unpinned: self.core.pinned.copied(),
            ..stats
        }
    }

    /// How long its requests took, since it was made.
    #[must_use]
    pub fn metrics(&self) -> ClientMetrics {
        self.channel().counters.took.snapshot()
    }

    /// A count of the appends that were submitted and have no answer yet. It outlives the client.
    #[must_use]
    pub fn appends_in_flight(&self) -> AppendsInFlight {
        AppendsInFlight::of(&self.channel().budget)
    }

    /// The descriptors of its open connections. Takes no lock, so that a child process can call it right after a fork, to
    /// close what it inherited.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.channel().sockets().snapshot()
    }

    /// Accepts no more calls, waits until what is on its way is answered, and closes the connection.
    pub async fn close(&self) {
        self.pool().close();
        self.pool().wait_closed().await;
    }
}
