//! What clients ask.

use bytes::{BufMut, Bytes};
use sbp_wire::Collector;

use crate::coding::{Put, Reader, WriterId, check_length};
use crate::fault::Fault;
use crate::kinds::{
    APPEND_BLOCK_END, APPEND_SETUP, ATTRIBUTE, ATTRIBUTE_UPDATED, CONDITIONAL_APPEND, CONDITIONAL_BLOCK_END,
    CREATE_SEGMENT, CREATE_TABLE, DATA_APPENDED, DELETE_SEGMENT, DELETE_TABLE, DELTA_READ, ENTRIES_READ,
    ENTRIES_UPDATED, GET_ATTRIBUTE, GET_SEGMENT_INFO, KEYS_READ, KEYS_REMOVED, READ_DELTA, READ_ENTRIES, READ_KEYS,
    READ_SEGMENT, READ_TABLE, REMOVE_KEYS, SEAL_SEGMENT, SEGMENT_CREATED, SEGMENT_DELETED, SEGMENT_INFO, SEGMENT_READ,
    SEGMENT_SEALED, SEGMENT_TRUNCATED, SETUP_APPEND, TABLE_READ, TRUNCATE_SEGMENT, UPDATE_ATTRIBUTE, UPDATE_ENTRIES,
};
use crate::limits::{EVENT_HEAD, MAX_APPEND, MAX_EVENT, MAX_FRAME};
use crate::table::{TableEntry, TableKey, put_entries, put_keys, read_entries, read_keys};

/// An attribute of a segment: a name, and the token for who may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The segment.
    pub segment: String,
    /// The attribute.
    pub id: WriterId,
    /// A delegation token, or nothing.
    pub token: String,
}

/// What is appended where a segment has exactly the length expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conditional {
    /// An event, which is stored behind its head.
    Event(Bytes),
    /// Bytes, stored as they are.
    Bytes(Bytes),
}

/// A request. `token` is a delegation token, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// A writer is going to append.
    SetupAppend {
        /// The writer.
        writer: WriterId,
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
    },
    /// Events to be appended, all or none.
    Append {
        /// The writer, whose segment SetupAppend has named.
        writer: WriterId,
        /// The bytes to be appended: events with their heads.
        data: Bytes,
        /// How many events.
        events: i32,
        /// The number of the last one among the writer's.
        last: i64,
    },
    /// The same if the segment has a certain length.
    ConditionalAppend {
        /// The writer.
        writer: WriterId,
        /// The number of the event.
        number: i64,
        /// The length that the segment has to have.
        expected: i64,
        /// What is appended.
        data: Conditional,
    },
    /// Bytes of a segment.
    Read {
        /// The segment.
        segment: String,
        /// The first byte.
        offset: i64,
        /// How many, about.
        length: i32,
        /// For who may do it.
        token: String,
    },
    /// What a segment is.
    Info {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
    },
    /// A new segment.
    Create {
        /// The segment.
        segment: String,
        /// The target rate of its scaling.
        rate: i32,
        /// How it scales; 0: not at all.
        scale: i8,
        /// For who may do it.
        token: String,
        /// At how many bytes it begins another chunk in its storage; `None`: not said.
        rollover: Option<i64>,
    },
    /// Nothing more is appended to a segment.
    Seal {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
    },
    /// A segment is removed.
    Delete {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
    },
    /// What is before an offset is removed.
    Truncate {
        /// The segment.
        segment: String,
        /// The first byte that is kept.
        offset: i64,
        /// For who may do it.
        token: String,
    },
    /// The value of an attribute.
    GetAttribute(Attribute),
    /// Sets an attribute that has a certain value.
    UpdateAttribute {
        /// The attribute.
        attribute: Attribute,
        /// The new value.
        value: i64,
        /// The value that it has to have; [`crate::NEW`]: none.
        expected: i64,
    },
    /// A new table.
    CreateTable {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
        /// Whether its keys are sorted; `None`: not said.
        is_sorted: Option<bool>,
        /// Bytes of its keys, where all have the same number.
        key_length: Option<i32>,
        /// At how many bytes it begins another chunk in its storage.
        rollover: Option<i64>,
    },
    /// A table is removed.
    DeleteTable {
        /// The segment.
        segment: String,
        /// Whether only an empty one is.
        must_be_empty: bool,
        /// For who may do it.
        token: String,
    },
    /// Entries are put into a table, all or none.
    UpdateEntries {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
        /// The entries, with the versions that their keys have to have.
        entries: Vec<TableEntry>,
        /// The length that the table has to have; `None`: not said; -1: any.
        expected: Option<i64>,
    },
    /// Keys are taken out of a table, all or none.
    RemoveKeys {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
        /// The keys.
        keys: Vec<TableKey>,
        /// The length that the table has to have; `None`: not said; -1: any.
        expected: Option<i64>,
    },
    /// The values of keys.
    ReadTable {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
        /// The keys.
        keys: Vec<TableKey>,
    },
    /// A page of a table's keys.
    ReadKeys(Page),
    /// A page of a table's entries.
    ReadEntries(Page),
    /// What has changed in a table.
    ReadDelta {
        /// The segment.
        segment: String,
        /// For who may do it.
        token: String,
        /// From where on.
        from: i64,
        /// How many entries at most.
        most: i32,
    },
}

