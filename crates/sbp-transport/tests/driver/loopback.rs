//! Over real sockets on loopback.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_session::{CloseReason, Session, SessionConfig};
use sbp_transport::{
    Descriptors, Driven, Mailbox, Memory, Socket, accept_options, dial, drive, drive_until_settled, listen, mailbox,
};
use tokio::{
    io::AsyncReadExt,
    runtime::{Builder, Handle},
    task::JoinHandle,
    time::timeout,
};

use crate::apps::{Call, Caller, Echo, Ended, call};

/// In real time: only a hang comes near it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect() -> (
    Mailbox<Call>,
    JoinHandle<CloseReason>,
    Mailbox<()>,
    JoinHandle<CloseReason>,
) {
    let listener = listen("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let (stream, accepted) = tokio::join!(dial(&address, PATIENCE), listener.accept());
    let (stream, (accepted, _)) = (stream.expect("a connection"), accepted.expect("a connection"));
    accept_options(&accepted).expect("socket options");
    let ((client, client_inbox), (server, server_inbox)) = (mailbox(), mailbox());
    let now = Instant::now();
    let session = Session::new(SessionConfig::client(), now);
    let client_task = tokio::spawn(drive(stream, session, Caller::default(), client_inbox));
    let session = Session::new(SessionConfig::server(), now);
    let server_task = tokio::spawn(drive(accepted, session, Echo::default(), server_inbox));
    (client, client_task, server, server_task)
}

#[tokio::test]
async fn thousands_of_calls_share_few_system_calls() {
    let work = async {
        let (client, client_task, server, server_task) = connect().await;
        let tasks: Vec<_> = (0..256_u32)
            .map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    for round in 0..40_u32 {
                        let payload = Bytes::copy_from_slice(&(task * 1000 + round).to_be_bytes());
                        let (call, reply) = call(payload.clone());
                        assert!(client.post(call).is_ok());
                        assert_eq!(reply.await, Ok(Ended::Answered(payload)));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("every call its own answer");
        }
        let (calls, stats) = (256 * 40, client.stats());
        assert!(
            stats.writes() <= calls / 20,
            "{} writes for {calls} calls",
            stats.writes()
        );
        assert!(
            stats.wakeups() <= calls / 20,
            "{} wake-ups for {calls} calls",
            stats.wakeups()
        );
        server.post(()).expect("a running server");
        assert!(matches!(server_task.await, Ok(CloseReason::WentAway)));
        assert!(matches!(client_task.await, Ok(CloseReason::WentAway)));
    };
    timeout(PATIENCE, work).await.expect("no hang");
}

#[tokio::test]
async fn large_payloads_go_both_ways_at_once() {
    let work = async {
        let (client, _client_task, _server, _server_task) = connect().await;
        let payload = Bytes::from((0..9_000_000_u32).map(|n| n.to_le_bytes()[1]).collect::<Vec<_>>());
        let (mut calls, replies): (Vec<_>, Vec<_>) = (0..8).map(|_| call(payload.clone())).unzip();
        client.post_all(&mut calls);
        for reply in replies {
            assert_eq!(reply.await, Ok(Ended::Answered(payload.clone())));
        }
    };
    timeout(PATIENCE, work).await.expect("no hang");
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_reset() {
    let work = async {
        let listener = listen("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (peer, accepted) = tokio::join!(dial(&address, PATIENCE), listener.accept());
        let (mut peer, (accepted, _)) = (peer.expect("a connection"), accepted.expect("a connection"));
        let config = SessionConfig {
            stall_timeout: Duration::from_millis(50),
            ..SessionConfig::client()
        };
        let (client, inbox) = mailbox();
        let (large, reply) = call(vec![0; 15 << 20]);
        assert!(client.post(large).is_ok());
        let socket = Socket::new(accepted, &Descriptors::new(1));
        let reason = drive(socket, Session::new(config, Instant::now()), Caller::default(), inbox).await;
        assert!(matches!(reason, CloseReason::Stalled(_)), "{reason}");
        assert!(matches!(reply.await, Ok(Ended::Failed(_))));
        // Nothing is left to read, and no end that would look like an orderly one.
        let error = loop {
            match peer.read(&mut [0; 65_536]).await {
                Ok(count) => assert!(count > 0, "an orderly end"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    };
    timeout(PATIENCE, work).await.expect("no hang");
}

/// What a client sees of a server whose connections move to another runtime at their first APPEND.
#[test]
fn a_connection_moves_to_another_runtime_when_it_is_settled() {
    let start = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (reception, home) = (start().expect("a runtime"), start().expect("a runtime"));
    let at_home = home.handle().clone();
    let descriptors = Descriptors::new(4);
    let held = std::sync::Arc::clone(&descriptors);
    let work = async move {
        let listener = listen("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (stream, accepted) = tokio::join!(dial(&address, PATIENCE), listener.accept());
        let (stream, (accepted, _)) = (stream.expect("a connection"), accepted.expect("a connection"));
        let ((client, client_inbox), (server, server_inbox)) = (mailbox(), mailbox());
        let session = Session::new(SessionConfig::client(), Instant::now());
        let client_task = tokio::spawn(drive(stream, session, Caller::default(), client_inbox));
        let session = Session::new(SessionConfig::server(), Instant::now());
        let (socket, echo) = (Socket::new(accepted, &held), Echo::default());
        let received = tokio::spawn(async move {
            drive_until_settled(socket, session, echo, server_inbox, &Memory::new(u64::MAX)).await
        });
        let (first, reply) = call(&b"first"[..]);
        assert!(client.post(first).is_ok());
        let Ok(Driven::Settled(settled)) = received.await else {
            panic!("the client asked for something")
        };
        // Answered in the turn that it came in; what comes now waits for the other runtime.
        assert_eq!(reply.await, Ok(Ended::Answered(Bytes::from_static(b"first"))));
        let (second, mut reply) = call(vec![7; 3 << 20]);
        assert!(client.post(second).is_ok());
        assert!(
            timeout(Duration::from_millis(20), &mut reply).await.is_err(),
            "nobody drives"
        );
        let expected = at_home.id();
        let moved = at_home.spawn(settled.drive(move |socket| {
            assert_eq!(Handle::current().id(), expected);
            Socket::rehome(socket)
        }));
        assert_eq!(reply.await, Ok(Ended::Answered(Bytes::from(vec![7; 3 << 20]))));
        assert_eq!(held.snapshot().len(), 1);
        server.post(()).expect("a running server");
        assert!(matches!(moved.await, Ok(CloseReason::WentAway)));
        assert!(matches!(client_task.await, Ok(CloseReason::WentAway)));
    };
    reception.block_on(async { timeout(PATIENCE, work).await.expect("no hang") });
    assert!(descriptors.snapshot().is_empty());
}

#[tokio::test]
async fn a_socket_that_cannot_move_ends_its_connection() {
    let work = async {
        let listener = listen("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (stream, accepted) = tokio::join!(dial(&address, PATIENCE), listener.accept());
        let (stream, (accepted, _)) = (stream.expect("a connection"), accepted.expect("a connection"));
        let ((client, client_inbox), (_server, server_inbox)) = (mailbox(), mailbox());
        let session = Session::new(SessionConfig::client(), Instant::now());
        let client_task = tokio::spawn(drive(stream, session, Caller::default(), client_inbox));
        let (lost, reply) = call(&b"lost"[..]);
        assert!(client.post(lost).is_ok());
        let session = Session::new(SessionConfig::server(), Instant::now());
        // Nothing is answered in the turn that it comes in, and it moves at the end of that.
        let echo = Echo {
            delay: Some(Duration::from_millis(20)),
            ..Echo::default()
        };
        let journal = echo.journal.clone();
        let Driven::Settled(settled) =
            drive_until_settled(accepted, session, echo, server_inbox, &Memory::new(u64::MAX)).await
        else {
            panic!("the client asked for something")
        };
        let refuse = |_socket| Err::<tokio::net::TcpStream, _>(std::io::ErrorKind::OutOfMemory.into());
        let reason = settled.drive(refuse).await;
        assert!(matches!(reason, CloseReason::Transport(_)), "{reason}");
        assert_eq!(
            journal.lock().expect("no panic").last(),
            Some(&format!("closed: {reason}"))
        );
        assert!(matches!(reply.await, Ok(Ended::Failed(_))));
        drop(client);
        client_task.await.expect("an end");
    };
    timeout(PATIENCE, work).await.expect("no hang");
}
