//! Appends that are stored exactly once, in order.

mod intake;
pub(crate) mod machine;
mod pending;
mod shared;

use std::time::Duration;

use sbp_record::Compression;
use sbp_types::WriterId;

pub use self::shared::Writer;

/// Batches of one writer that a server remembers, and so the most that may be on their way.
const WINDOW: usize = 64;

/// How a writer writes.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// The writer's name. `None`: one that nobody else has; then the writer goes on by itself, in a new epoch, when the
    /// fate of a batch stays unknown, and a batch that is refused is left out. With a name given a sequence is a place in
    /// the writer's input, through all its lives: behind a batch that is refused, or whose fate stays unknown, nothing is
    /// stored any more until the writer is opened again.
    pub writer_id: Option<WriterId>,
    /// The instance of the writer. `None` with a name: the next one, which is made current when the writer is opened;
    /// instances before it are refused from then on. Needs a server that offers `fence`. `None` without a name: 0.
    ///
    /// A number is used as it is, and shuts nobody out before its first batch is stored: for those who have a number of
    /// their own that says which instance is the newest one. A new epoch may begin at sequence 0.
    pub epoch: Option<i64>,
    /// The sequence of the first record. `None`: behind what the server has of this writer, which says so when it is
    /// opened; a writer without a given name begins at 0. With an epoch given, `Some(0)` writes the same once more, and
    /// what was stored in this epoch is not stored again.
    pub first_sequence: Option<i64>,
    /// Batches that may be on their way; at most 64.
    pub max_in_flight: usize,
    /// How bodies are stored.
    pub compression: Compression,
    /// How long an append may take, all attempts included; and how long a writer with a name may take to be opened.
    pub timeout: Duration,
    /// How long one attempt may take before the batch is sent again.
    pub attempt_timeout: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            writer_id: None,
            epoch: None,
            first_sequence: None,
            max_in_flight: WINDOW,
            compression: Compression::NONE,
            timeout: Duration::from_secs(120),
            attempt_timeout: Duration::from_secs(10),
        }
    }
}
