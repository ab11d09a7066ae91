//! A range server in a process of its own: what it asks its placement driver, and how it uses the answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use sbp_messages::{
    DescribeStreamsRequest, DescribeStreamsResponse, ErrorCode, ListRangesRequest, ListRangesResponse, MAX_ENTRIES,
    Range, RangeCriteria, RangeId, SealKind, SealRangesRequest, SealRangesResponse, Status, TrimStreamsRequest,
    TrimStreamsResponse, TrimmedStream,
};
use sbp_replication::Term;
use sbp_types::{Offset, Position, RangeIndex, RangeKey, ServerId, StreamId};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::drivers::Drivers;
use super::greeting::allocate_id;
use super::hosted_ranges::Update;
use super::range_store::{Job, RangeStore};
use super::wire::{held_range, is_on, located, stream_record};
use crate::followers::FollowerLinks;
use crate::peer::PeerError;
use crate::placement::ServerRecord;
use crate::range::{HeldRange, RangeServer, Upstream, WantedSeal};
use crate::refusal::{Done, Refusal};

/// How long the placement driver may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long appends and fetches of an unknown stream wait for the placement driver's answer about it.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);

/// The link of a range server in a process of its own to its placement driver.
#[derive(Debug)]
pub(crate) struct RangeRole {
    pub(crate) server_id: ServerId,
    pub(crate) drivers: Drivers,
    /// What sends to the servers that hold ranges of this one too, for as long as this exists.
    pub(crate) _followers: Arc<FollowerLinks>,
    pub(crate) range_store: RangeStore,
    pub(crate) ranges: Weak<RangeServer>,
    pub(crate) runtime: Handle,
    /// The connection to the placement driver on which everything that belongs here was last learned; 0: none.
    pub(crate) learned_on: AtomicU64,
    /// How often the placement driver was asked to describe streams.
    pub(crate) questions: AtomicU64,
}

impl RangeRole {
    /// Whether the names of streams are those that the placement driver knows, so far as it can tell this server.
    pub(crate) fn knows_names(&self) -> bool {
        let learned_on = self.learned_on.load(Ordering::Acquire);
        learned_on != 0 && learned_on == self.drivers.standing()
    }

