//! The task of a tail: one FETCH per server waits for many streams, and those that are answered are asked for again.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_frame::OpCode;
use sbp_messages::{ErrorCode, Retry};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, mpsc};

use super::followed::{BATCH_MAX, Followed, Then};
use super::{OnGap, READ_AHEAD, TailItem, TailOptions};
use crate::channel::command::FetchEvent;
use crate::channel::credit::{Charge, ReceiveCredit};
use crate::channel::{Channel, WAITS};
use crate::client::Client;
use crate::clock::{earlier, now, sleep_until};
use crate::codes;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::read::answer::Part;
use crate::read::plan::{self, ServerRequest, Wanted};
use crate::read::reader::Chunk;
use crate::read::request::{by_server, open, post_fetch};

/// FETCHes of one tail that may wait at once before answered streams are gathered for a while.
const MANY_CALLS: usize = 32;
/// How long they are gathered then, and how long the server may hold such a FETCH.
const GATHER: Duration = Duration::from_millis(10);
const GATHERED_WAIT: Duration = Duration::from_secs(1);
/// How long the server may hold a FETCH while others wait for its place.
const CROWDED_WAIT: Duration = Duration::from_millis(250);
/// Streams of one FETCH.
const ENTRIES: usize = 1_024;

pub(super) struct TailTask {
    client: Client,
    streams: Vec<Followed>,
    credit: Arc<ReceiveCredit>,
    timeout: Duration,
    give_up_after: Option<Duration>,
    on_gap: OnGap,
    /// Somebody came for what follows an error.
    resumed: Arc<Notify>,
    /// An error was handed over, and nobody has come for what follows it.
    has_failed: bool,
    /// FETCHes under way, with their places among those that wait at the server.
    calls: HashMap<u32, (ServerRequest<Arc<Channel>>, Option<Place>)>,
    /// The turn for a place that this tail waits for.
    queued: Option<Queued>,
    /// A place whose turn has come, and that is not used yet.
    place: Option<(Arc<Channel>, Place)>,
    /// The last FETCH brought something, or there was none: the next may bring something without having to wait.
    is_busy: bool,
    next_tag: u32,
    events_in: mpsc::UnboundedSender<FetchEvent>,
    sender: mpsc::UnboundedSender<Result<TailItem, ClientError>>,
    /// Streams that were looked for, and what came of it.
    found_in: mpsc::UnboundedSender<Found>,
    found: mpsc::UnboundedReceiver<Found>,
}

/// A place among the FETCHes that wait at a server. Others get it when it is dropped.
type Place = OwnedSemaphorePermit;

/// A place that somebody waits for, and at which server it is.
struct Queued {
    server: Arc<Channel>,
    turn: Pin<Box<dyn Future<Output = Result<Place, AcquireError>> + Send>>,
}

/// Waits until there is a place. `None`: nobody waits for one.
async fn next_place(queued: &mut Option<Queued>) -> Option<(Arc<Channel>, Place)> {
    let place = queued.as_mut()?.turn.as_mut().await;
    let server = queued.take()?.server;
    Some((server, place.ok()?))
}

type Found = (usize, Result<(), ClientError>);

impl TailTask {
    pub(super) fn new(
        client: Client,
        streams: Vec<Followed>,
        options: TailOptions,
        events_in: mpsc::UnboundedSender<FetchEvent>,
        sender: mpsc::UnboundedSender<Result<TailItem, ClientError>>,
        resumed: Arc<Notify>,
    ) -> Self {
        let (found_in, found) = mpsc::unbounded_channel();
        Self {
            found_in,
            found,
            credit: client
                .core()
                .credit
                .part(READ_AHEAD.min(client.config().receive_credit)),
            timeout: options.timeout.unwrap_or(client.config().timeout),
            give_up_after: options.give_up_after,
            resumed,
            has_failed: false,
            on_gap: options.on_gap,
            client,
            streams,
            calls: HashMap::new(),
            queued: None,
            place: None,
            is_busy: true,
            next_tag: 0,
            events_in,
            sender,
        }
    }

