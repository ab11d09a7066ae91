//! Chains of two gateways in front of one service, in every order of what happens that chance finds.

use std::collections::{HashMap, VecDeque};

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use sbp_pravega::put_event;
use sbp_record::{Batch, EncodeOptions};

use sbp_types::Offset;

use super::chain::{Chain, Outcome, Refusal, Step, Submission, What};
use super::*;
use crate::pravega::segment::{Place, put_bytes};

/// Events that each writer writes.
const EVENTS: i64 = 8;

/// Who is told: the writer, and its session.
type Told = (u128, u64);

/// What a gateway asks of the service.
enum Asked {
    End(Option<Offset>),
    Number(WriterId, u64),
    Append(Box<Submission>),
}

/// What the service answers.
enum Answered {
    End(End),
    Number(WriterId, u64, i64),
    Append(WriterId, Result<bool, Refusal>),
}

/// The service: one stream.
#[derive(Default)]
struct Service {
    next: i64,
    /// The segment, as its batches say.
    segment: BytesMut,
    /// The epoch and count of each writer's last batch.
    stored: HashMap<WriterId, (i64, usize)>,
}

impl Service {
    fn end(&self) -> End {
        End {
            next: Offset(self.next),
            length: self.segment.len() as i64,
        }
    }

    fn append(&mut self, submission: Submission) -> Result<bool, Refusal> {
        let Submission {
            writer,
            epoch,
            mut records,
            expected,
        } = submission;
        let count = records.len();
        match self.stored.get(&writer) {
            Some((stored, before)) if *stored == epoch => {
                return if *before == count {
                    Ok(true)
                } else {
                    Err(Refusal::Numbered)
                };
            }
            Some((stored, _)) if *stored > epoch => return Err(Refusal::Numbered),
            _ => {}
        }
        if expected != Offset(self.next) {
            return Err(Refusal::Moved(Some(Offset(self.next))));
        }
        let mut bytes = BytesMut::new();
        records.finish(&EncodeOptions::default(), &mut bytes).expect("a batch");
        let batch = Batch::decode(bytes.freeze(), None).expect("a batch");
        let place = Place::of(&batch).expect("records").expect("the segment's");
        assert_eq!(place.at, self.segment.len() as i64, "where the batch says that it is");
        put_bytes(&batch, &mut self.segment).expect("records");
        assert_eq!(place.end(), self.segment.len() as i64);
        self.stored.insert(writer, (epoch, count));
        self.next += count as i64;
        Ok(false)
    }

    /// Records of somebody else.
    fn append_foreign(&mut self) {
        self.next += 3;
    }

    fn answer(&mut self, asked: Asked) -> Option<Answered> {
        Some(match asked {
            Asked::End(at_least) if at_least.is_some_and(|at_least| at_least.0 > self.next) => return None,
            Asked::End(_) => Answered::End(self.end()),
            Asked::Number(writer, reading) => {
                let stored = self.stored.get(&writer).map_or(NEW, |(epoch, _)| *epoch);
                Answered::Number(writer, reading, stored)
            }
            Asked::Append(submission) => {
                let writer = submission.writer;
                Answered::Append(writer, self.append(*submission))
            }
        })
    }
}

#[derive(Default)]
struct Gateway {
    chain: Chain<Told>,
    asked: VecDeque<Asked>,
    answered: VecDeque<Answered>,
}

/// A client with one writer.
struct Client {
    writer: u128,
    gateway: usize,
    session: u64,
    is_set_up: bool,
    /// The last number that was handed over in this session, and that was acknowledged.
    sent: i64,
    acknowledged: i64,
}

struct World {
    service: Service,
    gateways: [Gateway; 2],
    clients: Vec<Client>,
    /// Appends whose gateway was told that nobody knows, and that may arrive yet.
    late: Vec<Asked>,
    sessions: u64,
}

impl World {
    fn new(writers: u128) -> Self {
        let mut world = Self {
            service: Service::default(),
            gateways: Default::default(),
            clients: Vec::new(),
            late: Vec::new(),
            sessions: 0,
        };
        for writer in 1..=writers {
            world.clients.push(Client {
                writer,
                gateway: 0,
                session: 0,
                is_set_up: false,
                sent: 0,
                acknowledged: 0,
            });
            world.connect(world.clients.len() - 1, 0);
        }
        world
    }

