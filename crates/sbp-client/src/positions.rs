//! Where streams begin and end.

use std::time::Duration;

use sbp_messages::{FetchInfo, FetchRequest, FetchResult, Message};
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::admin::{Each, encoded};
use crate::client::Client;
use crate::connection::command::{Answer, Need};
use crate::error::ClientError;
use crate::execute::{self, Plan};
use crate::failure::Cause;
use crate::fetch::parts;
use crate::position::Positions;
use crate::retry::Repeat;

/// Entries of one request; more are split over several.
const ENTRIES: usize = 1_024;

impl Client {
    /// Where each stream begins and ends now, in one call for many streams.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; streams that do not exist are errors of their own.
    pub async fn positions(
        &self,
        streams: &[StreamId],
        timeout: Option<Duration>,
    ) -> Result<Each<Positions>, ClientError> {
        let entries: Vec<_> = streams.iter().map(|&stream| (stream, TimestampMs(-1))).collect();
        let results = self.resolve(&entries, timeout).await?;
        let each = results.into_iter().zip(streams).map(|(result, &stream)| {
            result.map(|found| Positions {
                stream,
                earliest: found.start_offset,
                latest: found.high_watermark,
            })
        });
        Ok(each.collect())
    }

    /// For each stream, the first offset of the first batch whose newest record is at least as new as the time; the end
    /// of the stream where there is none.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; streams that do not exist are errors of their own.
    pub async fn offsets_for_times(
        &self,
        times: &[(StreamId, TimestampMs)],
        timeout: Option<Duration>,
    ) -> Result<Each<Offset>, ClientError> {
        let results = self.resolve(times, timeout).await?;
        Ok(results
            .into_iter()
            .map(|result| result.map(|found| found.base_offset))
            .collect())
    }

    /// Asks for positions without data, from the earliest offset on or from a time on.
    async fn resolve(
        &self,
        entries: &[(StreamId, TimestampMs)],
        timeout: Option<Duration>,
    ) -> Result<Each<FetchResult>, ClientError> {
        let plan = Plan {
            opcode: FetchRequest::OPCODE,
            needs: Need::BoundedFetch,
            repeat: Repeat::Harmless,
            deadline: self.deadline(timeout),
        };
        let mut resolved = Vec::with_capacity(entries.len());
        for part in entries.chunks(ENTRIES) {
            let fetch_requests = part.iter().zip(0..).map(|(&(stream, time), index)| FetchInfo {
                stream_id: stream,
                request_index: index,
                fetch_offset: Offset::EARLIEST,
                batch_max_bytes: FetchInfo::POSITIONS_ONLY,
                start_timestamp_ms: time,
                ..FetchInfo::default()
            });
            let request = FetchRequest {
                fetch_requests: fetch_requests.collect(),
                ..FetchRequest::default()
            };
            let header = encoded(&request);
            let results = execute::call(
                self.link(),
                plan,
                |_left| header.clone(),
                |answer| gather(answer, part.len()),
            )
            .await?;
            for (result, &(stream, _)) in results.into_iter().zip(part) {
                resolved.push(if result.status.is_success() {
                    Ok(result)
                } else {
                    let status = &result.status;
                    let message = if status.message.is_empty() {
                        status.code.name()
                    } else {
                        &status.message
                    };
                    let error = ClientError::entry(status.code, message, None).with_stream(stream);
                    self.forget(&error, stream);
                    Err(error)
                });
            }
        }
        Ok(resolved)
    }
}

/// One result for each entry, in their order.
fn gather(answer: &Answer, entries: usize) -> Result<Vec<FetchResult>, Cause> {
    let mut found: Vec<Option<FetchResult>> = vec![None; entries];
    for frame in &answer.frames {
        for part in parts(frame.clone(), entries)? {
            if let Some(place) = found.get_mut(part.index) {
                *place = Some(part.result);
            }
        }
    }
    let all: Option<Vec<_>> = found.into_iter().collect();
    all.ok_or_else(|| Cause::Protocol {
        what: "a FETCH answer ends without a result for each entry".into(),
    })
}
