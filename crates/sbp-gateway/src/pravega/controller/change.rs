//! Scopes and streams are made, changed and deleted.
//!
//! A stream is made segment by segment, its first one first, which says how many there are to be: until they are all there, there is
//! no such stream, and whoever makes it next, in this gateway or another one, makes what is missing. It is deleted from its end.

use bytes::Bytes;
use sbp_grpc::Status;
use sbp_pravega::controller::{Cut, ScopeInfo, Status as Outcome, StreamConfig, StreamInfo};
use sbp_pravega::{Segment, SegmentId};

use super::settings::{SETTINGS, value_of};
use super::{Controller, Found, Store, read, stream_of, unavailable, written};
use crate::pravega::catalog::{COUNT, Making, is_imported};
use crate::pravega::lineage;
use crate::pravega::names::{is_scope, is_stream};

/// The most segments of a stream.
const MOST_SEGMENTS: i32 = 1_000;

/// The statuses of calls.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const UNKNOWN: i32 = 2;

const SCOPE_EXISTS: i32 = 2;
const SCOPE_INVALID: i32 = 3;
const SCOPE_NOT_EMPTY: i32 = 3;

const STREAM_EXISTS: i32 = 2;
const STREAM_NO_SCOPE: i32 = 3;
const STREAM_INVALID: i32 = 4;
const STREAM_NOT_SEALED: i32 = 3;

impl<S: Store> Controller<S> {
    /// Carries out a call that changes something; `None`: it is another call.
    pub(super) async fn changed(&self, method: &str, request: Bytes) -> Result<Option<Bytes>, Status> {
        let status = match method {
            "createScope" => self.create_scope(&read(request)?).await?,
            "deleteScope" => self.delete_scope(&read(request)?).await?,
            "createStream" => self.create_stream(&read(request)?).await?,
            "updateStream" => self.update_stream(&read(request)?).await?,
            "sealStream" => self.seal_stream(&read(request)?).await?,
            "deleteStream" => self.delete_stream(&read(request)?).await?,
            "truncateStream" => self.truncate_stream(read(request)?).await?,
            _ => return Ok(None),
        };
        Ok(Some(written(&Outcome { status })))
    }

    async fn create_scope(&self, ScopeInfo { scope }: &ScopeInfo) -> Result<i32, Status> {
        // Names that begin so are given by clients, and never to scopes.
        if scope.starts_with('_') || !is_scope(scope) {
            return Ok(SCOPE_INVALID);
        }
        Ok(match self.catalog.create_scope(scope).await.map_err(unavailable)? {
            Making::Made => DONE,
            Making::Exists => SCOPE_EXISTS,
            Making::Invalid => SCOPE_INVALID,
        })
    }

    async fn delete_scope(&self, ScopeInfo { scope }: &ScopeInfo) -> Result<i32, Status> {
        let _changing = self.changing.lock().await;
        let scopes = self.catalog.scopes_now().await.map_err(unavailable)?;
        let Some(found) = scopes.0.get(scope) else {
            return Ok(UNKNOWN);
        };
        if !found.streams.is_empty() {
            return Ok(SCOPE_NOT_EMPTY);
        }
        let Some(marker) = found.marker else {
            return Ok(UNKNOWN);
        };
        match self.catalog.delete_stream(marker).await.map_err(unavailable)? {
            true => Ok(DONE),
            false => Ok(UNKNOWN),
        }
    }

    pub(super) async fn create_stream(&self, config: &StreamConfig) -> Result<i32, Status> {
        let stream = stream_of(config.stream.clone())?;
        if !is_scope(&stream.scope) || !is_stream(&stream.scope, &stream.stream) {
            return Ok(STREAM_INVALID);
        }
        let count = config.scaling.as_ref().map_or(1, |scaling| scaling.segments);
        if !(1..=MOST_SEGMENTS).contains(&count) {
            return Ok(FAILED);
        }
        let _changing = self.changing.lock().await;
        let scopes = self.catalog.scopes_now().await.map_err(unavailable)?;
        let Some(scope) = scopes.0.get(&stream.scope) else {
            return Ok(STREAM_NO_SCOPE);
        };
        let is_there = scopes.stream(&stream.scope, &stream.stream).is_some();
        // What an import has begun is not taken for what is left of a stream that was made or deleted.
        let is_imported = scope.streams.get(&stream.stream).is_some_and(is_imported);
        if is_there || is_imported {
            return Ok(STREAM_EXISTS);
        }
        // Part of it is there where its making was interrupted, or is under way in another gateway; or its deletion was, which seals
        // have gone before.
        let part = scope.streams.get(&stream.stream).into_iter().flatten();
        let mut is_made = true;
        for (number, held) in part.rev() {
            if held.is_sealed() {
                self.catalog.delete_stream(held.id()).await.map_err(unavailable)?;
            } else if *number == 0 {
                is_made = false;
            }
        }
        let segment = |number| Segment {
            scope: stream.scope.clone(),
            stream: stream.stream.clone(),
            id: SegmentId::new(0, number),
        };
        let count = match scopes.planned(&stream.scope, &stream.stream) {
            Some(planned) if !is_made => planned,
            _ => count,
        };
        let said = [(COUNT, count.to_string()), (SETTINGS, value_of(config))];
        let made = self
            .catalog
            .create_all(&[segment(0)], &said)
            .await
            .map_err(unavailable)?;
        let is_mine = made.first() == Some(&Making::Made);
        let others: Vec<_> = (1..count).map(segment).collect();
        self.catalog.create_all(&others, &[]).await.map_err(unavailable)?;
        if is_mine {
            return Ok(DONE);
        }
        // Streams have its segments' names that are none of Pravega's, or there is a stream now that somebody else has made.
        Ok(STREAM_EXISTS)
    }