/// Which page of a table is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The segment.
    pub segment: String,
    /// For who may do it.
    pub token: String,
    /// How many at most.
    pub most: i32,
    /// Where the page before it ended; empty: the first one.
    pub continuation: Bytes,
}

impl Request {
    /// The request's type and payload.
    ///
    /// # Errors
    /// It does not fit into a frame.
    pub(crate) fn collect(&self, id: i64) -> Result<(i32, Collector), Fault> {
        let mut frame = Collector::default();
        let kind = self.put(id, &mut frame)?;
        check_length("a request", frame.length() + 8, MAX_FRAME)?;
        Ok((kind, frame))
    }

    fn put(&self, id: i64, frame: &mut Collector) -> Result<i32, Fault> {
        let kind = match self {
            Self::Append {
                writer,
                data,
                events,
                last,
            } => {
                frame.head.put_id(*writer);
                frame.head.put_length(data.len())?;
                frame.head.put_length(data.len())?;
                frame.share(data);
                frame.head.put_i32(*events);
                frame.head.put_i64(*last);
                frame.head.put_i64(id);
                APPEND_BLOCK_END
            }
            Self::ConditionalAppend {
                writer,
                number,
                expected,
                data,
            } => {
                frame.head.put_id(*writer);
                frame.head.put_i64(*number);
                frame.head.put_i64(*expected);
                let (kind, bytes) = match data {
                    Conditional::Event(event) => {
                        check_length("an event", event.len(), MAX_EVENT)?;
                        frame.head.put_i32(0);
                        (CONDITIONAL_APPEND, event)
                    }
                    Conditional::Bytes(bytes) => (CONDITIONAL_BLOCK_END, bytes),
                };
                frame.head.put_length(bytes.len())?;
                frame.share(bytes);
                frame.head.put_i64(id);
                kind
            }
            Self::Read {
                segment,
                offset,
                length,
                token,
            } => {
                let out = &mut frame.head;
                out.put_text(segment)?;
                out.put_i64(*offset);
                out.put_i32(*length);
                out.put_text(token)?;
                out.put_i64(id);
                READ_SEGMENT
            }
            _ => {
                frame.head.put_i64(id);
                self.put_behind_id(frame)?
            }
        };
        Ok(kind)
    }

