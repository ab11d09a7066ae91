//! Calls about streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_messages::{
    CreateStreamResult, CreateStreamsRequest, CreateStreamsResponse, DeleteStreamResult, DeleteStreamsRequest,
    DeleteStreamsResponse, DescribeStreamResult, DescribeStreamsRequest, DescribeStreamsResponse, ErrorCode, Message,
    Range, Stream, TrimStreamResult, TrimStreamsRequest, TrimStreamsResponse, TrimmedStream, UpdateStreamResult,
    UpdateStreamsRequest, UpdateStreamsResponse,
};
use sbp_types::{Offset, StreamId};

use super::ENTRIES;
use super::caution::caution;
use crate::call::answers::{Each, entry, expect_results, gather, only};
use crate::call::{self, Plan, Where};
use crate::channel::command::Need;
use crate::channel::header::{encoded, millis};
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;
use crate::retry::Repeat;

/// Pages of the list of all streams.
#[derive(Default)]
struct Listed {
    streams: Vec<Arc<Stream>>,
    /// What the last page was asked with.
    last_page: Bytes,
    on_last_page: usize,
}

impl Client {
    /// Creates streams, each with an open first range. A named stream that exists with equal settings is returned as it
    /// is, so creating it again does no harm; with other settings it is an error of that stream alone.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed. Unnamed streams are not created twice by a retry, so their creation may end as
    /// indeterminate.
    pub async fn create_streams(
        &self,
        streams: Vec<Stream>,
        timeout: Option<Duration>,
    ) -> Result<Each<Arc<Stream>>, ClientError> {
        let named = streams.iter().any(|stream| !stream.name.is_empty());
        let unnamed = streams.iter().any(|stream| stream.name.is_empty());
        let plan = Plan {
            opcode: CreateStreamsRequest::OPCODE,
            needs: if named { Need::Names } else { Need::Answer },
            repeat: if unnamed { Repeat::Twice } else { Repeat::Harmless },
            to: Where::Placement,
            deadline: self.deadline(timeout),
        };
        let request = |timeout_ms, part: &[Stream]| CreateStreamsRequest {
            timeout_ms,
            streams: part.to_vec(),
        };
        let take = |frame: CreateStreamsResponse| (frame.create_responses, frame.status, frame.throttle_time_ms);
        let read = |asked: &Stream, result: CreateStreamResult, server: &_| {
            entry(&result.status, server, result.stream, "a created stream")
                .map(|stream| self.known(stream))
                .inspect(|stream| caution(stream))
                .map_err(|error| error.with_stream_name(&asked.name))
        };
        self.ask_each(plan, &streams, request, take, read).await
    }

    /// Changes settings of streams, each named by its number. What is 0 or absent stays as it is, except
    /// `retention_period_ms`, which is always taken: 0 keeps records for ever. A name renames the stream; properties are
    /// replaced when given. Doing it again does no harm.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; a stream that does not exist, or whose settings contradict each other, is an
    /// error of its own.
    pub async fn update_streams(
        &self,
        streams: Vec<Stream>,
        timeout: Option<Duration>,
    ) -> Result<Each<Arc<Stream>>, ClientError> {
        let named = streams.iter().any(|stream| !stream.name.is_empty());
        let plan = self.needing::<UpdateStreamsRequest>(if named { Need::Names } else { Need::Nothing }, timeout);
        let request = |timeout_ms, part: &[Stream]| UpdateStreamsRequest {
            timeout_ms,
            streams: part.to_vec(),
        };
        let take = |frame: UpdateStreamsResponse| (frame.update_responses, frame.status, frame.throttle_time_ms);
        let read = |asked: &Stream, result: UpdateStreamResult, server: &_| {
            let stream = entry(&result.status, server, result.stream, "an updated stream").map_err(|error| {
                self.forget(&error, asked.stream_id);
                error.with_stream(asked.stream_id)
            })?;
            // The stream may have had another name before.
            self.forget_stream(asked.stream_id);
            if asked.replica_nums != 0 || asked.ack_count != 0 {
                caution(&stream);
            }
            Ok(self.known(stream))
        };
        self.ask_each(plan, &streams, request, take, read).await
    }

