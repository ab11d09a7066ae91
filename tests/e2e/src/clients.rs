//! Clients of real servers.

use std::sync::Arc;
use std::time::Duration;

use sbp_client::{Client, ClientConfig, FetchedBatch, ReaderOptions, Span};
use sbp_messages::Stream;
use sbp_record::Batch;
use sbp_types::{Offset, StreamId};
use tokio::runtime::Handle;

/// A client that takes up lost connections quickly. It is a client of this task's runtime.
pub fn client(servers: &str) -> Client {
    client_with(servers, |_| ())
}

/// The same, changed.
pub fn client_with(servers: &str, change: impl FnOnce(&mut ClientConfig)) -> Client {
    let mut config = ClientConfig::new(servers).unwrap();
    config.timeout = Duration::from_secs(20);
    config.retry.backoff_min = Duration::from_millis(5);
    config.retry.backoff_max = Duration::from_millis(100);
    change(&mut config);
    Client::new(config, Handle::current())
}

/// Makes streams of these names.
pub async fn streams(client: &Client, names: &[&str]) -> Vec<Arc<Stream>> {
    let wanted = names.iter().map(|&name| Stream {
        name: name.to_owned(),
        ..Stream::default()
    });
    let created = client.create_streams(wanted.collect(), None).await.unwrap();
    created.into_iter().map(Result::unwrap).collect()
}

/// Makes streams of these names, for their numbers.
pub async fn stream_ids(client: &Client, names: &[&str]) -> Vec<StreamId> {
    let streams = streams(client, names).await;
    streams.iter().map(|stream| stream.stream_id).collect()
}

/// Makes a stream without a name.
pub async fn stream(client: &Client) -> StreamId {
    stream_ids(client, &[""]).await[0]
}

/// All of a stream.
pub fn whole(stream: StreamId) -> Span {
    Span {
        stream,
        start: Offset::EARLIEST,
        end: Offset::LATEST,
    }
}

/// The records of a batch that was asked for: their offsets and values.
pub fn records_of(fetched: &FetchedBatch) -> Vec<(Offset, Vec<u8>)> {
    let batch = Batch::decode(fetched.bytes.clone(), None).unwrap();
    let records = batch.records().unwrap();
    let asked = records.between(fetched.from, fetched.to);
    asked
        .map(|record| (record.offset, record.value.unwrap_or_default().to_vec()))
        .collect()
}

/// Everything in a stream: offsets, and values as text.
pub async fn contents(client: &Client, stream: StreamId) -> Vec<(Offset, String)> {
    let mut reader = client.reader(vec![whole(stream)], ReaderOptions::default());
    let mut all = Vec::new();
    while let Some(fetched) = reader.next().await {
        let records = records_of(&fetched.unwrap());
        all.extend(
            records
                .into_iter()
                .map(|(offset, value)| (offset, String::from_utf8(value).unwrap())),
        );
    }
    all
}