    /// Requests that begin with their id.
    fn put_behind_id(&self, frame: &mut Collector) -> Result<i32, Fault> {
        let out = &mut frame.head;
        let kind = match self {
            Self::SetupAppend { writer, segment, token } => {
                out.put_id(*writer);
                out.put_text(segment)?;
                out.put_text(token)?;
                SETUP_APPEND
            }
            Self::Info { segment, token } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                GET_SEGMENT_INFO
            }
            Self::Create {
                segment,
                rate,
                scale,
                token,
                rollover,
            } => {
                out.put_text(segment)?;
                out.put_i32(*rate);
                out.put_i8(*scale);
                out.put_text(token)?;
                out.put_i64(rollover.unwrap_or(0));
                CREATE_SEGMENT
            }
            Self::Seal { segment, token } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                SEAL_SEGMENT
            }
            Self::Delete { segment, token } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                DELETE_SEGMENT
            }
            Self::Truncate { segment, offset, token } => {
                out.put_text(segment)?;
                out.put_i64(*offset);
                out.put_text(token)?;
                TRUNCATE_SEGMENT
            }
            Self::GetAttribute(attribute) => {
                out.put_text(&attribute.segment)?;
                out.put_id(attribute.id);
                out.put_text(&attribute.token)?;
                GET_ATTRIBUTE
            }
            Self::UpdateAttribute {
                attribute,
                value,
                expected,
            } => {
                out.put_text(&attribute.segment)?;
                out.put_id(attribute.id);
                out.put_i64(*value);
                out.put_i64(*expected);
                out.put_text(&attribute.token)?;
                UPDATE_ATTRIBUTE
            }
            _ => return self.put_of_table(frame),
        };
        Ok(kind)
    }

    fn put_of_table(&self, frame: &mut Collector) -> Result<i32, Fault> {
        let out = &mut frame.head;
        let kind = match self {
            Self::CreateTable {
                segment,
                token,
                is_sorted,
                key_length,
                rollover,
            } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                if let Some(is_sorted) = is_sorted {
                    out.put_bool(*is_sorted);
                    out.put_i32(key_length.unwrap_or(0));
                    out.put_i64(rollover.unwrap_or(0));
                }
                CREATE_TABLE
            }
            Self::DeleteTable {
                segment,
                must_be_empty,
                token,
            } => {
                out.put_text(segment)?;
                out.put_bool(*must_be_empty);
                out.put_text(token)?;
                DELETE_TABLE
            }
            Self::UpdateEntries {
                segment,
                token,
                entries,
                expected,
            } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                put_entries(entries, out)?;
                expected.iter().for_each(|expected| out.put_i64(*expected));
                UPDATE_ENTRIES
            }
            Self::RemoveKeys {
                segment,
                token,
                keys,
                expected,
            } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                put_keys(keys, out)?;
                expected.iter().for_each(|expected| out.put_i64(*expected));
                REMOVE_KEYS
            }
            _ => return self.put_of_reading(frame),
        };
        Ok(kind)
    }

    fn put_of_reading(&self, frame: &mut Collector) -> Result<i32, Fault> {
        let out = &mut frame.head;
        let kind = match self {
            Self::ReadTable { segment, token, keys } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                put_keys(keys, out)?;
                READ_TABLE
            }
            Self::ReadDelta {
                segment,
                token,
                from,
                most,
            } => {
                out.put_text(segment)?;
                out.put_text(token)?;
                out.put_i64(*from);
                out.put_i32(*most);
                READ_DELTA
            }
            Self::ReadKeys(page) => {
                page.put(frame)?;
                READ_KEYS
            }
            Self::ReadEntries(page) => {
                page.put(frame)?;
                READ_ENTRIES
            }
            // The others were written before.
            _ => return Err(Fault::NoEvent(0)),
        };
        Ok(kind)
    }

    /// Reads a request that is not part of an append, and its id.
    pub(crate) fn decode(kind: i32, payload: &Bytes) -> Result<(i64, Self), Fault> {
        let mut reader = Reader::new(payload);
        match kind {
            CONDITIONAL_APPEND | CONDITIONAL_BLOCK_END => read_conditional(kind, &mut reader, payload),
            READ_SEGMENT => {
                let read = Self::Read {
                    segment: reader.text()?,
                    offset: reader.i64()?,
                    length: reader.i32()?,
                    token: reader.text()?,
                };
                Ok((reader.trailing_request_id(), read))
            }
            _ => {
                let id = reader.i64()?;
                Ok((id, Self::read_behind_id(kind, &mut reader, payload)?))
            }
        }
    }

    fn read_behind_id(kind: i32, reader: &mut Reader<'_>, payload: &Bytes) -> Result<Self, Fault> {
        if kind == SETUP_APPEND {
            return Ok(Self::SetupAppend {
                writer: reader.id()?,
                segment: reader.text()?,
                token: reader.text()?,
            });
        }
        let segment = reader.text()?;
        Ok(match kind {
            GET_SEGMENT_INFO => Self::Info {
                segment,
                token: reader.text()?,
            },
            CREATE_SEGMENT => Self::Create {
                segment,
                rate: reader.i32()?,
                scale: reader.i8()?,
                token: reader.text()?,
                rollover: reader.trailing_i64(),
            },
            SEAL_SEGMENT => Self::Seal {
                segment,
                token: reader.text()?,
            },
            DELETE_SEGMENT => Self::Delete {
                segment,
                token: reader.text()?,
            },
            TRUNCATE_SEGMENT => Self::Truncate {
                segment,
                offset: reader.i64()?,
                token: reader.text()?,
            },
            GET_ATTRIBUTE => Self::GetAttribute(Attribute {
                segment,
                id: reader.id()?,
                token: reader.text()?,
            }),
            UPDATE_ATTRIBUTE => {
                let (id, value, expected) = (reader.id()?, reader.i64()?, reader.i64()?);
                let token = reader.text()?;
                Self::UpdateAttribute {
                    attribute: Attribute { segment, id, token },
                    value,
                    expected,
                }
            }
            DELETE_TABLE => Self::DeleteTable {
                segment,
                must_be_empty: reader.bool()?,
                token: reader.text()?,
            },
            _ => return Self::read_of_table(kind, segment, reader, payload),
        })
    }

    fn read_of_table(kind: i32, segment: String, reader: &mut Reader<'_>, payload: &Bytes) -> Result<Self, Fault> {
        let token = reader.text()?;
        Ok(match kind {
            CREATE_TABLE => Self::CreateTable {
                segment,
                token,
                is_sorted: reader.bool().ok(),
                key_length: reader.trailing_i32(),
                rollover: reader.trailing_i64(),
            },
            UPDATE_ENTRIES => Self::UpdateEntries {
                segment,
                token,
                entries: read_entries(reader, payload)?,
                expected: reader.trailing_i64(),
            },
            REMOVE_KEYS => Self::RemoveKeys {
                segment,
                token,
                keys: read_keys(reader, payload)?,
                expected: reader.trailing_i64(),
            },
            READ_TABLE => Self::ReadTable {
                segment,
                token,
                keys: read_keys(reader, payload)?,
            },
            READ_DELTA => Self::ReadDelta {
                segment,
                token,
                from: reader.i64()?,
                most: reader.i32()?,
            },
            READ_KEYS => Self::ReadKeys(Page::read(segment, token, reader, payload)?),
            READ_ENTRIES => Self::ReadEntries(Page::read(segment, token, reader, payload)?),
            other => return Err(Fault::NoEvent(other)),
        })
    }
}

