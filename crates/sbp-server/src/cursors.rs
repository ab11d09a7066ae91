//! Named cursors, as their streams tell them: clients keep where a job goes on in a stream for each name, and the last
//! record of such a stream is the whole state.

use sbp_messages::is_valid_stream_name;
use sbp_record::Batch;
use sbp_types::{Offset, RangeKey, StreamId};
use serde::Deserialize;

use crate::node::Node;
use crate::range::RangeServer;
use crate::status::CursorRow;

/// Where the streams of cursors are, by name.
const PREFIX: &str = "_sbp/cursors/";
/// The most cursors that are looked at: each costs a read.
const MOST: usize = 200;

/// The longest commit that is read, in bytes of its batch. Who may append to a stream of such a name must not be able to make
/// the figures dear.
const LONGEST: usize = 1 << 20;

/// What is used of a commit. Other fields are passed over, as those of later versions.
#[derive(Deserialize)]
struct Commit {
    positions: Vec<Place>,
}

#[derive(Deserialize)]
struct Place {
    stream: i64,
    #[serde(default)]
    name: String,
    next: i64,
}

/// The cursors of which this server holds the streams. What is no commit is passed over: anybody may append to a stream
/// of this name.
pub(crate) fn cursors(node: &Node, ranges: &RangeServer) -> Vec<CursorRow> {
    let Some(driver) = node.metadata() else {
        return Vec::new();
    };
    let mut streams: Vec<(String, StreamId)> = driver.read(|state| {
        let named = state.streams().filter_map(|stream| {
            let name = stream.name.as_deref()?.strip_prefix(PREFIX)?;
            Some((name.to_owned(), stream.id))
        });
        named.collect()
    });
    streams.sort_unstable();
    let mut rows = Vec::new();
    for (name, id) in streams.into_iter().take(MOST) {
        let commit = last_range(ranges, id).and_then(|(key, end)| last_commit(ranges, key, end));
        let left = MOST.saturating_sub(rows.len());
        for place in commit.into_iter().flat_map(|commit| commit.positions).take(left) {
            let end = last_range(ranges, StreamId(place.stream)).map(|(_, end)| end.0);
            rows.push(CursorRow {
                name: name.clone(),
                stream: place.stream,
                stream_name: Some(place.name)
                    .filter(|name| is_valid_stream_name(name))
                    .unwrap_or_default(),
                next: place.next,
                lag: end.map(|end| end.saturating_sub(place.next).max(0)),
            });
        }
    }
    rows
}

/// The last range with records of a stream that is held here, and the stream's end.
fn last_range(ranges: &RangeServer, id: StreamId) -> Option<(RangeKey, Offset)> {
    let ranges = ranges.hub.ranges.lock();
    let hosted = ranges.table.stream(id)?;
    let with_records = hosted.ranges.iter().rev().find(|range| range.confirmed > range.start);
    let range = with_records.or(hosted.last())?;
    Some((range.key(id), hosted.confirmed_end()))
}

fn last_commit(ranges: &RangeServer, key: RangeKey, end: Offset) -> Option<Commit> {
    let from = Offset(end.0.checked_sub(1)?);
    let read = ranges.log.read(key, from, 0, true).ok()?;
    let stored = read.first().filter(|stored| stored.bytes.len() <= LONGEST)?;
    let chunks = stored.bytes.chunks();
    let batch = Batch::decode(chunks.concat().into(), None).ok()?;
    let value = batch.payloads().ok()?.last()??;
    serde_json::from_slice(&value).ok()
}
