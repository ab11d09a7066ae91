//! What waits while the disk is slow, and how it ends.

use std::sync::{Arc, mpsc};

use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_types::{Offset, Position, RangeKey, ServerId, StreamId};

use super::rig::{FIRST, PATIENCE, Rig, STREAM, held, job, of_writer, short};
use crate::access::Gate;
use crate::range::{AppendJob, HeldRange, RangeServer, ReplicaSet, StreamFacts, Upstream};
use crate::refusal::Refusal;

/// Seals the rig's range; the end comes on the channel.
fn seal(rig: &Rig) -> mpsc::Receiver<Result<Offset, ErrorCode>> {
    let (sender, ends) = mpsc::channel();
    let done = Box::new(move |end: Result<Offset, Refusal>| {
        sender.send(end.map_err(|refusal| refusal.code)).unwrap();
    });
    rig.server.seal(FIRST, done);
    ends
}

#[test]
fn a_repeat_is_answered_when_its_original_is_synced_and_not_before() {
    let rig = Rig::new();
    rig.stall();
    assert!(rig.append(of_writer(0, 0, 0, 1)).is_none());
    assert!(rig.append(of_writer(1, 0, 0, 1)).is_none());
    assert!(rig.append(of_writer(2, 0, 0, 0)).is_none(), "a question waits too");
    assert!(rig.answered().is_empty());
    rig.resume();
    let mut done = rig.wait(3);
    done.sort_by_key(|done| done.entry.request_index);
    let answers: Vec<_> = done.iter().map(short).collect();
    assert_eq!(
        answers,
        [
            (ErrorCode::NONE, 0, 1),
            (ErrorCode::NONE, 0, 1),
            (ErrorCode::NONE, -1, 1)
        ]
    );
    let duplicates: Vec<_> = done
        .iter()
        .map(|done| done.outcome.as_ref().unwrap().duplicate)
        .collect();
    assert_eq!(duplicates, [false, true, false]);
    assert_eq!(
        short(&rig.append(of_writer(3, 0, 0, 1)).unwrap()),
        (ErrorCode::NONE, 0, 1)
    );
}

#[test]
fn a_repeat_has_the_error_of_its_original() {
    let rig = Rig::new();
    rig.stall();
    rig.fail_next_sync();
    assert!(rig.append(of_writer(0, 0, 0, 1)).is_none());
    assert!(rig.append(of_writer(1, 0, 0, 1)).is_none());
    assert!(rig.append(of_writer(2, 0, 0, 0)).is_none());
    rig.resume();
    let mut done = rig.wait(3);
    done.sort_by_key(|done| done.entry.request_index);
    assert_eq!(short(&done[0]).0, ErrorCode::LOG_FAILED);
    assert_eq!(short(&done[1]).0, ErrorCode::LOG_FAILED);
    assert_eq!(short(&done[2]), (ErrorCode::NONE, -1, -1), "it has stored nothing");
}

#[test]
fn a_seal_waits_for_the_log_and_appends_wait_for_the_next_range() {
    let rig = Rig::new();
    rig.stall();
    assert!(rig.append(job(0, 10)).is_none());
    let (first, again) = (seal(&rig), seal(&rig));
    for n in 1..=3 {
        assert!(rig.append(job(n, 10)).is_none(), "it is parked");
    }
    assert!(first.try_recv().is_err(), "not before what was accepted is synced");
    rig.resume();
    assert_eq!(first.recv_timeout(PATIENCE), Ok(Ok(Offset(1))));
    assert_eq!(again.recv_timeout(PATIENCE), Ok(Ok(Offset(1))));
    assert_eq!(seal(&rig).recv_timeout(PATIENCE), Ok(Ok(Offset(1))), "the same end");
    assert_eq!(short(&rig.wait(1)[0]), (ErrorCode::NONE, 0, -1));
    rig.server
        .install(STREAM, StreamFacts::default(), &[held(0, 0, Some(1)), held(1, 1, None)]);
    let answers: Vec<_> = rig
        .wait(3)
        .iter()
        .map(|done| (done.entry.request_index, short(done)))
        .collect();
    assert_eq!(
        answers,
        [
            (1, (ErrorCode::NONE, 1, -1)),
            (2, (ErrorCode::NONE, 2, -1)),
            (3, (ErrorCode::NONE, 3, -1))
        ],
        "in the order in which they came"
    );
}

