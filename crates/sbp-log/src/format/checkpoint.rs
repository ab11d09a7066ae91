//! Checkpoints: the log's state after one group, so that recovery need not replay earlier groups.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, TryGetError};
use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

use super::clean::GroupMark;
use super::record::RecordHead;
use super::{Unreadable, begin_envelope, open_envelope, seal_envelope};
use crate::{EntryHead, WRITER_WINDOW, WriterBatch, WriterKey, WriterState};

const MAGIC: &[u8; 8] = b"SBPCHECK";

/// A segment that was live at the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentItem {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) first_group: u64,
    /// The last group that the checkpoint covers; the newest segment may have later ones.
    pub(crate) last_group: u64,
    /// Whether the segment has damage that hides records. Such a segment is kept.
    pub(crate) damaged: bool,
}

/// A compacted file. It has group numbers of its own, none above that of the newest segment it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactedItem {
    pub(crate) segment: SegmentItem,
    /// Its place in the order of the segments, by their numbers.
    pub(crate) order: u64,
}

/// A range as it was at the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeItem {
    pub(crate) key: RangeKey,
    /// The first offset a live segment holds.
    pub(crate) first: Offset,
    /// Records below this offset are not needed; it may lie before `first`.
    pub(crate) released: Offset,
    /// One past the offset of the last record.
    pub(crate) end: Offset,
    pub(crate) epoch: Epoch,
    /// False when damage may hide records after `end`.
    pub(crate) proven: bool,
    /// Offsets that cannot be read, ordered.
    pub(crate) damage: Vec<(Offset, Offset)>,
}

/// A mark of a range, and where its record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkPlace {
    /// Where it stands in its range.
    pub(crate) position: Position,
    /// The number of the file.
    pub(crate) segment: u64,
    /// The position of its head in the file.
    pub(crate) place: u32,
    /// The length of its bytes.
    pub(crate) length: u32,
}

/// What a range has beside its offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PositionsItem {
    pub(crate) key: RangeKey,
    /// How many marks stand at its end.
    pub(crate) end_marks: u32,
    /// Where it ends, if the owner has said so.
    pub(crate) ended: Option<Position>,
    /// Whether other servers have copies of it.
    pub(crate) shared: bool,
    /// The marks that can be read, ordered.
    pub(crate) marks: Vec<MarkPlace>,
}

/// An entry that does not count for its writer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitingItem {
    pub(crate) head: EntryHead,
    /// The bytes of a part of the state of the writers; none of other entries.
    pub(crate) bytes: Bytes,
}

/// The contents of a checkpoint file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The number of the checkpoint in the life of the directory; also the file's name.
    pub(crate) sequence: u64,
    /// The last group it covers.
    pub(crate) covered: GroupMark,
    /// Whether damage may hide the only records of ranges that are not listed.
    pub(crate) unlisted_damage: bool,
    pub(crate) segments: Vec<SegmentItem>,
    pub(crate) compacted: Vec<CompactedItem>,
    pub(crate) ranges: Vec<RangeItem>,
    /// Of those ranges that have marks or were ended.
    pub(crate) positions: Vec<PositionsItem>,
    /// Entries of shared ranges that are not known to be confirmed, in the order of each range.
    pub(crate) waiting: Vec<WaitingItem>,
    /// How far the entries of a stream count for its writers: the newest range, and a place in it. Of the streams for which
    /// that is not simply the end of the log.
    pub(crate) folded: Vec<(StreamId, RangeIndex, Position)>,
    /// The newest append time in the log.
    pub(crate) newest_append: TimestampMs,
    /// The state of every writer, ordered by key.
    pub(crate) writers: Vec<(WriterKey, WriterState)>,
}

/// The sections of a checkpoint. Each begins with its `tag`, `version` and `length`, so that a release can add
/// sections.
const SECTION_SEGMENTS: u32 = 1;
const SECTION_RANGES: u32 = 2;
/// Left out when there are no writers, so that a release without this section can still read the directory.
const SECTION_WRITERS: u32 = 3;
/// Left out when there are no compacted files, for the same reason.
const SECTION_COMPACTED: u32 = 4;
/// Left out when there are neither marks nor ended ranges.
const SECTION_POSITIONS: u32 = 5;
/// Left out when no entry waits to be confirmed.
const SECTION_WAITING: u32 = 6;
/// Left out when there is no stream with shared ranges or states of writers.
const SECTION_FOLDED: u32 = 7;

