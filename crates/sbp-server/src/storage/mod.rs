//! Opening a data directory: the log, the metadata, and whether they belong together.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use sbp_log::{Clock, FileSystem, Log, LogConfig, OpenError, RangeEnd, Recovered};
use sbp_types::{RangeKey, ServerId};

use crate::StartError;
use crate::failure::Health;
use crate::meta::{MetadataChange, MetadataError, MetadataStore, RedbStore};
use crate::placement::{PlacementDriver, PlacementState};
use crate::range::{HeldRange, Phase, RangeHub, RangeServer, RangeState};
use crate::stats::Counters;

/// The number of a server that is its own placement driver.
const OWN_SERVER_ID: ServerId = ServerId(1);

/// Both halves of the server on top of what the directory holds.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) server_id: ServerId,
    pub(crate) placement: PlacementDriver,
    pub(crate) ranges: Arc<RangeServer>,
}

/// What [`open`] needs besides the directory.
#[derive(Debug)]
pub(crate) struct StorageParts {
    pub(crate) files: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<Counters>,
}

/// Recovers what is in a directory. On an error nothing was dropped and nothing is left running.
pub(crate) fn open(parts: &StorageParts, config: LogConfig) -> Result<Storage, StartError> {
    let StorageParts {
        files,
        clock,
        health,
        counters,
    } = parts;
    let directory = config.directory.clone();
    let hub = RangeHub::new(Arc::clone(health), Arc::clone(counters));
    let observer = Arc::clone(&hub);
    let (log, recovered) = Log::open(Arc::clone(files), Arc::clone(clock), config, observer)
        .map_err(|error| log_error(&directory, error))?;
    for note in &recovered.notes {
        tracing::info!(note, "recovery of the log");
    }
    for damage in &recovered.damage.intervals {
        tracing::warn!(range = %damage.key, from = %damage.from, to = %damage.to, "damaged records cannot be served");
    }
    let metadata_error = |error| metadata_error(&directory, error);
    let mut store = RedbStore::open(files, &directory).map_err(metadata_error)?;
    let Stored { state, held, starts } = install(store.load().map_err(metadata_error)?);
    check_together(&directory, &state, &held, starts, &recovered)?;
    match store.commit(&[MetadataChange::Started(recovered.boot_id)]) {
        // What is there can be read all the same.
        Ok(()) | Err(MetadataError::DiskFull) => {}
        Err(error) => return Err(metadata_error(error)),
    }
    let server_id = match log.server_id() {
        Some(id) => id,
        None => {
            let io = |source| StartError::Io {
                what: format!("write the server's number in {}", directory.display()),
                source,
            };
            log.set_server_id(OWN_SERVER_ID).map_err(io)?;
            OWN_SERVER_ID
        }
    };
    let ends: HashMap<RangeKey, RangeEnd> = recovered.ranges.iter().copied().collect();
    for held in held {
        if state.is_buried(held.key.stream) {
            continue;
        }
        let facts = state
            .stream(held.key.stream)
            .map(|stream| stream.facts())
            .unwrap_or_default();
        let range = recovered_range(&held, ends.get(&held.key), recovered.damage.unlisted_ranges);
        hub.open(held.key.stream, facts, range);
    }
    let placement = PlacementDriver::start(
        state,
        Box::new(store),
        Arc::clone(&hub),
        server_id,
        Arc::clone(clock),
        Arc::clone(health),
    )
    .map_err(|source| StartError::Io {
        what: "start the metadata thread".to_owned(),
        source,
    })?;
    hub.set_knows_all(true);
    let ranges = Arc::new(RangeServer::new(hub, log, Arc::clone(clock)));
    Ok(Storage {
        server_id,
        placement,
        ranges,
    })
}

/// What the metadata store holds.
#[derive(Default)]
struct Stored {
    state: PlacementState,
    held: Vec<HeldRange>,
    /// How often the directory was started, as far as the metadata remembers.
    starts: u64,
}

/// Replays stored metadata into both halves.
fn install(changes: Vec<MetadataChange>) -> Stored {
    let mut stored = Stored::default();
    for change in changes {
        match change {
            MetadataChange::Placement(change) => stored.state.install(change),
            MetadataChange::Hold(range) => stored.held.push(range),
            MetadataChange::Started(starts) => stored.starts = starts,
        }
    }
    stored
}

/// Whether log and metadata belong together. Where one of them is an older copy, going on would give ids or offsets a
/// second time.
///
/// Every record of the log must be of a range that the metadata has, or of a stream it remembers as deleted; and the log,
/// which counts each start before the metadata does, must have counted more.
fn check_together(
    directory: &Path,
    state: &PlacementState,
    held: &[HeldRange],
    starts: u64,
    recovered: &Recovered,
) -> Result<(), StartError> {
    let path = directory.to_owned();
    if starts >= recovered.boot_id {
        return Err(StartError::LogOlderThanMetadata {
            path,
            log: recovered.boot_id,
            metadata: starts,
        });
    }
    let known: HashSet<RangeKey> = held.iter().map(|held| held.key).collect();
    let unknown = recovered
        .ranges
        .iter()
        .find(|(key, _)| !known.contains(key) && !state.is_buried(key.stream));
    match unknown {
        Some((key, _)) => Err(StartError::MetadataOlderThanLog {
            path,
            stream: key.stream.0,
            range: key.range.0,
        }),
        None => Ok(()),
    }
}

/// A range as it goes on after a start.
fn recovered_range(held: &HeldRange, end: Option<&RangeEnd>, unlisted_damage: bool) -> RangeState {
    let fresh = held.fresh();
    let proven = end.map_or(!unlisted_damage, |end| end.proven);
    let next = match held.end {
        Some(end) => end,
        None => end.map_or(held.start, |end| end.next_offset).max(held.start),
    };
    let phase = match fresh.phase {
        Phase::Open if !proven => Phase::EndDamaged,
        phase => phase,
    };
    RangeState {
        next,
        confirmed: next,
        phase,
        ..fresh
    }
}

fn log_error(directory: &Path, error: OpenError) -> StartError {
    let path = directory.to_owned();
    match error {
        OpenError::Locked { directory } => StartError::DirectoryLocked { path: directory },
        OpenError::NewerFormat { path, found, supported } => StartError::NewerFormat { path, found, supported },
        error => StartError::Log {
            path,
            reason: error.to_string(),
            source: Box::new(error),
        },
    }
}

fn metadata_error(directory: &Path, error: MetadataError) -> StartError {
    let path = directory.to_owned();
    match error {
        MetadataError::NewerFormat { found, supported } => StartError::NewerFormat { path, found, supported },
        error => StartError::Metadata {
            path,
            reason: error.to_string(),
            source: Box::new(error),
        },
    }
}

#[cfg(test)]
mod tests;