impl Page {
    fn put(&self, frame: &mut Collector) -> Result<(), Fault> {
        let out = &mut frame.head;
        out.put_text(&self.segment)?;
        out.put_text(&self.token)?;
        out.put_i32(self.most);
        out.put_sized(&self.continuation)?;
        // Bounds of the keys, for tables whose keys are sorted: none.
        out.put_i32(0);
        out.put_i32(0);
        out.put_i32(0);
        Ok(())
    }

    fn read(segment: String, token: String, reader: &mut Reader<'_>, payload: &Bytes) -> Result<Self, Fault> {
        Ok(Self {
            segment,
            token,
            most: reader.i32()?,
            continuation: payload.slice_ref(reader.sized()?),
        })
    }
}

fn read_conditional(kind: i32, reader: &mut Reader<'_>, payload: &Bytes) -> Result<(i64, Request), Fault> {
    let (writer, number, expected) = (reader.id()?, reader.i64()?, reader.i64()?);
    let data = match kind {
        CONDITIONAL_APPEND => {
            match reader.i32()? {
                0 => {}
                other => return Err(Fault::NoEvent(other)),
            }
            let event = payload.slice_ref(reader.sized()?);
            check_length("an event", event.len(), MAX_EVENT)?;
            Conditional::Event(event)
        }
        _ => Conditional::Bytes(payload.slice_ref(reader.sized()?)),
    };
    let append = Request::ConditionalAppend {
        writer,
        number,
        expected,
        data,
    };
    Ok((reader.trailing_request_id(), append))
}

