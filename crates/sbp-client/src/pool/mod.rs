//! The ways to all servers of a service: the ones that were named, and those that they lead to.

pub(crate) mod routes;
pub(crate) mod waiting;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_locks::Mutex;
use sbp_types::{Offset, StreamId};
use tokio::runtime::Handle;

use crate::address::ServerAddress;
use crate::channel::Channel;
use crate::channel::ClientStats;
use crate::channel::command::Command;
use crate::clock::now;
use crate::config::ClientConfig;
use crate::failure::Cause;
use crate::pool::routes::{Routes, ServerLocation};
use crate::pool::waiting::Reroutes;
use crate::submission::Submissions;
use crate::submission::gather;

/// How long a server may be silent before another one is asked that holds the same. A placement driver does without one that is
/// silent for 3 s: somewhat later it is known who goes on.
const SILENCE: Duration = Duration::from_secs(4);

/// All channels of a client, and what is known of where things are.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    /// To the servers that were named: the placement driver, or a server that is both.
    home: Arc<Channel>,
    /// To servers that answers named.
    others: Mutex<Others>,
    /// The leader that a server at home named. Forgotten when it does not answer.
    leader: Mutex<Option<Arc<Channel>>>,
    pub(crate) routes: Mutex<Routes>,
    /// Any routes are known, or asked for: the usual case is none, which costs one look.
    routed: AtomicBool,
    /// Appends that wait until their streams are found.
    pub(crate) reroutes: Mutex<Reroutes>,
}

/// Channels to servers that answers named, by address.
#[derive(Debug, Default)]
struct Others {
    channels: HashMap<ServerAddress, Arc<Channel>>,
    /// The client is closed: channels that are made from now on are closed too.
    closed: bool,
}

impl ConnectionPool {
    pub(crate) fn new(config: Arc<ClientConfig>, handle: Handle) -> Arc<Self> {
        Arc::new_cyclic(|pool: &Weak<Self>| Self {
            routes: Mutex::new(Routes::reading_from(config.read_from)),
            home: Channel::new(config, handle, pool.clone()),
            others: Mutex::default(),
            leader: Mutex::default(),
            routed: AtomicBool::new(false),
            reroutes: Mutex::default(),
        })
    }

    /// The way to the servers that were named.
    pub(crate) fn home(&self) -> &Arc<Channel> {
        &self.home
    }

    /// The way to the placement driver.
    pub(crate) fn placement(&self) -> Arc<Channel> {
        let leader = self.leader.lock();
        leader.as_ref().map_or_else(|| Arc::clone(&self.home), Arc::clone)
    }

    /// The way to where a stream takes appends, as far as is known.
    pub(crate) fn for_append(&self, stream: StreamId) -> Arc<Channel> {
        self.for_fetch(stream, Offset::LATEST)
    }

    /// The way to where a stream is read from at an offset, as far as is known.
    pub(crate) fn for_fetch(&self, stream: StreamId, offset: Offset) -> Arc<Channel> {
        if !self.is_routed() {
            return Arc::clone(&self.home);
        }
        let mut routes = self.routes.lock();
        let Some(location) = routes.location(stream, offset) else {
            return Arc::clone(&self.home);
        };
        let channel = self.to(location);
        if !channel.is_silent() {
            return channel;
        }
        let heard = routes.location_heard(stream, offset, |location| self.to(location).is_silent());
        heard.map_or(channel, |location| self.to(location))
    }

    /// Whether another placement driver may answer than the one that is asked.
    pub(crate) fn has_another_driver(&self) -> bool {
        self.home.servers_named() > 1 || self.leader.lock().is_some()
    }

    /// Whether a stream may be read at an offset from another server than the one that was asked.
    pub(crate) fn has_another_copy(&self, stream: StreamId, offset: Offset) -> bool {
        if !self.is_routed() {
            return self.home.servers_named() > 1;
        }
        // What nobody has told may be anywhere.
        self.routes
            .lock()
            .copies(stream, offset)
            .is_none_or(|copies| copies > 1)
    }

    /// How long the server may be silent that is asked about a place of a stream, of `timeout`: not all of it where others have the
    /// same.
    pub(crate) fn patience(&self, place: Option<(StreamId, Offset)>, timeout: Duration) -> Duration {
        match place {
            Some((stream, offset)) if self.is_routed() && self.has_another_copy(stream, offset) => timeout.min(SILENCE),
            _ => timeout,
        }
    }

    /// What a FETCH that begins with this place waits for: [`Self::patience`], and whether others can answer it.
    pub(crate) fn bounds(&self, place: Option<(StreamId, Offset)>, timeout: Duration) -> (Duration, bool) {
        let has_elsewhere = place.is_some_and(|(stream, offset)| self.has_another_copy(stream, offset));
        (self.patience(place, timeout), has_elsewhere)
    }

    /// Whether there is another server to read a stream from at an offset, after the one that was asked did not answer; it is
    /// asked from now on.
    pub(crate) fn read_elsewhere(&self, stream: StreamId, offset: Offset) -> bool {
        self.is_routed() && self.routes.lock().read_elsewhere(stream, offset)
    }

    pub(crate) fn is_routed(&self) -> bool {
        self.routed.load(Ordering::Acquire)
    }

