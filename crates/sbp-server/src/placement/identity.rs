//! Identities of streams: drawn here, outside of what is decided, and handed in.

use std::io;
use std::sync::Arc;

use sbp_types::StreamIdentity;

use super::records::StreamRecord;
use super::state::{Change, PlacementState};

/// One that no stream has, on this server or any other: 128 bits of the system's randomness.
pub(super) fn new_identity() -> io::Result<StreamIdentity> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(StreamIdentity(bytes))
}

/// Gives an identity to each stream that was made before streams had one.
pub(crate) fn identify_streams(state: &PlacementState) -> io::Result<Vec<Change>> {
    let without = state.streams().filter(|stream| stream.identity.is_none());
    let identified = without.map(|stream| {
        Ok(Change::PutStream(Arc::new(StreamRecord {
            identity: Some(new_identity()?),
            ..StreamRecord::clone(stream)
        })))
    });
    identified.collect()
}
