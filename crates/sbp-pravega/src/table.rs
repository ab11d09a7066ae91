//! Keys and entries of tables.

use bytes::{BufMut, Bytes, BytesMut};

use crate::coding::{Put, Reader};
use crate::fault::Fault;

/// Bytes of an empty key, and of an empty value.
const LEAST: usize = 8;

/// A key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKey {
    /// The key.
    pub key: Bytes,
    /// Its version: [`crate::NEW`] stands for any, -1 for none. An empty key has no version.
    pub version: i64,
}

/// An entry of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// Its key.
    pub key: TableKey,
    /// Its value.
    pub value: Bytes,
}

impl TableKey {
    fn put(&self, out: &mut BytesMut) -> Result<(), Fault> {
        let version = match self.key.is_empty() {
            true => 0,
            false => 8,
        };
        out.put_length(4 + self.key.len() + version)?;
        out.put_sized(&self.key)?;
        if version > 0 {
            out.put_i64(self.version);
        }
        Ok(())
    }

    fn read(reader: &mut Reader<'_>, payload: &Bytes) -> Result<Self, Fault> {
        let mut inner = Reader::new(reader.sized()?);
        let key = payload.slice_ref(inner.sized()?);
        let version = match key.is_empty() {
            true => crate::NEW,
            false => inner.i64()?,
        };
        Ok(Self { key, version })
    }
}

pub(crate) fn put_keys(keys: &[TableKey], out: &mut BytesMut) -> Result<(), Fault> {
    out.put_length(keys.len())?;
    keys.iter().try_for_each(|key| key.put(out))
}

pub(crate) fn read_keys(reader: &mut Reader<'_>, payload: &Bytes) -> Result<Vec<TableKey>, Fault> {
    let count = reader.count(LEAST)?;
    (0..count).map(|_| TableKey::read(reader, payload)).collect()
}

pub(crate) fn put_entries(entries: &[TableEntry], out: &mut BytesMut) -> Result<(), Fault> {
    out.put_length(entries.len())?;
    entries.iter().try_for_each(|entry| {
        entry.key.put(out)?;
        out.put_length(4 + entry.value.len())?;
        out.put_sized(&entry.value)
    })
}

pub(crate) fn read_entries(reader: &mut Reader<'_>, payload: &Bytes) -> Result<Vec<TableEntry>, Fault> {
    let count = reader.count(2 * LEAST)?;
    let read = |_| {
        let key = TableKey::read(reader, payload)?;
        let mut inner = Reader::new(reader.sized()?);
        let value = payload.slice_ref(inner.sized()?);
        Ok(TableEntry { key, value })
    };
    (0..count).map(read).collect()
}
