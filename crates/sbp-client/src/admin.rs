//! Calls about streams and ranges.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sbp_messages::{
    CreateStreamsRequest, CreateStreamsResponse, DescribeRangesRequest, DescribeRangesResponse, DescribeStreamResult,
    DescribeStreamsRequest, DescribeStreamsResponse, Encoder, ErrorCode, ListRangesRequest, ListRangesResponse,
    Message, Range, RangeCriteria, RangeId, Status, Stream,
};
use sbp_types::StreamId;

use crate::client::Client;
use crate::connection::command::{Answer, Need};
use crate::connection::{refused, undecodable};
use crate::error::ClientError;
use crate::execute::{self, Plan};
use crate::failure::Cause;
use crate::retry::Repeat;

/// Entries of one request; more are split over several.
const ENTRIES: usize = 1_024;

/// A result for each thing that was asked for, in the order of asking.
pub type Each<T> = Vec<Result<T, ClientError>>;

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
            needs: if named { Need::Names } else { Need::Nothing },
            repeat: if unnamed { Repeat::Twice } else { Repeat::Harmless },
            deadline: self.deadline(timeout),
        };
        let mut created = Vec::with_capacity(streams.len());
        for part in streams.chunks(ENTRIES) {
            let mut request = CreateStreamsRequest {
                timeout_ms: 0,
                streams: part.to_vec(),
            };
            let encode = |left| {
                request.timeout_ms = millis(left);
                encoded(&request)
            };
            let results = execute::call(self.link(), plan, encode, |answer| {
                gather(answer, |frame: CreateStreamsResponse| {
                    (frame.create_responses, frame.status, frame.throttle_time_ms)
                })
            })
            .await?;
            expect_results(part.len(), results.len())?;
            for (asked, result) in part.iter().zip(results) {
                created.push(match (result.status.is_success(), result.stream) {
                    (true, Some(stream)) => {
                        let stream = Arc::new(stream);
                        self.remember(&stream);
                        Ok(stream)
                    }
                    (true, None) => Err(ClientError::protocol("a created stream is not described")),
                    (false, _) => Err(entry_error(&result.status).with_stream_name(&asked.name)),
                });
            }
        }
        Ok(created)
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
        let plan = self
            .read_plan::<DescribeStreamsRequest>(if names.is_empty() { Need::Nothing } else { Need::Names }, timeout);
        let mut described = Vec::with_capacity(ids.len() + names.len());
        // Without ids and names the request would list all streams, so each part has at least one of them.
        let parts = ids.chunks(ENTRIES).map(|ids| (ids, [].as_slice()));
        for (ids, names) in parts.chain(names.chunks(ENTRIES).map(|names| ([].as_slice(), names))) {
            let mut request = DescribeStreamsRequest {
                stream_ids: ids.to_vec(),
                names: names.iter().map(|&name| name.to_owned()).collect(),
                ..DescribeStreamsRequest::default()
            };
            let results = self.describe_part(plan, &mut request).await?.0;
            expect_results(ids.len() + names.len(), results.len())?;
            let asked = ids
                .iter()
                .map(|&id| (Some(id), None))
                .chain(names.iter().map(|&name| (None, Some(name))));
            for ((id, name), result) in asked.zip(results) {
                described.push(self.described(id, name, result));
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
        let plan = self.read_plan::<DescribeStreamsRequest>(Need::Nothing, timeout);
        let mut streams = Vec::new();
        let mut request = DescribeStreamsRequest::default();
        loop {
            let (results, continuation) = self.describe_part(plan, &mut request).await?;
            for result in results {
                streams.push(self.described(None, None, result)?);
            }
            if continuation.is_empty() {
                return Ok(streams);
            }
            request.continuation = continuation;
        }
    }

    /// The stream of that name; asks the server once and then remembers.
    ///
    /// # Errors
    ///
    /// That it does not exist, or that the call failed.
    pub async fn find_stream(&self, name: &str, timeout: Option<Duration>) -> Result<Arc<Stream>, ClientError> {
        if let Some(known) = self.known_stream(name) {
            return Ok(known);
        }
        let found = self.describe_streams(&[], &[name], timeout).await?.pop();
        found.unwrap_or_else(|| Err(ClientError::protocol("a described stream is not described")))
    }

    /// Lists the ranges of a stream, in their order.
    ///
    /// # Errors
    ///
    /// That the stream does not exist, or that the call failed.
    pub async fn list_ranges(&self, stream: StreamId, timeout: Option<Duration>) -> Result<Vec<Range>, ClientError> {
        let plan = self.read_plan::<ListRangesRequest>(Need::Nothing, timeout);
        let criteria = RangeCriteria {
            stream_id: stream,
            range_server: None,
        };
        let mut request = ListRangesRequest {
            range_criteria: vec![criteria],
            ..ListRangesRequest::default()
        };
        let mut ranges = Vec::new();
        loop {
            let mut continuation = Bytes::new();
            let encode = |left| {
                request.timeout_ms = millis(left);
                encoded(&request)
            };
            let page = execute::call(self.link(), plan, encode, |answer| {
                gather(answer, |frame: ListRangesResponse| {
                    continuation = frame.continuation;
                    (frame.list_responses, frame.status, frame.throttle_time_ms)
                })
            })
            .await?;
            for result in page {
                if !result.status.is_success() {
                    return Err(entry_error(&result.status).with_stream(stream));
                }
                ranges.extend(result.ranges);
            }
            if continuation.is_empty() {
                return Ok(ranges);
            }
            request.continuation = continuation;
        }
    }

    /// Describes ranges, in the order asked for.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed.
    pub async fn describe_ranges(
        &self,
        ranges: &[RangeId],
        timeout: Option<Duration>,
    ) -> Result<Each<Range>, ClientError> {
        let plan = self.read_plan::<DescribeRangesRequest>(Need::Nothing, timeout);
        let mut described = Vec::with_capacity(ranges.len());
        for part in ranges.chunks(ENTRIES) {
            let mut request = DescribeRangesRequest {
                timeout_ms: 0,
                ranges: part.to_vec(),
            };
            let encode = |left| {
                request.timeout_ms = millis(left);
                encoded(&request)
            };
            let results = execute::call(self.link(), plan, encode, |answer| {
                gather(answer, |frame: DescribeRangesResponse| {
                    (frame.describe_responses, frame.status, frame.throttle_time_ms)
                })
            })
            .await?;
            expect_results(part.len(), results.len())?;
            for (asked, result) in part.iter().zip(results) {
                described.push(match (result.status.is_success(), result.range) {
                    (true, Some(range)) => Ok(range),
                    (true, None) => Err(ClientError::protocol("a described range is not described")),
                    (false, _) => Err(entry_error(&result.status).with_stream(asked.stream_id)),
                });
            }
        }
        Ok(described)
    }

    fn read_plan<M: Message>(&self, needs: Need, timeout: Option<Duration>) -> Plan {
        Plan {
            opcode: M::OPCODE,
            needs,
            repeat: Repeat::Harmless,
            deadline: self.deadline(timeout),
        }
    }

    async fn describe_part(
        &self,
        plan: Plan,
        request: &mut DescribeStreamsRequest,
    ) -> Result<(Vec<DescribeStreamResult>, Bytes), ClientError> {
        let mut continuation = Bytes::new();
        let encode = |left| {
            request.timeout_ms = millis(left);
            encoded(request)
        };
        let results = execute::call(self.link(), plan, encode, |answer| {
            gather(answer, |frame: DescribeStreamsResponse| {
                continuation = frame.continuation;
                (frame.describe_responses, frame.status, frame.throttle_time_ms)
            })
        })
        .await?;
        Ok((results, continuation))
    }

    fn described(
        &self,
        id: Option<StreamId>,
        name: Option<&str>,
        result: DescribeStreamResult,
    ) -> Result<Arc<Stream>, ClientError> {
        match (result.status.is_success(), result.stream) {
            (true, Some(stream)) => {
                let stream = Arc::new(stream);
                self.remember(&stream);
                Ok(stream)
            }
            (true, None) => Err(ClientError::protocol("a described stream is not described")),
            (false, _) => {
                let mut error = entry_error(&result.status);
                if let Some(id) = id {
                    error = error.with_stream(id);
                }
                Err(match name {
                    Some(name) => error.with_stream_name(name),
                    None => error,
                })
            }
        }
    }
}

