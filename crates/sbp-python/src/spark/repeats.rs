//! Batches that the server had stored before under the same sequence: whether they hold the same records.
//!
//! A server recognises a repeat by its sequence and its number of records, and does not look at the records. A task that
//! is repeated with other rows would lose them in silence, so what was there is read and compared.

use std::time::Duration;

use arrow_array::{Array, RecordBatch};
use sbp_client::codes;
use sbp_client::{
    BulkRepeat, Client, ClientError, ErrorKind, FetchEntry, FetchOptions, FetchedBatch, Position, WriterOptions,
};
use sbp_messages::ErrorCode;
use sbp_record::{Batch, StreamSchema, WriterStamp, inspect};
use sbp_types::{Offset, StreamId};

/// Compares a batch with the one in whose place it was to be stored. What is not there any more, nobody can compare.
///
/// # Errors
///
/// The records differ, or cannot be read now.
pub(crate) async fn compare(
    client: &Client,
    repeat: &BulkRepeat,
    schema: Option<StreamSchema>,
    timeout: Duration,
) -> Result<(), ClientError> {
    let Some(base) = repeat.base_offset else {
        return Ok(());
    };
    let entry = FetchEntry {
        stream: repeat.stream,
        from: Position::At(base),
        end: Some(Offset(base.0.saturating_add(repeat.records))),
        batch_max_bytes: 0,
    };
    let options = FetchOptions {
        timeout: Some(timeout),
        ..FetchOptions::default()
    };
    let fetched = match client.fetch_one(entry, options).await {
        Ok(fetched) => fetched,
        // Trimmed, or deleted, since it was stored.
        Err(error) if error.kind() == ErrorKind::Rejected && !error.is_retriable() => return Ok(()),
        Err(error) => return Err(error),
    };
    let same = match fetched.batches.first() {
        Some(stored) if stored.base_offset == base => is_same(client, stored, repeat, schema.as_ref(), timeout).await?,
        _ => true,
    };
    if same {
        return Ok(());
    }
    let what = format!(
        "{} records from offset {base} on are others than those that were to be stored there now",
        repeat.records
    );
    let error = ClientError::local(ErrorCode::SEQUENCE_OVERLAP, what);
    Err(error.with_stream(repeat.stream).with_offset(base))
}

async fn is_same(
    client: &Client,
    stored: &FetchedBatch,
    repeat: &BulkRepeat,
    schema: Option<&StreamSchema>,
    timeout: Duration,
) -> Result<bool, ClientError> {
    let unreadable = |error: sbp_record::BatchError| {
        let error = ClientError::local(codes::CORRUPT_ON_ARRIVAL, error.to_string());
        error.with_stream(stored.stream).with_offset(stored.base_offset)
    };
    let head = |batch: &bytes::Bytes| inspect(std::slice::from_ref(batch), false).map_err(unreadable);
    let (one, other) = (head(&stored.bytes)?, head(&repeat.batch)?);
    if one.record_count != other.record_count {
        return Ok(false);
    }
    if one.meta.body_crc32c == other.meta.body_crc32c && one.body_length == other.body_length {
        return Ok(true);
    }
    // Equal records may be laid out, stamped with a time, or compressed in another way.
    let whole = |batch: &Batch| {
        let rows = batch.to_record_batch(batch.base_offset(), batch.end_offset());
        rows.map_err(unreadable)
    };
    let found = client
        .decode(stored, stored.bytes.clone(), schema, Some(timeout))
        .await?;
    let wanted = Batch::decode(repeat.batch.clone(), schema).map_err(unreadable)?;
    Ok(holds_same(&whole(&found.batch)?, &whole(&wanted)?, schema.is_some()))
}

/// Whether rows are equal, but for what the place and the time of an append add to them: offsets and times.
///
/// Times are not compared on purpose. A repeated task gives most records none, and they take the moment at which they
/// were encoded, which is another one in each attempt; nothing in a stored record tells such a time from one that was
/// given. So a task that gives the same keys, values and headers other times counts as a repeat, and the times that were
/// stored first stay.
fn holds_same(one: &RecordBatch, other: &RecordBatch, typed: bool) -> bool {
    let compared = |name: &str| typed || matches!(name, "key" | "value" | "headers");
    let fields = one.schema_ref().fields().iter();
    let mut columns = fields.zip(one.columns()).filter(|(field, _)| compared(field.name()));
    columns.all(|(field, column)| {
        let twin = other.column_by_name(field.name());
        twin.is_some_and(|twin| column.as_ref().to_data() == twin.to_data())
    })
}

/// Asks where a writer stands that has stored everything it had: at the stamp of a next batch, that is.
///
/// # Errors
///
/// Somebody else has stored more under its name and epoch, or the question was not answered.
pub(crate) async fn check_end(client: &Client, stream: StreamId, stamp: WriterStamp) -> Result<(), ClientError> {
    let options = WriterOptions {
        writer_id: Some(stamp.id),
        epoch: Some(stamp.epoch),
        timeout: client.config().timeout,
        ..WriterOptions::default()
    };
    let stored = client.writer(stream, options).next_sequence().await?;
    if stored <= stamp.base_sequence {
        return Ok(());
    }
    let what = format!(
        "{stored} records were stored before, and now there were only {}",
        stamp.base_sequence
    );
    Err(ClientError::local(ErrorCode::SEQUENCE_OVERLAP, what).with_stream(stream))
}
