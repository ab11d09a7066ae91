//! What a request may say, judged before anything is done.

/// Entries that a request may have.
pub const MAX_ENTRIES: usize = 1_024;
