//! Many streams in the frames of one writer, against servers that lose, delay and refuse: whatever happens, each batch of
//! each stream is stored once and in order, or the writer says that it has failed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_messages::ErrorCode;
use sbp_types::{StreamId, WriterId};

use super::{BulkOptions, BulkWriter};
use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::failure::Cause;
use crate::submission::attempt::AttemptEnd;
use crate::submission::{AppendEntry, Body};
use crate::writer::machine::tests::{failed, lost, refused};
use crate::writer::machine::unreliable::{Request, Server};

/// What went to one server of a frame whose streams may lie on several: the place of each entry's stream, and its batch.
type Part = Vec<(usize, Request)>;

struct Run {
    random: fastrand::Rng,
    writer: BulkWriter,
    /// One for each stream.
    servers: Vec<Server>,
    /// The sequence of each batch of each stream, and how many records it holds.
    pushed: Vec<Vec<(i64, u32)>>,
    now: Instant,
    connection: VecDeque<Part>,
    /// What was on lost connections and may arrive yet.
    ghosts: Vec<Part>,
    answers: Vec<Vec<(u64, AttemptEnd)>>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        fastrand::seed(seed);
        let streams = random.usize(1..6);
        let options = BulkOptions {
            writer_id: WriterId { high: 1, low: 2 },
            epoch: 0,
            window: random.usize(1..=64),
            timeout: Duration::from_millis(random.u64(500..20_000)),
            retry: RetryPolicy {
                backoff_max: Duration::from_millis(200),
                ..RetryPolicy::default()
            },
        };
        Self {
            random,
            writer: BulkWriter::new(options, std::sync::mpsc::channel().0),
            servers: (0..streams).map(|_| Server::default()).collect(),
            pushed: vec![Vec::new(); streams],
            now: Instant::now(),
            connection: VecDeque::new(),
            ghosts: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn push(&mut self) {
        let place = self.random.usize(..self.servers.len());
        let stream = StreamId(i64::try_from(place).unwrap());
        let batches = &mut self.pushed[place];
        let id = u32::try_from(batches.len()).unwrap();
        if self.random.u32(0..400) == 0 {
            self.servers[place].wrong.push(id);
        }
        let records = self.random.u32(1..4);
        batches.push((self.writer.stamp(stream).base_sequence, records));
        // A batch in this test is its number.
        self.writer
            .push(stream, Bytes::copy_from_slice(&id.to_be_bytes()), records);
    }

    fn request(&self, entry: &AppendEntry, token: u64) -> (usize, Request) {
        let Body::Shared { body, .. } = &entry.body else {
            panic!("a batch goes by reference")
        };
        let id = u32::from_be_bytes(body[..].try_into().unwrap());
        let place = usize::try_from(entry.stream.0).unwrap();
        let (sequence, count) = self.pushed[place][usize::try_from(id).unwrap()];
        let request = Request {
            token,
            epoch: 0,
            sequence,
            count: count.into(),
            id,
        };
        (place, request)
    }

    fn send(&mut self) {
        while self.connection.len() + self.answers.len() < 8
            && let Some(frame) = self.writer.next_frame(self.now)
        {
            let all = frame.entries.iter().zip(&frame.tokens);
            let all: Part = all.map(|(entry, &token)| self.request(entry, token)).collect();
            // Streams lie on one server or another.
            let (even, odd): (Part, Part) = match self.random.bool() {
                true => all.into_iter().partition(|(place, _)| place % 2 == 0),
                false => (all, Part::new()),
            };
            self.connection
                .extend([even, odd].into_iter().filter(|part| !part.is_empty()));
        }
        for stream in std::mem::take(&mut self.writer.unrouted) {
            self.writer.handle_asked(self.now, stream, Ok(()));
        }
    }

    /// The servers look at the batches of a frame, one after the other. For the moment they may refuse some of them.
    fn judge(&mut self, part: &Part) -> Vec<(u64, AttemptEnd)> {
        let mut refuses = self.random.u32(0..10) == 0;
        let judged = part.iter().map(|&(place, request)| {
            let end = if refuses && self.random.bool() {
                let code = self.random.choice([
                    ErrorCode::TOO_MANY_REQUESTS,
                    ErrorCode::SHUTTING_DOWN,
                    ErrorCode::RANGE_NOT_FOUND,
                    ErrorCode::RS_INTERNAL_SERVER_ERROR,
                ]);
                refuses = self.random.bool();
                failed(refused(code.expect("there are some")), -1)
            } else {
                self.servers[place].judge(request)
            };
            (request.token, end)
        });
        judged.collect()
    }

    fn tell(&mut self, ends: Vec<(u64, AttemptEnd)>) {
        for (token, end) in ends {
            self.writer.handle_end(self.now, token, end);
        }
    }

    fn step(&mut self, faults: bool) {
        self.now += Duration::from_millis(self.random.u64(0..20));
        self.send();
        match self.random.u32(0..if faults { 100 } else { 60 }) {
            0..40 => {
                if let Some(part) = self.connection.pop_front() {
                    let ends = self.judge(&part);
                    self.answers.push(ends);
                }
            }
            40..60 => {
                if !self.answers.is_empty() {
                    let place = self.random.usize(..self.answers.len().min(3));
                    let ends = self.answers.remove(place);
                    self.tell(ends);
                }
            }
            // The connection is lost: what was on it may arrive or not.
            60..66 => {
                let lost_now = |token: u64| (token, failed(lost(), -1));
                for part in std::mem::take(&mut self.connection) {
                    self.tell(part.iter().map(|(_, request)| lost_now(request.token)).collect());
                    self.ghosts.push(part);
                }
                for ends in std::mem::take(&mut self.answers) {
                    self.tell(ends.into_iter().map(|(token, _)| lost_now(token)).collect());
                }
            }
            66..74 => {
                if !self.ghosts.is_empty() {
                    let place = self.random.usize(..self.ghosts.len());
                    let ghost = self.ghosts.swap_remove(place);
                    self.judge(&ghost);
                }
            }
            // A frame is lost in the middle of a connection; its time will be over.
            74..78 => {
                if let Some(part) = self.connection.pop_front() {
                    let late = part
                        .iter()
                        .map(|(_, request)| (request.token, failed(Cause::deadline(true), -1)));
                    self.answers.push(late.collect());
                }
            }
            _ => {
                if self.random.u32(0..20) == 0 {
                    self.now += Duration::from_secs(3);
                }
            }
        }
    }

    fn check(&mut self, seed: u64) {
        for server in &self.servers {
            server.check(seed);
        }
        assert!(self.writer.take_repeats().is_empty(), "seed {seed}: nobody else writes");
        let stored = self.writer.stored();
        let mut in_doubt = false;
        for (place, server) in self.servers.iter().enumerate() {
            let stream = StreamId(i64::try_from(place).unwrap());
            let batches = &self.pushed[place];
            let records = |ids: &[u32]| -> i64 {
                ids.iter()
                    .map(|&id| i64::from(batches[usize::try_from(id).unwrap()].1))
                    .sum()
            };
            let found = stored.get(&stream).map_or(0, |stored| stored.records);
            assert!(
                found <= records(&server.log),
                "seed {seed}: more is acknowledged than stored"
            );
            let all = server.log.len() == batches.len();
            match self.writer.failure() {
                None => {
                    assert!(all, "seed {seed}: not everything is stored");
                    assert_eq!(found, records(&server.log), "seed {seed}");
                }
                Some(error) if error.stream() == Some(stream) => {
                    in_doubt = error.is_indeterminate();
                    assert!(in_doubt || !all, "seed {seed}: everything is stored after all");
                }
                Some(_) => {}
            }
        }
        assert_eq!(
            in_doubt,
            self.writer.failure().is_some_and(ClientError::is_indeterminate)
        );
        if self.writer.failure().is_none() {
            assert_eq!((self.writer.bytes(), self.writer.in_flight()), (0, 0), "seed {seed}");
        }
    }
}

#[test]
fn whatever_happens_to_its_frames_a_writer_stores_each_batch_once_in_order_or_says_that_it_failed() {
    let (mut whole, mut refused, mut doubtful) = (0, 0, 0);
    for seed in 0..2_000 {
        let mut run = Run::new(seed);
        let mut left = run.random.u32(20..120);
        while left > 0 && run.writer.failure().is_none() {
            for _ in 0..run.random.u32(0..4).min(left) {
                run.push();
                left -= 1;
            }
            run.step(true);
        }
        for _ in 0..20_000 {
            if run.writer.is_idle() || run.writer.failure().is_some() {
                break;
            }
            run.step(false);
        }
        assert!(
            run.writer.is_idle() || run.writer.failure().is_some(),
            "seed {seed}: it goes on for ever"
        );
        // What is still on some lost connection arrives last of all.
        for ghost in std::mem::take(&mut run.ghosts) {
            run.judge(&ghost);
        }
        run.check(seed);
        match run.writer.failure() {
            None => whole += 1,
            Some(error) if error.is_indeterminate() => doubtful += 1,
            Some(_) => refused += 1,
        }
    }
    // The runs went through all of it.
    assert!(
        whole > 500 && refused > 50 && doubtful > 50,
        "{whole} whole, {refused} refused, {doubtful} in doubt"
    );
}
