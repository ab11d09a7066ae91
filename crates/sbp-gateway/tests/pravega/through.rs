//! Reading segments through: what is fetched for it, and what changes meanwhile.

use sbp_client::{AppendOptions, Client, ReaderOptions, Records};
use sbp_e2e::clients::{client, whole};
use sbp_e2e::servers;
use sbp_e2e::wait::bounded;
use sbp_record::RecordsBuilder;
use sbp_types::{Offset, StreamId};

use super::pravega;
use super::raw::{NEW, Raw, event, frame, read};
use super::reads::Chance;

const SEGMENT: &str = "sc/st/0.#epoch.0";

/// Appends so many batches of about so many bytes, each of them events of a hundred bytes.
async fn fill(raw: &mut Raw, segment: &str, batches: i64, bytes: usize) -> Vec<u8> {
    assert_eq!(raw.create(segment).await, 21);
    assert_eq!(raw.set_up(1, segment).await, NEW);
    let mut all = Vec::new();
    for number in 1..=batches {
        let events = bytes / 108;
        let data = event(&[u8::try_from(number % 100).unwrap(); 100]).repeat(events);
        raw.send(&super::raw::append(1, &data, events, number)).await;
        assert_eq!(raw.appended(1).await.0, number);
        all.extend(data);
    }
    all
}

/// Reads all of a segment from an offset on, so many bytes at a time.
async fn read_through(raw: &mut Raw, segment: &str, mut at: usize, length: usize, all: &[u8]) {
    while at < all.len() {
        let (is_tail, is_end, data) = raw.read(segment, i64::try_from(at).unwrap(), length).await;
        assert!(!data.is_empty() && data.len() <= length);
        assert_eq!(data, all[at..at + data.len()], "at {at}");
        at += data.len();
        assert_eq!((is_tail, is_end), (at == all.len(), false), "up to {at}");
    }
}

/// Bytes of batches that a client fetches to read a stream once.
async fn stored(client: &Client, id: StreamId) -> u64 {
    let before = client.stats().bytes_in;
    let mut reader = client.reader(vec![whole(id)], ReaderOptions::default());
    while let Some(fetched) = reader.next().await {
        fetched.unwrap();
    }
    client.stats().bytes_in - before
}

#[tokio::test(flavor = "multi_thread")]
async fn each_batch_is_fetched_once_by_who_reads_through() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut raw = Raw::connect(pravega.address()).await;
    // Batches that are larger than reads, about as large, and smaller.
    for (number, (batches, bytes)) in [(6, 1 << 20), (60, 64 << 10), (300, 4_000)].into_iter().enumerate() {
        let segment = format!("sc/st{number}/0.#epoch.0");
        let all = fill(&mut raw, &segment, batches, bytes).await;
        let id = client.find_stream(&format!("sc/st{number}/0"), None).await.unwrap();
        let stored = bounded(stored(&client, id.stream_id)).await;
        assert!(stored > u64::try_from(all.len()).unwrap());
        for length in [10_000, 64 << 10, 300_000, 2 << 20] {
            let mut reader = Raw::connect(pravega.address()).await;
            let before = client.stats();
            bounded(read_through(&mut reader, &segment, 0, length, &all)).await;
            assert_eq!(
                client.stats().bytes_in - before.bytes_in,
                stored,
                "bytes of batches of {bytes}, {length} at a time"
            );
        }
    }
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_read_through_on_one_connection() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut raw = Raw::connect(pravega.address()).await;
    let all = fill(&mut raw, SEGMENT, 40, 100_000).await;
    let before = client.stats();
    let mut at = [0, 1_000_000, 54_321, 2_222_222];
    let begin = at;
    while at.iter().any(|at| *at < all.len()) {
        for at in &mut at {
            if *at < all.len() {
                let (is_tail, _, data) = raw.read(SEGMENT, i64::try_from(*at).unwrap(), 30_000).await;
                assert_eq!(data, all[*at..*at + data.len()], "at {at}");
                *at += data.len();
                assert_eq!(is_tail, *at == all.len());
            }
        }
    }
    let wanted: usize = begin.iter().map(|begin| all.len() - begin).sum();
    let fetched = client.stats().bytes_in - before.bytes_in;
    // Each looks for the batch where it begins, in so many steps at most, and then fetches each batch once.
    let once = u64::try_from(wanted).unwrap() * 21 / 20 + 4 * 12 * 100_000;
    assert!(fetched <= once, "{fetched} bytes were fetched for {wanted}");
    // Asked at once, for one place twice.
    for at in [0, 0, 1_000] {
        raw.send(&frame(9, &read(SEGMENT, at, 100_000))).await;
    }
    for _ in 0..3 {
        let mut answer = raw.answer().await;
        assert_eq!(answer.kind, 10);
        answer.text();
        let at = usize::try_from(answer.long()).unwrap();
        answer.bytes(2);
        let length = usize::try_from(answer.int()).unwrap();
        assert_eq!(answer.bytes(length), all[at..at + length]);
    }
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

