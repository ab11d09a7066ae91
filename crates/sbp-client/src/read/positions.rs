//! Where streams begin and end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, FetchInfo, FetchRequest, Message};
use sbp_types::{Offset, StreamId, TimestampMs};
use tokio::task::{JoinError, JoinSet};

use crate::call::answers::Each;
use crate::call::{self, Plan, Trying, Where};
use crate::channel::command::{Answer, Need};
use crate::channel::header::encoded;
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::position::{Position, Positions, Span};
use crate::read::answer::{FetchedPlace, RefusedEntry, first_reaching, parts};
use crate::read::plan::{self, Wanted};
use crate::read::reader::ReaderOptions;
use crate::read::request::by_server;
use crate::retry::Repeat;

/// What a server says of an entry.
type Told = Result<FetchedPlace, RefusedEntry>;

/// What came of a request: a result for each of its entries, and the server that was asked.
type Answered = Result<(Vec<Told>, Arc<str>), ClientError>;

/// What it means that a server does not answer.
#[derive(Clone, Copy, Debug)]
enum Missing {
    /// The call fails.
    FailsAll,
    /// Those entries fail that it was asked for.
    IsAlone,
}

/// Which entry's offset was found, or why it was not.
type Found = (usize, Result<Offset, ClientError>);

/// A place in a stream, as an offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) offset: Offset,
    /// What the stream holds, where the place is counted from an end of it.
    pub(super) held: Option<Positions>,
}

/// Entries of one request; more are split over several.
pub(super) const ENTRIES: usize = 1_024;
/// Streams whose records are looked at for a time at once.
const LOOKING: usize = 16;

impl Client {
    /// Where each stream begins and ends now, in one call for many streams.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; streams that do not exist are errors of their own.
    pub async fn positions(
        &self,
        streams: &[StreamId],
        timeout: Option<Duration>,
    ) -> Result<Each<Positions>, ClientError> {
        let deadline = self.deadline(timeout);
        let whole = Missing::FailsAll;
        // The server of the last range alone knows where a stream ends: others may have copies of it that are not told yet.
        let mut both = bounds(streams, Offset::EARLIEST);
        both.extend(bounds(streams, Offset::LATEST));
        let mut earliest = self.resolve(both, deadline, whole).await?;
        let latest = earliest.split_off(streams.len());
        Ok(ends_of(streams, earliest, latest))
    }

    /// As [`Client::positions`], but a server that does not answer in time is an error of those streams alone that it has.
    /// Where the streams are is asked for first.
    ///
    /// # Errors
    ///
    /// When nobody says where the streams are.
    pub async fn positions_that_are_known(
        &self,
        streams: &[StreamId],
        timeout: Option<Duration>,
    ) -> Result<Each<Positions>, ClientError> {
        let deadline = self.deadline(timeout);
        self.pool().refresh_all(streams, deadline).await?;
        let each = Missing::IsAlone;
        // At the same time: the first may wait for one that does not answer, until time is over.
        let (earliest, latest) = tokio::try_join!(
            self.resolve(bounds(streams, Offset::EARLIEST), deadline, each),
            self.resolve(bounds(streams, Offset::LATEST), deadline, each),
        )?;
        Ok(ends_of(streams, earliest, latest))
    }

    /// For each stream, the offset of its first record whose time is this one or later; the end of the stream where there
    /// is none.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; streams that do not exist are errors of their own.
    pub async fn offsets_for_times(
        &self,
        times: &[(StreamId, TimestampMs)],
        timeout: Option<Duration>,
    ) -> Result<Each<Offset>, ClientError> {
        let deadline = self.deadline(timeout);
        let mut offsets = Vec::with_capacity(times.len());
        let mut looking = JoinSet::new();
        for (place, found) in self
            .resolve(some(times), deadline, Missing::FailsAll)
            .await?
            .into_iter()
            .enumerate()
        {
            // Servers know times by batch alone: which record of the batch it is, its own times say.
            if let (Ok(found), Some(&(stream, time))) = (&found, times.get(place))
                && found.base_offset < found.high_watermark
            {
                if looking.len() >= LOOKING
                    && let Some(found) = looking.join_next().await
                {
                    note_first(found, &mut offsets);
                }
                let client = self.clone();
                let span = Span {
                    stream,
                    start: found.base_offset,
                    end: found.high_watermark,
                };
                looking.spawn(async move { (place, client.first_at(span, time, deadline).await) });
            }
            offsets.push(found.map(|found| found.base_offset));
        }
        while let Some(found) = looking.join_next().await {
            note_first(found, &mut offsets);
        }
        Ok(offsets)
    }

