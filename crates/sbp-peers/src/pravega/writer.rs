//! Writing events to a stream, each exactly once.
//!
//! A writer has a lane for each segment, with an id of its own, and numbers the events there. One append of a lane is in flight;
//! what comes meanwhile goes with the next one. After a connection was lost the server tells the number of the last event that it has
//! of the lane: those up to it are stored, the others are sent again. When a segment is sealed, what is not stored goes to those
//! that follow it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sbp_locks::Mutex;
use sbp_pravega::{EVENT_HEAD, MAX_EVENT, NEW, Reply, Request, Segment, WriterId, key_position, put_event};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::client::Pravega;
use super::error::{PravegaError, PravegaErrorKind};
use super::layout::{Follower, Owned, StreamName};
use super::store::{Store, closed};
use crate::calls::BACK_OFF;

/// An append takes no further event when it has so many.
const ENOUGH_EVENTS: usize = 500;
/// Or so many bytes.
const ENOUGH_BYTES: usize = 1 << 20;

/// An event to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What it is, of [`MAX_EVENT`] bytes at most.
    pub content: Bytes,
    /// Its routing key: events with the same key are read in the order in which they were written.
    pub key: Option<String>,
}

/// Writes events to a stream. Whoever has one closes it; dropped, it gives up what is not stored yet.
#[derive(Debug)]
pub struct Writer {
    stream: StreamName,
    commands: mpsc::UnboundedSender<Command>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Command {
    Append(Vec<NewEvent>, oneshot::Sender<Result<(), PravegaError>>),
    /// Nothing more comes.
    Close,
}

impl Pravega {
    /// A writer for a stream.
    ///
    /// # Errors
    /// [`PravegaError`]; there is no such stream.
    pub async fn writer(&self, stream: &StreamName) -> Result<Writer, PravegaError> {
        let owned = self.current_segments(stream).await?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let router = Router {
            client: self.clone(),
            stream: stream.clone(),
            lanes: owned.into_iter().map(Lane::new).collect::<Result<_, _>>()?,
            delivering: JoinSet::new(),
            waiting: HashMap::new(),
            last_ticket: 0,
            turn: 0,
        };
        let task = self.runtime().spawn(router.run(inbox));
        Ok(Writer {
            stream: stream.clone(),
            commands,
            task: Mutex::new(Some(task)),
        })
    }
}

impl Writer {
    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &StreamName {
        &self.stream
    }

