//! Those who write, and the one who reads along.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sbp_client::{Ack, Client, ClientError, Position, ReaderOptions, Span, Tail, TailOptions, WriterOptions};
use sbp_locks::Mutex;
use sbp_record::RecordsBuilder;
use sbp_types::{Offset, StreamId};

use crate::clients::{client_with, records_of};
use crate::ledger::{Ledger, RECORDS, Written};

/// How far the writers are, all together.
#[derive(Debug, Default)]
pub struct Progress {
    submitted: AtomicU64,
    acknowledged: AtomicU64,
}

impl Progress {
    /// Batches that were handed to the client.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::SeqCst)
    }

    /// Batches that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

/// A client that takes up a lost connection quickly.
pub fn client(address: &str) -> Client {
    client_with(address, |config| {
        config.timeout = Duration::from_secs(60);
        config.retry.max_attempts = 100_000;
        config.tail_wait = Duration::from_secs(1);
    })
}

/// Writes batches for as long as `goes_on` says so of their number, `in_flight` of them on their way, and returns their
/// acknowledgements.
///
/// # Errors
/// A batch is refused, or is not acknowledged in time.
pub async fn write(
    client: Client,
    (stream, writer): (StreamId, usize),
    in_flight: usize,
    goes_on: impl Fn(u64) -> bool,
    progress: Arc<Progress>,
) -> Result<Vec<Ack>, ClientError> {
    type Pending = Pin<Box<dyn Future<Output = Result<Ack, ClientError>> + Send>>;
    let options = WriterOptions {
        max_in_flight: in_flight,
        timeout: Duration::from_secs(300),
        attempt_timeout: Duration::from_millis(500),
        ..WriterOptions::default()
    };
    let sender = client.writer(stream, options);
    let mut pending: VecDeque<Pending> = VecDeque::new();
    let mut acks = Vec::new();
    for batch in (0..).take_while(|batch| goes_on(*batch)) {
        let mut records = RecordsBuilder::new();
        for place in 0..RECORDS {
            let value = Written { writer, batch, place }.value();
            records.push(Some(value.as_bytes()), None, None, &[]).unwrap();
        }
        pending.push_back(Box::pin(sender.append(records)));
        progress.submitted.fetch_add(1, Ordering::SeqCst);
        if pending.len() >= in_flight
            && let Some(first) = pending.pop_front()
        {
            acks.push(first.await?);
            progress.acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    }
    for last in pending {
        acks.push(last.await?);
        progress.acknowledged.fetch_add(1, Ordering::SeqCst);
    }
    sender.close().await?;
    Ok(acks)
}

/// Reads along from the beginning, for ever.
pub async fn read(client: Client, streams: Vec<StreamId>, ledger: Arc<Mutex<Ledger>>) {
    let from: Vec<_> = streams.iter().map(|&stream| (stream, Position::Earliest)).collect();
    let mut tail: Tail = client.tail(&from, TailOptions::default()).await.unwrap();
    while let Some(fetched) = tail.next().await {
        let fetched = fetched.unwrap();
        let records = records_of(&fetched);
        let mut ledger = ledger.lock();
        for (offset, value) in records {
            ledger.add(fetched.stream, offset.0, Written::parse(&value).unwrap());
        }
    }
}

/// All that is in these streams from these offsets on.
pub async fn read_all(client: &Client, streams: &[(StreamId, i64)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (stream, start) in streams {
        let span = Span {
            stream: *stream,
            start: Offset(*start),
            end: Offset::LATEST,
        };
        let mut reader = client.reader(vec![span], ReaderOptions::default());
        while let Some(fetched) = reader.next().await {
            for (offset, value) in records_of(&fetched.unwrap()) {
                ledger.add(*stream, offset.0, Written::parse(&value).unwrap());
            }
        }
    }
    ledger
}