    /// The offset of the first record of a part of a stream whose time is this one or later; the part's end without one,
    /// for heads of foreign batches may promise more than their records keep.
    async fn first_at(&self, span: Span, time: TimestampMs, deadline: Instant) -> Result<Offset, ClientError> {
        let options = ReaderOptions {
            timeout: Some(deadline.saturating_duration_since(now())),
            batch_max_bytes: Some(1),
        };
        let mut reader = self.reader(vec![span], options);
        while let Some(fetched) = reader.next().await {
            let fetched = fetched?;
            if let Some(first) = first_reaching(&fetched, time)? {
                return Ok(first.max(fetched.from));
            }
        }
        Ok(span.end)
    }

    /// As [`Client::offsets_for_times`], by batch alone: the first offset of the batch with that record, for callers that
    /// ask often and about many streams.
    ///
    /// # Errors
    ///
    /// As for [`Client::offsets_for_times`].
    pub async fn batches_for_times(
        &self,
        times: &[(StreamId, TimestampMs)],
        timeout: Option<Duration>,
    ) -> Result<Each<Offset>, ClientError> {
        let deadline = self.deadline(timeout);
        let results = self.resolve(some(times), deadline, Missing::FailsAll).await?;
        Ok(results
            .into_iter()
            .map(|result| result.map(|found| found.base_offset))
            .collect())
    }

    /// The offsets that places mean now. Only what has to be asked for is asked for, in at most one call for the ends and
    /// one for the times.
    ///
    /// # Errors
    ///
    /// When a call as a whole failed; streams that do not exist are errors of their own.
    pub async fn settle(
        &self,
        places: &[(StreamId, Position)],
        timeout: Option<Duration>,
    ) -> Result<Each<Offset>, ClientError> {
        let settled = self.settle_places(places, timeout).await?;
        Ok(settled.into_iter().map(|place| Ok(place?.offset)).collect())
    }

    /// As [`Client::settle`], with what the streams hold where that was asked for.
    pub(super) async fn settle_places(
        &self,
        places: &[(StreamId, Position)],
        timeout: Option<Duration>,
    ) -> Result<Each<Settled>, ClientError> {
        let deadline = self.deadline(timeout);
        let left = || Some(deadline.saturating_duration_since(now()));
        let (mut ends, mut times) = (Vec::new(), Vec::new());
        for &(stream, place) in places {
            match place {
                Position::At(_) => {}
                Position::Time(time) => times.push((stream, time)),
                // The two places of a span stand next to each other.
                Position::Earliest | Position::Latest | Position::AfterEarliest(_) | Position::BeforeLatest(_) => {
                    if ends.last() != Some(&stream) {
                        ends.push(stream);
                    }
                }
            }
        }
        // A call for one stream that failed as a whole is about that stream.
        let first = places.first().map(|place| place.0);
        let only = first.filter(|first| places.iter().all(|place| place.0 == *first));
        let about = |error: ClientError| match only {
            Some(stream) => error.with_stream(stream),
            None => error,
        };
        let mut ends = self.positions(&ends, left()).await.map_err(about)?.into_iter();
        let mut at: Option<(StreamId, Result<Positions, ClientError>)> = None;
        let mut times = self.offsets_for_times(&times, left()).await.map_err(about)?.into_iter();
        let missing = || ClientError::protocol("a position is missing");
        let settled = places.iter().map(|&(stream, place)| match place {
            Position::At(offset) => Ok(Settled { offset, held: None }),
            Position::Time(_) => {
                let offset = times.next().unwrap_or_else(|| Err(missing()))?;
                Ok(Settled { offset, held: None })
            }
            _ => {
                if at.as_ref().is_none_or(|(known, _)| *known != stream) {
                    at = Some((stream, ends.next().unwrap_or_else(|| Err(missing()))));
                }
                let held = at.clone().map_or_else(|| Err(missing()), |(_, held)| held)?;
                let offset = place.within(&held).ok_or_else(missing)?;
                let held = Some(held);
                Ok(Settled { offset, held })
            }
        });
        Ok(settled.collect())
    }

