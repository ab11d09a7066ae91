//! The bytes of one simulated file, synced and not synced.

use std::collections::BTreeMap;
use std::io;

/// The size that a disk writes as a whole or not at all.
const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

/// A file. `bytes` is what the page cache shows; the maps hold what the disk may have instead.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) bytes: Vec<u8>,
    /// The length that is on stable storage.
    synced_len: u64,
    /// For each sector changed since the last sync: the synced content, then later contents without the present one.
    dirty: BTreeMap<u64, Vec<Sector>>,
    /// The same for sectors whose sync failed. The kernel takes them for clean, so no later sync writes them.
    stuck: BTreeMap<u64, Vec<Sector>>,
}

impl Node {
    /// A file whose content is on stable storage.
    pub(super) fn synced(bytes: Vec<u8>) -> Self {
        Self {
            synced_len: bytes.len() as u64,
            bytes,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn read(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let source = start
            .checked_add(buffer.len())
            .and_then(|end| self.bytes.get(start..end));
        buffer.copy_from_slice(source.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    pub(super) fn write(&mut self, position: u64, bytes: &[u8]) {
        let start = usize::try_from(position).expect("test files are small");
        let end = start + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        let mut at = start;
        while at < end {
            let sector = at / SECTOR;
            let stop = end.min((sector + 1) * SECTOR);
            if self.bytes[at..stop] != bytes[at - start..stop - start] {
                self.remember(sector as u64);
                self.bytes[at..stop].copy_from_slice(&bytes[at - start..stop - start]);
            } else if let Some(versions) = self.stuck.remove(&(sector as u64)) {
                // Writing the same bytes makes the page dirty again, so the next sync writes it.
                self.dirty.insert(sector as u64, versions);
            }
            at = stop;
        }
    }

    /// Remembers a sector's present content, because it is about to change.
    fn remember(&mut self, sector: u64) {
        let content = self.sector(sector);
        let mut versions = self.stuck.remove(&sector).unwrap_or_default();
        let dirty = self.dirty.entry(sector).or_default();
        versions.append(dirty);
        versions.push(content);
        *dirty = versions;
    }

    fn sector(&self, sector: u64) -> Sector {
        let mut content = [0; SECTOR];
        let start = usize::try_from(sector).expect("test files are small") * SECTOR;
        let end = self.bytes.len().min(start + SECTOR);
        if let Some(source) = self.bytes.get(start..end) {
            content[..source.len()].copy_from_slice(source);
        }
        content
    }

    pub(super) fn set_len(&mut self, length: u64) {
        let length = usize::try_from(length).expect("test files are small");
        if length < self.bytes.len() {
            let zeros = vec![0; self.bytes.len() - length];
            self.write(length as u64, &zeros);
        }
        self.bytes.resize(length, 0);
    }

    pub(super) fn sync(&mut self) {
        self.dirty.clear();
        self.synced_len = self.len();
    }

    /// Simulates a failed sync: later syncs do not write these sectors either.
    pub(super) fn fail_sync(&mut self) {
        self.stuck.append(&mut self.dirty);
    }

    /// How many sectors and lengths of this file a power cut would decide about.
    pub(super) fn uncertain(&self) -> usize {
        self.dirty.len() + self.stuck.len() + usize::from(self.synced_len != self.len())
    }

    /// The file as a power cut leaves it. `choose(n)` picks one of `n` possibilities, the last being the newest.
    pub(super) fn survive(&self, choose: &mut dyn FnMut(usize) -> usize) -> Self {
        let mut bytes = self.bytes.clone();
        let keeps_length = self.synced_len == self.len() || choose(2) == 1;
        let length = if keeps_length { self.len() } else { self.synced_len };
        let length = usize::try_from(length).expect("test files are small");
        bytes.resize(length, 0);
        for (sector, versions) in self.dirty.iter().chain(&self.stuck) {
            let choice = choose(versions.len() + 1);
            let start = usize::try_from(*sector).expect("test files are small") * SECTOR;
            let undone = !keeps_length && start as u64 >= self.len();
            let version = if undone { versions.first() } else { versions.get(choice) };
            if let Some(content) = version
                && start < length
            {
                let end = length.min(start + SECTOR);
                bytes[start..end].copy_from_slice(&content[..end - start]);
            }
        }
        Self::synced(bytes)
    }
}
