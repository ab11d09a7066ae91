//! Opens a data directory: the log and the metadata, and checks that they belong together.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sbp_log::{Clock, DamagedInterval, EntryKind, FileSystem, Log, LogConfig, OpenError, RangeEnd, Recovered};
use sbp_replication::Term;
use sbp_types::{ClusterId, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId};

use crate::cluster_id::Learned;
use crate::config::ClusterTimes;
use crate::disk_watch::DiskWatch;
use crate::error::StartError;
use crate::failure::Health;
use crate::meta::{MetadataChange, MetadataError, MetadataStore, RedbStore};
use crate::placement::{
    Change, DriverParts, PlacementDriver, PlacementState, RangeServers, identify_streams, new_identity,
};
use crate::range::{FoundCopy, HeldRange, LogContext, Phase, RangeHub, RangeServer, RangeState};
use crate::roles::{HostedRanges, LocalAndOthers, LocalRangeServer, SharedStore};
use crate::stats::{Counters, seconds_since};
use crate::sync_watch::SyncWatch;

/// The first id that a placement driver allocates. Its next id is still this one until it has allocated an id.
const FIRST_SERVER_ID: ServerId = ServerId(1);

/// The segment size of a process that is only a placement driver. It stores no records, but has a log because the log
/// owns the directory.
const SMALL_SEGMENT: u64 = 1 << 20;
const SMALL_RESERVE: u64 = 256 << 10;

/// Both roles on top of what the directory holds.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) server_id: ServerId,
    pub(crate) placement: PlacementDriver,
    pub(crate) ranges: Arc<RangeServer>,
}

/// The storage of a range server in a process of its own.
#[derive(Debug)]
pub(crate) struct RangeStorage {
    /// `None` until the placement driver has allocated one.
    pub(crate) server_id: Option<ServerId>,
    /// How often the directory was started, this start included.
    pub(crate) starts: u64,
    /// The directory says which cluster it belongs to.
    pub(crate) has_joined: bool,
    pub(crate) ranges: Arc<RangeServer>,
    pub(crate) hosted_ranges: HostedRanges,
    pub(crate) store: Box<dyn MetadataStore>,
}

/// What [`open`] needs besides the directory.
#[derive(Debug)]
pub(crate) struct StorageParts {
    pub(crate) files: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<Counters>,
    /// Watches `files`.
    pub(crate) disk: Arc<DiskWatch>,
    pub(crate) times: ClusterTimes,
    /// The cluster's id, once it is known.
    pub(crate) cluster: Learned,
}

/// Recovers a directory for both roles; `others` are the range servers in other processes. After an error nothing was
/// dropped and nothing is left running.
pub(crate) fn open(
    parts: &StorageParts,
    config: LogConfig,
    others: Arc<dyn RangeServers>,
) -> Result<Storage, StartError> {
    let Opened {
        directory,
        mut state,
        held,
        mut store,
        ranges,
        starts,
        followed: _,
        let_go: _,
        cluster,
    } = Opened::new(parts, config)?;
    let own_id = ranges.log.server_id();
    // It was given its number by another placement driver, or holds what another one has placed here.
    let is_of_others = own_id.is_some_and(|id| id >= state.next_server_id())
        || held
            .iter()
            .any(|held| state.stream(held.key.stream).is_some() && state.range(held.key).is_none());
    if is_of_others {
        return Err(StartError::OtherRole {
            path: directory,
            found: "a range server whose metadata are not in it",
        });
    }
    let server_id = match own_id {
        Some(id) => id,
        None => {
            let id = state.next_server_id();
            let next = Change::NextServerId(ServerId(id.0.saturating_add(1)));
            store
                .commit(&[MetadataChange::Placement(next.clone())])
                .map_err(|error| metadata_error(&directory, error))?;
            state.install(next);
            set_server_id(&ranges, &directory, id)?;
            id
        }
    };
    ranges.hub.set_knows_all(true);
    if state
        .ranges_after(None)
        .any(|range| !range.servers.contains(&server_id))
    {
        ranges.hub.share();
    }
    begin_cluster(&parts.cluster, &directory, cluster, store.as_mut())?;
    let local = LocalRangeServer {
        id: server_id,
        ranges: Arc::clone(&ranges),
    };
    let placement = start_placement(parts, &directory, (state, Term(starts)), store, Some(local), others)?;
    Ok(Storage {
        server_id,
        placement,
        ranges,
    })
}

