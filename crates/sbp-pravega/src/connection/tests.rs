use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use sbp_wire::testing::{events, every_split, receive, transmitted};
use sbp_wire::{Endpoint, WriteQueue};

use super::*;
use crate::coding::Put;
use crate::event::{CallFailure, Violation};
use crate::kinds::*;
use crate::request::{BlockEnd, Conditional};
use crate::{NEW, put_event};

const WRITER: WriterId = WriterId(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
const SEGMENT: &str = "probe/x/0.#epoch.0";

/// What was said on a connection, and by whom.
struct Step {
    is_clients: bool,
    bytes: Vec<u8>,
}

macro_rules! steps {
    ($name:literal) => {
        steps(include_str!(concat!("../../tests/vectors/", $name, ".hex")))
    };
}

fn steps(text: &str) -> Vec<Step> {
    let lines = text.lines().map(|line| {
        let (side, bytes) = line.split_once(' ').expect("a side and bytes");
        Step {
            is_clients: side == ">",
            bytes: hex::decode(bytes).expect("hexadecimal"),
        }
    });
    lines.collect()
}

/// Conversations in which nobody breaks the protocol.
fn conversations() -> Vec<Vec<Step>> {
    vec![
        steps!("writer"),
        steps!("bytes"),
        steps!("table-wheel"),
        steps!("partial"),
        steps!("append-forms"),
        steps!("conditional"),
        steps!("attributes"),
        steps!("table"),
    ]
}

fn said(steps: &[Step], by_client: bool) -> Vec<u8> {
    let of_side = steps.iter().filter(|step| step.is_clients == by_client);
    of_side.flat_map(|step| step.bytes.iter().copied()).collect()
}

/// The frames in bytes: their types and payloads.
fn frames(bytes: &[u8]) -> Vec<(i32, Bytes)> {
    let mut left = Bytes::copy_from_slice(bytes);
    let mut frames = Vec::new();
    while !left.is_empty() {
        let head = left.split_to(HEAD);
        let kind = i32::from_be_bytes(head[..4].try_into().expect("four bytes"));
        let length = u32::from_be_bytes(head[4..].try_into().expect("four bytes"));
        frames.push((kind, left.split_to(length as usize)));
    }
    frames
}

fn frame(kind: i32, payload: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    frame.put_i32(kind);
    frame.put_i32(payload.len() as i32);
    frame.put_slice(payload);
    frame.to_vec()
}

fn collected(kind: i32, collector: Collector) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    collector.queue(&[], &mut queue);
    frame(kind, &sbp_wire::testing::write_out(&mut queue, usize::MAX, 16))
}

fn hello(high: i32, low: i32) -> Vec<u8> {
    let mut payload = BytesMut::new();
    payload.put_i32(high);
    payload.put_i32(low);
    frame(HELLO, &payload)
}

fn setup() -> Vec<u8> {
    let request = Request::SetupAppend {
        writer: WRITER,
        segment: String::from(SEGMENT),
        token: String::new(),
    };
    let (kind, frame) = request.collect(1).expect("it fits");
    collected(kind, frame)
}