    fn connect(&mut self, client: usize, gateway: usize) {
        self.sessions += 1;
        let client = &mut self.clients[client];
        let id = WriterId(client.writer);
        self.gateways[client.gateway].chain.leave(id, client.session);
        client.gateway = gateway;
        client.session = self.sessions;
        client.is_set_up = false;
        let told = (client.writer, client.session);
        self.gateways[gateway].chain.push(id, client.session, What::SetUp, told);
    }

    /// The client appends up to so many of its next events.
    fn append(&mut self, client: usize, events: i64) {
        let client = &mut self.clients[client];
        let events = events.min(EVENTS - client.sent);
        if !client.is_set_up || events == 0 {
            return;
        }
        let mut data = BytesMut::new();
        for number in client.sent + 1..=client.sent + events {
            put_event(&mut data, format!("{} {number}", client.writer).as_bytes()).expect("an event");
        }
        client.sent += events;
        let what = What::Append {
            data: data.freeze(),
            events: events as i32,
            last: client.sent,
        };
        let told = (client.writer, client.session);
        let gateway = &mut self.gateways[client.gateway];
        gateway.chain.push(WriterId(client.writer), client.session, what, told);
    }

    /// A gateway does its next step. Whether there was one.
    fn step(&mut self, gateway: usize) -> bool {
        let of = &mut self.gateways[gateway];
        let Some(step) = of.chain.poll() else { return false };
        match step {
            Step::ReadEnd(at_least) => of.asked.push_back(Asked::End(at_least)),
            Step::Ask(writer, reading) => of.asked.push_back(Asked::Number(writer, reading)),
            Step::Submit(submission) => of.asked.push_back(Asked::Append(submission)),
            Step::Tell((writer, session), _, outcome) => self.told(writer, session, outcome),
        }
        true
    }

    fn told(&mut self, writer: u128, session: u64, outcome: Outcome) {
        let place = usize::try_from(writer - 1).expect("a client");
        let client = &mut self.clients[place];
        if client.session != session {
            return;
        }
        match outcome {
            Outcome::SetUp(last) => {
                client.is_set_up = true;
                client.sent = last.max(0);
                assert!(client.acknowledged <= client.sent, "what was acknowledged is stored");
                client.acknowledged = client.sent;
            }
            Outcome::Appended { number, previous, .. } => {
                assert!(previous <= client.acknowledged, "no acknowledgement was left out");
                client.acknowledged = client.acknowledged.max(number);
            }
            Outcome::Lost => {
                let other = 1 - client.gateway;
                self.connect(place, other);
            }
            other => panic!("{other:?}"),
        }
    }

    /// The service takes the next request of a gateway.
    fn serve(&mut self, gateway: usize) -> bool {
        let of = &mut self.gateways[gateway];
        let Some(asked) = of.asked.pop_front() else {
            return false;
        };
        match asked {
            Asked::End(at_least) if at_least.is_some_and(|at_least| at_least.0 > self.service.next) => {
                panic!("the service has told of an end that it does not have");
            }
            asked => of.answered.extend(self.service.answer(asked)),
        }
        true
    }

    fn answer(&mut self, gateway: usize) -> bool {
        let of = &mut self.gateways[gateway];
        let Some(answered) = of.answered.pop_front() else {
            return false;
        };
        match answered {
            Answered::End(end) => of.chain.end_read(Ok(end)),
            Answered::Number(writer, reading, stored) => of.chain.asked(writer, reading, Ok(stored)),
            Answered::Append(writer, outcome) => of.chain.appended(writer, outcome),
        }
        true
    }

    /// An append of a gateway that nobody knows of: it may arrive later.
    fn lose(&mut self, gateway: usize) {
        let of = &mut self.gateways[gateway];
        let Some(place) = of.asked.iter().position(|asked| matches!(asked, Asked::Append(_))) else {
            return;
        };
        if let Some(Asked::Append(submission)) = of.asked.remove(place) {
            of.answered
                .push_back(Answered::Append(submission.writer, Err(Refusal::Unknown)));
            self.late.push(Asked::Append(submission));
        }
    }

    /// The answer to an append of a gateway is lost.
    fn lose_answer(&mut self, gateway: usize) {
        let of = &mut self.gateways[gateway];
        for answered in &mut of.answered {
            if let Answered::Append(_, outcome @ Ok(_)) = answered {
                *outcome = Err(Refusal::Unknown);
                return;
            }
        }
    }

