//! What a server sends to those that hold its ranges too, and what becomes of their answers.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use sbp_log::{EntryHead, EntryKind, ReadError, StoredEntry};
use sbp_record::{EncodeOptions, WriterStamp, encode_fence};
use sbp_replication::{Answer, Round, Standing};
use sbp_types::{Epoch, Position, RangeKey, ServerId, TimestampMs};
use smallvec::SmallVec;

use crate::range::copies::{Outbox, Pace};
use crate::range::notifications::Notifications;
use crate::range::ranges::Ranges;
use crate::range::server::RangeServer;

/// The most entries of one frame.
const MOST_ENTRIES: usize = 1_024;
/// How long a server may take nothing because of what its disk has lost, until nobody waits for it any more. It may mend that.
const MENDS_WITHIN: Duration = Duration::from_secs(10);

/// An entry to send to another server.
#[derive(Clone, Debug)]
pub(crate) struct FeedEntry {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// Where it stands.
    pub(crate) at: Position,
    /// What it is; `None`: only what is confirmed is told.
    pub(crate) kind: Option<FeedKind>,
    pub(crate) append_time: TimestampMs,
    /// What is confirmed.
    pub(crate) confirmed: Position,
    /// Where the range ends, if the entry is written back or copied.
    pub(crate) sealed_end: Option<Position>,
    /// Tells its answer from those to what was sent before the server was sent an earlier place again.
    pub(crate) round: Round,
    /// The number of the question whether the server is fenced, to which it answers.
    pub(crate) question: Option<u64>,
    pub(crate) chunks: SmallVec<[Bytes; 2]>,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedKind {
    /// A batch, or a writer's fence.
    Batch,
    /// The state of the writers, or a part of it.
    Writers,
}

/// What is to be sent to one server now.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    pub(crate) entries: Vec<FeedEntry>,
    /// Bytes of their batches.
    pub(crate) bytes: usize,
    /// A range whose next entries are not in memory any more: they have to be read from the log.
    pub(crate) from_log: Option<RangeKey>,
    /// Whether the server has to be told soon what is confirmed, if nothing else is sent.
    pub(crate) is_stale: bool,
    /// When more of sealed ranges may be sent, if any waits for that; by the clock of
    /// [`running_for`](RangeServer::running_for).
    pub(crate) paced_until: Option<Duration>,
    /// The range whose next entries could not be read, and why: the entry in their place only has the server say anew what it has.
    pub(crate) unreadable: Option<(RangeKey, ReadError)>,
}

impl Feed {
    fn push(&mut self, entry: FeedEntry) {
        self.bytes += entry.chunks.iter().map(Bytes::len).sum::<usize>();
        self.entries.push(entry);
    }

    fn is_full(&self, most_bytes: usize) -> bool {
        self.bytes >= most_bytes || self.entries.len() >= MOST_ENTRIES
    }
}

/// What another server has answered about one range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) key: RangeKey,
    /// As in the entry that is answered.
    pub(crate) sealed_end: Option<Position>,
    /// As in the entry that is answered; `None` where nothing else was under way.
    pub(crate) round: Option<Round>,
    /// The question that it answers too.
    pub(crate) question: Option<u64>,
    pub(crate) answer: Answer,
}

/// An entry of one range that another server has refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) key: RangeKey,
    /// As in the entry that is answered.
    pub(crate) sealed_end: Option<Position>,
    /// The question that was sent with it.
    pub(crate) question: Option<u64>,
    /// Whether that is because of what its disk has lost.
    pub(crate) is_damaged: bool,
}

impl RangeServer {
    /// What is to be sent to another server now, about `most_bytes` at most. With `tells_confirmed` also what is confirmed of
    /// ranges without new entries.
    pub(crate) fn feed(&self, server: ServerId, most_bytes: usize, tells_confirmed: bool) -> Feed {
        self.feed_at(server, most_bytes, tells_confirmed, self.running_for())
    }

