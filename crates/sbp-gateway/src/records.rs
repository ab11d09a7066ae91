//! Records of streams that stand for partitions: the numbers they have, and where a number is.

use std::time::Duration;

use sbp_client::{Client, ClientError, FetchEntry, FetchOptions, Position, Positions};
use sbp_record::{Batch, Record};
use sbp_types::{Offset, StreamId};

use crate::numbers::{Numbers, SEQUENCE, from_header};

/// How long a record is waited for that is stored, though it may not be confirmed yet.
pub(crate) const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);

/// The one answer of a call about one stream.
pub(crate) fn only<T>(mut each: Vec<Result<T, ClientError>>) -> Result<T, ClientError> {
    each.pop()
        .unwrap_or_else(|| Err(ClientError::invalid("a call about a stream was answered without it")))
}

/// Where a stream begins and ends.
pub(crate) async fn positions(client: &Client, stream: StreamId) -> Result<Positions, ClientError> {
    only(client.positions(&[stream], None).await?)
}

/// A batch, which must not be damaged.
pub(crate) fn decode(bytes: &bytes::Bytes) -> Result<Batch, ClientError> {
    Batch::decode(bytes.clone(), None).map_err(|error| damaged(error.to_string()))
}

pub(crate) fn damaged(what: String) -> ClientError {
    ClientError::local(sbp_client::codes::CORRUPT_ON_ARRIVAL, what)
}

/// One record at an offset.
pub(crate) fn one_at(stream: StreamId, offset: Offset) -> FetchEntry {
    FetchEntry {
        stream,
        from: Position::At(offset),
        end: offset.checked_add(1),
        batch_max_bytes: 1,
    }
}

/// The number that a record has.
pub(crate) fn number_of(record: &Record<'_>, numbers: Numbers) -> Option<u64> {
    let offset = u64::try_from(record.offset.0).ok()?;
    if let Some(number) = numbers.at(offset) {
        return Some(number);
    }
    let mut headers = record.headers.clone();
    let value = headers.find_map(|(name, value)| value.filter(|_| name == SEQUENCE));
    value.and_then(from_header)
}

/// The number of the record at this offset; `None`: it has none, or is gone.
pub(crate) async fn number_at(
    client: &Client,
    stream: StreamId,
    numbers: Numbers,
    offset: u64,
) -> Result<Option<u64>, ClientError> {
    if let Some(number) = numbers.at(offset) {
        return Ok(Some(number));
    }
    let Ok(wanted) = i64::try_from(offset).map(Offset) else {
        return Ok(None);
    };
    let options = FetchOptions {
        max_wait: CONFIRMED_WITHIN,
        min_bytes: 1,
        ..FetchOptions::default()
    };
    let fetched = client.fetch_one(one_at(stream, wanted), options).await?;
    for fetched in &fetched.batches {
        let batch = decode(&fetched.bytes)?;
        let mut records = batch.records().map_err(|error| damaged(error.to_string()))?;
        if let Some(record) = records.find(|record| record.offset == wanted) {
            return Ok(number_of(&record, numbers));
        }
    }
    Ok(None)
}

/// The offset of the first record with this number or a higher one, in a stream that holds these records; its end where there
/// is none.
pub(crate) async fn offset_of(
    client: &Client,
    held: Positions,
    numbers: Numbers,
    number: u64,
) -> Result<Offset, ClientError> {
    let (mut low, mut high) = (held.earliest.0, held.latest.0);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = number_at(client, held.stream, numbers, u64::try_from(middle).unwrap_or(0)).await?;
        match found.is_none_or(|found| found < number) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(Offset(low))
}
