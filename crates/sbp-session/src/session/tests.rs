//! Tests of all state machines of a session: connection, own call, call of the peer, and receiver.
//!
//! Each pair of state and input is played on a session of its own, through the calls that a driver makes. The tables
//! are total: a state or input without an entry does not compile, or fails.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    io,
    time::{Duration, Instant},
};

use bytes::BufMut;
use sbp_frame::{CallId, OpCode, Prelude, checksum};

use super::Session;
use crate::{Authentication, CallFailure, Event, Outgoing, SessionConfig, phase::Phase};

const ID: CallId = CallId::FIRST;

/// A frame with a valid body.
fn frame(opcode: OpCode, flags: u8, id: u32, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let prelude = Prelude::new(opcode, flags, id, 1, header.len(), payload.len()).unwrap();
    let mut bytes = prelude.to_bytes().to_vec();
    bytes.put_slice(header);
    bytes.put_slice(payload);
    bytes.put_u32(checksum(payload));
    bytes
}

fn receive(session: &mut Session, bytes: &[u8]) {
    for piece in bytes.chunks(1_000) {
        if session.wants_read() {
            let mut buffer = session.recv_buffer();
            buffer.put_slice(piece);
            let now = session.now;
            session.handle_received(piece.len(), now);
        }
    }
}

fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

fn request(opcode: OpCode, session: &mut Session, deadline: Option<Instant>) -> CallId {
    let request = Outgoing {
        opcode,
        header: b"ask",
        payload: &[],
        user: 7,
        deadline,
        receive_charge: 0,
    };
    session.send_request(session.now, request).unwrap()
}

/// A server with request 1 in flight.
fn server() -> Session {
    let mut session = Session::new(SessionConfig::server(), Instant::now());
    receive(&mut session, &frame(OpCode::APPEND, 0, 1, b"ask", b""));
    assert_eq!(events(&mut session).len(), 1);
    session
}

/// A server that has to know its peer first, with HEARTBEAT 1 in flight.
fn unauthenticated() -> Session {
    let config = SessionConfig {
        authentication: Some(Authentication::default()),
        ..SessionConfig::server()
    };
    let mut session = Session::new(config, Instant::now());
    receive(&mut session, &frame(OpCode::HEARTBEAT, 0, 1, b"ask", b""));
    assert_eq!(events(&mut session).len(), 1);
    session
}

/// Plays every pair of state and input and prints the table. Fails on the first whose next state is not `expected`.
fn check<S: Copy + Debug + Eq, I: Copy + Debug>(
    name: &str,
    states: &[S],
    inputs: &[I],
    expected: impl Fn(S, I) -> S,
    play: impl Fn(S, I) -> S,
) {
    let mut taken = 0;
    for &state in states {
        for &input in inputs {
            let next = play(state, input);
            println!("{name}: {state:?} + {input:?} -> {next:?}");
            assert_eq!(next, expected(state, input), "{name}: {state:?} + {input:?}");
            taken += 1;
        }
    }
    println!("{name}: {taken} of {} transitions taken", states.len() * inputs.len());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A server has to know the peer first.
    Unauthenticated,
    Open,
    /// The peer has announced the end.
    Draining,
    /// This side has announced the end.
    DrainingBy,
    Flushing,
    Closed,
}

fn stage(session: &Session) -> Stage {
    match session.phase {
        Phase::Unauthenticated { .. } => Stage::Unauthenticated,
        Phase::Open => Stage::Open,
        Phase::Draining { until: None } => Stage::Draining,
        Phase::Draining { until: Some(_) } => Stage::DrainingBy,
        Phase::Flushing { .. } => Stage::Flushing,
        Phase::Closed { .. } => Stage::Closed,
    }
}

#[derive(Debug, Clone, Copy)]
enum Happens {
    GoAway,
    PeerGoesAway,
    LastAnswer,
    Close,
    SocketFails,
    TimePasses,
    Authenticated,
}

