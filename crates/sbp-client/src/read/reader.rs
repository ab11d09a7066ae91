//! Reading bounded spans of streams: in order, without gaps, and with proof that nothing is missing.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_frame::OpCode;
use sbp_messages::{ErrorCode, Status};
use sbp_types::Offset;
use tokio::sync::{mpsc, oneshot};

use crate::call::{self, Trying, Where};
use crate::channel::Channel;
use crate::channel::command::FetchEvent;
use crate::channel::credit::{Charge, ReceiveCredit};
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::position::Span;
use crate::read::answer::{FetchedBatch, Part, RefusedEntry, goes_on_at};
use crate::read::plan::{self, ServerRequest, Wanted};
use crate::read::request::{by_server, open, post_fetch};
use crate::retry::Repeat;

/// What one reader may have asked for and not yet handed out.
const READ_AHEAD: usize = 32 << 20;
/// Spans that one FETCH asks for: the front one, and those behind it to have them when it is done. With more of them the
/// server looks for the next while the consumer has nothing to do.
const SPANS_AHEAD: usize = 64;
/// Small pieces that came early are handed out together up to this size: the consumer is woken once for them.
const TOGETHER: usize = 1 << 20;
/// Rounds that may bring the front span nothing although the server has more.
const IDLE_ROUNDS: u32 = 5;

/// How a reader reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReaderOptions {
    /// How long one answer may take; `None`: the client's default. A slow consumer does not count.
    pub timeout: Option<Duration>,
    /// Bytes asked for per stream and answer; `None`: the client's configuration.
    pub batch_max_bytes: Option<u32>,
}

/// Batches of bounded spans, in the order of spans and within a span of offsets.
///
/// Reads ahead as far as its credit goes, which comes back as batches are taken. A lost connection is made again and
/// reading goes on behind the last batch handed out. The end comes only when every record of every span was handed out;
/// anything less is an error.
#[derive(Debug)]
pub struct Reader {
    chunks: mpsc::UnboundedReceiver<Result<Chunk, ClientError>>,
    current: Chunk,
}

/// Batches that arrived together, and the credit they hold until they are handed out.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) batches: VecDeque<FetchedBatch>,
    pub(crate) charge: Option<Charge>,
}

impl Chunk {
    /// Adds what another chunk of the same reader has.
    fn join(&mut self, other: Self) {
        self.batches.extend(other.batches);
        match (&mut self.charge, other.charge) {
            (Some(held), Some(more)) => held.join(more),
            (held @ None, more) => *held = more,
            (Some(_), None) => {}
        }
    }

    fn bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}

impl Client {
    /// Reads `spans`. Work begins at once, on the client's runtime, and ends when the reader is dropped.
    #[must_use]
    pub fn reader(&self, spans: Vec<Span>, options: ReaderOptions) -> Reader {
        let (sender, chunks) = mpsc::unbounded_channel();
        let config = self.config();
        let task = ReadTask {
            client: self.clone(),
            spans: VecDeque::new(),
            credit: self.core().credit.part(READ_AHEAD.min(config.receive_credit)),
            timeout: options.timeout.unwrap_or(config.timeout),
            batch_max: usize::try_from(options.batch_max_bytes.unwrap_or(config.batch_max_bytes).max(1))
                .unwrap_or(usize::MAX),
            sender,
            ahead: None,
            idle_rounds: 0,
        };
        self.runtime().spawn(task.run(spans));
        Reader {
            chunks,
            current: Chunk::default(),
        }
    }
}

impl Reader {
    /// The next batch; `None` when all spans were read to their ends.
    ///
    /// # Errors
    ///
    /// Why reading cannot go on; nothing comes after it.
    pub async fn next(&mut self) -> Option<Result<FetchedBatch, ClientError>> {
        if let Err(error) = self.fill().await? {
            return Some(Err(error));
        }
        self.current.batches.pop_front().map(Ok)
    }

    /// All batches that arrived together; `None` when all spans were read to their ends.
    ///
    /// # Errors
    ///
    /// As [`Reader::next`].
    pub async fn next_many(&mut self) -> Option<Result<Vec<FetchedBatch>, ClientError>> {
        if let Err(error) = self.fill().await? {
            return Some(Err(error));
        }
        Some(Ok(self.current.batches.drain(..).collect()))
    }

