//! The one task of a connection.

use std::{
    fmt,
    future::{Future, poll_fn},
    io::{self, IoSlice},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use sbp_wire::{Endpoint, Reason};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{Sleep, sleep_until, timeout},
};

use crate::application::ReasonOf;
use crate::memory::{Memory, Room, Share};
use crate::{Application, Inbox, TransportStats};

/// Bytes read in one turn before what they brought is handled: enough for large blocks, little enough that commands
/// and timers get their turn.
const READ_PER_TURN: usize = 512 * 1024;
/// Frames taken in one turn before what they brought is handled, for peers whose frames are all tiny: so many cost about
/// as much as so many bytes.
const FRAMES_PER_TURN: u64 = 4096;
/// Turns in one poll before the other tasks of the runtime are let in.
const TURNS_PER_POLL: usize = 8;
/// Frames taken in one poll, for the same reason.
const FRAMES_PER_POLL: u64 = 4 * FRAMES_PER_TURN;
/// Times that the inbox is emptied in one turn, for threads that post while this one works.
const TAKES_PER_TURN: usize = 4;
/// Slices in one vectored write.
const SLICES: usize = 64;
/// With fewer commands than this, and others likely on their way, it pays to let their senders run first.
const FEW_COMMANDS: usize = 8;
/// How long a connection waits for memory before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a closed socket is still read, so that the peer gets our last bytes and not a reset.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// Bytes that are read meanwhile of a peer that is not known. One that sends more waits for the end of that time: it has
/// something to read, and keeps nobody busy.
pub(crate) const LINGER_BYTES: u32 = 64 * 1024;
/// How long a connection without a socket may wait for what its peer has started.
const LAST_WORK: Duration = Duration::from_secs(30);

/// Runs a connection until it is over, and tells why it ended.
///
/// All of a connection happens in this one future: reading, writing, timers and commands, polled together, so that
/// neither direction waits for the other and no lock is held across a system call.
///
/// A peer that is gone may have started work that still goes on. The future then outlives the socket until that is
/// done, so that whoever counts connections counts their work: closing and dialling again is no way to have more of it
/// done at once than one connection may.
pub async fn drive<IO, A>(io: IO, session: A::Endpoint, app: A, inbox: Inbox<A::Command>) -> ReasonOf<A>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
    A: Application,
{
    run(io, Box::new(Driver::new(session, app, inbox))).await
}

/// What [`drive_until_settled`] came to.
#[derive(Debug)]
pub enum Driven<IO, A: Application> {
    /// The connection is over.
    Over(ReasonOf<A>),
    /// It goes on wherever [`Settled::drive`] is awaited.
    Settled(Settled<IO, A>),
}

/// Runs a connection until its application says that it [is settled](Application::is_settled), or until it is over.
///
/// A server that does this on a thread apart keeps those who connect and ask for nothing out of the way of those who do.
/// What the connection holds to its end counts in `memory`.
pub fn drive_until_settled<IO, A>(
    mut io: IO,
    session: A::Endpoint,
    app: A,
    inbox: Inbox<A::Command>,
    memory: &Arc<Memory>,
) -> impl Future<Output = Driven<IO, A>> + Send + use<IO, A>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
    A: Application,
{
    // Before the future: it would have room for each of them to its end.
    let mut driver = Box::new(Driver::new(session, app, inbox));
    driver.share = Some(memory.join());
    driver.until_settled = true;
    async move {
        poll_fn(|context| driver.poll(&mut io, context)).await;
        if driver.session.is_closed() {
            return Driven::Over(wind_up(io, driver).await);
        }
        driver.until_settled = false;
        Driven::Settled(Settled { io, driver })
    }
}

/// A connection between two runtimes. Nothing happens on it until it is driven on; what is posted to it waits.
pub struct Settled<IO, A: Application> {
    io: IO,
    driver: Box<Driver<A>>,
}

impl<IO, A: Application> Settled<IO, A> {
    /// Runs the connection in this runtime until it is over. `rehome` takes its socket over from the other one; an error
    /// of that ends the connection.
    pub async fn drive<T>(self, rehome: impl FnOnce(IO) -> io::Result<T>) -> ReasonOf<A>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let Self { io, mut driver } = self;
        driver.make_timer();
        match rehome(io) {
            Ok(io) => run(io, driver).await,
            Err(error) => {
                let now = tokio::time::Instant::now().into_std();
                driver.session.handle_transport_error(error, now);
                finish_work(driver).await
            }
        }
    }
}

