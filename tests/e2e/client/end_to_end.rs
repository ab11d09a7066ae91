//! The client against a real server, over loopback.

use std::path::Path;
use std::time::Duration;

use sbp_client::{
    AppendOptions, Client, ClientConfig, Durability, ErrorKind, Position, Reader, ReaderOptions, Span, TailOptions,
};
use sbp_e2e::batches::records;
use sbp_e2e::clients::{client_with, records_of, stream_ids, whole};
use sbp_e2e::servers::{quick_anywhere, quick_config};
use sbp_e2e::wait::{PATIENCE, bounded};
use sbp_messages::ErrorCode;
use sbp_server::{Server, ServerConfig};
use sbp_types::{Offset, StreamId, TimestampMs};
use tokio::runtime::Handle;

/// A server that is started again at its address with its directory.
fn restarted(dir: &Path, listen: &str) -> Server {
    Server::start(ServerConfig {
        durability: sbp_server::Durability::Fsync,
        shutdown_grace: Duration::from_millis(200),
        ..quick_config(Some(dir), listen)
    })
    .unwrap()
}

fn client(address: &str) -> Client {
    client_with(address, |config| config.tail_wait = Duration::from_millis(300))
}

/// Everything a reader returns, as (stream, offset, value).
async fn read_all(mut reader: Reader) -> Vec<(StreamId, i64, String)> {
    let mut all = Vec::new();
    while let Some(fetched) = bounded(reader.next()).await {
        let fetched = fetched.unwrap();
        for (offset, value) in records_of(&fetched) {
            all.push((fetched.stream, offset.0, String::from_utf8(value).unwrap()));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_appended_is_read_back() {
    let server = quick_anywhere();
    let client = client(server.address());
    let stream = bounded(stream_ids(&client, &["orders"])).await[0];
    let options = AppendOptions {
        timestamp: Some(TimestampMs(1_000)),
        ..AppendOptions::default()
    };
    let ack = bounded(client.append(stream, records(["a", "b"]), &options))
        .await
        .unwrap();
    assert_eq!(
        (ack.base_offset, ack.last_offset(), ack.durability),
        (Some(Offset(0)), Some(Offset(1)), Durability::None)
    );
    // Large enough to be sent by reference.
    let large = "x".repeat(200_000);
    let ack = bounded(client.append(stream, large.clone().into_bytes(), &options))
        .await
        .unwrap();
    assert_eq!((ack.base_offset, ack.last_offset()), (Some(Offset(2)), Some(Offset(2))));
    let read = read_all(client.reader(vec![whole(stream)], ReaderOptions::default())).await;
    let expected = [
        (stream, 0, "a".to_owned()),
        (stream, 1, "b".to_owned()),
        (stream, 2, large),
    ];
    assert_eq!(read, expected);
    let positions = bounded(client.positions(&[stream], None))
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!((positions.earliest, positions.latest), (Offset(0), Offset(3)));
    let at = bounded(client.offsets_for_times(&[(stream, TimestampMs(1_001))], None))
        .await
        .unwrap();
    assert_eq!(at[0].as_ref().unwrap(), &Offset(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_hundred_thousand_records_come_back_in_order_and_once() {
    const BATCHES: usize = 1_000;
    const EACH: usize = 100;
    let server = quick_anywhere();
    let client = client(server.address());
    let stream = bounded(stream_ids(&client, &["many"])).await[0];
    let options = AppendOptions::default();
    let appends = (0..BATCHES).map(|batch| {
        let values = (0..EACH).map(move |record| format!("{batch}/{record}"));
        client.append(stream, records(values), &options)
    });
    // All at once: the order of submission is the order of offsets.
    for (batch, ack) in bounded(join_all(appends)).await.into_iter().enumerate() {
        assert_eq!(
            ack.unwrap().base_offset,
            Some(Offset(i64::try_from(batch * EACH).unwrap()))
        );
    }
    let read = read_all(client.reader(vec![whole(stream)], ReaderOptions::default())).await;
    assert_eq!(read.len(), BATCHES * EACH);
    for (place, (_, offset, value)) in read.iter().enumerate() {
        assert_eq!(*offset, i64::try_from(place).unwrap());
        assert_eq!(*value, format!("{}/{}", place / EACH, place % EACH));
    }
    // A part that begins and ends inside batches, in small answers.
    let span = Span {
        stream,
        start: Offset(150),
        end: Offset(99_950),
    };
    let small = ReaderOptions {
        batch_max_bytes: Some(20_000),
        ..ReaderOptions::default()
    };
    let part = read_all(client.reader(vec![span], small)).await;
    assert_eq!(part, read[150..99_950]);
}

/// Polls futures in their order until all are done.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(done) => *output = Some(done),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_streams_go_in_one_frame_and_are_read_in_the_order_of_spans() {
    let server = quick_anywhere();
    let client = client(server.address());
    let names: Vec<_> = (0..17).map(|index| format!("flights/{index}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let ids = bounded(stream_ids(&client, &names)).await;
    let before = client.stats();
    for round in 0..20 {
        let batches = ids.iter().map(|&id| (id, records([format!("{id} {round}")]))).collect();
        let acks = bounded(client.append_all(batches, &AppendOptions::default()))
            .await
            .unwrap()
            .all()
            .unwrap();
        assert!(acks.iter().all(|ack| ack.base_offset == Some(Offset(round))));
    }
    assert_eq!(client.stats().calls - before.calls, 20, "one frame for all streams");
    // Against the order of their numbers.
    let spans: Vec<_> = ids.iter().rev().map(|&id| whole(id)).collect();
    let read = read_all(client.reader(spans, ReaderOptions::default())).await;
    let expected: Vec<_> = ids
        .iter()
        .rev()
        .flat_map(|&id| (0..20).map(move |round| (id, round, format!("{id} {round}"))))
        .collect();
    assert_eq!(read, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_tail_sees_what_arrives_after_it_began_and_only_that() {
    let server = quick_anywhere();
    let client = client(server.address());
    let ids = bounded(stream_ids(&client, &["a", "b", "c"])).await;
    bounded(client.append(ids[0], records(["old"]), &AppendOptions::default()))
        .await
        .unwrap();
    let from = [
        (ids[0], Position::Latest),
        (ids[1], Position::Earliest),
        (ids[2], Position::Earliest),
    ];
    let mut tail = bounded(client.tail(&from, TailOptions::default())).await.unwrap();
    // Longer than one FETCH waits, so that streams without data are asked for again too.
    for round in 0..30 {
        let id = ids[round % 2];
        let ack = bounded(client.append(id, records([round.to_string()]), &AppendOptions::default()))
            .await
            .unwrap();
        let fetched = bounded(tail.next()).await.unwrap().unwrap();
        assert_eq!(
            (fetched.stream, Some(fetched.from), fetched.len()),
            (id, ack.base_offset, 1)
        );
        if round == 15 {
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reader_and_a_tail_go_on_after_the_server_was_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let server = restarted(dir.path(), "127.0.0.1:0");
    let address = server.address().to_owned();
    let client = client(&address);
    let stream = bounded(stream_ids(&client, &["s"])).await[0];
    let fill = "y".repeat(10_000);
    for batch in 0..40 {
        let values = (0..10).map(|record| format!("{batch}/{record} {fill}"));
        bounded(client.append(stream, records(values), &AppendOptions::default()))
            .await
            .unwrap();
    }
    let mut tail = bounded(client.tail(&[(stream, Position::Latest)], TailOptions::default()))
        .await
        .unwrap();
    // Little is read ahead, so that most is still to come when the server goes.
    let options = ReaderOptions {
        batch_max_bytes: Some(100_000),
        ..ReaderOptions::default()
    };
    let mut reader = client.reader(vec![whole(stream)], options);
    let mut next = 0;
    for _ in 0..3 {
        let fetched = bounded(reader.next()).await.unwrap().unwrap();
        assert_eq!(fetched.from, Offset(next));
        next = fetched.to.0;
    }
    server.shutdown().unwrap();
    drop(server);
    let server = restarted(dir.path(), &address);
    while let Some(fetched) = bounded(reader.next()).await {
        let fetched = fetched.unwrap();
        assert_eq!(fetched.from, Offset(next));
        next = fetched.to.0;
    }
    assert_eq!(next, 400);
    let ack = bounded(client.append(stream, records(["after"]), &AppendOptions::default()))
        .await
        .unwrap();
    assert_eq!(
        (ack.base_offset, ack.durability),
        (Some(Offset(400)), Durability::Fsync)
    );
    assert_eq!(bounded(tail.next()).await.unwrap().unwrap().from, Offset(400));
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_goes_in_the_middle_leaves_typed_outcomes_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let server = restarted(dir.path(), "127.0.0.1:0");
    let address = server.address().to_owned();
    let client = client(&address);
    let stream = bounded(stream_ids(&client, &["s"])).await[0];
    let options = AppendOptions {
        timeout: Some(Duration::from_secs(3)),
        ..AppendOptions::default()
    };
    let under_way = std::sync::Arc::new(tokio::sync::Notify::new());
    let writer = tokio::spawn({
        let (client, under_way) = (client.clone(), under_way.clone());
        async move {
            let mut acked = Vec::new();
            for number in 0.. {
                match client.append(stream, records([number.to_string()]), &options).await {
                    Ok(ack) => {
                        acked.push((ack.base_offset.unwrap().0, number.to_string()));
                        if acked.len() == 5 {
                            under_way.notify_one();
                        }
                    }
                    Err(error) => return (acked, error),
                }
            }
            unreachable!("the loop ends with an error");
        }
    });
    bounded(under_way.notified()).await;
    server.shutdown().unwrap();
    drop(server);
    let (acked, error) = bounded(writer).await.unwrap();
    assert!(!acked.is_empty());
    let expected = [
        ErrorKind::TimedOut,
        ErrorKind::Indeterminate,
        ErrorKind::Unreachable,
        ErrorKind::Rejected,
    ];
    assert!(expected.contains(&error.kind()), "{error:?}");
    assert!(error.to_string().contains(&address), "{error}");

    let server = restarted(dir.path(), &address);
    let read = read_all(client.reader(vec![whole(stream)], ReaderOptions::default())).await;
    for (offset, value) in acked {
        assert!(
            read.contains(&(stream, offset, value.clone())),
            "{value} was acknowledged at {offset}"
        );
    }
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refusals_are_typed() {
    let server = quick_anywhere();
    let client = client(server.address());
    let stream = bounded(stream_ids(&client, &["s"])).await[0];
    let missing = StreamId(99);
    let error = bounded(client.append(missing, records(["x"]), &AppendOptions::default()))
        .await
        .unwrap_err();
    assert_eq!((error.code(), error.stream()), (ErrorCode::NOT_FOUND, Some(missing)));
    let error = bounded(client.find_stream("nope", None)).await.unwrap_err();
    assert_eq!(
        (error.code(), error.stream_name()),
        (ErrorCode::NOT_FOUND, Some("nope"))
    );

    bounded(client.append(stream, records(["x"]), &AppendOptions::default()))
        .await
        .unwrap();
    let expecting = AppendOptions {
        expected_offset: Some(Offset(7)),
        ..AppendOptions::default()
    };
    let error = bounded(client.append(stream, records(["x"]), &expecting))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::PRECONDITION_FAILED, ErrorKind::Rejected)
    );

    let too_large = vec![0; 17 << 20];
    let error = bounded(client.append(stream, too_large, &AppendOptions::default()))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::PAYLOAD_TOO_LARGE, ErrorKind::Invalid)
    );

    let span = Span {
        stream,
        start: Offset(5),
        end: Offset(9),
    };
    let mut reader = client.reader(vec![span], ReaderOptions::default());
    let error = bounded(reader.next()).await.unwrap().unwrap_err();
    assert_eq!(
        (error.code(), error.offset()),
        (ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, Some(Offset(5)))
    );
    assert!(bounded(reader.next()).await.is_none(), "nothing comes after an error");

    let beyond = Span {
        stream,
        start: Offset(0),
        end: Offset(9),
    };
    let mut reader = client.reader(vec![beyond], ReaderOptions::default());
    assert_eq!(bounded(reader.next()).await.unwrap().unwrap().to, Offset(1));
    let error = bounded(reader.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incomplete);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_are_described_by_id_by_name_and_all_in_pages() {
    let server = quick_anywhere();
    let client = client(server.address());
    let names: Vec<_> = (0..1_100).map(|index| format!("s{index}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let ids = bounded(stream_ids(&client, &names)).await;
    let again = bounded(stream_ids(&client, &names[..3])).await;
    assert_eq!(again, ids[..3], "a stream that exists is returned");
    let all = bounded(client.list_streams(None)).await.unwrap();
    assert_eq!(all.iter().map(|stream| stream.stream_id).collect::<Vec<_>>(), ids);
    let some = bounded(client.describe_streams(&[ids[5], StreamId(9_999)], &["s7", "nope"], None))
        .await
        .unwrap();
    assert_eq!(some[0].as_ref().unwrap().name, "s5");
    assert_eq!(some[1].as_ref().unwrap_err().code(), ErrorCode::NOT_FOUND);
    assert_eq!(some[2].as_ref().unwrap().stream_id, ids[7]);
    assert_eq!(some[3].as_ref().unwrap_err().stream_name(), Some("nope"));
    let ranges = bounded(client.list_ranges(ids[0], None)).await.unwrap();
    assert_eq!(ranges.len(), 1);
    assert!(ranges[0].is_open());
    assert!(bounded(client.ping(None)).await.unwrap() < PATIENCE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn readers_that_are_not_consumed_do_not_stop_others() {
    let server = quick_anywhere();
    let mut config = ClientConfig::new(server.address()).unwrap();
    config.receive_credit = 2 << 20;
    config.batch_max_bytes = 1 << 20;
    let client = Client::new(config, Handle::current());
    let ids = bounded(stream_ids(&client, &["a", "b", "c"])).await;
    let fill = "z".repeat(100_000);
    for &id in &ids {
        for batch in 0..40 {
            bounded(client.append(id, records([format!("{batch} {fill}")]), &AppendOptions::default()))
                .await
                .unwrap();
        }
    }
    let mut idle: Vec<_> = ids[..2]
        .iter()
        .map(|&id| client.reader(vec![whole(id)], ReaderOptions::default()))
        .collect();
    for reader in &mut idle {
        assert!(bounded(reader.next()).await.unwrap().is_ok());
    }
    let read = read_all(client.reader(vec![whole(ids[2])], ReaderOptions::default())).await;
    assert_eq!(read.len(), 40);
    for reader in &mut idle {
        let mut rest = 1;
        while let Some(fetched) = bounded(reader.next()).await {
            rest += fetched.unwrap().len();
        }
        assert_eq!(rest, 40);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn readers_give_up_on_a_server_that_stays_away_and_so_do_tails_that_are_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let server = restarted(dir.path(), "127.0.0.1:0");
    let address = server.address().to_owned();
    let client = client(&address);
    let stream = bounded(stream_ids(&client, &["s"])).await[0];
    let timeout = Some(Duration::from_millis(500));
    let mut tail = bounded(client.tail(
        &[(stream, Position::Latest)],
        TailOptions {
            timeout,
            give_up_after: timeout,
            ..TailOptions::default()
        },
    ))
    .await
    .unwrap();
    server.shutdown().unwrap();
    let options = ReaderOptions {
        timeout,
        ..ReaderOptions::default()
    };
    let mut reader = client.reader(
        vec![Span {
            stream,
            start: Offset(0),
            end: Offset(9),
        }],
        options,
    );
    for error in [bounded(tail.next()).await, bounded(reader.next()).await] {
        let error = error.unwrap().unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut),
            "{error:?}"
        );
        assert!(error.to_string().contains(&address), "{error}");
    }
}
