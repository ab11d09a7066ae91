//! Following streams as they grow: one FETCH waits for many streams and is answered as data arrives.

mod followed;
mod task;

use std::sync::Arc;
use std::time::Duration;

use sbp_types::StreamId;
use tokio::sync::{Notify, mpsc};

use self::followed::Followed;
use self::task::TailTask;
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::gap::Gap;
use crate::position::Position;
use crate::read::answer::FetchedBatch;
use crate::read::reader::Chunk;

/// What one tail may have asked for and not yet handed out.
const READ_AHEAD: usize = 32 << 20;

/// How a tail follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailOptions {
    /// How long an answer may take beyond the time the server may wait, how long one search for a stream's server takes,
    /// and how long a server may refuse what only another server could give; `None`: the client's default.
    pub timeout: Option<Duration>,
    /// How long a stream may go unread because no server answers, before that is an error. `None`: for ever, a tail
    /// outlasts every outage.
    pub give_up_after: Option<Duration>,
    /// What to do about records that are gone before they were read.
    pub on_gap: OnGap,
}

/// What a tail does about records that are gone before they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnGap {
    /// It brings an error that names them, and goes on behind them when it is asked for more.
    #[default]
    Fail,
    /// It tells of them in their place, and goes on behind them.
    Report,
}

/// What a tail brings.
#[derive(Clone, Debug)]
pub enum TailEvent {
    /// Records.
    Batch(FetchedBatch),
    /// Records that are gone, in the place where they would have come.
    Gap(Gap),
}

/// What a tail's task hands over: batches, or a gap before all that follows of its stream.
#[derive(Debug)]
enum TailItem {
    Chunk(Chunk),
    Gap(Gap),
}

/// Batches of streams as they grow, each stream in the order of its offsets, without end.
///
/// A lost connection is made again and reading goes on behind the last batch of each stream, however long there was no
/// server. After an error, whoever asks for more goes on where the error came: nothing is left out, and a tail never ends
/// by itself.
#[derive(Debug)]
pub struct Tail {
    items: mpsc::UnboundedReceiver<Result<TailItem, ClientError>>,
    current: Chunk,
    /// Tells the task that somebody wants what follows an error.
    resume: Arc<Notify>,
    /// The last thing handed out was an error.
    has_failed: bool,
}

impl Client {
    /// Follows streams, each from its position. "Latest" is resolved before this returns: every record that is appended
    /// from then on will be seen.
    ///
    /// # Errors
    ///
    /// That a stream does not exist, or that its position could not be resolved.
    pub async fn tail(&self, streams: &[(StreamId, Position)], options: TailOptions) -> Result<Tail, ClientError> {
        let timeout = options.timeout.unwrap_or(self.config().timeout);
        let moves = |&(_, at): &(StreamId, Position)| at == Position::Latest || at.is_relative();
        let moving: Vec<_> = streams.iter().filter(|place| moves(place)).copied().collect();
        let mut settled = self.settle(&moving, Some(timeout)).await?.into_iter().peekable();
        let mut followed = Vec::with_capacity(streams.len());
        for place in streams {
            let (offset, time) = place.1.on_wire();
            let next = match settled.next_if(|_| moves(place)) {
                Some(offset) => offset?,
                None => offset,
            };
            followed.push(Followed::new(place.0, next, time));
        }
        let ids = streams.iter().map(|(stream, _)| *stream);
        self.pool().find_copies(ids, now() + timeout).await;
        let (sender, items) = mpsc::unbounded_channel();
        let (events_in, events) = mpsc::unbounded_channel();
        let resume = Arc::new(Notify::new());
        let task = TailTask::new(self.clone(), followed, options, events_in, sender, Arc::clone(&resume));
        self.runtime().spawn(task.run(events));
        Ok(Tail {
            items,
            current: Chunk::default(),
            resume,
            has_failed: false,
        })
    }
}

impl Tail {
    /// The next batch. `None` only when the client's runtime has ended.
    ///
    /// # Errors
    ///
    /// Why a stream could not be followed further, or a gap, see [`ClientError::gap`]. The next call goes on: behind the
    /// gap, or with another attempt at what failed.
    pub async fn next(&mut self) -> Option<Result<FetchedBatch, ClientError>> {
        Some(match self.next_event().await? {
            Ok(TailEvent::Batch(batch)) => Ok(batch),
            Ok(TailEvent::Gap(gap)) => Err(ClientError::trimmed(gap)),
            Err(error) => Err(error),
        })
    }

    /// The next batch, or with [`OnGap::Report`] the gap that comes before it. `None` as for [`Tail::next`].
    ///
    /// # Errors
    ///
    /// As [`Tail::next`].
    pub async fn next_event(&mut self) -> Option<Result<TailEvent, ClientError>> {
        match self.fill().await? {
            Ok(None) => self
                .current
                .batches
                .pop_front()
                .map(|batch| Ok(TailEvent::Batch(batch))),
            Ok(Some(gap)) => Some(Ok(TailEvent::Gap(gap))),
            Err(error) => Some(Err(error)),
        }
    }

    /// All batches that arrived together. `None` as for [`Tail::next`].
    ///
    /// # Errors
    ///
    /// As [`Tail::next`].
    pub async fn next_many(&mut self) -> Option<Result<Vec<FetchedBatch>, ClientError>> {
        Some(match self.fill().await? {
            Ok(None) => Ok(self.current.batches.drain(..).collect()),
            Ok(Some(gap)) => Err(ClientError::trimmed(gap)),
            Err(error) => Err(error),
        })
    }

    /// Waits until there are batches to hand out. What comes before them is returned: a gap, or an error.
    async fn fill(&mut self) -> Option<Result<Option<Gap>, ClientError>> {
        while self.current.batches.is_empty() {
            // What the last chunk held is handed out: its credit returns before more is waited for.
            self.current.charge = None;
            if std::mem::take(&mut self.has_failed) {
                self.resume.notify_one();
            }
            match self.items.recv().await? {
                Ok(TailItem::Chunk(chunk)) => self.current = chunk,
                Ok(TailItem::Gap(gap)) => return Some(Ok(Some(gap))),
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        Some(Ok(None))
    }
}
