use std::net::Ipv4Addr;

use sbp_tank::{Message, encode_bundle, encode_sparse_bundle};

use super::*;

const LONG: Duration = Duration::from_secs(5);

fn part(partition: u16, next: u64, until: u64, high_water: u64) -> Part {
    Part {
        partition,
        next,
        until,
        high_water,
        leader: None,
    }
}

fn message(sequence: u64) -> Message<'static> {
    Message {
        sequence,
        time_ms: 7,
        key: None,
        content: b"x",
    }
}

fn dense(count: usize) -> Bytes {
    encode_bundle(&vec![message(0); count]).expect("a bundle")
}

fn sparse(numbers: &[u64]) -> Bytes {
    let messages: Vec<_> = numbers.iter().map(|number| message(*number)).collect();
    encode_sparse_bundle(&messages).expect("a bundle")
}

/// An answer about partitions one after the other.
#[derive(Default)]
struct Answer(Fetched);

impl Answer {
    fn told(mut self, partition: u16, state: PartitionState) -> Self {
        self.0.partitions.push(ConsumedPartition {
            topic: String::from("t"),
            partition: Some(partition),
            state,
        });
        self
    }

    fn with(self, partition: u16, base: Option<u64>, high_water: u64, bundles: &[Bytes]) -> Self {
        let state = PartitionState::Data {
            base,
            high_water,
            length: 0,
        };
        let mut answer = self.told(partition, state);
        let place = answer.0.partitions.len() - 1;
        answer
            .0
            .bundles
            .extend(bundles.iter().map(|bundle| (place, bundle.clone())));
        answer
    }

    fn empty(self, partition: u16, high_water: u64) -> Self {
        self.with(partition, Some(0), high_water, &[])
    }

    fn cut(mut self, length: usize) -> Self {
        self.0.cut.push((self.0.partitions.len() - 1, length));
        self
    }
}

/// Sends the next request, which is for these partitions, and takes its answer. The numbers of its bundles.
fn exchange(positions: &mut Positions, partitions: &[u16], answer: Answer) -> Vec<(u64, u64)> {
    let wanted = positions.next_request().expect("a request");
    let named: Vec<_> = wanted.from.iter().map(|from| from.partition).collect();
    assert_eq!(named, partitions);
    let taken = answered(positions, wanted, answer, LONG);
    assert_eq!(taken.errors, []);
    let spans = taken.bundles.iter();
    spans.map(|bundle| (bundle.span.first, bundle.span.last)).collect()
}

fn answered(positions: &mut Positions, wanted: Wanted, answer: Answer, took: Duration) -> Taken {
    positions.take(Asked {
        id: wanted.id,
        from: wanted.from,
        fetched: Ok(answer.0),
        took,
    })
}

fn is_over(positions: &mut Positions) -> bool {
    positions.next_request().is_none()
}

#[test]
fn a_bundle_that_begins_at_the_end_ends_it() {
    for (bundles, base, brings) in [
        // 5 to 7 are gone: the next message is the one at the end, or one behind it.
        (vec![dense(2)], Some(8), vec![]),
        (vec![sparse(&[9, 12])], None, vec![]),
        (vec![dense(2), sparse(&[10, 12])], Some(5), vec![(5, 6)]),
        (vec![sparse(&[6, 20])], None, vec![(6, 20)]),
    ] {
        let mut positions = Positions::new("t", [part(0, 5, 8, 20)]);
        let answer = Answer::default().with(0, base, 20, &bundles);
        assert_eq!(exchange(&mut positions, &[0], answer), brings);
        assert!(is_over(&mut positions));
    }
}

#[test]
fn nothing_of_a_partition_that_is_asked_for_alone_ends_it() {
    let mut positions = Positions::new("t", [part(0, 5, 8, 7)]);
    exchange(&mut positions, &[0], Answer::default().empty(0, 7));
    assert!(is_over(&mut positions));
}

#[test]
fn nothing_beside_other_partitions_ends_nothing() {
    let mut positions = Positions::new("t", [part(0, 5, 8, 7), part(1, 1, 3, 2)]);
    let others_fill_it = Answer::default().empty(0, 7).with(1, Some(1), 2, &[dense(1)]);
    assert_eq!(exchange(&mut positions, &[0, 1], others_fill_it), [(1, 1)]);
    // It is asked for alone, and there is something.
    let answer = Answer::default().with(0, Some(5), 7, &[dense(2)]);
    assert_eq!(exchange(&mut positions, &[0], answer), [(5, 6)]);
    let answer = Answer::default().with(1, Some(2), 2, &[dense(1)]).empty(0, 7);
    assert_eq!(exchange(&mut positions, &[1, 0], answer), [(2, 2)]);
    exchange(&mut positions, &[0], Answer::default().empty(0, 7));
    assert!(is_over(&mut positions));
}

