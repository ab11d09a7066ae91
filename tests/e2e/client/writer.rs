//! Idempotent writers against a real server.

use bytes::BytesMut;
use sbp_client::{Ack, Client, ErrorKind, Records, Writer, WriterOptions};
use sbp_e2e::clients::{client, contents, stream};
use sbp_e2e::servers::{quick, quick_anywhere};
use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_messages::ErrorCode;
use sbp_record::{EncodeOptions, RecordsBuilder, encode_raw};
use sbp_types::{Offset, StreamId, WriterId};
use tokio::sync::watch;

fn record(number: usize) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The values of all records, in order.
async fn values(client: &Client, stream: StreamId) -> Vec<String> {
    let contents = contents(client, stream).await;
    contents.into_iter().map(|(_, value)| value).collect()
}

fn numbers(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| number.to_string()).collect()
}

fn named(epoch: impl Into<Option<i64>>, first_sequence: Option<i64>) -> WriterOptions {
    WriterOptions {
        writer_id: Some(WriterId { high: 7, low: 9 }),
        epoch: epoch.into(),
        first_sequence,
        ..WriterOptions::default()
    }
}

async fn write(writer: &Writer, records: std::ops::Range<usize>) -> Vec<Ack> {
    let appends: Vec<_> = records.map(|number| writer.append(record(number))).collect();
    let mut acks = Vec::new();
    for append in appends {
        acks.push(append.await.unwrap());
    }
    acks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_batches_at_once_are_stored_in_the_order_of_the_calls() {
    let server = quick_anywhere();
    let client = client(server.address());
    bounded_by(LIMIT, async {
        let stream = stream(&client).await;
        let writer = client.writer(stream, WriterOptions::default());
        let acks = write(&writer, 0..1_000).await;
        for (ack, place) in acks.iter().zip(0..) {
            assert_eq!(
                (ack.base_offset, ack.next_offset, ack.duplicate),
                (Some(Offset(place)), Some(Offset(place + 1)), false)
            );
        }
        assert_eq!(writer.next_sequence().await.unwrap(), 1_000);
        // A batch of several records counts them all; a large one goes by reference.
        let mut three = RecordsBuilder::new();
        for number in 1_000..1_003 {
            three.push(Some(&record(number)), None, None, &[]).unwrap();
        }
        let several = writer.append(three);
        let large = writer.append(vec![b'x'; 100_000]);
        assert_eq!(several.await.unwrap().base_offset, Some(Offset(1_000)));
        assert_eq!(large.await.unwrap().base_offset, Some(Offset(1_003)));
        assert_eq!(writer.next_sequence().await.unwrap(), 1_004);
        writer.close().await.unwrap();
        let error = writer.append(record(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(values(&client, stream).await[..1_003], numbers(0..1_003));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_named_writer_goes_on_where_it_stood_or_does_the_same_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let server = quick(Some(dir.path()), "127.0.0.1:0");
    let listen = server.address().to_owned();
    let client = client(&listen);
    bounded_by(LIMIT, async {
        let stream = stream(&client).await;
        let first = client.writer(stream, named(3, None));
        assert_eq!(first.next_sequence().await.unwrap(), 0);
        write(&first, 0..10).await;
        first.close().await.unwrap();
        // The server's process is another one.
        server.shutdown().unwrap();
        let server = quick(Some(dir.path()), &listen);
        let second = client.writer(stream, named(3, None));
        assert_eq!(second.next_sequence().await.unwrap(), 10);
        write(&second, 10..12).await;
        let again = client.writer(stream, named(3, Some(0)));
        let acks = write(&again, 0..14).await;
        let duplicates: Vec<_> = acks.iter().map(|ack| ack.duplicate).collect();
        assert_eq!(duplicates, [&[true; 12][..], &[false; 2]].concat());
        let places: Vec<_> = acks.iter().map(|ack| ack.base_offset.unwrap().0).collect();
        assert_eq!(places, (0..14).collect::<Vec<_>>());
        assert_eq!(values(&client, stream).await, numbers(0..14));
        server.shutdown().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_higher_epoch_fences_the_writer_before_it() {
    let server = quick_anywhere();
    let client = client(server.address());
    bounded_by(LIMIT, async {
        let stream = stream(&client).await;
        let old = client.writer(stream, named(1, None));
        write(&old, 0..3).await;
        let new = client.writer(stream, named(2, None));
        assert_eq!(new.next_sequence().await.unwrap(), 3, "where the older one stands");
        // Asking fences nobody, writing does; a new epoch may begin anew.
        write(&old, 3..4).await;
        write(&client.writer(stream, named(2, Some(0))), 4..5).await;
        let error = old.append(record(5)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Rejected, ErrorCode::WRITER_FENCED)
        );
        let error = old.append(record(6)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Rejected, ErrorCode::WRITER_FENCED)
        );
        assert!(error.to_string().contains("the writer has stopped"), "{error}");
        let late = client.writer(stream, named(1, None));
        assert_eq!(late.next_sequence().await.unwrap_err().code(), ErrorCode::WRITER_FENCED);
        assert_eq!(values(&client, stream).await, numbers(0..5));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn behind_a_refused_batch_a_writer_with_a_name_stops_and_another_goes_on_without_it() {
    let server = quick_anywhere();
    let client = client(server.address());
    bounded_by(LIMIT, async {
        let stream = stream(&client).await;
        for options in [WriterOptions::default(), named(0, None), named(None, None)] {
            let before = values(&client, stream).await.len();
            let writer = client.writer(stream, options);
            let start = writer.next_sequence().await.unwrap();
            write(&writer, 0..1).await;
            let good: Vec<_> = (1..20).map(|number| writer.append(record(number))).collect();
            let bad = writer.append(damaged());
            let behind: Vec<_> = (20..60).map(|number| writer.append(record(number))).collect();
            let error = bad.await.unwrap_err();
            assert_eq!(
                (error.kind(), error.code()),
                (ErrorKind::Rejected, ErrorCode::BATCH_CORRUPT)
            );
            for append in good {
                append.await.unwrap();
            }
            if options.writer_id.is_none() {
                for append in behind {
                    append.await.unwrap();
                }
                assert_eq!(writer.next_sequence().await.unwrap(), 60);
                assert_eq!(values(&client, stream).await[before..], numbers(0..60));
                continue;
            }
            assert!(error.to_string().contains("until it is opened again"), "{error}");
            for append in behind {
                let error = append.await.unwrap_err();
                assert!(!error.is_indeterminate() && !error.is_retriable(), "{error}");
                assert!(error.to_string().contains("open the writer again"), "{error}");
            }
            assert_eq!(values(&client, stream).await[before..], numbers(0..20));
            let again = client.writer(stream, options);
            assert_eq!(again.next_sequence().await.unwrap(), start + 20);
            write(&again, 20..60).await;
            assert_eq!(values(&client, stream).await[before..], numbers(0..60));
        }
    })
    .await;
}

/// A batch that the server refuses.
fn damaged() -> Records {
    let mut damaged = BytesMut::new();
    encode_raw(&EncodeOptions::default(), b"whole", &mut damaged).unwrap();
    let place = damaged.len() - 16;
    damaged[place] ^= 1;
    Records::Encoded {
        batch: damaged.freeze(),
        count: 1,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_too_large_is_refused_before_it_takes_a_place() {
    let server = quick_anywhere();
    let client = client(server.address());
    bounded_by(LIMIT, async {
        let stream = stream(&client).await;
        let writer = client.writer(stream, WriterOptions::default());
        let start = writer.next_sequence().await.unwrap();
        let one = writer.append(record(1));
        let large = writer.append(vec![b'x'; 17 << 20]);
        let mut table = RecordsBuilder::new();
        for _ in 0..17 {
            table.push(Some(&vec![b'x'; 1 << 20]), None, None, &[]).unwrap();
        }
        let several = writer.append(table);
        let nearly = writer.append(vec![b'y'; (16 << 20) - (65 << 10)]);
        let two = writer.append(record(2));
        for refused in [large.await, several.await] {
            let error = refused.unwrap_err();
            assert_eq!(
                (error.kind(), error.code()),
                (ErrorKind::Invalid, ErrorCode::PAYLOAD_TOO_LARGE)
            );
        }
        for stored in [one.await, nearly.await, two.await] {
            stored.unwrap();
        }
        assert_eq!(writer.next_sequence().await.unwrap(), start + 3);
        writer.close().await.unwrap();
        // What is compressed counts as it is stored.
        let options = WriterOptions {
            compression: sbp_record::Compression::LZ4,
            ..named(None, None)
        };
        let writer = client.writer(stream, options);
        assert_eq!(writer.next_sequence().await.unwrap(), 0);
        writer.append(vec![b'x'; 17 << 20]).await.unwrap();
        assert_eq!(writer.next_sequence().await.unwrap(), 1);
        // With a name the refused record keeps its place: nothing is taken behind it.
        let writer = client.writer(stream, named(None, None));
        assert_eq!(writer.next_sequence().await.unwrap(), 1);
        assert_eq!(
            writer.append(vec![b'x'; 17 << 20]).await.unwrap_err().code(),
            ErrorCode::PAYLOAD_TOO_LARGE
        );
        let behind = writer.append(record(1)).await.unwrap_err();
        assert!(behind.to_string().contains("open the writer again"), "{behind}");
        let writer = client.writer(stream, named(None, None));
        assert_eq!(writer.next_sequence().await.unwrap(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_writer_that_is_opened_by_name_takes_over_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = quick(Some(dir.path()), "127.0.0.1:0");
    let listen = server.address().to_owned();
    let client = client(&listen);
    bounded_by(LIMIT, async {
        let stream = stream(&client).await;
        let old = client.writer(stream, named(None, None));
        write(&old, 0..3).await;
        let new = client.writer(stream, named(None, None));
        assert_eq!(new.next_sequence().await.unwrap(), 3);
        assert_eq!((old.epoch(), new.epoch()), (0, 1));
        // It has written nothing, and the older one is shut out all the same.
        let error = old.append(record(99)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Rejected, ErrorCode::WRITER_FENCED)
        );
        assert!(error.to_string().contains("opened again elsewhere: epoch 1"), "{error}");
        let error = old.append(record(99)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::WRITER_FENCED);
        assert!(!error.to_string().contains("open the writer again"), "{error}");
        write(&new, 3..5).await;
        server.shutdown().unwrap();
        let server = quick(Some(dir.path()), &listen);
        let late = client.writer(stream, named(0, None));
        assert_eq!(late.next_sequence().await.unwrap_err().code(), ErrorCode::WRITER_FENCED);
        let third = client.writer(stream, named(None, Some(3)));
        let acks = write(&third, 3..6).await;
        let duplicates: Vec<_> = acks.iter().map(|ack| ack.duplicate).collect();
        assert_eq!(duplicates, [true, true, false], "what is stored is known by its place");
        assert_eq!(third.epoch(), 2);
        assert_eq!(values(&client, stream).await, numbers(0..6));
        server.shutdown().unwrap();
    })
    .await;
}

/// However many open it at once, each has an epoch of its own, and the last one writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_open_a_writer_at_once_each_has_an_epoch_of_its_own() {
    let server = quick_anywhere();
    let clients: Vec<_> = (0..4).map(|_| client(server.address())).collect();
    bounded_by(LIMIT, async {
        let stream = stream(&clients[0]).await;
        for round in 0..20 {
            let opening: Vec<_> = (0..16)
                .map(|number: usize| {
                    let writer = clients[number % clients.len()].writer(stream, named(None, None));
                    tokio::spawn(async move {
                        assert_eq!(writer.next_sequence().await.unwrap(), round);
                        writer
                    })
                })
                .collect();
            let mut writers = Vec::new();
            for opening in opening {
                writers.push(opening.await.unwrap());
            }
            let mut epochs: Vec<_> = writers.iter().map(Writer::epoch).collect();
            epochs.sort_unstable();
            epochs.dedup();
            assert_eq!(epochs.len(), writers.len(), "round {round}");
            let newest = epochs.last().copied();
            for writer in &writers {
                let stored = writer.append(record(usize::try_from(round).unwrap())).await;
                match stored {
                    Ok(ack) => assert!(Some(writer.epoch()) == newest && !ack.duplicate),
                    Err(error) => assert_eq!(error.code(), ErrorCode::WRITER_FENCED),
                }
            }
        }
        assert_eq!(values(&clients[0], stream).await, numbers(0..20));
    })
    .await;
}

/// Shut down and started again under writers that never wait; every append is acknowledged and stored once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_the_server_are_nothing_to_a_writer() {
    const EACH: usize = 600;
    let dir = tempfile::tempdir().unwrap();
    let mut server = quick(Some(dir.path()), "127.0.0.1:0");
    let listen = server.address().to_owned();
    let client = client(&listen);
    bounded_by(LIMIT, async {
        let stream = stream(&client).await;
        let writer = client.writer(stream, WriterOptions::default());
        // Each restart comes in the middle of what the writer may take until the next one.
        let (allow, mut allowed) = watch::channel(EACH);
        let (taken, mut taking) = watch::channel(0);
        let writing = tokio::spawn({
            let writer = writer.clone();
            async move {
                let mut appends = Vec::new();
                for number in 0..5 * EACH {
                    allowed.wait_for(|&most| number < most).await.unwrap();
                    writer.ready().await;
                    appends.push(writer.append(record(number)));
                    taken.send_replace(number + 1);
                }
                for append in appends {
                    append.await.unwrap();
                }
            }
        });
        for round in 0..5 {
            let middle = round * EACH + EACH / 2;
            taking.wait_for(|&number| number >= middle).await.unwrap();
            server.shutdown().unwrap();
            server = quick(Some(dir.path()), &listen);
            allow.send_replace((round + 2) * EACH);
        }
        writing.await.unwrap();
        assert_eq!(writer.epoch(), 0, "nothing was in doubt");
        assert_eq!(values(&client, stream).await, numbers(0..5 * EACH));
        server.shutdown().unwrap();
    })
    .await;
}
