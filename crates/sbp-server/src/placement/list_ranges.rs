//! LIST_RANGES.

use std::sync::Arc;

use sbp_frame::OpCode;
use sbp_messages::RangeCriteria;
use sbp_types::RangeKey;

use super::page_size;
use super::records::RangeRecord;
use super::state::PlacementState;
use super::token::{RangePlace, read_range_token, write_range_token};
use crate::access::Gate;
use crate::refusal::Refusal;

/// The ranges that match one criterion, as far as they are on this page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The index of the criterion in the request.
    pub(crate) criterion: usize,
    pub(crate) ranges: Result<Vec<Arc<RangeRecord>>, Refusal>,
}

/// One page of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedPage {
    pub(crate) results: Vec<Listed>,
    /// The token of the next page; empty after the last one.
    pub(crate) continuation: Vec<u8>,
}

/// Lists at most `limit` ranges, criterion by criterion, as far as `gate` lets their sender see. A criterion whose ranges do not fit is continued on the next
/// page.
pub(crate) fn list_ranges(
    state: &PlacementState,
    criteria: &[RangeCriteria],
    limit: i32,
    token: &[u8],
    gate: &Gate,
) -> Result<ListedPage, Refusal> {
    let RangePlace {
        criterion: first,
        mut after,
    } = read_range_token(token, criteria.len())?;
    let mut room = page_size(limit);
    let mut page = ListedPage::default();
    for (index, criterion) in criteria
        .iter()
        .enumerate()
        .skip(usize::try_from(first).unwrap_or(usize::MAX))
    {
        let place = |after| RangePlace {
            criterion: u32::try_from(index).unwrap_or(u32::MAX),
            after,
        };
        if room == 0 {
            page.continuation = write_range_token(place(None));
            break;
        }
        let behind = after.take();
        let ranges = match matching(state, criterion, behind, gate) {
            Err(refusal) => Err(refusal),
            Ok(mut matching) => {
                let shown: Vec<_> = matching.by_ref().take(room).cloned().collect();
                room -= shown.len();
                if matching.next().is_some() {
                    page.continuation = write_range_token(place(shown.last().map(|range| range.key)));
                }
                Ok(shown)
            }
        };
        page.results.push(Listed {
            criterion: index,
            ranges,
        });
        if !page.continuation.is_empty() {
            break;
        }
    }
    Ok(page)
}

fn matching<'a>(
    state: &'a PlacementState,
    criteria: &RangeCriteria,
    after: Option<RangeKey>,
    gate: &Gate,
) -> Result<Box<dyn Iterator<Item = &'a Arc<RangeRecord>> + 'a>, Refusal> {
    let server = criteria.range_server.as_ref().map(|server| server.server_id);
    let on_server = move |range: &&Arc<RangeRecord>| server.is_none_or(|server| range.servers.contains(&server));
    match (criteria.stream_id, server) {
        (None, None) => Err(Refusal::invalid("a criterion names a stream, a range server, or both")),
        (Some(stream), _) => {
            gate.check_id(OpCode::LIST_RANGES, stream, |id, allowed| allowed(state.name_of(id)))?;
            if state.stream(stream).is_none() {
                return Err(Refusal::no_stream(stream));
            }
            let behind = move |range: &&Arc<RangeRecord>| after.is_none_or(|after| range.key > after);
            Ok(Box::new(state.ranges_of(stream).filter(behind).filter(on_server)))
        }
        (None, Some(_)) => {
            gate.check_all_streams(OpCode::LIST_RANGES)?;
            Ok(Box::new(state.ranges_after(after).filter(on_server)))
        }
    }
}
