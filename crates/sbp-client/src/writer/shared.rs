//! The writer around its machine: encodes, sends, tells callers, keeps time.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_record::{EncodeOptions, WriterStamp};
use sbp_types::{Offset, StreamId, WriterId};
use smallvec::smallvec;
use tokio::sync::{Notify, oneshot};

use super::intake::Intake;
use super::machine::{Action, Content, Kind, Machine, Opening, Setup, TimeLimit};
use super::pending::{PendingBatch, Waiter, send_question};
use super::{WINDOW, WriterOptions};
use crate::append::Records;
use crate::client::Client;
use crate::clock::{now, sleep_until, wait_until, wall_clock};
use crate::codes;
use crate::error::{ClientError, ErrorKind};
use crate::failure::Cause;
use crate::outcome::Ack;
use crate::submission::attempt::AttemptEnd;
use crate::submission::{AttemptSink, Reply, Submissions};
use crate::unique::unique_writer_id;

/// Appends to one stream, stored exactly once and in the order of the calls.
///
/// What fails for the moment is sent again until the append's time is over, over new connections and restarts of the
/// server, and the server recognises what it has stored already. So an append ends as indeterminate only when its time
/// is over. What happens behind a batch that is not stored depends on whether the writer was given a name; see
/// [`WriterOptions::writer_id`].
///
/// Clones write in one order. Appends that are not awaited are sent all the same; dropping the last clone and all
/// futures gives up on what is not on its way.
#[derive(Clone, Debug)]
pub struct Writer {
    shared: Arc<Shared>,
}

impl Client {
    /// A writer for `stream`. Needs a server that offers `idempotence`.
    #[must_use]
    pub fn writer(&self, stream: StreamId, options: WriterOptions) -> Writer {
        let id = options.writer_id.filter(|id| id.is_some());
        let opening = match (id, options.epoch, options.first_sequence) {
            // Nobody can have written under a name that was just made up.
            (None, _, first_sequence) => Opening::At(first_sequence.unwrap_or(0)),
            (Some(_), None, first_sequence) => Opening::TakesOver { first_sequence },
            (Some(_), Some(_), Some(first_sequence)) => Opening::At(first_sequence),
            (Some(_), Some(_), None) => Opening::Asks,
        };
        let setup = Setup {
            epoch: options.epoch.unwrap_or(0),
            opening,
            open_by: now() + options.timeout,
            kind: if id.is_some() { Kind::Named } else { Kind::Anonymous },
            max_in_flight: options.max_in_flight.clamp(1, WINDOW),
            attempt_timeout: options.attempt_timeout,
            policy: self.config().retry,
        };
        let id = id.unwrap_or_else(unique_writer_id);
        let shared = Arc::new(Shared {
            stream,
            id,
            options,
            intake: Mutex::new(Intake::new(WriterStamp {
                id,
                epoch: setup.epoch,
                base_sequence: options.first_sequence.unwrap_or(0),
            })),
            state: Mutex::new(State {
                machine: Machine::new(setup),
                taken: Vec::new(),
                armed: None,
                window_known: false,
            }),
            has_stopped: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            pumping: Mutex::new(Submissions::new()),
            changed: Notify::new(),
            rearm: Arc::default(),
            client: self.clone(),
        });
        let timer = keep_time(Arc::downgrade(&shared), Arc::clone(&shared.rearm));
        self.runtime().spawn(timer);
        shared.send_and_tell();
        Writer { shared }
    }
}

