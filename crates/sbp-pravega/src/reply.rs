//! What servers answer.

use bytes::{BufMut, Bytes, BytesMut};
use sbp_wire::Collector;

use crate::coding::{NO_REQUEST, Put, Reader, WriterId, check_length};
use crate::fault::Fault;
use crate::kinds::{
    ALREADY_EXISTS, APPEND_SETUP, ATTRIBUTE, ATTRIBUTE_UPDATED, AUTH_FAILED, BAD_VERSION, CONDITIONAL_CHECK_FAILED,
    DATA_APPENDED, DELTA_READ, ENTRIES_READ, ENTRIES_UPDATED, ERROR_MESSAGE, INVALID_EVENT_NUMBER, IS_SEALED,
    IS_TRUNCATED, KEYS_READ, KEYS_REMOVED, NO_SUCH_KEY, NO_SUCH_SEGMENT, NOT_EMPTY, NOT_SUPPORTED, SEGMENT_CREATED,
    SEGMENT_DELETED, SEGMENT_INFO, SEGMENT_READ, SEGMENT_SEALED, SEGMENT_TRUNCATED, TABLE_READ, WRONG_HOST,
};
use crate::limits::MAX_FRAME;
use crate::table::{TableEntry, TableKey, put_entries, put_keys, read_entries, read_keys};

/// What a segment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its name.
    pub segment: String,
    /// Whether there is one.
    pub exists: bool,
    /// Whether nothing more is appended to it.
    pub is_sealed: bool,
    /// Whether it was removed.
    pub is_deleted: bool,
    /// When it was changed last, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Where it ends.
    pub length: i64,
    /// Where it begins; `None`: not said.
    pub start: Option<i64>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A writer may append.
    AppendSetup {
        /// The segment.
        segment: String,
        /// The writer.
        writer: WriterId,
        /// The number of its last event in the segment; [`crate::NEW`]: there is none.
        last: i64,
    },
    /// The events of a writer from behind `previous` up to `number` are stored.
    Appended {
        /// The writer.
        writer: WriterId,
        /// The number of the last one.
        number: i64,
        /// The number of the last one stored before; [`crate::NEW`]: there was none; `None`: not said.
        previous: Option<i64>,
        /// The segment's length; `None`: not said.
        length: Option<i64>,
    },
    /// The segment does not have the length expected: nothing was appended.
    ConditionFailed {
        /// The writer.
        writer: WriterId,
        /// The number of the event.
        number: i64,
    },
    /// Bytes of a segment.
    Read {
        /// The segment.
        segment: String,
        /// The first byte.
        offset: i64,
        /// Whether the segment ends behind them, for now.
        is_tail: bool,
        /// Whether it is sealed and ends here.
        is_end: bool,
        /// The bytes.
        data: Bytes,
    },
    /// What a segment is.
    Info(SegmentInfo),
    /// The segment was made.
    Created(String),
    /// The segment is sealed.
    Sealed(String),
    /// The segment is gone.
    Deleted(String),
    /// The segment was truncated.
    Truncated(String),
    /// The value of an attribute; [`crate::NEW`]: there is none.
    Attribute(i64),
    /// Whether an attribute was set: it had the value expected.
    AttributeUpdated(bool),
    /// Another server has the segment.
    WrongHost {
        /// The segment.
        segment: String,
        /// Which one, as far as this one knows.
        host: String,
    },
    /// Nothing can be appended, or no more be read: the segment is sealed.
    IsSealed {
        /// The segment.
        segment: String,
        /// What was asked for; `None`: not said.
        offset: Option<i64>,
    },
    /// There is such a segment.
    AlreadyExists(String),
    /// There is no such segment.
    NoSuchSegment {
        /// The segment.
        segment: String,
        /// What was asked for; `None`: not said.
        offset: Option<i64>,
    },
    /// The number of an event is below one that is stored.
    InvalidEventNumber {
        /// The writer.
        writer: WriterId,
        /// The number; `None`: not said.
        number: Option<i64>,
    },
    /// What was asked for is not kept any more.
    IsTruncated {
        /// The segment.
        segment: String,
        /// The first byte that is kept.
        start: i64,
        /// What was asked for; `None`: not said.
        offset: Option<i64>,
    },
    /// The server does not do this.
    NotSupported(String),
    /// The token does not do.
    AuthFailed {
        /// What is wrong with it, 1: it has expired; `None`: not said.
        code: Option<i32>,
    },
    /// Something else went wrong.
    Error {
        /// The segment.
        segment: String,
        /// What.
        message: String,
        /// Its number among the server's errors.
        code: i32,
    },
    /// Entries were put; their versions.
    EntriesUpdated(Vec<i64>),
    /// Keys were taken out.
    KeysRemoved(String),
    /// Entries: those that are missing have version -1 and no value.
    TableRead {
        /// The table.
        segment: String,
        /// The entries.
        entries: Vec<TableEntry>,
    },
    /// The table has entries.
    NotEmpty(String),
    /// A key is missing.
    NoSuchKey(String),
    /// A key has another version.
    BadVersion(String),
    /// A page of keys; an empty one is the last.
    KeysRead {
        /// The table.
        segment: String,
        /// The keys.
        keys: Vec<TableKey>,
        /// Where the next page begins.
        continuation: Bytes,
    },
    /// A page of entries; an empty one is the last.
    EntriesRead {
        /// The table.
        segment: String,
        /// The entries.
        entries: Vec<TableEntry>,
        /// Where the next page begins.
        continuation: Bytes,
    },
    /// Changes of a table.
    DeltaRead {
        /// The table.
        segment: String,
        /// The entries.
        entries: Vec<TableEntry>,
        /// Whether what was known before does not count any more.
        is_cleared: bool,
        /// Whether there are no further ones.
        is_end: bool,
        /// From where the next ones are.
        last: i64,
    },
}

