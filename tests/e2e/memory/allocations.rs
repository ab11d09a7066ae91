//! The send path allocates nothing per frame once it runs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use sbp_client::{AppendOp, AppendOptions, AppendResultOf, Client, ClientConfig, CompletionSink, Reply, Submissions};
use sbp_e2e::frames::answer_bytes;
use sbp_e2e::scripted::stored;
use sbp_e2e::wait::bounded;
use sbp_frame::{Frame, OpCode};
use sbp_locks::Mutex;
use sbp_messages::{AppendRequest, Feature, HeartbeatResponse, Message};
use sbp_types::StreamId;
use smallvec::smallvec;
use tokio::sync::Notify;

const IN_FLIGHT: usize = 256;
const ROUNDS: usize = 200;

/// Counts outcomes and wakes the test when a round is complete.
#[derive(Default)]
struct Counted {
    done: AtomicUsize,
    deliveries: AtomicUsize,
    failure: Mutex<Option<String>>,
    complete: Notify,
}

impl CompletionSink for Counted {
    fn complete(&self, batch: &mut Vec<(u64, AppendResultOf)>) {
        for (_, outcome) in batch.iter() {
            if let Err(error) = outcome {
                *self.failure.lock() = Some(error.to_string());
            }
        }
        self.deliveries.fetch_add(1, Ordering::Relaxed);
        self.done.fetch_add(batch.len(), Ordering::Relaxed);
        batch.clear();
        self.complete.notify_one();
    }
}

/// Answers every request at once, on a thread of its own, whose allocations do not count.
fn answer_everything(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let mut buffer = BytesMut::new();
    let mut block = vec![0; 256 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut block) {
        buffer.extend_from_slice(&block[..read]);
        let mut out = Vec::new();
        while let Some(frame) = Frame::decode(&mut buffer).unwrap() {
            out.extend(if frame.opcode == OpCode::APPEND {
                let request = AppendRequest::decode(&frame.header).unwrap();
                answer_bytes(&frame, &stored(&request, 0), &[], true)
            } else {
                let answer = HeartbeatResponse {
                    features: vec![Feature::new("max-calls", "1024")],
                    connection_id: 1,
                    ..HeartbeatResponse::default()
                };
                answer_bytes(&frame, &answer, &[], true)
            });
        }
        if stream.write_all(&out).is_err() {
            break;
        }
    }
}

#[test]
fn a_frame_costs_no_allocation_in_steady_state() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || answer_everything(&listener));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = Client::new(ClientConfig::new(&address).unwrap(), runtime.handle().clone());
    let counted = Arc::new(Counted::default());
    let mut submissions = Submissions::new();

    let round = |submissions: &mut Submissions| {
        runtime.block_on(bounded(async {
            let goal = counted.done.load(Ordering::Relaxed) + IN_FLIGHT;
            let options = AppendOptions::default().encode_options(StreamId(1));
            for token in 0..IN_FLIGHT {
                let entry = submissions.place_raw_copy(&options, &[7; 64]).unwrap();
                let reply = Reply::sink(counted.clone(), token as u64);
                submissions.push(AppendOp::new(smallvec![entry], client.deadline(None), reply));
            }
            client.submit(submissions);
            while counted.done.load(Ordering::Relaxed) < goal {
                counted.complete.notified().await;
            }
        }));
    };
    for _ in 0..20 {
        round(&mut submissions);
    }
    let (before, took_before) = (client.stats(), client.metrics().append);
    let used = allocation_counter::measure(|| {
        for _ in 0..ROUNDS {
            round(&mut submissions);
        }
    });
    assert_eq!(*counted.failure.lock(), None);
    let after = client.stats();
    let frames = (ROUNDS * IN_FLIGHT) as u64;
    assert_eq!(after.calls - before.calls, frames);
    let took = client.metrics().append.since(&took_before);
    assert_eq!(took.count(), frames, "each of them is timed");
    assert!(took.sum() > 0.0);
    // Blocks of the receive path and of the runtime come now and then; nothing may come with each frame.
    assert!(
        used.count_total * 50 < frames,
        "{} allocations for {frames} frames: {used:?}",
        used.count_total
    );
    // The same run shows that system calls and deliveries are shared by many frames.
    let writes = after.writes - before.writes;
    assert!(writes * 20 < frames, "{writes} writes for {frames} frames");
    let deliveries = after.completion_batches - before.completion_batches;
    assert!(deliveries * 20 < frames, "{deliveries} deliveries for {frames} frames");

    runtime.block_on(bounded(client.close()));
    server.join().unwrap();
}