impl Writer {
    /// The stream written to.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.shared.stream
    }

    /// The writer's name: the one given, or the one made up for it.
    #[must_use]
    pub fn id(&self) -> WriterId {
        self.shared.id
    }

    /// The writer's epoch now. One that takes the next has it when [`Self::next_sequence`] is known.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.shared.state.lock().machine.epoch()
    }

    /// Appends one batch. Its place in the order is settled when this returns; the future waits for the acknowledgement.
    ///
    /// What cannot be sent yet waits in memory, without a bound of its own: whoever appends without awaiting waits for
    /// [`Writer::ready`] now and then.
    ///
    /// # Errors
    ///
    /// Kind [`Indeterminate`](crate::ErrorKind::Indeterminate): its time is over and it may have been stored. Any other:
    /// it was not stored. [`Invalid`](crate::ErrorKind::Invalid) at once: the records are no batch, or one that is too
    /// large; then they have taken no place in the order, and the writer goes on. Some end the writer, and the message
    /// says so: another instance has taken over, the server misses earlier batches, and for a writer with a name any
    /// batch that is not stored.
    pub fn append(
        &self,
        records: impl Into<Records>,
    ) -> impl Future<Output = Result<Ack, ClientError>> + Send + 'static {
        let answer = self.shared.accept(records.into());
        // While somebody waits, the batch is sent even if the writer is gone.
        let shared = Arc::clone(&self.shared);
        async move {
            let result = match answer {
                Ok(answer) => answer.await.unwrap_or_else(|_dropped| Err(lost())),
                Err(error) => Err(error),
            };
            result.map_err(|error| error.with_stream(shared.stream))
        }
    }

    /// Why the writer takes no more, if it has stopped. Takes a lock only then.
    #[must_use]
    pub fn stopped(&self) -> Option<ClientError> {
        let has_stopped = self.shared.has_stopped.load(Ordering::Acquire);
        has_stopped
            .then(|| self.shared.state.lock().machine.stopped())
            .flatten()
    }

    /// Waits until there is room for another batch among those on their way.
    pub async fn ready(&self) {
        let shared = &self.shared;
        shared.take_in(&mut shared.state.lock());
        let room = |machine: &Machine<Box<PendingBatch>>| {
            let unfinished = machine.taken().saturating_sub(machine.first_unfinished());
            (machine.stopped().is_some() || unfinished < machine.max_in_flight()).then_some(())
        };
        shared.wait_until(room).await;
    }

    /// Waits until everything appended so far is answered.
    ///
    /// # Errors
    ///
    /// Why the writer has stopped, if it has. What became of each append is told by its future.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let shared = &self.shared;
        let goal = {
            let mut state = shared.state.lock();
            shared.take_in(&mut state);
            state.machine.taken()
        };
        shared.send_and_tell();
        shared
            .wait_until(|machine| (machine.first_unfinished() >= goal).then_some(()))
            .await;
        shared.state.lock().machine.stopped().map_or(Ok(()), Err)
    }

    /// Accepts nothing more, and waits until everything is answered.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`].
    pub async fn close(&self) -> Result<(), ClientError> {
        self.shared.intake.lock().closed = true;
        self.flush().await
    }

    /// The sequence that the next record appended will have: how many this epoch of the writer has written before it.
    /// Waits until the server has told it, when it was to be asked.
    ///
    /// # Errors
    ///
    /// Why the writer has stopped.
    pub async fn next_sequence(&self) -> Result<i64, ClientError> {
        let shared = &self.shared;
        shared.take_in(&mut shared.state.lock());
        shared.send_and_tell();
        shared
            .wait_until(|machine| match machine.stopped() {
                Some(error) => Some(Err(error)),
                None => machine.next_sequence().map(Ok),
            })
            .await
    }
}

/// What all clones of a writer share.
///
/// Callers add to the intake. Whoever changes the machine runs the pump, which takes the intake in: a connection's task in
/// place; a caller has it run by the connection that its batches go to, once for many appends in a row. Only one pumps at
/// a time, so that batches are handed over in their order, and nothing is locked while they are: the channel may have news
/// for the writer at once.
struct Shared {
    client: Client,
    stream: StreamId,
    id: WriterId,
    options: WriterOptions,
    /// Locked after `state` where both are.
    intake: Mutex<Intake>,
    state: Mutex<State>,
    /// The machine takes no more.
    has_stopped: AtomicBool,
    /// Something has changed since the pump last looked.
    dirty: AtomicBool,
    /// Held by whoever pumps: what it sends, whose memory is used again.
    pumping: Mutex<Submissions>,
    /// Woken when batches are over, and when the writer stops.
    changed: Notify,
    /// Woken when the timer is due earlier than it knows.
    rearm: Arc<Notify>,
}

struct State {
    machine: Machine<Box<PendingBatch>>,
    /// Taken from the intake; empty but for its memory.
    taken: Vec<(Box<PendingBatch>, Instant)>,
    /// When the timer will wake up.
    armed: Option<Instant>,
    /// Batches may be on their way up to the server's window, which is looked at once.
    window_known: bool,
}

impl Shared {
    /// What a batch of this writer is stamped with.
    fn stamp(&self, epoch: i64, base_sequence: i64) -> WriterStamp {
        WriterStamp {
            id: self.id,
            epoch,
            base_sequence,
        }
    }

    fn encode_options(&self, stamp: WriterStamp) -> EncodeOptions {
        EncodeOptions {
            stream_id: self.stream,
            timestamp: wall_clock(),
            compression: self.options.compression,
            writer: Some(stamp),
        }
    }

