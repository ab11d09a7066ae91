//! The ways to all servers of a service: the ones that were named, and those that they lead to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_messages::RangeCriteria;
use sbp_types::{Offset, StreamId};
use tokio::runtime::Handle;

use crate::address::ServerAddress;
use crate::admin;
use crate::clock::now;
use crate::config::ClientConfig;
use crate::connection::command::Command;
use crate::error::ClientError;
use crate::joint;
use crate::link::Link;
use crate::reroute::Reroutes;
use crate::routes::{Place, Purpose, Route, Routes};
use crate::stats::ClientStats;
use crate::submission::Submissions;

/// How long a placement driver is waited for by those who know where they were sent before.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// All links of a client, and what is known of where things are.
#[derive(Debug)]
pub(crate) struct Links {
    /// To the servers that were named: the placement driver, or a server that is both.
    home: Arc<Link>,
    /// To servers that answers named.
    others: Mutex<Others>,
    /// The leader that a server at home named. Forgotten when it does not answer.
    leader: Mutex<Option<Arc<Link>>>,
    routes: Mutex<Routes>,
    /// Any routes are known, or asked for: the usual case is none, which costs one look.
    routed: AtomicBool,
    /// Appends that wait until their streams are found.
    pub(crate) reroutes: Mutex<Reroutes>,
}

/// Links to servers that answers named, by address.
#[derive(Debug, Default)]
struct Others {
    links: HashMap<ServerAddress, Arc<Link>>,
    /// The client is closed: links that are made from now on are closed too.
    closed: bool,
}

impl Links {
    pub(crate) fn new(config: Arc<ClientConfig>, handle: Handle) -> Arc<Self> {
        Arc::new_cyclic(|links: &Weak<Self>| Self {
            home: Link::new(config, handle, links.clone()),
            others: Mutex::default(),
            leader: Mutex::new(None),
            routes: Mutex::new(Routes::default()),
            routed: AtomicBool::new(false),
            reroutes: Mutex::new(Reroutes::default()),
        })
    }

    /// The way to the servers that were named.
    pub(crate) fn home(&self) -> &Arc<Link> {
        &self.home
    }

    /// The way to the placement driver.
    pub(crate) fn placement(&self) -> Arc<Link> {
        let leader = self.leader.lock();
        leader.as_ref().map_or_else(|| Arc::clone(&self.home), Arc::clone)
    }

    /// The way to where a stream is, as far as is known.
    pub(crate) fn of_stream(&self, stream: StreamId, purpose: Purpose) -> Arc<Link> {
        if !self.is_routed() {
            return Arc::clone(&self.home);
        }
        let routes = self.routes.lock();
        match routes.place(stream, purpose) {
            Some(place) => self.to(place),
            None => Arc::clone(&self.home),
        }
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

    pub(crate) fn is_routed(&self) -> bool {
        self.routed.load(Ordering::Acquire)
    }

    pub(crate) fn set_routed(&self) {
        self.routed.store(true, Ordering::Release);
    }

    /// The way to a server: the connection there is, when it leads there already.
    fn to(&self, place: &Place) -> Arc<Link> {
        if self.home.leads_to(place.server, &place.address) {
            return Arc::clone(&self.home);
        }
        match ServerAddress::of_peer(&place.address) {
            Some(address) => self.at(address),
            // No address to dial: what is connected has to do.
            None => Arc::clone(&self.home),
        }
    }

    fn at(&self, address: ServerAddress) -> Arc<Link> {
        let mut others = self.others.lock();
        let closed = others.closed;
        let link = others.links.entry(address).or_insert_with_key(|address| {
            let link = self.home.sibling(address.clone());
            if closed {
                link.close();
            }
            link
        });
        Arc::clone(link)
    }

    /// A server named the placement driver's leader.
    pub(crate) fn follow(&self, leader: ServerAddress) {
        let link = self.at(leader);
        *self.leader.lock() = Some(link);
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

    /// Asks the placement driver where a stream is. Where that is known and nobody can be asked for the moment, what is
    /// known stays: the range server may be back before the placement driver is.
    pub(crate) async fn refresh(self: &Arc<Self>, stream: StreamId, deadline: Instant) -> Result<(), ClientError> {
        let known = self.routes.lock().place(stream, Purpose::Append).is_some();
        if !known {
            return self.ask(stream, deadline).await;
        }
        match self.ask(stream, deadline.min(now() + ASK_AGAIN)).await {
            Err(error) if error.is_timeout() || error.is_retriable() => Ok(()),
            answered => answered,
        }
    }

    async fn ask(self: &Arc<Self>, stream: StreamId, deadline: Instant) -> Result<(), ClientError> {
        let criteria = RangeCriteria {
            stream_id: stream,
            range_server: None,
        };
        let left = deadline.saturating_duration_since(now()).max(Duration::from_millis(1));
        // Boxed: calls that are repeated refresh routes, and this is a call.
        let listed = Box::pin(admin::list_ranges(self, &[&criteria], left)).await?.pop();
        let ranges = match listed {
            Some(Ok(ranges)) => ranges,
            Some(Err(error)) => {
                self.routes.lock().forget(stream);
                return Err(error.with_stream(stream));
            }
            None => return Err(ClientError::protocol("a list of ranges is missing")),
        };
        self.routes.lock().learn(stream, Route::new(&ranges));
        self.set_routed();
        Ok(())
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
        // One collection for each server that gets any, in the order of appends.
        let mut parts: Vec<(Arc<Link>, Submissions)> = Vec::new();
        for op in ops {
            let streams: Vec<_> = op.entries.iter().map(|entry| entry.stream).collect();
            let mut waiting = self.reroutes.lock();
            let asking = |stream: &StreamId| waiting.is_asking(*stream);
            let links: Vec<Option<Arc<Link>>> = streams
                .iter()
                .map(|stream| (!asking(stream)).then(|| self.of_stream(*stream, Purpose::Append)))
                .collect();
            let pieces = joint::split(op, &links, |one, other| match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                _ => false,
            });
            for (link, piece) in pieces {
                match link {
                    // Somebody asks for it already.
                    None => drop(waiting.wait(piece, &arena)),
                    Some(link) => {
                        let place = parts.iter().position(|(known, _)| Arc::ptr_eq(known, &link));
                        let place = place.unwrap_or_else(|| {
                            parts.push((Arc::clone(&link), link.fresh()));
                            parts.len() - 1
                        });
                        if let Some((_, part)) = parts.get_mut(place) {
                            part.adopt(piece, &arena);
                        }
                    }
                }
            }
        }
        for (link, part) in parts {
            link.post(Command::Appends(part));
        }
    }

    fn all(&self) -> Vec<Arc<Link>> {
        let others = self.others.lock();
        let mut all = vec![Arc::clone(&self.home)];
        all.extend(others.links.values().cloned());
        all
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let running: Vec<_> = self.all().iter().filter_map(|link| link.driver()).collect();
        self.home.counters.snapshot(&running)
    }

    /// Accepts nothing more anywhere.
    pub(crate) fn close(&self) {
        self.others.lock().closed = true;
        for link in self.all() {
            link.close();
        }
        let waiting = self.reroutes.lock().close();
        for submissions in waiting {
            self.home.refuse_closed(Command::Appends(submissions));
        }
    }

    /// Waits until the last connection is over.
    pub(crate) async fn wait_closed(&self) {
        for link in self.all() {
            link.wait_closed().await;
        }
    }
}
