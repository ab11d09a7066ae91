//! Faults that concern one entry.

use sbp_types::{Position, StreamId};

use crate::{
    AppendInfo, ErrorCode, FetchInfo, Range, RangeCriteria, RangeId, ReplicaEntry, ReplicaState, Status, Stream,
    TrimmedStream,
};

/// The longest name of a stream, in bytes.
const MAX_NAME: usize = 255;

/// Whether this is a valid stream name: a letter or `_`, then up to 254 letters, digits and `.`, `_`, `/`, `-`, all
/// ASCII.
///
/// A name never begins with a digit, so that a text of digits is always an id.
#[must_use]
pub fn is_valid_stream_name(name: &str) -> bool {
    let Some((first, rest)) = name.as_bytes().split_first() else {
        return false;
    };
    let starts = first.is_ascii_alphabetic() || *first == b'_';
    let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    starts && name.len() <= MAX_NAME && rest.iter().all(goes_on)
}

impl AppendInfo {
    /// What is wrong with this entry by itself, without looking at any stream.
    #[must_use]
    pub fn fault(&self) -> Option<Status> {
        stream_fault(self.stream_id)
            .or_else(|| negative("range_index", self.range_index.map(|index| index.0)))
            .or_else(|| negative("epoch", self.epoch.map(|epoch| epoch.0)))
            .or_else(|| self.replica_fault())
    }

    /// What is wrong with what only servers tell each other.
    fn replica_fault(&self) -> Option<Status> {
        if self.is_from_client() {
            return None;
        }
        unknown("entry", self.entry.0, ReplicaEntry::CONFIRMED.0)
            .or_else(|| below("append_time_ms", self.append_time_ms.0, 0))
            .or_else(|| too_many_marks("marks", self.marks))
            .or_else(|| position_fault("confirmed_offset", "confirmed_marks", self.confirmed))
            .or_else(|| position_fault("sealed_end", "sealed_marks", self.sealed_end))
    }
}

impl Range {
    /// What is wrong with a range that a server is told to hold, by itself.
    #[must_use]
    pub fn fault(&self) -> Option<Status> {
        let mut states = self.servers.iter().map(|replica| replica.state.0);
        stream_fault(self.stream_id)
            .or_else(|| below("range_index", self.range_index.0, 0))
            .or_else(|| below("start_offset", self.start_offset.0, 0))
            .or_else(|| too_many_marks("end_marks", self.end_marks))
            .or_else(|| too_many_marks("next_marks", self.next_marks))
            .or_else(|| negative("opened_offset", self.opened_offset.map(|offset| offset.0)))
            .or_else(|| states.find_map(|state| unknown("state", state, ReplicaState::COPYING.0)))
    }
}

impl FetchInfo {
    /// What is wrong with this entry by itself, without looking at any stream.
    #[must_use]
    pub fn fault(&self) -> Option<Status> {
        stream_fault(self.stream_id)
            .or_else(|| negative("end_offset", self.end_offset.map(|end| end.0)))
            .or_else(|| negative("start_timestamp_ms", self.start_timestamp_ms.map(|time| time.0)))
    }
}

impl RangeId {
    /// What is wrong with this entry by itself, without looking at any stream.
    #[must_use]
    pub fn fault(&self) -> Option<Status> {
        stream_fault(self.stream_id)
            .or_else(|| negative("range_index", self.range_index.map(|index| index.0)))
            .or_else(|| negative("epoch", self.epoch.map(|epoch| epoch.0)))
            .or_else(|| negative("end_offset", self.end_offset.map(|end| end.0)))
    }
}

impl TrimmedStream {
    /// What is wrong with this entry by itself, without looking at any stream. A negative offset is out of bounds.
    #[must_use]
    pub fn fault(&self) -> Option<Status> {
        let message = || format!("trim_offset is {}", self.trim_offset);
        let negative = self.trim_offset.0 < 0;
        stream_fault(self.stream_id)
            .or_else(|| negative.then(|| Status::error(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, message())))
    }
}

impl RangeCriteria {
    /// What is wrong with the criteria: neither field is given, or the id is below 1, which no stream has.
    #[must_use]
    pub fn fault(&self) -> Option<Status> {
        if let Some(stream) = self.stream_id {
            return stream_fault(stream);
        }
        let none = self.range_server.is_none();
        none.then(|| {
            Status::error(
                ErrorCode::INVALID_REQUEST,
                "range_criteria names neither a stream nor a server",
            )
        })
    }
}

impl Stream {
    /// What is wrong with the settings of a stream to be created.
    ///
    /// `ack_count` is compared with `replica_nums` only if both are given, because the server's defaults are not known
    /// here.
    #[must_use]
    pub fn fault(&self) -> Option<Status> {
        if !self.name.is_empty() && !is_valid_stream_name(&self.name) {
            let rule = "a name is a letter or _, then up to 254 of A-Z a-z 0-9 . _ / -";
            return Some(Status::error(
                ErrorCode::INVALID_REQUEST,
                format!("name {:?}: {rule}", self.name),
            ));
        }
        if self.replica_nums > 0 && self.ack_count > self.replica_nums {
            let message = format!(
                "ack_count {} is more than replica_nums {}",
                self.ack_count, self.replica_nums
            );
            return Some(Status::error(ErrorCode::INVALID_REQUEST, message));
        }
        below("replica_nums", self.replica_nums, 0)
            .or_else(|| below("ack_count", self.ack_count, 0))
            .or_else(|| below("retention_period_ms", self.retention_period_ms, 0))
            .or_else(|| below("retention_bytes", self.retention_bytes, -1))
    }
}

fn stream_fault(stream: StreamId) -> Option<Status> {
    let message = || format!("{stream} is no stream's id: they start at 1");
    (!stream.is_valid()).then(|| Status::error(ErrorCode::NOT_FOUND, message()))
}

fn negative<T: Into<i64>>(field: &str, value: Option<T>) -> Option<Status> {
    below(field, value?, 0)
}

/// The value of an enumeration whose values begin at 0.
fn unknown(field: &str, value: i8, last: i8) -> Option<Status> {
    let message = || format!("{field} is {value}, which means nothing here");
    (!(0..=last).contains(&value)).then(|| Status::error(ErrorCode::INVALID_REQUEST, message()))
}

/// The wire has signed numbers: what is above their maximum was below 0 there.
fn too_many_marks(field: &str, marks: u32) -> Option<Status> {
    let message = || format!("{field} is {}", marks.cast_signed());
    i32::try_from(marks)
        .is_err()
        .then(|| Status::error(ErrorCode::INVALID_REQUEST, message()))
}

fn position_fault(offset: &str, marks: &str, position: Option<Position>) -> Option<Status> {
    let position = position?;
    below(offset, position.offset.0, 0).or_else(|| too_many_marks(marks, position.marks))
}

fn below<T: Into<i64>>(field: &str, value: T, least: i64) -> Option<Status> {
    let value = value.into();
    (value < least).then(|| Status::error(ErrorCode::INVALID_REQUEST, format!("{field} is {value}")))
}
