//! A durable, segmented log: many ranges, one file at a time, one `fdatasync` for everything that waits.
//!
//! The log stores opaque batches beside a few typed fields ([`EntryHead`]) and gives them back by range and offset. It
//! knows no network, no messages and no async runtime; every call blocks at most on memory, except reads of what is no
//! longer in memory. Start from [`Log`]: [`Log::open`] recovers a directory, [`Log::append`] queues, a
//! [`GroupObserver`] hears when a group is on stable storage, and [`Log::read`] serves what is.
//!
//! The format on the disk, the rules of recovery and of compatibility are in this crate's `README.md`. Faults enter
//! through [`FileSystem`] alone; the tests' one loses power at will.

mod backup;
mod clock;
mod config;
mod durability;
mod entry;
mod error;
mod format;
mod fs;
mod key_hash;
mod log;
mod observer;
mod read;
mod recover;
mod recovered;
mod segments;
mod state;
mod stats;
mod upkeep;
mod verify;
mod write;
mod writers;

pub use backup::{BackingUp, BackupFile, LogBackup, Step, restore_order, restored_without_id, unsealed_length};
pub use clock::{Clock, SystemClock};
#[cfg(feature = "testing")]
pub use config::ForgetWriters;
pub use config::{Helpers, LogConfig};
pub use durability::Durability;
pub use entry::{BatchBytes, EntryHead, EntryKind, LogEntry, StoredBatch, StoredEntry};
pub use error::{LogError, OpenError, ReadError};
pub use fs::{File, FileLock, FileSystem, OpenMode, RealFileSystem, Space};
pub use log::{Log, Queued, writers_in};
pub use observer::{GroupObserver, SyncObserver};
pub use recover::check_start;
pub use recovered::{Damage, DamagedInterval, RangeEnd, Recovered};
pub use stats::LogStats;
pub use upkeep::scrub::Scrubbed;
pub use verify::{Fault, Verification, Verified};
pub use writers::{WRITER_WINDOW, WriterBatch, WriterKey, WriterState};