    /// Waits until there are batches to hand out. Behind an error the task has ended, and nothing comes.
    async fn fill(&mut self) -> Option<Result<(), ClientError>> {
        while self.current.batches.is_empty() {
            // What the last chunk held is handed out: its credit returns before more is waited for.
            self.current.charge = None;
            match self.chunks.recv().await? {
                Ok(chunk) => self.current = chunk,
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(()))
    }
}

/// A span that is being read.
struct Reading {
    start: Offset,
    end: Offset,
    /// What is left to be read.
    wanted: Wanted,
    /// What arrived before the span was at the front.
    early: VecDeque<Chunk>,
    delivered: u64,
}

struct ReadTask {
    client: Client,
    spans: VecDeque<Reading>,
    credit: Arc<ReceiveCredit>,
    timeout: Duration,
    batch_max: usize,
    sender: mpsc::UnboundedSender<Result<Chunk, ClientError>>,
    ahead: Option<Ahead>,
    idle_rounds: u32,
}

/// A FETCH on its way.
struct SentFetch {
    /// Who is asked for which spans.
    request: ServerRequest<Arc<Channel>>,
    events: mpsc::UnboundedReceiver<FetchEvent>,
    /// The header of an answer whose payload is still on its way.
    begins: Option<oneshot::Receiver<Bytes>>,
}

/// A FETCH for what follows an answer that is still coming in: the server looks for it meanwhile.
struct Ahead {
    /// What the FETCH asks for.
    wanted: Wanted,
    asked: SentFetch,
}

/// Why a round of fetching ended early.
enum Stop {
    /// The attempt failed and may be repeated.
    Attempt(Failure),
    /// Reading cannot go on.
    Final(ClientError),
    /// Nobody reads any more.
    Abandoned,
}

impl ReadTask {
    async fn run(mut self, spans: Vec<Span>) {
        if let Err(Stop::Final(error)) = self.read_all(spans).await {
            // An error means that nobody reads any more.
            drop(self.sender.send(Err(error)));
        }
    }

    async fn read_all(&mut self, spans: Vec<Span>) -> Result<(), Stop> {
        let only = match spans.as_slice() {
            [one] => Some(one.stream),
            _ => None,
        };
        let ids: Vec<_> = spans.iter().map(|span| span.stream).collect();
        self.client
            .pool()
            .find_copies(ids.into_iter(), now() + self.timeout)
            .await;
        let resolved = self.resolve(spans).await.map_err(|error| match only {
            Some(stream) => error.with_stream(stream),
            None => error,
        });
        self.spans = resolved.map_err(Stop::Final)?;
        // Counted from the first failure in a row: a slow consumer may take all the time it likes.
        let mut trying: Option<Trying> = None;
        loop {
            self.pass_finished()?;
            if self.spans.is_empty() {
                return Ok(());
            }
            let before = self.front_offset();
            let failure = match self.round().await {
                Ok(()) => {
                    trying = None;
                    continue;
                }
                Err(Stop::Attempt(failure)) => failure,
                Err(stop) => return Err(stop),
            };
            // The FETCH that was sent ahead went the same way, and would fail too; its credit is free while this task pauses.
            self.ahead = None;
            if self.front_offset() != before {
                trying = None;
            }
            let to = self.front();
            let trying = trying.get_or_insert_with(|| Trying::new(Repeat::Harmless, to, now() + self.timeout));
            trying.to = to;
            let paused = call::pause(self.client.pool(), &failure, trying).await;
            paused.map_err(|error| Stop::Final(self.placed(error)))?;
        }
    }

