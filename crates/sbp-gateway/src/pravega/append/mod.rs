//! Appends to segments: a task for each segment that is appended to, with a [`Chain`].

mod chain;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sbp_client::{
    AppendEntry, AppendOp, AppendOptions, AppendResultOf, Client, ClientError, CompletionSink, Records,
    Reply as Report, Submissions,
};
use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_pravega::{Call, NEW, Reply, WriterId};
use sbp_record::{WriterStamp, encode_empty};
use sbp_transport::Mailbox;
use sbp_types::{StreamId, WriterId as StreamWriterId};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

pub(super) use self::chain::What;
use self::chain::{Chain, Outcome, Refusal, Step, Submission};
use super::catalog::Catalog;
use super::command::Command;
use super::segment::End;
use super::segments::Segments;

/// How long an append may take, all attempts included: less than clients wait for an answer.
const PATIENCE: Duration = Duration::from_secs(25);
/// How long the task of a segment that nobody appends to waits for somebody.
const IDLE: Duration = Duration::from_secs(60);
/// How often it is looked whether a segment was sealed by others, while appends are on their way: the service lets them wait then
/// for the range that would follow.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How a client is told.
#[derive(Debug)]
pub(super) struct Teller {
    pub(super) segment: Arc<str>,
    pub(super) call: Call,
    pub(super) mailbox: Mailbox<Command>,
}

impl Teller {
    fn tell(self, writer: WriterId, outcome: Outcome) {
        let segment = self.segment.as_ref().to_owned();
        let reply = match outcome {
            Outcome::SetUp(last) => Reply::AppendSetup { segment, writer, last },
            Outcome::Appended {
                number,
                previous,
                length,
            } => Reply::Appended {
                writer,
                number,
                previous: Some(previous),
                length,
            },
            Outcome::ConditionFailed { number } => Reply::ConditionFailed { writer, number },
            Outcome::InvalidNumber { number } => Reply::InvalidEventNumber {
                writer,
                number: Some(number),
            },
            Outcome::Sealed => Reply::IsSealed { segment, offset: None },
            Outcome::Gone => Reply::NoSuchSegment { segment, offset: None },
            // The connection may be over.
            Outcome::Lost => return drop(self.mailbox.post(Command::GiveUp)),
        };
        drop(self.mailbox.post(Command::Answer(self.call, reply)));
    }
}

/// What a segment's task is told.
#[derive(Debug)]
enum Work {
    Wanted {
        writer: WriterId,
        session: u64,
        what: What,
        teller: Teller,
    },
    Left {
        writer: WriterId,
        session: u64,
    },
    Sealed,
}

/// The tasks of segments that are appended to.
#[derive(Debug)]
pub(super) struct Appending {
    client: Client,
    catalog: Arc<Catalog>,
    segments: Arc<Segments>,
    tasks: Arc<Mutex<Tasks>>,
}

#[derive(Debug, Default)]
struct Tasks {
    senders: HashMap<StreamId, UnboundedSender<Work>>,
    running: JoinSet<()>,
    is_closed: bool,
}

impl Appending {
    pub(super) fn new(client: Client, catalog: Arc<Catalog>, segments: Arc<Segments>) -> Self {
        Self {
            client,
            catalog,
            segments,
            tasks: Arc::default(),
        }
    }

    /// Hands over what a client wants of a writer of a segment. `session` is the same from one setup of the writer to the next.
    pub(super) fn want(&self, stream: StreamId, writer: WriterId, session: u64, what: What, teller: Teller) {
        let name = Arc::clone(&teller.segment);
        let mut tasks = self.tasks.lock();
        if tasks.is_closed {
            return teller.tell(writer, Outcome::Lost);
        }
        while tasks.running.try_join_next().is_some() {}
        let Tasks { senders, running, .. } = &mut *tasks;
        let sender = senders.entry(stream).or_insert_with(|| {
            let (sender, work) = unbounded_channel();
            let task = Task::new(self, stream, name);
            running.spawn_on(task.run(work), self.client.runtime());
            sender
        });
        let work = Work::Wanted {
            writer,
            session,
            what,
            teller,
        };
        if let Err(SendError(Work::Wanted { writer, teller, .. })) = sender.send(work) {
            // It has failed; the next one begins anew.
            senders.remove(&stream);
            teller.tell(writer, Outcome::Lost);
        }
    }

    /// Nothing more comes of this session of a writer.
    pub(super) fn leave(&self, stream: StreamId, writer: WriterId, session: u64) {
        self.send(stream, Work::Left { writer, session });
    }

    /// The segment was sealed.
    pub(super) fn sealed(&self, stream: StreamId) {
        self.send(stream, Work::Sealed);
    }

    fn send(&self, stream: StreamId, work: Work) {
        if let Some(sender) = self.tasks.lock().senders.get(&stream) {
            drop(sender.send(work));
        }
    }