    /// Follows until nobody reads any more.
    pub(super) async fn run(mut self, mut events: mpsc::UnboundedReceiver<FetchEvent>) {
        let resumed = Arc::clone(&self.resumed);
        loop {
            let again = self.ask();
            // Others wait for it.
            self.place = None;
            tokio::select! {
                event = events.recv() => self.handle_all(event, &mut events),
                Some((index, found)) = self.found.recv() => self.handle_found(index, found),
                Some(place) = next_place(&mut self.queued) => self.place = Some(place),
                () = resumed.notified() => self.resume(),
                () = self.sender.closed() => return self.leave(events),
                // Streams wait to be asked for: because of credit, because many FETCHes are under way, or for their time.
                () = sleep_until(again), if again.is_some() => {}
            }
        }
    }

    /// Nobody reads any more: the servers that hold FETCHes of this tail end them.
    fn leave(self, mut events: mpsc::UnboundedReceiver<FetchEvent>) {
        events.close();
        let mut servers: Vec<Arc<Channel>> = Vec::new();
        for (request, _) in self.calls.into_values() {
            if !servers.iter().any(|server| Arc::ptr_eq(server, &request.server)) {
                servers.push(request.server);
            }
        }
        for server in servers {
            server.withdraw_abandoned();
        }
    }

    /// Looks at everything that has arrived, so that streams are asked for again together.
    fn handle_all(&mut self, first: Option<FetchEvent>, events: &mut mpsc::UnboundedReceiver<FetchEvent>) {
        let mut next = first;
        while let Some(event) = next {
            self.handle(event);
            next = events.try_recv().ok();
        }
    }

    /// A stream cannot be followed further. It is not asked for until somebody comes for what follows the error. Of
    /// several that fail meanwhile only the first is told: those that fail again then, then.
    fn stop(&mut self, index: usize, error: ClientError) {
        if let Some(followed) = self.streams.get_mut(index) {
            followed.stopped = true;
        }
        if !std::mem::replace(&mut self.has_failed, true) {
            self.tell(Err(error));
        }
    }

    /// Somebody comes for what follows an error: all streams are asked for again, from where they were.
    fn resume(&mut self) {
        self.has_failed = false;
        for followed in &mut self.streams {
            followed.resume();
        }
    }

    fn tell(&self, item: Result<TailItem, ClientError>) {
        // An error means that nobody reads any more, which the loop notices.
        drop(self.sender.send(item));
    }

    /// Asks for the streams that no FETCH asks for and whose time has come. Returns when to look again, if something is
    /// left.
    fn ask(&mut self) -> Option<Instant> {
        let now = now();
        let waiting = self.streams.iter().filter(|one| one.asked.is_none());
        let next_due = waiting.filter_map(|one| one.not_before).filter(|&at| at > now).min();
        let soon = Some(now + GATHER);
        let crowded = self.calls.len() >= MANY_CALLS;
        if self.calls.len() >= 2 * MANY_CALLS {
            return soon;
        }
        let streams = self.streams.iter().enumerate();
        let due = streams
            .filter(|(_, one)| one.is_due(now))
            .map(|(index, one)| (index, one.wanted));
        let requests = by_server(self.client.pool(), due, ENTRIES);
        let mut quiet_until = None;
        let least = usize::try_from(BATCH_MAX).unwrap_or(usize::MAX);
        for request in requests {
            if let Some(until) = request.server.throttles.until(OpCode::FETCH, now) {
                quiet_until = earlier(quiet_until, Some(until));
                continue;
            }
            let place = self.place_at(&request.server);
            if place.is_none() && !self.is_busy {
                continue;
            }
            // Never more than half of what is left: streams that are answered have to be asked for again while the
            // others still wait.
            let wanted = least.saturating_mul(request.places.len()).min(self.credit.free() / 2);
            let Some(charge) = self.credit.try_charge(least, wanted) else {
                return soon;
            };
            self.fetch(request, charge, crowded, place);
        }
        earlier(next_due, quiet_until)
    }

