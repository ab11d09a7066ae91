//! Metadata in an embedded transactional store.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    TableError, WriteTransaction,
};
use sbp_log::{File, FileSystem, OpenMode};
use sbp_replication::Term;
use sbp_types::{RangeIndex, RangeKey, ServerId, StreamId};

use super::codec;
use super::{MetadataChange, MetadataError, MetadataStore};
use crate::placement::{Change, ServerRecord};

/// The file's name in the data directory.
pub(crate) const FILE: &str = "metadata.redb";
/// The file's name until it is complete.
const ASIDE: &str = "metadata.redb.tmp";
/// The format of tables and records.
const FORMAT: u64 = 1;
/// The newest format that this version can read: there is a range in [`LET_GO`]. An earlier version of the software would take its
/// records for those of newer metadata, or the range from others while they are there.
const WITH_LET_GO: u64 = 2;
/// The database's own default is a gigabyte, but the metadata of a server fits into a few megabytes.
const CACHE_BYTES: usize = 16 << 20;

const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const STREAMS: TableDefinition<'_, i64, &[u8]> = TableDefinition::new("streams");
const RANGES: TableDefinition<'_, (i64, i32), &[u8]> = TableDefinition::new("ranges");
const TOMBSTONES: TableDefinition<'_, i64, ()> = TableDefinition::new("buried_streams");
/// The range servers that may still have something of a deleted stream. The table is created with the first deletion.
const BURIED_ON: TableDefinition<'_, i64, &[u8]> = TableDefinition::new("buried_on");
const HELD: TableDefinition<'_, (i64, i32), &[u8]> = TableDefinition::new("held_ranges");
/// The ranges that the range server was let go of, and of which it may still have records. The table is created with the first of
/// them, or the first deletion.
const LET_GO: TableDefinition<'_, (i64, i32), ()> = TableDefinition::new("let_go_ranges");
/// The addresses of range servers. The table is created with the first server.
const SERVERS: TableDefinition<'_, i32, &str> = TableDefinition::new("range_servers");

/// The range servers that are to be emptied. The table is created with the first server.
const DRAINING: TableDefinition<'_, i32, ()> = TableDefinition::new("draining_range_servers");

/// How often the directories of range servers had been started when they registered last. The table is created with the first
/// server that says so; an earlier version of the software does not look at it.
const SERVER_STARTS: TableDefinition<'_, i32, u64> = TableDefinition::new("range_server_starts");

/// The id of the cluster that the directory belongs to, under [`CLUSTER_KEY`]. The table is created with it; an earlier version of
/// the software does not look at it.
const CLUSTER: TableDefinition<'_, &str, &str> = TableDefinition::new("cluster");

const CLUSTER_KEY: &str = "id";
const FORMAT_KEY: &str = "format";
const NEXT_STREAM_KEY: &str = "next_stream_id";
const NEXT_SERVER_KEY: &str = "next_server_id";
const STARTS_KEY: &str = "starts";
const TERM_KEY: &str = "term";
/// The number of transactions, which tells after a failed one whether it took effect.
const COMMITS_KEY: &str = "commits";

/// The store of one data directory.
#[derive(Debug)]
pub(crate) struct RedbStore {
    files: Arc<dyn FileSystem>,
    path: PathBuf,
    /// `None` after a failure that only a restart can repair.
    database: Option<Database>,
    /// The number of durable transactions.
    commits: u64,
}

impl RedbStore {
    /// Opens the store in `directory`, or creates it.
    pub(crate) fn open(files: &Arc<dyn FileSystem>, directory: &Path) -> Result<Self, MetadataError> {
        let path = directory.join(FILE);
        if !files.list(directory)?.iter().any(|name| name == FILE) {
            // Created under another name: a database whose creation was interrupted cannot be opened.
            let aside = directory.join(ASIDE);
            drop(Self::open_file(files, &aside, OpenMode::Truncate)?);
            files.rename(&aside, &path)?;
            files.sync_dir(directory)?;
        }
        Self::open_file(files, &path, OpenMode::Existing)
    }

    fn open_file(files: &Arc<dyn FileSystem>, path: &Path, mode: OpenMode) -> Result<Self, MetadataError> {
        let file = FileBackend(files.open(path, mode)?);
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(file)?;
        let commits = prepare(&database)?;
        Ok(Self {
            files: Arc::clone(files),
            path: path.to_owned(),
            database: Some(database),
            commits,
        })
    }

