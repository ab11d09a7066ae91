//! The files in which a broker keeps a partition.
//!
//! A partition is a directory with files of bundles, each bundle behind its length. `FIRST-LAST.ilog` is sealed, and
//! `FIRST.log` is the one that the broker writes to; both may have a time behind `_`. The numbers are those of messages.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use sbp_peers::tank::ReadBundle;
use sbp_tank::{Bundle, Numbering, take_framed};

use super::error::ImportError;

/// Bytes read at once.
const BLOCK: usize = 1 << 20;
/// Bytes of bundles handed over at once.
const HANDED_OVER: usize = 4 << 20;

/// A file of bundles, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    path: PathBuf,
    /// The number of its first message.
    first: u64,
    /// That of its last one, if it is sealed.
    last: Option<u64>,
}

/// What a file's name says of it.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Segment {
        first: u64,
        last: Option<u64>,
    },
    /// Nothing that holds messages of its own: indexes, and what a broker had begun to write anew.
    Other,
    /// A file of messages with a name that cannot be read.
    Odd,
}

fn named(name: &str) -> Named {
    let (stem, is_sealed) = match name.rsplit_once('.') {
        Some((stem, "ilog")) => (stem, true),
        Some((stem, "log")) => (stem, false),
        _ => return Named::Other,
    };
    let numbers = stem.split_once('_').map_or(stem, |(numbers, _time)| numbers);
    let parsed = match (numbers.split_once('-'), is_sealed) {
        (Some((first, last)), true) => number(first).zip(number(last)).map(|(first, last)| (first, Some(last))),
        (None, false) => number(numbers).map(|first| (first, None)),
        _ => None,
    };
    match parsed {
        Some((first, last)) if last.is_none_or(|last| first <= last) => Named::Segment { first, last },
        _ => Named::Odd,
    }
}

fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The files of a partition, in the order of their messages.
fn segments(directory: &Path) -> Result<Vec<Segment>, ImportError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(ImportError::file(directory))? {
        let path = entry.map_err(ImportError::file(directory))?.path();
        match named(path.file_name().and_then(OsStr::to_str).unwrap_or_default()) {
            Named::Segment { first, last } => found.push(Segment { path, first, last }),
            Named::Other => {}
            Named::Odd => {
                return Err(damaged(
                    &path,
                    0,
                    "its name does not say which messages it has: FIRST-LAST.ilog or FIRST.log",
                ));
            }
        }
    }
    found.sort_by_key(|segment| (segment.first, segment.last.is_none()));
    for pair in found.windows(2) {
        let [one, next] = pair else { continue };
        if one.last.is_some_and(|last| last >= next.first) || one.first == next.first {
            let what = format!("its messages are also in {}", next.path.display());
            return Err(damaged(&one.path, 0, what));
        }
    }
    Ok(found)
}

fn damaged(path: &Path, at: u64, what: impl Into<String>) -> ImportError {
    ImportError::Damaged {
        path: path.to_owned(),
        at,
        what: what.into(),
    }
}

