//! The state of all writers of a stream, in parts that are entries of a range.

use bytes::{Buf, BufMut, Bytes};
use sbp_types::StreamId;

use super::checkpoint::{put_writer, take_writer};
use crate::{WRITER_WINDOW, WriterKey, WriterState};

/// The version of a part.
const VERSION: u32 = 1;
const VERSION_BYTES: usize = 4;

/// The most bytes of one writer: its fields and a whole window.
const MOST_WRITER_BYTES: usize = 64 + WRITER_WINDOW * 24;

/// The parts of the state of these writers, each of so many bytes at most or with one writer; one without any if there are
/// none.
pub(crate) fn encode(writers: &[(WriterKey, WriterState)], most_bytes: usize) -> Vec<Bytes> {
    let mut parts = vec![begin()];
    for (key, state) in writers {
        if parts
            .last()
            .is_none_or(|part| part.len() > VERSION_BYTES && part.len() + MOST_WRITER_BYTES > most_bytes)
        {
            parts.push(begin());
        }
        if let Some(part) = parts.last_mut() {
            put_writer(part, key, state);
        }
    }
    parts.into_iter().map(Bytes::from).collect()
}

fn begin() -> Vec<u8> {
    let mut part = Vec::new();
    part.put_u32_le(VERSION);
    part
}

/// The writers in one part; `None` if it is not a part of the state of this stream's writers.
pub(crate) fn parse(stream: StreamId, mut part: &[u8]) -> Option<Vec<(WriterKey, WriterState)>> {
    if part.try_get_u32_le().ok()? != VERSION {
        return None;
    }
    let mut writers: Vec<(WriterKey, WriterState)> = Vec::new();
    while !part.is_empty() {
        let (key, state) = take_writer(&mut part).ok()?;
        let follows = writers.last().is_none_or(|(last, _)| *last < key);
        if key.stream != stream || !follows || !is_possible(&state) {
            return None;
        }
        writers.push((key, state));
    }
    Some(writers)
}

/// Whether every batch in the window is one that a log may have.
fn is_possible(state: &WriterState) -> bool {
    let mut batches = state.window.iter();
    let fits = state.window.len() <= WRITER_WINDOW;
    fits && batches.all(|batch| batch.count >= 1 && batch.base_offset.checked_add(batch.count).is_some())
}
