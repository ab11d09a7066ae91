use std::io::IoSlice;
use std::time::Duration;

use proptest::prelude::*;
use sbp_frame::{FORMAT_FLATBUFFERS, Flags, FrameHead, OpCode, PayloadPart, PushFrame, WriteQueue};
use sbp_locks::Mutex;

use super::*;
use crate::rulebook::RuleBook;
use crate::{Action, Fault, Hook, Rule};

struct Book(Mutex<RuleBook>, Mutex<Vec<Action>>);

impl Book {
    fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self(
            Mutex::new(RuleBook::new(rules.into_iter().collect(), 1)),
            Mutex::default(),
        )
    }

    fn text(rules: &[&str]) -> Self {
        Self::new(rules.iter().map(|rule| rule.parse().unwrap()))
    }
}

impl Judge for Book {
    fn decide(&self, seen: &Seen) -> Decision {
        let decision = self.0.lock().decide(seen);
        self.1.lock().push(decision.action());
        decision
    }

    fn note_foreign(&self) {
        self.1.lock().push(Action::Cut);
    }
}

fn frame(call: u32, flags: Flags, payload: &[u8]) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    let head = FrameHead {
        opcode: OpCode::APPEND,
        flags,
        raw_call_id: call,
        format: FORMAT_FLATBUFFERS,
    };
    queue.push_frame(head, b"head", &[PayloadPart::Copy(payload)]).unwrap();
    let mut bytes = Vec::new();
    while !queue.is_empty() {
        let mut slices = [IoSlice::new(&[]); 1];
        queue.slices(&mut slices);
        bytes.extend_from_slice(&slices[0]);
        let count = slices[0].len();
        queue.advance(count);
    }
    bytes
}

fn answer(call: u32) -> Vec<u8> {
    frame(call, Flags::RESPONSE, &[b'.'; 10])
}

/// A relay with a clock that only the test moves.
struct Bench {
    relay: Relay,
    buffer: BytesMut,
    now: Instant,
    book: Book,
}

impl Bench {
    fn new(book: Book) -> Self {
        Self {
            relay: Relay::new(1, Direction::ToClient),
            buffer: BytesMut::new(),
            now: Instant::now(),
            book,
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.relay.advance(&mut self.buffer, self.now, &self.book);
    }

    fn pass_time(&mut self, time: Duration) {
        self.now += time;
        self.relay.handle_timeout(self.now);
    }

    /// What may leave now, taken in odd portions.
    fn sent(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut slices = [IoSlice::new(&[]); 3];
            let count = self.relay.outgoing.slices(&mut slices, self.now);
            let portion: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
            let portion = &portion[..portion.len().min(7)];
            if portion.is_empty() {
                return all;
            }
            all.extend_from_slice(portion);
            self.relay.outgoing.advance(portion.len());
        }
    }
}

#[test]
fn dropped_and_doubled_frames() {
    let mut bench = Bench::new(Book::text(&["drop nth=1", "duplicate nth=1"]));
    let frames: Vec<_> = (1..=3).map(answer).collect();
    bench.receive(&frames.concat());
    let expected = [&frames[1][..], &frames[1], &frames[2]].concat();
    assert_eq!(bench.sent(), expected);
    assert_eq!(
        *bench.book.1.lock(),
        [Action::Dropped, Action::Duplicated, Action::Passed]
    );
}

#[test]
fn a_delay_holds_back_what_comes_behind_it_and_no_more() {
    let mut bench = Bench::new(Book::text(&["delay=20ms nth=2"]));
    let frames: Vec<_> = (1..=3).map(answer).collect();
    bench.receive(&frames.concat());
    assert_eq!(bench.sent(), frames[0]);
    assert_eq!(
        bench.relay.outgoing.next_due(),
        Some(bench.now + Duration::from_millis(20))
    );
    bench.pass_time(Duration::from_millis(19));
    assert!(bench.sent().is_empty());
    bench.pass_time(Duration::from_millis(1));
    assert_eq!(bench.sent(), frames[1..].concat());
    // A steady delay makes frames late, not slow: both leave a delay after they came.
    let mut bench = Bench::new(Book::text(&["delay=20ms"]));
    bench.receive(&frames[0]);
    bench.pass_time(Duration::from_millis(10));
    bench.receive(&frames[1]);
    bench.pass_time(Duration::from_millis(10));
    assert_eq!(bench.sent(), frames[0]);
    bench.pass_time(Duration::from_millis(10));
    assert_eq!(bench.sent(), frames[1]);
}

#[test]
fn answers_are_overtaken_by_as_many_as_asked() {
    let mut bench = Bench::new(Book::text(&["reorder=2 nth=1"]));
    let frames: Vec<_> = (1..=4).map(answer).collect();
    bench.receive(&frames.concat());
    let expected = [&frames[1][..], &frames[2], &frames[0], &frames[3]].concat();
    assert_eq!(bench.sent(), expected);
}

#[test]
fn an_answer_that_nothing_overtakes_returns_in_time() {
    let mut bench = Bench::new(Book::text(&["reorder=2 nth=1"]));
    bench.receive(&answer(1));
    assert!(bench.sent().is_empty());
    let at = bench.relay.poll_timeout().unwrap();
    bench.pass_time(at - bench.now);
    assert_eq!(bench.sent(), answer(1));
    assert_eq!(bench.relay.poll_timeout(), None);
}

