//! Named cursors against a real server: resuming, two holders, commits in doubt, holders that are killed.

mod child;
mod doubt;
mod killed;

use std::sync::Arc;

use sbp_client::codes;
use sbp_client::{AppendOptions, Client, Cursor, CursorOptions, ErrorKind, Position};
use sbp_e2e::clients::{client, streams};
use sbp_e2e::servers::quick_config;
use sbp_e2e::wait::bounded;
use sbp_frame::OpCode;
use sbp_messages::{ErrorCode, Stream};
use sbp_proxy::{Fault, Held, Hook, Proxy, ProxyConfig, Rule};
use sbp_record::RecordsBuilder;
use sbp_server::{Server, ServerConfig};
use sbp_types::{Offset, StreamId};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

fn server(advertise: Option<String>) -> Server {
    Server::start(ServerConfig {
        advertise,
        ..quick_config(None, "127.0.0.1:0")
    })
    .unwrap()
}

async fn append(client: &Client, stream: &Stream, value: &'static [u8]) {
    let options = AppendOptions::default();
    bounded(client.append(stream.stream_id, value, &options)).await.unwrap();
}

/// Appends so many records in one batch: what cursors can stand behind.
async fn fill(client: &Client, stream: &Stream, records: usize) {
    let mut batch = RecordsBuilder::new();
    for _ in 0..records {
        batch.push(Some(&[]), None, None, &[]).unwrap();
    }
    let options = AppendOptions::default();
    bounded(client.append(stream.stream_id, batch, &options)).await.unwrap();
}

async fn open(client: &Client, name: &str, streams: &[Arc<Stream>]) -> Cursor {
    let opened = client.cursor(name, streams.to_vec(), CursorOptions::default());
    bounded(opened).await.unwrap()
}

async fn commit(cursor: &Cursor, stream: &Stream, next: i64) -> Result<(), sbp_client::ClientError> {
    bounded(cursor.commit(vec![(stream.stream_id, Offset(next))], None)).await
}

fn places(cursor: &Cursor) -> Vec<i64> {
    cursor.positions().into_iter().map(|(_, next)| next.0).collect()
}

/// Where a cursor's own stream begins and ends.
async fn bounds(client: &Client, stream: StreamId) -> (i64, i64) {
    let found = bounded(client.positions(&[stream], None))
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    (found.earliest.0, found.latest.0)
}

/// Tells of each frame that a rule takes, when it is passed on.
fn watch(proxy: &Proxy, rule: impl FnOnce(Rule) -> Rule) -> UnboundedReceiver<()> {
    let (sender, passed) = unbounded_channel();
    let hook = Hook::new(move |frame: Held| {
        frame.pass();
        // The test may be over.
        let _ = sender.send(());
    });
    proxy.add(rule(Rule::new(Fault::Hold(hook))));
    passed
}

