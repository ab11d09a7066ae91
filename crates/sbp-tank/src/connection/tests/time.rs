//! Clients that send too slowly, or say nothing, in virtual time.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A server that has greeted.
fn greeted(config: ServerConfig, start: Instant) -> Connection {
    let mut server = Connection::server(config, start);
    assert_eq!(transmitted(&mut server, start), GREETING);
    server
}

/// Time passes as it does for a driver, which calls at each deadline and writes what is queued.
fn live_until(server: &mut Connection, until: Instant) {
    while let Some(at) = server.poll_timeout().filter(|at| *at <= until) {
        server.handle_timeout(at);
        transmitted(server, at);
    }
    server.note_time(until);
}

/// A request of about so many bytes.
fn request(length: usize) -> Vec<u8> {
    let now = Instant::now();
    let mut client = client(now);
    let create = Request::CreateTopic {
        topic: String::from("t"),
        partitions: 1,
        config: vec![b'#'; length].into(),
    };
    client.send(&create, 1, now).unwrap();
    transmitted(&mut client, now)
}

/// Sends a request in pieces, a pause before each. When and why the connection ends amid it.
fn send(bytes: &[u8], piece: usize, pause: Duration) -> Option<(Duration, CloseReason)> {
    let start = Instant::now();
    let mut server = greeted(ServerConfig::default(), start);
    let (mut now, mut first) = (start, None);
    for piece in bytes.chunks(piece) {
        now += pause;
        live_until(&mut server, now);
        if let Some(reason) = server.close_reason() {
            assert!(server.is_closed(), "nothing waits to be written");
            return Some((now - first.unwrap_or(start), reason.clone()));
        }
        receive(&mut server, piece, now);
        first.get_or_insert(now);
    }
    assert!(matches!(events(&mut server)[..], [Event::Request { .. }]));
    None
}

#[test]
fn a_request_that_is_dribbled_ends_the_connection() {
    let bytes = request(100_000);
    for pause in [SECOND / 10, SECOND, 2 * SECOND, 4 * SECOND] {
        let (after, reason) = send(&bytes, 1, pause).expect("ended");
        let CloseReason::TooSlow { within, .. } = reason else {
            panic!("{reason:?}")
        };
        // The head has five seconds, and so has the rest; a byte buys next to nothing.
        assert!((5 * SECOND..6 * SECOND).contains(&within), "{within:?} at {pause:?}");
        assert!(after <= 10 * SECOND + 2 * pause, "{after:?} at {pause:?}");
    }
    let (after, reason) = send(&bytes[..6], 3, 6 * SECOND).expect("ended");
    let within = 5 * SECOND;
    assert_eq!(reason, CloseReason::TooSlow { bytes: 0, within }, "half a head");
    assert_eq!(after, 6 * SECOND);
}

#[test]
fn sixteen_kibibytes_a_second_are_enough_and_half_of_that_is_not() {
    let bytes = request(600_000);
    assert_eq!(send(&bytes, 1_638, SECOND / 10), None);
    assert_eq!(send(&bytes, bytes.len(), SECOND), None);
    let (after, _) = send(&bytes, 819, SECOND / 10).expect("ended");
    assert!((9 * SECOND..11 * SECOND).contains(&after), "{after:?}");
}

#[test]
fn each_request_has_its_own_time() {
    let start = Instant::now();
    let mut server = greeted(ServerConfig::default(), start);
    let mut now = start;
    // Never a moment without half a request.
    for piece in frame(10, &[1, 0, 0, 0]).repeat(40).chunks(4) {
        receive(&mut server, piece, now);
        now += 2 * SECOND;
        live_until(&mut server, now);
    }
    assert_eq!(server.close_reason(), None);
    assert_eq!(events(&mut server).len(), 40);
}

#[test]
fn time_in_which_a_broker_does_not_read_is_not_counted() {
    let start = Instant::now();
    let config = ServerConfig {
        calls: 1,
        ..ServerConfig::default()
    };
    let mut server = greeted(config, start);
    let status = frame(10, &[1, 0, 0, 0]);
    receive(&mut server, &[&status[..], &status[..3]].concat(), start);
    let asked = events(&mut server);
    let [Event::Request { call, .. }] = asked[..] else {
        panic!("{asked:?}")
    };
    assert!(!server.wants_read());
    let later = start + 60 * SECOND;
    live_until(&mut server, later);
    assert_eq!(server.close_reason(), None);
    let answer = Answer::Topology { is_alone: true };
    server.answer(call, &answer, later).unwrap();
    transmitted(&mut server, later);
    assert_eq!(events(&mut server), []);
    assert!(server.wants_read());
    live_until(&mut server, later + 4 * SECOND);
    assert_eq!(server.close_reason(), None, "its time begins then");
    live_until(&mut server, later + 5 * SECOND);
    assert!(matches!(server.close_reason(), Some(CloseReason::TooSlow { .. })));
}

#[test]
fn who_says_nothing_is_closed_after_ninety_seconds_unless_it_waits_for_an_answer() {
    let start = Instant::now();
    let mut silent = greeted(ServerConfig::default(), start);
    live_until(&mut silent, start + 89 * SECOND);
    assert_eq!(silent.close_reason(), None);
    live_until(&mut silent, start + 90 * SECOND);
    assert_eq!(silent.close_reason(), Some(&CloseReason::Silent(90 * SECOND)));
    assert!(silent.is_closed());

    let mut pinging = greeted(ServerConfig::default(), start);
    let mut waiting = greeted(ServerConfig::default(), start);
    receive(&mut waiting, &frame(10, &[1, 0, 0, 0]), start);
    let asked = events(&mut waiting);
    let [Event::Request { call, .. }] = asked[..] else {
        panic!("{asked:?}")
    };
    for minute in 1..10 {
        let now = start + minute * 60 * SECOND;
        live_until(&mut pinging, now);
        live_until(&mut waiting, now);
        receive(&mut pinging, &GREETING, now);
    }
    assert_eq!((pinging.close_reason(), waiting.close_reason()), (None, None));
    let now = start + 600 * SECOND;
    let answer = Answer::Topology { is_alone: true };
    waiting.answer(call, &answer, now).unwrap();
    transmitted(&mut waiting, now);
    live_until(&mut waiting, now + 30 * SECOND);
    assert_eq!(waiting.close_reason(), Some(&CloseReason::Silent(90 * SECOND)));
}

#[test]
fn who_takes_nothing_while_memory_is_short_is_left_sooner() {
    let start = Instant::now();
    let mut server = Connection::server(ServerConfig::default(), start);
    server.set_tight(true, start);
    server.handle_timeout(start + SECOND);
    assert_eq!(server.close_reason(), None);
    server.handle_timeout(start + 3 * SECOND / 2);
    assert_eq!(server.close_reason(), Some(&CloseReason::Stalled(3 * SECOND / 2)));
}
