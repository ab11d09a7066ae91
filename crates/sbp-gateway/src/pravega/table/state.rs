//! What a table holds, by its updates.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use sbp_client::ClientError;
use sbp_pravega::{NEW, TableEntry, TableKey};
use sbp_record::{Batch, EncodeError, Record, RecordsBuilder};
use sbp_types::Offset;

use crate::records::damaged;

/// The header of a record by which its key is taken out.
const GONE: &str = "pravega.gone";
/// The header of a record that was written again: the version that its key has had before, 8 bytes, big-endian.
const VERSION: &str = "pravega.version";
/// The version of a key that is not there.
pub(super) const MISSING: i64 = -1;

/// From so many bytes of updates on a table is written again, where it is this much larger than what it holds.
const LARGE: usize = 8 << 20;
const TIMES: usize = 4;
/// What a record takes beside its key and value, about.
const EACH: usize = 64;
/// Bytes of a page, about.
const PAGE: usize = 4 << 20;

/// Why an update is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    NoSuchKey,
    BadVersion,
}

/// What is under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    value: Bytes,
    version: i64,
}

/// What a table holds.
#[derive(Debug, Default)]
pub(in crate::pravega) struct State {
    entries: BTreeMap<Bytes, Value>,
    /// The first record that is not known yet.
    pub(super) next: Offset,
    /// Bytes of the updates that are kept, and of those that still count.
    bytes: usize,
    live: usize,
}

fn size(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + EACH
}

