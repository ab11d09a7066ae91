//! `sbp bench append`

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_client::{
    AppendOp, AppendOptions, AppendResultOf, Client, ClientError, CompletionSink, Reply, Submissions, wall_clock,
};
use sbp_locks::{Condvar, Mutex};
use sbp_messages::Stream;
use sbp_record::RecordsBuilder;
use sbp_types::StreamId;
use smallvec::smallvec;

use super::awaited::Awaited;
use super::goal::{Goal, Measured, record};
use super::usage::{cpu_time, cpu_time_since};
use super::{Report, embed, histogram, micros, per_second, ratio};
use crate::args::{Api, BenchAppend};
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::{Terminal, progress};

/// Outcomes on their way from the connection's task to this thread.
#[derive(Default)]
struct Arrivals {
    done: Mutex<Vec<(u64, AppendResultOf)>>,
    arrived: Condvar,
}

impl CompletionSink for Arrivals {
    fn complete(&self, batch: &mut Vec<(u64, AppendResultOf)>) {
        let mut done = self.done.lock();
        let was_empty = done.is_empty();
        done.append(batch);
        drop(done);
        if was_empty {
            self.arrived.notify_one();
        }
    }
}

impl Arrivals {
    /// Waits for outcomes and takes all there are; `into` must be empty.
    fn take(&self, into: &mut Vec<(u64, AppendResultOf)>) {
        let mut done = self.done.lock();
        while done.is_empty() {
            self.arrived.wait(&mut done);
        }
        std::mem::swap(&mut *done, into);
    }
}

pub(crate) fn run(mut bench: BenchAppend, terminal: &mut Terminal) -> Result<(), CliError> {
    let server = embed(&bench.embedded, &mut bench.connection)?;
    let session = Session::new(&bench.connection)?;
    let names = (0..bench.streams.max(1)).map(|index| Stream {
        name: format!("bench/{index}"),
        ..Stream::default()
    });
    let created = session.wait(session.client.create_streams(names.collect(), None))?;
    let streams = created
        .into_iter()
        .map(|stream| Ok(stream?.stream_id))
        .collect::<Result<Vec<_>, ClientError>>()?;

    let mut load = match bench.api {
        Api::Submit => Driver::Submitted(Box::new(Load::new(&session.client, streams, &bench))),
        Api::Await => Driver::Awaited(Awaited::new(&session, &streams, &bench, false)),
        Api::Writer => Driver::Awaited(Awaited::new(&session, &streams, &bench, true)),
    };
    let batch = u64::try_from(bench.batch.max(1)).unwrap_or(1);
    let goal = match bench.records {
        Some(records) => Goal::Appends(records.div_ceil(batch)),
        None => {
            load.run(&session, Goal::Time(Duration::from_millis(bench.seconds * 100)), false)?;
            Goal::Time(Duration::from_secs(bench.seconds))
        }
    };
    let (before, cpu) = (session.client.stats(), cpu_time());
    let measured = load.run(&session, goal, true)?;
    let (after, cpu) = (session.client.stats(), cpu_time_since(cpu));

    let mut report = Report::default();
    report.text(
        "server",
        session
            .client
            .features()
            .map_or("unknown", |features| features.durability.as_str()),
    );
    report.text("api", bench.api.name());
    report.count("record bytes", u64::try_from(bench.size).unwrap_or(0));
    report.count("records/append", batch);
    report.count("in flight", u64::try_from(bench.concurrency).unwrap_or(0));
    report.count("streams", u64::try_from(bench.streams).unwrap_or(0));
    report.count("records", measured.appends * batch);
    report.number("seconds", measured.time.as_secs_f64());
    let bytes = measured.appends * batch * u64::try_from(bench.size).unwrap_or(0);
    report.number("records/s", per_second(measured.appends * batch, measured.time));
    report.number("appends/s", per_second(measured.appends, measured.time));
    report.number("MB/s", per_second(bytes, measured.time) / 1e6);
    report.quantiles(&measured.latency);
    report.cpu("cpu us/append", cpu, measured.appends, bytes);
    let per_append = |after: u64, before: u64| ratio(after - before, measured.appends);
    report.number("writes/append", per_append(after.writes, before.writes));
    report.number("reads/append", per_append(after.reads, before.reads));
    report.number("wake-ups/append", per_append(after.wakeups, before.wakeups));
    let deliveries = per_append(after.completion_batches, before.completion_batches);
    report.number("deliveries/append", deliveries);
    if server.is_some() {
        report.text("cpu is of", "client and embedded server");
    }
    report.show(bench.json, terminal)
}

