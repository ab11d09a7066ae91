//! A channel whose connection is made again whenever it is lost: the tasks around [`Reconnect`].
//!
//! The owner of a channel says what its connections are, and keeps the work that none of them has; everything that is the
//! same for all who dial is here. Work, state and connections are behind one lock, so that nothing is handed to a
//! connection that has just been replaced.

use std::{fmt::Debug, pin::pin, sync::Arc, time::Instant};

use sbp_locks::{Mutex, MutexGuard};
use sbp_wire::Reason;
use tokio::{runtime::Handle, sync::Notify, time::sleep_until};

use crate::application::Application;
use crate::dial::DialError;
use crate::link::{Link, LinkSettings};
use crate::mailbox::{Mailbox, SleepingDriver, mailbox};
use crate::reconnect::{Next, Reconnect, ReconnectPolicy};
use crate::shared_driver::drive_shared;
use crate::stats::TransportStats;

/// Work of a channel that no connection has.
pub trait ChannelQueue: Default + Debug + Send + 'static {
    /// What a connection is told.
    type Command: Debug + Send + 'static;
    /// What is found out about the peer of the connection that takes work; nothing when that begins.
    type Learned: Default + Debug + Send + 'static;

    /// Whether a connection is wanted; asked before each attempt to connect, and while one is under way.
    fn wants_connection(&mut self) -> bool;

    /// Takes out what goes to the connection now.
    fn take(&mut self) -> Vec<Self::Command>;

    /// Takes back what a connection did not take, because it has just ended.
    fn put_back(&mut self, commands: Vec<Self::Command>);
}

/// Whoever has a channel: what its connections are, and what happens while there is none.
pub trait ChannelOwner: Send + Sync + 'static {
    /// The work that no connection has.
    type Queue: ChannelQueue;
    /// A connection as its owner uses it.
    type Connection: Application<Command = <Self::Queue as ChannelQueue>::Command>;

    /// The channel.
    fn channel(&self) -> &ReconnectingChannel<Self::Queue>;

    /// This end of a connection that begins now.
    fn endpoint(&self, now: Instant) -> <Self::Connection as Application>::Endpoint;

    /// A new connection to an address, with a number that no other one of the channel has.
    fn connection(self: Arc<Self>, address: &Arc<str>, generation: u64) -> Self::Connection;

    /// Whether other addresses are tried before this one, where there are any that are not passed over too.
    fn is_tried_last(&self, address: &str) -> bool {
        let _ = address;
        false
    }

    /// An attempt to connect has failed. It has to be counted, by [`ChannelState::dial_failed`].
    fn dial_failed(self: &Arc<Self>, error: &DialError) {
        self.channel().lock().dial_failed(error);
    }

    /// Looks after what waits for a connection: what has run out of time. Returns when to be called again at the latest.
    fn look_after_queue(&self) -> Option<Instant> {
        None
    }

    /// The task of a connection is about to end.
    fn connection_ended(&self, generation: u64, driver: &TransportStats) {
        let _ = (generation, driver);
    }
}

/// One lasting way to a peer, over connections that come and go.
#[derive(Debug)]
pub struct ReconnectingChannel<Q: ChannelQueue> {
    addresses: Vec<Arc<str>>,
    links: LinkSettings,
    runtime: Handle,
    state: Mutex<ChannelState<Q>>,
    /// Woken when the channel is closed, when a task of it has ended, and for what waits in the queue.
    changed: Notify,
}

/// What a channel knows under its lock.
#[derive(Debug)]
pub struct ChannelState<Q: ChannelQueue> {
    /// When it dials, and which of its connections takes work.
    pub reconnect: Reconnect<ReadyConnection<Q>>,
    /// Work that no connection has.
    pub queue: Q,
    /// Why there was no connection last time: for those who run out of time without one.
    pub last_failure: Option<String>,
    /// The connections that are not over, the ready one and those that drain, by their generation.
    connections: Vec<(u64, Mailbox<Q::Command>)>,
    /// Tasks that have not ended: each dials, or serves one connection.
    tasks: usize,
}

/// The connection that takes a channel's work.
#[derive(Debug)]
pub struct ReadyConnection<Q: ChannelQueue> {
    /// Where it takes its work.
    pub mailbox: Mailbox<Q::Command>,
    /// What was dialled.
    pub address: Arc<str>,
    /// What was found out about its peer.
    pub learned: Q::Learned,
}

