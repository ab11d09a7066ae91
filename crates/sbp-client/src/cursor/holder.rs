//! One holder of a cursor at work: commits one after the other, and what is known meanwhile.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_messages::{ErrorCode, Stream};
use sbp_types::{Offset, StreamId};
use tokio::sync::oneshot;

use super::commits::{bounds, commits, is_trimmed};
use super::ends::Ends;
use super::record::{CommitRecord, CommittedPlace, Places};
use super::standing::{AppendEnd, Found, Standing, Step, TakenOver};
use super::{beyond_the_end, stream_name};
use crate::append::AppendOptions;
use crate::client::Client;
use crate::clock::{left, now};
use crate::codes;
use crate::config::RetryPolicy;
use crate::error::{ClientError, ErrorKind};
use crate::retry::backoff;

/// One attempt of a commit takes at most this long, so that time is left to find out what became of it.
const ATTEMPT: Duration = Duration::from_secs(10);
/// With less time than this nothing more is tried.
const TOO_LITTLE: Duration = Duration::from_millis(3);
/// A commit ends by itself when its time is over; its caller only makes sure.
const LAST_RESORT: Duration = Duration::from_millis(500);
/// The longest wait between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Records before the last one after which they are trimmed.
const TRIM_AFTER: u64 = 64;

/// What all clones of a cursor share.
#[derive(Debug)]
pub(super) struct Shared {
    client: Client,
    pub(super) name: String,
    stream_name: String,
    /// The stream that commits are kept in.
    pub(super) stream: StreamId,
    /// The streams that the cursor was opened for.
    pub(super) streams: Vec<Arc<Stream>>,
    queue: Mutex<Queue>,
    pub(super) view: Mutex<View>,
    state: tokio::sync::Mutex<State>,
}

/// Commits that were asked for and not begun.
#[derive(Debug, Default)]
struct Queue {
    tickets: u64,
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Request {
    ticket: u64,
    positions: Vec<(StreamId, Offset)>,
    deadline: Instant,
    reply: oneshot::Sender<Result<(), ClientError>>,
}

/// What callers see without waiting.
#[derive(Debug)]
pub(super) struct View {
    pub(super) committed: BTreeMap<StreamId, Offset>,
    pub(super) reached: BTreeMap<StreamId, Offset>,
    /// What was handed out, committed, or told by the streams' servers.
    ends: Ends,
    /// Why every commit is refused, once another holder has taken over.
    pub(super) lost: Option<ClientError>,
}

/// What one commit after the other works on.
#[derive(Debug)]
struct State {
    standing: Standing,
    /// Commits begun.
    commits: u64,
    /// Records before the last one.
    untrimmed: u64,
}

impl Shared {
    pub(super) fn new(
        client: Client,
        name: String,
        stream: StreamId,
        streams: Vec<Arc<Stream>>,
        standing: Standing,
        untrimmed: u64,
    ) -> Result<Arc<Self>, ClientError> {
        let committed = offsets(standing.committed());
        Ok(Arc::new(Self {
            client,
            stream_name: stream_name(&name)?,
            name,
            stream,
            streams,
            queue: Mutex::default(),
            view: Mutex::new(View {
                ends: committed.iter().map(|(&stream, &next)| (stream, next)).collect(),
                reached: committed.clone(),
                committed,
                lost: None,
            }),
            state: tokio::sync::Mutex::new(State {
                standing,
                commits: 0,
                untrimmed,
            }),
        }))
    }

    pub(super) fn advance(&self, stream: StreamId, next: Offset) {
        let mut view = self.view.lock();
        if let Some(reached) = view.reached.get_mut(&stream) {
            *reached = next;
            view.ends.note(stream, next);
        }
    }

    /// Places of the streams that the cursor was opened for, in their order.
    pub(super) fn own(&self, of: impl Fn(&View) -> &BTreeMap<StreamId, Offset>) -> Vec<(StreamId, Offset)> {
        let view = self.view.lock();
        let places = of(&view);
        let own = self.streams.iter().map(|stream| stream.stream_id);
        own.filter_map(|stream| Some((stream, *places.get(&stream)?))).collect()
    }

