//! Connections that share their memory, over pipes with paused time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sbp_frame::{FrameHead, OpCode, PayloadPart, PushFrame, WriteQueue};
use sbp_session::{CloseReason, Session, SessionConfig};
use sbp_transport::{Driven, Memory, drive_until_settled, mailbox};
use tokio::{
    io::{AsyncWriteExt, DuplexStream, duplex},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    apps::{Echo, Ended, call},
    over_time::appends,
    pipe::{ended, now, start_client},
};

const MIB: usize = 1 << 20;

fn serve(io: DuplexStream, app: Echo, memory: &Arc<Memory>) -> JoinHandle<CloseReason> {
    let memory = Arc::clone(memory);
    tokio::spawn(async move {
        let (_server, inbox) = mailbox();
        let session = Session::new(SessionConfig::server(), now());
        match drive_until_settled(io, session, app, inbox, &memory).await {
            Driven::Over(reason) => reason,
            Driven::Settled(settled) => settled.drive(Ok).await,
        }
    })
}

#[tokio::test(start_paused = true)]
async fn short_memory_holds_back_who_has_most_and_nobody_else() {
    let memory = Memory::new(8 * MIB as u64);
    let delay = Duration::from_millis(100);
    let slow = Echo {
        delay: Some(delay),
        ..Echo::default()
    };
    let asked = Arc::clone(&slow.journal);
    let ((left, right), (other_left, other_right)) = (duplex(64 * 1024), duplex(64 * 1024));
    let _servers = (
        serve(right, slow, &memory),
        serve(other_right, Echo::default(), &memory),
    );
    let (large, _large_task, _) = start_client(left, SessionConfig::client());
    let (small, _small_task, _) = start_client(other_left, SessionConfig::client());
    let payload = Bytes::from(vec![7; MIB]);
    let (mut calls, replies): (Vec<_>, Vec<_>) = (0..20).map(|_| call(payload.clone())).unzip();
    large.post_all(&mut calls);
    // Time stands still until everybody waits: by now the server has read what it will before its first answers.
    tokio::time::sleep(delay / 2).await;
    let appends = asked.lock().unwrap().iter().filter(|name| *name == "APPEND").count();
    assert!(
        (8..=9).contains(&appends),
        "{appends} of 1 MiB each are begun, of 8 MiB"
    );
    let held = memory.held();
    assert!(held <= 10 * MIB as u64, "{held}");
    let begun = Instant::now();
    let (little, reply) = call(vec![1; 64]);
    assert!(small.post(little).is_ok());
    assert_eq!(ended(reply).await, Ok(Ended::Answered(Bytes::from(vec![1; 64]))));
    assert_eq!(begun.elapsed(), Duration::ZERO, "who holds little waits for nothing");
    for reply in replies {
        let answered = matches!(ended(reply).await, Ok(Ended::Answered(echo)) if echo == payload);
        assert!(answered);
    }
    tokio::time::sleep(delay).await;
    assert_eq!(memory.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_grow_past_all_memory_ends_its_connection() {
    let memory = Memory::new(256 << 10);
    let (mut peer, right) = duplex(64 * 1024);
    let task = serve(right, Echo::default(), &memory);
    let mut queue = WriteQueue::new();
    let head = FrameHead {
        opcode: OpCode::APPEND,
        flags: sbp_frame::Flags::NONE,
        raw_call_id: 1,
        format: 1,
    };
    let payload = vec![0; 4 * MIB];
    let parts = [PayloadPart::Share(Bytes::from(payload))];
    queue.push_frame(head, b"header", &parts).expect("a frame");
    let mut frame = Vec::new();
    while !queue.is_empty() {
        let mut slices = [std::io::IoSlice::new(&[]); 64];
        let count = queue.slices(&mut slices);
        let before = frame.len();
        slices[..count].iter().for_each(|slice| frame.extend_from_slice(slice));
        queue.advance(frame.len() - before);
    }
    let sent = peer.write_all(&frame);
    assert!(ended(sent).await.is_err(), "it is not read to its end");
    let reason = ended(task).await.unwrap();
    assert!(matches!(reason, CloseReason::Local), "{reason}");
    assert_eq!(memory.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn while_memory_is_short_who_takes_nothing_is_cut_and_nobody_else() {
    let memory = Memory::new(8 * MIB as u64);
    let ((mut idler, right), (left, other_right)) = (duplex(64 * 1024), duplex(64 * 1024));
    let idle_task = serve(right, Echo::default(), &memory);
    let other_task = serve(other_right, Echo::default(), &memory);
    let (small, _small_task, _) = start_client(left, SessionConfig::client());
    let (little, reply) = call(vec![1; 64]);
    assert!(small.post(little).is_ok());
    assert!(matches!(ended(reply).await, Ok(Ended::Answered(_))));
    let asks = tokio::spawn(async move {
        let _cut = idler.write_all(&appends(20, MIB)).await;
        idler
    });
    let begun = Instant::now();
    let reason = ended(idle_task).await.unwrap();
    assert!(
        matches!(reason, CloseReason::Stalled(after) if after == Duration::from_millis(1_500)),
        "{reason:?}"
    );
    let elapsed = begun.elapsed().as_millis();
    assert!((1_500..2_000).contains(&elapsed), "{elapsed} ms");
    drop(asks.await);
    let (little, reply) = call(vec![1; 64]);
    assert!(small.post(little).is_ok());
    assert!(matches!(ended(reply).await, Ok(Ended::Answered(_))));
    assert!(!other_task.is_finished());
}
