//! Where payloads come to lie.

use bytes::BufMut;
use sbp_frame::OpCode;
use sbp_session::{Event, SessionConfig};

use crate::script::{Raw, Subject, pattern};

/// Receives in reads of at most `step` bytes and returns the payload's chunks.
fn chunks(subject: &mut Subject, bytes: &[u8], step: usize) -> Vec<bytes::Bytes> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let mut buffer = subject.session.recv_buffer();
        let count = buffer.remaining_mut().min(rest.len()).min(step);
        buffer.put_slice(&rest[..count]);
        subject.session.handle_received(count, subject.now);
        rest = &rest[count..];
        while let Some(event) = subject.session.poll_event() {
            if let Event::Request(frame) | Event::Response { frame, .. } = event {
                found.extend(frame.payload.chunks().iter().cloned());
            }
        }
    }
    found
}

fn answer(length: usize) -> Vec<u8> {
    Raw::response(OpCode::FETCH, 1).payload(pattern(length)).bytes()
}

#[test]
fn a_charged_payload_lies_in_one_aligned_piece() {
    for length in [64 * 1024, 100_001, 3 << 20] {
        for step in [1460, 60_000, usize::MAX] {
            let mut subject = Subject::client();
            subject.call(OpCode::FETCH, 1, 3 << 20);
            let found = chunks(&mut subject, &answer(length), step);
            let [payload] = found.as_slice() else {
                panic!("{} pieces", found.len())
            };
            assert_eq!(payload.as_ptr().align_offset(64), 0, "{length} in reads of {step}");
            assert_eq!(payload[..], pattern(length));
            let copied = subject.session.stats().copied_bytes;
            assert!(
                copied <= 64 * 1024,
                "copied {copied}: only what was read before the payload was known"
            );
        }
    }
}