/// The partitions that a topic has in a broker's data directory.
pub(super) fn partitions(topic: &Path) -> Result<Vec<u16>, ImportError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(topic).map_err(ImportError::file(topic))? {
        let path = entry.map_err(ImportError::file(topic))?.path();
        let name = path.file_name().and_then(OsStr::to_str).and_then(number);
        if let Some(partition) = name.and_then(|number| u16::try_from(number).ok())
            && path.is_dir()
        {
            found.push(partition);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A file that is being read.
#[derive(Debug)]
struct Open {
    segment: Segment,
    file: File,
    numbering: Numbering,
    /// What was read and not taken.
    bytes: Bytes,
    /// Where that begins.
    at: u64,
}

impl Open {
    fn begin(segment: Segment) -> Result<Self, ImportError> {
        let file = File::open(&segment.path).map_err(ImportError::file(&segment.path))?;
        Ok(Self {
            numbering: Numbering::new(Some(segment.first)),
            segment,
            file,
            bytes: Bytes::new(),
            at: 0,
        })
    }

    /// The next bundle; `None` at the end of what there is, which may be amid a bundle.
    fn next(&mut self) -> Result<Option<Bytes>, ImportError> {
        let path = &self.segment.path;
        loop {
            let before = self.bytes.len();
            let taken = take_framed(&mut self.bytes).map_err(|fault| damaged(path, self.at, fault.to_string()))?;
            if let Some(bundle) = taken {
                self.at = self.at.saturating_add(widen(before - self.bytes.len()));
                return Ok(Some(bundle));
            }
            let mut grown = BytesMut::zeroed(before + before.max(BLOCK));
            let (old, new) = grown.split_at_mut(before);
            old.copy_from_slice(&self.bytes);
            let read = self.file.read(new).map_err(ImportError::file(path))?;
            if read == 0 {
                return Ok(None);
            }
            grown.truncate(before + read);
            self.bytes = grown.freeze();
        }
    }

    /// The number behind all messages read.
    fn end(&self) -> u64 {
        self.numbering.next().unwrap_or(self.segment.first)
    }
}

/// What the files of a partition have next.
#[derive(Debug)]
pub(super) enum Found {
    /// Bundles.
    Bundles(Vec<ReadBundle>),
    /// Messages that are in no file.
    Missing { from: u64, to: u64 },
    /// The end of what there is now.
    End,
}

/// Reads a partition's files. Waits for the disk.
#[derive(Debug)]
pub(super) struct PartitionFiles {
    directory: PathBuf,
    pub(super) partition: u16,
    /// The first message wanted.
    next: u64,
    /// Files behind the open one.
    waiting: VecDeque<Segment>,
    open: Option<Open>,
    /// The broker may still write: a bundle that is cut may become whole.
    is_followed: bool,
    /// Bytes taken so far.
    pub(super) bytes: u64,
    /// What is to be told about the files.
    pub(super) notes: Vec<String>,
}

impl PartitionFiles {
    /// The files with the messages from `next` on; `None`: all.
    pub(super) fn open(
        directory: PathBuf,
        partition: u16,
        next: Option<u64>,
        is_followed: bool,
    ) -> Result<Self, ImportError> {
        let mut waiting = VecDeque::from(segments(&directory)?);
        let next = next.unwrap_or_else(|| waiting.front().map_or(1, |segment| segment.first));
        let mut passed = 0;
        // The file in which `next` is, is the last one that does not begin behind it.
        while waiting.get(1).is_some_and(|following| following.first <= next) {
            passed += waiting.pop_front().map_or(0, |segment| length(&segment.path));
        }
        Ok(Self {
            directory,
            partition,
            next,
            waiting,
            open: None,
            is_followed,
            bytes: passed,
            notes: Vec::new(),
        })
    }

    /// The number of the first message wanted.
    pub(super) fn first(&self) -> Option<u64> {
        self.waiting.front().map(|segment| segment.first.max(self.next))
    }

    /// Bytes of all files.
    pub(super) fn all_bytes(&self) -> u64 {
        let open = self.open.iter().map(|open| &open.segment.path);
        let waiting = self.waiting.iter().map(|segment| &segment.path);
        let taken = self.open.as_ref().map_or(self.bytes, |open| self.bytes - open.at);
        taken + open.chain(waiting).map(|path| length(path)).sum::<u64>()
    }

    /// What comes next.
    pub(super) fn read(&mut self) -> Result<Found, ImportError> {
        let mut bundles = Vec::new();
        let mut bytes = 0;
        while bytes < HANDED_OVER {
            let Some(open) = &mut self.open else {
                match self.begin_next()? {
                    Some(missing) if bundles.is_empty() => return Ok(missing),
                    Some(_) => break,
                    None if self.open.is_some() => continue,
                    None => break,
                }
            };
            let at = open.at;
            let Some(bundle) = open.next()? else {
                match self.end_of_file()? {
                    true => continue,
                    false => break,
                }
            };
            self.bytes = self.bytes.saturating_add(open.at.saturating_sub(at));
            bytes += bundle.len();
            let span = Bundle::decode(&bundle).and_then(|decoded| open.numbering.number(&decoded));
            let span = span.map_err(|fault| damaged(&open.segment.path, at, fault.to_string()))?;
            if span.last < self.next {
                continue;
            }
            bundles.push(ReadBundle::new(self.partition, span, self.next, u64::MAX, bundle));
            self.next = span.last.saturating_add(1);
        }
        Ok(match bundles.is_empty() {
            true => Found::End,
            false => Found::Bundles(bundles),
        })
    }

    /// Opens the next file. What is missing in front of it is told first.
    fn begin_next(&mut self) -> Result<Option<Found>, ImportError> {
        if self.waiting.is_empty() && self.is_followed {
            self.waiting = segments(&self.directory)?.into();
        }
        let Some(segment) = self.waiting.front() else {
            return Ok(None);
        };
        if segment.first > self.next {
            let (from, to) = (self.next, segment.first - 1);
            self.next = segment.first;
            return Ok(Some(Found::Missing { from, to }));
        }
        if let Some(segment) = self.waiting.pop_front() {
            self.open = Some(Open::begin(segment)?);
        }
        Ok(None)
    }

    /// Judges the end of the open file. False: more may come in it.
    fn end_of_file(&mut self) -> Result<bool, ImportError> {
        let Some(open) = &self.open else { return Ok(true) };
        if self.is_followed && self.waiting.is_empty() {
            let later = segments(&self.directory)?;
            let later = later.into_iter().filter(|segment| segment.first > open.segment.first);
            self.waiting = later.collect();
            // Where there is a later one now, this one gets no more: what it got between its end and now is read first.
            return Ok(!self.waiting.is_empty());
        }
        let is_last = self.waiting.is_empty() && open.segment.last.is_none();
        let left = open.bytes.len();
        if left > 0 && !is_last {
            let what = format!("{left} bytes at its end are no whole bundle");
            return Err(damaged(&open.segment.path, open.at, what));
        }
        if left > 0 {
            self.notes.push(format!(
                "{}: its last {left} bytes are no whole bundle: the broker had not finished writing it",
                open.segment.path.display()
            ));
        }
        self.end_segment();
        Ok(true)
    }

    fn end_segment(&mut self) {
        let Some(open) = self.open.take() else { return };
        let (end, path) = (open.end(), open.segment.path.display().to_string());
        let Some(last) = open.segment.last else { return };
        if end <= last {
            self.notes.push(format!(
                "{path}: it ends in front of message {end}, although its name says {last}"
            ));
        }
        // Numbers up to the one in its name are its own.
        self.next = self.next.max(last.saturating_add(1));
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

fn widen(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
