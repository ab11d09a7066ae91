//! Commits whose answers are lost, or come late, or not at all.

use std::sync::Arc;
use std::time::Duration;

use sbp_client::codes;
use sbp_client::{Client, Cursor, ErrorKind};
use sbp_e2e::clients::{client, streams};
use sbp_e2e::wait::bounded;
use sbp_frame::OpCode;
use sbp_messages::Stream;
use sbp_proxy::{Held, Proxy, ProxyConfig};
use sbp_server::Server;
use sbp_types::Offset;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{bounds, commit, fill, hold, open, places, server, watch};

/// What each of the streams holds: more than any test commits.
const RECORDS: usize = 200;

/// A holder behind a proxy, and a client that goes to the server itself.
struct Scene {
    _server: Server,
    proxy: Proxy,
    direct: Client,
    streams: Vec<Arc<Stream>>,
    holder: Cursor,
}

impl Scene {
    async fn set() -> Self {
        let proxy = Proxy::start(ProxyConfig::default()).unwrap();
        let server = server(Some(proxy.address()));
        let address = server.local_addr().to_string();
        proxy.set_target(Some(address.clone()));
        let direct = client(&address);
        let streams = streams(&direct, &["orders", "payments"]).await;
        for stream in &streams {
            fill(&direct, stream, RECORDS).await;
        }
        let holder = open(&client(&proxy.address()), "job", &streams).await;
        Self {
            _server: server,
            proxy,
            direct,
            streams,
            holder,
        }
    }

    /// Lets the first APPEND go no further than the proxy, and returns it when it is there.
    fn hold_append(&self) -> UnboundedReceiver<Held> {
        hold(&self.proxy, |rule| rule.opcode(OpCode::APPEND).requests())
    }

    /// A commit that finds no end in time, and its APPEND, which the proxy still holds.
    async fn doubtful(&self) -> Held {
        let mut held = self.hold_append();
        let orders = vec![(self.streams[0].stream_id, Offset(7))];
        let error = bounded(self.holder.commit(orders, Some(Duration::from_secs(2)))).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
        assert!(error.is_timeout() && error.to_string().contains("may have been done"));
        assert_eq!(places(&self.holder), [0, 0], "what is not known is not shown");
        self.proxy.clear();
        held.try_recv().unwrap()
    }