impl<IO, A: Application> fmt::Debug for Settled<IO, A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Settled").finish_non_exhaustive()
    }
}

async fn run<IO, A>(mut io: IO, mut driver: Box<Driver<A>>) -> ReasonOf<A>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
    A: Application,
{
    poll_fn(|context| driver.poll(&mut io, context)).await;
    wind_up(io, driver).await
}

/// What is left to do once nothing more is said.
pub(crate) async fn wind_up<IO, A>(mut io: IO, driver: Box<Driver<A>>) -> ReasonOf<A>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
    A: Application,
{
    let most = match driver.session.is_authenticated() {
        true => u32::MAX,
        false => LINGER_BYTES,
    };
    if !driver.has_work() {
        let lingers = driver.lingers();
        let reason = driver.finish();
        if lingers {
            // A peer that takes no notice loses nothing but our patience.
            let _ = timeout(LINGER, linger(&mut io, most)).await;
        }
        return reason;
    }
    if driver.lingers() {
        let _ = timeout(LINGER, linger(&mut io, most)).await;
    }
    drop(io);
    finish_work(driver).await
}

/// Waits, without a socket, for what the peer has started.
async fn finish_work<A: Application>(mut driver: Box<Driver<A>>) -> ReasonOf<A> {
    // What does not end is not waited for for ever.
    let _ = timeout(LAST_WORK, poll_fn(|context| driver.poll_work(context))).await;
    driver.finish()
}

/// Ends the sending direction and reads until the peer has ended the other: closing a socket with unread bytes would
/// make the system take back what was just written. After `left` bytes it only waits, for ever.
pub(crate) async fn linger<IO: AsyncRead + AsyncWrite + Unpin>(io: &mut IO, mut left: u32) -> io::Result<()> {
    poll_fn(|context| Pin::new(&mut *io).poll_shutdown(context)).await?;
    // On the heap: an array would be a part of every connection's task from its beginning on.
    let mut scratch = vec![0; 4096];
    while left > 0 {
        match io.read(&mut scratch).await? {
            0 => return Ok(()),
            // All that a second brings fits into the largest number: that is no bound.
            count => left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX)),
        }
    }
    std::future::pending().await
}

pub(crate) struct Driver<A: Application> {
    session: A::Endpoint,
    app: A,
    pub(crate) inbox: Inbox<A::Command>,
    stats: Arc<TransportStats>,
    /// Commands of this turn; swapped with the inbox, so that both keep their memory.
    commands: Vec<A::Command>,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to. It may be earlier than needed: an early wake-up is cheaper than moving it each turn.
    timer_at: Option<Instant>,
    /// The socket has no more to give for now, and will wake this task when it has.
    read_parked: bool,
    /// The same for writing.
    write_parked: bool,
    /// What was written may not have left this process yet: TLS keeps what the socket does not take.
    unflushed: bool,
    /// The turn before had company: commands, or several events whose waiters will likely send more.
    was_busy: bool,
    /// This task stepped back once for the commands that now wait.
    yielded: bool,
    /// Polling ends as soon as the application is settled.
    until_settled: bool,
    /// Of the memory that all connections have.
    share: Option<Share>,
}

impl<A: Application> Driver<A> {
    pub(crate) fn new(session: A::Endpoint, app: A, inbox: Inbox<A::Command>) -> Self {
        let stats = inbox.stats();
        Self {
            session,
            app,
            inbox,
            stats,
            commands: Vec::new(),
            timer: Box::pin(sleep_until(tokio::time::Instant::now())),
            timer_at: None,
            read_parked: false,
            write_parked: false,
            unflushed: false,
            was_busy: false,
            yielded: false,
            until_settled: false,
            share: None,
        }
    }

    /// A timer of the runtime that this is called in.
    fn make_timer(&mut self) {
        self.timer = Box::pin(sleep_until(tokio::time::Instant::now()));
        self.timer_at = None;
    }

    /// Does one turn beside the task, whose context this is. Whether the task has to go on from there.
    pub(crate) fn turn_beside<IO>(&mut self, io: &mut IO, context: &mut Context<'_>) -> bool
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.read_parked = false;
        self.write_parked = false;
        let again = self.turn(io, context);
        // The task alone sets the timer.
        let is_early = |wanted| self.timer_at.is_none_or(|at| wanted < at);
        again || self.session.is_closed() || self.next_timeout().is_some_and(is_early)
    }

