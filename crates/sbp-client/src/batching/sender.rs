//! The batch writer around its state: sends, keeps time, takes in what became of batches.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use sbp_locks::{Mutex, MutexGuard};
use sbp_record::{MAX_BATCH_LENGTH, RecordsBuilder};
use sbp_types::{StreamId, WriterId};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::state::{self, Run, State};
use super::{BatchWriterOptions, Delivery, Pushed, Record};
use crate::append::{AppendOptions, Records, encode_error, too_large};
use crate::client::Client;
use crate::clock::{now, sleep_until, wait_until};
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

/// Appends to one stream, gathered into batches and stored in the order of the calls.
///
/// Clones write in one order. When the last one is dropped, what is gathered is still sent, without a word about its
/// fate.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    sender: Arc<Sender>,
}

/// What all clones of a batch writer share.
#[derive(Debug)]
struct Sender {
    stream: StreamId,
    sending: Sending,
    /// The writer has a name: it takes nothing behind a batch that was not stored.
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
        let look = || {
            let finished = self.0.finished.load(Ordering::SeqCst) || self.0.state.lock().is_done();
            let delivered = self.0.delivered.load(Ordering::SeqCst);
            (delivered || finished).then_some(delivered)
        };
        wait_until(&self.0.changed, look).await
    }
}

