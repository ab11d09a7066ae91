//! Checks one file of records by itself.

use std::path::PathBuf;

use sbp_types::{Offset, RangeKey};

use crate::OpenError;
use crate::format::checkpoint::SegmentItem;
use crate::format::clean::GroupMark;
use crate::format::footer::{FooterRun, IndexEntry, Trailer};
use crate::format::group::{GroupHeader, is_zero};
use crate::format::record::RecordHead;
use crate::format::segment::{FIRST_GROUP, SegmentHeader};
use crate::format::{BLOCK, RECORD_ALIGN, Unreadable, block_up, bytes_from, crc32c, is_sealed};
use crate::segments::files::{SegmentId, unreadable};

/// A batch or a mark: where it is, and whether its bytes are what was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenRecord {
    pub(super) position: u64,
    pub(super) length: u64,
    pub(super) key: RangeKey,
    pub(super) base: Offset,
    pub(super) end: Offset,
    pub(super) sound: bool,
}

/// Bytes that are not what was written.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) what: String,
    /// Whether heads of records in it may be unreadable.
    pub(super) hides: bool,
}

/// What is at the end of a file.
#[derive(Debug)]
pub(super) enum Footer {
    /// Nothing that can be read.
    None,
    /// Its trailer, where it begins, and the batches it lists.
    Sound(Trailer, Vec<(RangeKey, IndexEntry)>),
    /// Its trailer can be read, and what it points to is damaged.
    Damaged(Trailer),
}

/// What one file holds.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) id: SegmentId,
    pub(super) path: PathBuf,
    pub(super) length: u64,
    pub(super) header: Option<SegmentHeader>,
    pub(super) salt: u64,
    pub(super) groups: u64,
    /// The first whole group, and the checksum it expects of the one before.
    pub(super) first: Option<(GroupMark, u32)>,
    /// The last whole group.
    pub(super) last: Option<GroupMark>,
    /// By their positions.
    pub(super) records: Vec<SeenRecord>,
    pub(super) regions: Vec<Region>,
    pub(super) footer: Footer,
    /// Where bytes begin that are neither a whole group nor zero, with no whole group behind them.
    pub(super) tail: Option<u64>,
    /// Whether damaged groups are the last ones before the footer.
    pub(super) broken_end: bool,
}

impl Checked {
    pub(super) fn new(
        id: SegmentId,
        path: PathBuf,
        bytes: &[u8],
        item: Option<&SegmentItem>,
    ) -> Result<Self, OpenError> {
        let header = match SegmentHeader::parse(bytes) {
            Ok(header) => Ok(header),
            Err(newer @ Unreadable::Newer { .. }) if bytes.get(..SegmentHeader::LEN).is_some_and(is_sealed) => {
                return Err(unreadable(&path, newer));
            }
            Err(why) => Err(why.what()),
        };
        // Without a header the salt is what a checkpoint or the first group says.
        let in_group = bytes
            .get(FIRST_GROUP as usize + 16..)
            .and_then(|bytes| bytes.first_chunk());
        let salt = header.as_ref().map(|header| header.salt).ok();
        let salt = salt
            .or(item.map(|item| item.salt))
            .or(in_group.map(|salt| u64::from_le_bytes(*salt)));
        let mut checked = Self {
            id,
            path,
            length: bytes.len() as u64,
            salt: salt.unwrap_or(0),
            header: header.as_ref().ok().copied(),
            groups: 0,
            first: None,
            last: None,
            records: Vec::new(),
            regions: Vec::new(),
            footer: Footer::None,
            tail: None,
            broken_end: false,
        };
        checked.check_header(bytes, header.err());
        checked.footer = read_footer(bytes, checked.salt, id.number());
        checked.walk(bytes);
        Ok(checked)
    }

    fn check_header(&mut self, bytes: &[u8], bad: Option<&'static str>) {
        let head = bytes.len().min(SegmentHeader::LEN) as u64;
        let (number, salt) = (self.id.number(), self.salt);
        match self.header {
            Some(header) if header.number != number => {
                self.bad(0, head, "the header has another number than the file's name", false);
            }
            Some(header) if header.salt != salt => self.bad(0, head, "the header has another salt", false),
            Some(_) => {}
            None => {
                let what = format!("header: {}", bad.unwrap_or("cannot be read"));
                self.bad(0, head, &what, false);
            }
        }
        let padding = bytes.get(SegmentHeader::LEN..bytes.len().min(BLOCK as usize));
        if padding.is_some_and(|padding| !is_zero(padding)) {
            self.bad(head, BLOCK, "bytes behind the header that nobody wrote", false);
        }
    }