/// The stream gets another name while appends wait: who might append by the old one may not any more.
#[test]
fn appends_that_waited_are_judged_by_the_name_that_the_stream_has_then() {
    let rig = Rig::new();
    let named = |name: &str| StreamFacts {
        name: Some(name.into()),
        ..StreamFacts::default()
    };
    rig.server.install(STREAM, named("orders/eu"), &[held(0, 0, None)]);
    assert_eq!(seal(&rig).recv_timeout(PATIENCE), Ok(Ok(Offset(0))));
    for (index, grants) in [&["write:orders/*"][..], &["write:secret"], &["write:*"]]
        .into_iter()
        .enumerate()
    {
        let job = AppendJob {
            gate: Gate::of_billing(grants),
            ..job(i32::try_from(index).unwrap(), 10)
        };
        assert!(rig.append(job).is_none(), "it is parked");
    }
    rig.server
        .install(STREAM, named("secret"), &[held(0, 0, Some(0)), held(1, 0, None)]);
    let mut answers: Vec<_> = rig
        .wait(3)
        .iter()
        .map(|done| (done.entry.request_index, short(done)))
        .collect();
    answers.sort_unstable_by_key(|(index, _)| *index);
    assert_eq!(
        answers,
        [
            (0, (ErrorCode::FORBIDDEN, -1, -1)),
            (1, (ErrorCode::NONE, 0, -1)),
            (2, (ErrorCode::NONE, 1, -1))
        ]
    );
}

/// Appends wait, and whoever sent them may do other things meanwhile, or is not known any more.
#[test]
fn appends_that_wait_are_judged_again_when_rights_change() {
    let rig = Rig::new();
    let named = StreamFacts {
        name: Some("orders/eu".into()),
        ..StreamFacts::default()
    };
    rig.server.install(STREAM, named, &[held(0, 0, None)]);
    let park = |index: i32, grant: &str| {
        let job = AppendJob {
            gate: Gate::of_billing(&[grant]),
            ..job(index, 10)
        };
        assert!(rig.append(job).is_none(), "it is parked");
    };
    let change = |rights: Result<&Gate, &Refusal>| {
        let refused = rig.change_rights(rights);
        let told = refused.iter().map(|done| (done.entry.request_index, short(done).0));
        told.collect::<Vec<_>>()
    };
    assert_eq!(seal(&rig).recv_timeout(PATIENCE), Ok(Ok(Offset(0))));
    park(0, "write:orders/*");
    assert_eq!(change(Ok(&Gate::of_billing(&["write:*"]))), [], "it may still");
    let less = Gate::of_billing(&["read:*"]);
    assert_eq!(change(Ok(&less)), [(0, ErrorCode::FORBIDDEN)]);
    park(1, "write:*");
    park(2, "write:*");
    let unknown = Refusal::new(ErrorCode::UNAUTHORIZED, "its token was revoked");
    let refused = [(1, ErrorCode::UNAUTHORIZED), (2, ErrorCode::UNAUTHORIZED)];
    assert_eq!(change(Err(&unknown)), refused);
    // With another name of the stream, this one may not: it has the rights that it was given last.
    park(3, "write:*");
    assert_eq!(change(Ok(&Gate::of_billing(&["write:orders/*"]))), []);
    park(4, "write:*");
    let renamed = StreamFacts {
        name: Some("secret".into()),
        ..StreamFacts::default()
    };
    rig.server
        .install(STREAM, renamed, &[held(0, 0, Some(0)), held(1, 0, None)]);
    let answers = rig.wait(2);
    let answers: Vec<_> = answers
        .iter()
        .map(|done| (done.entry.request_index, short(done)))
        .collect();
    assert_eq!(
        answers,
        [(3, (ErrorCode::FORBIDDEN, -1, -1)), (4, (ErrorCode::NONE, 0, -1))],
        "what was refused before is not in the way"
    );
}

#[test]
fn an_undone_seal_lets_appends_go_on() {
    let rig = Rig::new();
    assert_eq!(seal(&rig).recv_timeout(PATIENCE), Ok(Ok(Offset(0))));
    assert!(rig.append(job(0, 10)).is_none());
    assert!(rig.answered().is_empty());
    rig.server.unseal(FIRST);
    assert_eq!(short(&rig.wait(1)[0]), (ErrorCode::NONE, 0, -1));
}