#[test]
fn nothing_ends_nothing_while_the_end_is_not_known_to_be_there() {
    // 7, the last one wanted, comes while the first request waits, and its answer has no room for it.
    let mut positions = Positions::new("t", [part(0, 5, 8, 6)]);
    exchange(&mut positions, &[0], Answer::default().empty(0, 7));
    let answer = Answer::default().with(0, Some(7), 7, &[dense(1)]);
    assert_eq!(exchange(&mut positions, &[0], answer), [(7, 7)]);
    assert!(is_over(&mut positions));
    // A leader that has less than the one before does not show anything either.
    let mut positions = Positions::new("t", [part(0, 5, 8, 7)]);
    exchange(&mut positions, &[0], Answer::default().empty(0, 6));
    assert!(!is_over(&mut positions));
    // And neither does what the former leader had said.
    let mut positions = Positions::new("t", [part(0, 5, 8, 7)]);
    let leader = PartitionState::OtherLeader(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    exchange(&mut positions, &[0], Answer::default().told(0, leader));
    exchange(&mut positions, &[0], Answer::default().empty(0, 7));
    assert!(!is_over(&mut positions));
    // Without an end there is none.
    let mut positions = Positions::new("t", [part(0, 5, u64::MAX, u64::MAX)]);
    exchange(&mut positions, &[0], Answer::default().empty(0, u64::MAX));
    assert!(!is_over(&mut positions));
}

#[test]
fn what_is_asked_for_at_once_is_bounded_however_many_partitions_there_are() {
    for count in [1_u16, 16, 255, 256, 4_000, u16::MAX] {
        let all = (0..count).map(|partition| part(partition, 1, u64::MAX, 9));
        let mut positions = Positions::new("t", all);
        let wanted: Vec<_> = std::iter::from_fn(|| positions.next_request()).collect();
        let bytes = |wanted: &[Wanted]| -> u64 {
            let from = wanted.iter().flat_map(|wanted| &wanted.from);
            from.map(|from| u64::from(from.fetch_size)).sum()
        };
        assert!(wanted.iter().all(|wanted| wanted.from.len() <= PARTITIONS));
        let named: usize = wanted.iter().map(|wanted| wanted.from.len()).sum();
        assert_eq!(named, usize::from(count), "each partition is waited for");
        assert!(bytes(&wanted) <= u64::from(ALL_FETCHED), "{count} partitions");
        // All of them have a bundle that is larger than that.
        for wanted in wanted {
            let names = wanted.from.iter().map(|from| from.partition);
            let answer = names.fold(Answer::default(), |answer, partition| {
                answer.with(partition, Some(1), 9, &[]).cut(40 << 20)
            });
            let taken = answered(&mut positions, wanted, answer, Duration::ZERO);
            assert_eq!(taken.errors, []);
        }
        let wanted: Vec<_> = std::iter::from_fn(|| positions.next_request()).collect();
        let large = u64::from(ALL_FETCHED);
        assert!(bytes(&wanted) <= large, "{count} partitions");
        assert_eq!(wanted.len(), 1, "the others follow");
    }
}

#[test]
fn partitions_with_large_bundles_follow_each_other_and_hold_up_nobody() {
    let mut positions = Positions::new("t", (0..300).map(|partition| part(partition, 1, u64::MAX, 9)));
    let (first, second) = (positions.next_request().expect("one"), positions.next_request());
    assert_eq!(second.map(|wanted| wanted.from.len()), Some(45));
    let ordinary = first.from[0].fetch_size;
    let mut answer = Answer::default();
    for from in &first.from {
        answer = match from.partition {
            0 | 7 => answer.with(from.partition, Some(1), 9, &[]).cut(50 << 20),
            partition => answer.with(partition, Some(1), 9, &[dense(1)]),
        };
    }
    answered(&mut positions, first, answer, Duration::ZERO);
    let large = positions.next_request().expect("a large one");
    assert_eq!(large.from.len(), 1);
    assert_eq!((large.from[0].partition, large.from[0].fetch_size), (0, 50 << 20));
    let others = positions.next_request().expect("the others");
    assert_eq!(others.from.len(), 253);
    assert_eq!(positions.next_request(), None);
    answered(
        &mut positions,
        large,
        Answer::default().with(0, Some(1), 9, &[dense(1)]),
        LONG,
    );
    let next = positions.next_request().expect("the other large one");
    assert_eq!((next.from.len(), next.from[0].partition), (1, 7));
    let again = positions.next_request().expect("the first one, as all others");
    assert_eq!((again.from[0].partition, again.from[0].fetch_size), (0, ordinary));
}

#[test]
fn an_answer_that_is_full_of_what_was_read_before_is_asked_for_with_more() {
    let mut positions = Positions::new("t", [part(0, 50, u64::MAX, 99)]);
    let wanted = positions.next_request().expect("a request");
    let before = wanted.from[0].fetch_size;
    // Once the chunk ends with a bundle, once with one that is cut.
    let answer = Answer::default().with(0, Some(10), 99, &[dense(5), dense(5)]);
    answered(&mut positions, wanted, answer, LONG);
    let wanted = positions.next_request().expect("a request");
    assert_eq!((wanted.from[0].sequence, wanted.from[0].fetch_size), (50, 2 * before));
    let answer = Answer::default().with(0, Some(10), 99, &[dense(5)]).cut(0);
    answered(&mut positions, wanted, answer, LONG);
    let mut last = positions.next_request().expect("a request");
    assert_eq!((last.from[0].sequence, last.from[0].fetch_size), (50, 4 * before));
    // There is an end to that.
    for _ in 0..6 {
        let answer = Answer::default().with(0, Some(10), 99, &[dense(5)]);
        let taken = answered(&mut positions, last, answer, LONG);
        if let [error] = taken.errors.as_slice() {
            assert_eq!((error.kind(), error.sequence()), (TankErrorKind::Peer, Some(50)));
            return;
        }
        last = positions.next_request().expect("a request");
    }
    panic!("it asks for more and more");
}

#[test]
fn what_was_not_asked_for_is_an_error_and_takes_no_time() {
    let whole = |partition| Answer::default().with(partition, Some(1), 9, &[dense(1)]);
    let mut other_topic = whole(0);
    other_topic.0.partitions[0].topic = String::from("u");
    let flood = (0..60_000).fold(Answer::default(), |answer, _| answer.empty(0, 9));
    for answer in [whole(1), other_topic, flood] {
        let mut positions = Positions::new("t", [part(0, 1, u64::MAX, 9)]);
        let wanted = positions.next_request().expect("a request");
        let taken = answered(&mut positions, wanted, answer, LONG);
        let [error] = taken.errors.as_slice() else {
            panic!("{:?}", taken.errors);
        };
        assert_eq!(error.kind(), TankErrorKind::Peer);
        assert_eq!(taken.bundles, []);
    }
}

#[test]
fn partitions_that_are_refused_are_asked_again_after_a_pause_and_others_at_once() {
    let mut positions = Positions::new("t", [part(0, 1, u64::MAX, 0), part(1, 1, u64::MAX, 0)]);
    let wanted = positions.next_request().expect("a request");
    let answer = Answer::default()
        .told(0, PartitionState::NoLeader)
        .with(1, Some(1), 1, &[dense(1)]);
    let taken = answered(&mut positions, wanted, answer, Duration::ZERO);
    assert_eq!((taken.errors.len(), taken.bundles.len()), (1, 1));
    let (first, second) = (positions.next_request(), positions.next_request());
    let told = |wanted: Option<Wanted>| wanted.map(|wanted| (wanted.from[0].partition, wanted.pause));
    assert_eq!(told(first), Some((0, BACK_OFF.first)));
    assert_eq!(told(second), Some((1, Duration::ZERO)));
}

#[test]
fn a_request_that_fails_is_sent_again_after_a_pause_that_grows() {
    let mut positions = Positions::new("t", [part(0, 1, u64::MAX, 0)]);
    for failures in 0..4 {
        let wanted = positions.next_request().expect("a request");
        let pause = if failures == 0 {
            Duration::ZERO
        } else {
            BACK_OFF.bound(failures)
        };
        assert_eq!(wanted.pause, pause);
        let taken = positions.take(Asked {
            id: wanted.id,
            from: wanted.from,
            fetched: Err(TankError::new(TankErrorKind::Lost, "gone")),
            took: LONG,
        });
        assert_eq!(taken.errors.len(), 1);
    }
}

#[test]
fn messages_behind_the_end_are_not_part_of_a_gap() {
    let mut positions = Positions::new("t", [part(0, 2, 5, 9)]);
    let wanted = positions.next_request().expect("a request");
    let gone = PartitionState::OutOfBounds {
        high_water: 9,
        first_available: 8,
    };
    let taken = answered(&mut positions, wanted, Answer::default().told(0, gone), LONG);
    let gaps: Vec<_> = taken.errors.iter().map(TankError::gap).collect();
    let gap = Gap {
        partition: 0,
        from: 2,
        to: 5,
    };
    assert_eq!(gaps, [Some(gap)]);
    assert!(is_over(&mut positions));
}

#[test]
fn what_was_sent_back_or_forgotten_takes_no_late_answer() {
    let mut positions = Positions::new("t", [part(0, 1, u64::MAX, 9)]);
    let first = positions.next_request().expect("a request");
    answered(
        &mut positions,
        first,
        Answer::default().with(0, Some(1), 9, &[dense(3)]),
        LONG,
    );
    let second = positions.next_request().expect("a request");
    positions.go_back(0, 2, u64::MAX);
    let late = Answer::default().with(0, Some(4), 9, &[dense(3)]);
    assert_eq!(answered(&mut positions, second, late, LONG).bundles, []);
    let third = positions.next_request().expect("a request");
    assert_eq!(third.from[0].sequence, 2);
    positions.forget_requests();
    let fourth = positions.next_request().expect("it is asked for anew");
    let late = Answer::default().with(0, Some(2), 9, &[dense(1)]);
    assert_eq!(answered(&mut positions, third, late, LONG).bundles, []);
    assert_eq!(positions.next_request(), None, "the fourth is under way");
    let answer = Answer::default().with(0, Some(2), 9, &[dense(1)]);
    assert_eq!(answered(&mut positions, fourth, answer, LONG).bundles.len(), 1);
}