impl State {
    /// Of which nothing is known, from a record on.
    pub(super) fn from(next: Offset) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }

    /// Takes the records of a batch, from `from` up to `to`, which follow those that are known.
    pub(super) fn apply(&mut self, batch: &Batch, from: Offset, to: Offset) -> Result<(), ClientError> {
        let records = batch.records().map_err(|error| damaged(error.to_string()))?;
        for record in records.filter(|record| from <= record.offset && record.offset < to) {
            let Some(update) = Update::of(&record) else { continue };
            self.bytes += size(&update.key, update.value.as_deref().unwrap_or_default());
            self.put(update);
        }
        Ok(())
    }

    fn put(&mut self, update: Update) {
        let Update { key, value, version } = update;
        let added = value.as_ref().map_or(0, |value| size(&key, value));
        let length = key.len();
        let before = match value {
            Some(value) => self.entries.insert(key, Value { value, version }),
            None => self.entries.remove(&key),
        };
        let removed = before.map_or(0, |before| length + before.value.len() + EACH);
        self.live = (self.live + added).saturating_sub(removed);
    }

    /// Whether its keys have the versions that are asked for.
    pub(super) fn judge<'a>(&self, mut keys: impl Iterator<Item = &'a TableKey>) -> Result<(), Refused> {
        keys.try_for_each(|key| {
            let version = self.entries.get(&key.key).map(|value| value.version);
            match (key.version, version) {
                (NEW, _) | (MISSING, None) => Ok(()),
                (_, None) => Err(Refused::NoSuchKey),
                (wanted, Some(version)) if wanted == version => Ok(()),
                _ => Err(Refused::BadVersion),
            }
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of a key.
    pub(in crate::pravega) fn get(&self, key: &Bytes) -> TableEntry {
        match self.entries.get(key) {
            Some(value) => entry(key, value),
            None => TableEntry {
                key: TableKey {
                    key: key.clone(),
                    version: MISSING,
                },
                value: Bytes::new(),
            },
        }
    }

    /// The entries behind a key, in the order of their keys: so many at most.
    pub(super) fn page(&self, behind: Option<&Bytes>, most: usize) -> Vec<TableEntry> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut bytes = 0;
        let entries = self.entries.range::<Bytes, _>((from, Bound::Unbounded));
        let entries = entries.take(most).take_while(|(key, value)| {
            let is_within = bytes < PAGE;
            bytes += size(key, &value.value);
            is_within
        });
        entries.map(|(key, value)| entry(key, value)).collect()
    }

    /// Whether most of what is kept does not count any more.
    pub(super) fn is_wasteful(&self) -> bool {
        self.bytes >= LARGE && self.bytes / TIMES > self.live
    }

    /// What counts, to be written again: batches of about so many bytes.
    pub(super) fn rewritten(&self, most: usize) -> Result<Vec<RecordsBuilder>, EncodeError> {
        let mut batches = Vec::new();
        let mut records = RecordsBuilder::new();
        for (key, value) in &self.entries {
            if records.body_length() + size(key, &value.value) > most && !records.is_empty() {
                batches.push(std::mem::take(&mut records));
            }
            let version = value.version.to_be_bytes();
            records.push(Some(&value.value), Some(key), None, &[(VERSION, Some(&version))])?;
        }
        if !records.is_empty() {
            batches.push(records);
        }
        Ok(batches)
    }

    /// What does not count any more is gone from the stream.
    pub(super) fn trimmed(&mut self) {
        self.bytes = self.live;
    }
}

fn entry(key: &Bytes, value: &Value) -> TableEntry {
    TableEntry {
        key: TableKey {
            key: key.clone(),
            version: value.version,
        },
        value: value.value.clone(),
    }
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    key: Bytes,
    /// `None`: it is taken out.
    value: Option<Bytes>,
    version: i64,
}

impl Update {
    /// `None`: the record is of others.
    pub(super) fn of(record: &Record<'_>) -> Option<Self> {
        let mut is_gone = false;
        let mut version = record.offset.0;
        for (name, value) in record.headers.clone() {
            match name {
                GONE => is_gone = true,
                VERSION => {
                    version = value
                        .and_then(|value| value.try_into().ok())
                        .map_or(version, i64::from_be_bytes)
                }
                _ => {}
            }
        }
        Some(Self {
            key: Bytes::copy_from_slice(record.key?),
            value: (!is_gone).then(|| Bytes::copy_from_slice(record.value.unwrap_or_default())),
            version,
        })
    }

    /// The entry that it has put; `None`: it has taken one out.
    pub(super) fn entry(self) -> Option<TableEntry> {
        let Self { key, value, version } = self;
        value.map(|value| TableEntry {
            key: TableKey { key, version },
            value,
        })
    }
}

/// The records that put entries.
pub(in crate::pravega) fn puts(entries: &[TableEntry]) -> Result<RecordsBuilder, EncodeError> {
    let mut records = RecordsBuilder::new();
    for entry in entries {
        records.push(Some(&entry.value), Some(&entry.key.key), None, &[])?;
    }
    Ok(records)
}

/// The records that take keys out.
pub(super) fn removals(keys: &[TableKey]) -> Result<RecordsBuilder, EncodeError> {
    let mut records = RecordsBuilder::new();
    for key in keys {
        records.push(None, Some(&key.key), None, &[(GONE, None)])?;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use sbp_record::EncodeOptions;

    use super::*;

    fn apply(state: &mut State, mut records: RecordsBuilder) {
        let mut bytes = BytesMut::new();
        let options = EncodeOptions::default();
        records.finish(&options, &mut bytes).expect("a batch");
        let batch = Batch::decode(bytes.freeze(), None).expect("a batch");
        let batch_end = batch.end_offset();
        state.apply(&batch, Offset::ZERO, batch_end).expect("records");
    }

    fn key(name: &'static str, version: i64) -> TableKey {
        TableKey {
            key: Bytes::from_static(name.as_bytes()),
            version,
        }
    }

    fn put(name: &'static str, value: &'static str) -> TableEntry {
        TableEntry {
            key: key(name, NEW),
            value: Bytes::from_static(value.as_bytes()),
        }
    }

    #[test]
    fn versions_are_judged_before_anything_is_done() {
        let mut state = State::default();
        apply(
            &mut state,
            puts(&[put("a", "1"), put("b", "2"), put("a", "3")]).expect("records"),
        );
        assert_eq!(state.get(&Bytes::from_static(b"a")).key.version, 2);
        for (keys, judged) in [
            (vec![key("a", NEW), key("c", NEW)], Ok(())),
            (vec![key("a", 2), key("b", 1), key("c", -1)], Ok(())),
            (vec![key("a", 0)], Err(Refused::BadVersion)),
            (vec![key("b", -1)], Err(Refused::BadVersion)),
            (vec![key("c", 5)], Err(Refused::NoSuchKey)),
        ] {
            assert_eq!(state.judge(keys.iter()), judged, "{keys:?}");
        }
        apply(&mut state, removals(&[key("a", NEW)]).expect("records"));
        let gone = state.get(&Bytes::from_static(b"a"));
        assert_eq!((gone.key.version, gone.value), (MISSING, Bytes::new()));
        assert_eq!(state.get(&Bytes::from_static(b"a")).key.version, MISSING);
        assert!(!state.is_empty());
    }

    #[test]
    fn what_is_written_again_keeps_its_version_and_order() {
        let mut state = State::default();
        apply(
            &mut state,
            puts(&[put("b", "1"), put("a", "2"), put("c", "3")]).expect("records"),
        );
        let batches = state.rewritten(1).expect("records");
        assert_eq!(batches.len(), 3);
        let mut again = State::default();
        batches.into_iter().for_each(|batch| apply(&mut again, batch));
        assert_eq!(again.entries, state.entries);
        let mut pages = Vec::new();
        let mut behind = None;
        loop {
            let page = again.page(behind.as_ref(), 2);
            let Some(last) = page.last() else { break };
            behind = Some(last.key.key.clone());
            pages.push(page.iter().map(|entry| entry.key.version).collect::<Vec<_>>());
        }
        assert_eq!(pages, [vec![1, 0], vec![2]]);
    }

    #[test]
    fn a_table_is_written_again_when_little_of_it_counts() {
        let mut state = State::default();
        let value = Bytes::from(vec![7; 1 << 20]);
        for round in 1..=9 {
            let entry = TableEntry {
                key: key("a", NEW),
                value: value.clone(),
            };
            apply(&mut state, puts(&[entry]).expect("records"));
            assert_eq!(state.is_wasteful(), round >= 8, "{round}");
        }
        state.trimmed();
        assert!(!state.is_wasteful());
    }
}
