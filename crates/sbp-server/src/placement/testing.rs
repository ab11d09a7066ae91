//! What tests ask of a placement driver, and how they hear of the end.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, RangeId};
use sbp_types::{RangeIndex, RangeKey, StreamId};

use super::{MetadataJob, Outcome, Outcomes, PlacementDriver, Request, SealFor};
use crate::refusal::Refusal;

/// How long a test waits for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Hands a request to the driver; the result receives its answer.
pub(crate) fn start(driver: &PlacementDriver, request: Request) -> mpsc::Receiver<Result<Outcomes, Refusal>> {
    let (sender, receiver) = mpsc::channel();
    let job = MetadataJob {
        done: Box::new(move |answer| sender.send(answer).unwrap()),
        deadline: Instant::now() + PATIENCE,
        request,
    };
    driver.submit(job).unwrap();
    receiver
}

/// How the only entry of a request ended.
pub(crate) fn end(answer: &mpsc::Receiver<Result<Outcomes, Refusal>>) -> Result<Outcome, Refusal> {
    answer.recv_timeout(PATIENCE).expect("no answer")?.remove(0)
}

pub(crate) fn code(answer: &mpsc::Receiver<Result<Outcomes, Refusal>>) -> ErrorCode {
    end(answer).unwrap_err().code
}

pub(crate) fn key(stream: StreamId, range: i32) -> RangeKey {
    let range = RangeIndex(range);
    RangeKey { stream, range }
}

pub(crate) fn seal(stream: StreamId) -> Request {
    let target = RangeId {
        stream_id: stream,
        range_index: None,
        epoch: None,
        end_offset: None,
    };
    Request::SealRanges(SealFor::PlacementDriver.into(), vec![Ok(target)])
}