    /// Takes no more, and waits until the tasks are over. What is on its way is stored or not, as it would be were a connection
    /// lost.
    pub(super) async fn close(&self) {
        let mut running = {
            let mut tasks = self.tasks.lock();
            tasks.is_closed = true;
            tasks.senders.clear();
            std::mem::take(&mut tasks.running)
        };
        running.shutdown().await;
    }
}

/// Takes the outcomes of appends.
struct Ended(UnboundedSender<(u64, AppendResultOf)>);

impl CompletionSink for Ended {
    fn complete(&self, batch: &mut Vec<(u64, AppendResultOf)>) {
        for ended in batch.drain(..) {
            // The task may be over.
            drop(self.0.send(ended));
        }
    }
}

/// What was asked of the service beside appends.
#[derive(Debug)]
enum Answer {
    /// Where the segment ends, and whether it is sealed.
    End(Result<(End, bool), Refusal>),
    Stored {
        writer: WriterId,
        reading: u64,
        stored: Result<i64, Refusal>,
    },
    IsSealed(bool),
}

/// The appends of one segment.
struct Task {
    client: Client,
    catalog: Arc<Catalog>,
    segments: Arc<Segments>,
    tasks: Arc<Mutex<Tasks>>,
    stream: StreamId,
    name: Arc<str>,
    chain: Chain<Teller>,
    submissions: Submissions,
    sink: Arc<Ended>,
    ended: UnboundedReceiver<(u64, AppendResultOf)>,
    /// Whose batches are on their way, by their tokens.
    in_flight: HashMap<u64, WriterId>,
    last_token: u64,
    questions: JoinSet<Answer>,
    is_looking: bool,
}

impl Task {
    fn new(appending: &Appending, stream: StreamId, name: Arc<str>) -> Self {
        let (sender, ended) = unbounded_channel();
        Self {
            client: appending.client.clone(),
            catalog: Arc::clone(&appending.catalog),
            segments: Arc::clone(&appending.segments),
            tasks: Arc::clone(&appending.tasks),
            stream,
            name,
            chain: Chain::default(),
            submissions: Submissions::new(),
            sink: Arc::new(Ended(sender)),
            ended,
            in_flight: HashMap::new(),
            last_token: 0,
            questions: JoinSet::new(),
            is_looking: false,
        }
    }

    async fn run(mut self, mut work: UnboundedReceiver<Work>) {
        let mut look = interval(LOOK_EVERY);
        loop {
            self.turn();
            if self.chain.is_idle() && self.in_flight.is_empty() {
                match timeout(IDLE, work.recv()).await {
                    Ok(Some(wanted)) => self.take(wanted),
                    Ok(None) => return,
                    Err(_) if self.retires(&work) => return,
                    Err(_) => {}
                }
                continue;
            }
            tokio::select! {
                wanted = work.recv() => match wanted {
                    Some(wanted) => self.take(wanted),
                    None => return,
                },
                Some((token, outcome)) = self.ended.recv() => self.end(token, outcome),
                Some(answer) = self.questions.join_next() => match answer {
                    Ok(answer) => self.answered(answer),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    // Nobody aborts one.
                    Err(_) => {}
                },
                _ = look.tick(), if self.chain.has_in_flight() && !self.is_looking => self.look(),
            }
            // All that has come is done in one turn.
            while let Ok(wanted) = work.try_recv() {
                self.take(wanted);
            }
            while let Ok((token, outcome)) = self.ended.try_recv() {
                self.end(token, outcome);
            }
        }
    }