    /// Takes a commit into the order of commits, and sees to it that it is made. The future waits until it is, or is not.
    pub(super) fn submit(
        shared: &Arc<Self>,
        positions: Vec<(StreamId, Offset)>,
        timeout: Option<Duration>,
    ) -> Result<impl Future<Output = Result<(), ClientError>> + Send + use<>, ClientError> {
        for &(stream, next) in &positions {
            if !shared.streams.iter().any(|own| own.stream_id == stream) {
                let what = format!("cursor {} was not opened for stream {stream}", shared.name);
                return Err(ClientError::invalid(what).with_stream(stream));
            }
            if next.0 < 0 {
                let what = format!("{next} is no offset that can be committed");
                return Err(ClientError::invalid(what).with_stream(stream));
            }
        }
        let deadline = shared.client.deadline(timeout);
        let (reply, answer) = oneshot::channel();
        let ticket = {
            let mut queue = shared.queue.lock();
            queue.tickets += 1;
            let ticket = queue.tickets;
            queue.requests.push(Request {
                ticket,
                positions,
                deadline,
                reply,
            });
            ticket
        };
        shared.client.runtime().spawn(Arc::clone(shared).work());
        let shared = Arc::clone(shared);
        Ok(async move {
            match tokio::time::timeout_at((deadline + LAST_RESORT).into(), answer).await {
                Ok(Ok(result)) => result,
                Ok(Err(_dropped)) => Err(ClientError::closed()),
                Err(_elapsed) => Err(shared.out_of_time(ticket)),
            }
        })
    }

    /// Nothing was heard of a commit in its time. One that still waits behind another commit is taken back, and certainly not
    /// made.
    fn out_of_time(&self, ticket: u64) -> ClientError {
        let mut queue = self.queue.lock();
        let waiting = queue.requests.len();
        queue.requests.retain(|request| request.ticket != ticket);
        if queue.requests.len() < waiting {
            return self.too_late();
        }
        let what = "the deadline passed while the positions were being committed";
        let error = ClientError::new(ErrorKind::Indeterminate, codes::DEADLINE_AFTER_SEND, what);
        self.about(error)
    }

    /// Makes one commit of everything that waits.
    async fn work(self: Arc<Self>) {
        let mut state = self.state.lock().await;
        let waiting = std::mem::take(&mut self.queue.lock().requests);
        let begun = now();
        let (requests, late): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|request| request.deadline > begun);
        for request in late {
            // Whoever asked may have given up.
            let _ = request.reply.send(Err(self.too_late()));
        }
        let Some(deadline) = requests.iter().map(|request| request.deadline).max() else {
            return;
        };
        let (requests, result) = match self.confirm(deadline).await {
            Ok(()) => {
                let requests = self.refuse_beyond(requests, deadline).await;
                if requests.is_empty() {
                    return;
                }
                let changes = requests.iter().flat_map(|request| &request.positions);
                let changes: Vec<_> = changes.copied().collect();
                state.commits += 1;
                let result = self.commit(&mut state, &changes, deadline).await;
                (requests, result)
            }
            Err(error) => (requests, Err(error)),
        };
        self.view.lock().committed = offsets(state.standing.committed());
        if result.is_ok() {
            self.trim_now_and_then(&mut state);
        }
        drop(state);
        for request in requests {
            let _ = request.reply.send(result.clone());
        }
    }

    /// Makes sure, as far as that can be asked, that the streams are those that the cursor was opened for.
    async fn confirm(&self, deadline: Instant) -> Result<(), ClientError> {
        for stream in &self.streams {
            let confirmed = self.client.confirm(stream, left(deadline)).await;
            // What is known for sure not to be so is not committed.
            confirmed.map_err(|error| self.about(error))?;
        }
        Ok(())
    }

    /// Refuses commits of places that are beyond the ends of their streams; returns the others. Only for places further
    /// than what was handed out the streams are asked, and one that cannot be asked, or is gone, stops no commit: that
    /// would make the cursor depend on servers that it does not need.
    async fn refuse_beyond(&self, requests: Vec<Request>, deadline: Instant) -> Vec<Request> {
        let in_question = {
            let view = self.view.lock();
            if view.lost.is_some() {
                // All commits are refused for that.
                return requests;
            }
            let places = requests.iter().flat_map(|request| &request.positions);
            view.ends.in_question(places)
        };
        if in_question.is_empty() {
            return requests;
        }
        let ends: Ends = match self.client.positions(&in_question, Some(attempt(deadline))).await {
            Ok(held) => {
                let held = held.into_iter().flatten();
                held.map(|held| (held.stream, held.latest)).collect()
            }
            Err(error) => {
                tracing::debug!(%error, cursor = self.name, "where a cursor's streams end could not be asked");
                return requests;
            }
        };
        let (mut within, mut beyond) = (Vec::new(), Vec::new());
        for request in requests {
            match self.beyond(&ends, &request.positions) {
                None => within.push(request),
                Some(error) => beyond.push((request, error)),
            }
        }
        // An end that is nearer than it was may be another stream's: a connection may have been lost in between.
        let confirmed = if beyond.is_empty() {
            Ok(())
        } else {
            self.confirm(deadline).await
        };
        for (request, error) in beyond {
            // Whoever asked may have given up.
            let _ = request.reply.send(confirmed.clone().and(Err(error)));
        }
        self.view.lock().ends.extend(ends);
        within
    }