    /// Deletes streams with all their records. Appends are refused from then on, and readers are told.
    ///
    /// A stream that does not exist is an error of its own; but when the call had to be repeated, it counts as deleted:
    /// the attempt before may have done it.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed.
    pub async fn delete_streams(
        &self,
        streams: &[StreamId],
        timeout: Option<Duration>,
    ) -> Result<Each<Stream>, ClientError> {
        let plan = self.harmless::<DeleteStreamsRequest>(timeout);
        let described = |stream_id| Stream {
            stream_id,
            ..Stream::default()
        };
        let mut requests = 0;
        let request = |timeout_ms, part: &[StreamId]| {
            requests += 1;
            DeleteStreamsRequest {
                timeout_ms,
                streams: part.iter().copied().map(described).collect(),
                ..DeleteStreamsRequest::default()
            }
        };
        let take = |frame: DeleteStreamsResponse| (frame.delete_responses, frame.status, frame.throttle_time_ms);
        let read = |&stream: &StreamId, result: DeleteStreamResult, server: &Arc<str>| {
            self.forget_stream(stream);
            Ok((stream, result, Arc::clone(server)))
        };
        let results = self.ask_each(plan, streams, request, take, read).await?;
        let repeated = requests > streams.len().div_ceil(ENTRIES);
        let deleted = results.into_iter().map(|result| {
            let (stream, result, server) = result?;
            if repeated && result.status.code == ErrorCode::NOT_FOUND {
                return Ok(described(stream));
            }
            entry(&result.status, &server, result.deleted_stream, "a deleted stream")
                .map_err(|error| error.with_stream(stream))
        });
        Ok(deleted.collect())
    }

    /// Moves the start of streams forward: records below the offset are gone for readers, and their space comes back.
    /// Returns the first range that is left of each, whose start is the stream's. An offset at or below the start
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; an offset beyond the end, or a stream that does not exist, is an error of its
    /// own.
    pub async fn trim_streams(
        &self,
        streams: &[(StreamId, Offset)],
        timeout: Option<Duration>,
    ) -> Result<Each<Range>, ClientError> {
        let plan = self.harmless::<TrimStreamsRequest>(timeout);
        let request = |timeout_ms, part: &[(StreamId, Offset)]| TrimStreamsRequest {
            timeout_ms,
            trimmed_streams: part
                .iter()
                .map(|&(stream_id, trim_offset)| TrimmedStream { stream_id, trim_offset })
                .collect(),
        };
        let take = |frame: TrimStreamsResponse| (frame.trim_responses, frame.status, frame.throttle_time_ms);
        let read = |&(stream, offset): &(StreamId, Offset), result: TrimStreamResult, server: &_| {
            entry(&result.status, server, result.range, "a trimmed stream's first range").map_err(|error| {
                self.forget(&error, stream);
                error.with_stream(stream).with_offset(offset)
            })
        };
        self.ask_each(plan, streams, request, take, read).await
    }

    /// Describes streams by number, then by name, in the order asked for.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; streams that do not exist are errors of their own.
    pub async fn describe_streams(
        &self,
        ids: &[StreamId],
        names: &[&str],
        timeout: Option<Duration>,
    ) -> Result<Each<Arc<Stream>>, ClientError> {
        let needs = if names.is_empty() { Need::Nothing } else { Need::Names };
        let plan = self.needing::<DescribeStreamsRequest>(needs, timeout);
        let mut described = Vec::with_capacity(ids.len() + names.len());
        // Without ids and names the request would list all streams, so each part has at least one of them.
        let parts = ids.chunks(ENTRIES).map(|ids| (ids, [].as_slice()));
        for (ids, names) in parts.chain(names.chunks(ENTRIES).map(|names| ([].as_slice(), names))) {
            let request = DescribeStreamsRequest {
                stream_ids: ids.to_vec(),
                names: names.iter().map(|&name| name.to_owned()).collect(),
                ..DescribeStreamsRequest::default()
            };
            let (results, _, server) = self.describe_part(plan, request).await?;
            expect_results(ids.len() + names.len(), results.len())?;
            let asked = ids
                .iter()
                .map(|&id| (Some(id), None))
                .chain(names.iter().map(|&name| (None, Some(name))));
            for ((id, name), result) in asked.zip(results) {
                described.push(self.described(id, name, result, &server));
            }
        }
        Ok(described)
    }

    /// Describes all streams, by number.
    ///
    /// # Errors
    ///
    /// When a page could not be read.
    pub async fn list_streams(&self, timeout: Option<Duration>) -> Result<Vec<Arc<Stream>>, ClientError> {
        Ok(self.list_pages(Bytes::new(), timeout).await?.streams)
    }