/// Which headers were told of, and how many answers ended, in the order of events.
fn told_of(subject: &mut Subject, bytes: &[u8], step: usize) -> Vec<Option<Vec<u8>>> {
    let mut told = Vec::new();
    for piece in bytes.chunks(step.min(bytes.len())) {
        let mut rest = piece;
        while !rest.is_empty() {
            let mut buffer = subject.session.recv_buffer();
            let count = buffer.remaining_mut().min(rest.len());
            buffer.put_slice(&rest[..count]);
            subject.session.handle_received(count, subject.now);
            rest = &rest[count..];
            while let Some(event) = subject.session.poll_event() {
                match event {
                    Event::ResponseBegins { user: 1, header, .. } => told.push(Some(header.to_vec())),
                    Event::Response { user: 1, .. } => told.push(None),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    told
}

#[test]
fn a_large_answer_is_told_of_once_before_its_payload_is_here() {
    let announcing = || {
        Subject::new(SessionConfig {
            announce_answers: true,
            ..SessionConfig::client()
        })
    };
    let large = Raw::response(OpCode::FETCH, 1)
        .header(b"header".as_slice())
        .payload(pattern(300_000))
        .bytes();
    for step in [1, 1_460, 100_000, usize::MAX] {
        let mut subject = announcing();
        subject.call(OpCode::FETCH, 1, 1 << 20);
        let told = told_of(&mut subject, &large, step);
        assert_eq!(told, [Some(b"header".to_vec()), None], "in reads of {step}");
    }

    let mut unpaid = announcing();
    unpaid.call(OpCode::FETCH, 1, 0);
    assert_eq!(told_of(&mut unpaid, &large, 1_460), [None], "no memory was set aside");
    let mut small = announcing();
    small.call(OpCode::FETCH, 1, 1 << 20);
    assert_eq!(told_of(&mut small, &answer(10_000), 1_460), [None], "it is soon here");
    let mut plain = Subject::client();
    plain.call(OpCode::FETCH, 1, 1 << 20);
    assert_eq!(told_of(&mut plain, &large, 1_460), [None], "nobody asked for it");

    let mut cancelled = announcing();
    let call = cancelled.call(OpCode::FETCH, 1, 1 << 20);
    let prelude = large[..10].to_vec();
    assert!(told_of(&mut cancelled, &prelude, 10).is_empty());
    cancelled.session.cancel(call);
    assert!(told_of(&mut cancelled, &large[10..], 1_460).is_empty());
}

#[test]
fn memory_of_a_payload_is_used_again_once_nobody_holds_a_part_of_it() {
    let part = |seed: usize| {
        let payload = pattern(100_000 + seed).split_off(seed);
        (
            Raw::response(OpCode::FETCH, 1)
                .flags(0x01)
                .payload(payload.clone())
                .bytes(),
            payload,
        )
    };
    let mut subject = Subject::client();
    subject.call(OpCode::FETCH, 1, 3 << 20);
    let mut receive = |seed: usize| {
        let (bytes, expected) = part(seed);
        let [payload] = <[_; 1]>::try_from(chunks(&mut subject, &bytes, 30_000)).unwrap();
        assert_eq!(payload, expected);
        assert_eq!(payload.as_ptr().align_offset(64), 0);
        payload
    };
    let first = receive(0);
    let place = first.as_ptr();
    let held = first.slice(5_000..5_010);
    drop(first);
    let second = receive(1);
    assert_ne!(second.as_ptr(), place, "a part of it is held");
    assert_eq!(held, pattern(5_010)[5_000..]);
    drop(held);
    let third = receive(2);
    assert_eq!(third.as_ptr(), place, "nothing of it is held");
    assert_eq!(second, part(1).1);
}

#[test]
fn a_charge_is_used_up() {
    let mut subject = Subject::client();
    subject.call(OpCode::FETCH, 1, 150_000);
    let part = Raw::response(OpCode::FETCH, 1)
        .flags(0x01)
        .payload(pattern(100_000))
        .bytes();
    assert_eq!(chunks(&mut subject, &part, 8192).len(), 1);
    assert!(
        chunks(&mut subject, &part, 8192).len() > 1,
        "50,000 are left of the charge"
    );
}

#[test]
fn an_uncharged_payload_stays_in_the_pieces_it_came_in() {
    let length = 2 << 20;
    let mut subject = Subject::client();
    subject.call(OpCode::FETCH, 1, 0);
    let found = chunks(&mut subject, &answer(length), 10_000);
    assert!((4..20).contains(&found.len()), "{} pieces", found.len());
    assert_eq!(found.concat(), pattern(length));

    let mut subject = Subject::server();
    let request = Raw::request(OpCode::APPEND, 1).payload(pattern(length)).bytes();
    let found = chunks(&mut subject, &request, usize::MAX);
    assert!((4..20).contains(&found.len()), "{} pieces", found.len());
    assert_eq!(found.concat(), pattern(length));
    assert_eq!(subject.session.stats().copied_bytes, 0);
}

#[test]
fn small_reads_do_not_make_small_pieces() {
    let mut subject = Subject::server();
    let request = Raw::request(OpCode::APPEND, 1).payload(pattern(300_000)).bytes();
    let found = chunks(&mut subject, &request, 1);
    assert!(found.len() <= 6, "{} pieces", found.len());
    assert_eq!(found.concat(), pattern(300_000));
}

#[test]
fn a_client_s_small_payload_keeps_no_block() {
    let mut subject = Subject::client();
    let mut kept = Vec::new();
    for length in [1, 100, 40_000, 65_535] {
        subject.call(OpCode::FETCH, 1, 0);
        let id = u32::try_from(kept.len()).unwrap() + 1;
        let bytes = Raw::response(OpCode::FETCH, id).payload(pattern(length)).bytes();
        let [payload] = <[_; 1]>::try_from(chunks(&mut subject, &bytes, usize::MAX)).unwrap();
        let whole: Vec<u8> = payload.clone().into();
        assert!(
            whole.capacity() < length + 256,
            "a payload of {length} holds {}",
            whole.capacity()
        );
        kept.push(payload);
    }
}

#[test]
fn a_server_s_small_payload_is_a_view() {
    let mut subject = Subject::server();
    let bytes: Vec<u8> = (1..=100)
        .flat_map(|id| Raw::request(OpCode::APPEND, id).payload(pattern(64)).bytes())
        .collect();
    assert_eq!(chunks(&mut subject, &bytes, usize::MAX).len(), 100);
    assert_eq!(subject.session.stats().copied_bytes, 0);
}