const SECTION_VERSION: u32 = 1;

impl Checkpoint {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = begin_envelope(MAGIC);
        out.put_u64_le(self.sequence);
        self.covered.put(&mut out);
        out.put_u32_le(u32::from(self.unlisted_damage));
        put_section(&mut out, SECTION_SEGMENTS, |out| {
            for item in &self.segments {
                put_segment(out, item);
            }
        });
        put_section(&mut out, SECTION_RANGES, |out| {
            for item in &self.ranges {
                put_range(out, item);
            }
        });
        if !self.writers.is_empty() {
            put_section(&mut out, SECTION_WRITERS, |out| {
                out.put_i64_le(self.newest_append.0);
                for (key, state) in &self.writers {
                    put_writer(out, key, state);
                }
            });
        }
        if !self.compacted.is_empty() {
            put_section(&mut out, SECTION_COMPACTED, |out| {
                for item in &self.compacted {
                    put_segment(out, &item.segment);
                    out.put_u64_le(item.order);
                }
            });
        }
        put_items(&mut out, SECTION_POSITIONS, &self.positions, put_positions);
        put_items(&mut out, SECTION_WAITING, &self.waiting, put_waiting);
        put_items(
            &mut out,
            SECTION_FOLDED,
            &self.folded,
            |out, (stream, range, position)| {
                out.put_i64_le(stream.0);
                out.put_i32_le(range.0);
                put_position(out, *position);
            },
        );
        seal_envelope(out)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut fields = open_envelope(bytes, MAGIC)?;
        let mut checkpoint = Self {
            sequence: fields.try_get_u64_le()?,
            covered: GroupMark::take(&mut fields)?,
            unlisted_damage: fields.try_get_u32_le()? & 1 != 0,
            ..Self::default()
        };
        while !fields.is_empty() {
            let tag = fields.try_get_u32_le()?;
            let version = fields.try_get_u32_le()?;
            let length = usize::try_from(fields.try_get_u64_le()?).unwrap_or(usize::MAX);
            let Some(mut section) = fields.split_off(..length) else {
                return Err(Unreadable::Bad("too short"));
            };
            match (tag, version) {
                (SECTION_SEGMENTS, SECTION_VERSION) => {
                    checkpoint.segments = take_all(section, take_segment, "a segment's entry is cut")?;
                }
                (SECTION_RANGES, SECTION_VERSION) => {
                    checkpoint.ranges = take_all(section, take_range, "a range's entry is cut")?;
                }
                (SECTION_COMPACTED, SECTION_VERSION) => {
                    checkpoint.compacted = take_all(section, take_compacted, "an entry of remains is cut")?;
                }
                (SECTION_POSITIONS, SECTION_VERSION) => {
                    checkpoint.positions = take_all(section, take_positions, "the marks of a range are cut")?;
                }
                (SECTION_WAITING, SECTION_VERSION) => {
                    let cut = Unreadable::Bad("an entry that waits is cut");
                    while !section.is_empty() {
                        checkpoint.waiting.push(take_waiting(&mut section).ok_or(cut.clone())?);
                    }
                }
                (SECTION_FOLDED, SECTION_VERSION) => {
                    checkpoint.folded = take_all(section, take_folded, "a stream's entry is cut")?;
                }
                (SECTION_WRITERS, SECTION_VERSION) => {
                    let newest = section.try_get_i64_le();
                    checkpoint.newest_append = TimestampMs(newest.map_err(|_| Unreadable::Bad("the writers are cut"))?);
                    checkpoint.writers = take_all(section, take_writer, "a writer's entry is cut")?;
                    if checkpoint
                        .writers
                        .iter()
                        .any(|(_, state)| state.window.len() > WRITER_WINDOW)
                    {
                        return Err(Unreadable::Bad("a writer's window is too long"));
                    }
                }
                // A section that is not understood cannot be skipped, because its state would be lost.
                _ => {
                    return Err(Unreadable::Newer {
                        found: version.max(super::FORMAT_VERSION + 1),
                        supported: super::FORMAT_VERSION,
                    });
                }
            }
        }
        Ok(checkpoint)
    }
}