    /// Writes events, and waits until all of them are stored. Whoever stops waiting has them written nevertheless.
    ///
    /// # Errors
    /// [`PravegaError`]: an event is too long, and none was written; or some could not be stored. Where it is not
    /// [certain](PravegaError::is_certain) that nothing was done, some may be.
    pub async fn append(&self, events: Vec<NewEvent>) -> Result<(), PravegaError> {
        for event in &events {
            if event.content.len() > MAX_EVENT {
                let what = format!("an event has {} bytes, and may have {MAX_EVENT}", event.content.len());
                return Err(PravegaError::of_limit(what).about(&self.stream));
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        let (reply, stored) = oneshot::channel();
        let ended = || closed().about(&self.stream);
        let posted = self.commands.send(Command::Append(events, reply));
        posted.map_err(|_| ended())?;
        stored.await.unwrap_or_else(|_| Err(ended().perhaps_done()))
    }

    /// Waits until everything is stored, or is known not to be, and ends.
    pub async fn close(&self) {
        // An error means that it has ended already.
        let _ = self.commands.send(Command::Close);
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ended = task.await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// An event on its way.
#[derive(Debug)]
struct Entry {
    content: Bytes,
    /// Where its key lies; `None`: it has none.
    position: Option<f64>,
    /// Whom to tell.
    ticket: u64,
}

/// Whoever waits for events to be stored.
#[derive(Debug)]
struct Ticket {
    left: usize,
    failed: Option<PravegaError>,
    reply: oneshot::Sender<Result<(), PravegaError>>,
}

/// What goes to one segment.
#[derive(Debug)]
struct Lane {
    owned: Owned,
    writer: WriterId,
    /// The number of the last event that was given one.
    last: i64,
    session: Option<Session>,
    queue: VecDeque<Entry>,
    is_busy: bool,
}

/// The connection on which a lane is set up.
#[derive(Debug, Clone)]
struct Session {
    store: Store,
    over: u64,
}

/// Events that are stored all or none.
#[derive(Debug)]
struct Parcel {
    segment: Segment,
    writer: WriterId,
    session: Option<Session>,
    /// The number of the first event.
    first: i64,
    entries: VecDeque<Entry>,
    /// Those in front of them that turned out to be stored.
    stored: Vec<Entry>,
    /// Whether it may be stored although nobody has said so.
    is_doubtful: bool,
}

/// How the delivery of a parcel has ended.
#[derive(Debug)]
enum Delivered {
    /// It is stored.
    Stored,
    /// The segment is sealed, and what is left of the parcel is not stored. These follow it.
    Sealed(Vec<Follower>),
    Failed(PravegaError),
}

#[derive(Debug)]
struct Router {
    client: Pravega,
    stream: StreamName,
    lanes: Vec<Lane>,
    delivering: JoinSet<(Parcel, Delivered)>,
    waiting: HashMap<u64, Ticket>,
    last_ticket: u64,
    /// Which lane the next event without a key goes to.
    turn: usize,
}

impl Lane {
    fn new(owned: Owned) -> Result<Self, PravegaError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| {
            let what = format!("the system has no random bytes: {error}");
            PravegaError::new(PravegaErrorKind::Lost, what)
        })?;
        Ok(Self {
            owned,
            writer: WriterId(u128::from_be_bytes(id)),
            last: 0,
            session: None,
            queue: VecDeque::new(),
            is_busy: false,
        })
    }

    /// The next events of its queue.
    fn parcel(&mut self) -> Option<Parcel> {
        if self.is_busy || self.queue.is_empty() {
            return None;
        }
        let mut entries = VecDeque::new();
        let mut bytes = 0;
        while entries.len() < ENOUGH_EVENTS
            && let Some(entry) = self
                .queue
                .pop_front_if(|entry| bytes == 0 || bytes + EVENT_HEAD + entry.content.len() <= ENOUGH_BYTES)
        {
            bytes += EVENT_HEAD + entry.content.len();
            entries.push_back(entry);
        }
        let first = self.last + 1;
        self.last += count(&entries);
        self.is_busy = true;
        Some(Parcel {
            segment: self.owned.segment.clone(),
            writer: self.writer,
            session: self.session.clone(),
            first,
            entries,
            stored: Vec::new(),
            is_doubtful: false,
        })
    }
}

impl Router {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        let mut is_open = true;
        loop {
            self.send();
            if !is_open && self.delivering.is_empty() {
                return;
            }
            tokio::select! {
                command = inbox.recv(), if is_open => {
                    is_open = self.take(command);
                    // What is there already goes along.
                    while is_open && let Ok(command) = inbox.try_recv() {
                        is_open = self.take(Some(command));
                    }
                }
                Some(delivered) = self.delivering.join_next() => match delivered {
                    Ok((parcel, delivered)) => self.delivered(parcel, delivered),
                    // It panicked, or the runtime ends: who waits is told by what is dropped.
                    Err(_) => return,
                },
            }
        }
    }

    /// Whether more may come.
    fn take(&mut self, command: Option<Command>) -> bool {
        let Some(Command::Append(events, reply)) = command else {
            return false;
        };
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let left = events.len();
        let waits = Ticket {
            left,
            failed: None,
            reply,
        };
        self.waiting.insert(ticket, waits);
        for event in events {
            let position = event.key.as_deref().map(key_position);
            self.route(Entry {
                content: event.content,
                position,
                ticket,
            });
        }
        true
    }

    /// Puts an event into the queue of its segment.
    fn route(&mut self, entry: Entry) {
        let lanes = self.lanes.len();
        let place = match entry.position {
            Some(position) => self
                .lanes
                .iter()
                .position(|lane| (lane.owned.low..lane.owned.high).contains(&position)),
            None => {
                self.turn = self.turn.wrapping_add(1);
                self.turn.checked_rem(lanes)
            }
        };
        match place.and_then(|place| self.lanes.get_mut(place)) {
            Some(lane) => lane.queue.push_back(entry),
            None => {
                let what = "no segment of the stream takes the event: the stream is sealed";
                let error = PravegaError::new(PravegaErrorKind::Refused, what).about(&self.stream);
                self.end(entry.ticket, Some(&error));
            }
        }
    }

    /// Sends what is waiting in lanes whose append is over.
    fn send(&mut self) {
        for lane in &mut self.lanes {
            if let Some(parcel) = lane.parcel() {
                let delivery = deliver(self.client.clone(), parcel);
                self.delivering.spawn(delivery);
            }
        }
    }

    fn delivered(&mut self, parcel: Parcel, delivered: Delivered) {
        let place = self.lanes.iter().position(|lane| lane.writer == parcel.writer);
        if let Some(lane) = place.and_then(|place| self.lanes.get_mut(place)) {
            lane.is_busy = false;
            lane.session = parcel.session;
        }
        for entry in parcel.stored {
            self.end(entry.ticket, None);
        }
        match delivered {
            Delivered::Stored => {
                for entry in parcel.entries {
                    self.end(entry.ticket, None);
                }
            }
            Delivered::Failed(error) => {
                for entry in parcel.entries {
                    self.end(entry.ticket, Some(&error));
                }
            }
            Delivered::Sealed(followers) => {
                let queued = place.map(|place| self.lanes.remove(place).queue);
                for follower in followers {
                    self.add_lane(follower.owned);
                }
                for entry in parcel.entries.into_iter().chain(queued.into_iter().flatten()) {
                    self.route(entry);
                }
            }
        }
    }

    /// A segment that follows two is named by both.
    fn add_lane(&mut self, owned: Owned) {
        if self.lanes.iter().any(|lane| lane.owned.segment == owned.segment) {
            return;
        }
        // Without a lane, who has an event for it is told so.
        if let Ok(lane) = Lane::new(owned) {
            self.lanes.push(lane);
        }
    }

    /// An event is over.
    fn end(&mut self, ticket: u64, error: Option<&PravegaError>) {
        let Some(waits) = self.waiting.get_mut(&ticket) else {
            return;
        };
        waits.left -= 1;
        if let Some(error) = error {
            waits.failed.get_or_insert_with(|| error.clone());
        }
        if waits.left == 0
            && let Some(waits) = self.waiting.remove(&ticket)
        {
            // A receiver that is gone has stopped waiting.
            let _ = waits.reply.send(waits.failed.map_or(Ok(()), Err));
        }
    }
}

fn count(entries: &VecDeque<Entry>) -> i64 {
    i64::try_from(entries.len()).unwrap_or(i64::MAX)
}

impl Parcel {
    fn last(&self) -> i64 {
        self.first + count(&self.entries) - 1
    }

