//! Headers of the hot road, written without a builder.
//!
//! A header without strings has one shape: only the number of its entries and the scalars in them vary. So it is
//! written front to back from constants, without allocating: all vtables, the root table, the vector of offsets, then a
//! block of fixed size for each entry. Any FlatBuffers reader takes it; the tests read it beside the builder's.
//!
//! ```text
//! 0      offset of the root table
//! 4      vtables: root, entry, in responses also status
//! R      root table
//! R + r  number of entries, then an offset to each
//! E      entries, aligned to 8
//! S      in responses: one status, success, that root and entries all refer to
//! ```
//!
//! What has strings, errors or absurdly many entries goes through the builder.

use bytes::BytesMut;

use super::encode;
use crate::{
    AppendInfo, AppendRequest, AppendResponse, AppendResult, Encoder, FetchInfo, FetchRequest, FetchResponse,
    FetchResult,
};

/// Above this the builder writes. Every position in a template then fits 32 bits with room to spare.
const MAX_TEMPLATE_ENTRIES: usize = 65_536;

/// Bytes of the vector's length and of one offset in it.
const WORD: u32 = 4;

/// The constant start of a header: the root's offset and the vtables.
struct Shape<const HEAD: usize> {
    /// Root offset and vtables, ending where the root table begins.
    head: [u8; HEAD],
    /// Where the entries' vtable begins.
    entry_vtable: u32,
    /// Bytes of one entry, a multiple of 8.
    entry_size: u32,
}

const APPEND_REQUEST: Shape<28> = Shape {
    head: head(28, [8, 12, 4, 8, 16, 40, 16, 4, 8, 12, 24, 32]),
    entry_vtable: 12,
    entry_size: 40,
};

const FETCH_REQUEST: Shape<32> = Shape {
    head: head(32, [12, 20, 4, 8, 12, 16, 16, 48, 16, 4, 24, 8, 32, 40]),
    entry_vtable: 16,
    entry_size: 48,
};

const APPEND_RESPONSE: Shape<40> = Shape {
    head: head(40, [10, 16, 4, 8, 12, 20, 56, 16, 4, 24, 32, 8, 40, 12, 48, 6, 8, 4]),
    entry_vtable: 14,
    entry_size: 56,
};

const FETCH_RESPONSE: Shape<44> = Shape {
    head: head(
        44,
        [10, 16, 4, 8, 12, 24, 64, 24, 4, 8, 12, 32, 40, 48, 56, 16, 20, 6, 8, 4],
    ),
    entry_vtable: 14,
    entry_size: 64,
};

/// Where the root's vtable begins, in every shape.
const ROOT_VTABLE: u32 = 4;
/// Bytes of the vtable of a status that has only a code; it is the last of its shape's vtables.
const STATUS_VTABLE_SIZE: u32 = 6;

/// Lays out the root's offset and the vtables, given as the 16-bit words that they consist of.
const fn head<const WORDS: usize, const HEAD: usize>(root: u8, vtables: [u8; WORDS]) -> [u8; HEAD] {
    assert!(
        HEAD == 4 + 2 * WORDS && HEAD == root as usize,
        "the vtables end where the root table begins"
    );
    let mut bytes = [0; HEAD];
    bytes[0] = root;
    let mut word = 0;
    while word < WORDS {
        bytes[4 + 2 * word] = vtables[word];
        word += 1;
    }
    bytes
}

/// The positions that depend on the number of entries, all from the header's start.
#[derive(Clone, Copy)]
struct Positions {
    count: u32,
    first_offset: u32,
    first_entry: u32,
    end: u32,
}

impl Positions {
    /// `None` where the builder has to do it.
    fn new<const HEAD: usize>(shape: &Shape<HEAD>, root_size: u32, entries: usize) -> Option<Self> {
        if entries > MAX_TEMPLATE_ENTRIES {
            return None;
        }
        let count = u32::try_from(entries).ok()?;
        let first_offset = u32::try_from(HEAD).ok()? + root_size + WORD;
        let first_entry = (first_offset + WORD * count).next_multiple_of(8);
        Some(Self {
            count,
            first_offset,
            first_entry,
            end: first_entry + shape.entry_size * count,
        })
    }

