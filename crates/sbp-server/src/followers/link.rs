//! The task that sends to one server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sbp_messages::{AppendResponse, HeartbeatRequest, HeartbeatResponse};
use sbp_replication::Answer;
use sbp_types::{RangeKey, ServerId};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::FollowerLinks;
use super::refused::RefusedRanges;
use super::request::{Said, Sent, request, said};
use crate::peer::{PeerChannel, PeerError};
use crate::range::{Feed, RangeServer};

/// Bytes of one frame, about.
const FRAME_BYTES: usize = 4 << 20;
/// Bytes on their way to one server.
const MOST_BYTES: usize = 16 << 20;
/// Frames on their way to one server.
const MOST_FRAMES: usize = 16;
/// How long a server that has nothing else to be sent waits to be told what is confirmed.
const CONFIRMED_AFTER: Duration = Duration::from_millis(50);
/// How long a frame may wait for its answer. It is sent again then.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a server is greeted, so that each of the two hears the other.
const GREET_EVERY: Duration = Duration::from_secs(1);
/// How long a greeting waits for its answer.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a server is looked for while its address is not known.
const PAUSE: Duration = Duration::from_millis(100);

/// Entries that are being read from the log, or the range of which they cannot be read.
type Reading = JoinHandle<Result<Feed, RangeKey>>;

/// A frame that was sent has ended.
struct Ended {
    sent: Vec<Sent>,
    bytes: usize,
    outcome: Result<AppendResponse, PeerError>,
}

/// What the task has waited for.
enum Event {
    Ended(Box<Ended>),
    /// The server has answered a greeting.
    Greeted,
}

/// The state of the task.
struct Sending {
    server: ServerId,
    wake: Arc<Notify>,
    address: String,
    channel: PeerChannel,
    /// Tells of each further connection of the channel.
    connections: watch::Receiver<u64>,
    /// Whether there was a connection, to this address or an earlier one.
    was_connected: bool,
    frames: JoinSet<Ended>,
    bytes: usize,
    /// What was sent on the present connection is lost from some entry on, or there is another one: nothing more is sent before
    /// everything under way has ended.
    drains: bool,
    /// Ranges that the server takes nothing of now.
    refused: RefusedRanges,
    /// Entries that are being read from the log.
    reading: Option<Reading>,
    /// When more of sealed ranges may be sent.
    paced_until: Option<Instant>,
    /// When the server has to be told what is confirmed.
    tell_at: Option<Instant>,
    hello: HeartbeatRequest,
    /// Greetings that are not answered. What comes of one: whether it was.
    greetings: JoinSet<bool>,
    greet_at: Instant,
}

/// Sends to a server whatever there is, until the links are dropped.
pub(super) async fn run(links: Weak<FollowerLinks>, server: ServerId, wake: Arc<Notify>) {
    let Some(mut sending) = begin(&links, server, wake).await else {
        return;
    };
    loop {
        {
            let Some(links) = links.upgrade() else { return };
            let Some(ranges) = links.ranges.upgrade() else { return };
            sending.dial_again(&links);
            sending.greet();
            sending.send(&ranges);
        }
        let event = sending.wait().await;
        let Some(ranges) = links.upgrade().and_then(|links| links.ranges.upgrade()) else {
            return;
        };
        match event {
            Some(Event::Ended(ended)) => sending.handle(*ended, &ranges),
            Some(Event::Greeted) => ranges.hear(server, ranges.running_for()),
            None => {}
        }
    }
}

/// `host:port` of a range server, if it is known.
fn address_of(links: &FollowerLinks, server: ServerId) -> Option<String> {
    let address = links.ranges.upgrade()?.addresses.address(server)?;
    Some(address.to_string())
}

/// Waits until the server's address is known.
async fn begin(links: &Weak<FollowerLinks>, server: ServerId, wake: Arc<Notify>) -> Option<Sending> {
    let mut is_told = false;
    loop {
        let links = links.upgrade()?;
        if let Some(address) = address_of(&links, server) {
            let channel = links.channel(address.clone());
            return Some(Sending {
                server,
                wake,
                connections: channel.connections(),
                was_connected: false,
                channel,
                address,
                frames: JoinSet::new(),
                bytes: 0,
                drains: false,
                refused: RefusedRanges::default(),
                reading: None,
                paced_until: None,
                tell_at: None,
                hello: links.dialling.hello.clone(),
                greetings: JoinSet::new(),
                greet_at: Instant::now(),
            });
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(%server, "the address of a server that holds ranges of this one too is not known yet");
        }
        drop(links);
        tokio::time::sleep(PAUSE).await;
    }
}

/// What was read from the log, once it is read; never, if nothing is.
async fn read(reading: &mut Option<Reading>) -> Result<Feed, RangeKey> {
    match reading {
        Some(reading) => reading.await.unwrap_or_else(|_| Ok(Feed::default())),
        None => std::future::pending().await,
    }
}

impl Sending {
    /// The server may have another address by now. Nobody answers for it at the old one: what is under way there is sent again.
    fn dial_again(&mut self, links: &FollowerLinks) {
        let Some(address) = address_of(links, self.server).filter(|address| *address != self.address) else {
            return;
        };
        tracing::debug!(server = %self.server, old = self.address, new = address, "a server has another address");
        self.channel = links.channel(address.clone());
        self.connections = self.channel.connections();
        self.address = address;
        self.greet_at = Instant::now();
        self.drains |= !self.frames.is_empty();
        self.frames = JoinSet::new();
        self.bytes = 0;
    }

