//! What a session allocates, counted.
#![allow(
    unsafe_code,
    reason = "counting needs an allocator, and implementing one is unsafe; it only passes on"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::IoSlice,
    time::Instant,
};

use bytes::BufMut;
use sbp_frame::{OpCode, PayloadPart, Prelude};
use sbp_session::{Authentication, Event, Outgoing, Session, SessionConfig};

thread_local! {
    // Constant initialisers: an allocator must not allocate to count. Tests run one to a thread, each with its counts.
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    CALLS.set(CALLS.get() + usize::from(bytes > 0));
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every method hands its arguments, unchanged, to the system's allocator and returns what that returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`, and all memory comes from there.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes allocated beyond those at the start, at most, while `work` runs.
fn peak(work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    work();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}

/// Allocations while `work` runs.
fn allocations(work: impl FnOnce()) -> usize {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

fn receive(session: &mut Session, bytes: &[u8], step: usize, now: Instant) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut buffer = session.recv_buffer();
        let count = buffer.remaining_mut().min(rest.len()).min(step);
        buffer.put_slice(&rest[..count]);
        session.handle_received(count, now);
        rest = &rest[count..];
    }
}

/// Moves everything that one end has queued to the other.
fn carry(from: &mut Session, to: &mut Session, now: Instant) {
    while from.transmit_len() > 0 {
        let mut slices = [IoSlice::new(&[]); 1];
        from.transmit(&mut slices);
        let mut buffer = to.recv_buffer();
        let count = slices[0].len().min(buffer.remaining_mut());
        buffer.put_slice(&slices[0][..count]);
        to.handle_received(count, now);
        from.handle_written(count, now);
    }
}

