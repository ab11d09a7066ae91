//! A writer with a name through many lives, two of them at a time: whatever is lost, late or overtaken, what is stored is
//! its input, each record once and in order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sbp_messages::ErrorCode;

use super::tests::{failed, fenced, lost, refused, setup, stored};
use super::{Action, AttemptEnd, Content, Kind, Machine, Opening, Setup, TimeLimit};
use crate::failure::Cause;

/// A request on its way: its content is the place and number of its records in the input; `None`: a fence.
#[derive(Clone, Copy, Debug)]
struct Request {
    token: u64,
    epoch: i64,
    sequence: i64,
    content: Option<(i64, i64)>,
}

/// The server's side of the rules, for one writer.
#[derive(Default)]
struct Server {
    epoch: Option<i64>,
    /// Places in the input of the records that are stored. As many as these is the next sequence.
    log: Vec<i64>,
    /// Sequence and count of what is remembered.
    window: VecDeque<(i64, i64)>,
}

impl Server {
    fn next(&self) -> i64 {
        i64::try_from(self.log.len()).unwrap()
    }

    fn judge(&mut self, request: Request) -> AttemptEnd {
        if let Some(epoch) = self.epoch.filter(|epoch| request.epoch < *epoch) {
            return fenced(epoch);
        }
        let Some((place, count)) = request.content else {
            let duplicate = self.epoch == Some(request.epoch);
            self.epoch = Some(request.epoch);
            return AttemptEnd {
                next_sequence: Some(self.next()),
                ..stored(-1, duplicate)
            };
        };
        if self.window.contains(&(request.sequence, count)) {
            return stored(request.sequence, true);
        }
        match request.sequence.cmp(&self.next()) {
            std::cmp::Ordering::Greater => failed(refused(ErrorCode::SEQUENCE_GAP), self.next()),
            std::cmp::Ordering::Less => failed(refused(ErrorCode::SEQUENCE_OVERLAP), self.next()),
            std::cmp::Ordering::Equal => {
                self.epoch = Some(request.epoch);
                self.window.push_back((request.sequence, count));
                if self.window.len() > 64 {
                    self.window.pop_front();
                }
                self.log.extend(place..place + count);
                stored(request.sequence, false)
            }
        }
    }
}

/// One instance of the writer, from its opening to its end.
struct Life {
    machine: Machine<(i64, i64)>,
    connection: VecDeque<Request>,
    answers: Vec<(u64, AttemptEnd)>,
    /// The place in the input of what it writes next, once it knows.
    place: Option<i64>,
}