    /// The format of the store.
    #[cfg(test)]
    pub(super) fn format(&self) -> Result<u64, MetadataError> {
        let transaction = self.database()?.begin_read()?;
        let format = transaction.open_table(NUMBERS)?.get(FORMAT_KEY)?;
        Ok(format.map_or(0, |format| format.value()))
    }

    fn database(&self) -> Result<&Database, MetadataError> {
        self.database
            .as_ref()
            .ok_or(MetadataError::Store(redb::Error::PreviousIo))
    }

    /// Opens the file again after the disk was full, because the database refuses all use after a failed write. Returns
    /// whether the failed transaction is known not to have taken effect.
    fn reopen(&mut self) -> Result<bool, MetadataError> {
        drop(self.database.take());
        let again = Self::open_file(&self.files, &self.path, OpenMode::Existing)?;
        let undone = again.commits == self.commits;
        if undone {
            self.database = again.database;
        }
        Ok(undone)
    }
}

/// Checks the format, and creates the tables of a new store. Returns the number of transactions so far.
pub(super) fn prepare(database: &Database) -> Result<u64, MetadataError> {
    let transaction = database.begin_write()?;
    let (found, commits) = {
        let numbers = transaction.open_table(NUMBERS)?;
        let number = |key| numbers.get(key).map(|number| number.map(|number| number.value()));
        (number(FORMAT_KEY)?, number(COMMITS_KEY)?.unwrap_or(0))
    };
    match found {
        Some(FORMAT..=WITH_LET_GO) => transaction.abort()?,
        Some(found) => {
            return Err(MetadataError::NewerFormat {
                found: u32::try_from(found).unwrap_or(u32::MAX),
                supported: u32::try_from(WITH_LET_GO).unwrap_or(u32::MAX),
            });
        }
        None => {
            transaction.open_table(NUMBERS)?.insert(FORMAT_KEY, FORMAT)?;
            transaction.open_table(STREAMS)?;
            transaction.open_table(RANGES)?;
            transaction.open_table(TOMBSTONES)?;
            transaction.open_table(HELD)?;
            transaction.commit()?;
        }
    }
    Ok(commits)
}

/// Everything in a database.
pub(super) fn load(database: &Database) -> Result<Vec<MetadataChange>, MetadataError> {
    let transaction = database.begin_read()?;
    let mut changes = Vec::new();
    if let Some(starts) = transaction.open_table(NUMBERS)?.get(STARTS_KEY)? {
        changes.push(MetadataChange::Started(starts.value()));
    }
    if let Some(term) = transaction.open_table(NUMBERS)?.get(TERM_KEY)? {
        changes.push(MetadataChange::Followed(Term(term.value())));
    }
    changes.extend(load_cluster(&transaction)?);
    if let Some(next) = transaction.open_table(NUMBERS)?.get(NEXT_STREAM_KEY)? {
        let next = i64::try_from(next.value()).map_err(|_| unreadable("the next stream id"))?;
        changes.push(MetadataChange::Placement(Change::NextStreamId(StreamId(next))));
    }
    if let Some(next) = transaction.open_table(NUMBERS)?.get(NEXT_SERVER_KEY)? {
        let next = i32::try_from(next.value()).map_err(|_| unreadable("the next server id"))?;
        changes.push(MetadataChange::Placement(Change::NextServerId(ServerId(next))));
    }
    changes.extend(load_servers(&transaction)?);
    for row in transaction.open_table(STREAMS)?.iter()? {
        let (id, bytes) = row?;
        let id = StreamId(id.value());
        let stream = codec::decode_stream(id, bytes.value()).ok_or_else(|| unreadable(format!("stream {id}")))?;
        changes.push(MetadataChange::Placement(Change::PutStream(Arc::new(stream))));
    }
    for row in transaction.open_table(RANGES)?.iter()? {
        let (key, bytes) = row?;
        let key = range_key(key.value());
        let range = codec::decode_range(key, bytes.value()).ok_or_else(|| unreadable(format!("range {key}")))?;
        changes.push(MetadataChange::Placement(Change::PutRange(Arc::new(range))));
    }
    for row in transaction.open_table(TOMBSTONES)?.iter()? {
        changes.push(MetadataChange::Placement(Change::PutTombstone(StreamId(
            row?.0.value(),
        ))));
    }
    changes.extend(load_buried_on(&transaction)?);
    for row in transaction.open_table(HELD)?.iter()? {
        let (key, bytes) = row?;
        let key = range_key(key.value());
        let held =
            codec::decode_held(key, bytes.value()).ok_or_else(|| unreadable(format!("range {key}, held here")))?;
        changes.push(MetadataChange::Hold(held));
    }
    changes.extend(load_let_go(&transaction)?);
    Ok(changes)
}

