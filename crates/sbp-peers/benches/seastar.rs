//! An echo of 4 bytes with 128 calls in flight: this client and that of the crate `seastar-rpc`, each with one thread, and the
//! same server, which has another.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails where it stands")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sbp_peers::seastar::{Handler, HostConfig, Incoming, Rpc, RpcConfig, RpcServer, ServerConfig};
use seastar_rpc::rpc::{CallOptions, Client};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const ECHO: u64 = 1;
const IN_FLIGHT: u64 = 128;
const PAYLOAD: Bytes = Bytes::from_static(&[7; 4]);

struct Echo;

impl Handler for Echo {
    fn call(&self, incoming: Incoming) {
        let payload = incoming.payload.clone();
        incoming.reply(Ok(payload));
    }
}

fn one_thread() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// How long so many calls take, `IN_FLIGHT` of which are under way at a time.
async fn timed<F, C>(count: u64, call: C) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
    C: Fn() -> F + Clone + Send + 'static,
{
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..IN_FLIGHT {
        let (share, call) = (count / IN_FLIGHT + u64::from(number < count % IN_FLIGHT), call.clone());
        tasks.spawn(async move {
            for _ in 0..share {
                call().await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    started.elapsed()
}

fn echo(criterion: &mut Criterion) {
    let (serving, calling) = (one_thread(), one_thread());
    let server = RpcServer::start(
        Arc::new(Echo),
        &HostConfig::new("127.0.0.1:0"),
        ServerConfig::default(),
        serving.handle(),
    )
    .unwrap();
    let address = server.address().to_string();
    let ours = Rpc::new(&address, RpcConfig::default(), calling.handle().clone());
    let theirs = Arc::new(calling.block_on(Client::builder().connect(address)).unwrap());

    let mut group = criterion.benchmark_group("echo of 4 B, 128 in flight");
    group.throughput(Throughput::Elements(1));
    group.bench_function("sbp-peers", |bencher| {
        bencher.iter_custom(|count| {
            let rpc = ours.clone();
            let call = move || {
                let rpc = rpc.clone();
                async move {
                    let deadline = Instant::now() + Duration::from_secs(30);
                    assert_eq!(rpc.call(ECHO, PAYLOAD, deadline).await.unwrap(), PAYLOAD);
                }
            };
            calling.block_on(calling.spawn(timed(count, call))).unwrap()
        });
    });
    group.bench_function("seastar-rpc", |bencher| {
        bencher.iter_custom(|count| {
            let rpc = Arc::clone(&theirs);
            let call = move || {
                let rpc = Arc::clone(&rpc);
                async move {
                    let options = CallOptions::default().timeout(Duration::from_secs(30));
                    assert_eq!(rpc.call_raw(ECHO, PAYLOAD, options).await.unwrap(), PAYLOAD);
                }
            };
            calling.block_on(calling.spawn(timed(count, call))).unwrap()
        });
    });
    group.finish();
    calling.block_on(ours.close());
    serving.block_on(server.close());
}

criterion_group!(benches, echo);
criterion_main!(benches);