pub(crate) fn millis(left: Duration) -> i32 {
    i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1)
}

pub(crate) fn encoded<M: Message>(message: &M) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    out.freeze()
}

/// The results of all frames of an answer, in their order. The last frame's status speaks for the call.
fn gather<M: Message, R>(answer: &Answer, mut take: impl FnMut(M) -> (Vec<R>, Status, i32)) -> Result<Vec<R>, Cause> {
    let mut results = Vec::new();
    let mut last = (Status::success(), 0);
    for frame in &answer.frames {
        let message = M::decode(&frame.header).map_err(|error| undecodable(frame, &error))?;
        let (part, status, throttle) = take(message);
        results.extend(part);
        last = (status, throttle);
    }
    let (status, throttle) = last;
    if status.is_success() {
        Ok(results)
    } else {
        Err(refused(&status, throttle))
    }
}

fn expect_results(asked: usize, got: usize) -> Result<(), ClientError> {
    if asked == got {
        return Ok(());
    }
    Err(ClientError::protocol(format!(
        "{asked} things were asked for and {got} answered"
    )))
}

fn entry_error(status: &Status) -> ClientError {
    let message = if status.message.is_empty() {
        ErrorCode::name(status.code)
    } else {
        &status.message
    };
    ClientError::entry(status.code, message, None)
}
