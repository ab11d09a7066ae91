//! Calls that are handed over together.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_peers::seastar::{CallResult, ReplySink, Rpc, SeastarErrorKind, SinkReply, Submission};
use tokio::sync::Notify;

use crate::service::{BOOM, ECHO, Running, SILENT};
use crate::{deadline, soon};

/// Keeps results, each delivery by itself.
#[derive(Default)]
struct Kept {
    deliveries: Mutex<Vec<Vec<(u64, CallResult)>>>,
    came: Notify,
}

impl ReplySink for Kept {
    fn complete(&self, batch: &mut Vec<(u64, CallResult)>) {
        self.deliveries.lock().unwrap().push(std::mem::take(batch));
        self.came.notify_one();
    }
}

impl Kept {
    fn submission(self: &Arc<Self>, verb: u64, number: u8, deadline: Instant) -> Submission {
        let sink: Arc<dyn ReplySink> = Arc::clone(self) as _;
        Submission {
            verb,
            payload: Bytes::copy_from_slice(&[number]),
            deadline,
            reply: SinkReply::new(sink, number.into()),
        }
    }

    /// Waits for so many results. They, in the order of their tokens, and how many deliveries they took.
    async fn take(&self, count: usize) -> (Vec<CallResult>, usize) {
        soon(async {
            while self.deliveries.lock().unwrap().iter().map(Vec::len).sum::<usize>() < count {
                self.came.notified().await;
            }
        })
        .await;
        let deliveries = std::mem::take(&mut *self.deliveries.lock().unwrap());
        let times = deliveries.len();
        let mut all: Vec<_> = deliveries.into_iter().flatten().collect();
        assert_eq!(all.len(), count, "each is told once");
        all.sort_by_key(|(token, _)| *token);
        (all.into_iter().map(|(_, result)| result).collect(), times)
    }
}

fn submit(rpc: &Rpc, kept: &Arc<Kept>, calls: &[(u64, Instant)]) {
    let mut calls: Vec<_> = (0..)
        .zip(calls)
        .map(|(number, (verb, deadline))| kept.submission(*verb, number, *deadline))
        .collect();
    rpc.submit(&mut calls);
    assert!(calls.is_empty());
}

#[tokio::test]
async fn their_replies_come_together() {
    let running = Running::start();
    let (rpc, kept) = (running.client(&[]), Arc::new(Kept::default()));
    // Without a connection, they wait until there is one.
    for is_connected in [false, true] {
        submit(&rpc, &kept, &[(ECHO, deadline()); 100]);
        let (results, times) = kept.take(100).await;
        for (number, result) in (0_u8..).zip(results) {
            assert_eq!(result.expect("an echo")[..], [number]);
        }
        // They are written with one write, and so are their answers; a socket may still give those in several pieces.
        assert!(!is_connected || times <= 10, "{times} deliveries of 100 results");
    }
    soon(rpc.close()).await;
    submit(&rpc, &kept, &[(ECHO, deadline())]);
    let closed = kept.take(1).await.0.pop().expect("one").expect_err("it is closed");
    assert!(closed.is_certain(), "{closed}");
    soon(running.server.close()).await;
}

#[tokio::test]
async fn each_fails_by_itself() {
    let running = Running::start();
    let (rpc, kept) = (running.client(&[]), Arc::new(Kept::default()));
    soon(rpc.connect()).await.expect("it is there");
    let begun = Instant::now();
    let short = begun + Duration::from_millis(300);
    let calls = [
        (ECHO, deadline()),
        (BOOM, deadline()),
        (99, deadline()),
        (SILENT, short),
        (ECHO, begun),
    ];
    submit(&rpc, &kept, &calls);
    let results = kept.take(calls.len()).await.0;
    let failed = |number: usize| results[number].as_ref().expect_err("it fails");
    assert_eq!(results[0].as_ref().expect("an echo")[..], [0]);
    assert_eq!(
        (failed(1).kind(), failed(1).what()),
        (SeastarErrorKind::Refused, "boom")
    );
    assert_eq!(
        (failed(1).verb(), failed(1).endpoint()),
        (Some(BOOM), Some(&*running.address()))
    );
    assert_eq!(failed(2).kind(), SeastarErrorKind::UnknownVerb);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(
        !failed(3).is_certain() && failed(3).is_timeout(),
        "the handler may have run"
    );
    assert!(failed(4).is_certain() && failed(4).is_timeout(), "it was not sent");
    soon(rpc.close()).await;
    soon(running.server.close()).await;
}

#[tokio::test]
async fn those_under_way_are_in_doubt_when_the_connection_is_lost() {
    let running = Running::start();
    let (rpc, kept) = (running.client(&[]), Arc::new(Kept::default()));
    soon(rpc.connect()).await.expect("it is there");
    submit(&rpc, &kept, &[(SILENT, deadline()); 3]);
    // They are there when one behind them is.
    soon(rpc.call(ECHO, Bytes::new(), deadline())).await.expect("an echo");
    let begun = Instant::now();
    soon(running.server.close()).await;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "a server waits for nobody's answer"
    );
    for result in kept.take(3).await.0 {
        let lost = result.expect_err("the server is gone");
        assert_eq!(lost.kind(), SeastarErrorKind::Lost);
        assert!(!lost.is_certain(), "{lost}");
    }
    // The next ones find nobody.
    submit(&rpc, &kept, &[(ECHO, deadline())]);
    let nobody = kept.take(1).await.0.pop().expect("one").expect_err("nobody listens");
    assert!(nobody.is_certain() && nobody.is_retriable(), "{nobody}");
    soon(rpc.close()).await;
}
