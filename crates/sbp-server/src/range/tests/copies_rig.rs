//! The servers of a range with several copies, whose entries and answers a test carries.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::CallId;
use sbp_log::LogConfig;
use sbp_messages::ErrorCode;
use sbp_record::inspect;
use sbp_replication::{Answer, Entry, Offered, Quorum, Replica, ReplicatedRange, Rules};
use sbp_types::{Epoch, Offset, Position, ServerId, TimestampMs};

use super::rig::{FIRST, PATIENCE, Rig, STREAM, held};
use crate::range::{AppendDone, FeedEntry, FeedKind, FollowJob, Heard, StreamFacts, WriterSequence};

pub(super) const PRIMARY: ServerId = ServerId(1);

/// The servers of a range, the primary first, and what is on its way between them.
pub(super) struct Copies {
    pub(super) rigs: Vec<Rig>,
    /// By follower: what was sent and is not answered.
    pub(super) sent: Vec<VecDeque<FeedEntry>>,
    sequence: i32,
}

impl Copies {
    pub(super) fn new(servers: i32, acks: usize) -> Self {
        Self::with(servers, acks, |config| config)
    }

    /// With other settings of the servers' logs.
    pub(super) fn with(servers: i32, acks: usize, change: impl Fn(LogConfig) -> LogConfig) -> Self {
        let ids: Vec<_> = (1..=servers).map(ServerId).collect();
        let range = Arc::new(ReplicatedRange {
            key: FIRST,
            epoch: Epoch(0),
            start: Offset(0),
            servers: ids.iter().copied().collect(),
            quorum: Quorum::new(ids.len(), acks).unwrap(),
        });
        let rig = |id: &ServerId| Rig::of_several(Replica::open(*id, Arc::clone(&range), Rules::default()), &change);
        Self {
            rigs: ids.iter().map(rig).collect(),
            sent: ids.iter().map(|_| VecDeque::new()).collect(),
            sequence: 0,
        }
    }

    pub(super) fn primary(&self) -> &Rig {
        &self.rigs[0]
    }

    /// Takes from the primary what it has for a follower.
    pub(super) fn send(&mut self, follower: usize) -> usize {
        self.send_with(follower, true)
    }

    /// The same, and what is confirmed only if it is to be told.
    pub(super) fn send_with(&mut self, follower: usize, tells_confirmed: bool) -> usize {
        let primary = Arc::clone(&self.primary().server);
        let feed = primary.feed(id(follower), 1 << 20, tells_confirmed);
        let mut count = feed.entries.len();
        self.sent[follower].extend(feed.entries);
        if let Some(key) = feed.from_log {
            let feed = primary.feed_from_log(id(follower), key, 1 << 20).unwrap();
            count += feed.entries.len();
            self.sent[follower].extend(feed.entries);
        }
        count
    }

    /// Gives a follower what was sent to it; the answers that are known at once.
    pub(super) fn deliver(&mut self, follower: usize) -> Vec<AppendDone> {
        let entries = std::mem::take(&mut self.sent[follower]);
        let jobs = entries.into_iter().map(|entry| {
            self.sequence += 1;
            follow_job(self.sequence, entry)
        });
        let jobs = jobs.collect();
        self.rigs[follower].follow(jobs)
    }

    /// Gives the primary a follower's answers.
    pub(super) fn answer(&self, follower: usize, answers: &[AppendDone]) {
        let heard: Vec<_> = answers.iter().map(heard).collect();
        self.primary().server.heard(id(follower), &heard);
    }

    /// Gives a server what was sent to it of a range up to its end, and the primary the answers.
    pub(super) fn deliver_copied(&mut self, member: usize, end: Position) {
        let expected = self.sent[member].len();
        let mut answers = self.deliver(member);
        if answers.len() < expected {
            answers.extend(self.rigs[member].wait(expected - answers.len()));
        }
        let sealed_end = Some(end);
        let answered = answers.iter().map(|done| Heard {
            sealed_end,
            ..heard(done)
        });
        let heard: Vec<_> = answered.collect();
        self.primary().server.heard(id(member), &heard);
    }

    /// Sends, delivers and answers whatever there is.
    pub(super) fn exchange(&mut self, follower: usize) {
        while self.send(follower) > 0 {
            let expected = self.sent[follower].len();
            let mut answers = self.deliver(follower);
            if answers.len() < expected {
                answers.extend(self.rigs[follower].wait(expected - answers.len()));
            }
            self.answer(follower, &answers);
        }
    }