    /// Turns "earliest" and "latest" into offsets, once for all spans.
    async fn resolve(&self, spans: Vec<Span>) -> Result<VecDeque<Reading>, ClientError> {
        let open: Vec<_> = spans
            .iter()
            .filter(|span| span.start.0 < 0 || span.end.0 < 0)
            .map(|span| span.stream)
            .collect();
        let found = if open.is_empty() {
            Vec::new()
        } else {
            let each = self.client.positions(&open, Some(self.timeout)).await?;
            each.into_iter().collect::<Result<Vec<_>, _>>()?
        };
        let resolve = |stream, offset: Offset| match found.iter().find(|positions| positions.stream == stream) {
            Some(positions) if offset == Offset::EARLIEST => positions.earliest,
            Some(positions) if offset == Offset::LATEST => positions.latest,
            _ => offset,
        };
        spans
            .into_iter()
            .map(|Span { stream, start, end }| {
                let (start, end) = (resolve(stream, start), resolve(stream, end));
                if start.0 < 0 || end.0 < start.0 {
                    let what = format!("a span from {start} to {end} is not a part of a stream");
                    return Err(ClientError::invalid(what).with_stream(stream));
                }
                Ok(Reading {
                    start,
                    end,
                    wanted: Wanted {
                        stream,
                        from: start,
                        end: Some(end),
                        time: None,
                        batch_max_bytes: i32::try_from(self.batch_max).unwrap_or(i32::MAX),
                    },
                    early: VecDeque::new(),
                    delivered: 0,
                })
            })
            .collect()
    }

    /// Hands out what came early for the front span, and drops spans that are done.
    fn pass_finished(&mut self) -> Result<(), Stop> {
        let mut together = Chunk::default();
        let passed = self.pass_early(&mut together);
        // What was read is handed out before an error is.
        self.hand_out(&mut together)?;
        passed
    }

    fn pass_early(&mut self, together: &mut Chunk) -> Result<(), Stop> {
        while let Some(front) = self.spans.front_mut() {
            if let Some(chunk) = front.early.pop_front() {
                front.delivered += chunk.batches.iter().map(FetchedBatch::len).sum::<u64>();
                together.join(chunk);
                if together.bytes() >= TOGETHER {
                    self.hand_out(together)?;
                }
                continue;
            }
            if !front.wanted.is_done() {
                return Ok(());
            }
            // The proof: contiguity was checked batch by batch, this checks the sum.
            let planned = front.end.distance_from(front.start);
            if front.delivered != planned {
                let what = format!("{} records were read where {planned} were planned", front.delivered);
                return Err(Stop::Final(
                    ClientError::incomplete(what).with_stream(front.wanted.stream),
                ));
            }
            self.spans.pop_front();
        }
        Ok(())
    }

    fn hand_out(&self, together: &mut Chunk) -> Result<(), Stop> {
        if together.batches.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(together);
        self.sender.send(Ok(chunk)).map_err(|_reader_gone| Stop::Abandoned)
    }

    /// Whom the front span is read from.
    fn front(&self) -> Where {
        self.spans.front().map_or(Where::Placement, |front| {
            Where::Stream(front.wanted.stream, front.wanted.from)
        })
    }

    /// Where the front span is read next.
    fn front_offset(&self) -> Option<Offset> {
        self.spans.front().map(|front| front.wanted.from)
    }

    /// What whoever has the front span is asked for, once it may be asked again: the front span and those behind it that
    /// have nothing yet and are there too.
    async fn plan(&self) -> ServerRequest<Arc<Channel>> {
        let pool = self.client.pool();
        let ahead = self.spans.iter().enumerate().take(SPANS_AHEAD);
        let unread = ahead.filter(|(place, span)| !span.wanted.is_done() && (*place == 0 || span.early.is_empty()));
        let requests = by_server(pool, unread.map(|(place, span)| (place, span.wanted)), SPANS_AHEAD);
        let request = requests.into_iter().next().unwrap_or_else(|| ServerRequest {
            server: Arc::clone(pool.home()),
            places: Vec::new(),
        });
        request.server.throttles.wait(OpCode::FETCH, None).await;
        request
    }