    /// The same at a time that the caller says.
    pub(in crate::range) fn feed_at(
        &self,
        server: ServerId,
        most_bytes: usize,
        tells_confirmed: bool,
        now: Duration,
    ) -> Feed {
        let mut ranges = self.hub.ranges.lock();
        let mut feed = Feed::default();
        let mut paced: SmallVec<[RangeKey; 4]> = SmallVec::new();
        // First of all: readers wait.
        for (key, question) in ranges.outboxes.of(server).take_asked(MOST_ENTRIES) {
            ranges.tell_confirmed(server, key, Some(question), &mut feed);
        }
        while !feed.is_full(most_bytes) {
            let Some(key) = ranges.outboxes.of(server).next() else {
                break;
            };
            if ranges.is_copied(key)
                && let Some(until) = ranges.pace.waits_until(now)
            {
                feed.paced_until = Some(until);
                paced.push(key);
                continue;
            }
            ranges.feed_range(server, key, most_bytes, now, &mut feed);
            if feed.from_log.is_some() {
                break;
            }
        }
        for key in paced {
            ranges.outboxes.of(server).put_back(key);
        }
        let stale = if tells_confirmed {
            ranges.outboxes.of(server).take_stale()
        } else {
            Default::default()
        };
        for key in stale {
            if feed.is_full(most_bytes) {
                // A later frame tells it: nobody waits for it longer than for an idle range.
                ranges.outboxes.of(server).stays_stale(key);
            } else {
                ranges.tell_confirmed(server, key, None, &mut feed);
            }
        }
        let outbox = ranges.outboxes.of(server);
        feed.is_stale = outbox.has_stale();
        feed
    }

    /// What is to be sent to another server of a range whose next entries are not in memory any more. Reads from the disk.
    ///
    /// # Errors
    ///
    /// The entries cannot be read.
    pub(crate) fn feed_from_log(&self, server: ServerId, key: RangeKey, most_bytes: usize) -> Result<Feed, ReadError> {
        let mut feed = Feed::default();
        let next = {
            let ranges = self.hub.ranges.lock();
            ranges.table.replica(key).and_then(|replica| replica.next_for(server))
        };
        let Some((at, _)) = next else { return Ok(feed) };
        let entries = match self.log.entries(key, at, most_bytes) {
            // It was trimmed since: the rest begins where the log does.
            Err(ReadError::Released { .. }) => {
                self.note_first(key);
                return Ok(feed);
            }
            Err(error) => return self.feed_question(server, key, error),
            Ok(entries) => entries,
        };
        let mut ranges = self.hub.ranges.lock();
        if ranges.outboxes.of(server).is_refused(key) {
            return Ok(feed);
        }
        ranges.feed_read(server, key, entries, most_bytes, self.running_for(), &mut feed);
        // There may be more.
        ranges.tell_followers(key);
        Ok(feed)
    }

    /// What comes next for a server that this one writes back or copies to cannot be read here. That server may have it by now, or may
    /// have had it all along, and is not asked by anybody else: it is sent the first entry that can be read, to which it answers what it
    /// has. Then nothing until [`tell_again`](Self::tell_again).
    fn feed_question(&self, server: ServerId, key: RangeKey, error: ReadError) -> Result<Feed, ReadError> {
        let place_in = |ranges: &Ranges| {
            let replica = ranges.table.replica(key)?;
            let (_, sealed_end) = replica.next_for(server)?;
            sealed_end.map(|end| (replica.first_readable(), end))
        };
        let place = place_in(&self.hub.ranges.lock());
        let Some((at, _)) = place else { return Err(error) };
        let entry = match self.log.entries(key, at, 1) {
            Ok(entries) => entries.into_iter().next(),
            Err(_) => None,
        };
        let mut ranges = self.hub.ranges.lock();
        let mut feed = Feed::default();
        match entry.filter(|entry| entry.position == at) {
            // The order is the same one still.
            Some(entry) if place_in(&ranges) == place => {
                ranges.feed_stored(
                    server,
                    key,
                    &entry,
                    place.map(|(_, end)| end),
                    self.running_for(),
                    &mut feed,
                );
            }
            _ => return Err(error),
        }
        ranges.outboxes.of(server).refuses(key);
        feed.unreadable = Some((key, error));
        Ok(feed)
    }