    /// Takes an append. What is returned resolves when it is answered.
    fn accept(self: &Arc<Self>, records: Records) -> Result<oneshot::Receiver<Result<Ack, ClientError>>, ClientError> {
        let (waiter, answer) = oneshot::channel();
        let taken = self.take(records, waiter);
        // With a name the number of a record is its place in the input: one that is refused keeps its place, and nothing
        // is taken behind it.
        if let Err(error) = &taken
            && self.options.writer_id.is_some()
        {
            let mut intake = self.intake.lock();
            if intake.check_open().is_ok() {
                intake.stopped = Some(error.clone().into_stopped_writer(true));
            }
        }
        taken.map(|()| answer)
    }

    fn take(self: &Arc<Self>, records: Records, waiter: Waiter) -> Result<(), ClientError> {
        // Encoded before anything is locked; a stamp that was overtaken is written anew when it is sent.
        let stamp = self.intake.lock().next;
        let pending = PendingBatch::new(&self.encode_options(stamp), records, waiter)?;
        let deadline = now() + self.options.timeout;
        let mut intake = self.intake.lock();
        intake.check_open()?;
        intake.push(Box::new(pending), deadline);
        drop(intake);
        self.pump_soon();
        Ok(())
    }

    /// Gives the machine what callers added.
    fn take_in(&self, state: &mut State) {
        let mut taken = std::mem::take(&mut state.taken);
        let thought = self.intake.lock().take(&mut taken);
        for (pending, deadline) in taken.drain(..) {
            if let Err((error, pending)) = state.machine.push(pending.records(), TimeLimit::At(deadline), pending) {
                pending.tell(Err(error));
            }
        }
        state.taken = taken;
        let machine = &state.machine;
        let sequence = machine.next_sequence().unwrap_or(thought.base_sequence);
        let found = self.stamp(machine.epoch(), sequence);
        if let Some(error) = machine.stopped() {
            self.intake.lock().stopped = Some(error);
            self.has_stopped.store(true, Ordering::Release);
        } else if found != thought {
            self.intake.lock().correct(thought, found);
        }
    }

    /// Has what was added sent by the connection. The first of many appends in a row has it done for all of them: what they
    /// add until then goes in one hand-over, and the caller takes the next while the connection sends.
    fn pump_soon(self: &Arc<Self>) {
        if self.dirty.swap(true, Ordering::SeqCst) {
            return;
        }
        let channel = self.client.pool().for_append(self.stream);
        let sink = Arc::clone(self) as Arc<dyn AttemptSink>;
        if let Err(_no_connection) = channel.post_pump(sink) {
            let shared = Arc::clone(self);
            self.client.runtime().spawn(async move { shared.send_and_tell() });
        }
    }

    /// Sends what can be sent and tells what is to be told.
    fn send_and_tell(self: &Arc<Self>) {
        self.dirty.store(true, Ordering::SeqCst);
        while self.dirty.load(Ordering::SeqCst) {
            // Whoever pumps now looks again before it leaves.
            let Some(mut submissions) = self.pumping.try_lock() else {
                return;
            };
            self.dirty.store(false, Ordering::SeqCst);
            self.pump_once(&mut submissions);
        }
    }

    fn pump_once(self: &Arc<Self>, submissions: &mut Submissions) {
        let (mut refresh, mut reconnect) = (false, false);
        let mut told = Vec::new();
        let mut unsendable = Vec::new();
        // Where other servers have the stream too, one of them may go on with it by then.
        let end = Some((self.stream, Offset::LATEST));
        let attempt_timeout = self.client.pool().patience(end, self.options.attempt_timeout);
        {
            let mut state = self.state.lock();
            state.machine.limit_attempts(attempt_timeout);
            self.look_at_window(&mut state);
            let now = now();
            self.take_in(&mut state);
            self.collect(&mut state, now, submissions, &mut unsendable);
            while let Some(action) = state.machine.poll_action() {
                match action {
                    Action::Tell(pending, result) => told.push((pending, result)),
                    Action::Refresh => refresh = true,
                    Action::Reconnect => reconnect = true,
                }
            }
            self.arm(&mut state);
        }
        for (pending, result) in told {
            pending.tell(result);
        }
        if reconnect {
            self.client.pool().for_append(self.stream).reconnect();
        }
        self.client.submit(submissions);
        if !unsendable.is_empty() {
            Arc::clone(self).ended(&mut unsendable);
        }
        if refresh {
            self.refresh();
        }
        self.changed.notify_waiters();
    }

