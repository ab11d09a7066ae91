//! Drivers that whoever posts may drive for a turn.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_session::{CloseReason, Session, SessionConfig};
use sbp_transport::{Mailbox, accept_options, dial, drive, drive_shared, listen, mailbox};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use crate::apps::{Call, Caller, Echo, Ended, call};

const PATIENCE: Duration = Duration::from_secs(60);

/// A client whose driver is shared, and an echoing server.
async fn connect() -> (Mailbox<Call>, JoinHandle<CloseReason>, Mailbox<()>) {
    let listener = listen("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let (stream, accepted) = tokio::join!(dial(&address, PATIENCE), listener.accept());
    let (stream, (accepted, _)) = (stream.expect("a connection"), accepted.expect("a connection"));
    accept_options(&accepted).expect("socket options");
    let ((client, client_inbox), (server, server_inbox)) = (mailbox(), mailbox());
    let now = Instant::now();
    let session = Session::new(SessionConfig::client(), now);
    let client_task = tokio::spawn(drive_shared(stream, session, Caller::default(), client_inbox));
    let session = Session::new(SessionConfig::server(), now);
    tokio::spawn(drive(accepted, session, Echo::default(), server_inbox));
    (client, client_task, server)
}

#[test]
fn a_lone_request_is_written_by_who_posts_it() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (client, client_task, server) = runtime.block_on(async {
        let connected = connect().await;
        let (first, reply) = call("first");
        assert!(connected.0.post(first).is_ok());
        assert_eq!(reply.await, Ok(Ended::Answered("first".into())));
        // The client's task has gone to sleep when others had their turn.
        tokio::task::yield_now().await;
        connected
    });
    let (writes, wakeups) = (client.stats().writes(), client.stats().wakeups());
    let (second, reply) = call("second");
    // Nothing runs here but this thread.
    let sleeper = client.post_for(second).ok().expect("an open connection");
    sleeper.expect("a driver that sleeps").drive();
    assert_eq!(client.stats().writes(), writes + 1, "it is on its way");
    assert_eq!(client.stats().wakeups(), wakeups, "nobody was woken for it");
    runtime.block_on(async {
        assert_eq!(reply.await, Ok(Ended::Answered("second".into())));
        server.post(()).expect("a running server");
        assert!(matches!(client_task.await, Ok(CloseReason::WentAway)));
    });
    let (late, _) = call("late");
    assert!(client.post_for(late).is_err(), "the connection has ended");
}

#[test]
fn no_request_is_forgotten_between_those_who_drive() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (client, _client_task, _server) = runtime.block_on(connect());
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let client = client.clone();
            scope.spawn(move || {
                for round in 0..500_u32 {
                    let payload = Bytes::copy_from_slice(&(thread * 1000 + round).to_be_bytes());
                    let (mut call, reply) = call(payload.clone());
                    // Only a lost one comes near it.
                    call.timeout = Some(PATIENCE);
                    match client.post_for(call) {
                        Ok(Some(sleeper)) => sleeper.drive(),
                        Ok(None) => {}
                        Err(_) => panic!("the connection has ended"),
                    }
                    assert_eq!(reply.blocking_recv(), Ok(Ended::Answered(payload)));
                }
            });
        }
    });
}

#[test]
fn a_driver_that_is_not_driven_is_woken() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (client, _client_task, _server) = runtime.block_on(connect());
    for _ in 0..100 {
        let (mut call, reply) = call("asked");
        call.timeout = Some(PATIENCE);
        drop(client.post_for(call).ok().expect("an open connection"));
        assert_eq!(reply.blocking_recv(), Ok(Ended::Answered("asked".into())));
    }
}