    /// Notes where the first entry stands that the log still has of a range.
    fn note_first(&self, key: RangeKey) {
        let first = self.log.first_position(key);
        let mut ranges = self.hub.ranges.lock();
        let start = ranges.table.stream(key.stream).map(|stream| stream.start);
        if let (Some(first), Some(start)) = (first, start) {
            ranges.change_copy(key, |replica| replica.trimmed(start, first));
        }
        let mut notifications = Notifications::default();
        ranges.copy_moved(key, &mut notifications);
        self.hub.finish(ranges);
        notifications.send();
    }

    /// Bounds what is sent of sealed ranges, in bytes a second.
    pub(crate) fn bound_copies(&self, bytes_per_second: u64) {
        self.hub.ranges.lock().pace = Pace::new(bytes_per_second);
    }

    /// Another server has answered.
    pub(crate) fn heard(&self, server: ServerId, answers: &[Heard]) {
        let mut notifications = Notifications::default();
        let mut ranges = self.hub.ranges.lock();
        for heard in answers {
            let Heard {
                sealed_end,
                round,
                answer,
                ..
            } = *heard;
            if let Answer::Synced(to) = answer {
                ranges.outboxes.of(server).takes(heard.key, to);
            }
            let hear = |replica: &mut sbp_replication::Replica| replica.heard(server, sealed_end, round, answer);
            match ranges.change_copy(heard.key, hear) {
                Some(Standing::FollowerLost) => tracing::error!(
                    range = %heard.key, %server, answer = ?heard.answer,
                    "a server has less of a range than it said before, or something else: the range has to be sealed"
                ),
                Some(Standing::ClaimsTooMuch) => tracing::error!(
                    range = %heard.key, %server, answer = ?heard.answer,
                    "a server says that it has more of a range than it was ever sent: what it says counts for nothing, and it \
                     is sent nothing more of it over this connection"
                ),
                Some(Standing::Sound | Standing::Refused(_)) | None => {}
            }
            if let Some(question) = heard.question {
                let is_fenced = matches!(heard.answer, Answer::Refused(_));
                ranges.questions.said(heard.key, question, server, is_fenced);
            }
            ranges.copy_moved(heard.key, &mut notifications);
        }
        let confirmed = ranges.confirmed_of(answers.iter().map(|heard| heard.key));
        self.hub.finish(ranges);
        notifications.send();
        self.log.confirm_all(confirmed);
    }

    /// The connection to another server is gone, and with it what was on its way.
    pub(crate) fn disconnected(&self, server: ServerId) {
        let mut ranges = self.hub.ranges.lock();
        let sent = ranges.outboxes.of(server).disconnected();
        for key in sent {
            ranges.change_copy(key, |replica| replica.disconnected(server));
            ranges.ask_again(server, key);
            ranges.tell_followers(key);
        }
    }

    /// Another server has refused an entry of a range for now, or says that it is fenced: entries of the range are sent to it
    /// again when [`tell_again`](Self::tell_again) is called. Those of an open range also when there is news of it; what is
    /// written back or copied not before, unless that is ordered anew.
    pub(crate) fn refused(&self, server: ServerId, refused: &Refused) {
        self.refused_at(server, refused, self.running_for());
    }