    pub(super) fn bad(&mut self, from: u64, to: u64, what: &str, hides: bool) {
        let what = what.to_owned();
        self.regions.push(Region { from, to, what, hides });
    }

    /// Where groups end: where the footer begins, if that is known.
    fn limit(&self) -> u64 {
        match &self.footer {
            Footer::Sound(trailer, entries) => trailer.directory - (entries.len() * IndexEntry::LEN) as u64,
            Footer::Damaged(trailer) => trailer.directory,
            Footer::None => self.length,
        }
    }

    fn walk(&mut self, bytes: &[u8]) {
        let area = bytes
            .get(..usize::try_from(self.limit()).unwrap_or(0))
            .unwrap_or_default();
        let mut position = FIRST_GROUP;
        while position < area.len() as u64 {
            if let Some(header) = self.group_at(area, position) {
                self.add_group(area, position, &header);
                position = block_up(position + u64::from(header.length));
                continue;
            }
            if is_zero(bytes_from(area, position)) {
                break;
            }
            let ended = matches!(&self.footer, Footer::Damaged(trailer) if self.ended_with(trailer));
            let next = (position + BLOCK..area.len() as u64).step_by(BLOCK as usize);
            match next.into_iter().find(|next| self.group_at(area, *next).is_some()) {
                Some(next) => {
                    self.bad_groups(area, position, next);
                    position = next;
                }
                // What follows is the damaged part of the footer.
                None if ended => break,
                // These are groups: a footer proves that there are some.
                None if !matches!(self.footer, Footer::None) => {
                    self.bad_groups(area, position, area.len() as u64);
                    self.broken_end = true;
                    break;
                }
                None => {
                    self.tail = Some(position);
                    break;
                }
            }
        }
        if let Footer::Damaged(_) = self.footer {
            self.bad(
                position.min(self.length),
                self.length,
                "footer: a checksum is wrong",
                false,
            );
        }
        self.check_footer();
    }

    fn ended_with(&self, trailer: &Trailer) -> bool {
        self.last.is_some_and(|last| last.number == trailer.last.number)
    }

    /// The whole group at a position, if its number is above the last one.
    fn group_at(&self, area: &[u8], position: u64) -> Option<GroupHeader> {
        let bytes = bytes_from(area, position);
        let header = GroupHeader::parse(bytes, self.salt)?;
        let later = self.last.is_none_or(|last| header.number > last.number);
        (later && header.is_whole(bytes)).then_some(header)
    }

    fn add_group(&mut self, area: &[u8], position: u64, header: &GroupHeader) {
        let mark = GroupMark {
            number: header.number,
            segment: self.id.number(),
            position,
            checksum: header.checksum,
        };
        let follows = |last: GroupMark| last.number + 1 == header.number && last.checksum == header.previous;
        let since = self.last.map_or(FIRST_GROUP, |last| last.position + 1);
        let explained = self.regions.iter().any(|region| region.from >= since);
        if let Some(last) = self.last.filter(|last| !follows(*last) && !explained) {
            let what = format!("group {} does not follow group {}", header.number, last.number);
            self.bad(position, position, &what, true);
        }
        self.first.get_or_insert((mark, header.previous));
        self.last = Some(mark);
        self.groups += 1;
        let end = position + u64::from(header.length);
        let mut at = position + GroupHeader::LEN as u64;
        for _ in 0..header.records {
            let Some(record) = RecordHead::parse(bytes_from(area, at), RecordHead::mask(self.salt)) else {
                let what = format!("group {} is whole, its records are not", header.number);
                self.bad(at, end, &what, true);
                break;
            };
            at += self.add_record(area, at, &record);
        }
        let padding = area.get(end as usize..(block_up(end) as usize).min(area.len()));
        if padding.is_some_and(|padding| !is_zero(padding)) {
            let what = format!("bytes behind group {} that nobody wrote", header.number);
            self.bad(end, block_up(end), &what, false);
        }
    }

    /// Adds a record whose head is sound; returns the bytes it takes.
    fn add_record(&mut self, area: &[u8], position: u64, record: &RecordHead) -> u64 {
        let batch = bytes_from(area, position).get(RecordHead::LEN..RecordHead::LEN + record.batch_len as usize);
        let head = &record.head;
        let length = RecordHead::stored_len(record.batch_len as usize) as u64;
        self.records.push(SeenRecord {
            position,
            length,
            key: head.key,
            base: head.base_offset,
            end: head.end_offset().unwrap_or(head.base_offset),
            sound: batch.is_some_and(|batch| crc32c(batch) == record.batch_crc),
        });
        length
    }

