//! Over a pipe in memory, with paused time: it moves only when everything waits for it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use sbp_frame::{Flags, Frame, FrameHead, OpCode, PushFrame, WriteQueue};
use sbp_session::{Authentication, CallFailure, CloseReason, SendError, Session, SessionConfig};
use sbp_transport::{Mailbox, drive, mailbox};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex},
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::apps::{Call, Caller, Echo, Ended, Journal, call};

/// No test waits longer than this, in its own time.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn now() -> std::time::Instant {
    Instant::now().into_std()
}

pub(crate) fn start_client<IO>(io: IO, config: SessionConfig) -> (Mailbox<Call>, JoinHandle<CloseReason>, Journal)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mailbox, inbox) = mailbox();
    let app = Caller::default();
    let journal = Journal::clone(&app.journal);
    (
        mailbox,
        tokio::spawn(drive(io, Session::new(config, now()), app, inbox)),
        journal,
    )
}

pub(crate) fn start_server<IO>(io: IO, config: SessionConfig, app: Echo) -> (Mailbox<()>, JoinHandle<CloseReason>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mailbox, inbox) = mailbox();
    (
        mailbox,
        tokio::spawn(drive(io, Session::new(config, now()), app, inbox)),
    )
}

pub(crate) async fn ended<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("within the patience of a test")
}

/// Reads until a whole frame is there.
pub(crate) async fn read_frame(peer: &mut DuplexStream, buffer: &mut BytesMut) -> Frame {
    loop {
        if let Some(frame) = Frame::decode(buffer).expect("a valid frame") {
            return frame;
        }
        let count = ended(peer.read_buf(buffer)).await.expect("bytes");
        assert!(count > 0, "closed in the middle");
    }
}

pub(crate) fn frame(opcode: OpCode, flags: Flags, raw_call_id: u32, header: &[u8]) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    queue
        .push_frame(
            FrameHead {
                opcode,
                flags,
                raw_call_id,
                format: 1,
            },
            header,
            &[],
        )
        .expect("a small frame");
    let mut slices = [io::IoSlice::new(&[]); 1];
    queue.slices(&mut slices);
    slices[0].to_vec()
}

#[tokio::test(start_paused = true)]
async fn calls_are_answered() {
    let (left, right) = duplex(64 * 1024);
    let (client, client_task, _) = start_client(left, SessionConfig::client());
    let (server, server_task) = start_server(right, SessionConfig::server(), Echo::default());
    let mut waiting = Vec::new();
    for length in [0, 1, 1_000, 100_000, 3_000_000] {
        let payload = Bytes::from(vec![7; length]);
        let (call, reply) = call(payload.clone());
        assert!(client.post(call).is_ok());
        waiting.push((payload, reply));
    }
    for (payload, reply) in waiting {
        assert_eq!(ended(reply).await, Ok(Ended::Answered(payload)));
    }
    server.post(()).unwrap();
    assert!(matches!(ended(server_task).await.unwrap(), CloseReason::WentAway));
    assert!(matches!(ended(client_task).await.unwrap(), CloseReason::WentAway));
    assert!(client.is_closed());
    assert!(client.post(call("late").0).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_in_one_write_and_one_wake_up() {
    let (left, right) = duplex(1024 * 1024);
    let (client, _task, _) = start_client(left, SessionConfig::client());
    let (_server, _server_task) = start_server(right, SessionConfig::server(), Echo::default());
    let (first, reply) = call("first");
    client.post(first).ok().unwrap();
    ended(reply).await.unwrap();
    let before = (client.stats().writes(), client.stats().wakeups());
    let (mut calls, replies): (Vec<_>, Vec<_>) = (0..256).map(|_| call("payload")).unzip();
    assert!(client.post_all(&mut calls));
    assert!(calls.is_empty());
    for reply in replies {
        assert!(matches!(ended(reply).await, Ok(Ended::Answered(_))));
    }
    assert_eq!(client.stats().writes() - before.0, 1, "256 frames in one write");
    assert!(
        client.stats().wakeups() - before.1 <= 3,
        "one to send, one to receive, perhaps one timer"
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_that_call_again_and_again_share_writes() {
    let (left, right) = duplex(1024 * 1024);
    let (client, _task, _) = start_client(left, SessionConfig::client());
    let (_server, _server_task) = start_server(right, SessionConfig::server(), Echo::default());
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    let (call, reply) = call("payload");
                    assert!(client.post(call).is_ok());
                    assert!(matches!(reply.await, Ok(Ended::Answered(_))));
                }
            })
        })
        .collect();
    for task in tasks {
        ended(task).await.unwrap();
    }
    let writes = client.stats().writes();
    assert!(writes <= 3_200 / 20, "{writes} writes for 3,200 calls");
}