struct Run {
    random: fastrand::Rng,
    now: Instant,
    server: Server,
    lives: [Option<Life>; 2],
    /// Requests that nobody waits for any more, and that may arrive yet.
    ghosts: Vec<Request>,
    input: i64,
    opened: u32,
    fenced: u32,
    /// Records that were acknowledged, as places and offsets.
    acknowledged: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            now: Instant::now(),
            server: Server::default(),
            lives: [None, None],
            ghosts: Vec::new(),
            input: random.i64(50..300),
            opened: 0,
            fenced: 0,
            acknowledged: 0,
            random,
        }
    }

    fn open(&mut self) -> Life {
        let mut limits = setup(Kind::Named);
        limits.policy.backoff_max = Duration::from_millis(200);
        self.opened += 1;
        Life {
            machine: Machine::new(Setup {
                epoch: 1,
                opening: Opening::TakesOver { first_sequence: None },
                open_by: self.now + Duration::from_secs(5),
                max_in_flight: self.random.usize(1..=64),
                ..limits
            }),
            connection: VecDeque::new(),
            answers: Vec::new(),
            place: None,
        }
    }

    /// What is on a connection that is lost may arrive all the same.
    fn lose(&mut self, life: &mut Life) {
        for request in life.connection.drain(..) {
            life.machine.handle_end(self.now, request.token, failed(lost(), -1));
            self.ghosts.push(request);
        }
        for (token, _) in life.answers.drain(..) {
            life.machine.handle_end(self.now, token, failed(lost(), -1));
        }
    }

    /// The program reads its input from where the writer stands, and gives it to the writer.
    fn write(&mut self, life: &mut Life, in_time: Duration) {
        if life.place.is_none() {
            life.place = life.machine.next_sequence();
        }
        let Some(place) = life.place.filter(|place| *place < self.input) else {
            return;
        };
        let count = self.random.i64(1..4).min(self.input - place);
        if life
            .machine
            .push(count, TimeLimit::At(self.now + in_time), (place, count))
            .is_ok()
        {
            life.place = Some(place + count);
        }
    }

    fn send(&mut self, life: &mut Life) {
        while let Some(send) = life.machine.poll_send(self.now) {
            let content = match send.content {
                Content::Batch(&mut content) => Some(content),
                Content::Fence => None,
                Content::Question => panic!("it takes over"),
            };
            life.connection.push_back(Request {
                token: send.token,
                epoch: send.epoch,
                sequence: send.base_sequence,
                content,
            });
        }
        while let Some(action) = life.machine.poll_action() {
            match action {
                Action::Tell((place, count), Ok(ack)) => {
                    self.acknowledged += 1;
                    assert_eq!(
                        ack.base_offset,
                        Some(sbp_types::Offset(place)),
                        "another's records were taken for these"
                    );
                    let found = usize::try_from(place).ok().and_then(|from| self.server.log.get(from..));
                    let found: Vec<i64> = found.into_iter().flatten().take(3).copied().collect();
                    let wanted: Vec<i64> = (place..place + count).collect();
                    assert!(
                        found.starts_with(&wanted),
                        "{wanted:?} was acknowledged and is not there: {found:?}"
                    );
                }
                Action::Tell(_, Err(error)) => self.fenced += u32::from(error.code() == ErrorCode::WRITER_FENCED),
                Action::Refresh => life.machine.handle_refreshed(),
                Action::Reconnect => {}
            }
        }
    }

    fn step(&mut self, which: usize, faults: bool, in_time: Duration) {
        self.now += Duration::from_millis(self.random.u64(0..20));
        let Some(mut life) = self.lives[which].take() else {
            if self.random.u32(0..20) == 0 {
                self.lives[which] = Some(self.open());
            }
            return;
        };
        life.machine.handle_timeout(self.now);
        self.write(&mut life, in_time);
        self.send(&mut life);
        match self.random.u32(0..if faults { 100 } else { 60 }) {
            0..40 => {
                if let Some(request) = life.connection.pop_front() {
                    let end = self.server.judge(request);
                    life.answers.push((request.token, end));
                }
            }
            40..60 if !life.answers.is_empty() => {
                let place = self.random.usize(..life.answers.len().min(3));
                let (token, end) = life.answers.remove(place);
                life.machine.handle_end(self.now, token, end);
            }
            60..65 => self.lose(&mut life),
            65..75 if !self.ghosts.is_empty() => {
                let place = self.random.usize(..self.ghosts.len());
                let ghost = self.ghosts.swap_remove(place);
                self.server.judge(ghost);
            }
            75..80 => {
                if let Some((_, end)) = life.answers.last_mut() {
                    *end = failed(Cause::deadline(true), -1);
                }
            }
            80..90 => {
                if let Some(request) = life.connection.pop_front() {
                    let codes = [
                        ErrorCode::TOO_MANY_REQUESTS,
                        ErrorCode::BATCH_CORRUPT,
                        ErrorCode::SHUTTING_DOWN,
                    ];
                    let code = codes[self.random.usize(..codes.len())];
                    life.answers.push((request.token, failed(refused(code), -1)));
                }
            }
            // An outage, short or longer than anybody waits.
            90..92 => self.now += Duration::from_millis(self.random.u64(0..8_000)),
            _ => {}
        }
        self.send(&mut life);
        // The process ends, or opens its writer again because it has stopped.
        let is_over = life.machine.stopped().is_some() || (faults && self.random.u32(0..400) == 0);
        if is_over {
            self.ghosts.extend(life.connection);
        } else {
            self.lives[which] = Some(life);
        }
    }
}

#[test]
fn two_instances_at_once_and_one_after_the_other_store_the_input_once_and_in_order() {
    let (mut opened, mut shut_out, mut acknowledged) = (0, 0, 0);
    for seed in 0..1_000 {
        let mut run = Run::new(seed);
        let in_time = Duration::from_millis(run.random.u64(100..10_000));
        for _ in 0..1_000 {
            let which = run.random.usize(..2);
            run.step(which, true, in_time);
        }
        // In the end one of them is left, and nothing goes wrong any more but what is still on its way.
        run.lives[1] = None;
        for _ in 0..20_000 {
            if run.server.next() == run.input {
                break;
            }
            run.step(0, false, Duration::from_secs(60));
        }
        for ghost in std::mem::take(&mut run.ghosts) {
            run.server.judge(ghost);
        }
        let input: Vec<i64> = (0..run.input).collect();
        assert_eq!(run.server.log, input, "seed {seed}");
        opened += run.opened;
        shut_out += run.fenced;
        acknowledged += run.acknowledged;
    }
    // The runs went through all of it.
    assert!(
        opened > 5_000 && shut_out > 1_000 && acknowledged > 30_000,
        "{opened} opened, {shut_out} shut out, {acknowledged} acknowledged"
    );
}