    /// The place of a FETCH that waits at a server. `None`: all are taken, and this tail is told when its turn comes.
    fn place_at(&mut self, server: &Arc<Channel>) -> Option<Place> {
        if let Some((_, place)) = self.place.take_if(|(at, _)| Arc::ptr_eq(at, server)) {
            return Some(place);
        }
        let place = Arc::clone(&server.waits).try_acquire_owned().ok();
        if place.is_none() && self.queued.is_none() {
            self.queued = Some(Queued {
                server: Arc::clone(server),
                turn: Box::pin(Arc::clone(&server.waits).acquire_owned()),
            });
        }
        place
    }

    /// How long a FETCH may be held: the less, the more of them are. Half of the places are for those that come and go, so that
    /// whoever waits for one gets it soon.
    fn wait_at(&self, server: &Channel, crowded: bool) -> Duration {
        let longest = self.client.config().tail_wait;
        match server.waits.available_permits() {
            0 => longest.min(CROWDED_WAIT),
            free if crowded || free < WAITS / 2 => longest.min(GATHERED_WAIT),
            _ => longest,
        }
    }

    fn fetch(&mut self, request: ServerRequest<Arc<Channel>>, charge: Charge, crowded: bool, place: Option<Place>) {
        let wait = match place {
            Some(_) => self.wait_at(&request.server, crowded),
            None => Duration::ZERO,
        };
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        let wanted = request.places.iter().filter_map(|&index| {
            let followed = self.streams.get_mut(index)?;
            followed.asked = Some(tag);
            Some(followed.wanted)
        });
        let wanted: Vec<_> = wanted.collect();
        let timeout = self
            .client
            .pool()
            .bounds(wanted.first().map(Wanted::place), self.timeout);
        let fetch = plan::request(wanted, wait, 1, charge.bytes());
        let events = (tag, self.events_in.clone());
        post_fetch(&request.server, &fetch, timeout, charge, events, None);
        self.calls.insert(tag, (request, place));
    }

    /// Takes one event.
    fn handle(&mut self, event: FetchEvent) {
        let (FetchEvent::Frame { tag, .. } | FetchEvent::Failed { tag, .. }) = &event;
        let tag = *tag;
        let Some((request, _)) = self.calls.get(&tag) else {
            return;
        };
        let mut opened = match open(&request.places, event) {
            Ok(opened) => opened,
            Err(failure) => return self.handle_failed(tag, &failure),
        };
        let throttles = &request.server.throttles;
        throttles.note(OpCode::FETCH, opened.throttle_ms, now());
        let mut chunk = Chunk::default();
        for (place, part) in opened.parts {
            if let Err(error) = self.take(tag, place, &part, &opened.endpoint, &mut chunk) {
                self.stop(place, error);
            }
        }
        if opened.is_last {
            self.is_busy = !chunk.batches.is_empty();
        }
        if !chunk.batches.is_empty() {
            chunk.charge = Some(opened.charge.split_held(usize::MAX));
            self.tell(Ok(TailItem::Chunk(chunk)));
        }
        if opened.is_last {
            self.release(tag);
        }
    }

    /// A FETCH failed: every stream that it has not answered is asked for again after its pause.
    fn handle_failed(&mut self, tag: u32, failure: &Failure) {
        let mut elsewhere = false;
        for index in self.release(tag) {
            match self.fail(index, failure) {
                Ok(then) => elsewhere |= then == Then::Elsewhere,
                Err(error) => self.stop(index, error),
            }
        }
        // Once for all of them.
        if elsewhere && !self.client.pool().is_routed() {
            self.client.channel().move_on();
        }
    }