    async fn round(&mut self) -> Result<(), Stop> {
        let mut asked = match self.take_ahead() {
            Some(asked) => asked,
            None => self.ask().await?,
        };
        let before = self.front_offset();
        loop {
            let event = tokio::select! {
                biased;
                header = beginning(&mut asked.begins) => {
                    self.ask_ahead(&asked, &header);
                    continue;
                }
                event = asked.events.recv() => event,
                () = self.sender.closed() => return Err(Stop::Abandoned),
            };
            let Some(event) = event else {
                let reason = "its task was stopped".into();
                let cause = Cause::ConnectionLost { sent: true, reason };
                return Err(Stop::Attempt(Failure::from(cause)));
            };
            let mut opened = open(&asked.request.places, event).map_err(Stop::Attempt)?;
            let throttles = &asked.request.server.throttles;
            throttles.note(OpCode::FETCH, opened.throttle_ms, now());
            for (place, part) in opened.parts {
                self.take(place, &part, &mut opened.charge, &opened.endpoint)?;
            }
            if opened.is_last {
                break;
            }
        }
        if self.front_offset() == before {
            self.idle_rounds += 1;
        } else {
            self.idle_rounds = 0;
        }
        if self.idle_rounds >= IDLE_ROUNDS {
            let what = format!("the server returned nothing {IDLE_ROUNDS} times although it has more");
            return Err(Stop::Final(self.placed(ClientError::protocol(what))));
        }
        Ok(())
    }

    /// Asks for the front span and those behind it, as credit allows.
    async fn ask(&mut self) -> Result<SentFetch, Stop> {
        let request = self.plan().await;
        let wanted = self.batch_max.saturating_mul(request.places.len()).min(READ_AHEAD);
        let charge = self.charge(self.batch_max.min(wanted), wanted).await?;
        let spans = request.places.iter().filter_map(|&place| self.spans.get(place));
        let wanted: Vec<_> = spans.map(|span| span.wanted).collect();
        Ok(self.send(request, wanted, charge))
    }

    /// Asks for what follows an answer to `asked` whose header is here, if there is credit.
    fn ask_ahead(&mut self, asked: &SentFetch, header: &[u8]) {
        let ([0], Some(front)) = (asked.request.places.as_slice(), self.spans.front()) else {
            return;
        };
        let mut wanted = front.wanted;
        let Some(from) = goes_on_at(header, wanted.from) else {
            return;
        };
        wanted.from = from;
        if wanted.is_done() {
            return;
        }
        let Some(charge) = self.credit.try_charge(self.batch_max, self.batch_max) else {
            return;
        };
        let asked = self.send(asked.request.clone(), vec![wanted], charge);
        self.ahead = Some(Ahead { wanted, asked });
    }

    /// The FETCH that was sent ahead, if it is what is wanted now.
    fn take_ahead(&mut self) -> Option<SentFetch> {
        let ahead = self.ahead.take()?;
        let front = self.spans.front()?;
        (front.wanted == ahead.wanted).then_some(ahead.asked)
    }

    /// Waits for credit. Credit that sits in early chunks of this very reader is given up first when nothing else can
    /// move: it will be read again.
    async fn charge(&mut self, least: usize, wanted: usize) -> Result<Charge, Stop> {
        if let Some(charge) = self.credit.try_charge(least, wanted) {
            return Ok(charge);
        }
        for span in self.spans.iter_mut().skip(1) {
            if let Some(first) = span.early.front().and_then(|chunk| chunk.batches.front()) {
                span.wanted.from = first.from;
                span.early.clear();
            }
        }
        tokio::select! {
            charge = self.credit.charge(least, wanted) => Ok(charge),
            () = self.sender.closed() => Err(Stop::Abandoned),
        }
    }

    /// Sends a FETCH.
    fn send(&self, request: ServerRequest<Arc<Channel>>, wanted: Vec<Wanted>, charge: Charge) -> SentFetch {
        let timeout = self
            .client
            .pool()
            .bounds(wanted.first().map(Wanted::place), self.timeout);
        let fetch = plan::request(wanted, Duration::ZERO, 0, charge.bytes());
        let (sender, events) = mpsc::unbounded_channel();
        let (begin, begins) = oneshot::channel();
        let channel = &request.server;
        post_fetch(channel, &fetch, timeout, charge, (0, sender), Some(begin));
        SentFetch {
            request,
            events,
            begins: Some(begins),
        }
    }