    /// Submits a job to the range store and waits for its result.
    pub(crate) async fn keep<T: Send + 'static>(&self, job: impl FnOnce(Done<T>) -> Job) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.range_store.submit(job(Box::new(move |result| {
            // The caller has stopped waiting for the answer.
            drop(reply.send(result));
        })));
        answer.await.unwrap_or_else(|_| Err(Refusal::shutting_down()))
    }

    /// As [`keep`](Self::keep), for what a placement driver of this term has said.
    pub(crate) async fn keep_ordered<T: Send + 'static>(
        &self,
        term: Term,
        job: impl FnOnce(Done<T>) -> Job,
    ) -> Result<T, Refusal> {
        self.keep(|done| Job::Ordered {
            term,
            job: Box::new(job(done)),
        })
        .await
    }

    /// Follows the placement driver of this term, or refuses to.
    pub(crate) async fn follow(&self, term: Term) -> Result<(), Refusal> {
        if self.range_store.follows(term) {
            return Ok(());
        }
        self.keep_ordered(term, |done| Job::Follow { done }).await
    }

    /// The ranges of a stream that are held here.
    pub(crate) fn held_of(&self, stream: StreamId) -> Result<Vec<HeldRange>, Refusal> {
        let server = self.ranges()?;
        let ranges = server.hub.ranges.lock();
        match ranges.table.stream(stream) {
            Some(hosted) => {
                let held = hosted.ranges.iter();
                Ok(held.map(|range| hosted.held(range.key(stream), range)).collect())
            }
            None => Err(ranges.table.missing(stream)),
        }
    }

    /// The confirmed end of a range held here.
    pub(crate) fn next_offset(&self, key: RangeKey) -> Option<Offset> {
        self.ranges().ok()?.hub.ranges.lock().table.next_offset(key)
    }

    fn ranges(&self) -> Result<Arc<RangeServer>, Refusal> {
        self.ranges.upgrade().ok_or_else(Refusal::shutting_down)
    }

    /// Takes over what the placement driver has said about ranges of a stream, together with its present answer about
    /// the stream. Returns the stream's ranges held here.
    pub(crate) async fn sync(
        &self,
        stream: StreamId,
        told: Vec<HeldRange>,
        term: Term,
    ) -> Result<Vec<HeldRange>, Refusal> {
        self.follow(term).await?;
        let mut update = self
            .look_up(stream, CALL_TIMEOUT)
            .await
            .map_err(|error| error.to_refusal())?;
        let Some(update) = &mut update else {
            return Err(Refusal::no_stream(stream));
        };
        for range in &told {
            self.check_start(range)?;
            update.tell(range.clone())?;
        }
        let update = std::mem::take(update);
        let term = lowest(update.term, term);
        self.keep_ordered(term, |done| Job::Learn { stream, update, done })
            .await
    }

    /// The placement driver has said that these ranges of a stream, which are sealed, are on other servers, and that this one is to
    /// have nothing of them. Returns those of which something is here.
    ///
    /// The order may have been under way for long, and the server may have been given a range again meanwhile. So the placement
    /// driver is asked now what is here. A range that was held when it was asked, and that it does not list, was taken from this
    /// server since: it is not given to it again before this has said that it has nothing of it. Only that very copy is removed.
    pub(crate) async fn let_go(
        &self,
        stream: StreamId,
        told: &[HeldRange],
        term: Term,
    ) -> Result<Vec<RangeKey>, Refusal> {
        self.follow(term).await?;
        let keys = told.iter().map(|range| range.key).collect();
        let mut held = self.keep(|done| Job::Times { keys, done }).await?;
        if !held.is_empty() {
            let criterion = RangeCriteria {
                range_server: None,
                stream_id: Some(stream),
            };
            let listed = self.ranges_by(vec![criterion], CALL_TIMEOUT).await;
            let (listed_in, listed) = listed.map_err(|error| error.to_refusal())?;
            // Whoever gave the order knows the range, and has it on others alone.
            let is_elsewhere = |key: RangeKey| {
                let mut ranges = listed.iter().filter(|range| held_range(range).key == key);
                let range = ranges.next().filter(|range| range.end().is_some());
                range.is_some_and(|range| !is_on(range, self.server_id))
            };
            held.retain(|(key, _)| listed_in == term && is_elsewhere(*key));
        }
        let told = told.to_vec();
        self.keep_ordered(term, |done| Job::LetGo { told, held, done }).await
    }

    /// Refuses a start behind the range's end, or behind what is confirmed of it while it has none: there are no records.
    fn check_start(&self, told: &HeldRange) -> Result<(), Refusal> {
        match told.end.or_else(|| self.next_offset(told.key)) {
            Some(next) if told.start > next => Err(Refusal::new(
                ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
                format!(
                    "range {} ends at offset {next}; it cannot begin at {}",
                    told.key, told.start
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Notes where other range servers are.
    pub(crate) fn locate(&self, servers: impl Iterator<Item = ServerRecord>) {
        let Ok(ranges) = self.ranges() else { return };
        let is_new = |record: &ServerRecord| !ranges.addresses.has(record.id, &record.address);
        let servers: Vec<_> = servers
            .filter(|record| record.id != self.server_id && is_new(record))
            .collect();
        if !servers.is_empty() {
            self.range_store.submit(Job::Locate { servers });
        }
    }

    /// Sends a range that is being sealed, up to `end`, to servers that lack some of it.
    pub(crate) async fn write_back(&self, key: RangeKey, to: &[ServerId], end: Position) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let done: Done<()> = Box::new(move |result| {
            // The caller has stopped waiting for the answer.
            drop(reply.send(result));
        });
        self.ranges()?.write_back(key, to, end, done);
        answer.await.unwrap_or_else(|_| Err(Refusal::shutting_down()))
    }

    /// Deletes a stream.
    pub(crate) async fn delete(&self, stream: StreamId, term: Term) -> Result<(), Refusal> {
        self.keep_ordered(term, |done| Job::Delete { stream, done }).await
    }

    /// The placement driver knows nothing of a stream that is held here, and has not said that it is deleted: that is said by an
    /// order. What is here of it is kept, and not served. Where every record was trimmed nothing is lost, and it is deleted.
    async fn keep_what_is_unknown(&self, stream: StreamId, term: Term) -> Result<(), Refusal> {
        self.follow(term).await?;
        let held = match self.held_of(stream) {
            Ok(held) => held,
            // It was deleted meanwhile.
            Err(_) => return Ok(()),
        };
        if held.iter().all(|range| range.end == Some(range.start)) {
            return self.delete(stream, term).await;
        }
        if self.ranges()?.withhold(stream) {
            tracing::warn!(
                %stream,
                ranges = held.len(),
                "the placement driver knows nothing of a stream that is held here, and has not ordered to delete it: it is kept, \
                 and not served"
            );
        }
        Ok(())
    }

    /// Asks the placement driver about a stream; `None` if there is no such stream.
    async fn look_up(&self, stream: StreamId, timeout: Duration) -> Result<Option<Update>, PeerError> {
        let asked = [stream];
        let streams = self.describe(&asked, timeout);
        let ranges = self.list(stream, timeout);
        let ((described_in, streams), (listed_in, ranges)) = tokio::try_join!(streams, ranges)?;
        Ok(match streams.into_iter().next() {
            Some((_, Some(mut update))) => {
                let listed = BTreeMap::from([(stream, ranges)]);
                update.first = self.first_ranges(&listed, timeout).await?.remove(&stream);
                update.ranges = listed.into_values().flatten().collect();
                update.term = lowest(described_in, listed_in);
                Some(update)
            }
            _ => None,
        })
    }

    /// Where streams begin, given those of their ranges that belong on this server: at the first of these, if the placement
    /// driver has said that none before it is left on any server; else where it says now, also of streams of which something is
    /// here that does not belong here any more.
    async fn first_ranges(
        &self,
        listed: &BTreeMap<StreamId, Vec<HeldRange>>,
        timeout: Duration,
    ) -> Result<BTreeMap<StreamId, (RangeIndex, Offset)>, PeerError> {
        let mut first = BTreeMap::new();
        for (stream, ranges) in listed {
            if let Some(range) = ranges.first() {
                first.insert(*stream, (range.key.range, range.start));
            }
        }
        let later = first.iter().filter(|(_, (range, _))| *range != RangeIndex(0));
        let later = later.map(|(stream, (range, _))| RangeKey {
            stream: *stream,
            range: *range,
        });
        let unknown = match self.ranges.upgrade() {
            Some(ranges) => ranges.behind_others(later.collect()),
            None => Vec::new(),
        };
        let is_left = |stream: &StreamId| self.held_of(*stream).is_ok_and(|held| !held.is_empty());
        let unlisted = listed.iter().filter(|(_, ranges)| ranges.is_empty());
        let unlisted = unlisted.map(|(stream, _)| *stream).filter(is_left);
        let unknown: Vec<_> = unknown.iter().map(|key| key.stream).chain(unlisted).collect();
        for chunk in unknown.chunks(MAX_ENTRIES) {
            let criteria = chunk.iter().map(|stream| RangeCriteria {
                stream_id: Some(*stream),
                range_server: None,
            });
            for range in self.list_by(criteria.collect(), timeout).await?.1 {
                let begins = first.entry(range.key.stream).or_insert((range.key.range, range.start));
                *begins = (*begins).min((range.key.range, range.start));
            }
        }
        Ok(first)
    }

    /// Describes streams; `None` for those that do not exist any more.
    async fn describe(
        &self,
        streams: &[StreamId],
        timeout: Duration,
    ) -> Result<(Term, Vec<(StreamId, Option<Update>)>), PeerError> {
        let request = DescribeStreamsRequest {
            stream_ids: streams.to_vec(),
            ..Default::default()
        };
        let question = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
        let answers: Vec<DescribeStreamsResponse> = self.drivers.call(&request, timeout).await?;
        check(answers.last().map(|answer| &answer.status))?;
        let term = answers.last().map_or(0, |answer| answer.term);
        let results = answers.into_iter().flat_map(|answer| answer.describe_responses);
        let mut described = Vec::with_capacity(streams.len());
        for (id, result) in streams.iter().zip(results) {
            match result.stream {
                _ if result.status.code == ErrorCode::NOT_FOUND => described.push((*id, None)),
                Some(stream) if result.status.is_success() && stream.stream_id == *id => {
                    let record = stream_record(&stream).map_err(unusable)?;
                    let update = Update {
                        stream: Some(Arc::new(record)),
                        question,
                        ..Update::default()
                    };
                    described.push((*id, Some(update)));
                }
                _ => return Err(unusable(format!("stream {id} is not described: {}", result.status))),
            }
        }
        Ok((term_of(term), described))
    }

    /// The ranges that belong on this server: all of them, or those of one stream.
    async fn list(
        &self,
        stream: impl Into<Option<StreamId>>,
        timeout: Duration,
    ) -> Result<(Term, Vec<HeldRange>), PeerError> {
        let me = sbp_messages::RangeServer {
            server_id: self.server_id,
            ..Default::default()
        };
        let criterion = RangeCriteria {
            range_server: Some(me),
            stream_id: stream.into(),
        };
        self.list_by(vec![criterion], timeout).await
    }

    /// The ranges that match the criteria, as a server holds them, and the lowest term of whoever told them.
    async fn list_by(
        &self,
        criteria: Vec<RangeCriteria>,
        timeout: Duration,
    ) -> Result<(Term, Vec<HeldRange>), PeerError> {
        let (term, ranges) = self.ranges_by(criteria, timeout).await?;
        self.locate(ranges.iter().flat_map(located));
        Ok((term, ranges.iter().map(held_range).collect()))
    }

    /// The ranges that match the criteria, and the lowest term of whoever told them. A deleted stream has none.
    async fn ranges_by(
        &self,
        criteria: Vec<RangeCriteria>,
        timeout: Duration,
    ) -> Result<(Term, Vec<Range>), PeerError> {
        let mut request = ListRangesRequest {
            range_criteria: criteria,
            ..Default::default()
        };
        let mut ranges = Vec::new();
        let mut term = Term::default();
        loop {
            let answers: Vec<ListRangesResponse> = self.drivers.call(&request, timeout).await?;
            check(answers.last().map(|answer| &answer.status))?;
            for answer in answers {
                request.continuation = answer.continuation;
                term = lowest(term, term_of(answer.term));
                for result in answer.list_responses {
                    if result.status.code == ErrorCode::NOT_FOUND {
                        continue;
                    }
                    check(Some(&result.status))?;
                    ranges.extend(result.ranges);
                }
            }
            if request.continuation.is_empty() {
                return Ok((term, ranges));
            }
        }
    }

    /// Asks for everything that belongs here: new ranges, raised starts, deleted streams. Returns whether all of it was
    /// taken over: what is said of a single stream may not be, as when the disk is full. Their names count all the same.
    pub(crate) async fn learn_everything(&self) -> Result<bool, Refusal> {
        let Some(ranges) = self.ranges.upgrade() else {
            return Ok(true);
        };
        let failed = |error: PeerError| error.to_refusal();
        let mut listed: BTreeMap<StreamId, Vec<HeldRange>> = BTreeMap::new();
        // Taken before the list: a range that is placed here meanwhile is then in neither, and is not mistaken for a
        // deleted one.
        for held in ranges.all_held() {
            listed.entry(held.key.stream).or_default();
        }
        drop(ranges);
        let (mut term, all) = self.list(None, CALL_TIMEOUT).await.map_err(failed)?;
        for range in all {
            listed.entry(range.key.stream).or_default().push(range);
        }
        let streams: Vec<_> = listed.keys().copied().collect();
        let mut described = Vec::with_capacity(streams.len());
        for chunk in streams.chunks(MAX_ENTRIES) {
            let (described_in, chunk) = self.describe(chunk, CALL_TIMEOUT).await.map_err(failed)?;
            term = lowest(term, described_in);
            described.extend(chunk);
        }
        if !described.is_empty() && described.iter().all(|(_, update)| update.is_none()) {
            self.check_placement_driver().await?;
        }
        let first = self.first_ranges(&listed, CALL_TIMEOUT).await.map_err(failed)?;
        let mut all_taken = true;
        for (stream, update) in described {
            let ranges = listed.remove(&stream).unwrap_or_default();
            let result = match update {
                None => self.keep_what_is_unknown(stream, term).await,
                Some(mut update) => {
                    if ranges.is_empty() {
                        tracing::warn!(
                            %stream,
                            "the placement driver does not list this server's ranges of the stream: those that were not trimmed are kept"
                        );
                    }
                    update.first = first.get(&stream).copied();
                    update.ranges = ranges;
                    let learned = self.keep_ordered(term, |done| Job::Learn { stream, update, done });
                    learned.await.map(drop)
                }
            };
            if let Err(refusal) = result {
                all_taken = false;
                tracing::warn!(%stream, refusal = refusal.message, "the stream's ranges on this server cannot be updated");
            }
        }
        Ok(all_taken)
    }

    /// Checks that the placement driver is the one that allocated this server's id. Called when it knows none of the
    /// streams held here: either all were deleted, or it runs on another directory and nothing may be deleted on its
    /// word. Ids only grow, so the right placement driver cannot allocate this id or a lower one again.
    async fn check_placement_driver(&self) -> Result<(), Refusal> {
        let next = allocate_id(&self.drivers, "range-server", CALL_TIMEOUT).await;
        let next = next.map_err(|error| error.to_refusal())?;
        if next > self.server_id {
            return Ok(());
        }
        let message = format!(
            "the placement driver gives out id {next}, and this is range server {}: it has another directory than the \
             one this server belongs to; nothing was deleted",
            self.server_id
        );
        tracing::error!("{message}");
        Err(Refusal::new(ErrorCode::RS_INTERNAL_SERVER_ERROR, message))
    }

    /// Asks the placement driver to seal the ranges that this server does not go on with, and to open the next ones.
    pub(crate) async fn ask_to_seal(&self) {
        let Ok(ranges) = self.ranges() else { return };
        let wanted = ranges.want_seals();
        drop(ranges);
        let requests: Vec<_> = wanted
            .into_iter()
            .flat_map(|(avoid, seals)| seal_requests(&avoid, &seals))
            .collect();
        for request in requests {
            let answers: Result<Vec<SealRangesResponse>, PeerError> = self.drivers.call(&request, CALL_TIMEOUT).await;
            match answers {
                Ok(answers) => {
                    let results = answers.iter().flat_map(|answer| &answer.seal_responses);
                    for result in results.filter(|result| !result.status.is_success()) {
                        tracing::warn!(stream = %result.stream_id, status = %result.status, "a range that this server does not go on with is not sealed yet");
                    }
                }
                Err(error) => tracing::warn!(%error, "ranges that this server does not go on with are not sealed yet"),
            }
        }
    }

    /// Before this server stops: has the ranges go on elsewhere whose appends it takes, so that nobody has to miss it first.
    pub(crate) async fn hand_over(&self) {
        let Ok(ranges) = self.ranges() else { return };
        let leads = ranges.stop_leading();
        drop(ranges);
        if leads && self.drivers.standing() != 0 {
            self.ask_to_seal().await;
        }
    }

    /// Asks the placement driver to trim streams. It sends the trim to this server once it is durable.
    pub(crate) async fn ask_to_trim(&self, streams: &[(StreamId, Offset)]) -> Result<(), PeerError> {
        for chunk in streams.chunks(MAX_ENTRIES) {
            let request = TrimStreamsRequest {
                trimmed_streams: chunk
                    .iter()
                    .map(|(stream_id, trim_offset)| TrimmedStream {
                        stream_id: *stream_id,
                        trim_offset: *trim_offset,
                    })
                    .collect(),
                ..Default::default()
            };
            let answers: Vec<TrimStreamsResponse> = self.drivers.call(&request, CALL_TIMEOUT).await?;
            check(answers.last().map(|answer| &answer.status))?;
            for result in answers.iter().flat_map(|answer| &answer.trim_responses) {
                if !result.status.is_success() {
                    tracing::debug!(status = %result.status, "a stream is not trimmed");
                }
            }
        }
        Ok(())
    }
}

/// The requests to seal these ranges, and to open the next ones rather without the servers to `avoid`.
fn seal_requests(avoid: &[ServerId], seals: &[WantedSeal]) -> Vec<SealRangesRequest> {
    let range = |seal: &WantedSeal| RangeId {
        stream_id: seal.key.stream,
        range_index: Some(seal.key.range),
        epoch: Some(seal.epoch),
        end_offset: None,
    };
    let request = |chunk: &[WantedSeal]| SealRangesRequest {
        ranges: chunk.iter().map(range).collect(),
        kind: SealKind::PLACEMENT_DRIVER,
        avoid: avoid.to_vec(),
        ..Default::default()
    };
    seals.chunks(MAX_ENTRIES).map(request).collect()
}

/// The lower one of two terms that were told.
fn lowest(one: Term, other: Term) -> Term {
    match Term::default() {
        none if one == none => other,
        none if other == none => one,
        _ => one.min(other),
    }
}

fn term_of(told: i64) -> Term {
    Term(u64::try_from(told).unwrap_or(0))
}

fn unusable(what: impl ToString) -> PeerError {
    PeerError::Unusable {
        peer: "the placement driver".to_owned(),
        what: what.to_string(),
    }
}

/// Refuses a failed status. A missing status would be that of an answer without frames, which the session does not let
/// through.
fn check(status: Option<&Status>) -> Result<(), PeerError> {
    match status {
        Some(status) if !status.is_success() => Err(PeerError::Refused {
            peer: "the placement driver".to_owned(),
            status: status.clone(),
        }),
        _ => Ok(()),
    }
}

/// Asks the placement driver about streams that the range server does not know.
#[derive(Debug)]
pub(crate) struct AskPlacementDriver(pub(crate) Weak<RangeRole>);

impl Upstream for AskPlacementDriver {
    fn keep_dispute(&self, key: RangeKey, at: Position) {
        let Some(role) = self.0.upgrade() else { return };
        let (done, is_kept) = mpsc::channel();
        let done = Box::new(move |kept| {
            let _asker_is_gone = done.send(kept);
        });
        role.range_store.submit(Job::Dispute { key, at, done });
        // Without an answer the server is shutting down.
        if let Ok(Err(refusal)) = is_kept.recv() {
            tracing::error!(range = %key, position = %at, refusal = refusal.message, "it is not kept that another server has something else: a restart forgets it");
        }
    }

    fn ask(&self, stream: StreamId) {
        // The server is shutting down.
        let Some(role) = self.0.upgrade() else { return };
        role.runtime.clone().spawn(async move {
            let found = role.look_up(stream, QUESTION_TIMEOUT).await;
            if let (Ok(found), Some(ranges)) = (&found, role.ranges.upgrade()) {
                let record = found.as_ref().and_then(|update| update.stream.as_ref());
                ranges.note_name(stream, record.and_then(|record| record.name.clone()));
            }
            match found {
                Ok(Some(update)) if !update.ranges.is_empty() => {
                    let term = update.term;
                    let learned = role.keep_ordered(term, |done| Job::Learn { stream, update, done });
                    if let Err(refusal) = learned.await {
                        tracing::warn!(%stream, refusal = refusal.message, "the stream's ranges on this server cannot be updated");
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%stream, %error, "cannot ask the placement driver about a stream"),
            }
            if let Some(ranges) = role.ranges.upgrade() {
                ranges.answered(stream);
            }
        });
    }
}