/// As [`open`], for a placement driver in a process of its own. Returns also a range server without ranges, whose log
/// owns the directory.
pub(crate) fn open_placement_driver(
    parts: &StorageParts,
    config: LogConfig,
    others: Arc<dyn RangeServers>,
) -> Result<(PlacementDriver, Arc<RangeServer>), StartError> {
    let Opened {
        directory,
        state,
        mut store,
        ranges: owner,
        starts,
        cluster,
        ..
    } = open_without_ranges(parts, config)?;
    begin_cluster(&parts.cluster, &directory, cluster, store.as_mut())?;
    let placement = start_placement(parts, &directory, (state, Term(starts)), store, None, others)?;
    Ok((placement, owner))
}

/// As [`open_placement_driver`], for one whose metadata are elsewhere.
pub(crate) fn open_without_metadata(parts: &StorageParts, config: LogConfig) -> Result<Arc<RangeServer>, StartError> {
    let Opened {
        directory,
        state,
        ranges: owner,
        ..
    } = open_without_ranges(parts, config)?;
    if has_placement(&state) {
        return Err(StartError::OtherRole {
            path: directory,
            found: "a placement driver that has its metadata in it",
        });
    }
    Ok(owner)
}

fn open_without_ranges(parts: &StorageParts, config: LogConfig) -> Result<Opened, StartError> {
    let opened = Opened::new(
        parts,
        LogConfig {
            segment_bytes: config.segment_bytes.min(SMALL_SEGMENT),
            reserve_bytes: config.reserve_bytes.min(SMALL_RESERVE),
            ..config
        },
    )?;
    if !opened.held.is_empty() || opened.ranges.log.server_id().is_some() {
        return Err(StartError::OtherRole {
            path: opened.directory,
            found: "a range server",
        });
    }
    Ok(opened)
}

/// As [`open`], for a range server in a process of its own.
pub(crate) fn open_range_server(parts: &StorageParts, config: LogConfig) -> Result<RangeStorage, StartError> {
    let Opened {
        directory,
        state,
        held,
        let_go,
        store,
        ranges,
        followed,
        starts,
        cluster,
    } = Opened::new(parts, config)?;
    if has_placement(&state) {
        return Err(StartError::OtherRole {
            path: directory,
            found: "a placement driver",
        });
    }
    for stream in state.tombstones() {
        ranges.delete(stream);
    }
    for server in state.servers() {
        ranges.addresses.note(server.id, &server.address);
    }
    let server_id = ranges.log.server_id();
    // One that has no number yet was on its way into a cluster, and may go into another one.
    let cluster = cluster.filter(|_| server_id.is_some() || !held.is_empty());
    if let Some(id) = cluster {
        let _first = parts.cluster.set(id);
    }
    Ok(RangeStorage {
        server_id,
        starts,
        has_joined: cluster.is_some(),
        ranges,
        hosted_ranges: HostedRanges::new(state, held, let_go, followed),
        store,
    })
}

/// Refuses a directory without a number that was made from a backup: others would count on it for what was appended since. One that an
/// earlier version has restored does not say what it is, but has ranges.
pub(crate) fn check_not_restored(storage: &RangeStorage, directory: &Path) -> Result<(), StartError> {
    if !storage.ranges.log.is_restored() && storage.hosted_ranges.ranges.is_empty() {
        return Ok(());
    }
    Err(StartError::RestoredMember {
        path: directory.to_owned(),
    })
}

/// Writes the number that a range server was given into its directory, and before it which cluster has given it, if that is known.
pub(crate) fn join(
    storage: &mut RangeStorage,
    directory: &Path,
    cluster: &Learned,
    id: ServerId,
) -> Result<(), StartError> {
    if let Some(cluster) = cluster.get().filter(|_| !storage.has_joined) {
        let kept = storage.store.commit(&[MetadataChange::Cluster(*cluster)]);
        kept.map_err(|error| metadata_error(directory, error))?;
        storage.has_joined = true;
    }
    set_server_id(&storage.ranges, directory, id)
}

/// Writes the id that a server was given into its directory.
fn set_server_id(ranges: &RangeServer, directory: &Path, id: ServerId) -> Result<(), StartError> {
    let what = format!("write the server's id in {}", directory.display());
    ranges.log.set_server_id(id).map_err(StartError::io(what))
}