    /// An attempt to read one stream failed. The error stops following that stream.
    fn fail(&mut self, index: usize, failure: &Failure) -> Result<Then, ClientError> {
        let policy = &self.client.config().retry;
        let servers = self.client.channel().servers_named();
        let routed = self.client.pool().is_routed();
        let Some(followed) = self.streams.get_mut(index) else {
            return Ok(Then::Again);
        };
        // While there is no server, a tail waits for one; one that is there and refuses is believed in the end.
        let pool = self.client.pool();
        let has_another_copy = pool.has_another_copy(followed.wanted.stream, followed.wanted.from);
        let is_lost = failure.cause.is_damage() && !has_another_copy;
        let patience = match &failure.cause {
            _ if is_lost => Some(Duration::ZERO),
            Cause::Refused { code, .. } if codes::rule(*code).retry == Retry::Elsewhere => {
                Some(self.give_up_after.unwrap_or(self.timeout))
            }
            _ => self.give_up_after,
        };
        let then = followed
            .failed(failure, now(), patience, policy, servers, routed)
            .map_err(|error| if is_lost { error.of_the_only_copy() } else { error })?;
        let wanted = followed.wanted;
        if then == Then::Find || (then == Then::Elsewhere && routed) {
            let pool = self.client.pool();
            if !(failure.cause.is_of_one_server() && pool.read_elsewhere(wanted.stream, wanted.from)) {
                self.find(index);
            }
        }
        Ok(then)
    }

    /// Asks where a stream is, beside everything else. The stream waits for it.
    fn find(&mut self, index: usize) {
        let Some(followed) = self.streams.get_mut(index).filter(|one| !one.finding) else {
            return;
        };
        followed.finding = true;
        let stream = followed.wanted.stream;
        let pool = Arc::clone(self.client.pool());
        let deadline = now() + self.timeout;
        let found_in = self.found_in.clone();
        self.client.runtime().spawn(async move {
            // An error means that nobody reads any more.
            drop(found_in.send((index, pool.refresh(stream, deadline).await)));
        });
    }

    /// A stream was looked for. That it is nowhere stops it; anything else shows when it is asked for again.
    fn handle_found(&mut self, index: usize, found: Result<(), ClientError>) {
        if let Some(followed) = self.streams.get_mut(index) {
            followed.finding = false;
        }
        match found {
            Err(error) if error.code() == ErrorCode::NOT_FOUND => self.stop(index, error),
            Ok(()) | Err(_) => {}
        }
    }

    /// A FETCH is over. Returns the streams that it has not answered; they are asked for again.
    fn release(&mut self, tag: u32) -> Vec<usize> {
        let Some((call, _place)) = self.calls.remove(&tag) else {
            return Vec::new();
        };
        let mut open = Vec::new();
        for index in call.places {
            if let Some(followed) = self.streams.get_mut(index).filter(|one| one.asked == Some(tag)) {
                followed.asked = None;
                open.push(index);
            }
        }
        open
    }

    fn take(
        &mut self,
        tag: u32,
        place: usize,
        part: &Part,
        endpoint: &Arc<str>,
        chunk: &mut Chunk,
    ) -> Result<(), ClientError> {
        let policy = self.client.config().retry;
        let Some(followed) = self.streams.get_mut(place).filter(|one| one.asked == Some(tag)) else {
            return Ok(());
        };
        followed.asked = None;
        if let Err(refused) = &part.outcome
            && codes::rule(refused.status.code).retry != Retry::Never
        {
            let failure = Failure::new(Cause::refused(&refused.status, 0), Some(endpoint));
            return self.fail(place, &failure).map(drop);
        }
        let brought = followed.take(part, endpoint)?;
        if brought.ends_here {
            followed.look_again(now(), &policy);
        }
        if let Some(gap) = brought.gap {
            // What came before it of other streams may as well come after it.
            self.tell(match self.on_gap {
                OnGap::Fail => Err(ClientError::trimmed(gap).with_endpoint(Some(endpoint))),
                OnGap::Report => Ok(TailItem::Gap(gap)),
            });
        }
        chunk.batches.extend(brought.batches);
        if brought.ends_here {
            self.find(place);
        }
        Ok(())
    }
}
