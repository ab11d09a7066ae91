//! One idempotent writer to many streams, with the batches of many streams in a frame.
//!
//! For those who have all their rows at hand and write them in one go, as a task of Spark does. Each stream has a machine
//! of its own (`writer/machine.rs`), which decides what is sent when, and what an attempt's end means. In here is what such
//! a writer does besides: it gathers the batches of many streams in one frame, counts what each stream got, and tells
//! which batches somebody else had stored before.

mod frame;
mod stream_queue;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_messages::ErrorCode;
use sbp_record::WriterStamp;
use sbp_types::{Offset, StreamId, WriterId};

use self::frame::{Frame, Frames};
use self::stream_queue::{News, StreamQueue, Taken};
use crate::client::Client;
use crate::clock::now;
use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::submission::attempt::AttemptEnd;
use crate::submission::{AppendOp, AttemptSink, Reply, Submissions};
use crate::writer::machine::{Kind, Opening, Setup};

/// How a [`BulkWriter`] writes.
#[derive(Clone, Copy, Debug)]
pub struct BulkOptions {
    /// The writer's name.
    pub writer_id: WriterId,
    /// The instance of the writer: appends of a lower epoch are refused once one of this epoch is stored. Every stream
    /// begins at sequence 0, so the same rows in the same batches under the same name and epoch are stored once.
    pub epoch: i64,
    /// Batches of one stream that the server remembers, and so the most that may be on their way.
    pub window: usize,
    /// How long a batch is sent again after its first attempt.
    pub timeout: Duration,
    /// How long to wait before the next attempt.
    pub retry: RetryPolicy,
}

/// What one stream got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkStored {
    /// The lowest offset; `None` where the server no longer knows the places of what it had stored before.
    pub first: Option<Offset>,
    /// The highest offset.
    pub last: Option<Offset>,
    /// Records, in all.
    pub records: i64,
    /// Batches that somebody else had stored before, under the same name, epoch and sequence.
    pub repeats: u64,
}

/// A batch that the server had stored before under the same name, epoch and sequence, with as many records. Whether it
/// holds the same ones, nobody has looked.
#[derive(Clone, Debug)]
pub struct BulkRepeat {
    /// The stream.
    pub stream: StreamId,
    /// Where it is stored; `None` where the server no longer knows.
    pub base_offset: Option<Offset>,
    /// Its records.
    pub records: i64,
    /// The batch as it was to be stored now.
    pub batch: Bytes,
}

/// Something that happened to what a [`BulkWriter`] has sent; it is given to [`BulkWriter::handle`].
#[derive(Debug)]
pub struct BulkEvent(Event);

#[derive(Debug)]
enum Event {
    /// Attempts at batches have ended.
    Ended(Vec<(u64, AttemptEnd)>),
    /// The placement driver was asked where a stream is.
    Asked(StreamId, Result<(), ClientError>),
}

/// Where the connections tell what became of batches. The receiver is gone when the writer was given up; nobody asks for
/// ends then.
#[derive(Debug)]
struct Mailbox(Sender<BulkEvent>);

impl Mailbox {
    fn post(&self, event: Event) {
        drop(self.0.send(BulkEvent(event)));
    }
}

impl AttemptSink for Mailbox {
    fn ended(self: Arc<Self>, ends: &mut Vec<(u64, AttemptEnd)>) {
        self.post(Event::Ended(std::mem::take(ends)));
    }

    /// The writer's owner calls [`BulkWriter::send`].
    fn pump(self: Arc<Self>) {}
}

/// One writer to many streams. Whoever has it encodes the batches, calls [`BulkWriter::send`], waits for the events that
/// arrive at the sender given to it, and hands them to [`BulkWriter::handle`].
#[derive(Debug)]
pub struct BulkWriter {
    options: BulkOptions,
    mailbox: Arc<Mailbox>,
    queues: Vec<StreamQueue>,
    /// The place of each stream among the queues.
    places: HashMap<StreamId, usize>,
    /// Queues that may have something to send, each once.
    ready: VecDeque<usize>,
    /// Queues whose time is to be looked at, each at the moment at which it is armed; others in here are outdated.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    frames: Frames,
    /// Streams whose place is to be asked for.
    unrouted: Vec<StreamId>,
    /// Batches that are not stored, and their bytes.
    unstored: usize,
    bytes: usize,
    repeats: Vec<BulkRepeat>,
    failed: Option<ClientError>,
}