fn play_phase(from: Stage, happens: Happens) -> Stage {
    let mut session = if from == Stage::Unauthenticated {
        unauthenticated()
    } else {
        server()
    };
    let now = session.now;
    match from {
        Stage::Unauthenticated | Stage::Open => {}
        Stage::Draining => receive(&mut session, &frame(OpCode::GOAWAY, 0, 0, b"", b"")),
        Stage::DrainingBy => session.go_away(b"bye", now),
        Stage::Flushing => {
            session.send_response(ID, OpCode::APPEND, false, b"part", &[]).unwrap();
            session.close();
        }
        Stage::Closed => session.handle_transport_error(io::ErrorKind::BrokenPipe.into(), now),
    }
    assert_eq!(stage(&session), from);
    events(&mut session);
    match happens {
        Happens::GoAway => session.go_away(b"bye", now),
        Happens::PeerGoesAway => receive(&mut session, &frame(OpCode::GOAWAY, 0, 0, b"", b"")),
        Happens::LastAnswer => drop(session.send_response(ID, OpCode::APPEND, true, b"done", &[])),
        Happens::Close => session.close(),
        Happens::SocketFails => session.handle_transport_error(io::ErrorKind::BrokenPipe.into(), now),
        Happens::TimePasses => session.handle_timeout(now + Duration::from_secs(15)),
        Happens::Authenticated => session.set_authenticated(),
    }
    let next = stage(&session);
    let ended = matches!(next, Stage::Flushing | Stage::Closed) && !matches!(from, Stage::Flushing | Stage::Closed);
    let told = events(&mut session)
        .iter()
        .filter(|event| matches!(event, Event::Closing { .. }))
        .count();
    assert_eq!(told, usize::from(ended), "the end is told once: {from:?} + {happens:?}");
    next
}

#[test]
fn every_move_of_a_connection() {
    use Happens::{Authenticated, Close, GoAway, LastAnswer, PeerGoesAway, SocketFails, TimePasses};
    use Stage::{Closed, Draining, DrainingBy, Flushing, Open, Unauthenticated};
    let expected = |from, happens| match (from, happens) {
        // Its HEARTBEAT is being answered, and until then nothing more is read; the answer alone authenticates nobody.
        (Unauthenticated, LastAnswer | PeerGoesAway) => Unauthenticated,
        (Unauthenticated | Open, Authenticated) | (Open, LastAnswer | TimePasses) => Open,
        (Unauthenticated, GoAway) => DrainingBy,
        (Open | Draining, PeerGoesAway) | (Draining, TimePasses | Authenticated) => Draining,
        (Open | Draining | DrainingBy, GoAway) | (DrainingBy, PeerGoesAway | Authenticated) => DrainingBy,
        (Draining | DrainingBy, LastAnswer)
        | (DrainingBy, TimePasses)
        | (Unauthenticated, TimePasses)
        | (Unauthenticated | Open | Draining | DrainingBy, Close)
        | (Flushing, GoAway | PeerGoesAway | LastAnswer | Close | Authenticated) => Flushing,
        (Flushing, SocketFails | TimePasses)
        | (Unauthenticated | Open | Draining | DrainingBy, SocketFails)
        | (Closed, _) => Closed,
    };
    check(
        "connection",
        &[Unauthenticated, Open, Draining, DrainingBy, Flushing, Closed],
        &[
            GoAway,
            PeerGoesAway,
            LastAnswer,
            Close,
            SocketFails,
            TimePasses,
            Authenticated,
        ],
        expected,
        play_phase,
    );
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// The answer is awaited.
    Live,
    /// The answer is not awaited, but may come.
    Orphan,
    Gone,
}