#[test]
fn it_never_returns_inside_another_frame() {
    let mut bench = Bench::new(Book::text(&["reorder=5 nth=1"]));
    let frames: Vec<_> = (1..=2).map(answer).collect();
    bench.receive(&frames[0]);
    bench.receive(&frames[1][..20]);
    bench.pass_time(Duration::from_secs(1));
    assert_eq!(bench.sent(), frames[1][..20], "the frame under way comes first");
    bench.receive(&frames[1][20..]);
    assert_eq!(bench.sent(), [&frames[1][20..], &frames[0]].concat());
}

#[test]
fn frames_of_one_answer_keep_their_order() {
    let mut bench = Bench::new(Book::text(&["reorder=5 nth=1"]));
    let first = frame(7, Flags::RESPONSE, b"first");
    let last = frame(7, Flags::RESPONSE | Flags::END, b"last");
    let other = answer(8);
    bench.receive(&[&first[..], &other, &last].concat());
    assert_eq!(bench.sent(), [&other[..], &first, &last].concat());
}

#[test]
fn cuts_fall_at_their_byte() {
    let frames: Vec<_> = (1..=3).map(answer).collect();
    let all = frames.concat();
    let length = frames[0].len();
    for (rule, passed) in [
        ("cut nth=2", length),
        ("cut=5 nth=2", length + 5),
        ("cut-after nth=2", 2 * length),
        ("cut byte=50", 50),
        ("cut byte=0", 0),
    ] {
        let mut bench = Bench::new(Book::text(&[rule]));
        for byte in &all {
            bench.receive(&[*byte]);
        }
        assert!(bench.relay.is_cut(), "{rule}");
        assert_eq!(bench.sent(), all[..passed], "{rule}");
    }
}

#[test]
fn a_held_frame_waits_for_its_hook_and_so_does_what_follows() {
    let (send, held) = std::sync::mpsc::channel();
    let hook = Hook::new(move |frame| send.send(frame).unwrap());
    let mut bench = Bench::new(Book::new([Rule::new(Fault::Hold(hook))]));
    let frames: Vec<_> = (1..=4).map(answer).collect();
    bench.receive(&frames.concat());
    for (index, keeps) in [(0, true), (1, false), (2, true)] {
        let one: Held = held.try_recv().unwrap();
        assert!(held.try_recv().is_err(), "one at a time");
        assert_eq!(one.seen().number, index as u64 + 1);
        assert_eq!(one.bytes()[..], frames[index][..]);
        assert!(bench.sent().is_empty());
        let verdict = bench.relay.take_verdict().unwrap();
        match (keeps, index) {
            (false, _) => one.discard(),
            (true, 0) => one.pass(),
            (true, _) => drop(one),
        }
        bench.relay.handle_verdict(verdict.blocking_recv().unwrap(), bench.now);
        bench.receive(&[]);
        let expected: &[u8] = if keeps { &frames[index] } else { &[] };
        assert_eq!(bench.sent(), expected);
    }
    let verdict = bench.relay.take_verdict().unwrap();
    held.try_recv().unwrap().cut();
    bench.relay.handle_verdict(verdict.blocking_recv().unwrap(), bench.now);
    assert!(bench.relay.is_cut() && bench.sent().is_empty());
}

#[test]
fn what_is_no_frame_goes_on_as_it_is() {
    for foreign in [&b"GET / HTTP/1.1\r\n"[..], &[0, 0, 0, 15, 23], &[0, 0, 0, 16, 24]] {
        let mut bench = Bench::new(Book::text(&["drop nth=2"]));
        bench.receive(&[&answer(1), foreign].concat());
        bench.receive(b"and more");
        assert_eq!(bench.sent(), [&answer(1), foreign, b"and more"].concat());
        assert_eq!(*bench.book.1.lock(), [Action::Passed, Action::Cut], "it is told once");
    }
}

#[test]
fn an_end_passes_on_what_is_there() {
    let mut bench = Bench::new(Book::text(&["reorder=3 nth=1", "duplicate nth=1"]));
    let frames: Vec<_> = (1..=2).map(answer).collect();
    bench.receive(&frames[0]);
    bench.receive(&frames[1][..25]);
    bench.relay.finish(&mut bench.buffer, bench.now);
    assert_eq!(bench.sent(), [&frames[0][..], &frames[1][..25]].concat());
}

proptest! {
    #[test]
    fn without_a_fault_every_byte_goes_on_at_once(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let all: Vec<u8> = (1..).zip(&payloads).flat_map(|(call, payload)| frame(call, Flags::NONE, payload)).collect();
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(all.len())).collect();
        places.extend([0, all.len()]);
        places.sort_unstable();
        let mut bench = Bench::new(Book::text(&["drop request probability=0"]));
        let mut sent = Vec::new();
        for pair in places.windows(2) {
            bench.receive(&all[pair[0]..pair[1]]);
            sent.extend(bench.sent());
        }
        prop_assert_eq!(&sent, &all);
        prop_assert_eq!(bench.book.1.lock().len(), payloads.len());
    }

    #[test]
    fn any_bytes_go_on(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bench = Bench::new(Book::text(&[]));
        for piece in bytes.chunks(13) {
            bench.receive(piece);
        }
        bench.relay.finish(&mut bench.buffer, bench.now);
        prop_assert_eq!(bench.sent(), bytes);
    }
}
