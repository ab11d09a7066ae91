//! Reading a stream, segment by segment.
//!
//! One read of a segment is under way: while records are made of what it brought, and while these are handed out, the next one is. The segments that follow one that is
//! sealed begin when it is read to its end, and so do those that follow several.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;

use sbp_pravega::{Events, Reply, Request, Segment, SegmentId};
use sbp_record::{Batch, Positions, RecordsBuilder};
use sbp_types::TimestampMs;
use tokio::task::{self, AbortHandle, JoinError, JoinSet};
use tokio::time::sleep;

use super::client::Pravega;
use super::error::{Gap, PravegaError, PravegaErrorKind};
use super::history::Walked;
use super::layout::{Follower, StreamName};
use super::store::Store;
use crate::calls::BACK_OFF;

/// Bytes that one read asks for: as many as a server brings at most. What it has at hand it brings without waiting for more.
const ONE_READ: i32 = 2 << 20;
/// While fewer bytes than these wait to be handed out, more are asked for.
const READ_AHEAD: usize = 8 << 20;
/// A batch takes no further event when it has so many.
const ENOUGH_ROWS: usize = 65_536;
/// Or so many bytes.
const ENOUGH_BYTES: usize = 4 << 20;

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the first event that there is.
    Earliest,
    /// Behind the last event that there is when the reader is made.
    Latest,
    /// At this byte of the segment, where an event begins.
    At(i64),
}

/// Where reading ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Behind the last event that there is when the reader is made.
    Latest,
    /// Behind the last event that ends at this byte of the segment or in front of it.
    At(i64),
    /// Nowhere: the reader waits for more, in the segments that follow too.
    Never,
}

/// A part of a segment that is read. The segments that follow it are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPart {
    /// The segment.
    pub segment: Segment,
    /// Where reading begins.
    pub start: Start,
    /// Where it ends.
    pub end: End,
}

/// Events of one segment that were read together.
#[derive(Debug, Clone)]
pub struct ReadBatch {
    /// The segment.
    pub segment: Segment,
    /// The events as records: their offsets are the bytes of the segment at which they begin.
    pub batch: Batch,
    /// The byte behind the last of them.
    pub end: i64,
}

/// Reads segments of a stream; the events of one segment in their order.
///
/// A step that is dropped loses nothing. After an error the next step goes on: behind the gap where bytes are gone, otherwise where
/// the error was; but nothing is read behind bytes that are no events.
#[derive(Debug)]
pub struct Reader {
    client: Pravega,
    parts: Vec<Part>,
    under_way: JoinSet<Outcome>,
    /// Reads under way whose segments are read to the end meanwhile.
    given_up: HashSet<task::Id>,
    /// Batches, each with the bytes of its events.
    ready: VecDeque<(ReadBatch, usize)>,
    /// Bytes of them.
    ready_bytes: usize,
    errors: VecDeque<PravegaError>,
    following: Following,
}

/// Which segments are read after others.
#[derive(Debug, Default)]
struct Following {
    mode: Mode,
    /// Segments that are being read, or were.
    known: HashSet<SegmentId>,
    done: HashSet<SegmentId>,
    /// Segments that are done, and whose followers are being asked for.
    asked: HashSet<SegmentId>,
    /// Those that begin when others are done.
    waiting: Vec<Follower>,
    /// Where segments begin that do not begin where they begin otherwise.
    places: HashMap<SegmentId, i64>,
}

#[derive(Debug, Default)]
enum Mode {
    /// No others.
    #[default]
    Alone,
    /// Those that there were when the reader was made, up to there.
    Known {
        ends: HashMap<SegmentId, i64>,
        followers: HashMap<SegmentId, Vec<Follower>>,
    },
    /// All that there will be.
    All,
}

#[derive(Debug)]
struct Part {
    segment: Segment,
    events: Events,
    /// Where reading ends; `i64::MAX`: nowhere.
    until: i64,
    state: State,
    /// The server that has the segment, as far as that is known.
    store: Option<Store>,
    /// How often in a row reading it has failed.
    misses: u32,
}

#[derive(Debug)]
enum State {
    Idle,
    Asked(AbortHandle),
    Done,
}