    /// Ends unless somebody has come just now: who comes later gets another task.
    fn retires(&self, work: &UnboundedReceiver<Work>) -> bool {
        let mut tasks = self.tasks.lock();
        let is_over = work.is_empty();
        if is_over {
            tasks.senders.remove(&self.stream);
        }
        is_over
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Wanted {
                writer,
                session,
                what,
                teller,
            } => self.chain.push(writer, session, what, teller),
            Work::Left { writer, session } => self.chain.leave(writer, session),
            Work::Sealed => self.chain.seal(),
        }
    }

    /// Does what is to be done.
    fn turn(&mut self) {
        while let Some(step) = self.chain.poll() {
            match step {
                Step::Tell(teller, writer, outcome) => teller.tell(writer, outcome),
                Step::Submit(submission) => self.submit(*submission),
                Step::ReadEnd(at_least) => {
                    let (segments, stream) = (Arc::clone(&self.segments), self.stream);
                    let (catalog, name) = (Arc::clone(&self.catalog), Arc::clone(&self.name));
                    self.questions.spawn(async move {
                        let end = segments.end(stream, at_least).await;
                        // Who seals a segment that others can append to says so first, and then moves its end: in this order one of
                        // the two is seen.
                        let held = catalog.segment_now(&name).await;
                        let is_sealed = held.map(|held| held.is_some_and(|held| held.is_sealed()));
                        let end = end.and_then(|tail| Ok((tail.end, is_sealed?)));
                        Answer::End(end.map_err(|error| refusal_of(&error)))
                    });
                }
                Step::Ask(writer, reading) => {
                    let (client, stream) = (self.client.clone(), self.stream);
                    self.questions.spawn(async move {
                        let stored = last_number(&client, stream, writer).await;
                        Answer::Stored {
                            writer,
                            reading,
                            stored: stored.map_err(|error| refusal_of(&error)),
                        }
                    });
                }
            }
        }
        self.client.submit(&mut self.submissions);
    }

    fn submit(&mut self, submission: Submission) {
        let Submission {
            writer,
            epoch,
            mut records,
            expected,
        } = submission;
        let mut encode = AppendOptions::default().encode_options(self.stream);
        encode.writer = Some(stamp(writer, epoch));
        match self.submissions.place_built(&encode, &mut records) {
            Ok(mut entry) => {
                entry.expected_offset = Some(expected);
                self.last_token += 1;
                self.in_flight.insert(self.last_token, writer);
                let report = Report::sink(Arc::clone(&self.sink) as Arc<dyn CompletionSink>, self.last_token);
                let entries = std::iter::once::<AppendEntry>(entry).collect();
                let deadline = self.client.deadline(Some(PATIENCE));
                self.submissions.push(AppendOp::new(entries, deadline, report));
            }
            Err(error) => {
                tracing::error!(%error, segment = %self.name, "what a client of Pravega has appended makes no batch");
                self.chain.appended(writer, Err(Refusal::Unknown));
            }
        }
    }

    fn end(&mut self, token: u64, outcome: AppendResultOf) {
        let Some(writer) = self.in_flight.remove(&token) else {
            return;
        };
        let outcome = outcome.and_then(sbp_client::AppendOutcome::single);
        let outcome = outcome.map(|ack| ack.duplicate).map_err(|error| {
            let refusal = refusal_of(&error);
            if refusal == Refusal::Unknown {
                tracing::warn!(%error, segment = %self.name, "what a client of Pravega has appended may be stored or not");
            }
            refusal
        });
        self.chain.appended(writer, outcome);
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::End(end) => {
                if matches!(end, Ok((_, true))) {
                    self.chain.seal();
                }
                self.chain.end_read(end.map(|(end, _)| end));
            }
            Answer::Stored {
                writer,
                reading,
                stored,
            } => self.chain.asked(writer, reading, stored),
            Answer::IsSealed(is_sealed) => {
                self.is_looking = false;
                if is_sealed {
                    self.chain.seal();
                }
            }
        }
    }

    fn look(&mut self) {
        self.is_looking = true;
        let (catalog, name) = (Arc::clone(&self.catalog), Arc::clone(&self.name));
        self.questions.spawn(async move {
            // Where it is not known, it is looked again.
            let held = catalog.segment(&name).await.ok().flatten();
            Answer::IsSealed(held.is_some_and(|held| held.is_sealed()))
        });
    }
}

/// What a writer's batches are stored as.
fn stamp(writer: WriterId, epoch: i64) -> WriterStamp {
    // A writer that is nobody is one here too.
    let [high, low] = halves(if writer.0 == 0 { u128::MAX } else { writer.0 });
    WriterStamp {
        id: StreamWriterId { high, low },
        epoch,
        base_sequence: 0,
    }
}

fn halves(number: u128) -> [u64; 2] {
    let bytes = number.to_be_bytes();
    let half = |place: usize| {
        let half = bytes.get(place..).and_then(|bytes| bytes.first_chunk());
        u64::from_be_bytes(half.copied().unwrap_or_default())
    };
    [half(0), half(8)]
}

/// The number of a writer's last event that is stored; [`NEW`]: there is none.
async fn last_number(client: &Client, stream: StreamId, writer: WriterId) -> Result<i64, ClientError> {
    let options = AppendOptions {
        timeout: Some(PATIENCE),
        ..AppendOptions::default()
    };
    let mut encode = options.encode_options(stream);
    // A question of the lowest epoch that there is: a writer with a higher one has it told.
    encode.writer = Some(stamp(writer, 0));
    let mut batch = BytesMut::new();
    encode_empty(&encode, &mut batch).map_err(|error| ClientError::invalid(error.to_string()))?;
    let batch = Bytes::from(batch);
    match client
        .append(stream, Records::Encoded { batch, count: 0 }, &options)
        .await
    {
        Ok(ack) if ack.next_sequence.is_none() => Ok(NEW),
        Ok(_) => Ok(0),
        Err(error) => match error.fenced_by() {
            Some(stored) if error.code() == ErrorCode::WRITER_FENCED => Ok(stored),
            _ => Err(error),
        },
    }
}

/// What an error means for what was to be stored.
fn refusal_of(error: &ClientError) -> Refusal {
    match error.code() {
        ErrorCode::PRECONDITION_FAILED => Refusal::Moved(error.offset()),
        ErrorCode::WRITER_FENCED | ErrorCode::SEQUENCE_GAP | ErrorCode::SEQUENCE_OVERLAP => Refusal::Numbered,
        ErrorCode::RANGE_ALREADY_SEALED => Refusal::Sealed,
        ErrorCode::NOT_FOUND => Refusal::Gone,
        _ => Refusal::Unknown,
    }
}