fn put_section(out: &mut Vec<u8>, tag: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    out.put_u32_le(tag);
    out.put_u32_le(SECTION_VERSION);
    let length_at = out.len();
    out.put_u64_le(0);
    let start = out.len();
    fill(out);
    let length = (out.len() - start) as u64;
    super::put(out, length_at, length.to_le_bytes());
}

/// A section that is left out when it is empty.
fn put_items<T>(out: &mut Vec<u8>, tag: u32, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    if !items.is_empty() {
        put_section(out, tag, |out| items.iter().for_each(|item| put(out, item)));
    }
}

/// The entries of a section, up to its end.
fn take_all<T>(
    mut section: &[u8],
    take: impl Fn(&mut &[u8]) -> Result<T, TryGetError>,
    cut: &'static str,
) -> Result<Vec<T>, Unreadable> {
    let mut items = Vec::new();
    while !section.is_empty() {
        items.push(take(&mut section).map_err(|_| Unreadable::Bad(cut))?);
    }
    Ok(items)
}

fn put_segment(out: &mut Vec<u8>, item: &SegmentItem) {
    for word in [item.number, item.salt, item.first_group, item.last_group] {
        out.put_u64_le(word);
    }
    out.put_u64_le(u64::from(item.damaged));
}

fn take_segment(fields: &mut &[u8]) -> Result<SegmentItem, TryGetError> {
    Ok(SegmentItem {
        number: fields.try_get_u64_le()?,
        salt: fields.try_get_u64_le()?,
        first_group: fields.try_get_u64_le()?,
        last_group: fields.try_get_u64_le()?,
        damaged: fields.try_get_u64_le()? & 1 != 0,
    })
}

fn take_compacted(fields: &mut &[u8]) -> Result<CompactedItem, TryGetError> {
    Ok(CompactedItem {
        segment: take_segment(fields)?,
        order: fields.try_get_u64_le()?,
    })
}

fn put_range(out: &mut Vec<u8>, item: &RangeItem) {
    out.put_i64_le(item.key.stream.0);
    out.put_i32_le(item.key.range.0);
    out.put_u32_le(u32::from(item.proven));
    for word in [item.first.0, item.released.0, item.end.0, item.epoch.0] {
        out.put_i64_le(word);
    }
    out.put_u64_le(item.damage.len() as u64);
    for (from, to) in &item.damage {
        out.put_i64_le(from.0);
        out.put_i64_le(to.0);
    }
}

fn take_range(fields: &mut &[u8]) -> Result<RangeItem, TryGetError> {
    let mut item = RangeItem {
        key: RangeKey {
            stream: StreamId(fields.try_get_i64_le()?),
            range: RangeIndex(fields.try_get_i32_le()?),
        },
        proven: fields.try_get_u32_le()? & 1 != 0,
        first: Offset(fields.try_get_i64_le()?),
        released: Offset(fields.try_get_i64_le()?),
        end: Offset(fields.try_get_i64_le()?),
        epoch: Epoch(fields.try_get_i64_le()?),
        damage: Vec::new(),
    };
    for _ in 0..fields.try_get_u64_le()? {
        let interval = (Offset(fields.try_get_i64_le()?), Offset(fields.try_get_i64_le()?));
        item.damage.push(interval);
    }
    Ok(item)
}

/// The flag of ranges that were ended.
const FLAG_ENDED: u32 = 1;
/// The flag of ranges with copies on other servers.
const FLAG_SHARED: u32 = 2;

fn put_position(out: &mut Vec<u8>, position: Position) {
    out.put_i64_le(position.offset.0);
    out.put_u32_le(position.marks);
}

fn take_position(fields: &mut &[u8]) -> Result<Position, TryGetError> {
    Ok(Position {
        offset: Offset(fields.try_get_i64_le()?),
        marks: fields.try_get_u32_le()?,
    })
}

fn put_waiting(out: &mut Vec<u8>, item: &WaitingItem) {
    let record = RecordHead {
        head: item.head,
        batch_len: u32::try_from(item.bytes.len()).unwrap_or(u32::MAX),
        batch_crc: 0,
    };
    out.extend_from_slice(&record.encode(0));
    out.extend_from_slice(&item.bytes);
}

