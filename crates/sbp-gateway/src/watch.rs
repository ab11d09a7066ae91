//! Waiting for streams to grow, for all who wait at once.
//!
//! Whoever waits says behind which offset. One task asks the service for all of them, with FETCHes that bring no records, and
//! wakes those whose streams have grown.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use sbp_client::{Client, Growth};
use sbp_locks::Mutex;
use sbp_types::{Offset, StreamId};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

/// How long those who come are gathered before the service is asked, and how long it waits then.
const GATHER: Duration = Duration::from_millis(2);
const WAIT: Duration = Duration::from_secs(5);
/// Questions under way from which on they are gathered for longer, so that there are never many: a server lets 256 wait.
const MANY: usize = 16;
const GATHER_LONGER: Duration = Duration::from_millis(100);
const WAIT_SHORTER: Duration = Duration::from_secs(1);
/// How long a stream is not asked for that could not be waited for.
const PAUSE: Duration = Duration::from_millis(100);

/// Somebody who waits.
#[derive(Debug)]
struct Waiting {
    stream: StreamId,
    from: Offset,
    /// Gone when nobody waits any more.
    woken: Weak<Notify>,
}

/// Whom to tell what one waits for.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None` ends the task.
    waiting: UnboundedSender<Option<Waiting>>,
    /// The task, until somebody waits for its end.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    /// Its task ends when it is closed, or dropped.
    pub(crate) fn new(client: Client) -> Self {
        let (waiting, arrivals) = unbounded_channel();
        let runtime = client.runtime().clone();
        let task = runtime.spawn(Watching::new(client).run(arrivals));
        Self {
            waiting,
            task: Mutex::new(Some(task)),
        }
    }

    /// Ends the task and waits until it is over: nobody is woken any more. A task that has failed is logged.
    pub(crate) async fn close(&self) {
        // Where nobody listens, the task is over.
        drop(self.waiting.send(None));
        let Some(task) = self.task.lock().take() else { return };
        if let Err(error) = task.await {
            tracing::error!(%error, "what waits for streams to grow has failed");
        }
    }

    /// Notifies once the stream has a record at this offset, or may have: whoever is woken looks.
    pub(crate) fn wake(&self, woken: &Arc<Notify>, stream: StreamId, from: Offset) {
        let waiting = Waiting {
            stream,
            from,
            woken: Arc::downgrade(woken),
        };
        // Where nobody listens, it was closed.
        drop(self.waiting.send(Some(waiting)));
    }
}

/// What is known of a stream that somebody waits for.
#[derive(Debug, Default)]
struct Watched {
    waiting: Vec<(Offset, Weak<Notify>)>,
    /// The offset that the service is asked for.
    asked: Option<Offset>,
    /// It is not asked for before.
    not_before: Option<Instant>,
}

struct Watching {
    client: Client,
    streams: HashMap<StreamId, Watched>,
    told: UnboundedSender<Growth>,
    growths: UnboundedReceiver<Growth>,
    /// When those that nobody has asked for are asked for.
    ask_at: Option<Instant>,
    /// Questions under way.
    questions: usize,
}

impl Watching {
    fn new(client: Client) -> Self {
        let (told, growths) = unbounded_channel();
        Self {
            client,
            streams: HashMap::new(),
            told,
            growths,
            ask_at: None,
            questions: 0,
        }
    }

    async fn run(mut self, mut arrivals: UnboundedReceiver<Option<Waiting>>) {
        loop {
            let at = self.ask_at;
            tokio::select! {
                arrived = arrivals.recv() => match arrived.flatten() {
                    Some(waiting) => self.arrive(waiting),
                    None => return,
                },
                Some(growth) = self.growths.recv() => self.take(&growth),
                () = sleep_until(at.unwrap_or_else(Instant::now).into()), if at.is_some() => self.ask(),
            }
        }
    }

    fn arrive(&mut self, waiting: Waiting) {
        let watched = self.streams.entry(waiting.stream).or_default();
        watched.waiting.push((waiting.from, waiting.woken));
        let is_asked = watched.asked.is_some_and(|asked| asked <= waiting.from);
        let not_before = watched.not_before;
        if !is_asked {
            self.ask_by(not_before);
        }
    }

    /// Streams that are not asked for are asked for soon.
    fn ask_by(&mut self, not_before: Option<Instant>) {
        let gather = if self.questions < MANY { GATHER } else { GATHER_LONGER };
        let soon = Instant::now() + gather;
        let at = not_before.map_or(soon, |not_before| not_before.max(soon));
        self.ask_at = Some(self.ask_at.map_or(at, |before| before.min(at)));
    }

    fn ask(&mut self) {
        self.ask_at = None;
        let now = Instant::now();
        let mut places = Vec::new();
        let mut later: Option<Instant> = None;
        self.streams.retain(|stream, watched| {
            watched.waiting.retain(|(_, woken)| woken.strong_count() > 0);
            let lowest = watched.waiting.iter().map(|(from, _)| *from).min();
            let Some(lowest) = lowest else {
                return watched.asked.is_some();
            };
            if watched.asked.is_some_and(|asked| asked <= lowest) {
                return true;
            }
            match watched.not_before.filter(|at| *at > now) {
                Some(at) => later = Some(later.map_or(at, |before| before.min(at))),
                None => {
                    watched.asked = Some(lowest);
                    places.push((*stream, lowest));
                }
            }
            true
        });
        if later.is_some() {
            self.ask_by(later);
        }
        if places.is_empty() {
            return;
        }
        let wait = if self.questions < MANY { WAIT } else { WAIT_SHORTER };
        self.questions += self.client.await_growth(&places, wait, &self.told);
    }

    fn take(&mut self, growth: &Growth) {
        if growth.is_last {
            self.questions = self.questions.saturating_sub(1);
        }
        let Some(watched) = self.streams.get_mut(&growth.stream) else {
            return;
        };
        if watched.asked == Some(growth.from) {
            watched.asked = None;
        }
        match &growth.end {
            Ok(end) if *end > growth.from => {
                watched.not_before = None;
                watched.waiting.retain(|(from, woken)| {
                    let is_there = from < end;
                    if is_there && let Some(woken) = woken.upgrade() {
                        woken.notify_one();
                    }
                    !is_there
                });
            }
            // Its time is over, or it is sealed and is answered at once.
            Ok(_) => watched.not_before = Some(Instant::now() + PAUSE),
            // Whoever waits looks what is wrong, or gone.
            Err(_) => {
                watched.not_before = Some(Instant::now() + PAUSE);
                for (_, woken) in watched.waiting.drain(..) {
                    if let Some(woken) = woken.upgrade() {
                        woken.notify_one();
                    }
                }
            }
        }
        match watched.waiting.is_empty() && watched.asked.is_none() && watched.not_before.is_none() {
            true => drop(self.streams.remove(&growth.stream)),
            false => {
                let not_before = watched.not_before;
                self.ask_by(not_before);
            }
        }
    }
}