fn request(opcode: OpCode, payload: &[PayloadPart<'_>], receive_charge: u32, session: &mut Session, now: Instant) {
    let request = Outgoing {
        opcode,
        header: &[1; 48],
        payload,
        user: 1,
        deadline: Some(now),
        receive_charge,
    };
    session.send_request(now, request).expect("room for a request");
}

/// The beginning of a frame that claims to be as large as a frame can be.
fn claim(opcode: OpCode, flags: u8, header: usize) -> Vec<u8> {
    let payload = (16 << 20) - 16 - header;
    let mut bytes = Prelude::new(opcode, flags, 1, 1, header, payload)
        .expect("the largest frame")
        .to_bytes()
        .to_vec();
    bytes.resize(16 + header, 7);
    bytes
}

/// Receives ever more of a claimed frame, and holds the memory against what was received.
fn check_claim(make: impl Fn() -> Session, opcode: OpCode, flags: u8) {
    let now = Instant::now();
    for header in [1, 1_000, 40_000, 1 << 20] {
        let mut bytes = claim(opcode, flags, header);
        bytes.resize(15 << 20, 3);
        for (received, step) in [
            (16, 16),
            (17, 1),
            (5_000, 100),
            (70_000, usize::MAX),
            (300_000, 1460),
            (1 << 20, usize::MAX),
            (2_200_000, 65_536),
            (15 << 20, usize::MAX),
        ] {
            let mut session = make();
            let used = peak(|| receive(&mut session, &bytes[..received], step, now));
            let allowed = 2 * received + 512 * 1024;
            assert!(
                used <= allowed,
                "header {header}: {used} bytes for {received} received in reads of {step}"
            );
        }
    }
}

#[test]
fn a_claimed_length_costs_a_server_nothing() {
    check_claim(
        || Session::new(SessionConfig::server(), Instant::now()),
        OpCode::APPEND,
        0x00,
    );
}

#[test]
fn an_uncharged_length_costs_a_client_nothing() {
    let make = || {
        let now = Instant::now();
        let mut session = Session::new(SessionConfig::client(), now);
        request(OpCode::FETCH, &[], 0, &mut session, now);
        session
    };
    check_claim(make, OpCode::FETCH, 0x03);
}

#[test]
fn a_skipped_frame_is_never_held() {
    let now = Instant::now();
    let mut session = Session::new(SessionConfig::server(), now);
    receive(
        &mut session,
        &Prelude::new(OpCode::PING, 0, 1, 1, 0, 0).unwrap().to_bytes(),
        16,
        now,
    );
    receive(&mut session, &[0; 4], 4, now);
    let mut bytes = claim(OpCode(0x7777), 0, 1);
    bytes.resize(16 << 20, 3);
    let used = peak(|| receive(&mut session, &bytes, usize::MAX, now));
    assert!(used <= 256 * 1024, "{used} bytes for a frame that is thrown away");
}

#[test]
fn a_charged_payload_is_allocated_once() {
    let now = Instant::now();
    let mut session = Session::new(SessionConfig::client(), now);
    request(OpCode::FETCH, &[], 8 << 20, &mut session, now);
    let length = 8 << 20;
    let mut bytes = Prelude::new(OpCode::FETCH, 3, 1, 1, 8, length)
        .unwrap()
        .to_bytes()
        .to_vec();
    bytes.resize(16 + 8 + length, 0);
    let used = peak(|| receive(&mut session, &bytes, usize::MAX, now));
    assert!(
        used >= length && used <= length + 256 * 1024,
        "{used} bytes for {length} charged"
    );
}

#[test]
fn sending_allocates_nothing_in_steady_state() {
    let now = Instant::now();
    let mut client = Session::new(SessionConfig::client(), now);
    let mut server = Session::new(SessionConfig::server(), now);
    while client.poll_event().is_some() {}
    let payload = [5; 64];
    let mut sent = 0;
    for round in 0..60 {
        // The server's side and the client's receiving are not part of this count.
        sent = allocations(|| {
            for _ in 0..256 {
                request(OpCode::APPEND, &[PayloadPart::Copy(&payload)], 0, &mut client, now);
            }
        });
        carry(&mut client, &mut server, now);
        while let Some(event) = server.poll_event() {
            let Event::Request(frame) = event else {
                panic!("{event:?}")
            };
            server
                .send_response(frame.call_id, frame.opcode, true, &[8; 64], &[])
                .unwrap();
        }
        carry(&mut server, &mut client, now);
        let mut answered = 0;
        while let Some(event) = client.poll_event() {
            assert!(matches!(event, Event::Response { end: true, .. }), "{event:?}");
            answered += 1;
        }
        assert_eq!(answered, 256);
        if round >= 20 {
            assert_eq!(sent, 0, "round {round}");
        }
    }
    assert_eq!(sent, 0);
}

#[test]
fn receiving_answers_allocates_nothing_in_steady_state() {
    let now = Instant::now();
    let mut client = Session::new(SessionConfig::client(), now);
    let mut server = Session::new(SessionConfig::server(), now);
    while client.poll_event().is_some() {}
    for round in 0..60 {
        for _ in 0..256 {
            request(OpCode::APPEND, &[], 0, &mut client, now);
        }
        carry(&mut client, &mut server, now);
        while let Some(event) = server.poll_event() {
            let Event::Request(frame) = event else {
                panic!("{event:?}")
            };
            server
                .send_response(frame.call_id, frame.opcode, true, &[8; 64], &[])
                .unwrap();
        }
        let received = allocations(|| {
            carry(&mut server, &mut client, now);
            while client.poll_event().is_some() {}
        });
        if round >= 20 {
            assert_eq!(received, 0, "round {round}");
        }
    }
}

#[test]
fn an_idle_connection_gives_its_memory_back() {
    let start = Instant::now();
    let before = LIVE.get();
    let mut session = Session::new(SessionConfig::server(), start);
    let mut bytes = Prelude::new(OpCode::PING, 0, 1, 1, 0, 1_000)
        .unwrap()
        .to_bytes()
        .to_vec();
    bytes.extend_from_slice(&[0; 1_000]);
    bytes.extend_from_slice(&sbp_frame::checksum(&[0; 1_000]).to_be_bytes());
    for _ in 0..150 {
        receive(&mut session, &bytes, usize::MAX, start);
    }
    let pending = session.transmit_len();
    session.handle_written(pending, start);
    let later = session.poll_timeout().expect("a timer");
    session.handle_timeout(later);
    let held = LIVE.get() - before;
    assert!(held <= 16 * 1024, "{held} bytes held by an idle connection");
}

#[test]
fn a_greeted_connection_is_small_from_the_start() {
    let now = Instant::now();
    let before = LIVE.get();
    let mut client = Session::new(SessionConfig::client(), now);
    let mut server = Session::new(SessionConfig::server(), now);
    request(OpCode::HEARTBEAT, &[], 0, &mut client, now);
    carry(&mut client, &mut server, now);
    while let Some(event) = server.poll_event() {
        let Event::Request(frame) = event else {
            panic!("{event:?}")
        };
        server
            .send_response(frame.call_id, frame.opcode, true, &[8; 300], &[])
            .expect("room for an answer");
    }
    carry(&mut server, &mut client, now);
    while client.poll_event().is_some() {}
    drop(client);
    let held = LIVE.get() - before;
    assert!(held <= 6 * 1024, "{held} bytes held by a connection that said hello");
}

#[test]
fn a_busy_connection_gives_everything_back_when_it_falls_idle() {
    let start = Instant::now();
    let before = LIVE.get();
    let mut client = Session::new(SessionConfig::client(), start);
    let mut server = Session::new(SessionConfig::server(), start);
    for _ in 0..20 {
        for _ in 0..1_000 {
            request(OpCode::APPEND, &[PayloadPart::Copy(&[7; 2_000])], 0, &mut client, start);
        }
        carry(&mut client, &mut server, start);
        while let Some(event) = server.poll_event() {
            let Event::Request(frame) = event else {
                panic!("{event:?}")
            };
            server
                .send_response(frame.call_id, frame.opcode, true, &[8; 200], &[])
                .expect("room for an answer");
        }
        let pending = server.transmit_len();
        server.handle_written(pending, start);
        client = Session::new(SessionConfig::client(), start);
    }
    drop(client);
    let later = start + std::time::Duration::from_secs(30);
    server.handle_timeout(later);
    let held = LIVE.get() - before;
    assert!(held <= 4 * 1024, "{held} bytes held by a connection that was busy once");
}

/// A peer that is not known may hold this much of a server, whatever it sends: an idle connection is a session, and what
/// it claims or asks adds little.
#[test]
fn an_unknown_peer_costs_little_whatever_it_sends() {
    let now = Instant::now();
    let config = SessionConfig {
        authentication: Some(Authentication::default()),
        ..SessionConfig::server()
    };
    let frame = |opcode, id, header: usize, payload: usize| {
        let mut bytes = Prelude::new(opcode, 0, id, 1, header, payload)
            .unwrap()
            .to_bytes()
            .to_vec();
        bytes.resize(16 + header + payload + 4, 0);
        bytes
    };
    let asking: Vec<u8> = (0..500).flat_map(|id| frame(OpCode::FETCH, id, 100, 0)).collect();
    let pings: Vec<u8> = (0..500).flat_map(|id| frame(OpCode::PING, id, 0, 1_000)).collect();
    let sends = [
        ("nothing", Vec::new()),
        (
            "half a HEARTBEAT",
            frame(OpCode::HEARTBEAT, 1, 6 * 1024, 0)[..6_000].to_vec(),
        ),
        ("a large HEARTBEAT", frame(OpCode::HEARTBEAT, 1, 1 << 20, 14 << 20)),
        ("a large APPEND", frame(OpCode::APPEND, 1, 1 << 20, 14 << 20)),
        ("calls", asking),
        ("pings", pings),
    ];
    for (what, bytes) in sends {
        for step in [1, 1_460, usize::MAX] {
            let used = peak(|| {
                let mut session = Session::new(config.clone(), now);
                let mut rest = &bytes[..];
                while !rest.is_empty() && session.wants_read() {
                    let mut buffer = session.recv_buffer();
                    let count = buffer.remaining_mut().min(rest.len()).min(step);
                    buffer.put_slice(&rest[..count]);
                    session.handle_received(count, now);
                    rest = &rest[count..];
                    while let Some(event) = session.poll_event() {
                        if let Event::Reject {
                            raw_call_id, opcode, ..
                        } = event
                        {
                            session.send_system_error(raw_call_id, opcode, &[7; 200]);
                        }
                    }
                }
            });
            println!("{what} in reads of {step}: {used} bytes");
            assert!(used <= 12 * 1024, "{what} in reads of {step}: {used} bytes");
        }
    }
}