#[test]
fn without_a_next_range_parked_appends_are_told_that_theirs_is_sealed() {
    let rig = Rig::new();
    assert_eq!(seal(&rig).recv_timeout(PATIENCE), Ok(Ok(Offset(0))));
    assert!(rig.append(job(0, 10)).is_none());
    rig.server.publish_seal(FIRST, Offset(0));
    assert_eq!(short(&rig.wait(1)[0]).0, ErrorCode::RANGE_ALREADY_SEALED);
}

#[test]
fn after_a_failure_the_end_is_what_is_synced() {
    let rig = Rig::new();
    assert!(rig.append(job(0, 10)).is_none());
    rig.wait(1);
    rig.stall();
    rig.fail_next_sync();
    assert!(rig.append(job(1, 10)).is_none());
    let under_way = seal(&rig);
    rig.resume();
    assert_eq!(under_way.recv_timeout(PATIENCE), Ok(Ok(Offset(1))));
    assert_eq!(short(&rig.wait(1)[0]).0, ErrorCode::LOG_FAILED);
    assert_eq!(seal(&rig).recv_timeout(PATIENCE), Ok(Ok(Offset(1))));
}

#[test]
fn a_deletion_ends_all_that_waits() {
    let rig = Rig::new();
    rig.stall();
    assert!(rig.append(of_writer(0, 0, 0, 1)).is_none());
    assert!(rig.append(of_writer(1, 0, 0, 1)).is_none());
    let end = seal(&rig);
    assert!(rig.append(of_writer(2, 0, 1, 1)).is_none());
    rig.server.delete(STREAM);
    let refused: Vec<_> = rig.wait(2).iter().map(|done| short(done).0).collect();
    assert_eq!(refused, [ErrorCode::NOT_FOUND; 2]);
    assert_eq!(
        short(&rig.append(job(3, 10)).unwrap()).0,
        ErrorCode::NOT_FOUND,
        "at once"
    );
    rig.resume();
    assert_eq!(short(&rig.wait(1)[0]).0, ErrorCode::NONE, "the log had it already");
    assert_eq!(end.recv_timeout(PATIENCE), Ok(Err(ErrorCode::NOT_FOUND)));
}

#[test]
fn appends_whose_time_is_up_while_they_are_parked_are_not_started() {
    let rig = Rig::new();
    assert_eq!(seal(&rig).recv_timeout(PATIENCE), Ok(Ok(Offset(0))));
    let mut late = job(0, 10);
    late.expires = Some(std::time::Instant::now());
    assert!(rig.append(late).is_none());
    assert!(rig.append(job(1, 10)).is_none());
    rig.server.unseal(FIRST);
    let codes: Vec<_> = rig
        .wait(2)
        .iter()
        .map(|done| (done.entry.request_index, short(done).0))
        .collect();
    assert_eq!(codes, [(0, ErrorCode::REQUEST_TIMEOUT), (1, ErrorCode::NONE)]);
}

#[test]
fn a_busy_log_asks_for_patience_and_then_refuses() {
    let rig = Rig::new();
    rig.server.set_max_pending(4_000);
    assert_eq!(rig.server.throttle_ms(), 0);
    rig.stall();
    assert!(rig.append(job(0, 2_000)).is_none());
    let asked = rig.server.throttle_ms();
    assert!((1..1_000).contains(&asked), "{asked}");
    assert!(rig.append(job(1, 2_000)).is_none());
    assert_eq!(rig.server.throttle_ms(), 1_000);
    assert_eq!(
        short(&rig.append(job(2, 10)).unwrap()).0,
        ErrorCode::TOO_MANY_REQUESTS,
        "before anything is done"
    );
    rig.resume();
    rig.wait(2);
    assert_eq!(rig.server.throttle_ms(), 0);
    assert!(rig.append(job(3, 10)).is_none());
    assert_eq!(short(&rig.wait(1)[0]), (ErrorCode::NONE, 2, -1));
}

#[derive(Debug, Default)]
struct Asked(Mutex<Vec<StreamId>>);

impl Upstream for Asked {
    fn keep_dispute(&self, _: RangeKey, _: Position) {}

    fn ask(&self, stream: StreamId) {
        self.0.lock().push(stream);
    }
}

