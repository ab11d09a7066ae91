//! What is stored about a stream's columns.

use sbp_record::StreamSchema;
use smallvec::{SmallVec, smallvec};

/// A stream's columns.
#[derive(Clone, Debug)]
pub(crate) struct SchemaRecord {
    /// The Arrow IPC schema message, as it was given.
    pub(crate) ipc: Vec<u8>,
    /// The form that schemas are compared by.
    pub(crate) canonical: Vec<u8>,
    /// What a batch of typed columns says it was written with.
    pub(crate) fingerprint: u64,
}

impl SchemaRecord {
    /// What a batch may say it was written with: all columns, or only the first ones where the others may be null.
    pub(crate) fn fingerprints(&self) -> SmallVec<[u64; 1]> {
        // What is stored was read once already; should it ever not be readable, batches with all columns still are.
        match StreamSchema::from_ipc(&self.ipc) {
            Ok(schema) => schema.accepted_fingerprints().collect(),
            Err(_) => smallvec![self.fingerprint],
        }
    }

    /// Whether this is `older` with nullable columns added at the end, or `older` itself.
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