impl BulkWriter {
    /// A writer that has written nothing. What happens to what it sends is told through `events`.
    #[must_use]
    pub fn new(options: BulkOptions, events: Sender<BulkEvent>) -> Self {
        Self {
            options,
            mailbox: Arc::new(Mailbox(events)),
            queues: Vec::new(),
            places: HashMap::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            frames: Frames::default(),
            unrouted: Vec::new(),
            unstored: 0,
            bytes: 0,
            repeats: Vec::new(),
            failed: None,
        }
    }

    /// The stamp of the next batch for `stream`, which has to be encoded with it.
    #[must_use]
    pub fn stamp(&self, stream: StreamId) -> WriterStamp {
        let queue = self.places.get(&stream).and_then(|&place| self.queues.get(place));
        WriterStamp {
            id: self.options.writer_id,
            epoch: self.options.epoch,
            // Known from the beginning: such a writer is never asked where it stands.
            base_sequence: queue.and_then(|queue| queue.machine.next_sequence()).unwrap_or(0),
        }
    }

    /// Takes a whole batch of `records` records, encoded with its [`stamp`](Self::stamp).
    pub fn push(&mut self, stream: StreamId, batch: Bytes, records: u32) {
        let place = *self.places.entry(stream).or_insert_with(|| {
            self.queues.push(StreamQueue::new(stream, machine_setup(&self.options)));
            self.queues.len() - 1
        });
        let Some(queue) = self.queues.get_mut(place) else {
            return;
        };
        self.unstored += 1;
        self.bytes += batch.len();
        queue.push(batch, records, self.options.timeout);
        if queue.becomes_ready() {
            self.ready.push_back(place);
        }
    }