/// Gives an identity to streams that were created before identities existed, once and durably, before anybody can ask
/// for it.
fn identify(directory: &Path, state: &mut PlacementState, store: &mut dyn MetadataStore) -> Result<(), StartError> {
    let failed = StartError::io("draw random bytes for the identities of streams");
    let changes = identify_streams(state).map_err(failed)?;
    if changes.is_empty() {
        return Ok(());
    }
    let durable: Vec<_> = changes.iter().cloned().map(MetadataChange::Placement).collect();
    match store.commit(&durable) {
        Ok(()) => {
            for change in changes {
                state.install(change);
            }
            Ok(())
        }
        // These streams have no identity until a start finds room on the disk.
        Err(MetadataError::DiskFull) => Ok(()),
        Err(error) => Err(metadata_error(directory, error)),
    }
}

/// The id of the cluster whose metadata are in this directory. Where they have none yet it is drawn, once and durably.
fn begin_cluster(
    learned: &Learned,
    directory: &Path,
    known: Option<ClusterId>,
    store: &mut dyn MetadataStore,
) -> Result<(), StartError> {
    let id = match known {
        Some(id) => id,
        None => ClusterId(new_identity().map_err(StartError::io("draw random bytes for the id of the cluster"))?),
    };
    let kept = match known {
        Some(_) => Ok(()),
        None => store.commit(&[MetadataChange::Cluster(id)]),
    };
    match kept {
        Ok(()) => {
            let _first = learned.set(id);
            Ok(())
        }
        // It has none until a start finds room on the disk.
        Err(MetadataError::DiskFull) => Ok(()),
        Err(error) => Err(metadata_error(directory, error)),
    }
}

fn start_placement(
    parts: &StorageParts,
    directory: &Path,
    (mut state, term): (PlacementState, Term),
    mut store: Box<dyn MetadataStore>,
    local: Option<LocalRangeServer>,
    others: Arc<dyn RangeServers>,
) -> Result<PlacementDriver, StartError> {
    identify(directory, &mut state, store.as_mut())?;
    let parts = DriverParts {
        term,
        state,
        always_up: local.as_ref().map(|local| local.id),
        range_servers: match local.clone() {
            Some(local) => Arc::new(LocalAndOthers::new(local, others)),
            None => others,
        },
        store: Box::new(SharedStore { store, local }),
        clock: Arc::clone(&parts.clock),
        health: Arc::clone(&parts.health),
        times: parts.times,
    };
    PlacementDriver::start(parts).map_err(StartError::io("start the metadata thread"))
}

/// An opened directory.
struct Opened {
    directory: PathBuf,
    state: PlacementState,
    held: Vec<HeldRange>,
    let_go: BTreeSet<RangeKey>,
    store: Box<dyn MetadataStore>,
    ranges: Arc<RangeServer>,
    /// The highest term of a placement driver that the range server has followed.
    followed: Term,
    /// The cluster that the directory belongs to, where that is known.
    cluster: Option<ClusterId>,
    /// How often the directory was started, this start included: the term of a placement driver that has its metadata in it.
    starts: u64,
}

impl Opened {
    fn new(parts: &StorageParts, config: LogConfig) -> Result<Self, StartError> {
        let StorageParts {
            files,
            clock,
            health,
            counters,
            disk,
            ..
        } = parts;
        let directory = config.directory.clone();
        let hub = RangeHub::new(Arc::clone(health), Arc::clone(counters));
        let observer = Arc::clone(&hub);
        let began = Instant::now();
        tracing::info!(data_dir = %directory.display(), "recovering");
        let (log, recovered) = Log::open(Arc::clone(files), Arc::clone(clock), config, observer)
            .map_err(|error| log_error(&directory, error))?;
        tell_recovery(&recovered, began);
        log.observe_syncs(SyncWatch::new(Arc::clone(counters), Arc::clone(disk)));
        let metadata_error = |error| metadata_error(&directory, error);
        let mut store = RedbStore::open(files, &directory).map_err(metadata_error)?;
        let Stored {
            state,
            held,
            let_go,
            starts,
            followed,
            cluster,
        } = install(store.load().map_err(metadata_error)?);
        let unneeded = check_together(&directory, &state, (&held, &let_go), starts, &recovered)?;
        count_start(&mut store, recovered.boot_id).map_err(metadata_error)?;
        let ends: HashMap<RangeKey, RangeEnd> = recovered.ranges.iter().copied().collect();
        let held: Vec<_> = held
            .into_iter()
            .filter(|held| !state.has_tombstone(held.key.stream))
            .collect();
        for held in &held {
            let facts = state.stream(held.key.stream).map(|stream| stream.facts());
            let end = ends.get(&held.key);
            if let Some(damage) = log.begins_at(held.key, held.start) {
                tell_damage(&damage);
            }
            let found = settle(&log, held, end);
            let range = recovered_range(
                log.server_id(),
                (held, found.as_ref()),
                end,
                recovered.damage.unlisted_ranges,
            );
            hub.open(held.key.stream, facts.unwrap_or_default(), range);
        }
        // The log remembers only in its checkpoint what was released, so this is repeated at each start.
        for key in unneeded {
            log.release(key, Offset(i64::MAX));
        }
        for stream in state.tombstones() {
            log.release_stream(stream);
        }
        // The releases above have removed the writers of deleted streams.
        let mut writers = recovered.writers;
        writers.retain(|(writer, _)| log.writer(*writer).is_some());
        hub.recall(writers);
        let ranges = Arc::new(RangeServer::new(hub, log, Arc::clone(clock)));
        ranges.note_damage();
        ranges.leave(let_go.iter().copied());
        Ok(Self {
            directory,
            state,
            held,
            let_go,
            store: Box::new(store),
            ranges,
            followed,
            cluster,
            starts: recovered.boot_id,
        })
    }
}

