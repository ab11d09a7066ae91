//! What the placement driver is asked for.

use std::time::Instant;

use sbp_messages::ErrorCode;
use sbp_types::{Offset, StreamId};

use super::apply::Command;
use super::create::NewStream;
use super::effects::Outcome;
use super::identity::new_identity;
use super::records::ServerRecord;
use super::seal::{NewRange, SealFor, SealTarget};
use super::update::StreamUpdate;
use crate::refusal::{Done, Refusal};

/// Entries of one request. What was refused while it was read stays refused.
type Entries<T> = Vec<Result<T, Refusal>>;

/// One request, as the protocol has them: many entries, each with an end of its own.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    CreateStreams(Entries<NewStream>),
    UpdateStreams(Entries<StreamUpdate>),
    DeleteStreams(Entries<StreamId>),
    /// Streams, and where they are to begin.
    TrimStreams(Entries<(StreamId, Offset)>),
    SealRanges(SealFor, Entries<SealTarget>),
    CreateRange(Result<NewRange, Refusal>),
    AllocateServerId,
    RegisterServer(ServerRecord),
}

/// How the entries of a request ended, in their order.
pub(crate) type Reply = Entries<Outcome>;

/// A request, and who is told how it ended.
pub(crate) struct MetadataJob {
    /// Told on the metadata thread; must not block.
    pub(crate) done: Done<Reply>,
    /// When it is no longer worth starting.
    pub(crate) deadline: Instant,
    pub(crate) request: Request,
}

/// One entry on its way.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// The metadata alone decides.
    Apply(Command),
    /// The end of the open range may be needed first.
    Trim { stream: StreamId, start: Offset },
    /// A range server may have to seal first.
    Seal { on_behalf: SealFor, target: SealTarget },
}

impl Task {
    /// The stream whose operations come one after the other, this one among them.
    pub(super) fn stream(&self) -> Option<StreamId> {
        match self {
            Self::Trim { stream, .. } => Some(*stream),
            Self::Seal { target, .. } => Some(target.stream),
            Self::Apply(Command::UpdateStream(update)) => Some(update.id),
            Self::Apply(Command::DeleteStream(stream)) => Some(*stream),
            Self::Apply(Command::CreateRange(range)) => Some(range.key.stream),
            Self::Apply(_) => None,
        }
    }
}

impl Request {
    /// Takes the request apart.
    pub(super) fn into_tasks(self) -> Vec<Result<Task, Refusal>> {
        fn each<T>(entries: Entries<T>, task: impl Fn(T) -> Task) -> Vec<Result<Task, Refusal>> {
            entries.into_iter().map(|entry| entry.map(&task)).collect()
        }
        match self {
            Self::CreateStreams(entries) => entries.into_iter().map(|entry| create(entry?)).collect(),
            Self::UpdateStreams(entries) => each(entries, |update| Task::Apply(Command::UpdateStream(update))),
            Self::DeleteStreams(entries) => each(entries, |stream| Task::Apply(Command::DeleteStream(stream))),
            Self::TrimStreams(entries) => each(entries, |(stream, start)| Task::Trim { stream, start }),
            Self::SealRanges(on_behalf, entries) => each(entries, |target| Task::Seal { on_behalf, target }),
            Self::CreateRange(range) => each(vec![range], |range| Task::Apply(Command::CreateRange(range))),
            Self::AllocateServerId => vec![Ok(Task::Apply(Command::AllocateServerId))],
            Self::RegisterServer(server) => vec![Ok(Task::Apply(Command::RegisterServer(server)))],
        }
    }
}

/// A stream is given its identity here, so that what is decided about it depends on nothing else.
fn create(stream: NewStream) -> Result<Task, Refusal> {
    match new_identity() {
        Ok(identity) => Ok(Task::Apply(Command::CreateStream(stream, identity))),
        Err(error) => Err(Refusal::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            format!("the system gives no random bytes for the identity of a stream: {error}"),
        )),
    }
}