/// What a server is asked by `bytes`, in every way in which they may arrive; what it says; and why it has closed.
fn asked(bytes: &[u8]) -> (Vec<Request>, Vec<u8>, Option<CloseReason>) {
    every_split(bytes, |pieces| {
        let now = Instant::now();
        let mut server = Connection::server(ServerConfig::default(), now);
        let mut asked = Vec::new();
        for piece in pieces {
            receive(&mut server, piece, now);
            for event in events(&mut server) {
                match event {
                    Event::Request { request, .. } => asked.push(request),
                    Event::Closing { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(!server.is_mid_frame(), "nothing is left over");
        (asked, transmitted(&mut server, now), server.close_reason().cloned())
    })
}

fn violation(bytes: &[u8]) -> (Vec<u8>, Violation) {
    match asked(bytes) {
        (_, said, Some(CloseReason::Violation(violation))) => (said, violation),
        other => panic!("{other:?}"),
    }
}

fn greeted(now: Instant) -> Connection {
    let mut client = Connection::client(ClientConfig::default(), now);
    assert_eq!(transmitted(&mut client, now), hello(16, 5));
    receive(&mut client, &hello(16, 5), now);
    assert_eq!(events(&mut client), [Event::Greeted]);
    client
}

/// What a client that has sent `requests`, with ids from 1 on, learns from `bytes`, in every way in which they may arrive.
fn heard(requests: &[Request], bytes: &[u8]) -> Vec<Event> {
    every_split(bytes, |pieces| {
        let now = Instant::now();
        let mut client = greeted(now);
        for (user, request) in (0..).zip(requests) {
            client.send(request, user, now).expect("it fits");
        }
        transmitted(&mut client, now);
        let mut heard = Vec::new();
        for piece in pieces {
            receive(&mut client, piece, now);
            heard.extend(events(&mut client));
        }
        heard
    })
}

fn read(offset: i64) -> Request {
    Request::Read {
        segment: String::from(SEGMENT),
        offset,
        length: 1_000,
        token: String::new(),
    }
}

fn read_reply(offset: i64, data: &'static [u8]) -> Reply {
    Reply::Read {
        segment: String::from(SEGMENT),
        offset,
        is_tail: false,
        is_end: false,
        data: Bytes::from_static(data),
    }
}

fn reply_frame(reply: &Reply, id: i64) -> Vec<u8> {
    collected(reply.kind(), reply.collect(id, HIGH_VERSION).expect("it fits"))
}

#[test]
fn what_real_servers_say_is_written_as_they_write_it() {
    let mut count = 0;
    for steps in conversations() {
        for (kind, payload) in frames(&said(&steps, false)) {
            // What this crate does not ask for has no form here.
            if kind == HELLO || !is_reply(kind) {
                continue;
            }
            let (id, reply) = Reply::decode(kind, &payload).expect("a reply");
            assert_eq!(reply_frame(&reply, id), frame(kind, &payload), "{reply:?}");
            count += 1;
        }
    }
    assert_eq!(count, 40);
}

#[test]
fn what_real_clients_ask_is_written_as_they_write_it() {
    let mut count = 0;
    for steps in conversations() {
        let mut has_block = false;
        for (kind, payload) in frames(&said(&steps, true)) {
            let is_behind_block = std::mem::replace(&mut has_block, kind == APPEND_BLOCK);
            let (id, request) = match kind {
                HELLO | APPEND_BLOCK => continue,
                kind if UNSUPPORTED.iter().any(|(of, _)| *of == kind) => continue,
                APPEND_BLOCK_END => {
                    let end = BlockEnd::readings(&payload).next().expect("a reading").expect("an end");
                    if is_behind_block || end.id == -1 {
                        continue;
                    }
                    let append = Request::Append {
                        writer: end.writer,
                        data: end.data,
                        events: end.events,
                        last: end.last,
                    };
                    (end.id, append)
                }
                kind => Request::decode(kind, &payload).expect("a request"),
            };
            if id == -1 {
                continue;
            }
            let (again, collector) = request.collect(id).expect("it fits");
            assert_eq!(collected(again, collector), frame(kind, &payload), "{request:?}");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn conversations_of_real_peers_are_the_same_however_they_are_cut() {
    for steps in conversations() {
        let (requests, said_by_us, closed) = asked(&said(&steps, true));
        assert_eq!(closed, None);
        assert!(said_by_us.starts_with(&hello(16, 5)));
        // Their replies under the ids that our client gives.
        let mut replies = Vec::new();
        let mut expected = Vec::new();
        let theirs = frames(&said(&steps, false));
        let theirs: Vec<_> = theirs.iter().filter(|(kind, _)| is_reply(*kind)).collect();
        for ((kind, payload), number) in theirs.iter().zip(1..) {
            let (_, reply) = Reply::decode(*kind, payload).expect("a reply");
            replies.extend(reply_frame(&reply, number));
            let user = number as u64 - 1;
            expected.push(Event::Answered { user, reply });
        }
        let (asked, left) = requests.split_at(expected.len());
        assert_eq!(heard(asked, &replies), expected);
        // The read beyond the end.
        assert!(left.len() <= 1);
    }
}

#[test]
fn every_form_of_an_append_is_the_same_bytes() {
    let steps = steps!("append-forms");
    let (requests, ..) = asked(&said(&steps, true));
    let mut stored = Vec::new();
    for request in &requests {
        if let Request::Append { data, .. } = request {
            stored.extend_from_slice(data);
        }
    }
    let replies = frames(&said(&steps, false));
    let whole = replies
        .iter()
        .find_map(|(kind, payload)| match Reply::decode(*kind, payload) {
            Ok((_, Reply::Read { offset: 0, data, .. })) => Some(data),
            _ => None,
        });
    assert_eq!(Some(Bytes::from(stored)), whole, "what the real server has stored");
    let partial = asked(&said(&steps!("partial"), true)).0;
    let [
        _,
        Request::Append {
            data,
            events: 10,
            last: 117,
            ..
        },
    ] = partial.as_slice()
    else {
        panic!("{partial:?}");
    };
    let mut events = crate::Events::new(0);
    events.push(data.clone());
    let mut contents = Vec::new();
    while let Some((_, content)) = events.next_event().expect("events") {
        contents.push(content);
    }
    assert_eq!((contents.len(), events.held()), (10, 0));
    assert!(contents[9].starts_with(b"event-116-y"));
}

#[test]
fn what_makes_a_real_server_close_a_connection_closes_this_one() {
    let of = |steps: &[Step]| violation(&said(steps, true));
    let greeting = hello(16, 5);
    assert_eq!(of(&steps!("unknown-type")), (greeting.clone(), Violation::Type(999)));
    let negative = Fault::Negative {
        what: "its length",
        value: -1,
    };
    let content = Violation::Content {
        kind: READ_SEGMENT,
        fault: negative,
    };
    assert_eq!(of(&steps!("negative-length")), (greeting.clone(), content));
    let versions = Violation::Versions { high: 30, low: 20 };
    assert_eq!(of(&steps!("other-versions")), (greeting.clone(), versions));
    assert_eq!(of(&steps!("no-setup")), (greeting, Violation::Writer));
}

/// A block of an append.
fn block(writer: WriterId, data: &[u8]) -> Vec<u8> {
    let mut payload = BytesMut::new();
    payload.put_id(writer);
    payload.put_slice(data);
    frame(APPEND_BLOCK, &payload)
}

/// The end of an append, in the form of real peers.
fn end(writer: WriterId, whole: i32, data: &[u8], events: i32, last: i64) -> Vec<u8> {
    let mut payload = BytesMut::new();
    payload.put_id(writer);
    payload.put_i32(whole);
    payload.put_i32(data.len() as i32);
    payload.put_slice(data);
    payload.put_i32(events);
    payload.put_i64(last);
    payload.put_i64(9);
    frame(APPEND_BLOCK_END, &payload)
}

/// The same in the form of the page, which has neither the data's length nor a request's id.
fn end_of_page(writer: WriterId, whole: i32, data: &[u8], events: i32, last: i64) -> Vec<u8> {
    let mut payload = BytesMut::new();
    payload.put_id(writer);
    payload.put_i32(whole);
    payload.put_slice(data);
    payload.put_i32(events);
    payload.put_i64(last);
    frame(APPEND_BLOCK_END, &payload)
}

fn event(content: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::new();
    put_event(&mut bytes, content).expect("it fits");
    bytes
}

fn appended(bytes: &[&[u8]]) -> Vec<u8> {
    let (requests, _, closed) = asked(&[&[setup().as_slice()], bytes].concat().concat());
    assert_eq!(closed, None);
    match requests.as_slice() {
        [Request::SetupAppend { .. }, Request::Append { data, .. }] => data.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn appends_in_the_form_of_the_page_are_the_same() {
    // The lengths at which the data of the page might be taken for others of the real form are among these.
    for length in 0..40 {
        let content: Vec<u8> = (0..length).collect();
        let whole = event(&content);
        let stored = whole.len() as i32;
        assert_eq!(appended(&[&end(WRITER, stored, &whole, 1, 7)]), whole);
        assert_eq!(
            appended(&[&end_of_page(WRITER, stored, &whole, 1, 7)]),
            whole,
            "{length}"
        );
        let begun = block(WRITER, &whole);
        assert_eq!(appended(&[&begun, &end(WRITER, stored, &[], 1, 7)]), whole);
        assert_eq!(appended(&[&begun, &end_of_page(WRITER, stored, &[], 1, 7)]), whole);
    }
}

#[test]
fn a_partial_event_needs_no_whole_one_before_it() {
    let whole = event(b"an event in two parts");
    let (first, rest) = whole.split_at(11);
    let mut begun = BytesMut::new();
    begun.put_i32(-2);
    begun.put_sized(first).expect("it fits");
    let begun = block(WRITER, &begun);
    assert_eq!(appended(&[&begun, &end(WRITER, 0, rest, 1, 7)]), whole);
    assert_eq!(appended(&[&begun, &end_of_page(WRITER, 0, rest, 1, 7)]), whole);
    // Other frames may stand between.
    let between = frame(KEEP_ALIVE, &[]);
    assert_eq!(appended(&[&begun, &between, &end(WRITER, 0, rest, 1, 7)]), whole);
}

#[test]
fn appends_that_do_not_fit_together_close_the_connection() {
    let whole = event(b"event");
    let stored = whole.len() as i32;
    let other = WriterId(7);
    let of = |parts: &[&[u8]]| violation(&[&[setup().as_slice()], parts].concat().concat()).1;
    let content = |fault| Violation::Content {
        kind: APPEND_BLOCK_END,
        fault,
    };
    assert_eq!(of(&[&end(other, stored, &whole, 1, 7)]), Violation::Writer);
    assert_eq!(of(&[&block(other, &whole)]), Violation::Writer);
    assert_eq!(of(&[&block(WRITER, &whole), &block(WRITER, &whole)]), Violation::Writer);
    assert_eq!(
        of(&[&block(WRITER, &whole), &end(other, stored, &[], 1, 7)]),
        Violation::Writer
    );
    assert_eq!(of(&[&end(WRITER, stored, &whole, 0, 7)]), content(Fault::NoEvents(0)));
    assert_eq!(of(&[&end(WRITER, stored, &whole, -5, 7)]), content(Fault::NoEvents(-5)));
    for wrong in [stored + 1, -1] {
        let fault = Fault::Block {
            whole: i64::from(wrong),
            length: whole.len(),
        };
        let parts = [block(WRITER, &whole), end(WRITER, wrong, &[], 1, 7)];
        assert_eq!(of(&[&parts[0], &parts[1]]), content(fault));
    }
    let strange = [&whole[..], &9_i32.to_be_bytes()].concat();
    assert_eq!(
        of(&[&block(WRITER, &strange), &end(WRITER, stored, &[], 1, 7)]),
        content(Fault::NoEvent(9))
    );
}

proptest! {
    /// However an append is cut into a block, a partial event, padding and an end, the same bytes are appended.
    #[test]
    fn any_cut_of_an_append_is_the_same(
        contents in vec(vec(any::<u8>(), 0..30), 1..8),
        whole_events in 0_usize..8,
        partial in 0_usize..40,
        padding in 0_usize..20,
        is_page in any::<bool>(),
    ) {
        let all: Vec<_> = contents.iter().map(|content| event(content)).collect();
        let whole_events = whole_events.min(all.len());
        let mut data: Vec<u8> = all[..whole_events].concat();
        let whole = data.len() as i32;
        let rest = all[whole_events..].concat();
        let (begun, rest) = rest.split_at(partial.min(rest.len()));
        if rest.is_empty() && begun.is_empty() {
            data.extend(frame(-1, &vec![0; padding]));
        } else {
            data.extend(frame(-2, begun));
        }
        let count = all.len() as i32;
        let end = match is_page {
            true => end_of_page(WRITER, whole, rest, count, 7),
            false => end(WRITER, whole, rest, count, 7),
        };
        let now = Instant::now();
        let mut server = Connection::server(ServerConfig::default(), now);
        receive(&mut server, &[setup(), block(WRITER, &data), end].concat(), now);
        let told = events(&mut server);
        let [_, Event::Request { request: Request::Append { data, events, .. }, .. }] = told.as_slice() else {
            panic!("{told:?}");
        };
        prop_assert_eq!(&data[..], &all.concat()[..]);
        prop_assert_eq!(*events, count);
    }
}

#[test]
fn reads_in_the_form_of_the_page_are_the_same() {
    let mut payload = BytesMut::new();
    payload.put_text(SEGMENT).expect("it fits");
    payload.put_i64(0);
    payload.put_i32(1_000);
    payload.put_text("").expect("it fits");
    assert_eq!(asked(&frame(READ_SEGMENT, &payload)).0, [read(0)]);
    for data in [
        &b"\0\0\0\0"[..],
        b"\0\0\0\0\0\0\0\x04",
        b"\0\0\0\0\0\0\0\x04abcd",
        b"abcdefgh",
        b"\0\0\0\0\0\0\0\x05abcde",
    ] {
        let mut payload = BytesMut::new();
        payload.put_text(SEGMENT).expect("it fits");
        payload.put_i64(0);
        payload.put_bool(false);
        payload.put_bool(false);
        payload.put_slice(data);
        let reply = read_reply(0, data);
        let expected = Event::Answered { user: 0, reply };
        assert_eq!(heard(&[read(0)], &frame(SEGMENT_READ, &payload)), [expected]);
    }
}

#[test]
fn a_server_may_answer_a_read_in_several_replies() {
    let first = read_reply(0, b"abcd");
    let second = read_reply(4, b"efgh");
    let now = Instant::now();
    let mut client = greeted(now);
    client.send(&read(0), 1, now).expect("it fits");
    receive(&mut client, &reply_frame(&first, 1), now);
    assert_eq!(events(&mut client), [Event::Answered { user: 1, reply: first }]);
    client.send(&read(4), 2, now).expect("it fits");
    // The rest of the answer to the first request, and then that to the second.
    receive(&mut client, &reply_frame(&second, 1), now);
    let answered = Event::Answered {
        user: 2,
        reply: second.clone(),
    };
    assert_eq!(events(&mut client), [answered]);
    receive(&mut client, &reply_frame(&second, 2), now);
    assert_eq!(events(&mut client), []);
    assert_eq!(client.stats().unknown_replies, 1);
}

#[test]
fn both_forms_of_a_wrong_event_number_are_read() {
    let append = Request::Append {
        writer: WRITER,
        data: Bytes::from_static(b"\0\0\0\0\0\0\0\0"),
        events: 1,
        last: 3,
    };
    let reply = Reply::InvalidEventNumber {
        writer: WRITER,
        number: Some(3),
    };
    for version in [16, 15] {
        let bytes = collected(reply.kind(), reply.collect(1, version).expect("it fits"));
        assert_eq!(bytes.len(), if version == 16 { 42 } else { 34 });
        let expected = Event::Answered {
            user: 0,
            reply: reply.clone(),
        };
        assert_eq!(heard(std::slice::from_ref(&append), &bytes), [expected]);
    }
    // The server takes the form that the client knows.
    let now = Instant::now();
    let mut server = Connection::server(ServerConfig::default(), now);
    let bytes = end(WRITER, 8, &event(b""), 1, 3);
    receive(&mut server, &[hello(15, 5), setup(), bytes].concat(), now);
    let calls: Vec<_> = events(&mut server)
        .into_iter()
        .map(|event| match event {
            Event::Request { call, .. } => call,
            other => panic!("{other:?}"),
        })
        .collect();
    transmitted(&mut server, now);
    server.answer(calls[1], &reply, now).expect("it fits");
    assert_eq!(transmitted(&mut server, now).len(), 34);
}

#[test]
fn replies_without_what_newer_versions_add_are_read() {
    let append = Request::ConditionalAppend {
        writer: WRITER,
        number: 2,
        expected: 0,
        data: Conditional::Event(Bytes::from_static(b"x")),
    };
    let mut payload = BytesMut::new();
    payload.put_id(WRITER);
    payload.put_i64(2);
    let reply = |previous| Reply::Appended {
        writer: WRITER,
        number: 2,
        previous,
        length: None,
    };
    let told = |reply| vec![Event::Answered { user: 0, reply }];
    let append = [append];
    assert_eq!(heard(&append, &frame(DATA_APPENDED, &payload)), told(reply(None)));
    let failed = Reply::ConditionFailed {
        writer: WRITER,
        number: 2,
    };
    assert_eq!(heard(&append, &frame(CONDITIONAL_CHECK_FAILED, &payload)), told(failed));
    payload.put_i64(NEW);
    assert_eq!(heard(&append, &frame(DATA_APPENDED, &payload)), told(reply(Some(NEW))));
    // What is longer than known is skipped.
    payload.put_i64(1);
    payload.put_i64(-1);
    payload.put_slice(b"more");
    assert_eq!(heard(&append, &frame(DATA_APPENDED, &payload)), told(reply(Some(NEW))));
}

#[test]
fn lists_that_claim_more_than_there_is_close_the_connection() {
    let mut payload = BytesMut::new();
    payload.put_i64(1);
    payload.put_text(SEGMENT).expect("it fits");
    payload.put_text("").expect("it fits");
    for (kind, count) in [
        (UPDATE_ENTRIES, i32::MAX),
        (UPDATE_ENTRIES, 2),
        (READ_TABLE, -1),
        (REMOVE_KEYS, 4),
    ] {
        let mut payload = payload.clone();
        payload.put_i32(count);
        payload.put_slice(&[0; 31]);
        let fault = Fault::Count {
            count: i64::from(count),
            length: 31,
        };
        assert_eq!(violation(&frame(kind, &payload)).1, Violation::Content { kind, fault });
    }
    let now = Instant::now();
    let mut client = greeted(now);
    let mut bomb = BytesMut::new();
    bomb.put_i64(1);
    bomb.put_i32(1 << 28);
    receive(&mut client, &frame(ENTRIES_UPDATED, &bomb), now);
    assert!(matches!(client.close_reason(), Some(CloseReason::Violation(_))));
}

#[test]
fn frames_that_are_too_long_are_refused_by_their_heads() {
    for length in [MAX_LENGTH + 1, i32::MAX] {
        let mut head = BytesMut::new();
        head.put_i32(READ_SEGMENT);
        head.put_i32(length);
        let fault = Fault::TooLong {
            what: "it",
            length: length as u64 + 8,
            limit: 16_777_215,
        };
        let kind = READ_SEGMENT;
        assert_eq!(violation(&head).1, Violation::Content { kind, fault });
    }
    let now = Instant::now();
    let mut client = greeted(now);
    let append = |length| Request::Append {
        writer: WRITER,
        data: Bytes::from(vec![0; length]),
        events: 1,
        last: 1,
    };
    assert!(matches!(client.send(&append(1 << 24), 1, now), Err(Refused::Unfit(_))));
    assert_eq!(client.own_calls(), 0);
    assert_eq!(client.send(&append(9 << 20), 1, now), Ok(()));
}

/// What a frame may have behind its head.
const MAX_LENGTH: i32 = (1 << 24) - 1 - 8;

#[test]
fn what_is_known_and_not_done_is_refused() {
    let mut payload = BytesMut::new();
    payload.put_i64(77);
    payload.put_slice(b"whatever");
    for (kind, name) in UNSUPPORTED {
        let (requests, said, closed) = asked(&frame(kind, &payload));
        assert_eq!((requests, closed), (vec![], None));
        assert_eq!(said, reply_frame(&Reply::NotSupported(name.to_owned()), 77));
    }
    // Replies are nothing that a client says.
    assert_eq!(
        violation(&frame(DATA_APPENDED, &payload)).1,
        Violation::Type(DATA_APPENDED)
    );
}

#[test]
fn requests_before_a_hello_are_served_and_keep_alives_come_back() {
    let (requests, said, closed) = asked(&[frame(KEEP_ALIVE, &[]), setup()].concat());
    assert_eq!((requests.len(), closed), (1, None));
    assert_eq!(said, frame(KEEP_ALIVE, &[]));
}

#[test]
fn a_writer_that_could_not_be_set_up_does_not_append() {
    let now = Instant::now();
    let mut server = Connection::server(ServerConfig::default(), now);
    receive(&mut server, &setup(), now);
    let told = events(&mut server);
    let [Event::Request { call, .. }] = told.as_slice() else {
        panic!("{told:?}");
    };
    let none = Reply::NoSuchSegment {
        segment: String::from(SEGMENT),
        offset: None,
    };
    server.answer(*call, &none, now).expect("it fits");
    receive(&mut server, &end(WRITER, 8, &event(b""), 1, 3), now);
    assert_eq!(server.close_reason(), Some(&CloseReason::Violation(Violation::Writer)));
}

#[test]
fn a_reply_of_another_kind_closes_the_connection() {
    let now = Instant::now();
    let mut client = greeted(now);
    client.send(&read(0), 5, now).expect("it fits");
    receive(
        &mut client,
        &reply_frame(&Reply::Created(String::from(SEGMENT)), 1),
        now,
    );
    let kind = SEGMENT_CREATED;
    let violation = Violation::OtherReply { kind, id: 1 };
    assert_eq!(client.close_reason(), Some(&CloseReason::Violation(violation)));
    let told = events(&mut client);
    assert!(matches!(told[0], Event::CallFailed { user: 5, .. }), "{told:?}");
    // A failure answers anything, and one without a known id nothing.
    let failure = Reply::IsSealed {
        segment: String::from(SEGMENT),
        offset: Some(0),
    };
    let bytes = [reply_frame(&failure, 12), reply_frame(&failure, 1)].concat();
    let reply = failure;
    assert_eq!(heard(&[read(0)], &bytes), [Event::Answered { user: 0, reply }]);
}

#[test]
fn a_server_of_other_versions_or_without_hello_is_none() {
    let now = Instant::now();
    let mut client = Connection::client(ClientConfig::default(), now);
    receive(&mut client, &hello(4, 1), now);
    let violation = Violation::Versions { high: 4, low: 1 };
    assert_eq!(client.close_reason(), Some(&CloseReason::Violation(violation)));
    let mut client = Connection::client(ClientConfig::default(), now);
    let late = now + Duration::from_secs(10);
    assert_eq!(client.poll_timeout(), Some(late));
    client.handle_timeout(late);
    assert_eq!(
        client.close_reason(),
        Some(&CloseReason::NotGreeted(Duration::from_secs(10)))
    );
}

#[test]
fn a_client_says_that_it_is_there_and_notices_when_the_server_is_not() {
    let now = Instant::now();
    let mut client = greeted(now);
    let after = |seconds| now + Duration::from_secs(seconds);
    client.send(&read(0), 1, now).expect("it fits");
    transmitted(&mut client, now);
    client.handle_timeout(after(20));
    assert_eq!(transmitted(&mut client, after(20)), frame(KEEP_ALIVE, &[]));
    receive(&mut client, &frame(KEEP_ALIVE, &[]), after(20));
    client.handle_timeout(after(40));
    assert_eq!(transmitted(&mut client, after(40)), frame(KEEP_ALIVE, &[]));
    // A read that waits for longer than a reply may take ends without an answer; the connection goes on.
    client.handle_timeout(after(60));
    let failed = Event::CallFailed {
        user: 1,
        failure: CallFailure::DeadlineExceeded,
        bytes_sent: true,
    };
    assert_eq!(events(&mut client), [failed]);
    assert_eq!(client.close_reason(), None);
    client.handle_timeout(after(80));
    assert_eq!(
        client.close_reason(),
        Some(&CloseReason::Silent(Duration::from_secs(60)))
    );
}

#[test]
fn a_server_takes_no_more_requests_than_its_limits_allow() {
    let now = Instant::now();
    let config = ServerConfig {
        calls: 2,
        ..ServerConfig::default()
    };
    let mut server = Connection::server(config, now);
    let (kind, collector) = read(0).collect(1).expect("it fits");
    let bytes = collected(kind, collector);
    receive(&mut server, &bytes.repeat(5), now);
    let told = events(&mut server);
    assert_eq!((told.len(), server.peer_calls()), (2, 2));
    assert!(!server.wants_read());
    let Event::Request { call, .. } = told[0] else {
        panic!("{told:?}");
    };
    server.answer(call, &read_reply(0, b"abcdefgh"), now).expect("it fits");
    assert_eq!(events(&mut server).len(), 1);
    assert!(matches!(
        server.answer(call, &read_reply(0, b""), now),
        Err(Refused::UnknownCall)
    ));
}