/// Has the metadata remember that the directory was started so often.
fn count_start(store: &mut RedbStore, starts: u64) -> Result<(), MetadataError> {
    match store.commit(&[MetadataChange::Started(starts)]) {
        // With a full disk the data can still be read.
        Ok(()) | Err(MetadataError::DiskFull) => Ok(()),
        Err(error) => Err(error),
    }
}

fn tell_damage(damage: &DamagedInterval) {
    tracing::error!(range = %damage.key, from = %damage.from, to = %damage.to, "damaged records cannot be served");
}

/// The most damaged intervals that a start logs one by one.
const DAMAGE_TOLD: usize = 20;

/// Logs what recovery found.
fn tell_recovery(recovered: &Recovered, began: Instant) {
    for note in &recovered.notes {
        tracing::warn!(note, "recovery of the log");
    }
    let damaged = &recovered.damage.intervals;
    for damage in damaged.iter().take(DAMAGE_TOLD) {
        tell_damage(damage);
    }
    if let Some(more @ 1..) = damaged.len().checked_sub(DAMAGE_TOLD) {
        tracing::error!(more, "further damaged intervals");
    }
    if recovered.damage.unlisted_ranges {
        tracing::error!("damage may hide ranges: those without records take no appends");
    }
    tracing::info!(
        // Nothing has ended yet where this is the first start.
        ended_cleanly = (recovered.boot_id > 1).then_some(recovered.clean),
        starts = recovered.boot_id,
        ranges = recovered.ranges.len(),
        writers = recovered.writers.len(),
        damaged = damaged.len(),
        seconds = seconds_since(began),
        "recovered"
    );
}

/// The contents of the metadata store.
#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) state: PlacementState,
    pub(crate) held: Vec<HeldRange>,
    /// The ranges that the range server was let go of, and of which it may still have records.
    pub(crate) let_go: BTreeSet<RangeKey>,
    /// How often the directory was started, as the metadata remembers.
    pub(crate) starts: u64,
    /// The highest term of a placement driver that the range server has followed.
    pub(crate) followed: Term,
    /// The cluster that the directory belongs to, where that is known.
    pub(crate) cluster: Option<ClusterId>,
}

/// Whether these are the metadata of a placement driver.
pub(crate) fn has_placement(state: &PlacementState) -> bool {
    state.next_server_id() > FIRST_SERVER_ID || state.next_stream_id() > StreamId(1)
}

/// Applies the stored changes of both roles.
pub(crate) fn install(changes: Vec<MetadataChange>) -> Stored {
    let mut stored = Stored::default();
    for change in changes {
        match change {
            MetadataChange::Placement(change) => stored.state.install(change),
            MetadataChange::Hold(range) => stored.held.push(range),
            MetadataChange::LetGo(key) => {
                stored.let_go.insert(key);
            }
            MetadataChange::Cleared(key) => {
                stored.let_go.remove(&key);
            }
            MetadataChange::Started(starts) => stored.starts = starts,
            MetadataChange::Followed(term) => stored.followed = term,
            MetadataChange::Cluster(id) => stored.cluster = Some(id),
        }
    }
    stored
}