/// The next entry that waits; `None` if it is cut or impossible.
fn take_waiting(section: &mut &[u8]) -> Option<WaitingItem> {
    let record = RecordHead::parse(section, 0)?;
    section.advance(RecordHead::LEN);
    let bytes = section.split_off(..record.batch_len as usize)?;
    Some(WaitingItem {
        head: record.head,
        bytes: Bytes::copy_from_slice(bytes),
    })
}

fn take_folded(fields: &mut &[u8]) -> Result<(StreamId, RangeIndex, Position), TryGetError> {
    Ok((
        StreamId(fields.try_get_i64_le()?),
        RangeIndex(fields.try_get_i32_le()?),
        take_position(fields)?,
    ))
}

fn put_positions(out: &mut Vec<u8>, item: &PositionsItem) {
    let flags = [(item.ended.is_some(), FLAG_ENDED), (item.shared, FLAG_SHARED)];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
    out.put_i64_le(item.key.stream.0);
    out.put_i32_le(item.key.range.0);
    out.put_u32_le(flags.map(|(_, flag)| flag).sum());
    put_position(out, item.ended.unwrap_or_default());
    out.put_u32_le(item.end_marks);
    out.put_u64_le(item.marks.len() as u64);
    for mark in &item.marks {
        out.put_i64_le(mark.position.offset.0);
        out.put_u64_le(mark.segment);
        out.put_u32_le(mark.position.marks);
        out.put_u32_le(mark.place);
        out.put_u32_le(mark.length);
        out.put_u32_le(0);
    }
}

fn take_positions(fields: &mut &[u8]) -> Result<PositionsItem, TryGetError> {
    let stream = StreamId(fields.try_get_i64_le()?);
    let range = RangeIndex(fields.try_get_i32_le()?);
    let flags = fields.try_get_u32_le()?;
    let ended = take_position(fields)?;
    let mut item = PositionsItem {
        key: RangeKey { stream, range },
        end_marks: fields.try_get_u32_le()?,
        ended: (flags & FLAG_ENDED != 0).then_some(ended),
        shared: flags & FLAG_SHARED != 0,
        marks: Vec::new(),
    };
    for _ in 0..fields.try_get_u64_le()? {
        let offset = Offset(fields.try_get_i64_le()?);
        let segment = fields.try_get_u64_le()?;
        let marks = fields.try_get_u32_le()?;
        item.marks.push(MarkPlace {
            position: Position { offset, marks },
            segment,
            place: fields.try_get_u32_le()?,
            length: fields.try_get_u32_le()?,
        });
        fields.try_get_u32_le()?;
    }
    Ok(item)
}

pub(super) fn put_writer(out: &mut Vec<u8>, key: &WriterKey, state: &WriterState) {
    out.put_i64_le(key.stream.0);
    out.put_u64_le(key.writer.high);
    out.put_u64_le(key.writer.low);
    out.put_i64_le(state.epoch);
    out.put_i64_le(state.next_sequence);
    out.put_i64_le(state.last_append.0);
    out.put_i64_le(state.last_offset.0);
    out.put_i32_le(state.last_range.range.0);
    out.put_u32_le(u32::try_from(state.window.len()).unwrap_or(u32::MAX));
    for batch in &state.window {
        for word in [batch.base_sequence, batch.count, batch.base_offset.0] {
            out.put_i64_le(word);
        }
    }
}

pub(super) fn take_writer(fields: &mut &[u8]) -> Result<(WriterKey, WriterState), TryGetError> {
    let stream = StreamId(fields.try_get_i64_le()?);
    let writer = WriterId {
        high: fields.try_get_u64_le()?,
        low: fields.try_get_u64_le()?,
    };
    let mut state = WriterState {
        epoch: fields.try_get_i64_le()?,
        next_sequence: fields.try_get_i64_le()?,
        last_append: TimestampMs(fields.try_get_i64_le()?),
        last_offset: Offset(fields.try_get_i64_le()?),
        last_range: RangeKey {
            stream,
            range: RangeIndex(fields.try_get_i32_le()?),
        },
        window: VecDeque::new(),
    };
    for _ in 0..fields.try_get_u32_le()? {
        state.window.push_back(WriterBatch {
            base_sequence: fields.try_get_i64_le()?,
            count: fields.try_get_i64_le()?,
            base_offset: Offset(fields.try_get_i64_le()?),
        });
    }
    Ok((WriterKey { stream, writer }, state))
}