    /// Where entry `index` begins.
    fn entry<const HEAD: usize>(self, shape: &Shape<HEAD>, index: u32) -> u32 {
        self.first_entry + shape.entry_size * index
    }
}

/// Writes everything in front of the entries.
fn start<const HEAD: usize, const ROOT: usize>(
    shape: &Shape<HEAD>,
    root: [u32; ROOT],
    at: Positions,
    out: &mut BytesMut,
) {
    out.reserve(at.end as usize + 8);
    out.extend_from_slice(&shape.head);
    for word in root {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&at.count.to_le_bytes());
    for index in 0..at.count {
        let distance = at.entry(shape, index) - (at.first_offset + WORD * index);
        out.extend_from_slice(&distance.to_le_bytes());
    }
    let gap = at.first_entry - (at.first_offset + WORD * at.count);
    if gap != 0 {
        out.extend_from_slice(&[0; 4]);
    }
}

/// Puts `bytes` into `block`; the places are constants, so the check disappears.
#[inline(always)]
fn put<const SIZE: usize, const N: usize>(block: &mut [u8; SIZE], at: usize, bytes: [u8; N]) {
    block[at..at + N].copy_from_slice(&bytes);
}

/// The bit pattern of a signed number, as it stands in a word.
const fn word(value: i32) -> u32 {
    u32::from_ne_bytes(value.to_ne_bytes())
}

/// APPEND request.
pub(super) fn encode_append_request(message: &AppendRequest, encoder: &mut Encoder, out: &mut BytesMut) {
    const SHAPE: &Shape<28> = &APPEND_REQUEST;
    let Some(at) = Positions::new(SHAPE, 12, message.append_requests.len()) else {
        return encode(message, encoder, out);
    };
    start(SHAPE, [28 - ROOT_VTABLE, word(message.timeout_ms), WORD], at, out);
    let mut position = at.first_entry;
    for entry in &message.append_requests {
        let AppendInfo {
            stream_id,
            request_index,
            batch_length,
            range_index,
            epoch,
            expected_offset,
        } = entry;
        let mut block = [0; 40];
        put(&mut block, 0, (position - SHAPE.entry_vtable).to_le_bytes());
        put(&mut block, 4, request_index.to_le_bytes());
        put(&mut block, 8, batch_length.to_le_bytes());
        put(&mut block, 12, range_index.0.to_le_bytes());
        put(&mut block, 16, stream_id.0.to_le_bytes());
        put(&mut block, 24, epoch.0.to_le_bytes());
        put(&mut block, 32, expected_offset.0.to_le_bytes());
        out.extend_from_slice(&block);
        position += SHAPE.entry_size;
    }
}

/// FETCH request.
pub(super) fn encode_fetch_request(message: &FetchRequest, encoder: &mut Encoder, out: &mut BytesMut) {
    const SHAPE: &Shape<32> = &FETCH_REQUEST;
    let Some(at) = Positions::new(SHAPE, 20, message.fetch_requests.len()) else {
        return encode(message, encoder, out);
    };
    let to_vector = 2 * WORD;
    let root = [
        32 - ROOT_VTABLE,
        word(message.max_wait_ms),
        word(message.min_bytes),
        to_vector,
        word(message.max_bytes),
    ];
    start(SHAPE, root, at, out);
    let mut position = at.first_entry;
    for entry in &message.fetch_requests {
        let FetchInfo {
            stream_id,
            request_index,
            fetch_offset,
            batch_max_bytes,
            end_offset,
            start_timestamp_ms,
        } = entry;
        let mut block = [0; 48];
        put(&mut block, 0, (position - SHAPE.entry_vtable).to_le_bytes());
        put(&mut block, 4, request_index.to_le_bytes());
        put(&mut block, 8, batch_max_bytes.to_le_bytes());
        put(&mut block, 16, stream_id.0.to_le_bytes());
        put(&mut block, 24, fetch_offset.0.to_le_bytes());
        put(&mut block, 32, end_offset.0.to_le_bytes());
        put(&mut block, 40, start_timestamp_ms.0.to_le_bytes());
        out.extend_from_slice(&block);
        position += SHAPE.entry_size;
    }
}

