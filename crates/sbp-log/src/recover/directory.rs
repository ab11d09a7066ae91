//! Reads the directory: its files, the headers of segments, and the checkpoints.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::OpenError;
use crate::format::Unreadable;
use crate::format::checkpoint::Checkpoint;
use crate::format::clean::GroupMark;
use crate::format::group::{GroupHeader, is_zero};
use crate::format::segment::{FIRST_GROUP, SegmentHeader};
use crate::fs::{File, FileSystem};
use crate::segments::files::{self, ASIDE, CLEAN, SegmentId, at, corrupt, read_small, unreadable};
use crate::segments::open_files::OpenFiles;
use crate::segments::segment::Segment;
use crate::state::shared::{Checkpoints, KeptCheckpoint};

/// A segment with the length its file has.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) segment: Arc<Segment>,
    pub(crate) path: PathBuf,
    pub(crate) length: u64,
}

impl SegmentFile {
    /// Whether the file is shorter than it was created. Only a footer may shorten it.
    pub(crate) fn is_short(&self) -> bool {
        self.length < self.segment.capacity
    }

    /// Reads the part of the file that can have groups.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let length = self.length.min(self.segment.capacity);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.segment.file.read_at(0, &mut bytes)?;
        Ok(bytes)
    }
}

/// The files of a log.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) segments: BTreeMap<u64, SegmentFile>,
    /// Compacted files, made from older segments.
    pub(crate) compacted: BTreeMap<u64, SegmentFile>,
    /// Files that only an older checkpoint needs.
    pub(crate) retired: Vec<(SegmentId, SegmentFile)>,
    /// The largest number of any file.
    pub(crate) newest: u64,
    /// Readable checkpoints, oldest first.
    read: Vec<Checkpoint>,
    pub(crate) checkpoints: Checkpoints,
    /// The size of the newest readable checkpoint.
    pub(crate) checkpoint_size: u64,
    pub(crate) clean: Option<GroupMark>,
    /// Incomplete files and unused segments, which are to be removed.
    pub(crate) litter: Vec<PathBuf>,
    pub(crate) notes: Vec<String>,
}

impl Directory {
    pub(crate) fn read(fs: &dyn FileSystem, open: &Arc<OpenFiles>, path: &Path) -> Result<Self, OpenError> {
        let mut found = Self::default();
        let mut names = fs.list(path).map_err(at(path))?;
        names.sort_unstable();
        for name in &names {
            let file = path.join(name);
            if name.ends_with(ASIDE) {
                found.litter.push(file);
            } else if let Some(id) = SegmentId::parse(name) {
                found.add_segment(open, file, id)?;
            } else if let Some(sequence) = files::checkpoint_sequence(name) {
                found.add_checkpoint(fs, &file, sequence)?;
            }
        }
        if found.checkpoints.kept.len() < 2 {
            found.checkpoints.kept.insert(0, KeptCheckpoint::none());
        }
        let clean = path.join(CLEAN);
        if let Some(bytes) = read_small(fs, &clean).map_err(at(&clean))? {
            found.clean = Some(GroupMark::parse_clean(&bytes).map_err(|why| unreadable(&clean, why))?);
        }
        Ok(found)
    }

    fn add_segment(&mut self, open: &Arc<OpenFiles>, path: PathBuf, id: SegmentId) -> Result<(), OpenError> {
        self.newest = self.newest.max(id.number());
        let file = open.handle(&path, None);
        let length = file.len().map_err(at(&path))?;
        let mut header = vec![0; usize::try_from(length.min(SegmentHeader::LEN as u64)).unwrap_or(0)];
        file.read_at(0, &mut header).map_err(at(&path))?;
        let header = match SegmentHeader::parse(&header) {
            Ok(header) if header.number == id.number() => header,
            Ok(_) => return Err(corrupt(path, "the segment's header has another number than its name")),
            Err(Unreadable::Bad(what)) => {
                let mut rest = vec![0; usize::try_from(length.saturating_sub(FIRST_GROUP)).unwrap_or(0)];
                file.read_at(FIRST_GROUP.min(length), &mut rest).map_err(at(&path))?;
                if !is_zero(&rest) {
                    return Err(corrupt(path, format!("the segment's header: {what}")));
                }
                // The segment was prepared and never used, so nothing is lost.
                self.notes
                    .push(format!("{}: unused, header unreadable, removed", path.display()));
                self.litter.push(path);
                return Ok(());
            }
            Err(newer) => return Err(unreadable(&path, newer)),
        };
        let segment = Arc::new(Segment::opened(file, &header));
        let file = SegmentFile { segment, path, length };
        match id {
            SegmentId::Chain(number) => self.segments.insert(number, file),
            SegmentId::Compacted(number) => self.compacted.insert(number, file),
        };
        Ok(())
    }

