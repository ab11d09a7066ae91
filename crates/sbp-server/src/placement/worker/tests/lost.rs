//! A range server that goes down while something waits for its answer.

use sbp_replication::Vote;

use super::super::shared_seal::FURTHER_VOTES;
use super::*;
use crate::placement::RequestedSettings;
use crate::placement::seal::SealWish;

const B: ServerId = ServerId(6);
const C: ServerId = ServerId(7);

/// Three servers, and a range of a stream that they share.
fn shared() -> (Bench, StreamId, Vec<ServerId>) {
    let bench = Bench::with(&[A, B, C], true);
    let stream = NewStream {
        settings: RequestedSettings {
            replica_count: 3,
            ack_count: 2,
            ..RequestedSettings::default()
        },
        ..NewStream::default()
    };
    let created = bench.start(Request::CreateStreams(vec![Ok(stream)]));
    for _server in 0..3 {
        let Asked::Sync(_, _, done) = bench.asked() else {
            panic!()
        };
        done(Ok(()));
    }
    match end(&created) {
        Ok(Outcome::NewStream(stream, range)) => (bench, stream.id, range.servers.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// The votes that the servers of a range are asked for.
fn votes(bench: &Bench) -> HashMap<ServerId, Done<FencedEnd>> {
    let vote = |_server| match bench.asked() {
        Asked::Vote(server, done) => (server, done),
        _ => panic!("not asked for a vote"),
    };
    (0..3).map(vote).collect()
}

fn at(offset: i64) -> Result<FencedEnd, Refusal> {
    let end = Position::start(Offset(offset));
    let vote = Vote {
        end,
        whole_to: end,
        begins_at: Position::start(Offset(0)),
        writers_end: None,
    };
    Ok(FencedEnd {
        vote,
        confirmed: end,
        damaged: Vec::new(),
    })
}

#[test]
fn a_new_stream_does_not_wait_for_a_server_that_went_down() {
    let bench = Bench::new();
    let created = bench.start(Request::CreateStreams(vec![Ok(NewStream::default())]));
    let Asked::Sync(stream, _, late) = bench.asked() else {
        panic!()
    };
    bench.lose();
    assert!(end(&created).is_ok(), "it is durable here");
    bench.driver.heard(A, connection(A) + 1, false);
    let Asked::Sync(again, _, done) = bench.asked() else {
        panic!()
    };
    assert_eq!(again, stream, "the server is told when it is back");
    done(Ok(()));
    late(Ok(()));
}

#[test]
fn seals_and_trims_of_a_server_that_went_down_are_refused_at_once() {
    let bench = Bench::new();
    let (one, two) = (bench.stream(), bench.stream());
    let sealed = bench.start(seal(one));
    let Asked::Seal(_, _, late_seal) = bench.asked() else {
        panic!()
    };
    let trimmed = bench.start(trim(two, 3));
    let Asked::Ends(_, late_end) = bench.asked() else {
        panic!()
    };
    bench.lose();
    assert!(matches!(bench.asked(), Asked::GivenUp));
    assert_eq!(code(&sealed), ErrorCode::PD_NO_AVAILABLE_RS);
    assert_eq!(code(&trimmed), ErrorCode::PD_NO_AVAILABLE_RS);
    late_seal(Ok(Offset(4)));
    late_end(Ok(vec![Some(Offset(3))]));
    bench.assert_nothing_asked();
    let ranges = bench.driver.read(|state| state.ranges_of(one).count());
    assert_eq!(ranges, 1, "what came too late changes nothing");
}

#[test]
fn a_seal_of_a_shared_range_is_decided_without_a_server_that_went_down() {
    let (bench, stream, servers) = shared();
    let primary = servers[0];
    let sealed = bench.start(seal(stream));
    let mut votes = votes(&bench);
    let late = votes.remove(&primary).unwrap();
    for (_server, done) in votes {
        done(at(5));
    }
    bench.lose_server(primary);
    for _server in 0..2 {
        let Asked::Sync(_, ranges, done) = bench.asked() else {
            panic!()
        };
        assert_eq!(ranges[0].end, Some(Offset(5)));
        done(Ok(()));
    }
    let Ok(Outcome::Range(next)) = end(&sealed) else {
        panic!()
    };
    assert_eq!((next.key, next.servers.contains(&primary)), (key(stream, 1), false));
    late(at(5));
    bench.assert_nothing_asked();
}

#[test]
fn what_is_written_back_is_not_waited_for_when_its_source_or_its_target_went_down() {
    for loses_source in [true, false] {
        let (bench, stream, servers) = shared();
        bench.lose_server(servers[0]);
        // Its primary is gone, so the range is sealed.
        for _server in 0..2 {
            let Asked::Vote(server, done) = bench.asked() else {
                panic!()
            };
            done(at(if server == servers[1] { 5 } else { 3 }));
        }
        let Asked::WriteBack(source, to, late) = bench.asked() else {
            panic!()
        };
        assert_eq!((source, to), (servers[1], servers[2]));
        let sealed = bench.start(seal(stream));
        bench.lose_server(if loses_source { source } else { to });
        assert_eq!(code(&sealed), ErrorCode::PD_NO_AVAILABLE_RS);
        late(Ok(()));
        bench.assert_nothing_asked();
        let ranges = bench.driver.read(|state| state.ranges_of(stream).count());
        assert_eq!(ranges, 1, "one server is too few for the next range");
    }
}

#[test]
fn the_next_change_of_a_stream_begins_when_the_server_that_the_last_one_waited_for_is_gone() {
    let (bench, stream, servers) = shared();
    let first = bench.start(seal(stream));
    for (_server, done) in votes(&bench) {
        done(at(0));
    }
    let mut told = Vec::new();
    for _server in 0..3 {
        let Asked::Sync(_, _, done) = bench.asked() else {
            panic!()
        };
        told.push(done);
    }
    // The primary is told last, and does not answer: until it is gone the range cannot be sealed.
    let late = told.pop().unwrap();
    told.into_iter().for_each(|done| done(Ok(())));
    bench.assert_nothing_asked();
    let primary = bench.driver.read(|state| state.last_range(stream).unwrap().servers[0]);
    assert!(servers.contains(&primary));
    bench.lose_server(primary);
    assert!(end(&first).is_ok());
    // It is sealed because its primary is gone.
    for _server in 0..2 {
        let Asked::Vote(server, done) = bench.asked() else {
            panic!()
        };
        assert_ne!(server, primary);
        done(at(0));
    }
    late(Ok(()));
}

#[test]
fn a_server_that_is_back_at_another_address_is_made_known_to_those_that_share_ranges_with_it() {
    let (bench, stream, servers) = shared();
    let moved = servers[1];
    let address = "somewhere-else:1".to_owned();
    let register = || Request::RegisterServer(ServerRecord::new(moved, address.clone()));
    assert_eq!(end(&bench.start(register())), Ok(Outcome::Done));
    for _server in 0..2 {
        let Asked::Sync(synced, ranges, done) = bench.asked() else {
            panic!()
        };
        assert_eq!((synced, ranges.len()), (stream, 1));
        assert!(ranges[0].set.servers().contains(&moved));
        done(Ok(()));
    }
    assert_eq!(end(&bench.start(register())), Ok(Outcome::Done));
    bench.assert_nothing_asked();
}

/// A vote of a server whose disk has lost these records.
fn lacking(end: i64, (from, to): (i64, i64)) -> Result<FencedEnd, Refusal> {
    let mut voted = at(end)?;
    voted.vote.whole_to = Position::start(Offset(from));
    voted.damaged = vec![(Offset(from), Offset(to))];
    Ok(voted)
}

#[test]
fn a_range_whose_same_records_all_servers_have_lost_waits_for_the_last_vote_and_is_ended_by_force_alone() {
    let (bench, stream, servers) = shared();
    let sealed = bench.start(seal(stream));
    let mut asked = votes(&bench);
    let last = asked.remove(&servers[2]).unwrap();
    for (_server, done) in asked {
        done(lacking(9, (2, 4)));
    }
    // Two votes are enough, but the third server may have what the others have lost. It lost less.
    std::thread::sleep(FURTHER_VOTES * 2);
    bench.assert_nothing_asked();
    last(lacking(8, (3, 5)));
    let refusal = end(&sealed).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PD_NO_AVAILABLE_RS);
    assert!(
        refusal.message.contains("have lost the same records (offset 3)"),
        "{}",
        refusal.message
    );
    let Request::SealRanges(wish, targets) = seal(stream) else {
        panic!()
    };
    let forced = bench.start(Request::SealRanges(SealWish { force: true, ..wish }, targets));
    for (server, done) in votes(&bench) {
        let is_third = server == servers[2];
        done(if is_third {
            lacking(8, (3, 5))
        } else {
            lacking(9, (2, 4))
        });
    }
    for _server in 0..3 {
        let Asked::Sync(_, ranges, done) = bench.asked() else {
            panic!()
        };
        assert_eq!(ranges[0].end, Some(Offset(9)), "as the votes say");
        done(Ok(()));
    }
    let Ok(Outcome::RangeBehindLoss(next, lost)) = end(&forced) else {
        panic!()
    };
    assert_eq!((next.key, next.start_offset), (key(stream, 1), Offset(9)));
    assert_eq!(lost, [(Offset(3), Offset(4))]);
}