fn own(session: &Session) -> Own {
    match session.own.get(ID) {
        Some(call) if call.orphan => Own::Orphan,
        Some(_) => Own::Live,
        None => Own::Gone,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    Part,
    End,
    SystemError,
    UnusablePart,
    UnusableEnd,
    OtherOperation,
    OnePartTooMany,
    OneEndTooMany,
    Deadline,
    Cancelled,
    GoAwayBelow,
    GoAwayAbove,
    ConnectionEnds,
}

/// The event that the caller gets for this pair.
fn heard(state: Own, comes: Comes) -> Option<Result<bool, CallFailure>> {
    if state != Own::Live {
        return None;
    }
    Some(match comes {
        Comes::Part => Ok(false),
        Comes::End | Comes::SystemError => Ok(true),
        Comes::UnusablePart | Comes::UnusableEnd => Err(CallFailure::BadAnswer(crate::RejectReason::HeaderMissing)),
        Comes::OtherOperation => Err(CallFailure::OpCodeMismatch { found: OpCode::APPEND }),
        Comes::OnePartTooMany | Comes::OneEndTooMany => Err(CallFailure::AnswerTooLong),
        Comes::Deadline => Err(CallFailure::DeadlineExceeded),
        Comes::GoAwayBelow => Err(CallFailure::NotStarted),
        Comes::ConnectionEnds => Err(CallFailure::ConnectionClosed),
        Comes::Cancelled | Comes::GoAwayAbove => return None,
    })
}

fn play_own(from: Own, comes: Comes) -> Own {
    let mut config = SessionConfig::client();
    let full = matches!(comes, Comes::OnePartTooMany | Comes::OneEndTooMany);
    config.limits.answer_frames = if full { 0 } else { 5 };
    let mut session = Session::new(config, Instant::now());
    let deadline = session.now + Duration::from_secs(9);
    request(OpCode::FETCH, &mut session, Some(deadline));
    // Another call, so that a connection that goes away has something left to do.
    request(OpCode::APPEND, &mut session, None);
    match from {
        Own::Live => {}
        Own::Orphan => session.cancel(ID),
        Own::Gone => drop(session.own.remove(ID)),
    }
    assert_eq!(own(&session), from);
    events(&mut session);
    let answer = |flags, header: &[u8]| frame(OpCode::FETCH, flags, 1, header, b"");
    let bytes = match comes {
        Comes::Part | Comes::OnePartTooMany => answer(0x01, b"part"),
        Comes::End | Comes::OneEndTooMany => answer(0x03, b"done"),
        Comes::SystemError => answer(0x07, b"no"),
        Comes::UnusablePart => answer(0x01, b""),
        Comes::UnusableEnd => answer(0x03, b""),
        Comes::OtherOperation => frame(OpCode::APPEND, 0x01, 1, b"part", b""),
        Comes::GoAwayBelow => frame(OpCode::GOAWAY, 0, 0, b"", b""),
        Comes::GoAwayAbove => frame(OpCode::GOAWAY, 0, 2, b"", b""),
        Comes::Deadline | Comes::Cancelled | Comes::ConnectionEnds => Vec::new(),
    };
    receive(&mut session, &bytes);
    match comes {
        Comes::Deadline => session.handle_timeout(deadline),
        Comes::Cancelled => session.cancel(ID),
        Comes::ConnectionEnds => session.close(),
        _ => {}
    }
    let of_call = |event: Event| match event {
        Event::Response { call: ID, end, .. } => Some(Ok(end)),
        Event::CallFailed { call: ID, failure, .. } => Some(Err(failure)),
        _ => None,
    };
    let told: Vec<_> = events(&mut session).into_iter().filter_map(of_call).collect();
    assert_eq!(
        told,
        heard(from, comes).into_iter().collect::<Vec<_>>(),
        "{from:?} + {comes:?}"
    );
    own(&session)
}

#[test]
fn every_move_of_an_own_call() {
    use Comes::{
        Cancelled, ConnectionEnds, Deadline, End, GoAwayAbove, GoAwayBelow, OneEndTooMany, OnePartTooMany,
        OtherOperation, Part, SystemError, UnusableEnd, UnusablePart,
    };
    let expected = |from, comes| match (from, comes) {
        (Own::Gone, _) | (_, End | SystemError | UnusableEnd | OneEndTooMany | GoAwayBelow | ConnectionEnds) => {
            Own::Gone
        }
        (Own::Orphan, _) | (Own::Live, UnusablePart | OtherOperation | OnePartTooMany | Deadline | Cancelled) => {
            Own::Orphan
        }
        (Own::Live, Part | GoAwayAbove) => Own::Live,
    };
    check(
        "own call",
        &[Own::Live, Own::Orphan, Own::Gone],
        &[
            Part,
            End,
            SystemError,
            UnusablePart,
            UnusableEnd,
            OtherOperation,
            OnePartTooMany,
            OneEndTooMany,
            Deadline,
            Cancelled,
            GoAwayBelow,
            GoAwayAbove,
            ConnectionEnds,
        ],
        expected,
        play_own,
    );
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theirs {
    Active,
    Waiting,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Part,
    End,
    SystemError,
    Wait,
    WaitWithoutRoom,
    PeerCloses,
    PeerClosesThenEnd,
}

fn play_theirs(from: Theirs, done: Done) -> Theirs {
    let mut session = server();
    session.config.limits.waits = usize::from(done != Done::WaitWithoutRoom || from == Theirs::Waiting);
    match from {
        Theirs::Active => {}
        Theirs::Waiting => assert!(session.mark_waiting(ID)),
        Theirs::Gone => session.send_response(ID, OpCode::APPEND, true, b"done", &[]).unwrap(),
    }
    let now = session.now;
    let respond = |session: &mut Session, end| session.send_response(ID, OpCode::APPEND, end, b"h", &[]).is_ok();
    let alive = from != Theirs::Gone;
    match done {
        Done::Part => assert_eq!(respond(&mut session, false), alive),
        Done::End => assert_eq!(respond(&mut session, true), alive),
        Done::SystemError => session.send_system_error(ID.raw(), OpCode::APPEND, b"no"),
        Done::Wait => assert_eq!(session.mark_waiting(ID), alive),
        Done::WaitWithoutRoom => assert_eq!(session.mark_waiting(ID), from == Theirs::Waiting),
        Done::PeerCloses => session.handle_eof(now),
        Done::PeerClosesThenEnd => {
            session.handle_eof(now);
            assert!(!respond(&mut session, true), "nobody is there");
        }
    }
    match (session.peer.contains(ID), session.waiting()) {
        (false, 0) => Theirs::Gone,
        (true, 0) => Theirs::Active,
        (true, 1) => Theirs::Waiting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_move_of_a_peer_s_call() {
    use Done::{End, Part, PeerCloses, PeerClosesThenEnd, SystemError, Wait, WaitWithoutRoom};
    let expected = |from, done| match (from, done) {
        (Theirs::Gone, _) | (_, End | SystemError | PeerClosesThenEnd) => Theirs::Gone,
        (_, Wait) | (Theirs::Waiting, Part | WaitWithoutRoom | PeerCloses) => Theirs::Waiting,
        (Theirs::Active, Part | WaitWithoutRoom | PeerCloses) => Theirs::Active,
    };
    check(
        "peer's call",
        &[Theirs::Active, Theirs::Waiting, Theirs::Gone],
        &[
            Part,
            End,
            SystemError,
            Wait,
            WaitWithoutRoom,
            PeerCloses,
            PeerClosesThenEnd,
        ],
        expected,
        play_theirs,
    );
}

#[test]
fn every_move_of_the_receiver() {
    let large = vec![7; 70_000];
    let mut moves = BTreeSet::new();
    let mut watch = |session: &mut Session, bytes: &[u8]| {
        for byte in bytes.chunks(1) {
            let before = session.receiver.stage_name();
            receive(session, byte);
            let after = session.receiver.stage_name();
            if before != after {
                moves.insert((before, after));
            }
            events(session);
        }
    };
    let mut server = server();
    watch(&mut server, &frame(OpCode::APPEND, 0, 2, b"small", b"payload"));
    watch(&mut server, &frame(OpCode(0x7777), 0, 3, b"unknown", b"payload"));
    watch(&mut server, &frame(OpCode::APPEND, 0, 4, b"large", &large));
    watch(&mut server, &frame(OpCode::APPEND, 0, 5, &large, &large));
    let mut client = Session::new(SessionConfig::client(), server.now);
    let charged = Outgoing {
        opcode: OpCode::FETCH,
        header: b"ask",
        payload: &[],
        user: 1,
        deadline: None,
        receive_charge: 100_000,
    };
    client.send_request(client.now, charged).unwrap();
    watch(&mut client, &frame(OpCode::FETCH, 3, 1, b"header", &large));
    let expected = [
        ("Blocks", "Trailer"),
        ("Header", "Blocks"),
        ("Header", "Own"),
        ("Own", "Prelude"),
        ("Prelude", "Header"),
        ("Prelude", "Skip"),
        ("Prelude", "Whole"),
        ("Skip", "Prelude"),
        ("Trailer", "Prelude"),
        ("Whole", "Prelude"),
    ];
    for (from, to) in &moves {
        println!("receiver: {from} -> {to}");
    }
    println!("receiver: {} of {} transitions taken", moves.len(), expected.len());
    assert_eq!(moves.into_iter().collect::<Vec<_>>(), expected);
}