    /// Bytes of batches that are not stored.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frames on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.frames.len()
    }

    /// Whether everything is stored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.frames.len() == 0 && self.unstored == 0
    }

    /// Sends what may be sent now, so that no more than `max_frames` are on their way, and looks at what is out of time:
    /// the writer may have a [`failure`](Self::failure) afterwards.
    pub fn send(&mut self, client: &Client, max_frames: usize) {
        let mut submissions = Submissions::new();
        while self.frames.len() < max_frames
            && let Some(frame) = self.next_frame(now())
        {
            let sink = Arc::clone(&self.mailbox) as Arc<dyn AttemptSink>;
            let reply = Reply::attempts(sink, frame.tokens);
            submissions.push(AppendOp::new(frame.entries, frame.deadline, reply));
        }
        client.submit(&mut submissions);
        for stream in self.unrouted.drain(..) {
            let (client, mailbox) = (client.clone(), Arc::clone(&self.mailbox));
            let deadline = now() + self.options.timeout;
            client.runtime().clone().spawn(async move {
                let asked = client.pool().refresh_for_append(stream, deadline).await;
                mailbox.post(Event::Asked(stream, asked));
            });
        }
    }

    /// The next frame, if there is anything that may be sent now.
    fn next_frame(&mut self, now: Instant) -> Option<Frame> {
        self.handle_timeouts(now);
        if self.failed.is_some() {
            return None;
        }
        let mut frame = self.frames.begin(now + self.options.timeout);
        let mut too_large = VecDeque::new();
        while !frame.is_full()
            && let Some(place) = self.ready.pop_front()
        {
            let Some(queue) = self.queues.get_mut(place) else {
                continue;
            };
            match queue.take(now, |length| frame.has_room(length)) {
                Taken::Batch(entry, token, deadline) => {
                    frame.add(entry, (place, token), deadline);
                    self.ready.push_back(place);
                }
                Taken::TooLarge => too_large.push_back(place),
                Taken::Nothing => {}
            }
        }
        too_large.append(&mut self.ready);
        self.ready = too_large;
        self.frames.finish(frame)
    }

    /// When something may be sent that may not be sent now, or is out of time, unless an event comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    fn handle_timeouts(&mut self, now: Instant) {
        while let Some(&Reverse((at, place))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            if let Some(queue) = self.queues.get_mut(place)
                && queue.handle_timeout(at, now)
            {
                self.look_after(place, now);
            }
        }
    }

    /// Takes what has happened.
    pub fn handle(&mut self, event: BulkEvent) {
        let now = now();
        match event.0 {
            Event::Ended(ends) => {
                for (token, end) in ends {
                    self.handle_end(now, token, end);
                }
            }
            Event::Asked(stream, asked) => self.handle_asked(now, stream, asked),
        }
    }

    /// The attempt at one batch of a frame has ended.
    fn handle_end(&mut self, now: Instant, token: u64, end: AttemptEnd) {
        let Some((place, token)) = self.frames.ended(token) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(place) {
            queue.machine.handle_end(now, token, end);
            self.look_after(place, now);
        }
    }

    fn handle_asked(&mut self, now: Instant, stream: StreamId, asked: Result<(), ClientError>) {
        let Some(&place) = self.places.get(&stream) else { return };
        let Some(queue) = self.queues.get_mut(place) else {
            return;
        };
        match asked {
            // Nobody will ever store it. Any other failure shows when the batches are sent again.
            Err(error) if error.code() == ErrorCode::NOT_FOUND => {
                let error = if queue.machine.is_in_doubt() {
                    error.in_doubt()
                } else {
                    error
                };
                self.failed.get_or_insert(error.with_stream(stream));
            }
            _ => {
                queue.machine.handle_refreshed();
                self.look_after(place, now);
            }
        }
    }

    /// Takes the news of a queue, and notes when it is to be looked at again.
    fn look_after(&mut self, place: usize, now: Instant) {
        let Some(queue) = self.queues.get_mut(place) else {
            return;
        };
        while let Some(news) = queue.poll_news() {
            match news {
                News::Stored { bytes, repeat } => {
                    self.unstored = self.unstored.saturating_sub(1);
                    self.bytes = self.bytes.saturating_sub(bytes);
                    self.repeats.extend(repeat);
                }
                // The first is the reason for all others.
                News::Failed(error) => drop(self.failed.get_or_insert(error)),
                News::Unrouted => self.unrouted.push(queue.stream),
            }
        }
        if queue.can_send(now) && queue.becomes_ready() {
            self.ready.push_back(place);
        }
        if let Some(at) = queue.arm() {
            self.timers.push(Reverse((at, place)));
        }
    }

    /// Why the writer has given up, if it has. Nothing more is sent then.
    #[must_use]
    pub fn failure(&self) -> Option<&ClientError> {
        self.failed.as_ref()
    }

    /// Batches that turned out to be stored already since this was called last.
    pub fn take_repeats(&mut self) -> Vec<BulkRepeat> {
        std::mem::take(&mut self.repeats)
    }

    /// What each stream got so far.
    #[must_use]
    pub fn stored(&self) -> BTreeMap<StreamId, BulkStored> {
        self.queues.iter().map(|queue| (queue.stream, queue.stored)).collect()
    }
}

/// How the machine of each stream is set up. The name and the epoch are the caller's, who has all of the input at hand and
/// knows what another instance with this name would be; so nothing raises the epoch.
fn machine_setup(options: &BulkOptions) -> Setup {
    Setup {
        epoch: options.epoch,
        opening: Opening::At(0),
        // It is open from the beginning.
        open_by: now(),
        kind: Kind::Bulk,
        max_in_flight: options.window.max(1),
        // An attempt has all of the batch's time.
        attempt_timeout: options.timeout,
        policy: options.retry,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unreliable;
