//! A stream: messages in both directions, on a connection of its own.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use sbp_locks::Mutex;
use sbp_seastar::{CloseReason, Connection, Event, Refused};
use sbp_transport::Application;
use sbp_wire::Endpoint;
use tokio::sync::{Notify, oneshot};

use super::error::{SeastarError, SeastarErrorKind};

/// Messages and bytes that are taken before the connection is told that there is room again.
const TELL_FROM: usize = 16;
const TELL_FROM_BYTES: usize = 32 << 10;

/// What a stream's connection is told.
#[derive(Debug)]
pub(super) enum StreamCommand {
    Send(Bytes, oneshot::Sender<Result<(), SeastarError>>),
    End(oneshot::Sender<Result<(), SeastarError>>),
    /// Messages of so many bytes each were taken.
    Took(Vec<usize>),
    Abort,
}

/// Hands a command to a stream's connection; false where that is over.
type Post = Box<dyn Fn(StreamCommand) -> bool + Send + Sync>;

/// One end of a stream; clones are the same end. Each side ends its own direction. Dropped without that, the connection is cut,
/// which the peer takes for an error.
#[derive(Clone)]
pub struct Stream {
    shared: Arc<StreamShared>,
    owner: Arc<Owner>,
}

/// Cuts the connection when the last clone is dropped.
struct Owner {
    post: Post,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // One that both sides have ended is over already.
        (self.post)(StreamCommand::Abort);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.shared.id)
            .finish_non_exhaustive()
    }
}

/// What a stream shares with its connection.
#[derive(Debug)]
pub(super) struct StreamShared {
    id: u64,
    state: Mutex<StreamState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct StreamState {
    messages: VecDeque<Bytes>,
    has_ended: bool,
    closed: Option<SeastarError>,
    taken: Vec<usize>,
    taken_bytes: usize,
}

impl StreamShared {
    pub(super) fn new(id: u64) -> Arc<Self> {
        Arc::new(Self {
            id,
            state: Mutex::new(StreamState::default()),
            changed: Notify::new(),
        })
    }

    /// The connection is over.
    pub(super) fn close(&self, reason: &CloseReason) {
        let mut state = self.state.lock();
        let kind = SeastarErrorKind::of_close(reason);
        let error = match reason {
            CloseReason::Local => SeastarError::new(kind, "the stream was closed").for_good(),
            CloseReason::Ended => SeastarError::new(kind, "both sides have ended the stream").for_good(),
            CloseReason::Violation(_) => SeastarError::new(kind, reason.to_string()),
            _ => {
                let what = format!("the stream is incomplete, it was lost before its end: {reason}");
                SeastarError::new(SeastarErrorKind::Peer, what)
            }
        };
        state.closed.get_or_insert(error);
        drop(state);
        self.changed.notify_waiters();
    }
}

impl Stream {
    pub(super) fn new(shared: Arc<StreamShared>, post: impl Fn(StreamCommand) -> bool + Send + Sync + 'static) -> Self {
        let post = Box::new(post);
        let owner = Arc::new(Owner { post });
        Self { shared, owner }
    }

    /// The id of its connection, which a verb is given.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Sends a message, which has at least a byte; waits while the peer does not take those before it.
    ///
    /// # Errors
    /// [`SeastarError`].
    pub async fn send(&self, message: Bytes) -> Result<(), SeastarError> {
        let (reply, done) = oneshot::channel();
        self.ask(StreamCommand::Send(message, reply), done).await
    }

    /// Ends this side's direction; there is no message after that.
    ///
    /// # Errors
    /// [`SeastarError`].
    pub async fn end(&self) -> Result<(), SeastarError> {
        let (reply, done) = oneshot::channel();
        self.ask(StreamCommand::End(reply), done).await
    }

    async fn ask(
        &self,
        command: StreamCommand,
        done: oneshot::Receiver<Result<(), SeastarError>>,
    ) -> Result<(), SeastarError> {
        (self.owner.post)(command);
        match done.await {
            Ok(result) => result,
            Err(_) => Err(self.closed()),
        }
    }

    fn closed(&self) -> SeastarError {
        let closed = self.shared.state.lock().closed.clone();
        closed.unwrap_or_else(|| SeastarError::new(SeastarErrorKind::Lost, "the stream is over").for_good())
    }

    /// The next message of the peer; `None` after its last one.
    ///
    /// # Errors
    /// [`SeastarError`]: the stream was lost before its end.
    pub async fn next(&self) -> Result<Option<Bytes>, SeastarError> {
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if let Some(next) = self.take() {
                return next;
            }
            changed.await;
        }
    }

    fn take(&self) -> Option<Result<Option<Bytes>, SeastarError>> {
        let mut state = self.shared.state.lock();
        let Some(message) = state.messages.pop_front() else {
            return match (state.has_ended, &state.closed) {
                (true, _) => Some(Ok(None)),
                (false, Some(error)) => Some(Err(error.clone())),
                (false, None) => None,
            };
        };
        state.taken.push(message.len());
        state.taken_bytes += message.len();
        let is_due =
            state.messages.is_empty() || state.taken.len() >= TELL_FROM || state.taken_bytes >= TELL_FROM_BYTES;
        if is_due {
            state.taken_bytes = 0;
            let taken = std::mem::take(&mut state.taken);
            drop(state);
            (self.owner.post)(StreamCommand::Took(taken));
        }
        Some(Ok(Some(message)))
    }