#[derive(Debug)]
enum Outcome {
    Read(usize, Result<(Reply, Store), PravegaError>),
    Followers(Segment, Result<Vec<Follower>, PravegaError>),
}

impl Pravega {
    /// A reader of all segments of a stream, from `start` (not [`Start::At`]) to `end` (not [`End::At`]).
    ///
    /// # Errors
    /// [`PravegaError`]: there is no such stream.
    pub async fn read(&self, stream: &StreamName, start: Start, end: End) -> Result<Reader, PravegaError> {
        self.read_all(stream, start, HashMap::new(), end).await
    }

    /// The same from the first event that there is, but for segments that have a place of their own: those are read from this
    /// byte on. So one goes on that has read them up to there.
    ///
    /// # Errors
    /// [`PravegaError`]: there is no such stream.
    pub async fn read_on(
        &self,
        stream: &StreamName,
        places: &HashMap<SegmentId, i64>,
        end: End,
    ) -> Result<Reader, PravegaError> {
        self.read_all(stream, Start::Earliest, places.clone(), end).await
    }

    async fn read_all(
        &self,
        stream: &StreamName,
        start: Start,
        places: HashMap<SegmentId, i64>,
        end: End,
    ) -> Result<Reader, PravegaError> {
        let mut first = match start {
            Start::Latest => self.ends_of(stream).await?,
            _ => self.first_segments(stream).await?,
        };
        if first.is_empty() {
            // A stream that is sealed has no open segments.
            first = match start {
                Start::Latest => Vec::new(),
                _ => {
                    return Err(
                        PravegaError::new(PravegaErrorKind::UnknownName, "the stream has no segments").about(stream),
                    );
                }
            };
        }
        let mut reader = Reader::new(self.clone());
        reader.following.mode = match end {
            End::Never => Mode::All,
            _ => Mode::up_to_now(self.walk(first.iter().map(|(segment, _)| segment.clone())).await?),
        };
        reader.following.places = places;
        for (segment, offset) in first {
            let until = reader.following.end_of(&segment);
            let offset = reader.following.place_of(&segment).unwrap_or(offset);
            reader.add(segment, offset, until);
        }
        Ok(reader)
    }

    /// A reader of parts of segments, each with its own start and end.
    ///
    /// # Errors
    /// [`PravegaError`]: there is no such segment.
    pub async fn read_parts(&self, parts: &[ReadPart]) -> Result<Reader, PravegaError> {
        let mut reader = Reader::new(self.clone());
        for part in parts {
            let info = self.segment_info(&part.segment).await?;
            let start = match part.start {
                Start::Earliest => info.start.unwrap_or(0),
                Start::Latest => info.length,
                Start::At(offset) => offset,
            };
            let until = match part.end {
                End::Latest => info.length,
                End::At(offset) => offset,
                End::Never => i64::MAX,
            };
            reader.add(part.segment.clone(), start, until);
        }
        Ok(reader)
    }

    /// The open segments, with where they end now.
    async fn ends_of(&self, stream: &StreamName) -> Result<Vec<(Segment, i64)>, PravegaError> {
        let mut ends = Vec::new();
        for owned in self.current_segments(stream).await? {
            let info = self.segment_info(&owned.segment).await?;
            ends.push((owned.segment, info.length));
        }
        Ok(ends)
    }
}

impl Mode {
    /// The segments that were found, up to where each ends now.
    fn up_to_now(found: Vec<Walked>) -> Self {
        let mut ends = HashMap::new();
        let mut followers = HashMap::new();
        for walked in found {
            ends.insert(walked.segment.id, walked.info.length);
            followers.insert(walked.segment.id, walked.followers);
        }
        Self::Known { ends, followers }
    }
}

impl Following {
    /// Where reading a segment ends.
    fn end_of(&self, segment: &Segment) -> i64 {
        match &self.mode {
            Mode::Known { ends, .. } => ends.get(&segment.id).copied().unwrap_or(0),
            Mode::Alone | Mode::All => i64::MAX,
        }
    }

    /// Where reading a segment begins, if it has a place of its own.
    fn place_of(&self, segment: &Segment) -> Option<i64> {
        self.places.get(&segment.id).copied()
    }