    /// Why these places cannot be committed, if one is beyond the end of its stream.
    fn beyond(&self, ends: &Ends, positions: &[(StreamId, Offset)]) -> Option<ClientError> {
        let (stream, next, end) = ends.first_beyond(positions)?;
        let stream = self.streams.iter().find(|own| own.stream_id == stream)?;
        Some(beyond_the_end(&self.name, stream, next, end))
    }

    /// Takes the steps of one commit until it is stored, refused, or its time is over.
    async fn commit(
        &self,
        state: &mut State,
        changes: &[(StreamId, Offset)],
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let State { standing, commits, .. } = state;
        let commit = *commits;
        let mut trouble = None;
        let mut rounds = 0;
        let mut step = standing.begin();
        loop {
            if deadline.saturating_duration_since(now()) < TOO_LITTLE {
                return Err(self.given_up(standing, commit, trouble));
            }
            let ended = match &step {
                Step::Done => return Ok(()),
                Step::TakenOver(taken) => return Err(self.taken(taken)),
                Step::Untold(taken) => return Err(self.untold(taken)),
                Step::Append { at } => {
                    let record = self.record(standing, commit, changes);
                    let ended = self.append(&record, *at, deadline, &mut trouble).await;
                    ended.map(|end| (standing.handle_append(&record, end), end == AppendEnd::Unknown))
                }
                Step::Look { from, expected } => {
                    let found = self.look(*from, deadline).await;
                    found.map(|found| {
                        let early = *expected && found == Found::Nothing;
                        (standing.handle_look(commit, found), early)
                    })
                }
            };
            let pause = match ended {
                Ok((next, pause)) => {
                    step = next;
                    pause
                }
                Err(error) if error.is_retriable() || error.is_timeout() => {
                    trouble = Some(error);
                    true
                }
                Err(error) => return Err(self.given_up(standing, commit, Some(error))),
            };
            if pause {
                rounds += 1;
                self.pause(rounds, deadline).await;
            }
        }
    }

    /// The record of a commit: what is committed already, and the changes.
    fn record(&self, standing: &Standing, commit: u64, changes: &[(StreamId, Offset)]) -> CommitRecord {
        let mut places = standing.committed().clone();
        for &(stream, next) in changes {
            let own = self.streams.iter().find(|own| own.stream_id == stream);
            let name = own.map(|own| own.name.clone()).unwrap_or_default();
            let identity = own.and_then(|own| own.identity);
            let place = CommittedPlace {
                stream,
                name,
                identity,
                next,
            };
            places.insert(stream, place);
        }
        CommitRecord {
            holder: standing.holder().clone(),
            commit,
            places,
        }
    }

    /// Appends a record on condition that it gets this offset. An error: nothing was appended.
    async fn append(
        &self,
        record: &CommitRecord,
        at: Offset,
        deadline: Instant,
        trouble: &mut Option<ClientError>,
    ) -> Result<AppendEnd, ClientError> {
        let options = AppendOptions {
            expected_offset: Some(at),
            // Where others hold the stream too, one of them may take its appends by now.
            timeout: Some(self.client.pool().patience(Some((self.stream, at)), attempt(deadline))),
            ..AppendOptions::default()
        };
        match self.client.append(self.stream, record.encode(), &options).await {
            Ok(ack) if ack.base_offset == Some(at) => Ok(AppendEnd::Stored),
            Ok(ack) => {
                let got = ack
                    .base_offset
                    .map_or_else(|| "none".to_owned(), |offset| offset.to_string());
                let what = format!("a record that was to get offset {at} got {got}");
                Err(ClientError::protocol(what))
            }
            Err(error) if error.code() == ErrorCode::PRECONDITION_FAILED => Ok(AppendEnd::Refused),
            Err(error) if error.is_indeterminate() => {
                *trouble = Some(error);
                Ok(AppendEnd::Unknown)
            }
            Err(error) => Err(error),
        }
    }