    fn act(&mut self, choice: u16) {
        let (what, gateway, client) = (choice % 16, usize::from(choice / 16 % 2), usize::from(choice / 32));
        let client = client % self.clients.len();
        match what {
            0..=2 => {
                self.step(gateway);
            }
            3..=5 => {
                self.serve(gateway);
            }
            6..=8 => {
                self.answer(gateway);
            }
            9..=11 => self.append(client, 1 + i64::from(what) - 9),
            12 => self.connect(client, gateway),
            13 => self.lose(gateway),
            14 => match choice / 64 % 2 {
                0 => self.lose_answer(gateway),
                _ => self.service.append_foreign(),
            },
            _ => {
                if !self.late.is_empty() {
                    let late = self.late.remove(usize::from(choice / 32) % self.late.len());
                    self.service.answer(late);
                }
            }
        }
    }

    /// Lets all come to its end.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut is_over = true;
            for gateway in 0..2 {
                while self.step(gateway) || self.serve(gateway) || self.answer(gateway) {
                    is_over = false;
                }
            }
            for client in 0..self.clients.len() {
                is_over &= self.clients[client].acknowledged == EVENTS;
                if self.clients[client].acknowledged < EVENTS {
                    self.append(client, 3);
                }
            }
            if is_over {
                return;
            }
        }
        panic!("it does not come to an end");
    }
}

/// The events of the segment, by writer.
fn events(segment: &BytesMut) -> HashMap<u128, Vec<i64>> {
    let mut events = sbp_pravega::Events::new(0);
    events.push(segment.clone().freeze());
    let mut found: HashMap<u128, Vec<i64>> = HashMap::new();
    while let Some((_, content)) = events.next_event().expect("events") {
        let text = String::from_utf8(content.to_vec()).expect("text");
        let (writer, number) = text.split_once(' ').expect("two numbers");
        let numbers = found.entry(writer.parse().expect("a number")).or_default();
        numbers.push(number.parse().expect("a number"));
    }
    assert_eq!(events.held(), 0);
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn each_event_is_stored_once_and_in_order(choices in vec(any::<u16>(), 0..400), writers in 1_u128..4) {
        let mut world = World::new(writers);
        choices.into_iter().for_each(|choice| world.act(choice));
        world.settle();
        while let Some(late) = world.late.pop() {
            world.service.answer(late);
        }
        let found = events(&world.service.segment);
        for writer in 1..=writers {
            prop_assert_eq!(&found[&writer], &(1..=EVENTS).collect::<Vec<_>>());
        }
        for client in 0..world.clients.len() {
            let client = &world.clients[client];
            world.gateways[client.gateway].chain.leave(WriterId(client.writer), client.session);
        }
        for gateway in &mut world.gateways {
            while gateway.chain.poll().is_some() {}
            prop_assert!(gateway.chain.is_idle(), "nothing is kept of who has left");
        }
    }
}

/// A chain that knows where its segment ends, and a writer that is set up.
fn chain(length: i64) -> Chain<Told> {
    let mut chain = Chain::default();
    chain.push(WriterId(1), 1, What::SetUp, (1, 1));
    assert!(matches!(chain.poll(), Some(Step::ReadEnd(None))));
    let end = End {
        next: Offset(5),
        length,
    };
    chain.end_read(Ok(end));
    let Some(Step::Ask(WriterId(1), reading)) = chain.poll() else {
        panic!("a question")
    };
    chain.asked(WriterId(1), reading, Ok(NEW));
    assert!(matches!(chain.poll(), Some(Step::Tell(_, _, Outcome::SetUp(NEW)))));
    assert!(chain.poll().is_none());
    chain
}

fn one(number: i64, content: &'static [u8]) -> What {
    What::Append {
        data: Bytes::from_static(content),
        events: 1,
        last: number,
    }
}

