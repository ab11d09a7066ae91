//! Appends as futures, awaited in their order: plain ones, and those of idempotent writers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use sbp_client::{Ack, AppendOptions, Client, ClientError, Records, Writer, WriterOptions};
use sbp_record::RecordsBuilder;
use sbp_types::StreamId;

use super::goal::{Goal, Measured, record};
use super::{histogram, micros};
use crate::args::BenchAppend;
use crate::error::CliError;
use crate::session::Session;

type Outcome = Result<Ack, ClientError>;
type Append = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Whom appends of one stream are given to.
enum Sender {
    Plain(Client, StreamId, AppendOptions),
    Idempotent(Writer),
}

impl Sender {
    fn append(&self, records: Records) -> Append {
        match self {
            Self::Plain(client, stream, options) => {
                let (client, stream, options) = (client.clone(), *stream, *options);
                Box::pin(async move { client.append(stream, records, &options).await })
            }
            Self::Idempotent(writer) => Box::pin(writer.append(records)),
        }
    }
}

/// An append on its way, or its outcome where it came at once.
enum Slot {
    Pending(Append),
    Done(Outcome),
}

/// Keeps a number of appends in flight.
pub(super) struct Awaited {
    senders: Vec<Sender>,
    next: usize,
    record: Bytes,
    batch: usize,
    concurrency: usize,
}

impl Awaited {
    pub(super) fn new(session: &Session, streams: &[StreamId], bench: &BenchAppend, idempotent: bool) -> Self {
        let sender = |&stream: &StreamId| {
            if idempotent {
                let options = WriterOptions {
                    timeout: bench.connection.timeout,
                    ..WriterOptions::default()
                };
                Sender::Idempotent(session.client.writer(stream, options))
            } else {
                let options = AppendOptions {
                    timeout: Some(bench.connection.timeout),
                    ..AppendOptions::default()
                };
                Sender::Plain(session.client.clone(), stream, options)
            }
        };
        // Writers are made inside the runtime they live on.
        let senders = session.wait(async { streams.iter().map(sender).collect() });
        Self {
            senders,
            next: 0,
            record: record(bench.size),
            batch: bench.batch.max(1),
            concurrency: bench.concurrency.max(1),
        }
    }

    pub(super) fn run(&mut self, session: &Session, goal: Goal) -> Result<Measured, CliError> {
        session.wait(self.run_inside(goal))
    }

    async fn run_inside(&mut self, goal: Goal) -> Result<Measured, CliError> {
        let begin = Instant::now();
        let mut latency = histogram();
        let mut on_their_way: VecDeque<(Instant, Slot)> = VecDeque::with_capacity(self.concurrency);
        let (mut submitted, mut completed) = (0_u64, 0_u64);
        loop {
            while on_their_way.len() < self.concurrency {
                let started = Instant::now();
                if !goal.goes_on(begin, started, submitted) {
                    break;
                }
                on_their_way.push_back((started, start(self.append()?).await));
                submitted += 1;
            }
            let Some((started, oldest)) = on_their_way.pop_front() else {
                break;
            };
            match oldest {
                Slot::Pending(append) => append.await?,
                Slot::Done(outcome) => outcome?,
            };
            completed += 1;
            latency.saturating_record(micros(started.elapsed()).max(1));
        }
        Ok(Measured {
            appends: completed,
            time: begin.elapsed(),
            latency,
        })
    }

    fn append(&mut self) -> Result<Append, CliError> {
        let place = self.next % self.senders.len().max(1);
        self.next = place + 1;
        let records = if self.batch == 1 {
            Records::Raw(self.record.clone())
        } else {
            let mut builder = RecordsBuilder::new();
            for _ in 0..self.batch {
                let pushed = builder.push(Some(&self.record), None, None, &[]);
                pushed.map_err(|error| CliError::Usage(error.to_string()))?;
            }
            builder.into()
        };
        let sender = self.senders.get(place);
        let sender = sender.ok_or_else(|| CliError::Usage("there is no stream to append to".to_owned()))?;
        Ok(sender.append(records))
    }
}

/// Begins an append without waiting for it.
async fn start(mut append: Append) -> Slot {
    let first = poll_fn(|context| {
        Poll::Ready(match append.as_mut().poll(context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        })
    });
    match first.await {
        Some(outcome) => Slot::Done(outcome),
        None => Slot::Pending(append),
    }
}