    async fn update_stream(&self, config: &StreamConfig) -> Result<i32, Status> {
        let stream = stream_of(config.stream.clone())?;
        let Some(found) = self.find(&stream).await? else {
            return Ok(UNKNOWN);
        };
        let count = config.scaling.as_ref().map(|scaling| scaling.segments);
        let is_same = |count: i32| usize::try_from(count).is_ok_and(|count| count == found.width());
        if !count.is_none_or(is_same) {
            return Ok(FAILED);
        }
        let Some((first, _)) = found.spokesman() else {
            return Ok(UNKNOWN);
        };
        let first = name_of(&stream, first);
        let set = self.catalog.set_property(&first, SETTINGS, value_of(config));
        match set.await.map_err(unavailable)? {
            true => Ok(DONE),
            false => Ok(UNKNOWN),
        }
    }

    /// The first segment is sealed last: then the stream is.
    async fn seal_stream(&self, stream: &StreamInfo) -> Result<i32, Status> {
        let Some(found) = self.find(stream).await? else {
            return Ok(UNKNOWN);
        };
        for number in found.segments().keys().rev() {
            let sealed = self.catalog.seal(&name_of(stream, *number)).await;
            if !sealed.map_err(unavailable)? {
                return Ok(UNKNOWN);
            }
        }
        Ok(DONE)
    }

    async fn delete_stream(&self, stream: &StreamInfo) -> Result<i32, Status> {
        let _changing = self.changing.lock().await;
        let Some(found) = self.find_now(stream).await? else {
            return Ok(UNKNOWN);
        };
        if !found.is_sealed() {
            return Ok(STREAM_NOT_SEALED);
        }
        self.remove(&found).await?;
        let marks = StreamInfo {
            scope: stream.scope.clone(),
            stream: format!("_MARK{}", stream.stream),
        };
        if let Some(marks) = self.find(&marks).await? {
            self.remove(&marks).await?;
        }
        Ok(DONE)
    }

    async fn truncate_stream(&self, cut: Cut) -> Result<i32, Status> {
        let stream = stream_of(cut.stream)?;
        let Some(found) = self.find(&stream).await? else {
            return Ok(UNKNOWN);
        };
        let numbers: Option<Vec<_>> = cut.offsets.keys().map(|id| i32::try_from(*id).ok()).collect();
        let is_known = |number: &i32| found.segments().contains_key(number);
        let Some(numbers) = numbers.filter(|numbers| numbers.iter().all(is_known)) else {
            return Ok(FAILED);
        };
        // What is read before them goes as well.
        for number in lineage::before(found.segments(), &numbers) {
            if !self.store.empty(&name_of(&stream, number)).await? {
                return Ok(UNKNOWN);
            }
        }
        for (number, offset) in numbers.into_iter().zip(cut.offsets.values()) {
            if !self.store.truncate(&name_of(&stream, number), *offset).await? {
                return Ok(UNKNOWN);
            }
        }
        Ok(DONE)
    }

    /// Deletes a stream's segments, the first one last.
    pub(super) async fn remove(&self, found: &Found) -> Result<(), Status> {
        for held in found.segments().values().rev() {
            self.catalog.delete_stream(held.id()).await.map_err(unavailable)?;
        }
        Ok(())
    }
}

fn name_of(stream: &StreamInfo, number: i32) -> String {
    let id = SegmentId::new(0, number);
    format!("{}/{}/{id}", stream.scope, stream.stream)
}
