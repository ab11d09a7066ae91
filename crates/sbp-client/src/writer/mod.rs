//! Appends that are stored exactly once, in order.

mod intake;
pub(crate) mod machine;
mod pending;
mod shared;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sbp_record::Compression;
use sbp_types::{StreamId, WriterId};

use self::shared::Shared;
use crate::append::Records;
use crate::client::Client;
use crate::error::ClientError;
use crate::outcome::Ack;

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

/// Appends to one stream, stored exactly once and in the order of the calls.
///
/// What fails for the moment is sent again until the append's time is over, over new connections and restarts of the
/// server, and the server recognises what it has stored already. So an append ends as indeterminate only when its time
/// is over. What happens behind a batch that is not stored depends on whether the writer was given a name; see
/// [`WriterOptions::writer_id`].
///
/// Clones write in one order. Appends that are not awaited are sent all the same; dropping the last clone and all
/// futures gives up on what is not on its way.
#[derive(Clone, Debug)]
pub struct Writer {
    shared: Arc<Shared>,
}

impl Client {
    /// A writer for `stream`. Needs a server that offers `idempotence`.
    #[must_use]
    pub fn writer(&self, stream: StreamId, options: WriterOptions) -> Writer {
        let shared = Shared::new(self.clone(), stream, options);
        shared.pump();
        Writer { shared }
    }
}

impl Writer {
    /// The stream written to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.shared.stream
    }

    /// The writer's name: the one given, or the one made up for it.
    #[must_use]
    pub fn id(&self) -> WriterId {
        self.shared.id
    }

    /// The writer's epoch now. One that takes the next has it when [`Self::next_sequence`] is known.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.shared.epoch()
    }

    /// Appends one batch. Its place in the order is settled when this
    /// returns; the future waits for the acknowledgement.
    ///
    /// What cannot be sent yet waits in memory, without a bound of its own: whoever appends without awaiting waits for
    /// [`Writer::ready`] now and then.
    ///
    /// # Errors
    ///
    /// Kind [`Indeterminate`](crate::ErrorKind::Indeterminate): its time is over and it may have been stored. Any other:
    /// it was not stored. [`Invalid`](crate::ErrorKind::Invalid) at once: the records are no batch, or one that is too
    /// large; then they have taken no place in the order, and the writer goes on. Some end the writer, and the message
    /// says so: another instance has taken over, the server misses earlier batches, and for a writer with a name any
    /// batch that is not stored.
    pub fn append(
        &self,
        records: impl Into<Records>,
    ) -> impl Future<Output = Result<Ack, ClientError>> + Send + 'static {
        let answer = Shared::accept(&self.shared, records.into());
        // While somebody waits, the batch is sent even if the writer is gone.
        let shared = Arc::clone(&self.shared);
        async move {
            let result = match answer {
                Ok(answer) => answer.await.unwrap_or_else(|_dropped| Err(shared.lost())),
                Err(error) => Err(error),
            };
            result.map_err(|error| error.with_stream(shared.stream))
        }
    }

    /// Why the writer takes no more, if it has stopped. Takes a lock only then.
    #[must_use]
    pub fn stopped(&self) -> Option<ClientError> {
        self.shared.stopped()
    }

    /// Waits until there is room for another batch among those on their way.
    pub async fn ready(&self) {
        self.shared.wait_for_room().await;
    }

    /// Waits until everything appended so far is answered.
    ///
    /// # Errors
    ///
    /// Why the writer has stopped, if it has. What became of each append is told by its future.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.shared.flush().await
    }

    /// Accepts nothing more, and waits until everything is answered.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`].
    pub async fn close(&self) -> Result<(), ClientError> {
        self.shared.close();
        self.shared.flush().await
    }

    /// The sequence that the next record appended will have: how many this epoch of the writer has written before it.
    /// Waits until the server has told it, when it was to be asked.
    ///
    /// # Errors
    ///
    /// Why the writer has stopped.
    pub async fn next_sequence(&self) -> Result<i64, ClientError> {
        self.shared.next_sequence().await
    }
}