/// How appends are handed to the client.
enum Driver<'a> {
    Submitted(Box<Load<'a>>),
    Awaited(Awaited),
}

impl Driver<'_> {
    fn run(&mut self, session: &Session, goal: Goal, show: bool) -> Result<Measured, CliError> {
        match self {
            Self::Submitted(load) => load.run(goal, show),
            Self::Awaited(awaited) => awaited.run(session, goal),
        }
    }
}

/// Keeps a number of appends in flight.
struct Load<'a> {
    client: &'a Client,
    streams: Vec<StreamId>,
    next_stream: usize,
    record: Bytes,
    batch: usize,
    concurrency: usize,
    options: AppendOptions,
    timeout: Duration,
    arrivals: Arc<Arrivals>,
    builder: RecordsBuilder,
    submissions: Submissions,
    /// When the append with that token was submitted.
    started: Vec<Instant>,
}

impl<'a> Load<'a> {
    fn new(client: &'a Client, streams: Vec<StreamId>, bench: &BenchAppend) -> Self {
        Self {
            client,
            streams,
            next_stream: 0,
            record: record(bench.size),
            batch: bench.batch.max(1),
            concurrency: bench.concurrency.max(1),
            options: AppendOptions::default(),
            timeout: bench.connection.timeout,
            arrivals: Arc::default(),
            builder: RecordsBuilder::new(),
            submissions: Submissions::new(),
            started: vec![Instant::now(); bench.concurrency.max(1)],
        }
    }

    fn run(&mut self, goal: Goal, show: bool) -> Result<Measured, CliError> {
        let bar = match goal {
            Goal::Appends(appends) if show => Some(progress(appends, "appends")),
            Goal::Time(time) if show => Some(progress(time.as_secs(), "s")),
            _ => None,
        };
        let begin = Instant::now();
        let mut latency = histogram();
        let (mut submitted, mut completed) = (0_u64, 0_u64);
        let mut done = Vec::new();
        let mut shown = begin;
        for token in 0..self.concurrency {
            if goal.goes_on(begin, begin, submitted) {
                self.add(token, begin)?;
                submitted += 1;
            }
        }
        while completed < submitted {
            self.client.submit(&mut self.submissions);
            self.arrivals.take(&mut done);
            let now = Instant::now();
            self.options.timestamp = Some(wall_clock());
            for (token, outcome) in done.drain(..) {
                outcome?.single()?;
                completed += 1;
                let token = usize::try_from(token).unwrap_or(0);
                let started = self.started.get(token).copied().unwrap_or(now);
                latency.saturating_record(micros(now - started).max(1));
                if goal.goes_on(begin, now, submitted) {
                    self.add(token, now)?;
                    submitted += 1;
                    if self.submissions.is_full() {
                        self.client.submit(&mut self.submissions);
                    }
                }
            }
            if let Some(bar) = bar.as_ref().filter(|_| now - shown > Duration::from_millis(200)) {
                shown = now;
                bar.set_position(match goal {
                    Goal::Appends(_) => completed,
                    Goal::Time(_) => (now - begin).as_secs(),
                });
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(Measured {
            appends: completed,
            time: begin.elapsed(),
            latency,
        })
    }

    /// Adds an append. `now` is when the outcomes before it arrived, so its latency counts from there.
    fn add(&mut self, token: usize, now: Instant) -> Result<(), CliError> {
        let stream = self.streams.get(self.next_stream).copied().unwrap_or_default();
        self.next_stream = (self.next_stream + 1) % self.streams.len().max(1);
        let options = self.options.encode_options(stream);
        let entry = if self.batch == 1 {
            self.submissions.place_raw(&options, self.record.clone())?
        } else {
            self.builder.clear();
            for _ in 0..self.batch {
                let pushed = self.builder.push(Some(&self.record), None, None, &[]);
                pushed.map_err(|error| CliError::Usage(error.to_string()))?;
            }
            self.submissions.place_built(&options, &mut self.builder)?
        };
        let sink: Arc<dyn CompletionSink> = self.arrivals.clone();
        let reply = Reply::sink(sink, u64::try_from(token).unwrap_or(0));
        self.submissions
            .push(AppendOp::new(smallvec![entry], now + self.timeout, reply));
        if let Some(started) = self.started.get_mut(token) {
            *started = now;
        }
        Ok(())
    }
}