async fn append_foreign(client: &Client, id: StreamId) {
    let mut foreign = RecordsBuilder::new();
    foreign.push(Some(b"foreign"), None, None, &[]).unwrap();
    let options = AppendOptions::default();
    client.append(id, Records::from(foreign), &options).await.unwrap();
}

/// A reader that goes on where it is, and what it may see.
async fn step(raw: &mut Raw, at: &mut usize, length: usize, all: &[u8], start: usize) {
    if *at >= all.len() {
        return;
    }
    let offset = i64::try_from(*at).unwrap();
    let mut answer = raw.ask(9, &read(SEGMENT, offset, length)).await;
    if *at < start {
        assert_eq!((answer.kind, answer.long(), answer.text()), (56, 4, SEGMENT.to_owned()));
        assert_eq!(answer.long(), i64::try_from(start).unwrap(), "at {at}");
        *at = start;
        return;
    }
    assert_eq!(
        (answer.kind, answer.text(), answer.long()),
        (10, SEGMENT.to_owned(), offset)
    );
    let (is_tail, is_end) = (answer.bool(), answer.bool());
    let length = usize::try_from(answer.int()).unwrap();
    let data = answer.bytes(length);
    assert!(!data.is_empty());
    assert_eq!(data, all[*at..*at + data.len()], "at {at}");
    *at += data.len();
    assert_eq!((is_tail, is_end), (*at == all.len(), false), "up to {at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_a_slice_whatever_is_appended_truncated_or_trimmed_meanwhile() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut raw = Raw::connect(pravega.address()).await;
    assert_eq!(raw.create(SEGMENT).await, 21);
    assert_eq!(raw.set_up(1, SEGMENT).await, NEW);
    let id = client.find_stream("sc/st/0", None).await.unwrap().stream_id;
    let mut reader = Raw::connect(pravega.address()).await;
    let mut chance = Chance(11);
    let (mut all, mut start, mut number) = (Vec::<u8>::new(), 0, 0);
    let mut at = [0; 3];
    for _ in 0..400 {
        match chance.below(8) {
            0..=2 => {
                number += 1;
                let data = event(&vec![number as u8; chance.below(3_000)]);
                raw.send(&super::raw::append(1, &data, 1, number)).await;
                assert_eq!(raw.appended(1).await.0, number);
                all.extend(data);
            }
            3 => append_foreign(&client, id).await,
            4 if chance.below(10) == 0 => {
                start += chance.below(all.len() - start + 1);
                assert_eq!(raw.truncate(SEGMENT, i64::try_from(start).unwrap()).await, 39);
            }
            _ => {
                let which = chance.below(at.len());
                let length = 1 + chance.below([50, 5_000, 200_000][which]);
                // At least so many bytes are brought.
                step(&mut reader, &mut at[which], length.max(8), &all, start).await;
            }
        }
    }
    assert!(start > 0 && at.iter().all(|at| *at > 0));
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_records_that_are_trimmed_is_not_read() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut raw = Raw::connect(pravega.address()).await;
    let all = fill(&mut raw, SEGMENT, 20, 10_800).await;
    let id = client.find_stream("sc/st/0", None).await.unwrap().stream_id;
    let mut at = 0;
    for _ in 0..3 {
        step(&mut raw, &mut at, 1_000, &all, 0).await;
    }
    assert_eq!(at, 3_000);
    // A hundred events are a batch: this is amid the second one.
    let trimmed = client.trim_streams(&[(id, Offset(150))], None).await.unwrap();
    trimmed.into_iter().for_each(|trimmed| drop(trimmed.unwrap()));
    step(&mut raw, &mut at, 1_000, &all, 150 * 108).await;
    assert_eq!(at, 150 * 108);
    bounded(read_through(&mut raw, SEGMENT, at, 5_000, &all)).await;
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
