//! Figures about a running log.

use std::time::Duration;

use crate::Durability;

/// Counts since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// The durability in force, which affects all other figures.
    pub durability: Durability,
    /// Groups written.
    pub groups: u64,
    /// Batches written.
    pub batches: u64,
    /// Bytes of batches written.
    pub batch_bytes: u64,
    /// Bytes written to segments: batches, heads and padding.
    pub written_bytes: u64,
    /// Bytes of batches that were copied on their way to the disk.
    pub copied_bytes: u64,
    /// Syncs of segments.
    pub syncs: u64,
    /// Time spent waiting for those syncs.
    pub sync_time: Duration,
    /// Batches that readers got from memory.
    pub hot_reads: u64,
    /// Batches that readers got from the disk.
    pub cold_reads: u64,
    /// Reads of the disk for those batches.
    pub disk_reads: u64,
    /// Bytes written by compaction.
    pub compacted_bytes: u64,
    /// Segments that exist, without the prepared one.
    pub segments: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
}
