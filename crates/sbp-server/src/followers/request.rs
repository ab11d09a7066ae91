//! Entries of shared ranges as APPENDs between servers, and the answers to them.

use bytes::Bytes;
use sbp_messages::{AppendInfo, AppendRequest, AppendResult, ErrorCode, ReplicaEntry};
use sbp_replication::{Answer, NotTaken, Round};
use sbp_types::{Position, RangeKey};

use crate::range::{Feed, FeedEntry, FeedKind, Heard, Refused};

/// What is remembered of an entry that was sent, until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) key: RangeKey,
    sealed_end: Option<Position>,
    round: Round,
    question: Option<u64>,
}

/// What an answer says.
#[derive(Debug)]
pub(super) enum Said {
    /// How far the other server is.
    Heard(Heard),
    /// It takes nothing of this range now.
    Refused {
        refused: Refused,
        code: ErrorCode,
        message: String,
    },
}

/// The request that carries what is to be sent, with its payload.
pub(super) fn request(feed: Feed) -> (AppendRequest, Vec<Bytes>, Vec<Sent>) {
    let mut payload = Vec::with_capacity(feed.entries.len());
    let mut sent = Vec::with_capacity(feed.entries.len());
    let infos = (0..).zip(feed.entries).map(|(request_index, entry)| {
        let FeedEntry {
            key,
            epoch,
            at,
            kind,
            append_time,
            confirmed,
            sealed_end,
            round,
            question,
            chunks,
        } = entry;
        let length: usize = chunks.iter().map(Bytes::len).sum();
        payload.extend(chunks);
        sent.push(Sent {
            key,
            sealed_end,
            round,
            question,
        });
        AppendInfo {
            stream_id: key.stream,
            request_index,
            // A batch is never longer than a frame.
            batch_length: i32::try_from(length).unwrap_or(i32::MAX),
            range_index: Some(key.range),
            epoch: Some(epoch),
            expected_offset: Some(at.offset),
            append_time_ms: append_time,
            confirmed: Some(confirmed),
            entry: match kind {
                Some(FeedKind::Batch) => ReplicaEntry::BATCH,
                Some(FeedKind::Writers) => ReplicaEntry::WRITERS,
                None => ReplicaEntry::CONFIRMED,
            },
            sealed_end,
            marks: at.marks,
        }
    });
    let request = AppendRequest {
        append_requests: infos.collect(),
        ..AppendRequest::default()
    };
    (request, payload, sent)
}

/// What the answer to one entry says; `None` if it is no answer.
pub(super) fn said(sent: &[Sent], result: &AppendResult) -> Option<Said> {
    let sent = sent.get(usize::try_from(result.request_index).ok()?)?;
    let Sent {
        key,
        sealed_end,
        round,
        question,
    } = *sent;
    let place = result.next_offset.map(|offset| Position {
        offset,
        marks: result.next_marks,
    });
    let answer = match (result.status.code, place) {
        (ErrorCode::NONE, Some(place)) => Answer::Synced(place),
        (ErrorCode::PRECONDITION_FAILED, Some(place)) => Answer::GoOn(place),
        // Its copy is damaged, or another one than this: it may have less than it acknowledged.
        (ErrorCode::RS_DATA_CORRUPTED, _) if sealed_end.is_none() => Answer::Refused(NotTaken::Damaged),
        (code, _) => {
            let message = result.status.message.to_string();
            let refused = Refused {
                key,
                sealed_end,
                question,
                is_damaged: code == ErrorCode::RS_DATA_CORRUPTED,
            };
            return Some(Said::Refused { refused, code, message });
        }
    };
    Some(Said::Heard(Heard {
        key,
        sealed_end,
        round: Some(round),
        question,
        answer,
    }))
}