    /// Asks for positions without data, from an end of the stream or from a time on: each server for the streams that
    /// it has, and the placement driver for those that it has no more. A time that a server's ranges do not reach is looked
    /// for where the next ones are.
    async fn resolve(
        &self,
        mut entries: Vec<Wanted>,
        deadline: Instant,
        missing: Missing,
    ) -> Result<Each<FetchedPlace>, ClientError> {
        let mut resolved: Vec<Option<Result<FetchedPlace, ClientError>>> = vec![None; entries.len()];
        let mut open: Vec<usize> = (0..entries.len()).collect();
        let mut trying: Option<Trying> = None;
        while !open.is_empty() {
            let mut missed: Option<(Wanted, Failure)> = None;
            let mut again = Vec::new();
            for (part, answer) in self.ask_all(&open, &entries, deadline).await? {
                let (results, server) = match (answer, missing) {
                    (Ok(answer), _) => answer,
                    (Err(error), Missing::FailsAll) => return Err(error),
                    (Err(error), Missing::IsAlone) => {
                        fail(&part, &entries, &error, &mut resolved);
                        continue;
                    }
                };
                for (place, result) in part.into_iter().zip(results) {
                    let (Some(entry), Some(slot)) = (entries.get_mut(place), resolved.get_mut(place)) else {
                        continue;
                    };
                    let stream = entry.stream;
                    match result {
                        Ok(at) => *slot = Some(Ok(at)),
                        Err(RefusedEntry { status, bounds }) if is_elsewhere(status.code) => {
                            again.push(place);
                            match bounds.filter(|&(_, searched)| entry.time.is_some() && searched > entry.from) {
                                Some((_, searched)) => entry.from = searched,
                                None => missed = Some((*entry, Cause::refused(&status, 0).into())),
                            }
                        }
                        Err(RefusedEntry { status, .. }) => {
                            let error = ClientError::entry(&status, Some(&server)).with_stream(stream);
                            self.forget(&error, stream);
                            *slot = Some(Err(error));
                        }
                    }
                }
            }
            if let Some((Wanted { stream, from, .. }, failure)) = missed {
                let to = Where::Stream(stream, from);
                let trying = trying.get_or_insert_with(|| Trying::new(Repeat::Harmless, to, deadline));
                trying.to = to;
                let others = again.iter().filter_map(|&place| entries.get(place));
                let others = others.map(|other| other.stream).filter(|&other| other != stream);
                match (self.find_again(&failure, trying, others.collect()).await, missing) {
                    (Ok(()), _) => {}
                    (Err(error), Missing::FailsAll) => return Err(error),
                    (Err(error), Missing::IsAlone) => {
                        fail(&std::mem::take(&mut again), &entries, &error, &mut resolved)
                    }
                }
            }
            open = again;
        }
        let missing = || Err(ClientError::protocol("a position is missing"));
        Ok(resolved.into_iter().map(|slot| slot.unwrap_or_else(missing)).collect())
    }

    /// Streams are not where they were asked for: waits, and asks where they are. The pause does so for the stream that the
    /// failure is about.
    async fn find_again(
        &self,
        failure: &Failure,
        trying: &mut Trying,
        others: Vec<StreamId>,
    ) -> Result<(), ClientError> {
        call::pause(self.pool(), failure, trying).await?;
        for stream in others {
            self.pool().refresh(stream, trying.deadline).await?;
        }
        Ok(())
    }

    /// Asks for entries by their places, each server for its own, and with all requests on their way at once: for each
    /// request the places and what came of it.
    async fn ask_all(
        &self,
        open: &[usize],
        entries: &[Wanted],
        deadline: Instant,
    ) -> Result<Vec<(Vec<usize>, Answered)>, ClientError> {
        let mut asking = JoinSet::new();
        let wanted = open
            .iter()
            .filter_map(|&place| Some((place, entries.get(place).copied()?)));
        for request in by_server(self.pool(), wanted, ENTRIES) {
            let places = request.places;
            let asked: Vec<_> = places.iter().filter_map(|&place| entries.get(place).copied()).collect();
            let client = self.clone();
            asking.spawn(async move {
                let answer = client.ask_positions(&asked, deadline).await;
                (places, answer)
            });
        }
        let mut answers = Vec::with_capacity(asking.len());
        while let Some(answer) = asking.join_next().await {
            let given_up = || ClientError::protocol("a call for positions was given up");
            answers.push(joined(answer).ok_or_else(given_up)?);
        }
        Ok(answers)
    }

