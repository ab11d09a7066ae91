//! Checkpoints: the log's state after one group, so that recovery need not replay earlier groups.

use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

use super::clean::GroupMark;
use super::{Fields, Unreadable, begin_envelope, open_envelope, seal_envelope};
use crate::{WRITER_WINDOW, WriterBatch, WriterKey, WriterState};

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

const SECTION_VERSION: u32 = 1;

impl Checkpoint {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = begin_envelope(MAGIC);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        self.covered.put(&mut out);
        out.extend_from_slice(&u32::from(self.unlisted_damage).to_le_bytes());
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
                out.extend_from_slice(&self.newest_append.0.to_le_bytes());
                for (key, state) in &self.writers {
                    put_writer(out, key, state);
                }
            });
        }
        if !self.compacted.is_empty() {
            put_section(&mut out, SECTION_COMPACTED, |out| {
                for item in &self.compacted {
                    put_segment(out, &item.segment);
                    out.extend_from_slice(&item.order.to_le_bytes());
                }
            });
        }
        seal_envelope(out)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut fields = open_envelope(bytes, MAGIC)?;
        let mut checkpoint = Self {
            sequence: fields.u64(),
            covered: GroupMark::take(&mut fields),
            ..Self::default()
        };
        checkpoint.unlisted_damage = fields.u32() & 1 != 0;
        while fields.ok() && !fields.is_at_end() {
            let tag = fields.u32();
            let version = fields.u32();
            let length = usize::try_from(fields.u64()).unwrap_or(usize::MAX);
            let section = fields.take(length);
            if !fields.ok() {
                break;
            }
            match (tag, version) {
                (SECTION_SEGMENTS, SECTION_VERSION) => checkpoint.segments = take_segments(section)?,
                (SECTION_RANGES, SECTION_VERSION) => checkpoint.ranges = take_ranges(section)?,
                (SECTION_COMPACTED, SECTION_VERSION) => checkpoint.compacted = take_compacted(section)?,
                (SECTION_WRITERS, SECTION_VERSION) => {
                    (checkpoint.newest_append, checkpoint.writers) = take_writers(section)?;
                }
                // A section that is not understood cannot be skipped, because its state would be lost.
                _ => return Err(Unreadable::Newer(version.max(super::FORMAT_VERSION + 1))),
            }
        }
        if fields.ok() {
            Ok(checkpoint)
        } else {
            Err(Unreadable::Bad("too short"))
        }
    }
}

fn put_section(out: &mut Vec<u8>, tag: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&SECTION_VERSION.to_le_bytes());
    let length_at = out.len();
    out.extend_from_slice(&0u64.to_le_bytes());
    let start = out.len();
    fill(out);
    let length = (out.len() - start) as u64;
    super::put(out, length_at, length.to_le_bytes());
}

