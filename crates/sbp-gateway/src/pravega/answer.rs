//! What is answered to requests that are no appends.

use std::sync::Arc;

use sbp_pravega::{Reply, Request};

use super::Shared;
use super::ahead::Ahead;
use super::catalog::{Kind, Making};
use super::failed::{Failed, no_such, reply_of};
use super::pacing::{Turn, Turns};
use super::segments::Advance;

impl Shared {
    /// Answers a request of a connection, in its turn, which lasts until the reply is handed over. `None`: no answer would be true.
    /// And what is worth to be fetched behind the reply.
    pub(super) async fn answer(
        &self,
        request: Request,
        ahead: &Arc<Ahead>,
        mut turns: Turns,
    ) -> (Option<Reply>, Turn, Option<Advance>) {
        let segment = segment_of(&request).to_owned();
        let (outcome, turn, advance) = match request {
            Request::Read {
                segment,
                offset,
                length,
                ..
            } => self.read(segment, offset, length, ahead, turns).await,
            other => {
                let turn = turns.next().await;
                (self.try_answer(other).await, turn, None)
            }
        };
        (reply_of(outcome, segment), turn, advance)
    }

    async fn try_answer(&self, request: Request) -> Result<Reply, Failed> {
        match request {
            Request::Info { segment, .. } => self.info(segment).await,
            Request::Create { segment, .. } => self.create(segment, Kind::Bytes).await,
            Request::Seal { segment, .. } => self.seal(segment).await,
            Request::Delete { segment, .. } => self.delete(segment).await,
            Request::Truncate { segment, offset, .. } => self.truncate(segment, offset).await,
            Request::GetAttribute(attribute) => self.attribute(attribute).await,
            Request::UpdateAttribute {
                attribute,
                value,
                expected,
            } => self.set_attribute(attribute, value, expected).await,
            of_table => self.answer_of_table(of_table).await,
        }
    }

    pub(super) async fn create(&self, segment: String, kind: Kind) -> Result<Reply, Failed> {
        match self.catalog.create(&segment, kind).await? {
            Making::Made => Ok(Reply::Created(segment)),
            Making::Exists => Ok(Reply::AlreadyExists(segment)),
            Making::Invalid => Err(Failed::Told(format!(
                "no stream can be named as segment {segment} would have it: see docs/pravega/server.md"
            ))),
        }
    }

    async fn seal(&self, segment: String) -> Result<Reply, Failed> {
        let sealed = self.catalog.seal(&segment).await?;
        if let Some(held) = self.catalog.segment(&segment).await? {
            self.appending.sealed(held.id());
        }
        match sealed {
            true => Ok(Reply::Sealed(segment)),
            false => Ok(no_such(segment, None)),
        }
    }

    pub(super) async fn delete(&self, segment: String) -> Result<Reply, Failed> {
        match self.catalog.delete(&segment).await? {
            true => Ok(Reply::Deleted(segment)),
            false => Ok(no_such(segment, None)),
        }
    }
}

/// The segment that a request is about.
fn segment_of(request: &Request) -> &str {
    match request {
        Request::SetupAppend { segment, .. }
        | Request::Read { segment, .. }
        | Request::Info { segment, .. }
        | Request::Create { segment, .. }
        | Request::Seal { segment, .. }
        | Request::Delete { segment, .. }
        | Request::Truncate { segment, .. }
        | Request::CreateTable { segment, .. }
        | Request::DeleteTable { segment, .. }
        | Request::UpdateEntries { segment, .. }
        | Request::RemoveKeys { segment, .. }
        | Request::ReadTable { segment, .. }
        | Request::ReadDelta { segment, .. } => segment,
        Request::GetAttribute(attribute) | Request::UpdateAttribute { attribute, .. } => &attribute.segment,
        Request::ReadKeys(page) | Request::ReadEntries(page) => &page.segment,
        _ => "",
    }
}
