//! Identities of streams. They are drawn here and passed to the decisions, which stay pure.

use std::io;
use std::sync::Arc;

use sbp_types::StreamIdentity;

use super::records::StreamRecord;
use super::state::{Change, PlacementState};

/// A new identity: 128 random bits of the operating system, so that no other stream on any server has the same.
pub(crate) fn new_identity() -> io::Result<StreamIdentity> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(StreamIdentity(bytes))
}

/// The changes that give an identity to each stream which was created before identities existed.
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