    /// Greets the server when it is time.
    fn greet(&mut self) {
        let now = Instant::now();
        if self.greet_at > now {
            return;
        }
        self.greet_at = now + GREET_EVERY;
        let answer = self.channel.call_once(&self.hello, Vec::new(), GREETING_TIMEOUT);
        self.greetings.spawn(async move {
            let answer: Result<HeartbeatResponse, PeerError> = answer.await;
            answer.is_ok_and(|answer| answer.status.is_success())
        });
    }

    fn send(&mut self, ranges: &Arc<RangeServer>) {
        self.paced_until = self.paced_until.filter(|at| *at > Instant::now());
        if self.reading.is_some() {
            return;
        }
        if self.drains && self.frames.is_empty() {
            self.begin_anew(ranges);
        }
        let again = self.refused.due(Instant::now());
        if !again.is_empty() {
            ranges.tell_again(self.server, again);
        }
        while !self.drains && self.frames.len() < MOST_FRAMES && self.bytes < MOST_BYTES {
            let tells = self.tell_at.is_some_and(|at| at <= Instant::now());
            let feed = ranges.feed(self.server, FRAME_BYTES, tells);
            if tells {
                self.tell_at = None;
            }
            let until = feed.paced_until.map(|until| until.saturating_sub(ranges.running_for()));
            self.paced_until = until.map(|left| Instant::now() + left);
            if feed.is_stale && self.tell_at.is_none() {
                self.tell_at = Some(Instant::now() + CONFIRMED_AFTER);
            }
            let from_log = feed.from_log;
            if feed.entries.is_empty() && from_log.is_none() {
                break;
            }
            self.send_frame(feed);
            if let Some(key) = from_log {
                self.reading = Some(self.read(key, ranges));
                break;
            }
        }
    }

    /// Reads from the log what is to be sent of a range, on a thread that may wait for the disk.
    fn read(&self, key: RangeKey, ranges: &Arc<RangeServer>) -> Reading {
        let (ranges, server) = (Arc::clone(ranges), self.server);
        tokio::task::spawn_blocking(move || {
            let read = ranges.feed_from_log(server, key, FRAME_BYTES);
            let error = match &read {
                Ok(feed) => feed.unreadable.as_ref().map(|(_, error)| error),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                tracing::error!(%server, range = %key, %error, "entries cannot be read for a server that may lack them");
            }
            read.map_err(|_| key)
        })
    }

    fn send_frame(&mut self, feed: Feed) {
        if feed.entries.is_empty() {
            return;
        }
        let bytes = feed.bytes;
        let (request, payload, sent) = request(feed);
        let answer = self.channel.call_once(&request, payload, CALL_TIMEOUT);
        self.bytes += bytes;
        self.frames.spawn(async move {
            Ended {
                sent,
                bytes,
                outcome: answer.await,
            }
        });
    }

    /// Waits for something to do, for a frame to end, or for a greeting to be answered.
    async fn wait(&mut self) -> Option<Event> {
        let again_at = self.refused.next();
        let due = self.tell_at.into_iter().chain(again_at).chain(self.paced_until);
        let due = due.fold(self.greet_at, Instant::min);
        tokio::select! {
            read = read(&mut self.reading) => {
                // What is read now comes before anything else of its range, also while lost entries drain: then the other
                // server says where to go on.
                self.reading = None;
                match read {
                    Ok(feed) => {
                        if let Some((key, _)) = feed.unreadable {
                            self.refused.add(key, Instant::now());
                        }
                        self.send_frame(feed);
                    }
                    Err(key) => {
                        self.refused.add(key, Instant::now());
                    }
                }
                None
            }
            Some(ended) = self.frames.join_next() => ended.ok().map(|ended| Event::Ended(Box::new(ended))),
            Some(greeted) = self.greetings.join_next() => greeted.is_ok_and(|is_answered| is_answered).then_some(Event::Greeted),
            Ok(()) = self.connections.changed() => {
                // The server may have started again since the last one, and know nothing of what it was told. Nothing need have
                // been under way, so that nothing need be lost.
                self.drains |= std::mem::replace(&mut self.was_connected, true);
                None
            }
            () = self.wake.notified() => None,
            () = sleep_until(due) => None,
        }
    }

    fn handle(&mut self, ended: Ended, ranges: &RangeServer) {
        self.bytes = self.bytes.saturating_sub(ended.bytes);
        let response = match ended.outcome {
            Ok(response) => {
                ranges.hear(self.server, ranges.running_for());
                response
            }
            Err(error) => {
                tracing::debug!(server = %self.server, %error, "entries did not arrive at a server, and are sent again");
                self.drains = true;
                return;
            }
        };
        let mut heard = Vec::with_capacity(ended.sent.len());
        for said in response
            .append_responses
            .iter()
            .filter_map(|result| said(&ended.sent, result))
        {
            match said {
                Said::Heard(one) => {
                    if matches!(one.answer, Answer::Synced(_)) {
                        self.refused.remove(one.key);
                    }
                    heard.push(one);
                }
                Said::Refused { refused, code, message } => {
                    let key = refused.key;
                    if self.refused.add(key, Instant::now()) {
                        tracing::debug!(server = %self.server, range = %key, %code, message, "a server takes nothing of a range now");
                    }
                    ranges.refused(self.server, &refused);
                }
            }
        }
        ranges.heard(self.server, &heard);
    }

    /// Everything that was under way has ended: what did not arrive is sent again.
    fn begin_anew(&mut self, ranges: &RangeServer) {
        self.drains = false;
        ranges.disconnected(self.server);
    }
}