    fn collect(
        self: &Arc<Self>,
        state: &mut State,
        now: Instant,
        submissions: &mut Submissions,
        unsendable: &mut Vec<(u64, AttemptEnd)>,
    ) {
        while let Some(batch) = state.machine.poll_send(now) {
            let sink = Arc::clone(self) as Arc<dyn AttemptSink>;
            let stamp = self.stamp(batch.epoch, batch.base_sequence);
            let (token, deadline) = (batch.token, batch.deadline);
            let placed = match batch.content {
                Content::Question | Content::Fence => {
                    let is_fence = matches!(batch.content, Content::Fence);
                    let reply = Reply::attempts(sink, smallvec![token]);
                    send_question(&self.encode_options(stamp), is_fence, deadline, reply, submissions)
                }
                Content::Batch(pending) => pending.send(stamp, deadline, sink, token, submissions),
            };
            if let Err(error) = placed {
                let cause = Cause::Invalid {
                    what: error.what().to_owned(),
                };
                unsendable.push((token, AttemptEnd::failed(cause.into())));
            }
        }
    }

    /// A server may remember fewer batches than ours do.
    fn look_at_window(&self, state: &mut State) {
        if state.window_known {
            return;
        }
        if let Some(features) = self.client.features() {
            state.window_known = true;
            state.machine.limit_in_flight(features.idempotence.unwrap_or(WINDOW));
        }
    }

    /// Asks where the stream is now.
    fn refresh(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let deadline = now() + self.options.attempt_timeout;
        self.client.runtime().spawn(async move {
            match shared.client.pool().refresh_for_append(shared.stream, deadline).await {
                Err(error) if error.code() == ErrorCode::NOT_FOUND => {
                    shared.client.forget_stream(shared.stream);
                    shared.state.lock().machine.handle_deleted(error);
                }
                // Any other failure shows when the batches are sent again.
                Ok(()) | Err(_) => shared.state.lock().machine.handle_refreshed(),
            }
            shared.send_and_tell();
        });
    }

    /// Wakes the timer when it is due earlier than it knows.
    fn arm(&self, state: &mut State) {
        let Some(due) = state.machine.poll_timeout() else {
            return;
        };
        if state.armed.is_none_or(|armed| due < armed) {
            state.armed = Some(due);
            self.rearm.notify_one();
        }
    }

    /// Time has passed.
    fn handle_timeout(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            state.armed = None;
            state.machine.handle_timeout(now());
        }
        self.send_and_tell();
    }

    async fn wait_until<T>(&self, found: impl Fn(&Machine<Box<PendingBatch>>) -> Option<T>) -> T {
        wait_until(&self.changed, || found(&self.state.lock().machine)).await
    }
}

/// What is said of an append whose batch went away without a word.
fn lost() -> ClientError {
    let what = "the writer was given up before the outcome was known";
    ClientError::new(ErrorKind::Indeterminate, codes::CANCELLED, what)
}

impl AttemptSink for Shared {
    fn pump(self: Arc<Self>) {
        self.send_and_tell();
    }

    fn ended(self: Arc<Self>, ends: &mut Vec<(u64, AttemptEnd)>) {
        {
            let mut state = self.state.lock();
            let now = now();
            // Also where nothing was sent: a server that has just fallen silent does not answer a new connection's HEARTBEAT
            // either, and who was asked where the stream is may not have known yet that it is to go elsewhere.
            let is_silent = |end: &AttemptEnd| {
                let failure = end.outcome.as_ref().err();
                failure.is_some_and(|failure| matches!(failure.cause, Cause::Deadline { .. }))
            };
            if self.client.pool().may_be_elsewhere() && ends.iter().any(|(_, end)| is_silent(end)) {
                state.machine.look_elsewhere();
            }
            for (token, end) in ends.drain(..) {
                state.machine.handle_end(now, token, end);
            }
        }
        self.send_and_tell();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("stream", &self.stream)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its timer finds that it is gone.
        self.rearm.notify_one();
    }
}

/// Looks after the writer's time until the writer is gone, which it does not keep alive.
async fn keep_time(writer: Weak<Shared>, rearm: Arc<Notify>) {
    loop {
        let armed = match writer.upgrade() {
            Some(shared) => shared.state.lock().armed,
            None => return,
        };
        tokio::select! {
            () = sleep_until(armed) => match writer.upgrade() {
                Some(shared) => shared.handle_timeout(),
                None => return,
            },
            () = rearm.notified() => {}
        }
    }
}
