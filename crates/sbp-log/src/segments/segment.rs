//! An open segment file and its header.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Durability;
use crate::format::record::RecordHead;
use crate::format::segment::{FIRST_GROUP, SegmentHeader};
use crate::fs::FileSystem;
use crate::segments::files::{SegmentId, create};
use crate::segments::open_files::{OpenFiles, SegmentHandle};

/// One segment file, open.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    /// The mask of its record heads' checksums.
    pub(crate) mask: u32,
    /// The end of the part that groups may use.
    pub(crate) capacity: u64,
    pub(crate) durability: Durability,
    pub(crate) file: Arc<SegmentHandle>,
}

impl Segment {
    /// Creates a segment full of zeros under a temporary name, and renames it once it is durable.
    pub(crate) fn create(
        fs: &dyn FileSystem,
        files: &Arc<OpenFiles>,
        directory: &Path,
        header: SegmentHeader,
    ) -> io::Result<Self> {
        let name = SegmentId::Chain(header.number).file_name();
        let file = create(fs, directory, &name, |file| {
            file.preallocate(header.capacity)?;
            file.write_at(0, &header.encode())?;
            file.sync_data()?;
            Ok::<_, io::Error>(file)
        })?;
        Ok(Self::opened(files.handle(&directory.join(name), Some(file)), &header))
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

    /// The length of the longest group that fits into a segment of this size.
    pub(crate) fn room(capacity: u64) -> u64 {
        capacity.saturating_sub(FIRST_GROUP)
    }
}