    /// Notes groups that are damaged, and what can be told of their records: heads have checksums of their own.
    pub(super) fn bad_groups(&mut self, area: &[u8], from: u64, to: u64) {
        let group = GroupHeader::parse(bytes_from(area, from), self.salt);
        let group = group.filter(|header| block_up(from + u64::from(header.length)) == to);
        let (mask, first) = (RecordHead::mask(self.salt), self.records.len());
        let mut position = from + GroupHeader::LEN as u64;
        let mut seen = 0;
        while position + RecordHead::LEN as u64 <= to {
            position += match RecordHead::parse(bytes_from(area, position), mask) {
                Some(record) => {
                    seen += 1;
                    self.add_record(area, position, &record)
                }
                None => RECORD_ALIGN as u64,
            };
        }
        let all = group.is_some_and(|header| header.records == seen);
        let what = match group {
            Some(header) => format!("group {}: its checksum is wrong", header.number),
            None => "no group can be read".to_owned(),
        };
        let damaged = self.records.get(first..).unwrap_or_default();
        let damaged = damaged.iter().filter(|record| !record.sound);
        let (mut start, mut end) = (from, to);
        if let Some(nearest) = damaged.clone().map(|record| record.position).min().filter(|_| all) {
            start = nearest;
            end = damaged
                .map(|record| record.position + record.length)
                .max()
                .unwrap_or(to);
        }
        self.bad(start, end, &what, !all);
    }

    /// Checks that every batch the footer lists is where it says, unless that place is known to be damaged. Of batches
    /// in damaged places the footer tells the offsets.
    fn check_footer(&mut self) {
        let Footer::Sound(trailer, entries) = &self.footer else {
            return;
        };
        let mut seen: std::collections::HashMap<u64, SeenRecord> = std::collections::HashMap::new();
        seen.extend(self.records.iter().map(|record| (record.position, *record)));
        let (mut wrong, mut lost) = (0, Vec::new());
        for (key, entry) in entries {
            let position = u64::from(entry.position);
            let record = seen.get(&position);
            if record.is_some_and(|record| (record.key, record.base, record.end) == (*key, entry.base, entry.end)) {
                continue;
            }
            let hidden = self
                .regions
                .iter()
                .any(|region| region.from <= position && position < region.to);
            if record.is_none() && hidden {
                lost.push(SeenRecord {
                    position,
                    length: RecordHead::stored_len(entry.length as usize) as u64,
                    key: *key,
                    base: entry.base,
                    end: entry.end,
                    sound: false,
                });
            } else {
                wrong += 1;
            }
        }
        let from = trailer.directory;
        if wrong > 0 {
            let what = format!("footer: {wrong} of its entries name no batch");
            self.bad(from, self.length, &what, false);
        }
        self.records.extend(lost);
        self.records.sort_unstable_by_key(|record| record.position);
    }
}

/// Reads a footer with all its checksums.
fn read_footer(bytes: &[u8], salt: u64, number: u64) -> Footer {
    let Some(at) = bytes.len().checked_sub(Trailer::LEN) else {
        return Footer::None;
    };
    let trailer = bytes.get(at..).and_then(Trailer::parse);
    let Some(trailer) = trailer.filter(|trailer| trailer.salt == salt && trailer.last.segment == number) else {
        return Footer::None;
    };
    let fits = trailer.directory.checked_add(trailer.directory_len() as u64) == Some(at as u64);
    let directory = usize::try_from(trailer.directory).unwrap_or(usize::MAX);
    let runs = bytes
        .get(directory..at)
        .filter(|_| fits)
        .and_then(|runs| trailer.parse_runs(runs));
    let Some(runs) = runs else {
        return Footer::Damaged(trailer);
    };
    let mut listed = Vec::new();
    for run in &runs {
        match entries(bytes, run) {
            Some(entries) => listed.extend(entries.into_iter().map(|entry| (run.key, entry))),
            None => return Footer::Damaged(trailer),
        }
    }
    if trailer.directory < FIRST_GROUP + (listed.len() * IndexEntry::LEN) as u64 {
        return Footer::Damaged(trailer);
    }
    Footer::Sound(trailer, listed)
}

fn entries(bytes: &[u8], run: &FooterRun) -> Option<Vec<IndexEntry>> {
    let start = usize::try_from(run.position).ok()?;
    let length = (run.count as usize).checked_mul(IndexEntry::LEN)?;
    IndexEntry::parse_all(bytes.get(start..start.checked_add(length)?)?, run.crc)
}