    async fn records(&self) -> i64 {
        bounds(&self.direct, self.holder.stream()).await.1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lost_answer_is_resolved_by_reading_and_the_commit_stored_once() {
    let scene = Scene::set().await;
    let mut next = 0;
    for rule in [
        "cut answer APPEND nth=1",
        "drop answer APPEND nth=1",
        "drop request APPEND nth=1",
        "cut=40 request APPEND nth=1",
        "cut answer APPEND times=3",
    ] {
        scene.proxy.add(rule.parse().unwrap());
        next += 1;
        let places = vec![(scene.streams[0].stream_id, Offset(next))];
        let made = bounded(scene.holder.commit(places, Some(Duration::from_secs(6)))).await;
        made.unwrap_or_else(|error| panic!("{rule}: {error}"));
        assert_eq!(scene.records().await, next, "{rule}: stored once");
        scene.proxy.clear();
    }
    let last = open(&scene.direct, "job", &scene.streams).await;
    assert_eq!(places(&last), [next, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_commit_that_arrives_after_it_was_given_up_counts_and_is_built_on() {
    let scene = Scene::set().await;
    let held = scene.doubtful().await;
    let mut answered = watch(&scene.proxy, |rule| rule.opcode(OpCode::APPEND).answers());
    held.pass();
    bounded(answered.recv()).await.unwrap();
    assert_eq!(scene.records().await, 1);
    // The next commit, about another stream, does not undo what the first one said.
    commit(&scene.holder, &scene.streams[1], 3).await.unwrap();
    assert_eq!(scene.records().await, 2);
    assert_eq!(places(&scene.holder), [7, 3]);
    assert_eq!(places(&open(&scene.direct, "job", &scene.streams).await), [7, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_commit_that_never_arrives_leaves_no_trace() {
    let scene = Scene::set().await;
    scene.doubtful().await.discard();
    commit(&scene.holder, &scene.streams[1], 3).await.unwrap();
    assert_eq!(scene.records().await, 1);
    assert_eq!(places(&open(&scene.direct, "job", &scene.streams).await), [0, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_commit_that_arrives_after_another_holders_is_refused() {
    let scene = Scene::set().await;
    let held = scene.doubtful().await;
    let other = open(&scene.direct, "job", &scene.streams).await;
    commit(&other, &scene.streams[0], 5).await.unwrap();
    held.pass();
    let refused = commit(&scene.holder, &scene.streams[1], 3).await.unwrap_err();
    assert_eq!(refused.code(), codes::CURSOR_TAKEN, "{refused}");
    commit(&other, &scene.streams[0], 6).await.unwrap();
    assert_eq!(scene.records().await, 2);
    assert_eq!(places(&open(&scene.direct, "job", &scene.streams).await), [6, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_commit_behind_one_that_hangs_is_taken_back_when_its_time_is_over() {
    let scene = Scene::set().await;
    let mut held = scene.hold_append();
    let orders = scene.streams[0].stream_id;
    let first = tokio::spawn(
        scene
            .holder
            .commit(vec![(orders, Offset(1))], Some(Duration::from_secs(30))),
    );
    let frame = bounded(held.recv()).await.unwrap();
    let second = scene
        .holder
        .commit(vec![(orders, Offset(2))], Some(Duration::from_millis(20)));
    let late = bounded(second).await.unwrap_err();
    assert_eq!(
        (late.kind(), late.code()),
        (ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND)
    );
    frame.pass();
    bounded(first).await.unwrap().unwrap();
    assert_eq!(places(&open(&scene.direct, "job", &scene.streams).await), [1, 0]);
}

/// Holders that open the cursor anew for each commit, through connections that are cut all the time: every place is told
/// as committed once at most, and those that nobody was told of were in doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn holders_on_bad_connections_never_commit_the_same_place() {
    const GOAL: i64 = 150;
    let scene = Scene::set().await;
    for rule in [
        "cut answer APPEND probability=0.1",
        "cut=40 request APPEND probability=0.05",
        "cut-after request APPEND probability=0.05",
        "cut answer FETCH probability=0.05",
    ] {
        scene.proxy.add(rule.parse().unwrap());
    }
    let holders: Vec<_> = (0..3)
        .map(|_| tokio::spawn(count_up(client(&scene.proxy.address()), scene.streams[0].clone(), GOAL)))
        .collect();
    let (mut told, mut refused, mut doubtful) = (Vec::new(), 0, 0);
    for holder in holders {
        let tally = bounded(holder).await.unwrap();
        told.extend(tally.committed);
        refused += tally.refused;
        doubtful += tally.doubtful;
    }
    told.sort_unstable();
    let distinct = told.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(distinct, "told twice: {told:?}");
    let untold = usize::try_from(GOAL).unwrap() - told.len();
    assert!(untold <= doubtful, "{untold} were told nobody, {doubtful} in doubt");
    assert!(refused > 0, "they never met");
    let counts = scene.proxy.counts();
    assert!(counts.cut >= 10, "{counts:?}");
    scene.proxy.clear();
    assert_eq!(places(&open(&scene.direct, "job", &scene.streams).await)[0], GOAL);
}

#[derive(Default)]
struct Tally {
    committed: Vec<i64>,
    refused: usize,
    doubtful: usize,
}

async fn count_up(client: Client, stream: Arc<Stream>, goal: i64) -> Tally {
    let mut tally = Tally::default();
    loop {
        let cursor = open(&client, "job", std::slice::from_ref(&stream)).await;
        let next = places(&cursor)[0] + 1;
        if next > goal {
            return tally;
        }
        match commit(&cursor, &stream, next).await {
            Ok(()) => tally.committed.push(next),
            Err(error) if error.code() == codes::CURSOR_TAKEN => tally.refused += 1,
            Err(error) if error.is_indeterminate() => tally.doubtful += 1,
            Err(error) => panic!("{error}"),
        }
    }
}
