//! The stored record of a stream's schema.

use bytes::Bytes;
use sbp_record::{SchemaError, StreamSchema};
use smallvec::{SmallVec, smallvec};

/// The schema of a stream.
#[derive(Clone, Debug)]
pub(crate) struct SchemaRecord {
    /// The Arrow IPC schema message, byte for byte as the client sent it.
    pub(crate) ipc: Vec<u8>,
    /// The canonical form, by which schemas are compared.
    pub(crate) canonical: Vec<u8>,
    /// The fingerprint of a batch that has all columns.
    pub(crate) fingerprint: u64,
}

impl SchemaRecord {
    /// The record of a schema that a message gives.
    pub(crate) fn read(ipc: &Bytes) -> Result<Self, SchemaError> {
        let schema = StreamSchema::from_ipc(ipc)?;
        Ok(Self {
            ipc: ipc.to_vec(),
            canonical: schema.canonical().to_vec(),
            fingerprint: schema.fingerprint(),
        })
    }

    /// The fingerprints that the stream's batches may have: that of all columns, and those of a prefix where the
    /// columns after it are nullable.
    pub(crate) fn fingerprints(&self) -> SmallVec<[u64; 1]> {
        // The schema was parsed before it was stored. Should it not be readable any more, batches with all columns
        // still are accepted.
        match StreamSchema::from_ipc(&self.ipc) {
            Ok(schema) => schema.accepted_fingerprints().collect(),
            Err(_) => smallvec![self.fingerprint],
        }
    }

    /// Whether this schema is `older`, or `older` with nullable columns added at the end.
    pub(crate) fn is_extension_of(&self, older: &Self) -> bool {
        let (new, old) = (StreamSchema::from_ipc(&self.ipc), StreamSchema::from_ipc(&older.ipc));
        matches!((new, old), (Ok(new), Ok(old)) if new.is_extension_of(&old))
    }
}

impl PartialEq for SchemaRecord {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for SchemaRecord {}