    /// Where readers of a server find the end.
    pub(super) fn end_at(&self, member: usize) -> i64 {
        let ranges = self.rigs[member].server.hub.ranges.lock();
        ranges.table.stream(STREAM).unwrap().confirmed_end().0
    }

    pub(super) fn append(&self, job: crate::range::AppendJob) {
        assert!(self.primary().append(job).is_none());
    }
}

pub(super) fn id(member: usize) -> ServerId {
    ServerId(i32::try_from(member).unwrap() + 1)
}

/// What a connection makes of an entry.
pub(super) fn follow_job(request_index: i32, entry: FeedEntry) -> FollowJob {
    let mut chunks: smallvec::SmallVec<[bytes::Bytes; 1]> = entry.chunks.iter().cloned().collect();
    let mut part = (0, 1);
    let mut head = None;
    match entry.kind {
        Some(FeedKind::Batch) => head = Some(inspect(&chunks, true).unwrap()),
        Some(FeedKind::Writers) => {
            let bytes: bytes::Bytes = chunks.concat().into();
            let number = |place: usize| u16::from_be_bytes([bytes[place], bytes[place + 1]]);
            part = (number(0), number(2));
            chunks = smallvec::smallvec![bytes.slice(4..)];
        }
        None => {}
    }
    let count = head.as_ref().map_or(0, |head| head.record_count);
    let entry_is = match entry.kind {
        Some(FeedKind::Writers) => Entry::Writers {
            part: part.0.into(),
            parts: part.1.into(),
        },
        _ if count > 0 => Entry::Records(count),
        _ => Entry::Mark,
    };
    let claim = head.as_ref().filter(|head| head.meta.writer_id.is_some());
    FollowJob {
        call: CallId::FIRST,
        request_index,
        arrived: Instant::now(),
        key: entry.key,
        epoch: entry.epoch,
        offered: Offered {
            from: PRIMARY,
            epoch: entry.epoch,
            at: entry.at,
            entry: entry_is,
            confirmed: entry.confirmed,
            sealed_end: entry.sealed_end,
        },
        has_entry: entry.kind.is_some(),
        append_time: entry.append_time,
        max_timestamp: TimestampMs(0),
        claim: claim.map(|head| WriterSequence {
            writer: head.meta.writer_id,
            epoch: head.meta.writer_epoch,
            sequence: head.meta.base_sequence,
        }),
        part,
        chunks,
    }
}

pub(super) fn heard(done: &AppendDone) -> Heard {
    let answer = match &done.outcome {
        Ok(stored) => Answer::Synced(Position {
            offset: stored.next_offset,
            marks: stored.next_marks,
        }),
        Err(refused) => {
            assert_eq!(refused.refusal.code, ErrorCode::PRECONDITION_FAILED, "{refused:?}");
            Answer::GoOn(Position {
                offset: refused.next_offset.unwrap(),
                marks: refused.next_marks,
            })
        }
    };
    Heard {
        key: FIRST,
        sealed_end: None,
        round: None,
        question: None,
        answer,
    }
}

/// What a request about a range was answered, if it was.
pub(super) fn asked<T: Send + 'static>(
    ask: impl FnOnce(Box<dyn FnOnce(Result<T, crate::refusal::Refusal>) + Send>),
) -> std::sync::mpsc::Receiver<Result<T, ErrorCode>> {
    let (sender, answers) = std::sync::mpsc::channel();
    ask(Box::new(move |answer| {
        let _test_is_over = sender.send(answer.map_err(|refusal| refusal.code));
    }));
    answers
}

impl Copies {
    /// Fences a server, makes that durable and returns its vote.
    pub(super) fn vote(&self, member: usize) -> Position {
        let server = &self.rigs[member].server;
        let places = asked(|done| server.fence(FIRST, Some(Epoch(0)), done));
        let taken = places.recv_timeout(PATIENCE).unwrap().unwrap();
        server.fence_is_durable(FIRST, taken).unwrap().vote.end
    }
}

impl Copies {
    /// Tells a server that the range ends here.
    pub(super) fn end(&self, member: usize, end: i64) {
        let ranges = [held(0, 0, Some(end))];
        self.rigs[member]
            .server
            .install(STREAM, StreamFacts::default(), &ranges);
    }
}