/// The root table of both responses: throttle, vector, status.
fn response_root(root_table: u32, throttle_time_ms: i32, at: Positions) -> [u32; 4] {
    let to_vector = 2 * WORD;
    let to_status = at.end - (root_table + 3 * WORD);
    [root_table - ROOT_VTABLE, word(throttle_time_ms), to_vector, to_status]
}

/// Writes the status that all share, behind the last entry: offsets lead forward only.
fn finish_status(root_table: u32, at: Positions, out: &mut BytesMut) {
    let vtable = root_table - STATUS_VTABLE_SIZE;
    let mut block = [0; 8];
    put(&mut block, 0, (at.end - vtable).to_le_bytes());
    out.extend_from_slice(&block);
}

/// APPEND response. Only success has a template: an error has a message.
pub(super) fn encode_append_response(message: &AppendResponse, encoder: &mut Encoder, out: &mut BytesMut) {
    const SHAPE: &Shape<40> = &APPEND_RESPONSE;
    let plain = message.status.is_plain_success()
        && message
            .append_responses
            .iter()
            .all(|result| result.status.is_plain_success());
    let at = Positions::new(SHAPE, 16, message.append_responses.len()).filter(|_| plain);
    let Some(at) = at else {
        return encode(message, encoder, out);
    };
    start(SHAPE, response_root(40, message.throttle_time_ms, at), at, out);
    let mut position = at.first_entry;
    for result in &message.append_responses {
        let AppendResult {
            stream_id,
            request_index,
            base_offset,
            stream_append_time_ms,
            status: _,
            ..
        } = result;
        let AppendResult {
            next_offset,
            duplicate,
            next_sequence,
            ..
        } = result;
        let mut block = [0; 56];
        put(&mut block, 0, (position - SHAPE.entry_vtable).to_le_bytes());
        put(&mut block, 4, request_index.to_le_bytes());
        put(&mut block, 8, (at.end - (position + 8)).to_le_bytes());
        put(&mut block, 12, [u8::from(*duplicate)]);
        put(&mut block, 16, stream_id.0.to_le_bytes());
        put(&mut block, 24, base_offset.0.to_le_bytes());
        put(&mut block, 32, stream_append_time_ms.0.to_le_bytes());
        put(&mut block, 40, next_offset.0.to_le_bytes());
        put(&mut block, 48, next_sequence.to_le_bytes());
        out.extend_from_slice(&block);
        position += SHAPE.entry_size;
    }
    finish_status(40, at, out);
}

/// FETCH response. Only success has a template: an error has a message.
pub(super) fn encode_fetch_response(message: &FetchResponse, encoder: &mut Encoder, out: &mut BytesMut) {
    const SHAPE: &Shape<44> = &FETCH_RESPONSE;
    let plain = message.status.is_plain_success()
        && message
            .fetch_responses
            .iter()
            .all(|result| result.status.is_plain_success());
    let at = Positions::new(SHAPE, 16, message.fetch_responses.len()).filter(|_| plain);
    let Some(at) = at else {
        return encode(message, encoder, out);
    };
    start(SHAPE, response_root(44, message.throttle_time_ms, at), at, out);
    let mut position = at.first_entry;
    for result in &message.fetch_responses {
        let FetchResult {
            stream_id,
            request_index,
            batch_length,
            status: _,
            base_offset,
            ..
        } = result;
        let FetchResult {
            next_offset,
            start_offset,
            high_watermark,
            end_of_range,
            record_count,
            ..
        } = result;
        let mut block = [0; 64];
        put(&mut block, 0, (position - SHAPE.entry_vtable).to_le_bytes());
        put(&mut block, 4, request_index.to_le_bytes());
        put(&mut block, 8, batch_length.to_le_bytes());
        put(&mut block, 12, (at.end - (position + 12)).to_le_bytes());
        put(&mut block, 16, [u8::from(*end_of_range)]);
        put(&mut block, 20, record_count.to_le_bytes());
        put(&mut block, 24, stream_id.0.to_le_bytes());
        put(&mut block, 32, base_offset.0.to_le_bytes());
        put(&mut block, 40, next_offset.0.to_le_bytes());
        put(&mut block, 48, start_offset.0.to_le_bytes());
        put(&mut block, 56, high_watermark.0.to_le_bytes());
        out.extend_from_slice(&block);
        position += SHAPE.entry_size;
    }
    finish_status(44, at, out);
}
