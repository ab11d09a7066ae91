//! Events, with the client of Pravega in Rust.

use std::time::Duration;

use sbp_client::{AppendOptions, Records};
use sbp_e2e::clients::{client, contents};
use sbp_e2e::servers;
use sbp_e2e::wait::bounded;
use sbp_peers::pravega::{End, Start};
use sbp_record::RecordsBuilder;

use super::{event, peer, pravega, read_all, stream};

#[tokio::test(flavor = "multi_thread")]
async fn events_are_written_and_read_and_are_records_of_streams() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let peer = peer(&pravega);
    let stream = stream("sc/st");
    bounded(peer.create_stream(&stream, 2)).await.unwrap();
    let writer = bounded(peer.writer(&stream)).await.unwrap();
    let events: Vec<_> = (0..1_000)
        .map(|number| event(number.to_string(), Some(&format!("key {}", number % 7))))
        .collect();
    bounded(writer.append(events)).await.unwrap();
    bounded(writer.append(vec![event("", Some("key 0"))])).await.unwrap();
    bounded(writer.close()).await;
    let all = bounded(read_all(&peer, &stream)).await;
    assert_eq!(all.len(), 1_001);
    for key in 0..7 {
        let of_key = all
            .iter()
            .filter_map(|(_, content)| content.parse::<u64>().ok())
            .filter(|number| number % 7 == key);
        assert!(of_key.is_sorted(), "events with one key are in order");
    }
    for segment in 0..2 {
        let id = client
            .find_stream(&format!("sc/st/{segment}"), None)
            .await
            .unwrap()
            .stream_id;
        let records: Vec<_> = contents(&client, id)
            .await
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        let of_segment = all.iter().filter(|(number, _)| *number == segment);
        let events: Vec<_> = of_segment.map(|(_, content)| content.clone()).collect();
        assert_eq!(records, events);
        assert!(!records.is_empty());
    }
    peer.close().await;
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_a_stream_sees_events_as_they_come_and_its_end() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let peer = peer(&pravega);
    let stream = stream("sc/st");
    bounded(peer.create_stream(&stream, 1)).await.unwrap();
    let mut reader = peer.read(&stream, Start::Latest, End::Never).await.unwrap();
    let writer = bounded(peer.writer(&stream)).await.unwrap();
    for number in 0..20 {
        let written = async { writer.append(vec![event(number.to_string(), None)]).await.unwrap() };
        let read = async { reader.next_batch().await.unwrap().unwrap() };
        let ((), read) = bounded(async { tokio::join!(written, read) }).await;
        let mut records = read.batch.records().unwrap();
        assert_eq!(records.next().unwrap().value.unwrap(), number.to_string().as_bytes());
        // Records of others come in between, which are none of the segment.
        let id = client.find_stream("sc/st/0", None).await.unwrap().stream_id;
        let mut foreign = RecordsBuilder::new();
        foreign.push(Some(b"foreign"), None, None, &[]).unwrap();
        let options = AppendOptions::default();
        client.append(id, Records::from(foreign), &options).await.unwrap();
    }
    bounded(writer.close()).await;
    bounded(peer.seal_stream(&stream)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), reader.next_batch()).await;
    assert!(ended.unwrap().unwrap().is_none(), "a sealed segment ends");
    peer.close().await;
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
