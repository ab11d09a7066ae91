//! Sends answers whose results may not fit into one frame.

use bytes::Bytes;
use sbp_frame::CallId;
use sbp_messages::{
    CreateStreamResult, CreateStreamsResponse, DeleteStreamResult, DeleteStreamsResponse, DescribeRangeResult,
    DescribeRangesResponse, DescribeStreamResult, DescribeStreamsResponse, ListRangesResponse, ListRangesResult,
    Message, Range, RangeCriteria, SealRangesResponse, SealRangesResult, Status, Stream, SyncRangesResponse,
    SyncRangesResult, TrimStreamResult, TrimStreamsResponse, UpdateStreamResult, UpdateStreamsResponse,
};
use sbp_types::StreamId;

use super::handle::Turn;

/// The bytes of results after which another frame is begun. A header may have 4 MiB, and a single result has little
/// more than the request that created its stream.
const FRAME_BYTES: usize = 2 << 20;
/// The bytes of a result without its message and its streams and ranges, estimated from above.
const RESULT_BYTES: usize = 256;

/// One of the results of an answer that is sent in as many frames as it needs.
pub(super) trait EntryResult: Sized + Send + 'static {
    /// The message of each frame.
    type Response: Message;

    /// How the entry ended.
    fn status(&self) -> &Status;

    /// What the entry is about: a stream by its id, or by its name, or neither.
    fn about(&self) -> (Option<StreamId>, &str);

    /// The bytes of the result, estimated from above.
    fn weight(&self) -> usize;

    /// The message of a frame. `page` is for answers that have pages.
    fn response(results: Vec<Self>, page: Page) -> Self::Response;
}

/// What the answer to a question says besides its results.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// Where the next page goes on; in its last frame.
    pub(super) continuation: Bytes,
    /// The term of the placement driver that answers; 0: not told.
    pub(super) term: i64,
}

/// Declares what the results of each operation are: the field of the response that has them, and the fields of a result
/// that can be large.
macro_rules! entry_results {
    ($($response:ident.$field:ident: $result:ident($large:ident) about $about:ident $($continuation:ident)?;)*) => { $(
        impl EntryResult for $result {
            type Response = $response;

            fn status(&self) -> &Status {
                &self.status
            }

            fn about(&self) -> (Option<StreamId>, &str) {
                self.$about.about()
            }

            fn weight(&self) -> usize {
                RESULT_BYTES + self.status.message.len() + self.$large.iter().map(Weigh::weight).sum::<usize>()
            }

            fn response(results: Vec<Self>, _page: Page) -> $response {
                $response {
                    $field: results,
                    $( $continuation: _page.continuation, term: _page.term, )?
                    ..Default::default()
                }
            }
        }
    )* };
}

entry_results! {
    CreateStreamsResponse.create_responses: CreateStreamResult(stream) about stream;
    UpdateStreamsResponse.update_responses: UpdateStreamResult(stream) about stream;
    DeleteStreamsResponse.delete_responses: DeleteStreamResult(deleted_stream) about deleted_stream;
    TrimStreamsResponse.trim_responses: TrimStreamResult(trimmed_stream) about trimmed_stream;
    DescribeStreamsResponse.describe_responses: DescribeStreamResult(stream) about stream continuation;
    ListRangesResponse.list_responses: ListRangesResult(ranges) about range_criteria continuation;
    DescribeRangesResponse.describe_responses: DescribeRangeResult(range) about stream_id;
    SealRangesResponse.seal_responses: SealRangesResult(range) about stream_id;
    SyncRangesResponse.sync_responses: SyncRangesResult(ranges) about stream_id;
}

/// What can tell which stream a result is about.
trait About {
    fn about(&self) -> (Option<StreamId>, &str);
}

impl About for StreamId {
    fn about(&self) -> (Option<StreamId>, &str) {
        (self.is_valid().then_some(*self), "")
    }
}

impl About for Option<Stream> {
    fn about(&self) -> (Option<StreamId>, &str) {
        match self {
            Some(stream) => (stream.stream_id.about().0, stream.name.as_str()),
            None => (None, ""),
        }
    }
}

impl About for Option<RangeCriteria> {
    fn about(&self) -> (Option<StreamId>, &str) {
        (self.as_ref().and_then(|criteria| criteria.stream_id), "")
    }
}

/// What can make a result large: its bytes, estimated from above.
trait Weigh {
    fn weight(&self) -> usize;
}

impl Weigh for Stream {
    fn weight(&self) -> usize {
        let properties = self.properties.iter().flatten();
        let properties: usize = properties
            .map(|property| property.key.len() + property.value.len() + 64)
            .sum();
        512 + self.name.len() + properties + self.schema.as_ref().map_or(0, Bytes::len)
    }
}

impl Weigh for Range {
    fn weight(&self) -> usize {
        let addresses = self.servers.iter().filter_map(|replica| replica.range_server.as_ref());
        256 + addresses.map(|server| 128 + server.advertise_addr.len()).sum::<usize>()
    }
}

impl Turn<'_> {
    /// Sends results in as many frames as they need; the last one ends the answer.
    pub(super) fn send_results<R: EntryResult>(&mut self, call: CallId, results: impl IntoIterator<Item = R>) {
        self.send_page(call, results, Page::default());
    }

    /// Sends the results of a page.
    pub(super) fn send_page<R: EntryResult>(&mut self, call: CallId, results: impl IntoIterator<Item = R>, page: Page) {
        let opcode = R::Response::OPCODE;
        let noted = results
            .into_iter()
            .inspect(|result| self.note_entry(opcode, result.about(), result.status()));
        let (last, others) = split(noted, R::weight);
        for frame in others {
            let begun = Page {
                continuation: Bytes::new(),
                ..page
            };
            let response = R::response(frame, begun);
            self.replier.send(self.session, call, &response, false, &[]);
        }
        self.finish(call, &R::response(last, page));
    }
}

/// Divides results into frames. Returns the results of the last frame, and those of each frame before it.
fn split<R>(results: impl Iterator<Item = R>, weigh: impl Fn(&R) -> usize) -> (Vec<R>, Vec<Vec<R>>) {
    let (mut frames, mut frame, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for result in results {
        let added = weigh(&result);
        if bytes + added > FRAME_BYTES && !frame.is_empty() {
            frames.push(std::mem::take(&mut frame));
            bytes = 0;
        }
        bytes += added;
        frame.push(result);
    }
    (frame, frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_cut_by_weight_and_none_is_lost() {
        let half = FRAME_BYTES / 2;
        for (weights, frames) in [
            (vec![], 1),
            (vec![1; 1_000], 1),
            (vec![half, half, 1], 2),
            (vec![FRAME_BYTES * 2, 1, FRAME_BYTES * 2], 3),
            (vec![half + 1; 5], 5),
        ] {
            let (last, others) = split(weights.clone().into_iter(), |weight| *weight);
            assert_eq!(others.len() + 1, frames, "{weights:?}");
            let joined: Vec<usize> = others.into_iter().flatten().chain(last).collect();
            assert_eq!(joined, weights);
        }
    }
}
