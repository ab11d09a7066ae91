//! The stream that a cursor's commits are stored in.

use std::time::Instant;

use bytes::Bytes;
use sbp_messages::ErrorCode;
use sbp_record::Batch;
use sbp_types::{Offset, StreamId};

use super::record::CommitRecord;
use crate::call::answers::only;
use crate::client::Client;
use crate::clock::left;
use crate::codes;
use crate::error::ClientError;
use crate::position::{Positions, Span};
use crate::read::ReaderOptions;

/// Where a cursor's stream begins and ends.
pub(super) async fn bounds(client: &Client, stream: StreamId, deadline: Instant) -> Result<Positions, ClientError> {
    only(client.positions(&[stream], left(deadline)).await?)
}

/// The commits of a part of a cursor's stream.
pub(super) async fn commits(
    client: &Client,
    stream: StreamId,
    start: Offset,
    end: Offset,
    deadline: Instant,
) -> Result<Vec<CommitRecord>, ClientError> {
    let options = ReaderOptions {
        timeout: left(deadline),
        ..ReaderOptions::default()
    };
    let mut reader = client.reader(vec![Span { stream, start, end }], options);
    let mut commits = Vec::new();
    while let Some(fetched) = reader.next().await {
        let fetched = fetched?;
        decode(fetched.bytes, fetched.from, fetched.to, &mut commits)
            .map_err(|error| error.with_stream(stream).with_offset(fetched.from))?;
    }
    Ok(commits)
}

fn decode(bytes: Bytes, from: Offset, to: Offset, out: &mut Vec<CommitRecord>) -> Result<(), ClientError> {
    let damaged = |error: sbp_record::BatchError| ClientError::damaged(error.to_string());
    let batch = Batch::decode(bytes, None).map_err(damaged)?;
    for record in batch.records().map_err(damaged)?.between(from, to) {
        let commit = CommitRecord::decode(record.value.unwrap_or_default())
            .map_err(|error| ClientError::damaged(format!("a cursor's stream holds a record that {error}")))?;
        out.push(commit);
    }
    Ok(())
}

/// Whether an error says that what was to be read is trimmed.
pub(super) fn is_trimmed(error: &ClientError) -> bool {
    error.gap().is_some() || matches!(error.code(), codes::DATA_LOSS | ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS)
}
