//! Bytes at any offset, and what segments are.

use sbp_client::{AppendOptions, Records};
use sbp_e2e::clients::client;
use sbp_e2e::servers;
use sbp_record::RecordsBuilder;

use super::pravega;
use super::raw::{NEW, Raw, block, end, event, frame, id, int, long, read, text};

const SEGMENT: &str = "sc/st/0.#epoch.0";

/// Numbers by chance, the same each time.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

/// Sends an append cut in a way found by chance.
async fn append_cut(raw: &mut Raw, chance: &mut Chance, data: &[u8], number: i64) {
    match chance.below(4) {
        0 => raw.send(&super::raw::append(1, data, 1, number)).await,
        1 => {
            raw.send(&block(1, data)).await;
            raw.send(&end(1, data.len(), &[], 1, number)).await;
        }
        2 => {
            let padding = [&(-1_i32).to_be_bytes()[..], &int(3), &[0; 3]].concat();
            raw.send(&block(1, &[data, &padding].concat())).await;
            raw.send(&end(1, data.len(), &[], 1, number)).await;
        }
        _ => {
            let whole = chance.below(data.len() + 1);
            let cut = whole + chance.below(data.len() - whole + 1);
            let begun = &data[whole..cut];
            let partial = [&(-2_i32).to_be_bytes()[..], &int(begun.len()), begun].concat();
            raw.send(&block(1, &[&data[..whole], &partial].concat())).await;
            raw.send(&end(1, whole, &data[cut..], 1, number)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_at_any_offset_is_a_slice_also_after_restart_trim_and_records_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut chance = Chance(7);
    let mut all: Vec<u8> = Vec::new();
    let mut start = 0;
    let mut number = 0;
    for round in 0..4 {
        let server = servers::start(Some(directory.path()));
        let client = client(server.address());
        let pravega = pravega(&client);
        let mut raw = Raw::connect(pravega.address()).await;
        if round == 0 {
            assert_eq!(raw.create(SEGMENT).await, 21);
        }
        let id = client.find_stream("sc/st/0", None).await.unwrap().stream_id;
        let last = raw.set_up(1, SEGMENT).await;
        assert_eq!(last, if round == 0 { NEW } else { number });
        for _ in 0..60 {
            let data = match chance.below(3) {
                0 => (0..chance.below(300)).map(|_| chance.below(3) as u8).collect(),
                _ => event(&vec![b'e'; chance.below(2_000)]),
            };
            number += 1;
            append_cut(&mut raw, &mut chance, &data, number).await;
            assert_eq!(raw.appended(1).await.0, number);
            all.extend(&data);
            if chance.below(4) == 0 {
                let mut foreign = RecordsBuilder::new();
                for _ in 0..=chance.below(5) {
                    foreign.push(Some(b"foreign"), None, None, &[]).unwrap();
                }
                let options = AppendOptions::default();
                client.append(id, Records::from(foreign), &options).await.unwrap();
            }
        }
        assert_eq!(
            raw.info(SEGMENT).await,
            (false, i64::try_from(all.len()).unwrap(), start)
        );
        // Other gateways know nothing.
        let other = super::pravega(&client);
        for address in [pravega.address(), other.address()] {
            let mut reader = Raw::connect(address).await;
            for _ in 0..60 {
                let first = usize::try_from(start).unwrap();
                let offset = first + chance.below(all.len() - first);
                let (is_tail, is_end, data) = reader
                    .read(SEGMENT, i64::try_from(offset).unwrap(), 1 + chance.below(5_000))
                    .await;
                assert_eq!(data, all[offset..offset + data.len()], "at {offset}");
                assert_eq!(
                    (is_tail, is_end),
                    (offset + data.len() == all.len(), false),
                    "at {offset}"
                );
            }
            assert_eq!(
                reader.read_all(SEGMENT, start).await,
                all[usize::try_from(start).unwrap()..]
            );
        }
        // At the very end in the last round but one: nothing is left, and the segment goes on where it was.
        let first = usize::try_from(start).unwrap();
        start = i64::try_from(if round == 2 {
            all.len()
        } else {
            first + chance.below(all.len() - first)
        })
        .unwrap();
        assert_eq!(raw.truncate(SEGMENT, start).await, 39);
        assert_eq!(
            raw.info(SEGMENT).await,
            (false, i64::try_from(all.len()).unwrap(), start)
        );
        if start > 0 {
            let mut gone = raw.ask(9, &read(SEGMENT, start - 1, 100)).await;
            assert_eq!(
                (gone.kind, gone.long(), gone.text(), gone.long()),
                (56, 4, SEGMENT.to_owned(), start)
            );
        }
        other.close().await;
        pravega.close().await;
        client.close().await;
        server.shutdown().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_segment_ends_and_a_deleted_one_is_gone() {
    let server = servers::start(None);
    let client = client(server.address());
    let (pravega, other) = (pravega(&client), pravega(&client));
    let mut raw = Raw::connect(pravega.address()).await;
    let mut beside = Raw::connect(other.address()).await;
    assert_eq!(raw.create(SEGMENT).await, 21);
    assert_eq!(raw.set_up(1, SEGMENT).await, NEW);
    assert_eq!(raw.append(1, b"bytes", 1, 1).await, (1, NEW, 5));
    // Two that wait at the end see that it is one, whoever seals it.
    beside.send(&frame(9, &read(SEGMENT, 5, 100))).await;
    let mut waiting = Raw::connect(pravega.address()).await;
    waiting.send(&frame(9, &read(SEGMENT, 5, 100))).await;
    assert_eq!(raw.about(28, SEGMENT).await.kind, 29);
    assert_eq!(raw.about(28, SEGMENT).await.kind, 29, "again");
    for each in [&mut beside, &mut waiting] {
        let mut ended = each.answer().await;
        assert_eq!((ended.kind, ended.text(), ended.long()), (10, SEGMENT.to_owned(), 5));
        assert_eq!((ended.bool(), ended.bool(), ended.int()), (false, true, 0));
    }
    assert_eq!(raw.info(SEGMENT).await, (true, 5, 0));
    raw.send(&super::raw::append(1, b"more", 1, 2)).await;
    let mut sealed = raw.answer().await;
    assert_eq!((sealed.kind, sealed.long(), sealed.text()), (51, 3, SEGMENT.to_owned()));
    assert_eq!(raw.read(SEGMENT, 2, 100).await, (true, false, b"tes".to_vec()));
    waiting.send(&frame(9, &read(SEGMENT, 6, 100))).await;
    waiting.is_closed("a read behind the end of a sealed segment").await;
    // A writer of another connection is told too.
    assert_eq!(beside.set_up(2, SEGMENT).await, NEW);
    beside.send(&super::raw::append(2, b"more", 1, 1)).await;
    assert_eq!(beside.answer().await.kind, 51);
    assert_eq!(raw.about(30, SEGMENT).await.kind, 31);
    for kind in [28, 30] {
        let mut gone = raw.about(kind, SEGMENT).await;
        assert_eq!((gone.kind, gone.long(), gone.text()), (53, 7, SEGMENT.to_owned()));
    }
    assert_eq!(raw.truncate(SEGMENT, 0).await, 53);
    assert_eq!(raw.ask(9, &read(SEGMENT, 0, 100)).await.kind, 53);
    let set_up = [&long(2)[..], &id(9), &text(SEGMENT), &text("")].concat();
    assert_eq!(raw.ask(1, &set_up).await.kind, 53);
    let mut info = raw.about(11, SEGMENT).await;
    assert_eq!(
        (info.kind, info.long(), info.text(), info.bool()),
        (12, 7, SEGMENT.to_owned(), false)
    );
    pravega.close().await;
    other.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_are_compared_and_set_and_what_is_not_served_is_said() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut raw = Raw::connect(pravega.address()).await;
    assert_eq!(raw.create(SEGMENT).await, 21);
    let named = [&long(6)[..], &text(SEGMENT), &id(77)].concat();
    let value = [&named[..], &text("")].concat();
    let set = |new, expected| [&named[..], &long(new), &long(expected), &text("")].concat();
    let mut answer = raw.ask(34, &value).await;
    assert_eq!((answer.kind, answer.long(), answer.long()), (35, 6, NEW));
    for (new, expected, is_set, now) in [
        (5, 4, false, NEW),
        (5, NEW, true, 5),
        (8, NEW, false, 5),
        (-3, 5, true, -3),
    ] {
        let mut answer = raw.ask(36, &set(new, expected)).await;
        assert_eq!((answer.kind, answer.long(), answer.bool()), (37, 6, is_set), "{new}");
        let mut answer = raw.ask(34, &value).await;
        assert_eq!((answer.kind, answer.long(), answer.long()), (35, 6, now));
    }
    for kind in [32, 40, 41, 58, 68, 90] {
        let mut refused = raw.about(kind, SEGMENT).await;
        assert_eq!((refused.kind, refused.long()), (57, 7), "{kind}");
    }
    // No stream can be named so.
    for segment in ["2026/st/0.#epoch.0", "sc/st/0.#epoch.1", "st", "sc/größe/0.#epoch.0"] {
        assert_eq!(raw.create(segment).await, 61, "{segment}");
    }
    // A stream of others is no segment.
    sbp_e2e::clients::streams(&client, &["sc/native/0"]).await;
    assert_eq!(raw.create("sc/native/0.#epoch.0").await, 52);
    assert_eq!(raw.about(28, "sc/native/0.#epoch.0").await.kind, 53);
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