/// Checks that log and metadata belong together. If one of them were an older copy, ids or offsets would be given out
/// twice. Returns the ranges that are not held any more and of which the log still has records.
///
/// Every record of the log must belong to a range in the metadata, to one that the server was let go of, to a range that was trimmed
/// away before its stream's first one, or to a stream remembered as deleted. And the log, which counts each start before the metadata does, must
/// have counted more starts.
pub(crate) fn check_together(
    directory: &Path,
    state: &PlacementState,
    (held, let_go): (&[HeldRange], &BTreeSet<RangeKey>),
    starts: u64,
    recovered: &Recovered,
) -> Result<Vec<RangeKey>, StartError> {
    let path = directory.to_owned();
    if starts >= recovered.boot_id {
        return Err(StartError::LogOlderThanMetadata {
            path,
            log: recovered.boot_id,
            metadata: starts,
        });
    }
    let known: HashSet<RangeKey> = held.iter().map(|held| held.key).collect();
    let mut first: HashMap<StreamId, RangeIndex> = HashMap::new();
    for held in held {
        let first = first.entry(held.key.stream).or_insert(held.key.range);
        *first = held.key.range.min(*first);
    }
    let mut trimmed = Vec::new();
    for (key, _) in &recovered.ranges {
        if known.contains(key) || state.has_tombstone(key.stream) {
            continue;
        }
        if let_go.contains(key) {
            // It leaves the disk; nobody reads it.
        } else if first.get(&key.stream).is_none_or(|first| key.range > *first) {
            return Err(StartError::MetadataOlderThanLog {
                path,
                stream: key.stream.0,
                range: key.range.0,
            });
        }
        trimmed.push(*key);
    }
    Ok(trimmed)
}

/// Tells the log where a range ends, and what of it is not kept. Returns what the log then has of it, if other servers hold it
/// too.
fn settle(log: &Log<LogContext>, held: &HeldRange, end: Option<&RangeEnd>) -> Option<FoundCopy> {
    let found = (!held.set.is_alone()).then(|| found_copy(log, held, end));
    if found.is_some()
        && let Some(end) = held.end_position()
    {
        log.end_range(held.key, end);
    }
    let synced = found.filter(|_| held.end.is_none()).map(|found| found.synced.offset);
    let kept = if held.keeps_writers() || held.end.is_some() {
        held.start
    } else {
        held.opened_at()
    };
    log.release(held.key, synced.unwrap_or(held.start).min(kept));
    // Others are sent no more of it than the log has from now on.
    let first = log.first_position(held.key);
    found.map(|found| FoundCopy { first, ..found })
}

/// What the log has of a range that other servers hold too.
fn found_copy(log: &Log<LogContext>, held: &HeldRange, end: Option<&RangeEnd>) -> FoundCopy {
    let beginning = Position::start(held.opened_at());
    let synced = end.map_or(beginning, |end| Position {
        offset: end.next_offset,
        marks: end.next_marks,
    });
    let is_complete = held.end_position().is_some_and(|end| synced >= end);
    let first = if held.keeps_writers() || is_complete {
        None
    } else {
        // What cannot be read is not known.
        log.entries(held.key, beginning, 0)
            .unwrap_or_default()
            .into_iter()
            .next()
    };
    let writers_parts = match first
        .filter(|first| first.position == beginning)
        .map(|first| first.head.kind)
    {
        Some(EntryKind::Writers { parts, .. }) => parts.into(),
        _ => 0,
    };
    FoundCopy {
        synced,
        first: None,
        writers_parts,
    }
}

/// The state of a range after a start.
fn recovered_range(
    me: Option<ServerId>,
    (held, found): (&HeldRange, Option<&FoundCopy>),
    end: Option<&RangeEnd>,
    unlisted_damage: bool,
) -> RangeState {
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
    let replica = found.and_then(|found| held.recovered_replica(me, found));
    // What is confirmed of a range that others hold too is told by its primary.
    let readable = |replica: &sbp_replication::Replica| replica.readable().map_or(held.start, |end| end.offset);
    let confirmed = match (&replica, held.end) {
        (Some(replica), None) => readable(replica),
        _ => next,
    };
    RangeState {
        next,
        confirmed,
        phase,
        replica,
        ..fresh
    }
}

pub(crate) fn log_error(directory: &Path, error: OpenError) -> StartError {
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

pub(crate) fn metadata_error(directory: &Path, error: MetadataError) -> StartError {
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