/// Holds the first frame that a rule takes, and returns it when it is there.
fn hold(proxy: &Proxy, rule: impl FnOnce(Rule) -> Rule) -> UnboundedReceiver<Held> {
    let (sender, held) = unbounded_channel();
    let hook = Hook::new(move |frame| {
        // The test may be over.
        let _ = sender.send(frame);
    });
    proxy.add(rule(Rule::new(Fault::Hold(hook)).nth(1)));
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_job_goes_on_where_its_last_commit_was() {
    let server = server(None);
    let client = client(&server.local_addr().to_string());
    let both = streams(&client, &["orders", "payments"]).await;
    fill(&client, &both[0], 12).await;
    append(&client, &both[1], b"p").await;
    let latest = CursorOptions {
        start: Position::Latest,
        ..CursorOptions::default()
    };
    let first = client.cursor("job", both.clone(), latest).await.unwrap();
    assert_eq!(places(&first), [12, 1]);
    fill(&client, &both[0], 2).await;
    commit(&first, &both[0], 13).await.unwrap();
    assert_eq!(places(&first), [13, 1]);

    // "latest" was settled by the first holder, and committed with the rest.
    append(&client, &both[1], b"p").await;
    let second = client.cursor("job", both.clone(), latest).await.unwrap();
    assert_eq!(places(&second), [13, 1]);
    // It may go back, too.
    commit(&second, &both[0], 3).await.unwrap();
    let third = open(&client, "job", &both[..1]).await;
    assert_eq!(places(&third), [3]);
    commit(&third, &both[0], 4).await.unwrap();
    assert_eq!(
        places(&open(&client, "job", &both).await),
        [4, 1],
        "others keep their places"
    );
    assert_eq!(places(&open(&client, "other-job", &both).await), [0, 0]);
}

/// Puts a commit back, of a server that is gone, as a copy of its data would.
async fn put_back(client: &Client, job: &str, identity: &str, next: i64) {
    let place = format!(r#"{{"stream":1,"name":"orders",{identity}"next":{next}}}"#);
    let record = format!(r#"{{"version":1,"holder":"gone","commit":1,"positions":[{place}]}}"#);
    let kept_in = streams(client, &[&format!("_sbp/cursors/{job}")]).await;
    let options = AppendOptions::default();
    bounded(client.append(kept_in[0].stream_id, record.into_bytes(), &options))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_place_in_one_stream_is_no_place_in_another_of_its_number() {
    let (old, new) = (server(None), server(None));
    let before = client(&old.local_addr().to_string());
    let gone = streams(&before, &["orders"]).await.remove(0);
    fill(&before, &gone, 2).await;
    let opened = open(&before, "job", std::slice::from_ref(&gone)).await;
    commit(&opened, &gone, 2).await.unwrap();
    let kept = bounded(before.committed("job", None)).await.unwrap();
    assert_eq!(
        (kept[0].identity, kept[0].next),
        (gone.identity, Offset(2)),
        "commits say which stream they mean"
    );

    let client = client(&new.local_addr().to_string());
    let orders = streams(&client, &["orders"]).await;
    fill(&client, &orders[0], 3).await;
    assert_eq!(orders[0].stream_id, gone.stream_id);
    let meant = gone.identity.unwrap().to_string();
    put_back(&client, "job", &format!(r#""identity":"{meant}","#), 2).await;
    let refused = bounded(client.cursor("job", orders.clone(), CursorOptions::default())).await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.code(), refused.offset(), refused.is_retriable()),
        (ErrorKind::Rejected, codes::STREAM_REPLACED, Some(Offset(2)), false)
    );
    let found = orders[0].identity.unwrap().to_string();
    for part in ["orders", "job", &meant, &found] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    // That place is given up when somebody says so, and then the stream's own is committed.
    let forget = CursorOptions {
        forget_replaced: true,
        ..CursorOptions::default()
    };
    let opened = bounded(client.cursor("job", orders.clone(), forget)).await.unwrap();
    assert_eq!(places(&opened), [0]);
    commit(&opened, &orders[0], 1).await.unwrap();
    let kept = bounded(client.committed("job", None)).await.unwrap();
    assert_eq!((kept[0].identity, kept[0].next), (orders[0].identity, Offset(1)));
    // What was written before there were identities goes on, and notes it from then on.
    put_back(&client, "old", "", 3).await;
    let opened = open(&client, "old", &orders).await;
    assert_eq!(places(&opened), [3]);
    bounded(opened.commit(Vec::new(), None)).await.unwrap();
    let kept = bounded(client.committed("old", None)).await.unwrap();
    assert_eq!((kept[0].identity, kept[0].next), (orders[0].identity, Offset(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn of_two_holders_one_commits_and_the_other_never_again() {
    let server = server(None);
    let client = client(&server.local_addr().to_string());
    let orders = streams(&client, &["orders"]).await;
    fill(&client, &orders[0], 3).await;
    let (first, second) = (open(&client, "job", &orders).await, open(&client, "job", &orders).await);
    commit(&first, &orders[0], 1).await.unwrap();
    for _ in 0..3 {
        let refused = commit(&second, &orders[0], 3).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.code()),
            (ErrorKind::Rejected, codes::CURSOR_TAKEN)
        );
        assert!(
            !refused.is_retriable() && refused.to_string().contains("job"),
            "{refused}"
        );
        commit(&first, &orders[0], 2).await.unwrap();
    }
    assert_eq!(second.lost().unwrap().code(), codes::CURSOR_TAKEN);
    assert!(first.lost().is_none());

    // Whoever comes next may claim the name by committing what it found.
    let third = open(&client, "job", &orders).await;
    bounded(third.commit(Vec::new(), None)).await.unwrap();
    assert_eq!(
        commit(&first, &orders[0], 3).await.unwrap_err().code(),
        codes::CURSOR_TAKEN
    );
    assert_eq!(places(&open(&client, "job", &orders).await), [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commits_that_are_not_awaited_keep_their_order() {
    let server = server(None);
    let client = client(&server.local_addr().to_string());
    let orders = streams(&client, &["orders"]).await;
    fill(&client, &orders[0], 500).await;
    let cursor = open(&client, "job", &orders).await;
    let commits: Vec<_> = (0..500)
        .map(|next| cursor.commit(vec![(orders[0].stream_id, Offset(next))], None))
        .collect();
    for commit in commits {
        bounded(commit).await.unwrap();
    }
    assert_eq!(places(&cursor), [499]);
    assert_eq!(places(&open(&client, "job", &orders).await), [499]);
    let (_, latest) = bounds(&client, cursor.stream()).await;
    assert!(latest <= 500, "those that waited were stored together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_makes_no_sense_is_refused_here() {
    let server = server(None);
    let client = client(&server.local_addr().to_string());
    let both = streams(&client, &["orders", "payments"]).await;
    for name in ["", "a b", "é", &"x".repeat(300)] {
        let opened = client.cursor(name, both.clone(), CursorOptions::default()).await;
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
    }
    let none = client.cursor("job", Vec::new(), CursorOptions::default()).await;
    assert_eq!(none.unwrap_err().kind(), ErrorKind::Invalid);
    let cursor = open(&client, "a.b/c-D_9", &both[..1]).await;
    for (stream, next) in [(&both[1], 1), (&both[0], -1)] {
        assert_eq!(
            commit(&cursor, stream, next).await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
    assert_eq!(bounds(&client, cursor.stream()).await, (0, 0));

    // A stream of that name with something else in it is not taken for a cursor.
    let own = streams(&client, &["_sbp/cursors/mine"]).await;
    append(&client, &own[0], b"hello").await;
    let opened = client.cursor("mine", both, CursorOptions::default()).await.unwrap_err();
    assert_eq!(opened.kind(), ErrorKind::Incomplete);
    assert!(opened.to_string().contains("no commit"), "{opened}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_commit_goes_beyond_the_end_of_a_stream() {
    let server = server(None);
    let client = client(&server.local_addr().to_string());
    let both = streams(&client, &["orders", "payments"]).await;
    fill(&client, &both[0], 3).await;
    let cursor = open(&client, "job", &both).await;
    let [orders, payments] = [both[0].stream_id, both[1].stream_id];
    let beyond = bounded(cursor.commit(vec![(orders, Offset(3)), (payments, Offset(1))], None)).await;
    let beyond = beyond.unwrap_err();
    assert_eq!(
        (beyond.code(), beyond.stream(), beyond.offset(), beyond.kind()),
        (
            ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
            Some(payments),
            Some(Offset(1)),
            ErrorKind::Invalid
        )
    );
    assert!(!beyond.is_retriable() && !beyond.is_indeterminate(), "{beyond}");
    assert_eq!(places(&cursor), [0, 0]);
    assert_eq!(
        bounds(&client, cursor.stream()).await,
        (0, 0),
        "nothing was committed, of the other place neither"
    );

    // Those that wait together are judged each for itself, and the stream may have grown in between.
    let commits: Vec<_> = (1..=4)
        .map(|next| cursor.commit(vec![(orders, Offset(next))], None))
        .collect();
    let mut results = Vec::new();
    for commit in commits {
        results.push(bounded(commit).await.map_err(|error| error.code()));
    }
    let refused = Err(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS);
    assert_eq!(results, [Ok(()), Ok(()), Ok(()), refused]);
    fill(&client, &both[0], 1).await;
    commit(&cursor, &both[0], 4).await.unwrap();
    assert_eq!(places(&open(&client, "job", &both).await), [4, 0]);

    // Nor does one begin there.
    let at = |next| CursorOptions {
        start: Position::At(Offset(next)),
        ..CursorOptions::default()
    };
    let opened = bounded(client.cursor("other", both[..1].to_vec(), at(5)))
        .await
        .unwrap_err();
    assert_eq!(
        (opened.code(), opened.stream(), opened.offset()),
        (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, Some(orders), Some(Offset(5)))
    );
    let opened = bounded(client.cursor("other", both[..1].to_vec(), at(4)))
        .await
        .unwrap();
    assert_eq!(places(&opened), [4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stream_that_was_made_anew_under_its_name_begins_anew() {
    let server = server(None);
    let client = client(&server.local_addr().to_string());
    let old = streams(&client, &["orders"]).await;
    fill(&client, &old[0], 7).await;
    commit(&open(&client, "job", &old).await, &old[0], 7).await.unwrap();
    client.delete_streams(&[old[0].stream_id], None).await.unwrap();
    let new = streams(&client, &["orders"]).await;
    assert_ne!(new[0].stream_id, old[0].stream_id);
    assert_eq!(places(&open(&client, "job", &new).await), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn old_commits_are_trimmed() {
    let proxy = Proxy::start(ProxyConfig::default()).unwrap();
    let server = server(Some(proxy.address()));
    proxy.set_target(Some(server.local_addr().to_string()));
    let client = client(&proxy.address());
    let orders = streams(&client, &["orders"]).await;
    fill(&client, &orders[0], 200).await;
    let cursor = open(&client, "job", &orders).await;
    let mut trimmed = watch(&proxy, |rule| rule.opcode(OpCode::TRIM_STREAMS).answers());
    for next in 0..200 {
        commit(&cursor, &orders[0], next).await.unwrap();
    }
    // Every 65 commits, beside them.
    for _ in 0..3 {
        bounded(trimmed.recv()).await.unwrap();
    }
    let (earliest, latest) = bounds(&client, cursor.stream()).await;
    assert!(latest == 200 && earliest == 194, "the last one stays: {earliest}");
    assert_eq!(places(&open(&client, "job", &orders).await), [199]);
}
