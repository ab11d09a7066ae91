//! Following streams as they grow: one FETCH waits for many streams and is answered as data arrives.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::{FetchInfo, FetchRequest, Retry};
use sbp_types::{Offset, StreamId, TimestampMs};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::clock::now;
use crate::connection::command::FetchEvent;
use crate::credit::ReceiveCredit;
use crate::error::ClientError;
use crate::execute;
use crate::failure::Failure;
use crate::fetch::{FetchedBatch, Part, batches, parts};
use crate::position::Position;
use crate::reader::{Chunk, post_fetch};
use crate::retry::Repeat;

/// What one tail may have asked for and not yet handed out.
const READ_AHEAD: usize = 32 << 20;
/// Bytes asked for per stream and answer: a tail asks for many streams, most of which have nothing.
const BATCH_MAX: usize = 256 << 10;
/// FETCHes of one tail that may wait at once before answered streams are gathered for a while.
const MANY_CALLS: usize = 32;
/// How long they are gathered then, and how long the server may hold such a FETCH.
const GATHER: Duration = Duration::from_millis(10);
const GATHERED_WAIT: Duration = Duration::from_secs(1);
/// Streams of one FETCH.
const ENTRIES: usize = 1_024;

/// How a tail follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailOptions {
    /// How long an answer may take beyond the time the server may wait; `None`: the client's default.
    pub timeout: Option<Duration>,
}

/// Batches of streams as they grow, each stream in the order of its offsets, without end.
///
/// A lost connection is made again and reading goes on behind the last batch of each stream.
#[derive(Debug)]
pub struct Tail {
    chunks: mpsc::UnboundedReceiver<Result<Chunk, ClientError>>,
    current: Chunk,
    finished: bool,
}

impl Client {
    /// Follows streams, each from its position; from a time on, the first batch may begin with older records. "Latest" is resolved before this returns: every record that is appended
    /// from then on will be seen.
    ///
    /// # Errors
    ///
    /// That a stream does not exist, or that its position could not be resolved.
    pub async fn tail(&self, streams: &[(StreamId, Position)], options: TailOptions) -> Result<Tail, ClientError> {
        let timeout = options.timeout.unwrap_or(self.config().timeout);
        let latest: Vec<_> = streams
            .iter()
            .filter(|(_, at)| *at == Position::Latest)
            .map(|&(stream, _)| stream)
            .collect();
        let mut ends = HashMap::new();
        for positions in self.positions(&latest, Some(timeout)).await? {
            let positions = positions?;
            ends.insert(positions.stream, positions.latest);
        }
        let follow = |&(stream, position): &(StreamId, Position)| {
            let (offset, time) = position.on_wire();
            let next = if offset == Offset::LATEST {
                ends.get(&stream).copied().unwrap_or(offset)
            } else {
                offset
            };
            Followed {
                stream,
                next,
                time,
                asked: None,
            }
        };
        let (sender, chunks) = mpsc::unbounded_channel();
        let (events_in, events) = mpsc::unbounded_channel();
        let task = TailTask {
            client: self.clone(),
            streams: streams.iter().map(follow).collect(),
            credit: self.core().credit.part(READ_AHEAD.min(self.config().receive_credit)),
            timeout,
            calls: HashMap::new(),
            next_tag: 0,
            events_in,
            sender,
            attempt: 0,
            give_up_at: now(),
        };
        self.runtime().spawn(task.run(events));
        Ok(Tail {
            chunks,
            current: Chunk::default(),
            finished: false,
        })
    }
}

impl Tail {
    /// The next batch. `None` only after an error.
    ///
    /// # Errors
    ///
    /// Why following cannot go on; nothing comes after it.
    pub async fn next(&mut self) -> Option<Result<FetchedBatch, ClientError>> {
        loop {
            if let Some(batch) = self.current.batches.pop_front() {
                return Some(Ok(batch));
            }
            if let Err(end) = self.next_chunk().await {
                return end.map(Err);
            }
        }
    }

