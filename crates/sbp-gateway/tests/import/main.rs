//! Topics of brokers come into streams: with real servers, the scripted broker, and files as a broker leaves them.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod broker;
mod files;
mod lives;
#[path = "../../../../tests/tank/messages.rs"]
mod messages;
#[path = "../../../../tests/tank/scripted.rs"]
mod scripted;

use std::time::Duration;

use bytes::Bytes;
use sbp_client::{Client, ReaderOptions};
use sbp_e2e::clients::whole;
use sbp_e2e::wait::{LIMIT, bounded, bounded_by};
use sbp_gateway::import::{ImportError, ImportFrom, ImportOptions, ImportReport, import_tank};
use sbp_record::{Batch, Compression};
use sbp_tank::encode_sparse_bundle;

use messages::{TIME_MS, bundle, message};

mod child {
    #[test]
    #[ignore = "the server process that tests start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}

fn options(topic: &str) -> ImportOptions {
    ImportOptions {
        topic: topic.to_owned(),
        partitions: Vec::new(),
        stream: None,
        source: None,
        follow: false,
        skip_unfit: false,
        skip_lost: false,
        compression: Compression::NONE,
        patience: Duration::from_secs(20),
    }
}

/// Imports to the end.
async fn import(client: &Client, from: &ImportFrom, options: &ImportOptions) -> Result<ImportReport, ImportError> {
    let run = import_tank(client, from, options, std::future::pending(), |_| ());
    bounded_by(LIMIT, run).await
}

/// How many messages each partition's import brought now.
fn imported(report: &ImportReport) -> Vec<u64> {
    report.partitions.iter().map(|partition| partition.imported).collect()
}

fn sparse(messages: &[(u64, &str)]) -> Bytes {
    let messages: Vec<_> = messages
        .iter()
        .map(|(sequence, content)| message(*sequence, None, content.as_bytes()))
        .collect();
    encode_sparse_bundle(&messages).unwrap()
}

/// A record as it is in a stream.
#[derive(Debug, PartialEq, Eq)]
struct Stored {
    value: String,
    key: Option<Vec<u8>>,
    time_us: i64,
    /// The number in its header.
    number: Option<u64>,
}

/// Everything in a stream; its offsets have to be those from 0 on.
async fn stored(client: &Client, name: &str) -> Vec<Stored> {
    let stream = client.find_stream(name, None).await.unwrap();
    let mut reader = client.reader(vec![whole(stream.stream_id)], ReaderOptions::default());
    let mut all = Vec::new();
    while let Some(fetched) = reader.next().await {
        let batch = Batch::decode(fetched.unwrap().bytes, None).unwrap();
        for mut record in batch.records().unwrap() {
            assert_eq!(record.offset.0, all.len() as i64);
            let number = record.headers.find(|(name, _)| *name == "tank.seq");
            all.push(Stored {
                value: String::from_utf8(record.value.unwrap().to_vec()).unwrap(),
                key: record.key.map(<[u8]>::to_vec),
                time_us: record.timestamp_us,
                number: number.map(|(_, value)| u64::from_be_bytes(value.unwrap().try_into().unwrap())),
            });
        }
    }
    all
}

/// The values in a stream.
async fn values(client: &Client, name: &str) -> Vec<String> {
    let all = stored(client, name).await;
    all.into_iter().map(|record| record.value).collect()
}

/// The values in a stream once there are so many. The stream may not be there yet, so that nothing can wait for its records.
async fn values_once(client: &Client, name: &str, count: usize) -> Vec<String> {
    bounded(async {
        let mut there = Vec::new();
        while there.len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if client.find_stream(name, None).await.is_ok() {
                there = values(client, name).await;
            }
        }
        there
    })
    .await
}

/// The values in a stream, with the numbers in their headers.
async fn numbered(client: &Client, name: &str) -> Vec<(Option<u64>, String)> {
    let all = stored(client, name).await;
    all.into_iter().map(|record| (record.number, record.value)).collect()
}

/// A property of a stream.
async fn property(client: &Client, name: &str, key: &str) -> Option<String> {
    let mut described = client.describe_streams(&[], &[name], None).await.unwrap();
    let stream = described.pop().unwrap().unwrap();
    let mut properties = stream.properties.iter().flatten();
    let found = properties.find(|property| property.key == key)?;
    Some(found.value.clone())
}
