//! Which server is asked for what, and what an answer leaves to be read. Pure: readers of spans, tails, single FETCHes and
//! questions for positions plan here.

use std::time::Duration;

use sbp_messages::{FetchInfo, FetchRequest};
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::error::ClientError;
use crate::gap::Gap;
use crate::read::answer::{FetchedBatch, FetchedPlace, Part, batches, skip_older};

/// A part of one stream that is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) stream: StreamId,
    /// Where it is read from next; [`Offset::EARLIEST`] or [`Offset::LATEST`] until an answer has told the offset.
    pub(super) from: Offset,
    /// The first offset that is not wanted; `None`: no end.
    pub(super) end: Option<Offset>,
    /// Where it begins, until the first answer.
    pub(super) time: Option<TimestampMs>,
    /// Bytes of one answer, though at least one whole batch; 0: the server's default, [`FetchInfo::POSITIONS_ONLY`]: none.
    pub(super) batch_max_bytes: i32,
}

/// What an answer brought.
#[derive(Debug, Default)]
pub(super) struct Brought {
    /// Records that were to be read next and are gone.
    pub(super) gap: Option<Gap>,
    /// What follows behind the gap.
    pub(super) batches: Vec<FetchedBatch>,
    /// There is nothing more of the stream where it was asked for: it goes on elsewhere.
    pub(super) ends_here: bool,
}

impl Wanted {
    /// The stream, and from where it is read.
    pub(crate) fn place(&self) -> (StreamId, Offset) {
        (self.stream, self.from)
    }

    /// Whether everything was read.
    pub(super) fn is_done(&self) -> bool {
        self.end.is_some_and(|end| self.from >= end)
    }

    /// What was to be read next and is gone from a stream whose first offset kept is `start`.
    pub(super) fn gap(&self, start: Offset) -> Option<Gap> {
        let is_resolved = self.time.is_none();
        is_resolved
            .then(|| Gap::between(self.stream, self.from, start))
            .flatten()
    }

    /// Takes an answer that is no refusal: what is still wanted is what follows it. An error leaves everything wanted.
    pub(super) fn take(&mut self, part: &Part, at: &FetchedPlace) -> Result<Brought, ClientError> {
        let gap = self.gap(at.start_offset);
        // The first answer resolves where the stream is read from; from then on batches have to go on there.
        let start = if self.from.0 >= 0 && self.time.is_none() {
            self.from.max(at.start_offset)
        } else {
            at.base_offset.max(at.start_offset)
        };
        let mut found = Vec::new();
        let next = batches(
            self.stream,
            (&part.bytes, &part.frame),
            at.high_watermark,
            start,
            self.end,
            &mut found,
        )?;
        if let Some(time) = self.time {
            skip_older(&mut found, time)?;
        }
        self.from = next;
        self.time = None;
        Ok(Brought {
            gap,
            batches: found,
            ends_here: part.bytes.is_empty() && at.end_of_range,
        })
    }

    fn entry(self, request_index: i32) -> FetchInfo {
        FetchInfo {
            stream_id: self.stream,
            request_index,
            fetch_offset: self.from,
            batch_max_bytes: self.batch_max_bytes,
            end_offset: self.end,
            start_timestamp_ms: self.time,
        }
    }
}

/// What one server is asked for in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerRequest<S> {
    pub(super) server: S,
    /// The places of the request's entries in all that is wanted, in their order.
    pub(super) places: Vec<usize>,
}

/// Asks each server for what it has, in the order in which the first of it is wanted, in requests of at most `most`
/// entries. `route` says which server has the next part of what is wanted.
pub(super) fn by_server<S: Clone>(
    wanted: impl IntoIterator<Item = (usize, Wanted)>,
    route: impl Fn(&Wanted) -> S,
    is_same: impl Fn(&S, &S) -> bool,
    most: usize,
) -> Vec<ServerRequest<S>> {
    let mut groups: Vec<ServerRequest<S>> = Vec::new();
    for (place, wanted) in wanted {
        let server = route(&wanted);
        match groups.iter_mut().find(|group| is_same(&group.server, &server)) {
            Some(group) => group.places.push(place),
            None => groups.push(ServerRequest {
                server,
                places: vec![place],
            }),
        }
    }
    if groups.iter().all(|group| group.places.len() <= most) {
        return groups;
    }
    let parts = groups.iter().flat_map(|group| {
        group.places.chunks(most.max(1)).map(|places| ServerRequest {
            server: group.server.clone(),
            places: places.to_vec(),
        })
    });
    parts.collect()
}

/// The request for what is wanted of one server. Its answers may hold `max_bytes` in all; the server may wait until an
/// entry has `min_bytes`, for no longer than `max_wait`.
pub(super) fn request(
    wanted: impl IntoIterator<Item = Wanted>,
    max_wait: Duration,
    min_bytes: u32,
    max_bytes: usize,
) -> FetchRequest {
    FetchRequest {
        max_wait_ms: i32::try_from(max_wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: i32::try_from(min_bytes).unwrap_or(i32::MAX),
        fetch_requests: wanted
            .into_iter()
            .zip(0..)
            .map(|(one, index)| one.entry(index))
            .collect(),
        max_bytes: i32::try_from(max_bytes).unwrap_or(i32::MAX),
        withdraw: 0,
    }
}

#[cfg(test)]
mod tests;