    /// Takes one result: data of the front span is handed out, other data is kept until its span is at the front.
    fn take(&mut self, place: usize, part: &Part, charge: &mut Charge, endpoint: &Arc<str>) -> Result<(), Stop> {
        let Some(span) = self.spans.get_mut(place) else {
            return Ok(());
        };
        let at = match &part.outcome {
            Ok(at) => at,
            Err(refused) => return self.refused(place, refused, endpoint),
        };
        // Trimmed meanwhile, perhaps inside a batch, which is returned whole.
        if span.wanted.gap(at.start_offset).is_some() {
            return self.gone(place, Some((at.start_offset, at.high_watermark)), endpoint);
        }
        let mut chunk = Chunk {
            batches: VecDeque::new(),
            charge: Some(charge.split_held(part.bytes.len())),
        };
        let from = span.wanted.from;
        let final_error = |error: ClientError| Stop::Final(error.with_endpoint(Some(endpoint)));
        let brought = span.wanted.take(part, at).map_err(final_error)?;
        if brought.batches.is_empty() && place == 0 && from < span.end {
            if at.end_of_range {
                // The stream goes on at another server.
                let cause = Cause::Refused {
                    code: ErrorCode::RANGE_NOT_FOUND,
                    message: format!("the ranges here end at {}", at.next_offset),
                    throttle: Duration::ZERO,
                    leader: None,
                };
                return Err(Stop::Attempt(Failure::new(cause, Some(endpoint))));
            }
            if at.high_watermark < span.end && self.client.pool().is_routed() {
                // Whoever told the end has more.
                let cause = Cause::Refused {
                    code: ErrorCode::RANGE_NOT_FOUND,
                    message: format!(
                        "records up to {} are there yet, {} are wanted",
                        at.high_watermark, span.end
                    ),
                    throttle: Duration::ZERO,
                    leader: None,
                };
                return Err(Stop::Attempt(Failure::new(cause, Some(endpoint))));
            }
            if at.high_watermark < span.end {
                let what = format!("the stream ends at {} before the span does", at.high_watermark);
                let error = ClientError::incomplete(what).with_stream(span.wanted.stream);
                return Err(final_error(error.with_offset(from)));
            }
        }
        chunk.batches.extend(brought.batches);
        if chunk.batches.is_empty() {
            return Ok(());
        }
        if place == 0 {
            span.delivered += chunk.batches.iter().map(FetchedBatch::len).sum::<u64>();
            self.sender.send(Ok(chunk)).map_err(|_reader_gone| Stop::Abandoned)
        } else {
            span.early.push_back(chunk);
            Ok(())
        }
    }

    /// A span behind the front that is refused is asked for again when it is at the front; then it counts.
    fn refused(&self, place: usize, refused: &RefusedEntry, endpoint: &Arc<str>) -> Result<(), Stop> {
        if place != 0 {
            return Ok(());
        }
        if refused.status.code == ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS {
            return self.gone(place, refused.bounds, endpoint);
        }
        let cause = Cause::refused(&refused.status, 0);
        Err(Stop::Attempt(Failure::new(cause, Some(endpoint))))
    }

    /// What the front span needs is not there any more, or not yet: the stream's first offset and its end are `bounds`, if
    /// the server says them.
    fn gone(&self, place: usize, bounds: Option<(Offset, Offset)>, endpoint: &Arc<str>) -> Result<(), Stop> {
        let Some(span) = self.spans.get(place).filter(|_| place == 0) else {
            return Ok(());
        };
        let Wanted { stream, from, .. } = span.wanted;
        let what = match bounds {
            Some((start, end)) => {
                format!("offset {from} is not between {start} and {end}: the records are gone or not written")
            }
            None => format!("offset {from} is not in the stream: the records are gone or not written"),
        };
        let status = Status::error(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, what);
        let error = ClientError::entry(&status, Some(endpoint));
        let error = error.with_gap(bounds.and_then(|(start, _)| span.wanted.gap(start)));
        Err(Stop::Final(error.with_stream(stream).with_offset(from)))
    }

    fn placed(&self, error: ClientError) -> ClientError {
        match self.spans.front() {
            Some(front) => error.with_stream(front.wanted.stream).with_offset(front.wanted.from),
            None => error,
        }
    }
}

/// The header of an answer whose payload is still on its way; once, and never where none comes.
async fn beginning(begins: &mut Option<oneshot::Receiver<Bytes>>) -> Bytes {
    if let Some(receiver) = begins {
        let header = receiver.await;
        *begins = None;
        if let Ok(header) = header {
            return header;
        }
    }
    pending().await
}
