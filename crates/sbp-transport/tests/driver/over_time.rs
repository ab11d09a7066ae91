//! Peers that send slowly, or leave, over a pipe in memory with paused time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sbp_frame::{Flags, FrameHead, OpCode, PayloadPart, PushFrame, WriteQueue};
use sbp_session::{CloseReason, SessionConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::{Instant, advance, sleep},
};

use crate::{
    apps::{Echo, Journal},
    pipe::{ended, frame, read_frame, start_client, start_server},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_frame_that_dribbles_in_ends_the_connection() {
    let (left, mut peer) = duplex(64 * 1024);
    let config = SessionConfig {
        violation_header: b"violation".as_slice().into(),
        ..SessionConfig::server()
    };
    let (_server, task) = start_server(left, config, Echo::default());
    peer.write_all(&frame(OpCode::PING, Flags::NONE, 1, b"")).await.unwrap();
    let begun = Instant::now();
    for byte in frame(OpCode::APPEND, Flags::NONE, 2, b"a header").chunks(1) {
        // Once the connection is closed nobody takes them.
        let _ = peer.write_all(byte).await;
        sleep(SECOND).await;
    }
    let reason = ended(task).await.unwrap();
    assert!(
        matches!(reason, CloseReason::TooSlow { bytes: 1..=5, within } if within == 5 * SECOND),
        "{reason:?}"
    );
    let mut buffer = BytesMut::new();
    assert_eq!(read_frame(&mut peer, &mut buffer).await.opcode, OpCode::PING);
    assert_eq!(read_frame(&mut peer, &mut buffer).await.opcode, OpCode::GOAWAY);
    assert!(begun.elapsed() >= 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_first_frame_that_dribbles_in_gets_no_answer_and_no_patience() {
    let (left, mut peer) = duplex(64 * 1024);
    let (_server, task) = start_server(left, SessionConfig::server(), Echo::default());
    let begun = Instant::now();
    peer.write_all(&[0]).await.unwrap();
    assert!(matches!(ended(task).await.unwrap(), CloseReason::TooSlow { .. }));
    let elapsed = begun.elapsed();
    assert!((5_000..5_010).contains(&elapsed.as_millis()), "{elapsed:?}");
    assert_eq!(ended(peer.read(&mut [0; 16])).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_has_no_patience_for_a_dribbling_server_either() {
    let (left, mut peer) = duplex(64 * 1024);
    let (_client, task, _) = start_client(left, SessionConfig::client());
    let heartbeat = read_frame(&mut peer, &mut BytesMut::new()).await;
    let answer = frame(
        OpCode::HEARTBEAT,
        Flags::RESPONSE | Flags::END,
        heartbeat.call_id.raw(),
        b"hello",
    );
    peer.write_all(&answer[..17]).await.unwrap();
    assert!(matches!(ended(task).await.unwrap(), CloseReason::TooSlow { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_came_in_time_may_have_waited_for_the_task() {
    let (left, mut peer) = duplex(64 * 1024);
    let app = Echo::default();
    let journal = Journal::clone(&app.journal);
    let (_server, _task) = start_server(left, SessionConfig::server(), app);
    let request = frame(OpCode::APPEND, Flags::NONE, 1, b"a header");
    peer.write_all(&request[..10]).await.unwrap();
    sleep(4 * SECOND).await;
    peer.write_all(&request[10..]).await.unwrap();
    // The task wakes for the bytes and for the timer at once, and late.
    advance(10 * SECOND).await;
    assert_eq!(read_frame(&mut peer, &mut BytesMut::new()).await.opcode, OpCode::APPEND);
    assert_eq!(*journal.lock().expect("no panic"), ["APPEND"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_lasts_as_long_as_the_work_that_it_started() {
    let (left, mut peer) = duplex(64 * 1024);
    let app = Echo {
        delay: Some(7 * SECOND),
        ..Echo::default()
    };
    let journal = Journal::clone(&app.journal);
    let (server, task) = start_server(left, SessionConfig::server(), app);
    for id in 1..=3 {
        peer.write_all(&frame(OpCode::APPEND, Flags::NONE, id, b"work"))
            .await
            .unwrap();
    }
    drop(peer);
    let begun = Instant::now();
    sleep(5 * SECOND).await;
    assert!(!task.is_finished() && !server.is_closed(), "its place is still taken");
    ended(task).await.unwrap();
    assert!(
        (7_000..7_100).contains(&begun.elapsed().as_millis()),
        "{:?}",
        begun.elapsed()
    );
    let journal = journal.lock().expect("no panic");
    assert_eq!(journal.len(), 4, "{journal:?}");
    assert!(
        journal.last().is_some_and(|last| last.starts_with("closed")),
        "told last, and once"
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_not_waited_for_for_ever() {
    let (left, mut peer) = duplex(64 * 1024);
    let app = Echo {
        delay: Some(3_600 * SECOND),
        ..Echo::default()
    };
    let (_server, task) = start_server(left, SessionConfig::server(), app);
    peer.write_all(&frame(OpCode::APPEND, Flags::NONE, 1, b"work"))
        .await
        .unwrap();
    drop(peer);
    let begun = Instant::now();
    ended(task).await.unwrap();
    assert!(
        (30_000..32_000).contains(&begun.elapsed().as_millis()),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_tiny_frames_lets_others_in() {
    let (left, mut peer) = duplex(8 << 20);
    let mut config = SessionConfig::server();
    config.limits.pings = 1 << 30;
    let (server, _task) = start_server(left, config, Echo::default());
    sleep(SECOND).await;
    let before = server.stats().wakeups();
    // All there at once.
    let ping = frame(OpCode::PING, Flags::NONE, 1, b"");
    peer.write_all(&ping.repeat(300_000)).await.unwrap();
    let mut answers = BytesMut::with_capacity(8 << 20);
    while answers.len() < 300_000 * ping.len() {
        assert!(ended(peer.read_buf(&mut answers)).await.unwrap() > 0);
    }
    let wakeups = server.stats().wakeups() - before;
    assert!(
        (300_000 / 20_000..200).contains(&wakeups),
        "{wakeups} times for 300,000 frames"
    );
}

/// APPENDs of so many bytes, without their answers.
pub(crate) fn appends(count: u32, length: usize) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    let payload = Bytes::from(vec![7; length]);
    let mut bytes = Vec::new();
    for raw_call_id in 1..=count {
        let head = FrameHead {
            opcode: OpCode::APPEND,
            flags: Flags::NONE,
            raw_call_id,
            format: 1,
        };
        let parts = [PayloadPart::Share(payload.clone())];
        queue.push_frame(head, b"a header", &parts).expect("a frame");
        while !queue.is_empty() {
            let mut slices = [std::io::IoSlice::new(&[])];
            queue.slices(&mut slices);
            let written = slices[0].len();
            bytes.extend_from_slice(&slices[0]);
            queue.advance(written);
        }
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn answers_that_nobody_takes_are_kept_for_thirty_seconds() {
    // Some of them lie in the pipe, so that the first bytes were taken at once.
    for mebibytes in [1, 42, 63] {
        let (left, mut peer) = duplex(256 * 1024);
        let (_server, task) = start_server(left, SessionConfig::server(), Echo::default());
        let begun = Instant::now();
        peer.write_all(&appends(mebibytes, 1 << 20)).await.unwrap();
        let reason = ended(task).await.unwrap();
        assert!(
            matches!(reason, CloseReason::Stalled(after) if after == 30 * SECOND),
            "{reason:?}"
        );
        let elapsed = begun.elapsed().as_millis();
        assert!((30_000..30_100).contains(&elapsed), "{mebibytes} MiB: {elapsed} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_paused_gets_every_answer_however_many_there_are() {
    let (left, peer) = duplex(256 * 1024);
    let (_server, task) = start_server(left, SessionConfig::server(), Echo::default());
    let (mut answers, mut requests) = tokio::io::split(peer);
    let asks = tokio::spawn(async move {
        requests.write_all(&appends(168, 1 << 20)).await.unwrap();
        requests
    });
    // Far more than may wait: the server stops reading.
    sleep(29 * SECOND).await;
    assert!(!asks.is_finished() && !task.is_finished());
    let mut received = 0_u64;
    let mut block = vec![0; 1 << 20];
    while received < 168 << 20 {
        let count = ended(answers.read(&mut block)).await.unwrap();
        assert!(count > 0, "closed after {received} bytes");
        received += count as u64;
    }
    drop(asks.await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_finds_a_full_pipe_has_thirty_seconds_from_then_on() {
    let ask = frame(OpCode::APPEND, Flags::NONE, 1, b"a header");
    let (left, mut peer) = duplex(64 * 1024);
    let (_server, _task) = start_server(left, SessionConfig::server(), Echo::default());
    peer.write_all(&ask).await.unwrap();
    let answer = read_frame(&mut peer, &mut BytesMut::new()).await;
    let length = 16 + answer.header.len() + answer.payload.len() + 4;

    let (left, mut peer) = duplex(length);
    let app = Echo {
        delay: Some(20 * SECOND),
        ..Echo::default()
    };
    let (_server, task) = start_server(left, SessionConfig::server(), app);
    let begun = Instant::now();
    peer.write_all(&ask).await.unwrap();
    // The first answer fills the pipe, so nothing waits to be written; the second one does, 40 seconds after the start.
    sleep(20 * SECOND + SECOND / 10).await;
    peer.write_all(&frame(OpCode::APPEND, Flags::NONE, 2, b"a header"))
        .await
        .unwrap();
    assert!(matches!(ended(task).await.unwrap(), CloseReason::Stalled(_)));
    let elapsed = begun.elapsed().as_millis();
    assert!((70_000..70_300).contains(&elapsed), "{elapsed} ms");
}
