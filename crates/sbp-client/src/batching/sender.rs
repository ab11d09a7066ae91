//! The batch writer around its state: sends, keeps time, takes in what became of batches.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use sbp_locks::{Mutex, MutexGuard};
use sbp_record::{MAX_BATCH_LENGTH, RecordsBuilder};
use sbp_types::{StreamId, WriterId};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::state::{self, Run, State};
use super::{BatchWriterOptions, Delivery, Pushed, Record};
use crate::append::{AppendOptions, Records};
use crate::client::Client;
use crate::clock::now;
use crate::codes;
use crate::error::{ClientError, ErrorKind};
use crate::outcome::Ack;
use crate::writer::{Writer, WriterOptions};

type Fate = Pin<Box<dyn Future<Output = Result<Ack, ClientError>> + Send>>;

/// How batches go out.
#[derive(Debug)]
enum Sending {
    /// Each once, and in order.
    Writer(Writer),
    /// Each once at most.
    Plain(Client),
}

/// What the writer shares with the task that takes in what became of batches.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There are deliveries to take.
    delivered: AtomicBool,
    /// Nobody writes any more, and all fates are known.
    finished: AtomicBool,
    /// Woken when a batch is over.
    changed: Notify,
    /// Woken when there is something new to send in time.
    rearm: Notify,
}

/// What all clones of a batch writer share.
#[derive(Debug)]
pub(super) struct Sender {
    stream: StreamId,
    sending: Sending,
    /// Of a writer with a name, which takes nothing behind a batch that was not stored.
    named: bool,
    how: AppendOptions,
    shared: Arc<Shared>,
    sent: UnboundedSender<(Run, Fate)>,
}

/// The deliveries of a writer, which it does not keep alive.
#[derive(Debug)]
pub struct Deliveries(Arc<Shared>);

impl Deliveries {
    /// Waits until there are deliveries to take. False: the writer is closed or gone, and there will be none.
    pub async fn ready(&self) -> bool {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let finished = self.0.finished.load(Ordering::SeqCst) || self.0.state.lock().is_done();
            if self.0.delivered.load(Ordering::SeqCst) {
                return true;
            }
            if finished {
                return false;
            }
            changed.await;
        }
    }
}

impl Shared {
    fn take_deliveries(&self) -> Vec<Delivery> {
        if !self.delivered.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        self.state.lock().take_deliveries()
    }