/// The end of an append.
#[derive(Debug)]
pub(crate) struct BlockEnd {
    pub(crate) writer: WriterId,
    /// Bytes of whole events in the block before.
    pub(crate) whole: i32,
    pub(crate) data: Bytes,
    pub(crate) events: i32,
    pub(crate) last: i64,
    pub(crate) id: i64,
}

/// Bytes behind the data of the end of an append: how many events, and the number of the last one; in newer versions the
/// request's id too.
const END_TAIL: usize = 12;

impl BlockEnd {
    /// Reads the end of an append in the forms that it may have: first with the length of its data, where that adds up, then
    /// without, as the page has it.
    pub(crate) fn readings(payload: &Bytes) -> impl Iterator<Item = Result<Self, Fault>> {
        [Self::read_sized(payload), Some(Self::read_unsized(payload))]
            .into_iter()
            .flatten()
    }

    fn read_sized(payload: &Bytes) -> Option<Result<Self, Fault>> {
        let mut reader = Reader::new(payload);
        let (writer, whole) = (reader.id().ok()?, reader.i32().ok()?);
        let data = reader.sized_before([END_TAIL, END_TAIL + 8])?;
        Some(Self::read_behind(payload, writer, whole, data, &mut reader))
    }

    fn read_unsized(payload: &Bytes) -> Result<Self, Fault> {
        let mut reader = Reader::new(payload);
        let (writer, whole) = (reader.id()?, reader.i32()?);
        let data = reader.up_to(END_TAIL)?;
        Self::read_behind(payload, writer, whole, data, &mut reader)
    }

    fn read_behind(
        payload: &Bytes,
        writer: WriterId,
        whole: i32,
        data: &[u8],
        reader: &mut Reader<'_>,
    ) -> Result<Self, Fault> {
        let (events, last) = (reader.i32()?, reader.i64()?);
        if events <= 0 {
            return Err(Fault::NoEvents(events));
        }
        Ok(Self {
            writer,
            whole,
            data: payload.slice_ref(data),
            events,
            last,
            id: reader.trailing_request_id(),
        })
    }
}

/// The frame of an append has room for an event of any length that there may be.
const _: () = assert!(8 + 16 + 4 + 4 + END_TAIL + 8 + EVENT_HEAD + MAX_EVENT < MAX_APPEND);

impl Request {
    /// The type of the reply, where nothing goes wrong.
    pub(crate) fn reply_kind(&self) -> i32 {
        match self {
            Self::SetupAppend { .. } => APPEND_SETUP,
            Self::Append { .. } | Self::ConditionalAppend { .. } => DATA_APPENDED,
            Self::Read { .. } => SEGMENT_READ,
            Self::Info { .. } => SEGMENT_INFO,
            Self::Create { .. } | Self::CreateTable { .. } => SEGMENT_CREATED,
            Self::Seal { .. } => SEGMENT_SEALED,
            Self::Delete { .. } | Self::DeleteTable { .. } => SEGMENT_DELETED,
            Self::Truncate { .. } => SEGMENT_TRUNCATED,
            Self::GetAttribute(_) => ATTRIBUTE,
            Self::UpdateAttribute { .. } => ATTRIBUTE_UPDATED,
            Self::UpdateEntries { .. } => ENTRIES_UPDATED,
            Self::RemoveKeys { .. } => KEYS_REMOVED,
            Self::ReadTable { .. } => TABLE_READ,
            Self::ReadKeys(_) => KEYS_READ,
            Self::ReadEntries(_) => ENTRIES_READ,
            Self::ReadDelta { .. } => DELTA_READ,
        }
    }
}