    /// The same at a time that the caller says.
    pub(in crate::range) fn refused_at(&self, server: ServerId, refused: &Refused, now: Duration) {
        let Refused {
            key,
            sealed_end,
            question,
            is_damaged,
        } = *refused;
        let mut notifications = Notifications::default();
        let mut ranges = self.hub.ranges.lock();
        let replica = ranges.table.replica(key).filter(|_| is_damaged);
        let has = replica.and_then(|replica| replica.heard_of(server, sealed_end));
        if let (Some(end), Some(has)) = (sealed_end, has)
            && ranges.outboxes.of(server).is_damaged(key, has, now) + MENDS_WITHIN <= now
        {
            ranges.seal_work.cannot_be_taken(key, server, end);
        }
        let next = ranges.change_copy(key, |replica| {
            replica.begin_again(server, sealed_end);
            replica.next_for(server)
        });
        // Not where it has refused something else than what it is to be sent now.
        if next.flatten().is_some_and(|(_, end)| end == sealed_end) {
            ranges.outboxes.of(server).refuses(key);
        }
        if let Some(question) = question {
            // It does not say that it is not.
            ranges.questions.said(key, question, server, true);
            ranges.settle_question(key, &mut notifications);
        }
        self.hub.finish(ranges);
        notifications.send();
    }

    /// Sends entries of these ranges, which another server has refused, to it again, as far as they are not known to have
    /// arrived.
    pub(crate) fn tell_again(&self, server: ServerId, keys: impl IntoIterator<Item = RangeKey>) {
        let mut ranges = self.hub.ranges.lock();
        for key in keys {
            ranges.outboxes.of(server).may_take(key);
            ranges.tell_followers(key);
        }
    }
}

impl Ranges {
    /// Whether what is sent of a range are copies of one that is sealed: nobody waits for them. What is written back while a range
    /// is being sealed is none.
    fn is_copied(&self, key: RangeKey) -> bool {
        let replica = self.table.replica(key);
        replica.is_some_and(|replica| replica.end().is_some())
    }

    /// What is known to be confirmed of these ranges.
    pub(super) fn confirmed_of(&self, keys: impl Iterator<Item = RangeKey>) -> SmallVec<[(RangeKey, Position); 4]> {
        let mut confirmed: SmallVec<[(RangeKey, Position); 4]> = SmallVec::new();
        for key in keys {
            if confirmed.iter().all(|(other, _)| *other != key)
                && let Some(replica) = self.table.replica(key)
            {
                confirmed.push((key, replica.confirmed()));
            }
        }
        confirmed
    }

    /// Adds entries of one range that are in memory.
    fn feed_range(&mut self, server: ServerId, key: RangeKey, most_bytes: usize, now: Duration, feed: &mut Feed) {
        while let Some(replica) = self.table.replica(key)
            && let Some((at, sealed_end)) = replica.next_for(server)
        {
            if feed.is_full(most_bytes) {
                self.outboxes.of(server).put_back(key);
                return;
            }
            let confirmed = replica.confirmed();
            let Some(recent) = self.copies.get(&key).and_then(|work| work.recent(at)) else {
                feed.from_log = Some(key);
                return;
            };
            let to = recent.to;
            let entry = FeedEntry {
                key,
                epoch: recent.epoch,
                at,
                kind: Some(kind_of(&recent.head)),
                append_time: recent.append_time,
                confirmed,
                sealed_end,
                round: Round::default(),
                question: None,
                chunks: sent_bytes(&recent.head, &recent.chunks),
            };
            self.send_entry(server, entry, to, now, feed);
        }
    }

    /// Adds entries that were read from the log, as far as they are those that come next and a frame holds them.
    fn feed_read(
        &mut self,
        server: ServerId,
        key: RangeKey,
        entries: Vec<StoredEntry>,
        most_bytes: usize,
        now: Duration,
        feed: &mut Feed,
    ) {
        for entry in entries {
            if feed.is_full(most_bytes) {
                return;
            }
            let Some(replica) = self.table.replica(key) else { return };
            let Some((at, sealed_end)) = replica.next_for(server) else {
                return;
            };
            if at != entry.position || sealed_end.is_some_and(|end| entry.end() > end) {
                break;
            }
            self.feed_stored(server, key, &entry, sealed_end, now, feed);
        }
    }