impl Reply {
    pub(crate) fn kind(&self) -> i32 {
        match self {
            Self::AppendSetup { .. } => APPEND_SETUP,
            Self::Appended { .. } => DATA_APPENDED,
            Self::ConditionFailed { .. } => CONDITIONAL_CHECK_FAILED,
            Self::Read { .. } => SEGMENT_READ,
            Self::Info(_) => SEGMENT_INFO,
            Self::Created(_) => SEGMENT_CREATED,
            Self::Sealed(_) => SEGMENT_SEALED,
            Self::Deleted(_) => SEGMENT_DELETED,
            Self::Truncated(_) => SEGMENT_TRUNCATED,
            Self::Attribute(_) => ATTRIBUTE,
            Self::AttributeUpdated(_) => ATTRIBUTE_UPDATED,
            Self::WrongHost { .. } => WRONG_HOST,
            Self::IsSealed { .. } => IS_SEALED,
            Self::AlreadyExists(_) => ALREADY_EXISTS,
            Self::NoSuchSegment { .. } => NO_SUCH_SEGMENT,
            Self::InvalidEventNumber { .. } => INVALID_EVENT_NUMBER,
            Self::IsTruncated { .. } => IS_TRUNCATED,
            Self::NotSupported(_) => NOT_SUPPORTED,
            Self::AuthFailed { .. } => AUTH_FAILED,
            Self::Error { .. } => ERROR_MESSAGE,
            Self::EntriesUpdated(_) => ENTRIES_UPDATED,
            Self::KeysRemoved(_) => KEYS_REMOVED,
            Self::TableRead { .. } => TABLE_READ,
            Self::NotEmpty(_) => NOT_EMPTY,
            Self::NoSuchKey(_) => NO_SUCH_KEY,
            Self::BadVersion(_) => BAD_VERSION,
            Self::KeysRead { .. } => KEYS_READ,
            Self::EntriesRead { .. } => ENTRIES_READ,
            Self::DeltaRead { .. } => DELTA_READ,
        }
    }

