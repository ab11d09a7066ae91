//! A segment's file and what is known about it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Durability;
use crate::files::{ASIDE, SegmentId};
use crate::format::record::RecordHead;
use crate::format::segment::{FIRST_GROUP, SegmentHeader};
use crate::fs::{File, FileSystem, OpenMode};
use crate::handle::{OpenFiles, SegmentHandle};

/// One segment file, open.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    /// The mask of its record heads.
    pub(crate) mask: u32,
    /// How far groups may reach.
    pub(crate) capacity: u64,
    pub(crate) durability: Durability,
    pub(crate) file: Arc<SegmentHandle>,
}

impl Segment {
    /// Makes a segment under a temporary name, full of zeros, and gives it its name when all of it is durable.
    pub(crate) fn create(
        fs: &dyn FileSystem,
        files: &Arc<OpenFiles>,
        directory: &Path,
        header: SegmentHeader,
    ) -> io::Result<Self> {
        let name = SegmentId::Chain(header.number).file_name();
        let aside = directory.join(format!("{name}{ASIDE}"));
        let file = match fill(fs, &aside, header) {
            Ok(file) => file,
            Err(error) => {
                // Half a segment would keep the room that others need now.
                let _ = fs.remove(&aside);
                return Err(error);
            }
        };
        let path = directory.join(name);
        fs.rename(&aside, &path)?;
        fs.sync_dir(directory)?;
        Ok(Self::opened(files.handle(&path, Some(file)), &header))
    }

    /// A segment whose header has been read.
    pub(crate) fn opened(file: Arc<SegmentHandle>, header: &SegmentHeader) -> Self {
        Self {
            number: header.number,
            salt: header.salt,
            mask: RecordHead::mask(header.salt),
            capacity: header.capacity,
            durability: header.durability,
            file,
        }
    }

    /// The longest group a segment of this size holds.
    pub(crate) fn room(capacity: u64) -> u64 {
        capacity.saturating_sub(FIRST_GROUP)
    }
}

fn fill(fs: &dyn FileSystem, aside: &Path, header: SegmentHeader) -> io::Result<Arc<dyn File>> {
    let file = fs.open(aside, OpenMode::Truncate)?;
    file.preallocate(header.capacity)?;
    file.write_at(0, &header.encode())?;
    file.sync_data()?;
    Ok(file)
}