#[test]
fn a_range_server_alone_asks_once_about_a_stream_it_does_not_know() {
    let rig = Rig::new();
    let asked = Arc::new(Asked::default());
    rig.server.hub.set_knows_all(false);
    rig.server.set_upstream(Arc::clone(&asked) as _);
    let to = |stream, index| {
        let mut job = job(index, 10);
        job.entry.stream = stream;
        job
    };
    let (new, none) = (StreamId(2), StreamId(3));
    for index in 0..2 {
        assert!(rig.append(to(new, index)).is_none());
        assert!(rig.append(to(none, 10 + index)).is_none());
    }
    assert_eq!(*asked.0.lock(), [new, none], "once each");
    let range = HeldRange {
        key: RangeKey { stream: new, ..FIRST },
        ..held(0, 0, None)
    };
    rig.server.install(new, StreamFacts::default(), &[range]);
    rig.server.answered(new);
    let stored: Vec<_> = rig
        .wait(2)
        .iter()
        .map(|done| (done.entry.request_index, short(done)))
        .collect();
    assert_eq!(stored, [(0, (ErrorCode::NONE, 0, -1)), (1, (ErrorCode::NONE, 1, -1))]);
    rig.server.answered(none);
    let refused: Vec<_> = rig.wait(2).iter().map(|done| short(done).0).collect();
    assert_eq!(refused, [ErrorCode::RANGE_NOT_FOUND; 2]);
    rig.server.delete(new);
    assert_eq!(short(&rig.append(to(new, 0)).unwrap()).0, ErrorCode::NOT_FOUND);
    assert!(rig.append(to(none, 0)).is_none(), "asked again the next time");
    assert_eq!(asked.0.lock().len(), 3);
    rig.server.answered(none);
    rig.wait(1);
}

#[test]
fn a_writer_is_forgotten_when_the_log_forgets_it_and_not_before() {
    for asks_in_between in [false, true] {
        forgotten(asks_in_between);
    }
}

#[test]
fn of_several_servers_with_a_range_the_primary_decides_what_is_kept() {
    let rig = Rig::new();
    for index in 0..3 {
        assert!(rig.append(job(index, 10)).is_none());
    }
    rig.wait(3);
    let me = ServerId(2);
    rig.server.log.set_server_id(me).unwrap();
    let due = |servers: &[i32]| {
        let set = ReplicaSet::new(servers.iter().copied().map(ServerId), None);
        let few = StreamFacts {
            retention_bytes: Some(1),
            ..StreamFacts::default()
        };
        let range = HeldRange {
            set,
            ..held(0, 0, None)
        };
        rig.server.install(STREAM, few, &[range]);
        rig.server.retention_due(sbp_types::TimestampMs(0))
    };
    assert_eq!(due(&[1, 2]), [], "1 is the primary");
    assert_eq!(due(&[2, 1]), [(STREAM, Offset(2))]);
    assert_eq!(due(&[]), [(STREAM, Offset(2))]);
}

#[test]
fn what_a_range_lacks_is_reported_by_its_primary() {
    let rig = Rig::new();
    rig.server.log.set_server_id(ServerId(2)).unwrap();
    let lacking = |servers: &[i32], replicas| {
        let set = ReplicaSet::new(servers.iter().copied().map(ServerId), None);
        let facts = StreamFacts {
            replicas,
            ..StreamFacts::default()
        };
        let range = HeldRange {
            set,
            ..held(0, 0, None)
        };
        rig.server.install(STREAM, facts, &[range]);
        rig.server.activity().missing_replicas
    };
    assert_eq!((lacking(&[], 1), lacking(&[], 3)), (0, 1), "one of three");
    assert_eq!((lacking(&[2, 1, 3], 3), lacking(&[2, 1], 3)), (0, 1));
    assert_eq!(lacking(&[1, 2], 3), 0, "its primary says so");
}

fn forgotten(asks_in_between: bool) {
    let rig = Rig::new();
    assert!(rig.append(of_writer(0, 0, 0, 1)).is_none());
    rig.wait(1);
    rig.server.trim(STREAM, Offset(1));
    assert!(rig.server.retention_due(sbp_types::TimestampMs(0)).is_empty());
    if asks_in_between {
        assert_eq!(
            short(&rig.append(of_writer(1, 0, 0, 1)).unwrap()),
            (ErrorCode::NONE, 0, 1),
            "it outlives what it wrote"
        );
    }
    forget(&rig.server);
    rig.server.retention_due(sbp_types::TimestampMs(0));
    assert!(
        rig.append(of_writer(2, 0, 50, 1)).is_none(),
        "an unknown writer starts anywhere"
    );
    assert_eq!(short(&rig.wait(1)[0]), (ErrorCode::NONE, 1, 51));
}

/// Has the log forget the writers of the rig's stream.
fn forget(server: &RangeServer) {
    server.log.release_stream(STREAM);
}