    /// Whether it is an answer to any request: something went wrong.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self.kind(), WRONG_HOST..=ERROR_MESSAGE | NOT_EMPTY..=BAD_VERSION)
    }

    /// The payload of a reply to the request with this id, for a peer that speaks so high a version.
    pub(crate) fn collect(&self, id: i64, version: i32) -> Result<Collector, Fault> {
        let mut frame = Collector::default();
        match self {
            Self::Read {
                segment,
                offset,
                is_tail,
                is_end,
                data,
            } => {
                frame.head.put_text(segment)?;
                frame.head.put_i64(*offset);
                frame.head.put_bool(*is_tail);
                frame.head.put_bool(*is_end);
                frame.head.put_length(data.len())?;
                frame.share(data);
                frame.head.put_i64(id);
            }
            Self::Appended {
                writer,
                number,
                previous,
                length,
            } => {
                let out = &mut frame.head;
                out.put_id(*writer);
                out.put_i64(*number);
                out.put_i64(previous.unwrap_or(crate::NEW));
                out.put_i64(id);
                out.put_i64(length.unwrap_or(-1));
            }
            Self::ConditionFailed { writer, number } => {
                frame.head.put_id(*writer);
                frame.head.put_i64(*number);
                frame.head.put_i64(id);
            }
            Self::InvalidEventNumber { writer, number } => {
                let out = &mut frame.head;
                out.put_id(*writer);
                if version >= NUMBER_BEHIND_FROM {
                    out.put_i64(id);
                    out.put_text("")?;
                    out.put_i64(number.unwrap_or(NO_REQUEST));
                } else {
                    out.put_i64(number.unwrap_or(NO_REQUEST));
                    out.put_text("")?;
                }
            }
            _ => {
                frame.head.put_i64(id);
                self.put_behind_id(&mut frame.head)?;
            }
        }
        check_length("a reply", frame.length() + 8, MAX_FRAME)?;
        Ok(frame)
    }

    fn put_behind_id(&self, out: &mut BytesMut) -> Result<(), Fault> {
        match self {
            Self::AppendSetup { segment, writer, last } => {
                out.put_text(segment)?;
                out.put_id(*writer);
                out.put_i64(*last);
            }
            Self::Info(info) => {
                out.put_text(&info.segment)?;
                out.put_bool(info.exists);
                out.put_bool(info.is_sealed);
                out.put_bool(info.is_deleted);
                out.put_i64(info.modified_ms);
                out.put_i64(info.length);
                out.put_i64(info.start.unwrap_or(0));
            }
            Self::Created(segment)
            | Self::Sealed(segment)
            | Self::Deleted(segment)
            | Self::Truncated(segment)
            | Self::KeysRemoved(segment) => out.put_text(segment)?,
            Self::Attribute(value) => out.put_i64(*value),
            Self::AttributeUpdated(is_done) => out.put_bool(*is_done),
            Self::WrongHost { segment, host } => {
                out.put_text(segment)?;
                out.put_text(host)?;
                out.put_text("")?;
            }
            Self::AlreadyExists(segment)
            | Self::NotEmpty(segment)
            | Self::NoSuchKey(segment)
            | Self::BadVersion(segment)
            | Self::NotSupported(segment) => {
                out.put_text(segment)?;
                out.put_text("")?;
            }
            Self::IsSealed { segment, offset } | Self::NoSuchSegment { segment, offset } => {
                out.put_text(segment)?;
                out.put_text("")?;
                out.put_i64(offset.unwrap_or(-1));
            }
            Self::IsTruncated { segment, start, offset } => {
                out.put_text(segment)?;
                out.put_i64(*start);
                out.put_text("")?;
                out.put_i64(offset.unwrap_or(-1));
            }
            Self::AuthFailed { code } => {
                out.put_text("")?;
                out.put_i32(code.unwrap_or(0));
            }
            Self::Error { segment, message, code } => {
                out.put_text(segment)?;
                out.put_text(message)?;
                out.put_i32(*code);
            }
            _ => self.put_of_table(out)?,
        }
        Ok(())
    }

    fn put_of_table(&self, out: &mut BytesMut) -> Result<(), Fault> {
        match self {
            Self::EntriesUpdated(versions) => {
                out.put_length(versions.len())?;
                versions.iter().for_each(|version| out.put_i64(*version));
            }
            Self::TableRead { segment, entries } => {
                out.put_text(segment)?;
                put_entries(entries, out)?;
            }
            Self::KeysRead {
                segment,
                keys,
                continuation,
            } => {
                out.put_text(segment)?;
                put_keys(keys, out)?;
                out.put_sized(continuation)?;
            }
            Self::EntriesRead {
                segment,
                entries,
                continuation,
            } => {
                out.put_text(segment)?;
                put_entries(entries, out)?;
                out.put_sized(continuation)?;
            }
            Self::DeltaRead {
                segment,
                entries,
                is_cleared,
                is_end,
                last,
            } => {
                out.put_text(segment)?;
                put_entries(entries, out)?;
                out.put_bool(*is_cleared);
                out.put_bool(*is_end);
                out.put_i64(*last);
            }
            // The others were written before.
            _ => {}
        }
        Ok(())
    }

    /// Reads a reply, and the id of its request; -1: not said.
    pub(crate) fn decode(kind: i32, payload: &Bytes) -> Result<(i64, Self), Fault> {
        let mut reader = Reader::new(payload);
        match kind {
            DATA_APPENDED => {
                let (writer, number) = (reader.id()?, reader.i64()?);
                let previous = reader.trailing_i64();
                let id = reader.trailing_request_id();
                let appended = Self::Appended {
                    writer,
                    number,
                    previous,
                    length: reader.trailing_i64().filter(|length| *length >= 0),
                };
                Ok((id, appended))
            }
            CONDITIONAL_CHECK_FAILED => {
                let (writer, number) = (reader.id()?, reader.i64()?);
                Ok((reader.trailing_request_id(), Self::ConditionFailed { writer, number }))
            }
            SEGMENT_READ => read_segment_read(&mut reader, payload),
            INVALID_EVENT_NUMBER => {
                let writer = reader.id()?;
                let first = reader.i64()?;
                reader.skip_text()?;
                // With a number behind it the first one is the request's id.
                Ok(match reader.trailing_i64() {
                    Some(number) => (
                        first,
                        Self::InvalidEventNumber {
                            writer,
                            number: Some(number),
                        },
                    ),
                    None => (
                        NO_REQUEST,
                        Self::InvalidEventNumber {
                            writer,
                            number: Some(first),
                        },
                    ),
                })
            }
            _ => {
                let id = reader.i64()?;
                Ok((id, Self::read_behind_id(kind, &mut reader, payload)?))
            }
        }
    }

    fn read_behind_id(kind: i32, reader: &mut Reader<'_>, payload: &Bytes) -> Result<Self, Fault> {
        Ok(match kind {
            APPEND_SETUP => Self::AppendSetup {
                segment: reader.text()?,
                writer: reader.id()?,
                last: reader.i64()?,
            },
            SEGMENT_INFO => Self::Info(SegmentInfo {
                segment: reader.text()?,
                exists: reader.bool()?,
                is_sealed: reader.bool()?,
                is_deleted: reader.bool()?,
                modified_ms: reader.i64()?,
                length: reader.i64()?,
                start: reader.trailing_i64(),
            }),
            SEGMENT_CREATED => Self::Created(reader.text()?),
            SEGMENT_SEALED => Self::Sealed(reader.text()?),
            SEGMENT_DELETED => Self::Deleted(reader.text()?),
            SEGMENT_TRUNCATED => Self::Truncated(reader.text()?),
            KEYS_REMOVED => Self::KeysRemoved(reader.text()?),
            ALREADY_EXISTS => Self::AlreadyExists(reader.text()?),
            NOT_EMPTY => Self::NotEmpty(reader.text()?),
            NO_SUCH_KEY => Self::NoSuchKey(reader.text()?),
            BAD_VERSION => Self::BadVersion(reader.text()?),
            NOT_SUPPORTED => Self::NotSupported(reader.text()?),
            ATTRIBUTE => Self::Attribute(reader.i64()?),
            ATTRIBUTE_UPDATED => Self::AttributeUpdated(reader.bool()?),
            WRONG_HOST => Self::WrongHost {
                segment: reader.text()?,
                host: reader.text()?,
            },
            IS_SEALED | NO_SUCH_SEGMENT => {
                let segment = reader.text()?;
                reader.skip_text()?;
                let offset = reader.trailing_i64();
                match kind {
                    IS_SEALED => Self::IsSealed { segment, offset },
                    _ => Self::NoSuchSegment { segment, offset },
                }
            }
            IS_TRUNCATED => {
                let (segment, start) = (reader.text()?, reader.i64()?);
                reader.skip_text()?;
                Self::IsTruncated {
                    segment,
                    start,
                    offset: reader.trailing_i64(),
                }
            }
            AUTH_FAILED => {
                reader.skip_text()?;
                Self::AuthFailed {
                    code: reader.trailing_i32(),
                }
            }
            ERROR_MESSAGE => Self::Error {
                segment: reader.text()?,
                message: reader.text()?,
                code: reader.i32()?,
            },
            _ => return Self::read_of_table(kind, reader, payload),
        })
    }

    fn read_of_table(kind: i32, reader: &mut Reader<'_>, payload: &Bytes) -> Result<Self, Fault> {
        if kind == ENTRIES_UPDATED {
            let count = reader.count(8)?;
            let versions: Result<_, _> = (0..count).map(|_| reader.i64()).collect();
            return versions.map(Self::EntriesUpdated);
        }
        let segment = reader.text()?;
        Ok(match kind {
            TABLE_READ => Self::TableRead {
                segment,
                entries: read_entries(reader, payload)?,
            },
            KEYS_READ => Self::KeysRead {
                segment,
                keys: read_keys(reader, payload)?,
                continuation: payload.slice_ref(reader.sized()?),
            },
            ENTRIES_READ => Self::EntriesRead {
                segment,
                entries: read_entries(reader, payload)?,
                continuation: payload.slice_ref(reader.sized()?),
            },
            DELTA_READ => Self::DeltaRead {
                segment,
                entries: read_entries(reader, payload)?,
                is_cleared: reader.bool()?,
                is_end: reader.bool()?,
                last: reader.i64()?,
            },
            other => return Err(Fault::NoEvent(other)),
        })
    }
}

/// From which version on InvalidEventNumber has the number behind the request's id.
const NUMBER_BEHIND_FROM: i32 = 16;

fn read_segment_read(reader: &mut Reader<'_>, payload: &Bytes) -> Result<(i64, Reply), Fault> {
    let (segment, offset) = (reader.text()?, reader.i64()?);
    let (is_tail, is_end) = (reader.bool()?, reader.bool()?);
    let mut sized = reader.clone();
    // Nothing, from amid a segment, would be no answer: it is the beginning of an event, and its length is not stated.
    let is_answer = |data: &&[u8]| !data.is_empty() || is_tail || is_end;
    let data = match sized.sized_before([0, 8]).filter(is_answer) {
        Some(data) => {
            *reader = sized;
            data
        }
        None => reader.rest(),
    };
    let read = Reply::Read {
        segment,
        offset,
        is_tail,
        is_end,
        data: payload.slice_ref(data),
    };
    Ok((reader.trailing_request_id(), read))
}