    /// The segments that can begin now: all that they follow are read. What a reader does not come to, because it lies in front of
    /// where it began, is not waited for.
    fn take_due(&mut self) -> Vec<Segment> {
        let due = self.take_waiting(|following, id| match &following.mode {
            Mode::Known { ends, .. } => !ends.contains_key(&id),
            Mode::Alone | Mode::All => false,
        });
        let is_idle = self.known.len() == self.done.len() && self.asked.is_empty();
        match due.is_empty() && is_idle {
            true => self.take_waiting(|following, id| {
                let mut waiting = following.waiting.iter();
                waiting.all(|waiting| waiting.owned.segment.id != id)
            }),
            false => due,
        }
    }

    /// Those that wait for segments alone that are done, or that are not waited for.
    fn take_waiting(&mut self, is_needless: impl Fn(&Self, SegmentId) -> bool) -> Vec<Segment> {
        let is_due = |follower: &Follower| {
            let mut follows = follower.follows.iter();
            follows.all(|id| self.done.contains(id) || !self.known.contains(id) && is_needless(self, *id))
        };
        let waiting = self.waiting.iter().cloned();
        let (due, waiting): (Vec<Follower>, _) = waiting.partition(is_due);
        self.waiting = waiting;
        due.into_iter().map(|follower| follower.owned.segment).collect()
    }

    fn wait_for(&mut self, followers: Vec<Follower>) {
        for follower in followers {
            let id = follower.owned.segment.id;
            let is_waiting = self.waiting.iter().any(|waiting| waiting.owned.segment.id == id);
            if !self.known.contains(&id) && !is_waiting {
                self.waiting.push(follower);
            }
        }
    }
}

impl Reader {
    fn new(client: Pravega) -> Self {
        Self {
            client,
            parts: Vec::new(),
            under_way: JoinSet::new(),
            given_up: HashSet::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            errors: VecDeque::new(),
            following: Following::default(),
        }
    }

    fn add(&mut self, segment: Segment, offset: i64, until: i64) {
        if !self.following.known.insert(segment.id) {
            return;
        }
        self.parts.push(Part {
            segment,
            events: Events::new(offset),
            until,
            state: State::Idle,
            store: None,
            misses: 0,
        });
        let place = self.parts.len() - 1;
        if offset >= until {
            self.finish(place, false);
        }
    }

    /// The next events of one segment, as a batch; `None` when the end of all segments is reached.
    ///
    /// # Errors
    /// [`PravegaError`]. Where bytes are gone before they were read it has a [gap](PravegaError::gap).
    pub async fn next_batch(&mut self) -> Result<Option<ReadBatch>, PravegaError> {
        loop {
            if self.ready_bytes < READ_AHEAD {
                self.ask();
            }
            if let Some((batch, bytes)) = self.ready.pop_front() {
                self.ready_bytes = self.ready_bytes.saturating_sub(bytes);
                return Ok(Some(batch));
            }
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            let Some(ended) = self.under_way.join_next_with_id().await else {
                return Ok(None);
            };
            let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            if self.given_up.remove(&id) {
                continue;
            }
            match ended {
                Ok((_, Outcome::Read(place, reply))) => self.take(place, reply),
                Ok((_, Outcome::Followers(segment, followers))) => self.follow(&segment, followers),
                // Nobody has aborted it: it panicked, or the runtime ends.
                Err(ended) => {
                    return Err(PravegaError::new(PravegaErrorKind::Lost, ended.to_string()).for_good());
                }
            }
        }
    }

    /// Sends the reads that are wanted.
    fn ask(&mut self) {
        for place in 0..self.parts.len() {
            self.ask_at(place);
        }
    }

    /// Sends the next read of a segment, if it is wanted.
    fn ask_at(&mut self, place: usize) {
        let Some(part) = self.parts.get_mut(place) else {
            return;
        };
        if !matches!(part.state, State::Idle) {
            return;
        }
        let left = part.until.saturating_sub(part.events.end());
        let request = Request::Read {
            segment: part.segment.to_string(),
            offset: part.events.end(),
            length: i32::try_from(left).unwrap_or(i32::MAX).clamp(1, ONE_READ),
            token: self.client.token(),
        };
        let pause = match part.misses {
            0 => None,
            misses => Some(BACK_OFF.bound(misses - 1)),
        };
        let (client, segment, store) = (self.client.clone(), part.segment.clone(), part.store.take());
        let read = async move {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            let store = match store {
                Some(store) => Ok(store),
                None => client.store_of(&segment).await,
            };
            let reply = match store {
                Ok(store) => {
                    let reply = store.ask(request).await;
                    let reply = reply.map_err(|error| error.at(&store.address()));
                    reply.map(|reply| (reply, store))
                }
                Err(error) => Err(error),
            };
            Outcome::Read(place, reply)
        };
        part.state = State::Asked(self.under_way.spawn_on(read, self.client.runtime()));
    }

