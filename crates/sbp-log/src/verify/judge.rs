//! Judges what was found in the files of records together: which damage there is, and which records it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sbp_types::{Offset, RangeKey};

use super::Small;
use super::file::{Checked, Footer, Region, SeenRecord};
use super::report::{Fault, Verified};
use crate::format::checkpoint::Checkpoint;
use crate::format::group::{UnreadableGroup, is_zero, judge_unreadable};
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;
use crate::format::{SECTOR, bytes_from};
use crate::segments::files::{CLEAN, SegmentId};
use crate::{DamagedInterval, Durability};

/// Bytes behind the last whole group of a file, and what can be told of records in them.
#[derive(Debug)]
struct Tail {
    region: Region,
    records: Vec<SeenRecord>,
    /// Whether an interrupted write of a group looks like this.
    torn: bool,
    /// Whether an interrupted write of a footer looks like this.
    torn_footer: bool,
}

#[derive(Debug)]
struct Judged {
    checked: Checked,
    tail: Option<Tail>,
    /// Its place in the order of the contents.
    order: u64,
    /// Whether the newest checkpoint, or a start from it, needs the file.
    needed: bool,
}

impl Judged {
    fn last_group(&self) -> u64 {
        self.checked.last.map_or(0, |last| last.number)
    }

    /// Whether there is damage behind the last whole group, where other groups may have been.
    fn ends_damaged(&self) -> bool {
        let last = self.checked.last.map_or(0, |last| last.position);
        self.checked.regions.iter().any(|region| region.from > last)
    }

    /// Whether there is damage before the first whole group.
    fn begins_damaged(&self) -> bool {
        let first = self.checked.first.map_or(u64::MAX, |(first, _)| first.position);
        let mut regions = self.checked.regions.iter();
        regions.any(|region| FIRST_GROUP <= region.from && region.from < first)
    }

    fn is_whole_length(&self) -> bool {
        let header = self.checked.header;
        header.is_some_and(|header| header.capacity == self.checked.length)
    }
}

pub(super) struct Judge<'s> {
    small: &'s Small,
    newest: Option<&'s Checkpoint>,
    /// Where ranges begin, as far as the log's owner has said it.
    begins: &'s BTreeMap<RangeKey, Offset>,
    files: Vec<Judged>,
    notes: Vec<String>,
}

/// Where a record is: the file's place in the order, and the position in it.
type Place = (usize, u64);

