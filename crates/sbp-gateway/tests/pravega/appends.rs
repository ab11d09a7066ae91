//! Appends, as their frames are.

use sbp_e2e::clients::client;
use sbp_e2e::servers;

use super::pravega;
use super::raw::{NEW, Raw, append, block, conditional, end, event, frame, id, int, long};

const SEGMENT: &str = "sc/st/0.#epoch.0";

#[tokio::test(flavor = "multi_thread")]
async fn appends_come_in_many_forms_and_each_number_is_stored_once() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut raw = Raw::connect(pravega.address()).await;
    assert_eq!(raw.create(SEGMENT).await, 21);
    assert_eq!(raw.create(SEGMENT).await, 52, "there is one");
    assert_eq!(raw.set_up(1, SEGMENT).await, NEW);
    let (one, two) = (event(b"one"), event(b"two"));
    let mut all = [one.clone(), two.clone()].concat();
    assert_eq!(raw.append(1, &all, 2, 2).await, (2, NEW, 22));
    // A block with padding, and one whose last event goes on in the end.
    raw.send(&block(
        1,
        &[&one[..], &(-1_i32).to_be_bytes(), &int(2), &[0; 2]].concat(),
    ))
    .await;
    raw.send(&end(1, one.len(), &[], 1, 3)).await;
    all.extend(&one);
    let (number, previous, length) = raw.appended(1).await;
    assert_eq!((number, previous, length), (3, 2, 33));
    let partial = [&one[..], &(-2_i32).to_be_bytes(), &int(4), &two[..4]].concat();
    raw.send(&block(1, &partial)).await;
    raw.is_served().await;
    raw.send(&end(1, one.len(), &two[4..], 2, 9)).await;
    all.extend([&one[..], &two].concat());
    assert_eq!(raw.appended(1).await, (9, 3, 55));
    // The same again, and a part of it.
    assert_eq!(raw.append(1, &one, 1, 9).await, (9, 8, -1));
    assert_eq!(raw.append(1, &one, 1, 4).await, (9, 3, -1));
    assert_eq!(raw.read_all(SEGMENT, 0).await, all);
    // Bytes that are no events, and no bytes.
    assert_eq!(raw.append(1, b"raw", 1, 10).await, (10, 9, 58));
    assert_eq!(raw.append(1, b"", 1, 11).await, (11, 10, 58));
    all.extend(b"raw");
    for writer in [1, 2] {
        let mut other = Raw::connect(pravega.address()).await;
        let last = if writer == 1 { 11 } else { NEW };
        assert_eq!(other.set_up(writer, SEGMENT).await, last);
    }
    // A number 0, and one that jumps far.
    let mut other = Raw::connect(pravega.address()).await;
    assert_eq!(other.set_up(0, SEGMENT).await, NEW);
    assert_eq!(other.append(0, b"x", 1, 0).await, (0, NEW, 59));
    assert_eq!(other.set_up(0, SEGMENT).await, 0);
    assert_eq!(other.append(0, b"y", 1, i64::MAX).await, (i64::MAX, 0, 60));
    all.extend(b"xy");
    assert_eq!(other.read_all(SEGMENT, 0).await, all);
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_appends_to_several_segments() {
    let server = servers::start(None);
    let client = client(server.address());
    let pravega = pravega(&client);
    let mut raw = Raw::connect(pravega.address()).await;
    let segments = ["sc/st/0.#epoch.0", "sc/st/1.#epoch.0", "sc/other/0.#epoch.0"];
    for (writer, segment) in (1..).zip(segments) {
        assert_eq!(raw.create(segment).await, 21);
        assert_eq!(raw.set_up(writer, segment).await, NEW);
    }
    let content = |writer: u128, number: i64| event(format!("{number} of {writer}").as_bytes());
    // All are sent before any is acknowledged.
    for (writer, number) in [(1, 1), (2, 1), (3, 1), (2, 2), (1, 2), (3, 2)] {
        let event = content(writer, number);
        raw.send(&block(writer, &event)).await;
        raw.send(&end(writer, event.len(), &[], 1, number)).await;
    }
    let mut last = [0; 3];
    while last != [2; 3] {
        let mut answer = raw.answer().await;
        assert_eq!(answer.kind, 7);
        let writer = usize::try_from(answer.id()).unwrap() - 1;
        let number = answer.long();
        assert!(number > last[writer], "{writer}");
        last[writer] = number;
    }
    for (writer, segment) in (1..).zip(segments) {
        let all = [content(writer, 1), content(writer, 2)].concat();
        assert_eq!(raw.read_all(segment, 0).await, all);
    }
    pravega.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_append_is_done_at_its_length_alone() {
    let server = servers::start(None);
    let client = client(server.address());
    let (first, second) = (pravega(&client), pravega(&client));
    let mut raw = Raw::connect(first.address()).await;
    let mut other = Raw::connect(second.address()).await;
    assert_eq!(raw.create(SEGMENT).await, 21);
    assert_eq!(raw.set_up(1, SEGMENT).await, NEW);
    assert_eq!(other.set_up(2, SEGMENT).await, NEW);
    raw.send(&conditional(1, 1, 0, b"one")).await;
    assert_eq!(raw.appended(1).await, (1, NEW, 11));
    // The other gateway does not know of it yet.
    for expected in [0, 12] {
        other.send(&conditional(2, 1, expected, b"two")).await;
        let mut failed = other.answer().await;
        assert_eq!((failed.kind, failed.id(), failed.long(), failed.long()), (8, 2, 1, 3));
    }
    other.send(&conditional(2, 1, 11, b"two")).await;
    assert_eq!(other.appended(2).await, (1, NEW, 22));
    raw.send(&conditional(1, 2, 22, b"three")).await;
    assert_eq!(raw.appended(1).await, (2, 1, 35));
    // Bytes.
    let payload = [&id(1)[..], &long(3), &long(35), &int(3), b"raw", &long(3)].concat();
    raw.send(&frame(89, &payload)).await;
    assert_eq!(raw.appended(1).await, (3, 2, 38));
    let all = [event(b"one"), event(b"two"), event(b"three"), b"raw".to_vec()].concat();
    assert_eq!(other.read_all(SEGMENT, 0).await, all);
    first.close().await;
    second.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_of_one_segment_have_one_order() {
    let server = servers::start(None);
    let client = client(server.address());
    let gateways = [pravega(&client), pravega(&client)];
    let mut raw = Raw::connect(gateways[0].address()).await;
    assert_eq!(raw.create(SEGMENT).await, 21);
    let write = |place: usize, writer: u128| {
        let address = gateways[place].address();
        async move {
            let mut raw = Raw::connect(address).await;
            assert_eq!(raw.set_up(writer, SEGMENT).await, NEW);
            for number in 1..=60 {
                let content = event(format!("{writer} {number}").as_bytes());
                raw.send(&append(writer, &content, 1, number)).await;
            }
            let mut last = NEW;
            while last < 60 {
                let (number, previous, _) = raw.appended(writer).await;
                assert_eq!(previous, last);
                last = number;
            }
        }
    };
    tokio::join!(write(0, 1), write(1, 2), write(0, 3), write(1, 4));
    let mut other = Raw::connect(gateways[1].address()).await;
    let all = raw.read_all(SEGMENT, 0).await;
    assert_eq!(other.read_all(SEGMENT, 0).await, all);
    let mut numbers = [0; 5];
    let mut left = &all[..];
    while let Some((head, rest)) = left.split_at_checked(8) {
        let length = usize::try_from(u32::from_be_bytes(head[4..].try_into().unwrap())).unwrap();
        let text = std::str::from_utf8(&rest[..length]).unwrap();
        let (writer, number) = text.split_once(' ').unwrap();
        let last = &mut numbers[writer.parse::<usize>().unwrap()];
        *last += 1;
        assert_eq!(*last, number.parse::<i32>().unwrap());
        left = &rest[length..];
    }
    assert_eq!(numbers, [0, 60, 60, 60, 60]);
    // A writer that changes its gateway goes on where it was.
    let mut raw = Raw::connect(gateways[0].address()).await;
    assert_eq!(raw.set_up(2, SEGMENT).await, 60);
    for gateway in gateways {
        gateway.close().await;
    }
    client.close().await;
    server.shutdown().unwrap();
}