    pub(crate) fn poll<IO: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.session.is_closed() {
            return Poll::Ready(());
        }
        self.stats.count_wakeup();
        if self.yields_to_senders(context) {
            return Poll::Pending;
        }
        // Why it was woken is not known, so everything is tried again.
        self.read_parked = false;
        self.write_parked = false;
        let enough = self.session.frames_in() + FRAMES_PER_POLL;
        for _ in 0..TURNS_PER_POLL {
            let again = self.turn(io, context);
            if self.session.is_closed() || (self.until_settled && self.app.is_settled()) {
                return Poll::Ready(());
            }
            if !again && self.poll_timer(context).is_pending() {
                return Poll::Pending;
            }
            if self.session.frames_in() >= enough {
                break;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether to let the runtime's other tasks run before the few commands that wait are sent: when several calls
    /// ended in the last turn, their tasks are about to post, and one write can take them all. At most one step back,
    /// no timer; a lone request goes out at once.
    fn yields_to_senders(&mut self, context: &Context<'_>) -> bool {
        if self.was_busy && !self.yielded && (1..FEW_COMMANDS).contains(&self.inbox.len()) {
            self.yielded = true;
            context.waker().wake_by_ref();
            return true;
        }
        self.yielded = false;
        false
    }

    fn check_time(&mut self, now: Instant) {
        self.session.note_time(now);
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
        }
    }

    /// One round: what came in, what was asked, what goes out. Whether there is more to do at once.
    fn turn<IO: AsyncRead + AsyncWrite + Unpin>(&mut self, io: &mut IO, context: &mut Context<'_>) -> bool {
        let now = tokio::time::Instant::now().into_std();
        // Before the timers: what has come in time may have waited for this task.
        self.read(io, context, now);
        self.check_time(now);
        // Events first: a client's first HEARTBEAT goes before its first command.
        let mut events = self.take_events(now);
        let (posted, inbox_parked) = self.take_commands(context, now);
        if self.app.poll_timeout().is_some_and(|at| at <= now) {
            self.app.handle_timeout(&mut self.session, now);
        }
        events += self.take_events(now);
        self.app.finish_turn(&mut self.session, now);
        self.write(io, context, now);
        self.note_memory(now);
        // Writing makes room: requests that were held back at a limit come now, and need a turn of their own.
        let released = self.take_events(now);
        self.was_busy = posted > 0 || events + released > 1;
        let readable = self.session.wants_read() && !self.read_parked;
        let writable = self.session.transmit_len() > 0 && !self.write_parked;
        readable || writable || released > 0 || !inbox_parked
    }

    /// Tells what this connection holds, and takes notice where that is too much.
    fn note_memory(&mut self, now: Instant) {
        let Some(share) = &mut self.share else { return };
        let room = share.note(self.session.held_bytes() + self.app.held_bytes());
        self.session.set_tight(room != Room::Plenty, now);
        if room == Room::None && self.session.is_mid_frame() {
            tracing::debug!("closing a connection amid a request: all connections together hold too much memory");
            self.session.close();
        }
    }

    fn read<IO: AsyncRead + Unpin>(&mut self, io: &mut IO, context: &mut Context<'_>, now: Instant) {
        let mut left = READ_PER_TURN;
        let enough = self.session.frames_in() + FRAMES_PER_TURN;
        while left > 0 && self.session.frames_in() < enough && !self.read_parked && self.session.wants_read() {
            let mut buffer = self.session.recv_buffer();
            // Dropped at once: where it is pending, nothing was taken from the socket.
            let read = pin!(io.read_buf(&mut buffer)).poll(context);
            if read.is_ready() {
                self.stats.count_read();
            }
            match read {
                Poll::Pending => {
                    self.read_parked = true;
                    self.session.note_nothing_to_read();
                }
                Poll::Ready(Ok(0)) => self.session.handle_eof(now),
                Poll::Ready(Ok(count)) => {
                    self.session.handle_received(count, now);
                    left = left.saturating_sub(count);
                }
                Poll::Ready(Err(error)) => self.session.handle_transport_error(error, now),
            }
        }
    }

    fn take_events(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(event) = self.session.poll_event() {
            self.app.handle_event(&mut self.session, now, event);
            count += 1;
        }
        count
    }

    /// Carries out what was posted. How many commands, and whether the inbox will wake this task for the next.
    fn take_commands(&mut self, context: &mut Context<'_>, now: Instant) -> (usize, bool) {
        let mut commands = mem::take(&mut self.commands);
        let mut count = 0;
        let mut parked = false;
        for _ in 0..TAKES_PER_TURN {
            if self.inbox.poll_take(context, &mut commands).is_pending() {
                parked = true;
                break;
            }
            count += commands.len();
            for command in commands.drain(..) {
                self.app.handle_command(&mut self.session, now, command);
            }
        }
        self.commands = commands;
        (count, parked)
    }

    fn write<IO: AsyncWrite + Unpin>(&mut self, io: &mut IO, context: &mut Context<'_>, now: Instant) {
        self.write_frames(io, context, now);
        if self.unflushed && !self.write_parked {
            match Pin::new(io).poll_flush(context) {
                Poll::Pending => self.write_parked = true,
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => self.session.handle_transport_error(error, now),
            }
        }
    }

    fn write_frames<IO: AsyncWrite + Unpin>(&mut self, io: &mut IO, context: &mut Context<'_>, now: Instant) {
        while !self.write_parked && self.session.transmit_len() > 0 {
            let written = {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let count = self.session.transmit(&mut slices);
                Pin::new(&mut *io).poll_write_vectored(context, slices.get(..count).unwrap_or_default())
            };
            if written.is_ready() {
                self.stats.count_write();
            }
            match written {
                Poll::Pending => self.write_parked = true,
                Poll::Ready(Ok(0)) => {
                    self.session
                        .handle_transport_error(io::ErrorKind::WriteZero.into(), now);
                }
                Poll::Ready(Ok(count)) => {
                    self.unflushed = true;
                    self.session.handle_written(count, now);
                }
                Poll::Ready(Err(error)) => self.session.handle_transport_error(error, now),
            }
        }
    }

    /// When the session or the application wants to be called for the time's sake.
    fn next_timeout(&self) -> Option<Instant> {
        let timeouts = [self.session.poll_timeout(), self.app.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    /// Ready when a timer is due; else this task will be woken when it is.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wanted = self.next_timeout();
        // Nobody tells that there is memory again.
        let again = self
            .session
            .is_tight()
            .then(|| (tokio::time::Instant::now() + LOOK_AGAIN).into_std());
        let wanted = wanted.into_iter().chain(again).min();
        let Some(wanted) = wanted else { return Poll::Pending };
        if self.timer_at.is_none_or(|at| wanted < at) {
            self.timer.as_mut().reset(wanted.into());
            self.timer_at = Some(wanted);
        }
        ready!(self.timer.as_mut().poll(context));
        // Fired, perhaps for a moment that is of no interest any more: the next turn sets it anew.
        self.timer_at = None;
        Poll::Ready(())
    }

    /// Whether the peer has started something that is not yet done. What only waits is not work.
    fn has_work(&self) -> bool {
        self.session.peer_calls() > 0
    }

    /// Whether the peer may have bytes of ours to read: a reset would take them back.
    fn lingers(&self) -> bool {
        let is_heard = self.session.close_reason().is_none_or(Reason::lingers);
        is_heard && self.session.bytes_out() > 0
    }

    /// Goes on without a socket until nothing is left to do.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = tokio::time::Instant::now().into_std();
            self.check_time(now);
            let (_, parked) = self.take_commands(context, now);
            if self.app.poll_timeout().is_some_and(|at| at <= now) {
                self.app.handle_timeout(&mut self.session, now);
            }
            self.take_events(now);
            self.app.finish_turn(&mut self.session, now);
            if !self.has_work() {
                return Poll::Ready(());
            }
            if parked && self.poll_timer(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Hands over what is left, and takes leave of the application.
    fn finish(mut self) -> ReasonOf<A> {
        let now = tokio::time::Instant::now().into_std();
        self.take_events(now);
        for command in self.inbox.close() {
            self.app.handle_command(&mut self.session, now, command);
        }
        self.take_events(now);
        self.app.finish_turn(&mut self.session, now);
        let reason = self.session.close_reason().cloned().unwrap_or_else(Reason::local);
        self.app.handle_closed(&reason);
        reason
    }
}