    /// One call for streams that are all at one server.
    async fn ask_positions(&self, asked: &[Wanted], deadline: Instant) -> Answered {
        let Some(first) = asked.first() else {
            return Ok((Vec::new(), Arc::from("")));
        };
        let plan = Plan {
            opcode: FetchRequest::OPCODE,
            needs: Need::BoundedFetch,
            repeat: Repeat::Harmless,
            to: Where::Stream(first.stream, first.from),
            deadline,
        };
        let request = plan::request(asked.iter().copied(), Duration::ZERO, 0, 0);
        let header = encoded(&request);
        let read = |answer: &Answer| Ok((gather(answer, asked.len())?, Arc::clone(&answer.endpoint)));
        call::call(self.pool(), plan, |_left| header.clone(), read).await
    }
}

/// Notes an error for entries that were not answered.
fn fail(
    places: &[usize],
    entries: &[Wanted],
    error: &ClientError,
    resolved: &mut [Option<Result<FetchedPlace, ClientError>>],
) {
    for &place in places {
        if let (Some(entry), Some(slot)) = (entries.get(place), resolved.get_mut(place)) {
            *slot = Some(Err(error.clone().with_stream(entry.stream)));
        }
    }
}

/// The bounds of a stream, or where a time is in it, without data.
pub(super) fn bounds_of(stream: StreamId, time: Option<TimestampMs>) -> Wanted {
    Wanted {
        stream,
        from: Offset::EARLIEST,
        end: None,
        time,
        batch_max_bytes: FetchInfo::POSITIONS_ONLY,
    }
}

/// An end of each stream, without data.
fn bounds(streams: &[StreamId], from: Offset) -> Vec<Wanted> {
    let bound = |&stream: &StreamId| Wanted {
        from,
        ..bounds_of(stream, None)
    };
    streams.iter().map(bound).collect()
}

/// Where each stream begins and ends, of what was told when its two ends were asked for.
fn ends_of(streams: &[StreamId], earliest: Each<FetchedPlace>, latest: Each<FetchedPlace>) -> Each<Positions> {
    let ends = earliest.into_iter().zip(latest).zip(streams);
    let each = ends.map(|((first, last), &stream)| {
        let (first, last) = (first?, last?);
        Ok(Positions {
            stream,
            earliest: first.start_offset,
            latest: last.high_watermark.max(first.start_offset),
        })
    });
    each.collect()
}

fn some(times: &[(StreamId, TimestampMs)]) -> Vec<Wanted> {
    times
        .iter()
        .map(|&(stream, time)| bounds_of(stream, Some(time)))
        .collect()
}

/// Notes where the first record of a time is.
fn note_first(found: Result<Found, JoinError>, offsets: &mut Each<Offset>) {
    if let Some((place, offset)) = joined(found)
        && let Some(slot) = offsets.get_mut(place)
    {
        *slot = offset;
    }
}

/// What came of a task. It is aborted only with its set, and a panic is not ours to hide.
fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(found) => Some(found),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_aborted) => None,
    }
}

/// Whether a refusal means that the stream is with another server.
pub(super) fn is_elsewhere(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::RANGE_NOT_FOUND | ErrorCode::RANGE_ALREADY_SEALED)
}

/// One result for each entry, in their order.
fn gather(answer: &Answer, entries: usize) -> Result<Vec<Told>, Cause> {
    let mut found: Vec<Option<Told>> = vec![None; entries];
    for frame in &answer.frames {
        let (parts, throttle_ms) = parts(frame.clone(), entries)?;
        answer.throttle_ms.set(throttle_ms);
        for part in parts {
            if let Some(place) = found.get_mut(part.index) {
                *place = Some(part.outcome);
            }
        }
    }
    let all: Option<Vec<_>> = found.into_iter().collect();
    all.ok_or_else(|| Cause::Protocol {
        what: "a FETCH answer ends without a result for each entry".into(),
    })
}