    /// Whether another server may take the appends of a stream than the one that is asked: where several are named, the one that
    /// takes them may be one of several that hold the stream.
    pub(crate) fn may_be_elsewhere(&self) -> bool {
        self.is_routed() || self.home.servers_named() > 1
    }

    pub(crate) fn set_routed(&self) {
        self.routed.store(true, Ordering::Release);
    }

    /// The way to a server: the connection there is, when it leads there already.
    fn to(&self, location: &ServerLocation) -> Arc<Channel> {
        if self.home.leads_to(location.server, &location.address) {
            return Arc::clone(&self.home);
        }
        match ServerAddress::of_peer(&location.address) {
            Some(address) => self.at(address),
            // No address to dial: what is connected has to do.
            None => Arc::clone(&self.home),
        }
    }

    fn at(&self, address: ServerAddress) -> Arc<Channel> {
        let mut others = self.others.lock();
        let closed = others.closed;
        let channel = others.channels.entry(address).or_insert_with_key(|address| {
            let channel = self.home.sibling(address.clone());
            if closed {
                channel.close();
            }
            channel
        });
        Arc::clone(channel)
    }

    /// A server named the placement driver's leader.
    pub(crate) fn follow(&self, leader: ServerAddress) {
        let channel = self.at(leader);
        *self.leader.lock() = Some(channel);
    }

    /// Whether the leader that a refusal names was silent a moment ago. Those who do not lead name it until its lease has ended.
    pub(crate) fn is_leader_silent(&self, refused: &Cause) -> bool {
        let Cause::Refused {
            leader: Some(leader), ..
        } = refused
        else {
            return false;
        };
        self.home.silences.is_being_replaced(leader.as_str(), now())
    }

    /// Whether the server that is known to take a stream's appends was silent a moment ago.
    pub(crate) fn is_primary_silent(&self, stream: StreamId) -> bool {
        let routes = self.routes.lock();
        let primary = routes.location(stream, Offset::LATEST);
        primary.is_some_and(|primary| self.home.silences.is_being_replaced(&primary.address, now()))
    }

    /// The placement driver is to be looked for elsewhere: at home again, or at the next of the servers named.
    pub(crate) fn look_elsewhere(&self) {
        if self.leader.lock().take().is_none() {
            self.home.move_on();
        }
    }

    /// Whoever was said to lead did not answer.
    pub(crate) fn forget_leader(&self) {
        self.leader.lock().take();
    }

    /// Hands appends over and, where all go to one connection that sleeps, drives that on this thread.
    pub(crate) fn post_appends_and_drive(self: &Arc<Self>, submissions: Submissions) {
        if self.is_routed() {
            self.post_appends(submissions);
        } else {
            self.home.post_and_drive(Command::Appends(submissions));
        }
    }

    /// Hands appends over, each to where its stream is.
    pub(crate) fn post_appends(self: &Arc<Self>, submissions: Submissions) {
        if !self.is_routed() {
            return self.home.post(Command::Appends(submissions));
        }
        let Submissions { ops, arena } = submissions;
        // A collection of appends for each server that gets any, in their order.
        let mut groups: Vec<(Arc<Channel>, Submissions)> = Vec::new();
        for op in ops {
            let streams: Vec<_> = op.entries.iter().map(|entry| entry.stream).collect();
            let mut waiting = self.reroutes.lock();
            let asking = |stream: &StreamId| waiting.is_asking(*stream);
            let channels: Vec<Option<Arc<Channel>>> = streams
                .iter()
                .map(|stream| (!asking(stream)).then(|| self.for_append(*stream)))
                .collect();
            let parts = gather::split(op, &channels, |one, other| match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                _ => false,
            });
            // Each counts for itself from now on.
            self.home.budget.add(parts.len().saturating_sub(1), 0);
            for (channel, part) in parts {
                match channel {
                    // Somebody asks for it already.
                    None => drop(waiting.wait(part, &arena)),
                    Some(channel) => {
                        let place = groups.iter().position(|(known, _)| Arc::ptr_eq(known, &channel));
                        let place = place.unwrap_or_else(|| {
                            groups.push((Arc::clone(&channel), channel.fresh()));
                            groups.len() - 1
                        });
                        if let Some((_, group)) = groups.get_mut(place) {
                            group.adopt(part, &arena);
                        }
                    }
                }
            }
        }
        for (channel, group) in groups {
            channel.post(Command::Appends(group));
        }
    }

    fn all(&self) -> Vec<Arc<Channel>> {
        let others = self.others.lock();
        let mut all = vec![Arc::clone(&self.home)];
        all.extend(others.channels.values().cloned());
        all
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let running: Vec<_> = self.all().iter().filter_map(|channel| channel.driver()).collect();
        self.home.counters.snapshot(&running)
    }

    /// Accepts nothing more anywhere.
    pub(crate) fn close(&self) {
        self.others.lock().closed = true;
        for channel in self.all() {
            channel.close();
        }
        let waiting = self.reroutes.lock().close();
        for submissions in waiting {
            self.home.refuse_closed(Command::Appends(submissions));
        }
    }

    /// Waits until the last connection is over.
    pub(crate) async fn wait_closed(&self) {
        for channel in self.all() {
            channel.wait_closed().await;
        }
    }
}
