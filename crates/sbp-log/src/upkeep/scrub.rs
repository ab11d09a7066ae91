//! Checks files that no reader has read, so that damage is found while another copy may still exist.

use std::io;

use sbp_types::RangeKey;

use crate::DamagedInterval;
use crate::state::shared::Shared;
use crate::upkeep::checkpoint::write_checkpoint;
use crate::upkeep::compaction::{NotWritten, Piece, collect};

/// The result of checking one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// The file's number, from which the next check goes on.
    pub file: u64,
    /// The number of undamaged batches.
    pub batches: u64,
    /// The bytes of the undamaged batches.
    pub bytes: u64,
    /// The damaged batches, which are marked from now on.
    pub damaged: Vec<DamagedInterval>,
    /// False when known damage hides the positions of some of its batches.
    pub complete: bool,
}

/// See [`Log::scrub`](crate::Log::scrub).
pub(crate) fn scrub(shared: &Shared, after: u64) -> io::Result<Option<Scrubbed>> {
    let next = {
        let state = shared.state.read();
        let files = state.segments.values().chain(state.compacted.values());
        let sealed = files.filter(|live| live.sealed && live.segment.number > after);
        sealed.map(|live| live.segment.number).min()
    };
    let Some(file) = next else { return Ok(None) };
    let mut found = Scrubbed {
        file,
        ..Scrubbed::default()
    };
    let sources = match collect(shared, &[file]) {
        Ok(Some(sources)) => sources,
        // The file was removed, so there is nothing to check.
        Ok(None) => return Ok(Some(found)),
        Err(NotWritten::Damaged { .. }) => return Ok(Some(found)),
        Err(NotWritten::Io(error)) => return Err(error),
    };
    found.complete = true;
    let keys = sources
        .parts
        .iter()
        .flat_map(|part| std::iter::repeat_n(part.key, part.pieces));
    let mut pieces: Vec<(RangeKey, &Piece)> = keys.zip(&sources.pieces).collect();
    pieces.sort_unstable_by_key(|(_, piece)| piece.entry.position);
    for (key, piece) in pieces {
        let Some(segment) = sources.segments.get(piece.source) else {
            continue;
        };
        let whole = piece.read(segment)?.is_some_and(|(record, _)| record.head.key == key);
        if whole {
            found.batches += 1;
            found.bytes += u64::from(piece.entry.length);
        } else {
            shared.mark_damaged(key, &piece.entry);
            let (from, to) = (piece.entry.base, piece.entry.end);
            found.damaged.push(DamagedInterval { key, from, to });
        }
    }
    if !found.damaged.is_empty() {
        // Stores the marks, because the same damage might not be found again.
        write_checkpoint(shared)?;
    }
    Ok(Some(found))
}