    /// Takes over what a read has brought.
    fn take(&mut self, place: usize, reply: Result<(Reply, Store), PravegaError>) {
        let Some(part) = self.parts.get_mut(place) else {
            return;
        };
        part.state = State::Idle;
        let reply = reply.map(|(reply, store)| {
            // Where another server has the segment, it is looked for again.
            part.store = Some(store).filter(|_| !matches!(reply, Reply::WrongHost { .. }));
            reply
        });
        let about = |error: PravegaError, part: &Part| error.about(&part.segment).with_offset(part.events.end());
        match reply {
            Ok(Reply::Read { data, is_end, .. }) => {
                // A server that waits answers with nothing when it has waited for long, and another one at once.
                part.misses = match data.is_empty() && !is_end {
                    true => part.misses.saturating_add(1),
                    false => 0,
                };
                let goes_on = !data.is_empty() && !is_end;
                part.events.push(data);
                if goes_on && part.events.end() < part.until && self.ready_bytes < READ_AHEAD {
                    self.ask_at(place);
                }
                self.cut(place, is_end);
            }
            Ok(Reply::IsSealed { .. }) => self.cut(place, true),
            Ok(Reply::IsTruncated { start, .. }) if start > part.events.offset() => {
                let gap = Gap {
                    from: part.events.offset(),
                    to: start.min(part.until),
                };
                let what = format!("the segment was truncated: it begins at byte {start}");
                let error = PravegaError::new(PravegaErrorKind::OutOfRange, what);
                self.errors.push_back(error.about(&part.segment).with_gap(gap));
                part.events = Events::new(start);
                if start >= part.until {
                    self.finish(place, false);
                }
            }
            Ok(reply @ Reply::NoSuchSegment { .. }) => {
                let error = about(PravegaError::of_reply(&reply), part);
                self.errors.push_back(error);
                self.finish(place, true);
            }
            Ok(Reply::WrongHost { .. }) if part.misses < WRONG_HOSTS => part.misses += 1,
            Ok(reply) => {
                part.misses = part.misses.saturating_add(1);
                let error = about(PravegaError::of_reply(&reply), part);
                self.errors.push_back(error);
            }
            // The server waits for more, for longer than a reply may take.
            Err(error) if error.is_late() => {}
            Err(error) => {
                part.misses = part.misses.saturating_add(1);
                let waits = part.until == i64::MAX && error.is_retriable();
                if !waits {
                    let error = about(error, part);
                    self.errors.push_back(error);
                }
            }
        }
    }