    /// All batches that arrived together. `None` only after an error.
    ///
    /// # Errors
    ///
    /// As [`Tail::next`].
    pub async fn next_many(&mut self) -> Option<Result<Vec<FetchedBatch>, ClientError>> {
        while self.current.batches.is_empty() {
            if let Err(end) = self.next_chunk().await {
                return end.map(Err);
            }
        }
        Some(Ok(self.current.batches.drain(..).collect()))
    }

    async fn next_chunk(&mut self) -> Result<(), Option<ClientError>> {
        self.current.charge = None;
        if self.finished {
            return Err(None);
        }
        match self.chunks.recv().await {
            Some(Ok(chunk)) => {
                self.current = chunk;
                Ok(())
            }
            Some(Err(error)) => {
                self.finished = true;
                Err(Some(error))
            }
            None => {
                self.finished = true;
                Err(None)
            }
        }
    }
}

/// One stream that is followed.
struct Followed {
    stream: StreamId,
    next: Offset,
    /// Where to start by time; used until the first answer.
    time: Option<TimestampMs>,
    /// The FETCH under way that asks for it. Older ones may list it too, but have answered it.
    asked: Option<u32>,
}

struct TailTask {
    client: Client,
    streams: Vec<Followed>,
    credit: Arc<ReceiveCredit>,
    timeout: Duration,
    /// FETCHes under way: which streams each asks for.
    calls: HashMap<u32, Vec<usize>>,
    next_tag: u32,
    events_in: mpsc::UnboundedSender<FetchEvent>,
    sender: mpsc::UnboundedSender<Result<Chunk, ClientError>>,
    /// Failures in a row, and when following ends because of them.
    attempt: u32,
    give_up_at: Instant,
}

