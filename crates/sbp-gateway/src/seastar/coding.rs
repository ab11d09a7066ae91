//! Arguments and results as bytes.

use bytes::{Buf, BufMut, Bytes, TryGetError};
use sbp_client::ClientError;
use sbp_client::FetchedBatch;
use sbp_record::{MAX_BATCH_LENGTH, RecordsBuilder};

use super::Failed;
use crate::records::{damaged, decode};

/// The length of what is null.
const NULL: u32 = u32::MAX;
/// Bytes that a record has at least: its time and two lengths.
const LEAST: usize = 16;

impl From<TryGetError> for Failed {
    fn from(_: TryGetError) -> Self {
        cut()
    }
}

fn cut() -> Failed {
    Failed::Arguments(String::from("the arguments end before what they say follows"))
}

fn widen(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// Bytes behind their length; `None`: null.
fn bytes(left: &mut Bytes) -> Result<Option<Bytes>, Failed> {
    let length = left.try_get_u32_le()?;
    if length == NULL {
        return Ok(None);
    }
    let length = widen(length);
    match length <= left.len() {
        true => Ok(Some(left.split_to(length))),
        false => Err(cut()),
    }
}

pub(super) fn text(left: &mut Bytes) -> Result<String, Failed> {
    let text = bytes(left)?.unwrap_or_default();
    let what = || Failed::Arguments(String::from("the name of a stream is not UTF-8"));
    Ok(std::str::from_utf8(&text).map_err(|_| what())?.to_owned())
}

/// Records, and how many.
pub(super) fn records(left: &mut Bytes) -> Result<(RecordsBuilder, u32), Failed> {
    let count = left.try_get_u32_le()?;
    if count == 0 {
        return Err(Failed::Arguments(String::from("there are no records")));
    }
    if widen(count) > left.len() / LEAST {
        return Err(cut());
    }
    let mut records = RecordsBuilder::new();
    for _ in 0..count {
        let time = match left.try_get_i64_le()? {
            -1 => None,
            millis => {
                let what = || Failed::Arguments(format!("the time {millis} is none that a record can have"));
                Some(millis.checked_mul(1_000).ok_or_else(what)?)
            }
        };
        let (key, value) = (bytes(left)?, bytes(left)?);
        let pushed = records.push(value.as_deref(), key.as_deref(), time, &[]);
        pushed.map_err(|error| Failed::Arguments(error.to_string()))?;
    }
    let length = records.body_length();
    if length > MAX_BATCH_LENGTH - (4 << 10) {
        return Err(Failed::Arguments(format!(
            "the records have {length} bytes, and a batch may have {MAX_BATCH_LENGTH}"
        )));
    }
    Ok((records, count))
}

fn put_bytes(data: Option<&[u8]>, out: &mut Vec<u8>) {
    match data {
        None => out.put_u32_le(NULL),
        // No batch is that long.
        Some(data) => {
            out.put_u32_le(u32::try_from(data.len()).unwrap_or(NULL));
            out.put_slice(data);
        }
    }
}

/// Records as bytes behind their count, and the offset of the first.
pub(super) fn put_records(batches: &[FetchedBatch], out: &mut Vec<u8>) -> Result<Option<i64>, ClientError> {
    let place = out.len();
    out.put_u32_le(0);
    let (mut count, mut first) = (0_u32, None);
    for fetched in batches {
        let batch = decode(&fetched.bytes)?;
        let all = batch.records().map_err(|error| damaged(error.to_string()))?;
        for record in all.filter(|record| fetched.from <= record.offset && record.offset < fetched.to) {
            first.get_or_insert(record.offset.0);
            out.put_i64_le(record.timestamp_us.div_euclid(1_000));
            put_bytes(record.key, out);
            put_bytes(record.value, out);
            count += 1;
        }
    }
    if let Some(header) = out.get_mut(place..place + 4) {
        header.copy_from_slice(&count.to_le_bytes());
    }
    Ok(first)
}
