//! What a check of a directory found.

use std::path::PathBuf;

use sbp_types::{Offset, RangeKey};

use crate::DamagedInterval;

/// The result of checking a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files of records: segments, and what compaction left of older ones.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Groups that are whole.
    pub groups: u64,
    /// Batches, fences of writers and parts of their state that are whole.
    pub batches: u64,
    /// How many times the directory has been opened; 0 if that cannot be read.
    pub starts: u64,
    /// One past the last offset of each range, as far as it can be known.
    pub ends: Vec<(RangeKey, Offset)>,
    /// What is damaged. Empty: every byte is what was written.
    pub faults: Vec<Fault>,
    /// What is as a crash leaves it, and no damage.
    pub notes: Vec<String>,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The first byte of the place.
    pub from: u64,
    /// The byte behind it.
    pub to: u64,
    /// What is wrong there.
    pub what: String,
    /// The records that cannot be read, ordered. Empty if none are lost.
    pub lost: Vec<DamagedInterval>,
    /// Whether records may be lost of which nothing tells the offsets.
    pub more_lost: bool,
    /// Whether the log's owner knew that these records are lost: a checkpoint has them as damaged.
    pub known: bool,
}

impl Fault {
    /// A fault of a small file, or of a whole file.
    pub(super) fn of_file(file: PathBuf, length: u64, what: impl Into<String>) -> Self {
        Self {
            file,
            from: 0,
            to: length,
            what: what.into(),
            lost: Vec::new(),
            more_lost: false,
            known: false,
        }
    }

    /// Adds lost records of a range, joined to those before.
    pub(super) fn lose(&mut self, key: RangeKey, from: Offset, to: Offset) {
        if from >= to {
            return;
        }
        match self.lost.last_mut().filter(|last| last.key == key && last.to == from) {
            Some(last) => last.to = to,
            None => self.lost.push(DamagedInterval { key, from, to }),
        }
    }
}
