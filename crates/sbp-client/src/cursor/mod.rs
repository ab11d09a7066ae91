//! Named cursors: where a job stands in its streams, kept durably in a stream of the service itself.
//!
//! A cursor `job` is the stream `_sbp/cursors/job`. Every commit is one record that holds the whole state; it is
//! appended on the condition that nobody else has appended since (see `standing`), so two holders of one name cannot
//! both commit. Records before the last are trimmed now and then; a crash before that leaves a few more to trim.

mod commits;
mod ends;
mod holder;
mod open;
mod record;
mod standing;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sbp_messages::{ErrorCode, Stream, is_valid_stream_name};
use sbp_types::{Offset, StreamId};

use self::holder::Shared;
pub use self::record::CommittedPlace;
use crate::client::Client;
use crate::error::ClientError;
use crate::position::Position;

/// Where the streams of cursors are, by name.
pub const CURSOR_PREFIX: &str = "_sbp/cursors/";

/// How a cursor is opened.
#[derive(Clone, Copy, Debug)]
pub struct CursorOptions {
    /// Where streams begin that have not been committed under this name.
    pub start: Position,
    /// Give up places that were committed for streams whose numbers these have taken: they begin at `start`, and the next
    /// commit stores that. Without it such a cursor is not opened.
    pub forget_replaced: bool,
    /// How long opening may take; `None`: the client's default.
    pub timeout: Option<Duration>,
}

impl Default for CursorOptions {
    fn default() -> Self {
        Self {
            start: Position::Earliest,
            forget_replaced: false,
            timeout: None,
        }
    }
}

/// A holder of a named cursor: where a job goes on in its streams, and commits of how far it got.
///
/// Opening claims nothing: whoever commits first is the holder from then on, and every commit of the others is refused
/// with [`codes::CURSOR_TAKEN`](crate::codes::CURSOR_TAKEN), for good. A job that starts in place of
/// another can therefore commit the positions it found, before it does anything, to be sure of the name.
///
/// Clones are the same holder.
#[derive(Clone, Debug)]
pub struct Cursor {
    shared: Arc<Shared>,
}

impl Client {
    /// Opens the cursor `name` for `streams`, as its last commit left it; makes it if there is none.
    ///
    /// Streams are told apart by their numbers: one that was deleted and made anew under its old name begins at
    /// `options.start`. Streams that were committed under this name but are not listed keep their places.
    ///
    /// # Errors
    ///
    /// That the name cannot be one, that its stream holds something that is no commit, or that a call failed.
    /// [`codes::STREAM_REPLACED`](crate::codes::STREAM_REPLACED): a place was committed for a stream that
    /// had the number of one of these, and was another one; see [`CursorOptions::forget_replaced`].
    /// [`ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS`](sbp_messages::ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS): `options.start`
    /// is an offset beyond the end of a stream that was not committed before.
    pub async fn cursor(
        &self,
        name: &str,
        streams: Vec<Arc<Stream>>,
        options: CursorOptions,
    ) -> Result<Cursor, ClientError> {
        let shared = open::open(self, name, streams, options).await?;
        Ok(Cursor { shared })
    }

    /// What the last commit of a cursor says, of all its streams; nothing is opened or made.
    ///
    /// # Errors
    ///
    /// That there is no such cursor, or as for [`Client::cursor`].
    pub async fn committed(&self, name: &str, timeout: Option<Duration>) -> Result<Vec<CommittedPlace>, ClientError> {
        let places = open::committed(self, name, timeout).await?;
        Ok(places.into_values().collect())
    }
}

impl Cursor {
    /// The cursor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The stream that its commits are kept in.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.shared.stream
    }

    /// The streams it was opened for.
    #[must_use]
    pub fn streams(&self) -> &[Arc<Stream>] {
        &self.shared.streams
    }

    /// What is committed, as far as this holder knows, for each of its streams in their order: the first offset that is
    /// not done. Streams that never were committed are at the place they begin at.
    #[must_use]
    pub fn positions(&self) -> Vec<(StreamId, Offset)> {
        self.shared.own(|view| &view.committed)
    }

    /// Where this holder's reading got to, for each of its streams in their order; see [`Cursor::advance`].
    #[must_use]
    pub fn reached(&self) -> Vec<(StreamId, Offset)> {
        self.shared.own(|view| &view.reached)
    }

    /// Notes that records of one of its streams were handed out, all before `next`. Commits nothing.
    pub fn advance(&self, stream: StreamId, next: Offset) {
        self.shared.advance(stream, next);
    }

    /// Why every commit is refused, once another holder has taken over.
    #[must_use]
    pub fn lost(&self) -> Option<ClientError> {
        self.shared.view.lock().lost.clone()
    }

    /// Commits that everything before these offsets is done; places of streams that are not named stay as they are. A
    /// place may lie before the one committed last: then its records will be read once more.
    ///
    /// Places that were handed out (see [`Cursor::advance`]) or committed before are taken as they are; for places further
    /// on, the streams are asked where they end. A stream that cannot be asked in half the time, or is gone, stops nothing.
    ///
    /// The order of calls is the order of commits. The future only waits: a commit that was begun goes on without it.
    /// Commits that wait for an earlier one are stored together.
    ///
    /// # Errors
    ///
    /// [`codes::CURSOR_TAKEN`](crate::codes::CURSOR_TAKEN): another holder has committed; nothing was,
    /// and nothing ever will be through this holder.
    /// [`ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS`](sbp_messages::ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS): a place lies beyond
    /// the end of its stream; nothing was committed, of the other places neither. Kind [`Indeterminate`](crate::ErrorKind::Indeterminate): it may
    /// have been committed, which the next commit finds out. Any other: it was not.
    pub fn commit(
        &self,
        positions: Vec<(StreamId, Offset)>,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<(), ClientError>> + Send + 'static {
        let commit = Shared::submit(&self.shared, positions, timeout);
        async move { commit?.await }
    }
}

/// That a place lies beyond the end of its stream.
fn beyond_the_end(cursor: &str, stream: &Stream, next: Offset, end: Offset) -> ClientError {
    let what = format!("cursor {cursor} cannot stand at offset {next}: the stream ends at {end}");
    ClientError::local(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, what)
        .with_stream(stream.stream_id)
        .with_stream_name(&stream.name)
        .with_offset(next)
}

/// The name of the stream that a cursor is kept in.
fn stream_name(name: &str) -> Result<String, ClientError> {
    let stream = format!("{CURSOR_PREFIX}{name}");
    if name.is_empty() || !is_valid_stream_name(&stream) {
        let most = 255 - CURSOR_PREFIX.len();
        return Err(ClientError::invalid(format!(
            "a cursor's name is 1 to {most} of the characters A-Z a-z 0-9 . _ / -, not {name:?}"
        )));
    }
    Ok(stream)
}
