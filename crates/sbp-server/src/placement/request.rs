//! The requests to the placement driver.

use std::time::Instant;

use sbp_messages::{ErrorCode, RangeId};
use sbp_types::{Offset, ServerId, StreamId};

use super::apply::Command;
use super::create::NewStream;
use super::effects::Outcome;
use super::identity::new_identity;
use super::records::ServerRecord;
use super::seal::{NewRange, SealWish};
use super::update::StreamUpdate;
use crate::refusal::{Done, Refusal};

/// The entries of one request. An entry may have been refused already when the request was read.
type Entries<T> = Vec<Result<T, Refusal>>;

/// A request that changes metadata. Each of its entries has its own result.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    CreateStreams(Entries<NewStream>),
    UpdateStreams(Entries<StreamUpdate>),
    DeleteStreams(Entries<StreamId>),
    /// Streams, and the offset at which each is to begin.
    TrimStreams(Entries<(StreamId, Offset)>),
    SealRanges(SealWish, Entries<RangeId>),
    CreateRange(Result<NewRange, Refusal>),
    AllocateServerId,
    RegisterServer(ServerRecord),
    /// Whether a range server is to be emptied.
    Drain(Result<(ServerId, bool), Refusal>),
}

/// The results of a request's entries, in request order.
pub(crate) type Outcomes = Entries<Outcome>;

/// A request and the callback for its results.
pub(crate) struct MetadataJob {
    /// Called on the metadata thread; must not block.
    pub(crate) done: Done<Outcomes>,
    /// The request must not be started after this.
    pub(crate) deadline: Instant,
    pub(crate) request: Request,
}

/// The work for one entry of a request.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Needs the metadata only.
    Apply(Command),
    /// May need the confirmed end of the open range first.
    Trim { stream: StreamId, start: Offset },
    /// May need a range server to seal the range first.
    Seal { wish: SealWish, target: RangeId },
}

impl Task {
    /// The stream whose operations are done one after the other; `None` if this one need not wait for others.
    pub(super) fn stream(&self) -> Option<StreamId> {
        match self {
            Self::Trim { stream, .. } => Some(*stream),
            Self::Seal { target, .. } => Some(target.stream_id),
            Self::Apply(Command::UpdateStream(update)) => Some(update.id),
            Self::Apply(Command::DeleteStream(stream)) => Some(*stream),
            Self::Apply(Command::CreateRange(range)) => Some(range.key.stream),
            Self::Apply(
                Command::AddCopy(copy)
                | Command::FinishCopy(copy)
                | Command::LacksSome(copy)
                | Command::ReplaceCopy(copy),
            ) => Some(copy.key.stream),
            Self::Apply(Command::ReleaseCopies { key, .. }) => Some(key.stream),
            Self::Apply(_) => None,
        }
    }
}

impl Request {
    /// Makes one task of each entry.
    pub(super) fn into_tasks(self) -> Vec<Result<Task, Refusal>> {
        fn each<T>(entries: Entries<T>, task: impl Fn(T) -> Task) -> Vec<Result<Task, Refusal>> {
            entries.into_iter().map(|entry| entry.map(&task)).collect()
        }
        match self {
            Self::CreateStreams(entries) => entries.into_iter().map(|entry| create(entry?)).collect(),
            Self::UpdateStreams(entries) => each(entries, |update| Task::Apply(Command::UpdateStream(update))),
            Self::DeleteStreams(entries) => each(entries, |stream| Task::Apply(Command::DeleteStream(stream))),
            Self::TrimStreams(entries) => each(entries, |(stream, start)| Task::Trim { stream, start }),
            Self::SealRanges(wish, entries) => each(entries, |target| Task::Seal {
                wish: wish.clone(),
                target,
            }),
            Self::CreateRange(range) => each(vec![range], |range| Task::Apply(Command::CreateRange(range))),
            Self::AllocateServerId => vec![Ok(Task::Apply(Command::AllocateServerId))],
            Self::RegisterServer(server) => vec![Ok(Task::Apply(Command::RegisterServer(server)))],
            Self::Drain(wanted) => each(vec![wanted], |(server, draining)| {
                Task::Apply(Command::Drain { server, draining })
            }),
        }
    }
}

/// Draws the identity of a new stream here, so that the decision about it stays pure.
fn create(stream: NewStream) -> Result<Task, Refusal> {
    match new_identity() {
        Ok(identity) => Ok(Task::Apply(Command::CreateStream(stream, identity))),
        Err(error) => Err(Refusal::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            format!("the system gives no random bytes for the identity of a stream: {error}"),
        )),
    }
}
