//! The ranges of streams, as a placement driver lists them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_messages::{ListRangesRequest, ListRangesResponse, ListRangesResult, Message, Range, RangeCriteria};

use super::answers::{Each, gather};
use super::{Plan, Where, call};
use crate::channel::command::Need;
use crate::channel::header::{encoded, millis};
use crate::clock::now;
use crate::error::ClientError;
use crate::pool::ConnectionPool;
use crate::retry::Repeat;

/// All ranges that meet each of the criteria, of which no two are equal: all pages of one request.
pub(crate) async fn list_ranges(
    pool: &Arc<ConnectionPool>,
    criteria: &[&RangeCriteria],
    timeout: Duration,
) -> Result<Each<Vec<Range>>, ClientError> {
    let plan = Plan {
        opcode: ListRangesRequest::OPCODE,
        needs: Need::Nothing,
        repeat: Repeat::Harmless,
        to: Where::Placement,
        deadline: now() + timeout,
    };
    let mut request = ListRangesRequest {
        range_criteria: criteria.iter().map(|&one| one.clone()).collect(),
        ..ListRangesRequest::default()
    };
    let mut lists = Lists::new(criteria.len());
    loop {
        let mut continuation = Bytes::new();
        let encode = |left| {
            request.timeout_ms = millis(left);
            encoded(&request)
        };
        let (page, server) = call(pool, plan, encode, |answer| {
            let page = gather(answer, |frame: ListRangesResponse| {
                continuation = frame.continuation;
                (frame.list_responses, frame.status, frame.throttle_time_ms)
            })?;
            Ok((page, Arc::clone(&answer.endpoint)))
        })
        .await?;
        for result in page {
            lists.add(criteria, result, &server)?;
        }
        if continuation.is_empty() {
            return lists.finish();
        }
        request.continuation = continuation;
    }
}

/// Lists gathered from pages: a list that did not fit into a page goes on in the next one under the same criteria.
struct Lists {
    lists: Vec<Option<Result<Vec<Range>, ClientError>>>,
}

impl Lists {
    fn new(criteria: usize) -> Self {
        Self {
            lists: vec![None; criteria],
        }
    }

    fn add(
        &mut self,
        criteria: &[&RangeCriteria],
        result: ListRangesResult,
        server: &Arc<str>,
    ) -> Result<(), ClientError> {
        let place = match &result.range_criteria {
            Some(told) => criteria.iter().position(|&one| one == told),
            None if criteria.len() == 1 => Some(0),
            None => None,
        };
        let list = place
            .and_then(|place| self.lists.get_mut(place))
            .ok_or_else(|| ClientError::protocol("a list of ranges is for criteria that were not asked for"))?;
        match list {
            _ if !result.status.is_success() => *list = Some(Err(ClientError::entry(&result.status, Some(server)))),
            Some(Ok(ranges)) => ranges.extend(result.ranges),
            Some(Err(_)) => {}
            None => *list = Some(Ok(result.ranges)),
        }
        Ok(())
    }

    fn finish(self) -> Result<Each<Vec<Range>>, ClientError> {
        let all: Option<Vec<_>> = self.lists.into_iter().collect();
        all.ok_or_else(|| ClientError::protocol("a list of ranges is missing"))
    }
}