    /// Makes batches of the events that have come.
    fn cut(&mut self, place: usize, is_end: bool) {
        let Some(part) = self.parts.get_mut(place) else {
            return;
        };
        let mut collector = Collector::default();
        let cut = part.events.each(part.until, |offset, content, end| {
            match collector.push(offset, content, end) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error.with_offset(offset)),
            }
        });
        let mut failed = match cut {
            Ok(ControlFlow::Continue(())) => None,
            Ok(ControlFlow::Break(error)) => Some(error.about(&part.segment)),
            Err(fault) => {
                let error = PravegaError::of_fault("an event", fault);
                Some(error.about(&part.segment).with_offset(part.events.offset()))
            }
        };
        let segment = part.segment.clone();
        let is_over = part.events.offset() >= part.until || part.events.end() >= part.until;
        if failed.is_none() && is_end && !is_over && part.events.held() > 0 {
            let what = format!(
                "the segment is sealed, and ends {} bytes after an event has begun",
                part.events.held()
            );
            let error = PravegaError::new(PravegaErrorKind::Framing, what);
            failed = Some(error.about(&segment).with_offset(part.events.offset()));
        }
        match collector.finish() {
            Ok(batches) => {
                for (batch, end, bytes) in batches {
                    self.ready_bytes += bytes;
                    let segment = segment.clone();
                    self.ready.push_back((ReadBatch { segment, batch, end }, bytes));
                }
            }
            Err(error) => failed = Some(error.about(&segment)),
        }
        let has_failed = failed.is_some();
        self.errors.extend(failed);
        if has_failed || is_end || is_over {
            self.finish(place, is_end && !has_failed);
        }
    }

    /// A segment is read; `is_end`: to where it is sealed.
    fn finish(&mut self, place: usize, is_end: bool) {
        let Some(part) = self.parts.get_mut(place) else {
            return;
        };
        if let State::Asked(read) = std::mem::replace(&mut part.state, State::Done) {
            read.abort();
            self.given_up.insert(read.id());
        }
        let segment = part.segment.clone();
        self.following.done.insert(segment.id);
        match &self.following.mode {
            Mode::Alone => {}
            Mode::Known { ends, followers } => {
                let followers = followers.get(&segment.id).cloned().unwrap_or_default();
                let known = followers.into_iter();
                let known = known
                    .filter(|follower| ends.contains_key(&follower.owned.segment.id))
                    .collect();
                self.begin(known);
            }
            Mode::All if is_end => self.ask_followers(segment, 0),
            Mode::All => {}
        }
    }

    fn ask_followers(&mut self, segment: Segment, misses: u32) {
        self.following.asked.insert(segment.id);
        let client = self.client.clone();
        let ask = async move {
            if misses > 0 {
                sleep(BACK_OFF.longest).await;
            }
            let followers = client.followers(&segment).await;
            Outcome::Followers(segment, followers)
        };
        self.under_way.spawn_on(ask, self.client.runtime());
    }

    fn follow(&mut self, segment: &Segment, followers: Result<Vec<Follower>, PravegaError>) {
        self.following.asked.remove(&segment.id);
        match followers {
            Ok(followers) => self.begin(followers),
            Err(error) => {
                if !error.is_retriable() {
                    self.errors.push_back(error);
                } else {
                    self.ask_followers(segment.clone(), 1);
                }
            }
        }
    }

    /// Begins what can begin now, of these and of those that waited.
    fn begin(&mut self, followers: Vec<Follower>) {
        self.following.wait_for(followers);
        for segment in self.following.take_due() {
            let until = self.following.end_of(&segment);
            let offset = self.following.place_of(&segment).unwrap_or(0);
            self.add(segment, offset, until);
        }
    }
}

/// How often in a row another server is looked for before that is an error.
const WRONG_HOSTS: u32 = 5;

/// Events that are being collected.
#[derive(Debug, Default)]
struct Collector {
    builder: RecordsBuilder,
    /// Bytes of the events in it.
    bytes: usize,
    offsets: Vec<i64>,
    end: i64,
    full: Vec<(Batch, i64, usize)>,
}

impl Collector {
    fn push(&mut self, offset: i64, content: &[u8], end: i64) -> Result<(), PravegaError> {
        if self.offsets.len() >= ENOUGH_ROWS || self.bytes >= ENOUGH_BYTES {
            self.close()?;
        }
        // Events have no time.
        let added = self.builder.push(Some(content), None, None, &[]);
        added.map_err(|error| PravegaError::new(PravegaErrorKind::Limit, error.to_string()))?;
        self.bytes += content.len();
        self.offsets.push(offset);
        self.end = end;
        Ok(())
    }

    fn close(&mut self) -> Result<(), PravegaError> {
        if self.offsets.is_empty() {
            return Ok(());
        }
        let wrong = |error: sbp_record::BatchError| PravegaError::new(PravegaErrorKind::Peer, error.to_string());
        let positions = Positions::listed(std::mem::take(&mut self.offsets)).map_err(wrong)?;
        let bytes = self.builder.body_length();
        let batch = Batch::from_builder(&mut self.builder, positions, TimestampMs(0)).map_err(wrong)?;
        self.bytes = 0;
        self.full.push((batch, self.end, bytes));
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<(Batch, i64, usize)>, PravegaError> {
        self.close()?;
        Ok(self.full)
    }
}
