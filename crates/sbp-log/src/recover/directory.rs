//! What files there are.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::OpenError;
use crate::files::{self, ASIDE, CLEAN, at, corrupt, read_small, unreadable};
use crate::format::Unreadable;
use crate::format::checkpoint::Checkpoint;
use crate::format::clean::GroupMark;
use crate::format::group::is_zero;
use crate::format::segment::{FIRST_GROUP, SegmentHeader};
use crate::fs::{File, FileSystem};
use crate::handle::OpenFiles;
use crate::segment::Segment;
use crate::shared::Checkpoints;

/// A segment with the length its file has.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) segment: Arc<Segment>,
    pub(crate) path: PathBuf,
    pub(crate) length: u64,
}

impl SegmentFile {
    /// Whether it has not the length it was made with. A footer shortens a file; nothing else may.
    pub(crate) fn is_short(&self) -> bool {
        self.length < self.segment.capacity
    }

    /// The part of the file that can hold groups.
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
    /// Readable checkpoints, oldest first.
    read: Vec<Checkpoint>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) clean: Option<GroupMark>,
    /// Files that are not complete, and segments without use: to be removed.
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
            } else if let Some(number) = files::segment_number(name) {
                found.add_segment(open, file, number)?;
            } else if let Some(sequence) = files::checkpoint_sequence(name) {
                found.add_checkpoint(fs, &file, sequence)?;
            }
        }
        let clean = path.join(CLEAN);
        if let Some(bytes) = read_small(fs, &clean).map_err(at(&clean))? {
            found.clean = Some(GroupMark::parse_clean(&bytes).map_err(|why| unreadable(&clean, why))?);
        }
        Ok(found)
    }

    fn add_segment(&mut self, open: &Arc<OpenFiles>, path: PathBuf, number: u64) -> Result<(), OpenError> {
        let file = open.handle(&path, None);
        let length = file.len().map_err(at(&path))?;
        let mut header = vec![0; usize::try_from(length.min(SegmentHeader::LEN as u64)).unwrap_or(0)];
        file.read_at(0, &mut header).map_err(at(&path))?;
        let header = match SegmentHeader::parse(&header) {
            Ok(header) if header.number == number => header,
            Ok(_) => return Err(corrupt(path, "the segment's header has another number than its name")),
            Err(Unreadable::Bad(what)) => {
                let mut rest = vec![0; usize::try_from(length.saturating_sub(FIRST_GROUP)).unwrap_or(0)];
                file.read_at(FIRST_GROUP.min(length), &mut rest).map_err(at(&path))?;
                if !is_zero(&rest) {
                    return Err(corrupt(path, format!("the segment's header: {what}")));
                }
                // Prepared and never used: nothing is lost with it.
                self.notes
                    .push(format!("{}: unused, header unreadable, removed", path.display()));
                self.litter.push(path);
                return Ok(());
            }
            Err(newer) => return Err(unreadable(&path, newer)),
        };
        let segment = Arc::new(Segment::opened(file, &header));
        self.segments.insert(number, SegmentFile { segment, path, length });
        Ok(())
    }

    fn add_checkpoint(&mut self, fs: &dyn FileSystem, path: &Path, sequence: u64) -> Result<(), OpenError> {
        let Some(bytes) = read_small(fs, path).map_err(at(path))? else {
            return Ok(());
        };
        self.checkpoints.sequence = self.checkpoints.sequence.max(sequence);
        match Checkpoint::parse(&bytes) {
            Ok(checkpoint) => {
                let segments = checkpoint.segments.iter().map(|item| item.number).collect();
                self.checkpoints.kept.push((sequence, segments));
                self.checkpoints.size = bytes.len() as u64;
                self.read.push(checkpoint);
            }
            Err(Unreadable::Bad(what)) => {
                self.notes
                    .push(format!("{}: {what}; the one before is used", path.display()));
                self.checkpoints.kept.push((sequence, Vec::new()));
            }
            Err(newer) => return Err(unreadable(path, newer)),
        }
        Ok(())
    }

    /// The newest readable checkpoint. Without any, the log must be there from its first segment on.
    pub(crate) fn newest_checkpoint(&mut self) -> Result<Option<Checkpoint>, OpenError> {
        let newest = self.read.pop();
        if let Some(newest) = &newest {
            self.retire_unlisted(newest);
            return Ok(Some(newest.clone()));
        }
        let lost = !self.checkpoints.kept.is_empty();
        match self.segments.iter().next() {
            Some((number, file)) if lost && *number != 1 => Err(corrupt(
                &file.path,
                "no checkpoint is readable, and the log does not begin here",
            )),
            _ => Ok(None),
        }
    }

    /// Segments from before the checkpoint that it does not list: nothing in them is needed. They stay while the older
    /// checkpoint lists them.
    fn retire_unlisted(&mut self, newest: &Checkpoint) {
        let listed =
            |checkpoint: &Checkpoint, number: u64| checkpoint.segments.iter().any(|item| item.number == number);
        let old: Vec<u64> = self
            .segments
            .range(..=newest.covered.segment)
            .map(|(number, _)| *number)
            .filter(|number| !listed(newest, *number))
            .collect();
        for number in old {
            let Some(file) = self.segments.remove(&number) else {
                continue;
            };
            if self.read.iter().any(|older| listed(older, number)) {
                self.checkpoints.retired.push(number);
            } else {
                self.litter.push(file.path);
            }
        }
    }

    /// The segments from `number` on, in order.
    pub(crate) fn segments_from(&self, number: u64) -> Vec<SegmentFile> {
        self.segments.range(number..).map(|(_, file)| file.clone()).collect()
    }
}