impl Shared {
    fn settle(&self, run: Run, result: Result<Ack, ClientError>) {
        self.state.lock().settle(run, result);
        self.delivered.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl Client {
    /// A batch writer for `stream`. An idempotent one needs a server that offers `idempotence`.
    #[must_use]
    pub fn batch_writer(&self, stream: StreamId, options: BatchWriterOptions) -> BatchWriter {
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
        let how = AppendOptions {
            compression: options.compression,
            timeout: Some(options.timeout),
            ..AppendOptions::default()
        };
        let sending = if options.idempotent {
            Sending::Writer(self.writer(
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
            Sending::Plain(self.clone())
        };
        let sender = Arc::new(Sender {
            stream,
            sending,
            named: options.idempotent && options.writer_id.is_some(),
            how,
            shared: Arc::clone(&shared),
            sent,
        });
        self.runtime().spawn(take_in(Arc::downgrade(&sender), shared, fates));
        BatchWriter { sender }
    }
}

impl BatchWriter {
    /// Opens a writer with a name: makes its epoch current, unless it was given one, and asks the server where it goes
    /// on. Nothing else needs it; to be called before the first record.
    ///
    /// # Errors
    ///
    /// That the server could not be asked, or has seen a higher epoch than the one given.
    pub async fn open(&self) -> Result<(), ClientError> {
        if let Sending::Writer(writer) = &self.sender.sending {
            let sequence = writer.next_sequence().await;
            let sequence = sequence.map_err(|error| error.with_stream(self.sender.stream))?;
            self.state().begin_at(sequence);
        }
        Ok(())
    }

    /// Gathers one record. To be followed by [`Self::send`] when the batch is full, and to be called only while there
    /// [is room](Self::has_room): what is pushed all the same waits in memory.
    ///
    /// # Errors
    ///
    /// That the writer is closed, or that the record is larger than a batch can be; then it has no number. That a writer
    /// with a name has stopped.
    pub fn push(&self, record: &Record<'_>) -> Result<Pushed, ClientError> {
        let sender = &self.sender;
        let mut state = sender.open_state()?;
        if state::cost(record) > state::LARGEST_GATHERED {
            return sender.push_alone(&mut state, record);
        }
        if !state.fits(record) {
            sender.seal(&mut state);
        }
        let pushed = state
            .push(record, now)
            .map_err(|error| encode_error(&error, sender.stream))?;
        drop(state);
        if pushed.begins && !pushed.is_full {
            sender.shared.rearm.notify_one();
        }
        Ok(pushed)
    }

    /// Whether a record can be stored, as far as its size goes.
    ///
    /// # Errors
    ///
    /// That it is larger than a batch can be.
    pub fn check(&self, record: &Record<'_>) -> Result<(), ClientError> {
        if state::cost(record) > state::LARGEST_GATHERED {
            self.sender.encode_alone(record)?;
        }
        Ok(())
    }

    /// Takes a whole batch of `count` records, encoded. Returns the number of the last one.
    ///
    /// # Errors
    ///
    /// That the writer is closed, or has stopped; that the batch is too large, and has no number.
    pub fn push_batch(&self, batch: Bytes, count: u32) -> Result<i64, ClientError> {
        let sender = &self.sender;
        let mut state = sender.open_state()?;
        if batch.len() > MAX_BATCH_LENGTH {
            return Err(too_large(batch.len()).with_stream(sender.stream));
        }
        sender.seal(&mut state);
        let run = state.take_batch(count);
        sender.hand_over(Records::Encoded { batch, count }, run);
        Ok(run.last)
    }

    /// Sends what is gathered, unless as much is on its way as may be: then it goes when something of that is over.
    pub fn send(&self) {
        self.sender.send();
    }

    /// Whether another record may be pushed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.state().has_room()
    }

    /// Waits until another record may be pushed.
    pub async fn room(&self) {
        wait_until(&self.sender.shared.changed, || self.has_room().then_some(())).await;
    }

    /// Sends what is gathered, and waits until the fate of everything appended so far is known. What it is, the
    /// deliveries say.
    pub async fn flush(&self) {
        let goal = {
            let mut state = self.state();
            self.sender.seal(&mut state);
            state.taken
        };
        let reached = || (self.state().over >= goal).then_some(());
        wait_until(&self.sender.shared.changed, reached).await;
    }

    /// Takes no more records. Those gathered are sent by the next [`Self::flush`].
    pub fn close(&self) {
        self.state().closed = true;
        self.sender.shared.changed.notify_waiters();
    }

    /// Whether [`Self::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// What became of batches since this was last asked, in their order.
    #[must_use]
    pub fn take_deliveries(&self) -> Vec<Delivery> {
        if !self.sender.shared.delivered.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        self.state().delivered.drain(..).collect()
    }

    /// The deliveries, for a task that waits for them. It takes them in turns with [`Self::take_deliveries`].
    #[must_use]
    pub fn deliveries(&self) -> Deliveries {
        Deliveries(Arc::clone(&self.sender.shared))
    }

    /// Whether there are deliveries to take. Takes no lock.
    #[must_use]
    pub fn has_deliveries(&self) -> bool {
        self.sender.shared.delivered.load(Ordering::Relaxed)
    }

    /// Records whose fate is not known.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.state().unfinished()
    }

    /// The number that the next record gets.
    #[must_use]
    pub fn next_sequence(&self) -> i64 {
        self.state().next_sequence
    }

    /// The writer's name; `None` if it is not idempotent.
    #[must_use]
    pub fn id(&self) -> Option<WriterId> {
        match &self.sender.sending {
            Sending::Writer(writer) => Some(writer.id()),
            Sending::Plain(_) => None,
        }
    }

    /// The writer's epoch.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        match &self.sender.sending {
            Sending::Writer(writer) => writer.epoch(),
            Sending::Plain(_) => 0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.sender.shared.state.lock()
    }
}

impl Sender {
    fn open_state(&self) -> Result<MutexGuard<'_, State>, ClientError> {
        let state = self.shared.state.lock();
        if state.closed {
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

    fn encode_alone(&self, record: &Record<'_>) -> Result<Bytes, ClientError> {
        let refused = |error| encode_error(&error, self.stream);
        let mut alone = RecordsBuilder::new();
        alone
            .push(record.value, record.key, record.timestamp_us, record.headers)
            .map_err(refused)?;
        let mut batch = BytesMut::new();
        let options = self.how.encode_options(self.stream);
        alone.finish(&options, &mut batch).map_err(refused)?;
        Ok(batch.freeze())
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

    /// Sends what is gathered, unless as much is on its way as may be.
    fn send(&self) {
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
        let due = shared.state.lock().due();
        let is_idle = head.is_none();
        let fate = async {
            match &mut head {
                Some((run, fate)) => (*run, fate.await),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            (run, result) = fate => {
                head = None;
                shared.settle(run, result);
            }
            sent = fates.recv(), if is_idle => match sent {
                Some(sent) => head = Some(sent),
                None => break,
            },
            () = sleep_until(due) => if let Some(writer) = writer.upgrade() {
                writer.send();
            },
            () = shared.rearm.notified() => {}
        }
    }
    shared.finished.store(true, Ordering::SeqCst);
    shared.changed.notify_waiters();
}