    /// Cuts the connection, whatever is under way.
    pub fn abort(&self) {
        (self.owner.post)(StreamCommand::Abort);
    }
}

/// A stream as its connection has it.
#[derive(Debug)]
pub(super) struct StreamSide {
    shared: Arc<StreamShared>,
    is_ready: bool,
    /// What waits for room, or for the negotiation.
    waiting: VecDeque<StreamCommand>,
}

impl StreamSide {
    pub(super) fn new(shared: Arc<StreamShared>) -> Self {
        Self {
            shared,
            is_ready: false,
            waiting: VecDeque::new(),
        }
    }

    /// Both sides have negotiated.
    pub(super) fn ready(&mut self, connection: &mut Connection, now: Instant) {
        self.is_ready = true;
        self.go_on(connection, now);
    }

    pub(super) fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: StreamCommand) {
        match command {
            StreamCommand::Took(lengths) => {
                for length in lengths {
                    connection.took(length);
                }
            }
            StreamCommand::Abort => connection.close(),
            command => {
                self.waiting.push_back(command);
                self.go_on(connection, now);
            }
        }
    }

    fn go_on(&mut self, connection: &mut Connection, now: Instant) {
        let is_over = connection.close_reason().is_some();
        while (self.is_ready && !connection.is_full()) || is_over {
            let Some(command) = self.waiting.pop_front() else {
                return;
            };
            let (result, reply) = match command {
                StreamCommand::Send(message, reply) => (connection.message(&message, now), reply),
                StreamCommand::End(reply) => (connection.end_stream(now), reply),
                StreamCommand::Took(_) | StreamCommand::Abort => continue,
            };
            let result = match result {
                // Who waits for this finds out why.
                Err(Refused::Closed) if is_over => continue,
                result => result.map_err(SeastarError::of_refused),
            };
            // Whoever sent it may have given up.
            drop(reply.send(result));
        }
    }

    pub(super) fn handle_event(&mut self, connection: &mut Connection, now: Instant, event: Event) {
        match event {
            Event::Message(message) => {
                self.shared.state.lock().messages.push_back(message);
                self.shared.changed.notify_waiters();
            }
            Event::Ended => {
                self.shared.state.lock().has_ended = true;
                self.shared.changed.notify_waiters();
            }
            Event::Room => self.go_on(connection, now),
            Event::Closing { reason } => {
                self.shared.close(&reason);
                self.go_on(connection, now);
            }
            _ => {}
        }
    }

    pub(super) fn handle_closed(&mut self, reason: &CloseReason) {
        self.shared.close(reason);
        self.waiting.clear();
    }
}

/// A client's stream on its connection.
#[derive(Debug)]
pub(super) struct StreamConnection {
    /// Told once: the id of the connection, or why there is none.
    opened: Option<oneshot::Sender<Result<Arc<StreamShared>, SeastarError>>>,
    side: Option<StreamSide>,
}

impl StreamConnection {
    pub(super) fn new(opened: oneshot::Sender<Result<Arc<StreamShared>, SeastarError>>) -> Self {
        Self {
            opened: Some(opened),
            side: None,
        }
    }

    fn fail(&mut self, error: SeastarError) {
        if let Some(opened) = self.opened.take() {
            // Whoever opens it may have given up.
            drop(opened.send(Err(error)));
        }
    }
}

impl Application for StreamConnection {
    type Endpoint = Connection;
    type Command = StreamCommand;

    fn handle_command(&mut self, connection: &mut Connection, now: Instant, command: StreamCommand) {
        match &mut self.side {
            Some(side) => side.handle_command(connection, now, command),
            None if matches!(command, StreamCommand::Abort) => connection.close(),
            None => {}
        }
    }

    fn handle_event(&mut self, connection: &mut Connection, now: Instant, event: Event) {
        if let Event::Negotiated(negotiated) = &event {
            let Some(id) = negotiated.connection_id else {
                self.fail(SeastarError::new(
                    SeastarErrorKind::Peer,
                    "the server gives a stream no id: it has no streams",
                ));
                return connection.close();
            };
            let shared = StreamShared::new(id);
            let mut side = StreamSide::new(Arc::clone(&shared));
            side.ready(connection, now);
            self.side = Some(side);
            let is_wanted = self.opened.take().is_some_and(|opened| opened.send(Ok(shared)).is_ok());
            if !is_wanted {
                connection.close();
            }
            return;
        }
        if let Event::Closing { reason } = &event {
            let what = format!("the server does not take the stream: {reason}");
            self.fail(SeastarError::new(SeastarErrorKind::Peer, what));
        }
        if let Some(side) = &mut self.side {
            side.handle_event(connection, now, event);
        }
    }

    fn finish_turn(&mut self, _: &mut Connection, _: Instant) {}

    fn handle_closed(&mut self, reason: &CloseReason) {
        let what = format!("the server does not take the stream: {reason}");
        self.fail(SeastarError::new(SeastarErrorKind::Peer, what));
        if let Some(side) = &mut self.side {
            side.handle_closed(reason);
        }
    }
}
