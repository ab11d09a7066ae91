//! Calls about ranges.

use std::time::Duration;

use sbp_messages::{
    CreateRangeRequest, CreateRangeResponse, DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse, Range,
    RangeCriteria, RangeId, SealKind, SealRangesRequest, SealRangesResponse, SealRangesResult,
};
use sbp_types::{Offset, ServerId, StreamId};

use super::ENTRIES;
use crate::call::answers::{Each, entry, only};
use crate::call::ranges::list_ranges;
use crate::client::Client;
use crate::clock::now;
use crate::error::ClientError;

/// How ranges are sealed.
#[derive(Clone, Debug, Default)]
pub struct SealOptions {
    /// On whose behalf.
    pub kind: SealKind,
    /// The servers that the next ranges are better without.
    pub avoid: Vec<ServerId>,
    /// Seal also with too few votes, because the servers that are missing will never come back: records that only they had are
    /// lost. Refused where enough votes are there.
    pub force: bool,
}

/// What became of a range that was ended by force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedEnd {
    /// The range in which its stream goes on. It begins where the other one ends.
    pub next: Range,
    /// From and to, which is not meant, of the records before the end that none of the servers can read that were there.
    pub lost: Vec<(Offset, Offset)>,
}

impl Client {
    /// Lists the ranges of a stream, in their order.
    ///
    /// # Errors
    ///
    /// That the stream does not exist, or that the call failed.
    pub async fn list_ranges(&self, stream: StreamId, timeout: Option<Duration>) -> Result<Vec<Range>, ClientError> {
        let criteria = [RangeCriteria {
            stream_id: Some(stream),
            range_server: None,
        }];
        let listed = self.list_ranges_by(&criteria, timeout).await?;
        only(listed).map_err(|error| error.with_stream(stream))
    }

    /// Lists the ranges that meet each of the criteria: of a stream, on a server, or of a stream on a server. As many
    /// pages are read as there are.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed; a stream that does not exist is an error of its own.
    pub async fn list_ranges_by(
        &self,
        criteria: &[RangeCriteria],
        timeout: Option<Duration>,
    ) -> Result<Each<Vec<Range>>, ClientError> {
        let deadline = self.deadline(timeout);
        // Results name their criteria, so each may be asked for only once.
        let mut distinct: Vec<&RangeCriteria> = Vec::new();
        for one in criteria {
            if !distinct.contains(&one) {
                distinct.push(one);
            }
        }
        let mut found = Vec::with_capacity(distinct.len());
        for part in distinct.chunks(ENTRIES) {
            let left = deadline.saturating_duration_since(now());
            found.extend(list_ranges(self.pool(), part, left).await?);
        }
        let answer = |one: &RangeCriteria| {
            let place = distinct.iter().position(|&known| known == one);
            let found = place.and_then(|place| found.get(place));
            found
                .cloned()
                .unwrap_or_else(|| Err(ClientError::protocol("a list of ranges is missing")))
        };
        Ok(criteria.iter().map(answer).collect())
    }

    /// Describes ranges, in the order asked for. Without an index the open range is meant, or the last one of a
    /// stream without an open range.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed.
    pub async fn describe_ranges(
        &self,
        ranges: &[RangeId],
        timeout: Option<Duration>,
    ) -> Result<Each<Range>, ClientError> {
        let plan = self.harmless::<DescribeRangesRequest>(timeout);
        let request = |timeout_ms, part: &[RangeId]| DescribeRangesRequest {
            timeout_ms,
            ranges: part.to_vec(),
        };
        let take = |frame: DescribeRangesResponse| (frame.describe_responses, frame.status, frame.throttle_time_ms);
        let read = |asked: &_, result: DescribeRangeResult, server: &_| {
            entry(&result.status, server, result.range, "a described range").map_err(|error| placed(error, asked))
        };
        self.ask_each(plan, ranges, request, take, read).await
    }

    /// Seals ranges: no record is added to them any more. With [`SealKind::PLACEMENT_DRIVER`] the stream goes on at once
    /// in a new range, which is returned; with [`SealKind::RANGE_SERVER`] the sealed range is.
    ///
    /// A range without an index, the open one, is resolved first, so that a call that has to be repeated seals the same
    /// range again, which changes nothing, and never the next one.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed.
    pub async fn seal_ranges(
        &self,
        ranges: &[RangeId],
        kind: SealKind,
        timeout: Option<Duration>,
    ) -> Result<Each<Range>, ClientError> {
        let options = SealOptions {
            kind,
            ..SealOptions::default()
        };
        self.seal_ranges_with(ranges, &options, timeout).await
    }