fn put_segment(out: &mut Vec<u8>, item: &SegmentItem) {
    for word in [
        item.number,
        item.salt,
        item.first_group,
        item.last_group,
        u64::from(item.damaged),
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn take_segment(fields: &mut Fields<'_>) -> SegmentItem {
    SegmentItem {
        number: fields.u64(),
        salt: fields.u64(),
        first_group: fields.u64(),
        last_group: fields.u64(),
        damaged: fields.u64() & 1 != 0,
    }
}

fn take_segments(section: &[u8]) -> Result<Vec<SegmentItem>, Unreadable> {
    let mut fields = Fields::new(section);
    let mut items = Vec::new();
    while !fields.is_at_end() {
        let item = take_segment(&mut fields);
        if !fields.ok() {
            return Err(Unreadable::Bad("a segment's entry is cut"));
        }
        items.push(item);
    }
    Ok(items)
}

fn take_compacted(section: &[u8]) -> Result<Vec<CompactedItem>, Unreadable> {
    let mut fields = Fields::new(section);
    let mut items = Vec::new();
    while !fields.is_at_end() {
        let item = CompactedItem {
            segment: take_segment(&mut fields),
            order: fields.u64(),
        };
        if !fields.ok() {
            return Err(Unreadable::Bad("an entry of remains is cut"));
        }
        items.push(item);
    }
    Ok(items)
}

fn put_range(out: &mut Vec<u8>, item: &RangeItem) {
    out.extend_from_slice(&item.key.stream.0.to_le_bytes());
    out.extend_from_slice(&item.key.range.0.to_le_bytes());
    out.extend_from_slice(&u32::from(item.proven).to_le_bytes());
    for word in [item.first.0, item.released.0, item.end.0, item.epoch.0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&(item.damage.len() as u64).to_le_bytes());
    for (from, to) in &item.damage {
        out.extend_from_slice(&from.0.to_le_bytes());
        out.extend_from_slice(&to.0.to_le_bytes());
    }
}

fn take_ranges(section: &[u8]) -> Result<Vec<RangeItem>, Unreadable> {
    let mut fields = Fields::new(section);
    let mut items = Vec::new();
    while !fields.is_at_end() {
        let stream = StreamId(fields.i64());
        let range = RangeIndex(fields.i32());
        let proven = fields.u32() & 1 != 0;
        let first = Offset(fields.i64());
        let released = Offset(fields.i64());
        let end = Offset(fields.i64());
        let epoch = Epoch(fields.i64());
        let count = fields.u64();
        let mut damage = Vec::new();
        for _ in 0..count {
            damage.push((Offset(fields.i64()), Offset(fields.i64())));
            if !fields.ok() {
                break;
            }
        }
        if !fields.ok() {
            return Err(Unreadable::Bad("a range's entry is cut"));
        }
        items.push(RangeItem {
            key: RangeKey { stream, range },
            first,
            released,
            end,
            epoch,
            proven,
            damage,
        });
    }
    Ok(items)
}

fn put_writer(out: &mut Vec<u8>, key: &WriterKey, state: &WriterState) {
    out.extend_from_slice(&key.stream.0.to_le_bytes());
    out.extend_from_slice(&key.writer.high.to_le_bytes());
    out.extend_from_slice(&key.writer.low.to_le_bytes());
    for word in [
        state.epoch,
        state.next_sequence,
        state.last_append.0,
        state.last_offset.0,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&state.last_range.range.0.to_le_bytes());
    let count = u32::try_from(state.window.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for batch in &state.window {
        for word in [batch.base_sequence, batch.count, batch.base_offset.0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

type Writers = (TimestampMs, Vec<(WriterKey, WriterState)>);

fn take_writers(section: &[u8]) -> Result<Writers, Unreadable> {
    let mut fields = Fields::new(section);
    let newest = TimestampMs(fields.i64());
    let mut writers = Vec::new();
    while !fields.is_at_end() {
        let key = WriterKey {
            stream: StreamId(fields.i64()),
            writer: WriterId {
                high: fields.u64(),
                low: fields.u64(),
            },
        };
        let mut state = WriterState {
            epoch: fields.i64(),
            next_sequence: fields.i64(),
            last_append: TimestampMs(fields.i64()),
            last_offset: Offset(fields.i64()),
            ..WriterState::default()
        };
        state.last_range = RangeKey {
            stream: key.stream,
            range: RangeIndex(fields.i32()),
        };
        let batches = fields.u32();
        if batches as usize > WRITER_WINDOW {
            return Err(Unreadable::Bad("a writer's window is too long"));
        }
        for _ in 0..batches {
            state.window.push_back(WriterBatch {
                base_sequence: fields.i64(),
                count: fields.i64(),
                base_offset: Offset(fields.i64()),
            });
            if !fields.ok() {
                break;
            }
        }
        if !fields.ok() {
            return Err(Unreadable::Bad("a writer's entry is cut"));
        }
        writers.push((key, state));
    }
    if fields.ok() {
        Ok((newest, writers))
    } else {
        Err(Unreadable::Bad("the writers are cut"))
    }
}