    /// What is stored from an offset on.
    async fn look(&self, from: Offset, deadline: Instant) -> Result<Found, ClientError> {
        let deadline = now() + attempt(deadline);
        let held = bounds(&self.client, self.stream, deadline).await?;
        if held.latest < from {
            return Ok(Found::Short { end: held.latest });
        }
        if held.earliest > from {
            return Ok(Found::Trimmed { start: held.earliest });
        }
        if held.latest == from {
            return Ok(Found::Nothing);
        }
        match commits(&self.client, self.stream, from, held.latest, deadline).await {
            Ok(records) => Ok(Found::Records(records)),
            Err(error) if is_trimmed(&error) => Ok(Found::Trimmed { start: held.latest }),
            Err(error) => Err(error),
        }
    }

    async fn pause(&self, rounds: u32, deadline: Instant) {
        let policy = RetryPolicy {
            backoff_max: PAUSE_MAX,
            ..self.client.config().retry
        };
        let left = deadline.saturating_duration_since(now());
        tokio::time::sleep(backoff(rounds, &policy).min(left)).await;
    }

    /// Lets go of the records before the last one, now and then, and beside the commits: it is no harm if it fails, or
    /// if the process ends before.
    fn trim_now_and_then(&self, state: &mut State) {
        state.untrimmed += 1;
        let Ok(next) = state.standing.next() else { return };
        if state.untrimmed <= TRIM_AFTER {
            return;
        }
        let last = Offset(next.0 - 1);
        state.untrimmed = 0;
        let (client, stream) = (self.client.clone(), self.stream);
        self.client.runtime().spawn(async move {
            let trimmed = client.trim_streams(&[(stream, last)], None).await;
            if let Err(error) = trimmed.and_then(|each| each.into_iter().collect::<Result<Vec<_>, _>>()) {
                tracing::debug!(%error, "a cursor's stream could not be trimmed; a later commit will");
            }
        });
    }

    /// Why a commit is not made, or perhaps not.
    fn given_up(&self, standing: &Standing, commit: u64, trouble: Option<ClientError>) -> ClientError {
        let error = match trouble {
            Some(trouble) if standing.doubts(commit) && !trouble.is_indeterminate() => {
                let what = format!(
                    "it is not known whether the positions were committed: {}",
                    trouble.what()
                );
                ClientError::new(ErrorKind::Indeterminate, codes::DEADLINE_AFTER_SEND, what)
            }
            Some(trouble) => trouble,
            None => self.too_late(),
        };
        self.about(error)
    }

    fn too_late(&self) -> ClientError {
        let what = "the deadline passed before the positions were committed";
        let error = ClientError::new(ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND, what);
        self.about(error)
    }

    fn taken(&self, taken: &TakenOver) -> ClientError {
        let (what, at) = match taken {
            TakenOver::By { holder, at } => (format!("holder {holder} has committed"), *at),
            TakenOver::LongAgo { next, start } => (
                format!("others have committed, and trimmed everything before {start}"),
                *next,
            ),
            TakenOver::Undone { next, end } => (format!("the server has lost the commits from {end} on"), *next),
        };
        let what = format!("cursor {} is not this holder's any more: {what}", self.name);
        let error = ClientError::new(ErrorKind::Rejected, codes::CURSOR_TAKEN, what);
        let error = self.about(error).with_offset(at);
        self.view.lock().lost.get_or_insert(error).clone()
    }

    /// Another holder has gone on so far that the trace of a commit is gone.
    fn untold(&self, taken: &TakenOver) -> ClientError {
        let lost = self.taken(taken);
        let what = format!(
            "it is not known whether the positions were committed before: {}",
            lost.what()
        );
        let error = ClientError::new(ErrorKind::Indeterminate, codes::CONNECTION_LOST, what);
        self.about(error)
    }

    fn about(&self, error: ClientError) -> ClientError {
        error.with_stream(self.stream).with_stream_name(&self.stream_name)
    }
}

/// How long the next attempt may take: half of what is left, so that there is time for another.
fn attempt(deadline: Instant) -> Duration {
    let left = left(deadline).unwrap_or_default();
    (left / 2).clamp(Duration::from_millis(1), ATTEMPT)
}

fn offsets(places: &Places) -> BTreeMap<StreamId, Offset> {
    places.iter().map(|(&stream, place)| (stream, place.next)).collect()
}
