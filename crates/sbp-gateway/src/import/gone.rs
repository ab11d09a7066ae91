//! Segments of a stream of Pravega that were imported, and that the source has no more: the stream was truncated behind them.

use std::collections::BTreeSet;
use std::sync::Arc;

use sbp_client::Client;
use sbp_messages::{ErrorCode, Stream};

use super::error::ImportError;
use super::item::SourcePartition;
use super::numbering::Protocol;
use super::target::describe;
use crate::pravega::properties::{KIND, SEALED, SEGMENT, key_value, property, with};

/// Streams that are asked about at once.
const TOGETHER: usize = 1_000;

/// The streams of segments that are not among those found. What the source has now comes behind them: of segments with which the
/// stream begins it does not tell any more what they follow.
pub(super) async fn segments(
    client: &Client,
    topic: &str,
    found: &mut [SourcePartition],
) -> Result<Vec<Arc<Stream>>, ImportError> {
    let number = |part: &SourcePartition| part.partition & 0xffff_ffff;
    let there: BTreeSet<i64> = found.iter().map(number).collect();
    let before = 0..there.last().copied().unwrap_or(0);
    let missing: Vec<_> = before.filter(|number| !there.contains(number)).collect();
    let mut gone = Vec::new();
    let mut numbers = Vec::new();
    for missing in missing.chunks(TOGETHER) {
        let names: Vec<_> = missing
            .iter()
            .map(|id| Protocol::Pravega.stream_of(topic, *id))
            .collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let described = client.describe_streams(&[], &names, None).await?;
        for (number, described) in missing.iter().zip(described) {
            match described {
                Ok(stream) if property(&stream, KIND) == Some(SEGMENT) => {
                    numbers.extend(i32::try_from(*number));
                    gone.push(stream);
                }
                Ok(_) => {}
                Err(error) if error.code() == ErrorCode::NOT_FOUND => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    for lineage in found.iter_mut().filter_map(|part| part.lineage.as_mut()) {
        if lineage.follows.is_empty() {
            lineage.follows.clone_from(&numbers);
        }
    }
    Ok(gone)
}

/// Marks those of them as ended that are not. What is to be told of that.
pub(super) async fn end(client: &Client, gone: Vec<Arc<Stream>>) -> Result<Vec<String>, ImportError> {
    let mut notes = Vec::new();
    for stream in gone.iter().filter(|stream| property(stream, SEALED).is_none()) {
        describe(client, stream, with(stream, &[key_value(SEALED, "1")])).await?;
        notes.push(format!(
            "the segment of stream {} is gone from the source before it was imported to its end: events that were written to it \
             last may be missing; the stream counts as ended",
            stream.name
        ));
    }
    Ok(notes)
}