    fn add_checkpoint(&mut self, fs: &dyn FileSystem, path: &Path, sequence: u64) -> Result<(), OpenError> {
        let Some(bytes) = read_small(fs, path).map_err(at(path))? else {
            return Ok(());
        };
        self.checkpoints.sequence = self.checkpoints.sequence.max(sequence);
        match Checkpoint::parse(&bytes) {
            Ok(checkpoint) => {
                self.checkpoints.kept.push(KeptCheckpoint::of(sequence, &checkpoint));
                self.checkpoint_size = bytes.len() as u64;
                self.read.push(checkpoint);
            }
            Err(Unreadable::Bad(what)) => {
                self.notes
                    .push(format!("{}: {what}; the one before is used", path.display()));
                self.checkpoints.kept.push(KeptCheckpoint::unreadable(sequence));
            }
            Err(newer) => return Err(unreadable(path, newer)),
        }
        Ok(())
    }

    /// The newest readable checkpoint. Without any, the log must be complete from its first segment on.
    pub(crate) fn newest_checkpoint(&mut self) -> Result<Option<Checkpoint>, OpenError> {
        let newest = self.read.pop();
        if let Some(newest) = &newest {
            self.retire_unlisted(newest);
            return Ok(Some(newest.clone()));
        }
        if self.checkpoints.sequence == 0 {
            // No checkpoint ever listed the compacted files, so the segments they were made from still exist.
            let unlisted = std::mem::take(&mut self.compacted);
            self.litter.extend(unlisted.into_values().map(|file| file.path));
            return Ok(None);
        }
        let first = self.segments.values().next();
        let begins_elsewhere = match first {
            Some(first) if !self.has_first_group()? => Some(first),
            _ => None,
        };
        match self.compacted.values().next().or(begins_elsewhere) {
            Some(file) => Err(corrupt(
                &file.path,
                "no checkpoint is readable, and the log does not begin here",
            )),
            None => Ok(None),
        }
    }

    /// Whether the segment that the log began with is there: segment 1, or the larger one that was made instead of it
    /// because the first group of all had no room in it.
    fn has_first_group(&self) -> Result<bool, OpenError> {
        if self.segments.contains_key(&1) {
            return Ok(true);
        }
        for file in self.segments.values() {
            let mut bytes = [0; GroupHeader::LEN];
            if file.length < FIRST_GROUP + bytes.len() as u64 {
                continue;
            }
            let read = file.segment.file.read_at(FIRST_GROUP, &mut bytes);
            read.map_err(at(&file.path))?;
            if GroupHeader::parse(&bytes, file.segment.salt).is_some_and(|group| group.number == 1) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes out the files from before the newest checkpoint that it does not list. They are not needed by this start,
    /// but stay as long as the older checkpoint needs them.
    fn retire_unlisted(&mut self, newest: &Checkpoint) {
        let listed = KeptCheckpoint::of(0, newest);
        let kept = self.checkpoints.kept.iter();
        let older: Vec<_> = kept.filter(|kept| kept.sequence < newest.sequence).cloned().collect();
        let chain = self.segments.keys().map(|number| SegmentId::Chain(*number));
        let compacted = self.compacted.keys().map(|number| SegmentId::Compacted(*number));
        let unlisted: Vec<_> = chain.chain(compacted).filter(|id| !listed.needs(*id)).collect();
        for id in unlisted {
            let file = match id {
                SegmentId::Chain(number) => self.segments.remove(&number),
                SegmentId::Compacted(number) => self.compacted.remove(&number),
            };
            match file {
                Some(file) if older.iter().any(|older| older.needs(id)) => self.retired.push((id, file)),
                Some(file) => self.litter.push(file.path),
                None => {}
            }
        }
    }

    /// The segments from `number` on, in order.
    pub(crate) fn segments_from(&self, number: u64) -> Vec<SegmentFile> {
        self.segments.range(number..).map(|(_, file)| file.clone()).collect()
    }
}