    fn data(&self) -> Result<Bytes, PravegaError> {
        let mut data = BytesMut::new();
        for entry in &self.entries {
            put_event(&mut data, &entry.content).map_err(|fault| PravegaError::of_limit(fault.to_string()))?;
        }
        Ok(data.freeze())
    }

    /// The events up to this number are stored.
    fn note_stored(&mut self, stored: i64) {
        let stored = stored.saturating_sub(self.first).saturating_add(1).max(0);
        let stored = usize::try_from(stored).unwrap_or(usize::MAX).min(self.entries.len());
        self.stored.extend(self.entries.drain(..stored));
        self.first += i64::try_from(stored).unwrap_or(0);
    }
}

/// What has to be done next about a parcel.
enum Step {
    /// Try again, after a pause.
    Again(PravegaError),
    End(Delivered),
}

/// Has a parcel stored, however often its connection is lost.
async fn deliver(client: Pravega, mut parcel: Parcel) -> (Parcel, Delivered) {
    let patience = client.config().write_patience;
    let begun = Instant::now();
    let mut misses = 0;
    loop {
        let step = match attempt(&client, &mut parcel).await {
            Step::End(delivered) => return (parcel, delivered),
            Step::Again(error) => error,
        };
        parcel.session = None;
        if begun.elapsed() >= patience {
            let error = match parcel.is_doubtful {
                true => step.perhaps_done(),
                false => step,
            };
            return (parcel, Delivered::Failed(error));
        }
        sleep(pause(misses)).await;
        misses += 1;
    }
}

fn pause(misses: u32) -> Duration {
    BACK_OFF.bound(misses)
}

async fn attempt(client: &Pravega, parcel: &mut Parcel) -> Step {
    let session = match &parcel.session {
        Some(session) => session.clone(),
        None => match set_up(client, parcel).await {
            Ok(session) => session,
            Err(step) => return step,
        },
    };
    if parcel.entries.is_empty() {
        parcel.session = Some(session);
        return Step::End(Delivered::Stored);
    }
    let data = match parcel.data() {
        Ok(data) => data,
        Err(error) => return Step::End(Delivered::Failed(error)),
    };
    let append = Request::Append {
        writer: parcel.writer,
        data,
        events: i32::try_from(parcel.entries.len()).unwrap_or(i32::MAX),
        last: parcel.last(),
    };
    let about = |error: PravegaError| error.about(&parcel.segment).at(&session.store.address());
    match session.store.change(append, Some(session.over)).await {
        Ok(Reply::Appended { number, previous, .. }) => {
            let is_next = previous.is_none_or(|previous| previous == NEW || previous < parcel.first);
            if number == parcel.last() && is_next {
                parcel.session = Some(session);
                return Step::End(Delivered::Stored);
            }
            // An acknowledgement was lost: the server tells what it has.
            parcel.is_doubtful = true;
            let what = format!(
                "the server acknowledges the events up to {number} where {} was sent",
                parcel.last()
            );
            Step::Again(about(PravegaError::new(PravegaErrorKind::Peer, what)))
        }
        Ok(Reply::IsSealed { .. } | Reply::NoSuchSegment { .. }) => sealed(client, parcel).await,
        // What was sent before, over a connection that is gone, has come after all: the server tells what it has.
        Ok(reply @ Reply::InvalidEventNumber { .. }) => {
            let error = about(PravegaError::of_reply(&reply));
            parcel.is_doubtful = true;
            Step::Again(error)
        }
        Ok(reply @ Reply::WrongHost { .. }) => Step::Again(about(PravegaError::of_reply(&reply))),
        Ok(reply) => Step::End(Delivered::Failed(about(PravegaError::of_reply(&reply)))),
        Err(error) => {
            parcel.is_doubtful |= !error.is_certain();
            let error = about(error);
            match error.kind() {
                PravegaErrorKind::Limit if error.is_certain() => Step::End(Delivered::Failed(error)),
                _ if client.is_closed() => Step::End(Delivered::Failed(error)),
                _ => Step::Again(error),
            }
        }
    }
}

/// Sets the parcel's writer up, and drops what is stored of the parcel.
async fn set_up(client: &Pravega, parcel: &mut Parcel) -> Result<Session, Step> {
    let about = |error: PravegaError| error.about(&parcel.segment);
    let failed = |error: PravegaError| match error.is_retriable() {
        true => Step::Again(error),
        false => Step::End(Delivered::Failed(error)),
    };
    let store = client
        .store_of(&parcel.segment)
        .await
        .map_err(|error| failed(about(error)))?;
    let request = Request::SetupAppend {
        writer: parcel.writer,
        segment: parcel.segment.to_string(),
        token: client.token(),
    };
    let (reply, over) = store
        .ask_numbered(request)
        .await
        .map_err(|error| failed(about(error)))?;
    match reply {
        Reply::AppendSetup { last, .. } => {
            if last != NEW {
                parcel.note_stored(last);
            }
            parcel.is_doubtful = false;
            Ok(Session { store, over })
        }
        Reply::IsSealed { .. } | Reply::NoSuchSegment { .. } => Err(sealed(client, parcel).await),
        reply => {
            let error = PravegaError::of_reply(&reply)
                .about(&parcel.segment)
                .at(&store.address());
            Err(failed(error))
        }
    }
}

/// The segment is sealed: what follows it takes the parcel, if it is certain that it is not stored.
async fn sealed(client: &Pravega, parcel: &Parcel) -> Step {
    if parcel.is_doubtful {
        let what = "the segment was sealed before it was known whether the events are in it";
        let error = PravegaError::new(PravegaErrorKind::Refused, what).about(&parcel.segment);
        return Step::End(Delivered::Failed(error.perhaps_done()));
    }
    match client.followers(&parcel.segment).await {
        Ok(followers) => Step::End(Delivered::Sealed(followers)),
        Err(error) if error.is_retriable() => Step::Again(error),
        Err(error) => Step::End(Delivered::Failed(error)),
    }
}
