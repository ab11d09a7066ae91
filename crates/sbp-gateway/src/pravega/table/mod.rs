//! Tables: streams of updates, each a key and a value. A key's version is the offset of its update.
//!
//! What a table holds is in memory, rebuilt by reading. An update is judged by what all updates before it have made, and states the
//! offset behind those: where another gateway has updated the table meanwhile it is refused, and judged anew.

mod state;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use sbp_client::{AppendOptions, Client, ClientError, FetchEntry, FetchOptions, Position, Records};
use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_pravega::{Page, Reply, Request, TableEntry, TableKey};
use sbp_record::{MAX_BATCH_LENGTH, RecordsBuilder};
use sbp_types::{Offset, StreamId};

use self::state::{Refused, Update};
pub(super) use self::state::{State, puts};
use super::Shared;
use super::catalog::{Held, Kind};
use super::failed::{Failed, no_such};
use crate::records::{decode, only, positions};

/// Tables that are in memory, before those that nobody uses go.
const TABLES: usize = 256;
/// Bytes that are read at once.
const READ: u32 = 4 << 20;
/// Bytes of a batch that is written again, and of an update at most.
const REWRITTEN: usize = 4 << 20;
const LARGEST: usize = MAX_BATCH_LENGTH - (4 << 10);
/// Entries of a page at most.
const MOST: i32 = 10_000;
/// What the continuation of a page begins with that is not the first.
const BEHIND: u8 = 1;

type Table = Arc<tokio::sync::Mutex<State>>;

/// The tables in memory.
#[derive(Debug)]
pub(super) struct Tables {
    client: Client,
    tables: Mutex<HashMap<StreamId, Table>>,
}