/// The ranges that the server was let go of.
fn load_let_go(transaction: &ReadTransaction) -> Result<Vec<MetadataChange>, MetadataError> {
    let let_go = match transaction.open_table(LET_GO) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        let_go => let_go?,
    };
    let mut changes = Vec::new();
    for row in let_go.iter()? {
        changes.push(MetadataChange::LetGo(range_key(row?.0.value())));
    }
    Ok(changes)
}

impl MetadataStore for RedbStore {
    fn load(&self) -> Result<Vec<MetadataChange>, MetadataError> {
        load(self.database()?)
    }

    fn commit(&mut self, changes: &[MetadataChange]) -> Result<(), MetadataError> {
        let commits = self.commits + 1;
        match write(self.database()?, changes, commits) {
            Ok(()) => {
                self.commits = commits;
                Ok(())
            }
            Err(error) if is_disk_full(&error) && self.reopen()? => Err(MetadataError::DiskFull),
            Err(error) => Err(error),
        }
    }
}

fn is_disk_full(error: &MetadataError) -> bool {
    let cause = match error {
        MetadataError::Io(cause) | MetadataError::Store(redb::Error::Io(cause)) => cause,
        _ => return false,
    };
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Makes the changes in one transaction.
fn write(database: &Database, changes: &[MetadataChange], commits: u64) -> Result<(), MetadataError> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert(COMMITS_KEY, commits)?;
        let mut streams = transaction.open_table(STREAMS)?;
        let mut ranges = transaction.open_table(RANGES)?;
        let mut tombstones = transaction.open_table(TOMBSTONES)?;
        let mut held_ranges = transaction.open_table(HELD)?;
        for change in changes {
            match change {
                MetadataChange::Placement(Change::PutServer(server)) => put_server(&transaction, server)?,
                MetadataChange::Placement(Change::NextServerId(next)) => {
                    numbers.insert(NEXT_SERVER_KEY, u64::try_from(next.0).unwrap_or(0))?;
                }
                MetadataChange::Placement(Change::RemoveRange(key)) => {
                    ranges.remove(row_key(*key))?;
                    held_ranges.remove(row_key(*key))?;
                }
                MetadataChange::Placement(Change::DropTombstone(stream)) => {
                    tombstones.remove(stream.0)?;
                    transaction.open_table(BURIED_ON)?.remove(stream.0)?;
                }
                MetadataChange::Placement(Change::PutStream(stream)) => {
                    streams.insert(stream.id.0, codec::encode_stream(stream).as_slice())?;
                }
                MetadataChange::Placement(Change::PutRange(range)) => {
                    ranges.insert(row_key(range.key), codec::encode_range(range).as_slice())?;
                }
                MetadataChange::Placement(Change::NextStreamId(next)) => {
                    numbers.insert(NEXT_STREAM_KEY, u64::try_from(next.0).unwrap_or(0))?;
                }
                MetadataChange::Placement(Change::PutTombstone(stream)) => {
                    streams.remove(stream.0)?;
                    let rows = (stream.0, i32::MIN)..=(stream.0, i32::MAX);
                    ranges.retain_in(rows.clone(), |_, _| false)?;
                    held_ranges.retain_in(rows.clone(), |_, _| false)?;
                    let mut let_go = transaction.open_table(LET_GO)?;
                    let_go.retain_in(rows, |_, ()| false)?;
                    numbers.insert(FORMAT_KEY, format_of(&let_go)?)?;
                    tombstones.insert(stream.0, ())?;
                }
                MetadataChange::Placement(Change::BuriedOn(stream, servers)) => {
                    let mut buried_on = transaction.open_table(BURIED_ON)?;
                    buried_on.insert(stream.0, codec::encode_servers(servers).as_slice())?;
                }
                MetadataChange::Followed(term) => {
                    numbers.insert(TERM_KEY, term.0)?;
                }
                MetadataChange::Cluster(id) => {
                    let mut cluster = transaction.open_table(CLUSTER)?;
                    cluster.insert(CLUSTER_KEY, id.to_string().as_str())?;
                }
                MetadataChange::Started(starts) => {
                    numbers.insert(STARTS_KEY, starts)?;
                }
                MetadataChange::LetGo(key) => {
                    held_ranges.remove(row_key(*key))?;
                    let mut let_go = transaction.open_table(LET_GO)?;
                    let_go.insert(row_key(*key), ())?;
                    numbers.insert(FORMAT_KEY, format_of(&let_go)?)?;
                }
                MetadataChange::Cleared(key) => {
                    let mut let_go = transaction.open_table(LET_GO)?;
                    let_go.remove(row_key(*key))?;
                    numbers.insert(FORMAT_KEY, format_of(&let_go)?)?;
                }
                MetadataChange::Hold(held) => {
                    held_ranges.insert(row_key(held.key), codec::encode_held(held).as_slice())?;
                }
            }
        }
    }
    Ok(transaction.commit()?)
}