impl<'s> Judge<'s> {
    pub(super) fn new(small: &'s Small, begins: &'s BTreeMap<RangeKey, Offset>) -> Self {
        Self {
            small,
            begins,
            newest: small.newest(),
            files: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, mut checked: Checked, bytes: &[u8]) {
        let tail = checked.tail.map(|from| {
            let known = checked.records.len();
            let from_end = bytes_from(bytes, from);
            let torn = judge_unreadable(from_end, checked.salt) == UnreadableGroup::Torn;
            checked.bad_groups(bytes, from, checked.length);
            let region = checked.regions.pop();
            let records = checked.records.split_off(known.min(checked.records.len()));
            let region = region.unwrap_or(Region {
                from,
                to: checked.length,
                what: String::new(),
                hides: true,
            });
            // It begins at a multiple of 4,096.
            let torn_footer = from_end.chunks(SECTOR).any(is_zero);
            Tail {
                region,
                records,
                torn,
                torn_footer,
            }
        });
        let (order, needed) = self.place(checked.id);
        self.files.push(Judged {
            checked,
            tail,
            order,
            needed,
        });
    }

    fn place(&self, id: SegmentId) -> (u64, bool) {
        let Some(newest) = self.newest else {
            return (id.number(), matches!(id, SegmentId::Chain(_)));
        };
        match id {
            SegmentId::Chain(number) => {
                let listed = newest.segments.iter().any(|item| item.number == number);
                (number, listed || number > newest.covered.segment)
            }
            SegmentId::Compacted(number) => {
                let mut compacted = newest.compacted.iter();
                let item = compacted.find(|item| item.segment.number == number);
                (item.map_or(number, |item| item.order), item.is_some())
            }
        }
    }

    pub(super) fn finish(mut self, directory: &Path, verified: &mut Verified) {
        self.files.sort_by_key(|file| (file.order, file.checked.id));
        self.check_listed(directory, verified);
        for number in 0..self.files.len() {
            self.judge_end(number);
            self.judge_begin(number);
        }
        self.check_clean_mark(directory, verified);
        self.check_marks();
        self.trace(directory, verified);
        verified.notes.append(&mut self.notes);
    }

    /// Every file that the newest checkpoint lists is there, and is the one it lists.
    fn check_listed(&mut self, directory: &Path, verified: &mut Verified) {
        let Some(newest) = self.newest else { return };
        let chain = newest.segments.iter().map(|item| (SegmentId::Chain(item.number), item));
        let compacted = newest.compacted.iter();
        let compacted = compacted.map(|item| (SegmentId::Compacted(item.segment.number), &item.segment));
        for (id, item) in chain.chain(compacted) {
            match self.files.iter_mut().find(|file| file.checked.id == id) {
                Some(file) if file.checked.salt != item.salt => {
                    let what = "this is not the file that the newest checkpoint lists";
                    file.checked.bad(0, FIRST_GROUP, what, true);
                }
                Some(_) => {}
                None => {
                    let path = directory.join(id.file_name());
                    let mut fault = Fault::of_file(path, 0, "missing: the newest checkpoint lists it");
                    fault.more_lost = true;
                    verified.faults.push(fault);
                }
            }
        }
    }

    /// The next file of the chain that has groups.
    fn successor(&self, number: usize) -> Option<&Judged> {
        let mut later = self.files.iter().skip(number + 1);
        later.find(|file| matches!(file.checked.id, SegmentId::Chain(_)) && file.checked.first.is_some())
    }

    /// The number of the last group that a file must have, as far as others tell: 0 for not at all.
    fn promised(&self, number: usize) -> u64 {
        let Some(file) = self.files.get(number) else { return 0 };
        let id = file.checked.id;
        let covered = self.newest.map(|newest| newest.covered).unwrap_or_default();
        let is_chain = matches!(id, SegmentId::Chain(_));
        let own = |mark: crate::format::clean::GroupMark| {
            if is_chain && mark.segment == id.number() {
                mark.number
            } else {
                0
            }
        };
        let clean = self.small.clean.map_or(0, own);
        let listed = self.small.item(id).map_or(0, |item| item.last_group);
        let footer = match &file.checked.footer {
            Footer::Sound(trailer, _) | Footer::Damaged(trailer) => trailer.last.number,
            Footer::None => 0,
        };
        // Behind the newest checkpoint no segment has been removed.
        let in_chain = is_chain && id.number() >= covered.segment;
        // A footer says which group is the last one. Else it is the one before the next file's first.
        let next = self
            .successor(number)
            .filter(|next| in_chain && footer == 0 && !next.begins_damaged());
        let next = next
            .filter(|_| file.checked.last.is_some())
            .and_then(|next| next.checked.first);
        let followed = next.map_or(0, |(first, _)| first.number.saturating_sub(1));
        [own(covered), clean, listed, footer, followed]
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// Judges what lies behind the last whole group of a file.
    fn judge_end(&mut self, number: usize) {
        let promised = self.promised(number);
        let is_followed = self.successor(number).is_some();
        let is_clean = self.small.clean.is_some();
        let covered = self.newest.map_or(0, |newest| newest.covered.segment);
        let Some(file) = self.files.get_mut(number) else { return };
        let is_missing = file.last_group() < promised;
        let has_footer = !matches!(file.checked.footer, Footer::None);
        let short = file.checked.header.is_some() && !file.is_whole_length() && !has_footer;
        let Some(tail) = file.tail.take() else {
            if is_missing && !file.checked.broken_end {
                let (from, to) = (file.last_group() + 1, promised);
                let what = format!("groups {from} to {to} are missing");
                let at = file.checked.last.map_or(FIRST_GROUP, |last| last.position);
                file.checked.bad(at, file.checked.length, &what, true);
            } else if short && is_followed && !is_clean {
                self.notes.push(format!(
                    "{}: a footer that was being written",
                    file.checked.path.display()
                ));
            } else if short {
                let what = "the file is shorter than it was made, and has no footer";
                file.checked
                    .bad(file.checked.length, file.checked.length, what, !is_followed);
            }
            return;
        };
        let name = file.checked.path.display().to_string();
        let unsynced = file
            .checked
            .header
            .is_some_and(|header| header.durability == Durability::None);
        let sealed = is_followed || short || matches!(file.checked.id, SegmentId::Compacted(_));
        let sealed = sealed || file.checked.id.number() < covered;
        let (from, to) = (tail.region.from, file.checked.length);
        if is_missing {
            file.checked.regions.push(tail.region);
            file.checked.records.extend(tail.records);
        } else if sealed && (is_clean || !tail.torn_footer) {
            file.checked
                .bad(from, to, "footer: cannot be read; the next start makes it anew", false);
        } else if sealed {
            self.notes
                .push(format!("{name}: a footer that was being written at byte {from}"));
        } else if is_clean {
            file.checked
                .bad(from, to, "bytes behind the last group that nobody wrote", false);
        } else if unsynced {
            self.notes.push(format!(
                "{name}: groups that were not synced, from byte {from} on, will be cut"
            ));
        } else if tail.torn {
            self.notes
                .push(format!("{name}: an interrupted write at byte {from} will be cut"));
        } else {
            file.checked.regions.push(tail.region);
            file.checked.records.extend(tail.records);
        }
    }

    /// Judges whether a file's first group is the one that has to follow.
    fn judge_begin(&mut self, number: usize) {
        let Some(file) = self.files.get(number) else { return };
        let Some((first, previous)) = file.checked.first else {
            return;
        };
        let id = file.checked.id;
        let item = self
            .newest
            .and_then(|newest| newest.segments.iter().find(|item| item.number == id.number()));
        let explained = file.begins_damaged();
        if explained || !file.needed || matches!(id, SegmentId::Compacted(_)) {
            return;
        }
        let covered = self.newest.map_or(0, |newest| newest.covered.segment);
        let before = self.files.iter().take(number).rev();
        let mut before = before.filter(|file| matches!(file.checked.id, SegmentId::Chain(_)) && file.needed);
        let before = before.find(|file| file.checked.last.is_some());
        if before.is_some_and(Judged::ends_damaged) {
            return;
        }
        let before = before.and_then(|file| file.checked.last);
        let expected = match (item, before) {
            (Some(item), _) => Some(item.first_group),
            (None, Some(before)) if id.number() > covered => Some(before.number + 1),
            (None, None) if self.newest.is_none() => Some(1),
            _ => None,
        };
        let wrong = expected.is_some_and(|expected| expected != first.number);
        let follows = before.is_none_or(|last| last.number + 1 != first.number || last.checksum == previous);
        if wrong || !follows {
            let what = match expected.filter(|_| wrong) {
                Some(expected) => format!("begins with group {}, not with group {expected}", first.number),
                None => format!("group {} does not follow the one before", first.number),
            };
            if let Some(file) = self.files.get_mut(number) {
                file.checked.bad(FIRST_GROUP, first.position, &what, true);
            }
        }
    }

    fn check_clean_mark(&mut self, directory: &Path, verified: &mut Verified) {
        let Some(mark) = self.small.clean else { return };
        let chain = self
            .files
            .iter()
            .filter(|file| matches!(file.checked.id, SegmentId::Chain(_)));
        let last = chain
            .filter_map(|file| file.checked.last)
            .max_by_key(|last| last.number)
            .unwrap_or_default();
        // An earlier end is told where groups are missing.
        if last.number >= mark.number && last != mark && mark.number > 0 {
            let what = format!(
                "it says that the log ends with group {}, and there is group {}",
                mark.number, last.number
            );
            verified.faults.push(Fault::of_file(directory.join(CLEAN), 0, what));
        }
    }

    /// Every mark that the newest checkpoint knows of is where it says, unless that place is known to be damaged.
    fn check_marks(&mut self) {
        let items = self.newest.into_iter().flat_map(|newest| &newest.positions);
        let marks = items.flat_map(|item| item.marks.iter().map(|mark| (item.key, mark)));
        let mut by_file: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for (key, mark) in marks {
            by_file.entry(mark.segment).or_default().push((key, mark));
        }
        for file in self.files.iter_mut().filter(|file| file.needed) {
            let Some(marks) = by_file.get(&file.checked.id.number()) else {
                continue;
            };
            let checked = &mut file.checked;
            let places = |record: &SeenRecord| (record.position, record.key, record.base, record.end);
            let seen: BTreeSet<_> = checked.records.iter().map(places).collect();
            for (key, mark) in marks {
                let (place, offset) = (u64::from(mark.place), mark.position.offset);
                let mut regions = checked.regions.iter();
                let is_hidden = regions.any(|region| region.from <= place && place < region.to);
                if !is_hidden && !seen.contains(&(place, *key, offset, offset)) {
                    let end = place + RecordHead::stored_len(mark.length as usize) as u64;
                    let what = "the newest checkpoint knows of a fence, or of a state of writers, that is missing";
                    checked.bad(place, end, what, true);
                }
            }
        }
    }

    /// Follows every range through the files, and gives each fault the records that it costs.
    fn trace(&mut self, directory: &Path, verified: &mut Verified) {
        let mut faults: Vec<(Place, bool, Fault)> = Vec::new();
        let covered = self.newest.map_or(0, |newest| newest.covered.segment);
        for (number, file) in self.files.iter_mut().enumerate() {
            let has_footer = matches!(file.checked.footer, Footer::Sound(..));
            file.checked.records.sort_by_key(|record| record.position);
            file.checked.regions.sort_by_key(|region| region.from);
            for region in &file.checked.regions {
                let mut fault = Fault::of_file(file.checked.path.clone(), 0, &region.what);
                (fault.from, fault.to) = (region.from, region.to);
                if !file.needed {
                    fault.what.push_str("; nothing in this file is needed any more");
                }
                let hides = region.hides && file.needed;
                let open_end = matches!(file.checked.id, SegmentId::Chain(number) if number >= covered);
                fault.more_lost = hides && open_end && !has_footer;
                faults.push(((number, region.from), hides, fault));
            }
        }
        let mut ends: BTreeMap<RangeKey, (Offset, Place)> = BTreeMap::new();
        for item in self.newest.into_iter().flat_map(|newest| &newest.ranges) {
            ends.insert(item.key, (item.first, (0, 0)));
        }
        // Of those of which nothing is found nobody can tell what is missing.
        let found = self.files.iter().filter(|file| file.needed);
        let found: BTreeSet<_> = found
            .flat_map(|file| file.checked.records.iter().map(|record| record.key))
            .collect();
        for (key, begin) in self.begins.iter().filter(|(key, _)| found.contains(key)) {
            ends.entry(*key).or_insert((*begin, (0, 0)));
        }
        for (number, file) in self.files.iter().enumerate().filter(|(_, file)| file.needed) {
            for record in file.checked.records.iter().filter(|record| record.base < record.end) {
                let place = (number, record.position);
                let (next, seen) = ends.entry(record.key).or_insert((record.base, place));
                if record.base > *next {
                    let what = "records are missing before this place";
                    let fault = gap(&mut faults, *seen, place, || {
                        Fault::of_file(file.checked.path.clone(), 0, what)
                    });
                    fault.lose(record.key, *next, record.base);
                }
                if !record.sound {
                    let what = "a batch's checksum is wrong";
                    let fault = at(&mut faults, place, || {
                        Fault::of_file(file.checked.path.clone(), 0, what)
                    });
                    fault.lose(record.key, record.base, record.end);
                }
                *next = record.end.max(*next);
                *seen = place;
            }
        }
        for item in self.newest.into_iter().flat_map(|newest| &newest.ranges) {
            let Some((next, seen)) = ends.get_mut(&item.key) else {
                continue;
            };
            if *next < item.end {
                let what = "the newest checkpoint knows of records that are missing";
                let end = (usize::MAX, 0);
                let fault = gap(&mut faults, *seen, end, || {
                    Fault::of_file(directory.to_owned(), 0, what)
                });
                fault.lose(item.key, *next, item.end);
                *next = item.end;
            }
        }
        verified.ends = ends.into_iter().map(|(key, (end, _))| (key, end)).collect();
        let found = faults.into_iter().map(|(_, _, fault)| fault);
        let judged = found.map(|fault| Fault {
            known: self.is_known(&fault),
            ..fault
        });
        verified.faults.extend(judged);
    }

    /// Whether a fault costs records, and none but those that the newest checkpoint has as damaged.
    fn is_known(&self, fault: &Fault) -> bool {
        let ranges = || self.newest.into_iter().flat_map(|newest| &newest.ranges);
        let known = |lost: &DamagedInterval| {
            let damage = ranges().filter(|range| range.key == lost.key);
            let damage = damage.flat_map(|range| &range.damage);
            // They are ordered, and may touch.
            let reached = damage.fold(lost.from, |reached, (from, to)| match *from <= reached {
                true => reached.max(*to),
                false => reached,
            });
            reached >= lost.to
        };
        !fault.more_lost && !fault.lost.is_empty() && fault.lost.iter().all(known)
    }
}

/// The first fault between two places that may hide records, or a new one.
fn gap(faults: &mut Vec<(Place, bool, Fault)>, from: Place, to: Place, new: impl FnOnce() -> Fault) -> &mut Fault {
    let found = faults
        .iter()
        .position(|(place, hides, _)| *hides && from <= *place && *place <= to);
    entry(faults, found, to, new)
}

/// The fault that a place lies in, or a new one.
fn at(faults: &mut Vec<(Place, bool, Fault)>, place: Place, new: impl FnOnce() -> Fault) -> &mut Fault {
    let found = faults
        .iter()
        .position(|((file, from), _, fault)| *file == place.0 && *from <= place.1 && place.1 < fault.to);
    entry(faults, found, place, new)
}

fn entry(
    faults: &mut Vec<(Place, bool, Fault)>,
    found: Option<usize>,
    place: Place,
    new: impl FnOnce() -> Fault,
) -> &mut Fault {
    let index = found.unwrap_or_else(|| {
        let mut fault = new();
        (fault.from, fault.to) = (place.1, place.1);
        faults.push((place, true, fault));
        faults.len() - 1
    });
    &mut faults[index].2
}