fn outcome(chain: &mut Chain<Told>) -> Outcome {
    match chain.poll() {
        Some(Step::Tell(_, _, outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

fn submitted(chain: &mut Chain<Told>) -> Box<Submission> {
    match chain.poll() {
        Some(Step::Submit(submission)) => submission,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_comes_meanwhile_joins_the_next_batch() {
    let mut chain = chain(100);
    for number in [3, 7, 9] {
        chain.push(WriterId(1), 1, one(number, b"raw"), (1, 1));
    }
    let first = submitted(&mut chain);
    assert_eq!((first.epoch, first.expected, first.records.len()), (9, Offset(5), 3));
    chain.push(WriterId(1), 1, one(10, b"more"), (1, 1));
    assert!(chain.poll().is_none());
    chain.appended(WriterId(1), Ok(false));
    for (number, previous, length) in [(3, NEW, 103), (7, 3, 106), (9, 7, 109)] {
        let appended = Outcome::Appended {
            number,
            previous,
            length: Some(length),
        };
        assert_eq!(outcome(&mut chain), appended);
    }
    let next = submitted(&mut chain);
    assert_eq!((next.epoch, next.expected), (10, Offset(8)));
    chain.appended(WriterId(1), Ok(false));
    assert!(matches!(
        outcome(&mut chain),
        Outcome::Appended {
            number: 10,
            previous: 9,
            ..
        }
    ));
    // A number that is stored is told so.
    chain.push(WriterId(1), 1, one(8, b"again"), (1, 1));
    let repeated = Outcome::Appended {
        number: 10,
        previous: 7,
        length: None,
    };
    assert_eq!(outcome(&mut chain), repeated);
    chain.push(WriterId(1), 1, one(-1, b"none"), (1, 1));
    assert_eq!(outcome(&mut chain), Outcome::InvalidNumber { number: -1 });
}

#[test]
fn a_conditional_append_goes_alone_and_needs_the_length() {
    let mut chain = chain(100);
    let conditional = |number, expected| What::Conditional {
        data: Bytes::from_static(b"12345"),
        number,
        expected,
    };
    chain.push(WriterId(1), 1, one(1, b"raw"), (1, 1));
    drop(submitted(&mut chain));
    chain.push(WriterId(1), 1, conditional(2, 103), (1, 1));
    chain.push(WriterId(1), 1, one(3, b"raw"), (1, 1));
    assert!(chain.poll().is_none(), "one append is on its way");
    chain.appended(WriterId(1), Ok(false));
    outcome(&mut chain);
    assert_eq!(submitted(&mut chain).epoch, 2);
    chain.appended(WriterId(1), Ok(false));
    assert!(matches!(outcome(&mut chain), Outcome::Appended { number: 2, .. }));
    assert_eq!(submitted(&mut chain).epoch, 3);
    chain.appended(WriterId(1), Ok(false));
    outcome(&mut chain);
    // It is longer than expected; and shorter, which others may have changed.
    chain.push(WriterId(1), 1, conditional(4, 110), (1, 1));
    assert_eq!(outcome(&mut chain), Outcome::ConditionFailed { number: 4 });
    for (length, fits) in [(111, false), (115, true)] {
        chain.push(WriterId(1), 1, conditional(4, 115), (1, 1));
        assert!(matches!(chain.poll(), Some(Step::ReadEnd(None))));
        let end = End {
            next: Offset(9),
            length,
        };
        chain.end_read(Ok(end));
        let Some(Step::Ask(_, reading)) = chain.poll() else {
            panic!("a question")
        };
        chain.asked(WriterId(1), reading, Ok(3));
        match fits {
            true => assert_eq!(submitted(&mut chain).expected, Offset(9)),
            false => assert_eq!(outcome(&mut chain), Outcome::ConditionFailed { number: 4 }),
        }
    }
}

#[test]
fn a_sealed_segment_takes_nothing_and_what_is_gone_neither() {
    let mut chain = chain(100);
    chain.push(WriterId(1), 1, one(1, b"raw"), (1, 1));
    drop(submitted(&mut chain));
    chain.appended(WriterId(1), Err(Refusal::Sealed));
    assert_eq!(outcome(&mut chain), Outcome::Sealed);
    chain.push(WriterId(1), 1, one(2, b"raw"), (1, 1));
    assert_eq!(outcome(&mut chain), Outcome::Sealed);

    let mut chain = self::chain(100);
    chain.push(WriterId(1), 1, one(1, b"raw"), (1, 1));
    drop(submitted(&mut chain));
    chain.appended(WriterId(1), Err(Refusal::Gone));
    assert_eq!(outcome(&mut chain), Outcome::Gone);
    // Another session is told to begin anew.
    chain.push(WriterId(1), 2, one(2, b"raw"), (1, 2));
    assert_eq!(outcome(&mut chain), Outcome::Lost);
}