impl Tables {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            tables: Mutex::new(HashMap::new()),
        }
    }

    fn table(&self, stream: StreamId) -> Table {
        let mut tables = self.tables.lock();
        if tables.len() >= TABLES && !tables.contains_key(&stream) {
            tables.retain(|_, table| Arc::strong_count(table) > 1);
        }
        Arc::clone(tables.entry(stream).or_default())
    }

    /// What a stream of updates holds now; held until what is done with it is over.
    pub(super) async fn now(&self, stream: StreamId) -> Result<tokio::sync::OwnedMutexGuard<State>, ClientError> {
        let mut state = self.table(stream).lock_owned().await;
        self.catch_up(stream, &mut state).await?;
        Ok(state)
    }

    /// Appends the updates that are told of what there is now; where others have appended meanwhile, they are told anew. What says
    /// that there are none ends it.
    pub(super) async fn change<T>(
        &self,
        segment: &str,
        stream: StreamId,
        state: &mut State,
        mut updates: impl FnMut(&State) -> Result<Result<RecordsBuilder, T>, Failed>,
    ) -> Result<Changed<T>, Failed> {
        loop {
            let records = match updates(state)? {
                Ok(records) => records,
                Err(none) => return Ok(Changed::Not(none)),
            };
            if records.body_length() > LARGEST {
                let length = records.body_length();
                return Err(Failed::Told(format!(
                    "an update of {length} bytes, and it may have {LARGEST}"
                )));
            }
            if let Some(base) = self.append(stream, state, records).await? {
                self.catch_up(stream, state).await?;
                if let Err(error) = self.tidy(stream, state).await {
                    tracing::warn!(%error, segment, "a table of Pravega is not written again at the moment");
                    *state = State::default();
                }
                return Ok(Changed::At(base));
            }
            self.catch_up(stream, state).await?;
        }
    }

    /// Reads what was updated by now.
    async fn catch_up(&self, stream: StreamId, state: &mut State) -> Result<(), ClientError> {
        let held = positions(&self.client, stream).await?;
        if state.next < held.earliest {
            // What is written again is behind what was trimmed.
            *state = State::from(held.earliest);
        }
        while state.next < held.latest {
            let entry = FetchEntry {
                stream,
                from: Position::At(state.next),
                end: None,
                batch_max_bytes: READ,
            };
            let fetched = self.client.fetch_one(entry, FetchOptions::default()).await?;
            if fetched.next_offset <= state.next {
                return Err(super::segments::nothing_read(stream, state.next));
            }
            for fetched in &fetched.batches {
                state.apply(&decode(&fetched.bytes)?, fetched.from, fetched.to)?;
            }
            state.next = fetched.next_offset;
        }
        Ok(())
    }

    /// Appends records behind all that is known. `None`: others have appended.
    async fn append(
        &self,
        stream: StreamId,
        state: &State,
        records: RecordsBuilder,
    ) -> Result<Option<Offset>, ClientError> {
        let options = AppendOptions {
            expected_offset: Some(state.next),
            ..AppendOptions::default()
        };
        match self.client.append(stream, Records::from(records), &options).await {
            Ok(ack) => Ok(Some(ack.base_offset.unwrap_or(state.next))),
            Err(error) if error.code() == ErrorCode::PRECONDITION_FAILED => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes what counts again where most does not, and trims what is before. Another gateway may be faster.
    async fn tidy(&self, stream: StreamId, state: &mut State) -> Result<(), ClientError> {
        if !state.is_wasteful() {
            return Ok(());
        }
        let begin = state.next;
        let batches = state.rewritten(REWRITTEN);
        for records in batches.map_err(|error| ClientError::invalid(error.to_string()))? {
            let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
            if self.append(stream, state, records).await?.is_none() {
                return Ok(());
            }
            // The same is under each key.
            state.next = Offset(state.next.0.saturating_add(count));
        }
        only(self.client.trim_streams(&[(stream, begin)], None).await?)?;
        state.trimmed();
        Ok(())
    }
}

impl Shared {
    /// Answers what is asked of a table.
    pub(super) async fn answer_of_table(&self, request: Request) -> Result<Reply, Failed> {
        match request {
            Request::CreateTable {
                is_sorted: Some(true), ..
            } => Ok(Reply::NotSupported("tables whose keys are sorted".to_owned())),
            Request::CreateTable { segment, .. } => self.create(segment, Kind::Table).await,
            Request::DeleteTable {
                segment, must_be_empty, ..
            } => self.delete_table(segment, must_be_empty).await,
            Request::UpdateEntries {
                segment,
                entries,
                expected,
                ..
            } => {
                let keys: Vec<_> = entries.iter().map(|entry| entry.key.clone()).collect();
                let outcome = self.update(&segment, &keys, expected, || puts(&entries)).await?;
                let versions = |base: i64| (base..).take(entries.len()).collect();
                Ok(outcome.reply(segment, |_, base| Reply::EntriesUpdated(versions(base.0))))
            }
            Request::RemoveKeys {
                segment,
                keys,
                expected,
                ..
            } => {
                let outcome = self
                    .update(&segment, &keys, expected, || state::removals(&keys))
                    .await?;
                Ok(outcome.reply(segment, |segment, _| Reply::KeysRemoved(segment)))
            }
            Request::ReadTable { segment, keys, .. } => self.read_table(segment, &keys).await,
            Request::ReadKeys(page) => self.read_keys(page).await,
            Request::ReadEntries(page) => self.read_entries(page).await,
            Request::ReadDelta {
                segment, from, most, ..
            } => self.read_delta(segment, from, most).await,
            _ => Err(Failed::Nonsense("a request that is none of a table")),
        }
    }

    async fn table_of(&self, segment: &str) -> Result<Option<Held>, Failed> {
        let held = self.catalog.segment(segment).await?;
        Ok(held.filter(|held| held.kind == Kind::Table))
    }

    /// A table as it is now; held until what is done with it is over.
    async fn table_now(
        &self,
        segment: &str,
    ) -> Result<Option<(StreamId, tokio::sync::OwnedMutexGuard<State>)>, Failed> {
        let Some(held) = self.table_of(segment).await? else {
            return Ok(None);
        };
        let state = self.tables.now(held.id()).await?;
        Ok(Some((held.id(), state)))
    }

    async fn delete_table(&self, segment: String, must_be_empty: bool) -> Result<Reply, Failed> {
        let Some((_, state)) = self.table_now(&segment).await? else {
            return Ok(no_such(segment, None));
        };
        if must_be_empty && !state.is_empty() {
            return Ok(Reply::NotEmpty(segment));
        }
        self.delete(segment).await
    }

    /// Makes an update if all keys have the versions that are asked for.
    async fn update<E: std::fmt::Display>(
        &self,
        segment: &str,
        keys: &[TableKey],
        expected: Option<i64>,
        records: impl Fn() -> Result<RecordsBuilder, E>,
    ) -> Result<Updated, Failed> {
        let Some((stream, mut state)) = self.table_now(segment).await? else {
            return Ok(Updated::NoTable);
        };
        let changed = self.tables.change(segment, stream, &mut state, |state| {
            if expected.is_some_and(|expected| expected >= 0 && expected != state.next.0) {
                return Ok(Err(Updated::Refused(Refused::BadVersion)));
            }
            if let Err(refused) = state.judge(keys.iter()) {
                return Ok(Err(Updated::Refused(refused)));
            }
            if keys.is_empty() {
                return Ok(Err(Updated::At(state.next)));
            }
            let records = records().map_err(|error| Failed::Told(error.to_string()))?;
            Ok(Ok(records))
        });
        Ok(match changed.await? {
            Changed::At(base) => Updated::At(base),
            Changed::Not(updated) => updated,
        })
    }

    async fn read_table(&self, segment: String, keys: &[TableKey]) -> Result<Reply, Failed> {
        let Some((_, state)) = self.table_now(&segment).await? else {
            return Ok(no_such(segment, None));
        };
        let entries = keys.iter().map(|key| state.get(&key.key)).collect();
        Ok(Reply::TableRead { segment, entries })
    }

    async fn page(&self, page: Page) -> Result<Option<(Vec<TableEntry>, Bytes)>, Failed> {
        let Some((_, state)) = self.table_now(&page.segment).await? else {
            return Ok(None);
        };
        let behind = match page.continuation.split_first() {
            None => None,
            Some((&BEHIND, key)) => Some(page.continuation.slice_ref(key)),
            Some(_) => {
                return Err(Failed::Told(
                    "the continuation of the page is none of this server".to_owned(),
                ));
            }
        };
        let most = usize::try_from(page.most.clamp(1, MOST)).unwrap_or(1);
        let entries = state.page(behind.as_ref(), most);
        let continuation = match entries.last() {
            Some(last) => {
                let mut bytes = BytesMut::with_capacity(1 + last.key.key.len());
                bytes.put_u8(BEHIND);
                bytes.put_slice(&last.key.key);
                bytes.freeze()
            }
            None => page.continuation,
        };
        Ok(Some((entries, continuation)))
    }

    async fn read_keys(&self, page: Page) -> Result<Reply, Failed> {
        let segment = page.segment.clone();
        Ok(match self.page(page).await? {
            Some((entries, continuation)) => Reply::KeysRead {
                segment,
                keys: entries.into_iter().map(|entry| entry.key).collect(),
                continuation,
            },
            None => no_such(segment, None),
        })
    }

    async fn read_entries(&self, page: Page) -> Result<Reply, Failed> {
        let segment = page.segment.clone();
        Ok(match self.page(page).await? {
            Some((entries, continuation)) => Reply::EntriesRead {
                segment,
                entries,
                continuation,
            },
            None => no_such(segment, None),
        })
    }

    /// Entries in the order in which they were put, from an update on.
    async fn read_delta(&self, segment: String, from: i64, most: i32) -> Result<Reply, Failed> {
        let Some(held) = self.table_of(&segment).await? else {
            return Ok(no_such(segment, None));
        };
        let bounds = positions(&self.client, held.id()).await?;
        let is_cleared = from < bounds.earliest.0 && from > 0 || from > bounds.latest.0;
        let mut next = match is_cleared {
            true => bounds.earliest,
            false => Offset(from).max(bounds.earliest),
        };
        let most = usize::try_from(most.clamp(1, MOST)).unwrap_or(1);
        let mut entries = Vec::new();
        let mut bytes = 0;
        while next < bounds.latest && entries.len() < most && bytes < READ {
            let entry = FetchEntry {
                stream: held.id(),
                from: Position::At(next),
                end: None,
                batch_max_bytes: READ,
            };
            let fetched = self.client.fetch_one(entry, FetchOptions::default()).await?;
            if fetched.next_offset <= next {
                return Err(super::segments::nothing_read(held.id(), next).into());
            }
            let mut end = fetched.next_offset;
            'batches: for fetched in &fetched.batches {
                let batch = decode(&fetched.bytes)?;
                let records = batch.records();
                let records = records.map_err(|error| crate::records::damaged(error.to_string()))?;
                for record in records.filter(|record| fetched.from <= record.offset && record.offset < fetched.to) {
                    if entries.len() >= most || bytes >= READ {
                        end = record.offset;
                        break 'batches;
                    }
                    if let Some(entry) = Update::of(&record).and_then(Update::entry) {
                        let size = entry.key.key.len() + entry.value.len();
                        bytes += u32::try_from(size).unwrap_or(u32::MAX);
                        entries.push(entry);
                    }
                }
            }
            next = end;
        }
        Ok(Reply::DeltaRead {
            segment,
            entries,
            is_cleared,
            is_end: next >= bounds.latest,
            last: next.0,
        })
    }
}

/// What came of a change.
#[derive(Debug)]
pub(super) enum Changed<T> {
    /// Its first record has this offset.
    At(Offset),
    /// There was nothing to change, for this reason.
    Not(T),
}

/// What came of an update.
#[derive(Debug)]
enum Updated {
    /// Its first record has this offset.
    At(Offset),
    Refused(Refused),
    NoTable,
}

impl Updated {
    fn reply(self, segment: String, made: impl FnOnce(String, Offset) -> Reply) -> Reply {
        match self {
            Self::At(base) => made(segment, base),
            Self::Refused(Refused::NoSuchKey) => Reply::NoSuchKey(segment),
            Self::Refused(Refused::BadVersion) => Reply::BadVersion(segment),
            Self::NoTable => no_such(segment, None),
        }
    }
}