    /// Describes the streams behind a place in the list, by number, and gives the place to ask from next time: there the
    /// last of these streams is shown again, and whatever was created meanwhile, because numbers only grow. An empty
    /// place is the beginning.
    ///
    /// # Errors
    ///
    /// When a page could not be read, or the place is none.
    pub async fn list_streams_from(
        &self,
        place: Bytes,
        timeout: Option<Duration>,
    ) -> Result<(Vec<Arc<Stream>>, Bytes), ClientError> {
        let deadline = self.deadline(timeout);
        let listed = self.list_pages(place, timeout).await?;
        let shown_again = listed.on_last_page.saturating_sub(1);
        if shown_again == 0 {
            return Ok((listed.streams, listed.last_page));
        }
        // A shorter page, to end just before the last stream.
        let request = DescribeStreamsRequest {
            continuation: listed.last_page.clone(),
            limit: i32::try_from(shown_again).unwrap_or(i32::MAX),
            ..DescribeStreamsRequest::default()
        };
        let left = deadline.saturating_duration_since(now());
        let plan = self.harmless::<DescribeStreamsRequest>(Some(left));
        let (_, continuation, _) = self.describe_part(plan, request).await?;
        let place = if continuation.is_empty() {
            listed.last_page
        } else {
            continuation
        };
        Ok((listed.streams, place))
    }

    async fn list_pages(&self, place: Bytes, timeout: Option<Duration>) -> Result<Listed, ClientError> {
        let plan = self.harmless::<DescribeStreamsRequest>(timeout);
        let mut listed = Listed::default();
        let mut request = DescribeStreamsRequest {
            continuation: place,
            ..DescribeStreamsRequest::default()
        };
        loop {
            let (results, continuation, server) = self.describe_part(plan, request.clone()).await?;
            listed.on_last_page = results.len();
            for result in results {
                listed.streams.push(self.described(None, None, result, &server)?);
            }
            listed.last_page = request.continuation;
            if continuation.is_empty() {
                return Ok(listed);
            }
            request.continuation = continuation;
        }
    }

    /// The stream of that name; asks the server once and then remembers, as long as its connection holds.
    ///
    /// # Errors
    ///
    /// That it does not exist, or that the call failed.
    pub async fn find_stream(&self, name: &str, timeout: Option<Duration>) -> Result<Arc<Stream>, ClientError> {
        if let Some(known) = self.known_stream(name).filter(|known| self.is_current(known.stream_id)) {
            return Ok(known);
        }
        self.look_up(name, timeout).await
    }

    /// The stream of that name; asks the server.
    pub(crate) async fn look_up(&self, name: &str, timeout: Option<Duration>) -> Result<Arc<Stream>, ClientError> {
        only(self.describe_streams(&[], &[name], timeout).await?)
    }

    async fn describe_part(
        &self,
        plan: Plan,
        mut request: DescribeStreamsRequest,
    ) -> Result<(Vec<DescribeStreamResult>, Bytes, Arc<str>), ClientError> {
        let mut continuation = Bytes::new();
        let encode = |left| {
            request.timeout_ms = millis(left);
            encoded(&request)
        };
        let (results, server) = call::call(self.pool(), plan, encode, |answer| {
            let results = gather(answer, |frame: DescribeStreamsResponse| {
                continuation = frame.continuation;
                (frame.describe_responses, frame.status, frame.throttle_time_ms)
            })?;
            Ok((results, Arc::clone(&answer.endpoint)))
        })
        .await?;
        Ok((results, continuation, server))
    }

    fn described(
        &self,
        id: Option<StreamId>,
        name: Option<&str>,
        result: DescribeStreamResult,
        server: &Arc<str>,
    ) -> Result<Arc<Stream>, ClientError> {
        if !result.status.is_success() {
            let mut error = ClientError::entry(&result.status, Some(server));
            if let Some(id) = id {
                self.forget(&error, id);
                error = error.with_stream(id);
            }
            if let Some(name) = name {
                if error.code() == ErrorCode::NOT_FOUND {
                    self.forget_name(name);
                }
                error = error.with_stream_name(name);
            }
            return Err(error);
        }
        entry(&result.status, server, result.stream, "a described stream").map(|stream| self.known(stream))
    }
}