#[tokio::test(start_paused = true)]
async fn the_first_frame_is_a_heartbeat_and_more_follow() {
    let (left, right) = duplex(64 * 1024);
    let (client, _task, _) = start_client(left, SessionConfig::client());
    let app = Echo::default();
    let journal = Journal::clone(&app.journal);
    let (_server, _server_task) = start_server(right, SessionConfig::server(), app);
    let (first, reply) = call("first");
    assert!(client.post(first).is_ok());
    ended(reply).await.unwrap();
    assert_eq!(*journal.lock().expect("no panic"), ["HEARTBEAT", "APPEND"]);
    tokio::time::sleep(Duration::from_secs(299)).await;
    let seen = journal.lock().expect("no panic").clone();
    assert_eq!(
        seen.iter().filter(|opcode| *opcode == "HEARTBEAT").count(),
        10,
        "one each 30 s, and nobody closed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_while_nothing_else_happens() {
    let (left, _right) = duplex(64 * 1024);
    let (client, _task, _) = start_client(left, SessionConfig::client());
    let started = Instant::now();
    let (mut call, reply) = call("never answered");
    call.timeout = Some(Duration::from_millis(1_500));
    assert!(client.post(call).is_ok());
    assert_eq!(ended(reply).await, Ok(Ended::Failed(CallFailure::DeadlineExceeded)));
    let waited = started.elapsed();
    assert!((1_500..1_510).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    let (left, _right) = duplex(64 * 1024);
    let (_client, task, journal) = start_client(left, SessionConfig::client());
    assert!(matches!(ended(task).await.unwrap(), CloseReason::Silent(_)));
    assert_eq!(journal.lock().expect("no panic").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reading_goes_on_while_writing_is_stuck() {
    let (left, mut peer) = duplex(4096);
    let (client, _task, _) = start_client(left, SessionConfig::client());
    let mut buffer = BytesMut::new();
    let heartbeat = read_frame(&mut peer, &mut buffer).await;
    assert_eq!(heartbeat.opcode, OpCode::HEARTBEAT);
    let (small, small_reply) = call("small");
    assert!(client.post(small).is_ok());
    let asked = read_frame(&mut peer, &mut buffer).await;
    // More than the pipe takes, and nobody reads it.
    let (large, _large_reply) = call(vec![0; 1_000_000]);
    assert!(client.post(large).is_ok());
    tokio::task::yield_now().await;
    let end = Flags::RESPONSE | Flags::END;
    peer.write_all(&frame(OpCode::APPEND, end, asked.call_id.raw(), b"done"))
        .await
        .unwrap();
    assert!(matches!(ended(small_reply).await, Ok(Ended::Answered(_))));
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_or_posted_at_the_end_is_told() {
    let (left, peer) = duplex(64 * 1024);
    let (client, task, journal) = start_client(left, SessionConfig::client());
    let (sent, sent_reply) = call("sent");
    assert!(client.post(sent).is_ok());
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(peer);
    assert_eq!(
        ended(sent_reply).await,
        Ok(Ended::Failed(CallFailure::ConnectionClosed))
    );
    assert!(matches!(
        ended(task).await.unwrap(),
        CloseReason::Peer { mid_frame: false } | CloseReason::Transport(_)
    ));
    assert_eq!(journal.lock().expect("no panic").len(), 1, "closed once");
    let (late, late_reply) = call("late");
    let mut late = vec![late];
    assert!(!client.post_all(&mut late));
    assert_eq!(late.len(), 1, "what is not taken is left");
    drop(late);
    assert!(ended(late_reply).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn commands_left_in_the_inbox_are_refused_not_lost() {
    let (left, peer) = duplex(64 * 1024);
    drop(peer);
    let (mailbox, inbox) = mailbox();
    let (call, reply) = call("posted before the driver ran");
    assert!(mailbox.post(call).is_ok());
    let mut session = Session::new(SessionConfig::client(), now());
    session.close();
    ended(drive(left, session, Caller::default(), inbox)).await;
    assert_eq!(ended(reply).await, Ok(Ended::NotSent(SendError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_breaks_the_protocol_is_told_why() {
    let (left, mut peer) = duplex(64 * 1024);
    let config = SessionConfig {
        violation_header: Bytes::from_static(b"violation"),
        ..SessionConfig::server()
    };
    let (_server, task) = start_server(left, config, Echo::default());
    peer.write_all(&frame(OpCode::PING, Flags::NONE, 1, b"")).await.unwrap();
    peer.write_all(&[0; 100]).await.unwrap();
    let mut buffer = BytesMut::new();
    assert_eq!(read_frame(&mut peer, &mut buffer).await.opcode, OpCode::PING);
    let go_away = read_frame(&mut peer, &mut buffer).await;
    assert_eq!(
        (go_away.opcode, go_away.header),
        (OpCode::GOAWAY, Bytes::from_static(b"violation"))
    );
    assert_eq!(ended(peer.read_buf(&mut buffer)).await.unwrap(), 0, "and then the end");
    assert!(
        matches!(ended(task).await.unwrap(), CloseReason::Violation(_)),
        "even if the peer never closes"
    );
}

/// Who has not said who he is and floods a server is cut, can read why, and is not read on while he does.
#[tokio::test(start_paused = true)]
async fn a_flood_before_it_is_known_who_sends_it_is_cut() {
    const PIPE: usize = 64 * 1024;
    let (left, peer) = duplex(PIPE);
    let config = SessionConfig {
        authentication: Some(Authentication {
            goodbye: Bytes::from_static(b"who are you"),
            ..Authentication::default()
        }),
        ..SessionConfig::server()
    };
    let (_server, task) = start_server(left, config, Echo::default());
    let (mut words, mut flood) = tokio::io::split(peer);
    let flooding = tokio::spawn(async move {
        let (mut taken, block) = (0, [0; 1024]);
        let ping = frame(OpCode::PING, Flags::NONE, 1, b"");
        // A frame of 16 MiB, again and again.
        let head = [0, 255, 255, 255, 23, 0x10, 1, 0, 0, 0, 0, 2, 1, 0, 0, 100];
        flood.write_all(&ping).await.unwrap();
        while taken < 4 << 20 {
            let bytes = if taken % (16 << 20) == 0 { &head[..] } else { &block };
            match flood.write(bytes).await {
                Ok(count) => taken += count,
                Err(_) => break,
            }
        }
        taken
    });
    let mut heard = Vec::new();
    ended(words.read_to_end(&mut heard)).await.unwrap();
    assert!(heard.windows(11).any(|part| part == b"who are you"), "{heard:?}");
    let reason = ended(task).await.unwrap();
    assert!(matches!(reason, CloseReason::TooMuchUnauthenticated { .. }), "{reason}");
    let taken = ended(flooding).await.unwrap();
    assert!(taken < 3 * PIPE, "{taken} bytes were taken");
}

#[tokio::test(start_paused = true)]
async fn something_else_than_the_protocol_is_closed_without_a_word() {
    let (left, mut peer) = duplex(64 * 1024);
    let (_server, task) = start_server(left, SessionConfig::server(), Echo::default());
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(matches!(ended(task).await.unwrap(), CloseReason::NotSbp));
    assert_eq!(ended(peer.read(&mut [0; 16])).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_at_its_limits_goes_on_as_it_answers() {
    let (left, right) = duplex(2_000);
    let (client, _task, _) = start_client(left, SessionConfig::client());
    let mut config = SessionConfig::server();
    (config.limits.calls, config.limits.answer_bytes) = (4, 10_000);
    let app = Echo {
        delay: Some(Duration::from_millis(50)),
        ..Echo::default()
    };
    let (_server, _server_task) = start_server(right, config, app);
    let (mut calls, replies): (Vec<_>, Vec<_>) = (0..101).map(|n| call(vec![n; 5_000])).unzip();
    client.post_all(&mut calls);
    for (n, reply) in (0..101).zip(replies) {
        assert_eq!(ended(reply).await, Ok(Ended::Answered(vec![n; 5_000].into())));
    }
}

/// Gives and takes one byte at a time, and is not ready every other time.
struct Dribble {
    inner: DuplexStream,
    can_read: bool,
    can_write: bool,
}

impl Dribble {
    fn new(inner: DuplexStream) -> Self {
        Self {
            inner,
            can_read: false,
            can_write: false,
        }
    }
}

/// Turns the switch; whoever finds it off is called again.
fn turn(switch: &mut bool, context: &Context<'_>) -> bool {
    *switch = !*switch;
    if !*switch {
        context.waker().wake_by_ref();
    }
    *switch
}

impl AsyncRead for Dribble {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !turn(&mut self.can_read, context) {
            return Poll::Pending;
        }
        let mut byte = [0];
        let mut one = ReadBuf::new(&mut byte);
        let read = Pin::new(&mut self.inner).poll_read(context, &mut one);
        out.put_slice(one.filled());
        read
    }
}

impl AsyncWrite for Dribble {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !turn(&mut self.can_write, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write(context, &bytes[..bytes.len().min(1)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_may_come_and_go_one_by_one() {
    let (left, right) = duplex(7);
    let (client, _task, _) = start_client(Dribble::new(left), SessionConfig::client());
    let right = Dribble::new(right);
    let (_server, _server_task) = start_server(right, SessionConfig::server(), Echo::default());
    let (mut calls, replies): (Vec<_>, Vec<_>) = (0..20).map(|n| call(vec![n; 333])).unzip();
    client.post_all(&mut calls);
    for (n, reply) in (0..20).zip(replies) {
        assert_eq!(ended(reply).await, Ok(Ended::Answered(vec![n; 333].into())));
    }
}

/// Reads nothing, and fails to write.
struct Broken;

impl AsyncRead for Broken {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_socket_ends_the_connection_with_its_cause() {
    let (_client, task, _) = start_client(Broken, SessionConfig::client());
    let CloseReason::Transport(cause) = ended(task).await.unwrap() else {
        panic!("the cause")
    };
    assert_eq!(cause.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_connection_s_task_is_small() {
    // There may be thousands that do nothing.
    let (_mailbox, inbox) = mailbox();
    let session = Session::new(SessionConfig::server(), std::time::Instant::now());
    let size = size_of_val(&drive(Broken, session, Echo::default(), inbox));
    assert!(size <= 5 * 1024, "{size} bytes");
}