impl<Q: ChannelQueue> ReconnectingChannel<Q> {
    /// A channel without a connection. `addresses`: `host:port` each, as many as the policy says; `ever_reached`:
    /// that there is a peer is known from elsewhere. Its tasks run on `runtime`.
    #[must_use]
    pub fn new(
        addresses: Vec<Arc<str>>,
        links: LinkSettings,
        policy: ReconnectPolicy,
        ever_reached: bool,
        runtime: Handle,
    ) -> Self {
        Self {
            addresses,
            links,
            runtime,
            state: Mutex::new(ChannelState {
                reconnect: Reconnect::new(policy, ever_reached),
                queue: Q::default(),
                last_failure: None,
                connections: Vec::new(),
                tasks: 0,
            }),
            changed: Notify::new(),
        }
    }

    /// What it knows. Not to be held across anything that waits.
    pub fn lock(&self) -> MutexGuard<'_, ChannelState<Q>> {
        self.state.lock()
    }

    /// All its addresses, for errors that no single one is to blame for.
    #[must_use]
    pub fn name(&self) -> String {
        self.addresses.join(",")
    }

    /// Where its tasks run.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// How its connections are made.
    #[must_use]
    pub fn links(&self) -> &LinkSettings {
        &self.links
    }

    /// Has a task make a connection, where one is wanted and neither it nor such a task is there. `owner` is that of this
    /// channel, and `state` its state.
    pub fn ensure_connecting<O>(&self, owner: &Arc<O>, state: &mut ChannelState<Q>)
    where
        O: ChannelOwner<Queue = Q>,
    {
        if state.queue.wants_connection() && state.reconnect.want(now()) {
            state.tasks += 1;
            let task = Task(Arc::clone(owner));
            self.runtime.spawn(task.run());
        }
    }

    /// Has the task that connects look after the queue again: what was added has less time than all before.
    pub fn look_after_queue(&self) {
        self.changed.notify_waiters();
    }

    /// Makes no connection any more, and tells those that are there. Returns the work that no connection has, the first
    /// time.
    pub fn close(&self, last: impl Fn() -> Q::Command) -> Option<Q> {
        let mut state = self.lock();
        if !state.reconnect.close() {
            return None;
        }
        let left = std::mem::take(&mut state.queue);
        for (_, mailbox) in &state.connections {
            // An error means that it has ended already.
            drop(mailbox.post(last()));
        }
        drop(state);
        self.changed.notify_waiters();
        Some(left)
    }

    /// Waits until the last connection is over, and nobody dials any more: for a channel that is closed.
    pub async fn wait_closed(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.lock().tasks == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl<Q: ChannelQueue> ChannelState<Q> {
    /// The connection that takes work.
    #[must_use]
    pub fn ready(&self) -> Option<&ReadyConnection<Q>> {
        self.reconnect.ready().map(|(_, ready)| ready)
    }

    /// Hands a command to the connection that takes work; its driver, where it sleeps, is the caller's to drive or to drop.
    ///
    /// # Errors
    /// The command itself, when there is no such connection.
    pub fn post(&self, command: Q::Command) -> Result<Option<SleepingDriver>, Q::Command> {
        match self.reconnect.ready() {
            Some((_, ready)) => ready.mailbox.post_for(command),
            None => Err(command),
        }
    }

    /// Gives the connection that takes work what waits for it.
    pub fn hand_over(&mut self) {
        let Some((_, ready)) = self.reconnect.ready() else {
            return;
        };
        let mut commands = self.queue.take();
        if !ready.mailbox.post_all(&mut commands) {
            // It has ended meanwhile; the next one gets them.
            self.queue.put_back(commands);
        }
    }

    /// An attempt to connect has failed.
    pub fn dial_failed(&mut self, error: &DialError) {
        self.last_failure = Some(error.to_string());
        self.reconnect.dial_failed(now(), fastrand::f64());
    }

    /// A connection has failed: the next attempt waits, or goes to the next address.
    pub fn lost(&mut self, reason: String) {
        self.last_failure = Some(reason);
        self.reconnect.lost(now(), fastrand::f64());
    }

    /// As [`Self::lost`], for a connection that closes, unless it does so in order: because this side wanted it, or because
    /// one side went away and everything was finished.
    pub fn closing(&mut self, reason: &impl Reason) {
        if !reason.is_orderly() {
            self.lost(reason.to_string());
        }
    }

    /// The next connection is to the next address. The one that took work until now gets its last command; its generation.
    pub fn move_on(&mut self, last: impl FnOnce() -> Q::Command) -> Option<u64> {
        let (generation, ready) = self.reconnect.move_on()?;
        // An error means that it has ended already.
        drop(ready.mailbox.post(last()));
        Some(generation)
    }

    /// The new connection of a task takes the channel's work, unless nobody needs it any more. Its generation.
    fn connected(&mut self, mailbox: &Mailbox<Q::Command>, address: &Arc<str>) -> Option<u64> {
        let ready = ReadyConnection {
            mailbox: mailbox.clone(),
            address: Arc::clone(address),
            learned: Q::Learned::default(),
        };
        match self.reconnect.dialled(ready) {
            Next::Serve { generation } => {
                self.connections.push((generation, mailbox.clone()));
                self.hand_over();
                Some(generation)
            }
            Next::Dial { .. } | Next::WaitUntil(_) | Next::End => None,
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A task that connects, and then runs the connection to its end. It is counted however it ends: whoever closes the channel
/// waits for it.
struct Task<O: ChannelOwner>(Arc<O>);

impl<O: ChannelOwner> Task<O> {
    async fn run(self) {
        loop {
            let changed = self.channel().changed.notified();
            match self.next() {
                Next::End | Next::Serve { .. } => return,
                Next::WaitUntil(until) => {
                    let until = self.0.look_after_queue().map_or(until, |at| at.min(until));
                    tokio::select! {
                        () = sleep_until(until.into()) => {}
                        () = changed => {}
                    }
                }
                Next::Dial { address } => {
                    let Some(address) = self.channel().addresses.get(address) else {
                        return;
                    };
                    match self.dial(address).await {
                        None => return,
                        Some(Err(error)) => self.0.dial_failed(&error),
                        Some(Ok(link)) => return self.serve(link, address).await,
                    }
                }
            }
        }
    }

    fn channel(&self) -> &ReconnectingChannel<O::Queue> {
        self.0.channel()
    }

    fn next(&self) -> Next {
        let channel = self.channel();
        let state = &mut *channel.lock();
        let wanted = state.queue.wants_connection();
        let is_tried_last = |place: usize| channel.addresses.get(place).is_some_and(|at| self.0.is_tried_last(at));
        state.reconnect.pass_over(is_tried_last);
        state.reconnect.next(now(), wanted)
    }

    /// Connects while looking after what waits. `None`: nobody wants the connection any more.
    async fn dial(&self, address: &str) -> Option<Result<Link, DialError>> {
        let mut dialling = pin!(Link::dial(address, &self.channel().links));
        loop {
            let changed = self.channel().changed.notified();
            let look_again = self.0.look_after_queue();
            if !matches!(self.next(), Next::Dial { .. }) {
                return None;
            }
            tokio::select! {
                result = &mut dialling => return Some(result),
                () = until(look_again) => {}
                () = changed => {}
            }
        }
    }

    /// Runs one connection to its end.
    async fn serve(&self, link: Link, address: &Arc<str>) {
        let channel = self.channel();
        let (mailbox, inbox) = mailbox();
        // Closed while this task dialled.
        let Some(generation) = channel.lock().connected(&mailbox, address) else {
            return;
        };
        let listed = Listed { channel, generation };
        let session = self.0.endpoint(now());
        let connection = Arc::clone(&self.0).connection(address, generation);
        drive_shared(link, session, connection, inbox).await;
        drop(listed);
        self.0.connection_ended(generation, mailbox.stats());
        let mut state = channel.lock();
        state.hand_over();
        channel.ensure_connecting(&self.0, &mut state);
    }
}

impl<O: ChannelOwner> Drop for Task<O> {
    fn drop(&mut self) {
        self.channel().lock().tasks -= 1;
        self.channel().changed.notify_waiters();
    }
}

/// A connection in its channel's list, however its task ends.
struct Listed<'a, Q: ChannelQueue> {
    channel: &'a ReconnectingChannel<Q>,
    generation: u64,
}

impl<Q: ChannelQueue> Drop for Listed<'_, Q> {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.reconnect.drains(self.generation);
        state
            .connections
            .retain(|(generation, _)| *generation != self.generation);
    }
}

/// Waits until then, or for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