impl TailTask {
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<FetchEvent>) {
        loop {
            let all_asked = self.ask();
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.sender.closed() => return,
                // Streams wait to be asked for: because of credit, or because many FETCHes are under way.
                () = tokio::time::sleep(GATHER), if !all_asked => continue,
            };
            if let Err(error) = self.handle_all(event, &mut events).await {
                // An error means that nobody reads any more.
                drop(self.sender.send(Err(error)));
                return;
            }
        }
    }

    /// Looks at everything that has arrived, so that streams are asked for again together and a lost connection, which
    /// fails every FETCH, is waited for once.
    async fn handle_all(
        &mut self,
        first: Option<FetchEvent>,
        events: &mut mpsc::UnboundedReceiver<FetchEvent>,
    ) -> Result<(), ClientError> {
        let mut failure = None;
        let mut next = first;
        while let Some(event) = next {
            failure = self.handle(event)?.or(failure);
            next = events.try_recv().ok();
        }
        let Some(failure) = failure else {
            self.attempt = 0;
            return Ok(());
        };
        self.attempt += 1;
        if self.attempt == 1 {
            self.give_up_at = now() + self.timeout;
        }
        execute::pause(
            self.client.link(),
            &failure,
            Repeat::Harmless,
            self.attempt,
            self.give_up_at,
        )
        .await
    }

    /// Asks for the streams that no FETCH asks for. Returns whether there are none left.
    fn ask(&mut self) -> bool {
        let crowded = self.calls.len() >= MANY_CALLS;
        if self.calls.len() >= 2 * MANY_CALLS {
            return false;
        }
        let idle: Vec<usize> = (0..self.streams.len())
            .filter(|&index| self.streams.get(index).is_some_and(|one| one.asked.is_none()))
            .collect();
        for part in idle.chunks(ENTRIES) {
            // Never more than half of what is left: streams that are answered have to be asked for again while the
            // others still wait.
            let wanted = BATCH_MAX.saturating_mul(part.len()).min(self.credit.free() / 2);
            let Some(charge) = self.credit.try_charge(BATCH_MAX, wanted) else {
                return false;
            };
            let wait = self.client.config().tail_wait;
            let wait = if crowded { wait.min(GATHERED_WAIT) } else { wait };
            let tag = self.next_tag;
            self.next_tag = self.next_tag.wrapping_add(1);
            let entries = part.iter().zip(0..).filter_map(|(&index, request_index)| {
                let followed = self.streams.get_mut(index)?;
                followed.asked = Some(tag);
                Some(FetchInfo {
                    stream_id: followed.stream,
                    request_index,
                    fetch_offset: followed.next,
                    batch_max_bytes: i32::try_from(BATCH_MAX).unwrap_or(i32::MAX),
                    end_offset: Offset(-1),
                    start_timestamp_ms: followed.time.unwrap_or(TimestampMs(-1)),
                })
            });
            let request = FetchRequest {
                max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
                min_bytes: 1,
                fetch_requests: entries.collect(),
                max_bytes: i32::try_from(charge.bytes()).unwrap_or(i32::MAX),
            };
            self.calls.insert(tag, part.to_vec());
            post_fetch(
                self.client.link(),
                &request,
                self.timeout,
                charge,
                tag,
                self.events_in.clone(),
            );
        }
        true
    }

    /// Takes one event. Returns why streams have to be asked for again, if that may help.
    fn handle(&mut self, event: FetchEvent) -> Result<Option<Failure>, ClientError> {
        let (tag, frame, mut charge, end, endpoint) = match event {
            FetchEvent::Failed { tag, failure } => {
                self.release(tag);
                return Ok(Some(failure));
            }
            FetchEvent::Frame {
                tag,
                frame,
                charge,
                end,
                endpoint,
            } => (tag, frame, charge, end, endpoint),
        };
        let asked = self.calls.get(&tag).cloned().unwrap_or_default();
        let mut batches = VecDeque::new();
        let taken = match parts(frame, asked.len()) {
            Ok(parts) => parts.into_iter().try_for_each(|part| {
                let place = asked.get(part.index).copied().unwrap_or(usize::MAX);
                self.take(tag, place, part, &endpoint, &mut batches)
            }),
            Err(cause) => Err(Refusal::Attempt(Failure::new(cause, Some(&endpoint)))),
        };
        if !batches.is_empty() {
            let charge = Some(charge.split_held(usize::MAX));
            // An error means that nobody reads any more, which the loop notices.
            drop(self.sender.send(Ok(Chunk { batches, charge })));
        }
        if end || taken.is_err() {
            self.release(tag);
        }
        match taken {
            Ok(()) => Ok(None),
            Err(Refusal::Attempt(failure)) => Ok(Some(failure)),
            Err(Refusal::Final(error)) => Err(error),
        }
    }

    /// A FETCH is over: what it asked for and did not bring is asked for again.
    fn release(&mut self, tag: u32) {
        for index in self.calls.remove(&tag).unwrap_or_default() {
            if let Some(followed) = self
                .streams
                .get_mut(index)
                .filter(|followed| followed.asked == Some(tag))
            {
                followed.asked = None;
            }
        }
    }

    fn take(
        &mut self,
        tag: u32,
        place: usize,
        part: Part,
        endpoint: &Arc<str>,
        out: &mut VecDeque<FetchedBatch>,
    ) -> Result<(), Refusal> {
        let Part { result, bytes, .. } = part;
        let Some(followed) = self
            .streams
            .get_mut(place)
            .filter(|followed| followed.asked == Some(tag))
        else {
            return Ok(());
        };
        let stream = followed.stream;
        followed.asked = None;
        if !result.status.is_success() {
            let cause = crate::connection::refused(&result.status, 0);
            let failure = Failure::new(cause, Some(endpoint));
            if result.status.code.rule().retry != Retry::Never {
                return Err(Refusal::Attempt(failure));
            }
            let error = ClientError::entry(result.status.code, &failure.cause.to_string(), Some(endpoint));
            let error = if followed.next.0 >= 0 {
                error.with_offset(followed.next)
            } else {
                error
            };
            return Err(Refusal::Final(error.with_stream(stream)));
        }
        // The first answer resolves where the stream is read from; from then on no gap is allowed.
        let resolved = followed.next.0 >= 0 && followed.time.is_none();
        let start = if resolved {
            followed.next
        } else {
            result.base_offset.max(result.start_offset)
        };
        let mut found = Vec::new();
        let next = batches(stream, &bytes, result.high_watermark, start, None, &mut found)
            .map_err(|error| Refusal::Final(error.with_endpoint(Some(endpoint))))?;
        followed.next = next;
        followed.time = None;
        out.extend(found);
        Ok(())
    }
}

/// What one result means for the tail.
enum Refusal {
    Attempt(Failure),
    Final(ClientError),
}