/// The format of a store with these ranges that the server was let go of.
fn format_of(let_go: &impl ReadableTableMetadata) -> Result<u64, MetadataError> {
    Ok(if let_go.is_empty()? { FORMAT } else { WITH_LET_GO })
}

fn put_server(transaction: &WriteTransaction, server: &ServerRecord) -> Result<(), MetadataError> {
    let mut servers = transaction.open_table(SERVERS)?;
    servers.insert(server.id.0, server.address.as_str())?;
    let mut draining = transaction.open_table(DRAINING)?;
    if server.draining {
        draining.insert(server.id.0, ())?;
    } else {
        draining.remove(server.id.0)?;
    }
    if server.starts > 0 {
        transaction
            .open_table(SERVER_STARTS)?
            .insert(server.id.0, server.starts)?;
    }
    Ok(())
}

/// The servers that may still have something of the deleted streams that are remembered.
fn load_buried_on(transaction: &ReadTransaction) -> Result<Vec<MetadataChange>, MetadataError> {
    let buried_on = match transaction.open_table(BURIED_ON) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        buried_on => buried_on?,
    };
    let remembered = transaction.open_table(TOMBSTONES)?;
    let mut changes = Vec::new();
    for row in buried_on.iter()? {
        let (stream, bytes) = row?;
        // An earlier version that knows no such rows may have forgotten the stream.
        if remembered.get(stream.value())?.is_none() {
            continue;
        }
        let stream = StreamId(stream.value());
        let servers = codec::decode_servers(bytes.value());
        let servers = servers.ok_or_else(|| unreadable(format!("the servers that have deleted stream {stream}")))?;
        changes.push(MetadataChange::Placement(Change::BuriedOn(stream, servers)));
    }
    Ok(changes)
}

fn load_cluster(transaction: &ReadTransaction) -> Result<Option<MetadataChange>, MetadataError> {
    let cluster = match transaction.open_table(CLUSTER) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        cluster => cluster?,
    };
    let Some(id) = cluster.get(CLUSTER_KEY)? else {
        return Ok(None);
    };
    let id = id.value().parse().map_err(|_| unreadable("the cluster's id"))?;
    Ok(Some(MetadataChange::Cluster(id)))
}

fn load_servers(transaction: &ReadTransaction) -> Result<Vec<MetadataChange>, MetadataError> {
    let servers = match transaction.open_table(SERVERS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        servers => servers?,
    };
    let draining = match transaction.open_table(DRAINING) {
        Err(TableError::TableDoesNotExist(_)) => BTreeSet::new(),
        draining => {
            let rows = draining?;
            let rows = rows.iter()?;
            rows.map(|row| row.map(|(id, _)| id.value()))
                .collect::<Result<_, _>>()?
        }
    };
    let starts = match transaction.open_table(SERVER_STARTS) {
        Err(TableError::TableDoesNotExist(_)) => None,
        starts => Some(starts?),
    };
    let mut changes = Vec::new();
    for row in servers.iter()? {
        let (id, address) = row?;
        let mut server = ServerRecord::new(ServerId(id.value()), address.value());
        server.draining = draining.contains(&id.value());
        let starts = starts.as_ref().map(|starts| starts.get(id.value())).transpose()?;
        server.starts = starts.flatten().map_or(0, |starts| starts.value());
        changes.push(MetadataChange::Placement(Change::PutServer(Arc::new(server))));
    }
    Ok(changes)
}

fn unreadable(what: impl Into<String>) -> MetadataError {
    MetadataError::Unreadable { what: what.into() }
}

fn row_key(key: RangeKey) -> (i64, i32) {
    (key.stream.0, key.range.0)
}

fn range_key((stream, range): (i64, i32)) -> RangeKey {
    RangeKey {
        stream: StreamId(stream),
        range: RangeIndex(range),
    }
}

/// The database's file, on the log's file system interface, so that simulated power losses hit both.
#[derive(Debug)]
struct FileBackend(Arc<dyn File>);

// Locks are left at their default, "unsupported": the data directory's own lock covers this file too.
impl redb::StorageBackend for FileBackend {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.write_at(offset, data)
    }
}