    /// The same, where the next ranges are better without some servers, or too few votes are to suffice.
    ///
    /// # Errors
    ///
    /// When the call as a whole failed.
    pub async fn seal_ranges_with(
        &self,
        ranges: &[RangeId],
        options: &SealOptions,
        timeout: Option<Duration>,
    ) -> Result<Each<Range>, ClientError> {
        let sealed = self.seal_each(ranges, options, timeout).await?;
        Ok(sealed.into_iter().map(|one| one.map(|sealed| sealed.next)).collect())
    }

    /// Ends a range whose servers will never say where it ends, or have all lost the same records: where the best copy ends that is
    /// left.
    ///
    /// # Errors
    ///
    /// That enough servers are there and have all of it, or that nothing was done.
    pub async fn force_seal(&self, range: RangeId, timeout: Option<Duration>) -> Result<ForcedEnd, ClientError> {
        let options = SealOptions {
            kind: SealKind::PLACEMENT_DRIVER,
            force: true,
            ..SealOptions::default()
        };
        let sealed = self.seal_each(&[range], &options, timeout).await?.pop();
        sealed.unwrap_or_else(|| Err(ClientError::protocol("a sealed range is missing")))
    }

    async fn seal_each(
        &self,
        ranges: &[RangeId],
        options: &SealOptions,
        timeout: Option<Duration>,
    ) -> Result<Each<ForcedEnd>, ClientError> {
        let deadline = self.deadline(timeout);
        let left = || Some(deadline.saturating_duration_since(now()));
        let open: Vec<RangeId> = ranges
            .iter()
            .filter(|range| range.range_index.is_none())
            .copied()
            .collect();
        let mut resolved = self.describe_ranges(&open, left()).await?.into_iter();
        let mut refused = Vec::new();
        let mut wanted = Vec::with_capacity(ranges.len());
        for (place, &asked) in ranges.iter().enumerate() {
            if asked.range_index.is_some() {
                wanted.push(asked);
                continue;
            }
            match resolved.next() {
                Some(Ok(range)) => wanted.push(RangeId {
                    range_index: Some(range.range_index),
                    ..asked
                }),
                Some(Err(error)) => refused.push((place, error)),
                None => return Err(ClientError::protocol("a described range is missing")),
            }
        }
        let plan = self.harmless::<SealRangesRequest>(left());
        let request = |timeout_ms, part: &[RangeId]| SealRangesRequest {
            timeout_ms,
            ranges: part.to_vec(),
            kind: options.kind,
            avoid: options.avoid.clone(),
            force: options.force,
            ..SealRangesRequest::default()
        };
        let take = |frame: SealRangesResponse| (frame.seal_responses, frame.status, frame.throttle_time_ms);
        let read = |asked: &_, result: SealRangesResult, server: &_| {
            let next = entry(&result.status, server, result.range, "a sealed range");
            let lost = result.lost_offsets.chunks_exact(2).filter_map(|pair| match pair {
                [from, to] => Some((*from, *to)),
                _ => None,
            });
            let lost = lost.filter(|(from, to)| from < to).collect();
            next.map(|next| ForcedEnd { next, lost })
                .map_err(|error| placed(error, asked))
        };
        let mut sealed = self.ask_each(plan, &wanted, request, take, read).await?;
        for (place, error) in refused {
            sealed.insert(place, Err(error));
        }
        Ok(sealed)
    }

    /// Opens the range behind a sealed one: `range` names its stream and index; start and epoch may be -1. Asking for
    /// the same again gets the same range.
    ///
    /// # Errors
    ///
    /// That the last range is not sealed, that the index is not the next, or that the call failed.
    pub async fn create_range(&self, range: Range, timeout: Option<Duration>) -> Result<Range, ClientError> {
        let stream = range.stream_id;
        let request = |timeout_ms| CreateRangeRequest {
            timeout_ms,
            range: Some(range.clone()),
        };
        let take = |frame: CreateRangeResponse| (frame.range, frame.status);
        match self.ask_one(timeout, request, take).await {
            Ok(Some(range)) => Ok(range),
            Ok(None) => Err(ClientError::protocol("a created range is not described")),
            Err(error) => Err(error.with_stream(stream)),
        }
    }
}

fn placed(error: ClientError, asked: &RangeId) -> ClientError {
    let error = error.with_stream(asked.stream_id);
    match asked.range_index {
        Some(range) => error.with_range(range),
        None => error,
    }
}
