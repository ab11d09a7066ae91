//! A stream of events of 100 bytes to Arrow columns: through a gateway with the client of Pravega, and with a client of SBP from the
//! server. All of it is in this process: the server with its own threads, the gateway and the clients with two others.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails where it stands")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sbp_client::{Client, ReaderOptions};
use sbp_e2e::clients::{client, whole};
use sbp_e2e::servers;
use sbp_gateway::pravega::{PravegaConfig, PravegaServer};
use sbp_peers::pravega::{End, NewEvent, Pravega, PravegaConfig as PeerConfig, Start, StreamName};
use sbp_record::Batch;
use sbp_types::StreamId;
use tokio::runtime::{Builder, Handle, Runtime};

/// As many as the benchmark of Python has.
const EVENTS: usize = 1_000_000;
const EVENT: [u8; 100] = [7; 100];
/// Events that are handed over together.
const LIST: usize = 10_000;

fn two_threads() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn rows(batch: &Batch) -> usize {
    let columns = batch.to_record_batch(batch.base_offset(), batch.end_offset()).unwrap();
    columns.num_rows()
}

async fn write(peer: &Pravega, stream: &StreamName) {
    peer.create_stream(stream, 1).await.unwrap();
    let writer = peer.writer(stream).await.unwrap();
    let event = NewEvent {
        content: bytes::Bytes::from_static(&EVENT),
        key: None,
    };
    for _ in 0..EVENTS / LIST {
        writer.append(vec![event.clone(); LIST]).await.unwrap();
    }
    writer.close().await;
}

async fn read(peer: Pravega, stream: StreamName) {
    let mut reader = peer.read(&stream, Start::Earliest, End::Latest).await.unwrap();
    let mut seen = 0;
    while let Some(read) = reader.next_batch().await.unwrap() {
        seen += rows(&read.batch);
    }
    assert_eq!(seen, EVENTS);
}

async fn fetch(client: Client, stream: StreamId) {
    let mut reader = client.reader(vec![whole(stream)], ReaderOptions::default());
    let mut seen = 0;
    while let Some(fetched) = reader.next().await {
        seen += rows(&Batch::decode(fetched.unwrap().bytes, None).unwrap());
    }
    assert_eq!(seen, EVENTS);
}

fn to_arrow(criterion: &mut Criterion) {
    let runtime = two_threads();
    let server = servers::quick_anywhere();
    let (client, gateway, peer) = runtime.block_on(async {
        let client = client(server.address());
        let gateway = PravegaServer::start(&client, &PravegaConfig::new("127.0.0.1:0")).unwrap();
        let peer = Pravega::direct(&gateway.address().to_string(), PeerConfig::default(), Handle::current());
        (client, gateway, peer)
    });
    let name = StreamName::parse("bench/events").unwrap();
    runtime.block_on(write(&peer, &name));
    let id = runtime
        .block_on(client.find_stream("bench/events/0", None))
        .unwrap()
        .stream_id;

    let mut group = criterion.benchmark_group("events of 100 B to Arrow");
    group.throughput(Throughput::Elements(EVENTS as u64));
    group.sample_size(10);
    group.bench_function("Pravega", |bencher| {
        bencher.iter(|| {
            runtime
                .block_on(runtime.spawn(read(peer.clone(), name.clone())))
                .unwrap()
        });
    });
    group.bench_function("native fetch", |bencher| {
        bencher.iter(|| runtime.block_on(runtime.spawn(fetch(client.clone(), id))).unwrap());
    });
    group.finish();
    runtime.block_on(async {
        peer.close().await;
        gateway.close().await;
        client.close().await;
    });
    server.shutdown().unwrap();
}

criterion_group!(benches, to_arrow);
criterion_main!(benches);