    fn settle(&self, run: Run, result: Result<Ack, ClientError>) {
        self.state.lock().settle(run, result);
        self.delivered.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl Sender {
    pub(super) fn new(client: Client, stream: StreamId, options: BatchWriterOptions) -> Arc<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(
                options.batch_bytes,
                options.linger,
                options.max_in_flight,
                options.reports,
            )),
            delivered: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            changed: Notify::new(),
            rearm: Notify::new(),
        });
        let (sent, fates) = unbounded_channel();
        let runtime = client.runtime().clone();
        let how = AppendOptions {
            compression: options.compression,
            timeout: Some(options.timeout),
            ..AppendOptions::default()
        };
        let sending = if options.idempotent {
            Sending::Writer(client.writer(
                stream,
                WriterOptions {
                    writer_id: options.writer_id,
                    epoch: options.epoch,
                    max_in_flight: options.max_in_flight,
                    compression: options.compression,
                    timeout: options.timeout,
                    ..WriterOptions::default()
                },
            ))
        } else {
            Sending::Plain(client)
        };
        let sender = Arc::new(Self {
            stream,
            sending,
            named: options.idempotent && options.writer_id.is_some(),
            how,
            shared: Arc::clone(&shared),
            sent,
        });
        runtime.spawn(take_in(Arc::downgrade(&sender), shared, fates));
        sender
    }

    pub(super) async fn open(&self) -> Result<(), ClientError> {
        let Sending::Writer(writer) = &self.sending else {
            return Ok(());
        };
        let sequence = writer.next_sequence().await;
        let sequence = sequence.map_err(|error| error.with_stream(self.stream))?;
        self.shared.state.lock().begin_at(sequence);
        Ok(())
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>, ClientError> {
        let state = self.shared.state.lock();
        if state.is_closed() {
            let what = "the writer is closed";
            return Err(ClientError::new(ErrorKind::Closed, codes::CLOSED, what).with_stream(self.stream));
        }
        match &self.sending {
            Sending::Writer(writer) if self.named => match writer.stopped() {
                Some(error) => Err(error.with_stream(self.stream)),
                None => Ok(state),
            },
            Sending::Writer(_) | Sending::Plain(_) => Ok(state),
        }
    }

    pub(super) fn push(&self, record: &Record<'_>) -> Result<Pushed, ClientError> {
        let mut state = self.open_state()?;
        if state::cost(record) > state::LARGEST_GATHERED {
            return self.push_alone(&mut state, record);
        }
        if !state.fits(record) {
            self.seal(&mut state);
        }
        let pushed = state
            .push(record, now)
            .map_err(|error| crate::append::encode_error(&error, self.stream))?;
        drop(state);
        if pushed.begins && !pushed.is_full {
            self.shared.rearm.notify_one();
        }
        Ok(pushed)
    }

    fn encode_alone(&self, record: &Record<'_>) -> Result<Bytes, ClientError> {
        let refused = |error| crate::append::encode_error(&error, self.stream);
        let mut alone = RecordsBuilder::new();
        alone
            .push(record.value, record.key, record.timestamp_us, record.headers)
            .map_err(refused)?;
        let mut batch = BytesMut::new();
        let options = self.how.encode_options(self.stream);
        alone.finish(&options, &mut batch).map_err(refused)?;
        Ok(batch.freeze())
    }

    pub(super) fn check(&self, record: &Record<'_>) -> Result<(), ClientError> {
        if state::cost(record) > state::LARGEST_GATHERED {
            self.encode_alone(record)?;
        }
        Ok(())
    }

    /// A record that may be too large to be stored is encoded at once: if it is, it gets no number.
    fn push_alone(&self, state: &mut State, record: &Record<'_>) -> Result<Pushed, ClientError> {
        let batch = self.encode_alone(record)?;
        self.seal(state);
        let run = state.take_batch(1);
        self.hand_over(Records::Encoded { batch, count: 1 }, run);
        Ok(Pushed {
            sequence: run.last,
            is_full: false,
            begins: false,
        })
    }

    pub(super) fn push_batch(&self, batch: Bytes, count: u32) -> Result<i64, ClientError> {
        let mut state = self.open_state()?;
        if batch.len() > MAX_BATCH_LENGTH {
            return Err(crate::append::too_large(batch.len()).with_stream(self.stream));
        }
        self.seal(&mut state);
        let run = state.take_batch(count);
        self.hand_over(Records::Encoded { batch, count }, run);
        Ok(run.last)
    }

    pub(super) fn send(&self) {
        let mut state = self.shared.state.lock();
        if state.may_send() {
            self.seal(&mut state);
        }
    }

    /// Sends what is gathered. Under the state's lock, so that batches go out in their order.
    fn seal(&self, state: &mut State) {
        if let Some((records, run)) = state.seal() {
            self.hand_over(records.into(), run);
        }
    }

    fn hand_over(&self, records: Records, run: Run) {
        let fate: Fate = match &self.sending {
            Sending::Writer(writer) => Box::pin(writer.append(records)),
            Sending::Plain(client) => Box::pin(client.start_append(self.stream, records, &self.how)),
        };
        // Nobody takes fates in only when the runtime is gone.
        let _ = self.sent.send((run, fate));
    }

    pub(super) fn has_room(&self) -> bool {
        self.shared.state.lock().has_room()
    }

    pub(super) async fn room(&self) {
        self.wait_until(State::has_room).await;
    }

    pub(super) async fn flush(&self) {
        let goal = {
            let mut state = self.shared.state.lock();
            self.seal(&mut state);
            state.taken()
        };
        self.wait_until(|state| state.over() >= goal).await;
    }

    async fn wait_until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if reached(&self.shared.state.lock()) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn close(&self) {
        self.shared.state.lock().close();
        self.shared.changed.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.state.lock().is_closed()
    }

    pub(super) fn take_deliveries(&self) -> Vec<Delivery> {
        self.shared.take_deliveries()
    }

    pub(super) fn deliveries(&self) -> Deliveries {
        Deliveries(Arc::clone(&self.shared))
    }

    pub(super) fn has_deliveries(&self) -> bool {
        self.shared.delivered.load(Ordering::Relaxed)
    }

    pub(super) fn unfinished(&self) -> u64 {
        self.shared.state.lock().unfinished()
    }

    pub(super) fn next_sequence(&self) -> i64 {
        self.shared.state.lock().next_sequence()
    }

    pub(super) fn id(&self) -> Option<WriterId> {
        match &self.sending {
            Sending::Writer(writer) => Some(writer.id()),
            Sending::Plain(_) => None,
        }
    }

    pub(super) fn epoch(&self) -> i64 {
        match &self.sending {
            Sending::Writer(writer) => writer.epoch(),
            Sending::Plain(_) => 0,
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.seal(&mut self.shared.state.lock());
    }
}

/// Takes in what became of batches, in their order, and sends what is due. Ends when the writer is gone and all fates are
/// known; it does not keep the writer alive.
async fn take_in(writer: Weak<Sender>, shared: Arc<Shared>, mut fates: UnboundedReceiver<(Run, Fate)>) {
    let mut head: Option<(Run, Fate)> = None;
    loop {
        let due: Option<Instant> = shared.state.lock().due();
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        let fate = async {
            match &mut head {
                Some((run, fate)) => Step::Over(*run, fate.await),
                None => fates
                    .recv()
                    .await
                    .map_or(Step::End, |(run, fate)| Step::Sent(run, fate)),
            }
        };
        let step = tokio::select! {
            biased;
            step = fate => step,
            () = timer => Step::Due,
            () = shared.rearm.notified() => Step::Look,
        };
        match step {
            Step::Over(run, result) => {
                head = None;
                shared.settle(run, result);
            }
            Step::Sent(run, fate) => head = Some((run, fate)),
            Step::Due => {
                if let Some(writer) = writer.upgrade() {
                    writer.send();
                }
            }
            Step::Look => {}
            Step::End => break,
        }
    }
    shared.finished.store(true, Ordering::SeqCst);
    shared.changed.notify_waiters();
}

/// What the task wakes for.
enum Step {
    Sent(Run, Fate),
    Over(Run, Result<Ack, ClientError>),
    Due,
    Look,
    End,
}