    /// Adds an entry that was read from the log.
    fn feed_stored(
        &mut self,
        server: ServerId,
        key: RangeKey,
        entry: &StoredEntry,
        sealed_end: Option<Position>,
        now: Duration,
        feed: &mut Feed,
    ) {
        let Some(replica) = self.table.replica(key) else { return };
        let (confirmed, to) = (replica.confirmed(), entry.end());
        let entry = FeedEntry {
            key,
            epoch: entry.head.epoch,
            at: entry.position,
            kind: Some(kind_of(&entry.head)),
            append_time: entry.head.append_time,
            confirmed,
            sealed_end,
            round: Round::default(),
            question: None,
            chunks: sent_bytes(&entry.head, entry.bytes.chunks()),
        };
        self.send_entry(server, entry, to, now, feed);
    }

    /// Adds an entry that ends at `to`, and counts it as sent.
    fn send_entry(&mut self, server: ServerId, mut entry: FeedEntry, to: Position, now: Duration, feed: &mut Feed) {
        if self.is_copied(entry.key) {
            self.pace.sent(entry.chunks.iter().map(Bytes::len).sum(), now);
        }
        let (key, sealed_end) = (entry.key, entry.sealed_end);
        let round = self.change_copy(key, |replica| replica.sent(server, sealed_end, to));
        entry.round = round.unwrap_or_default();
        let outbox = self.outboxes.of(server);
        outbox.sent.insert(key);
        outbox.tell(key, entry.confirmed);
        feed.push(entry);
    }

    fn tell_confirmed(&mut self, server: ServerId, key: RangeKey, question: Option<u64>, feed: &mut Feed) {
        let Some(range) = self.table.range(key) else {
            self.outboxes.of(server).forget(key);
            return;
        };
        let Some(replica) = &range.replica else { return };
        let confirmed = replica.confirmed();
        feed.push(FeedEntry {
            key,
            epoch: range.epoch,
            at: confirmed,
            kind: None,
            append_time: TimestampMs(0),
            confirmed,
            sealed_end: None,
            round: Round::default(),
            question,
            chunks: SmallVec::new(),
        });
        let outbox: &mut Outbox = self.outboxes.of(server);
        outbox.sent.insert(key);
        outbox.tell(key, confirmed);
    }
}

fn kind_of(head: &EntryHead) -> FeedKind {
    match head.kind {
        EntryKind::Batch | EntryKind::Fence => FeedKind::Batch,
        EntryKind::Writers { .. } => FeedKind::Writers,
    }
}

/// The bytes by which an entry is sent, given those that the log keeps of it. Those of a part of the writers' state begin
/// with its number and the number of parts.
fn sent_bytes(head: &EntryHead, kept: &[Bytes]) -> SmallVec<[Bytes; 2]> {
    match head.kind {
        EntryKind::Batch => kept.iter().cloned().collect(),
        EntryKind::Fence => fence_bytes(head),
        EntryKind::Writers { part, parts } => {
            let mut numbers = BytesMut::with_capacity(4);
            numbers.put_u16(part);
            numbers.put_u16(parts);
            std::iter::once(numbers.freeze()).chain(kept.iter().cloned()).collect()
        }
    }
}

/// A fence as a batch, which the log does not keep: an empty one that tells the writer.
fn fence_bytes(head: &EntryHead) -> SmallVec<[Bytes; 2]> {
    let options = EncodeOptions {
        stream_id: head.key.stream,
        timestamp: head.append_time,
        writer: Some(WriterStamp {
            id: head.writer,
            epoch: head.writer_epoch,
            base_sequence: head.base_sequence,
        }),
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    // It has no records and no body, so there is nothing that could be too large.
    let _length = encode_fence(&options, &mut bytes);
    SmallVec::from_elem(bytes.freeze(), 1)
}
