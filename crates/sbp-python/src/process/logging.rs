//! Events of the Rust side for Python's `logging`: `sbp_client::link` speaks as `sbp_native.client.link`.
//!
//! I/O threads put events into a bounded queue and go on; threads that are attached anyway take them out, after a
//! blocking call or with an event loop's completions. The first event in an empty queue wakes a loop, if one runs. What
//! does not fit is counted and told later.
//!
//! Which events are wanted is looked up in `logging` about once a second, never by an I/O thread.
#![allow(
    unsafe_code,
    reason = "the queue is reached through a pointer, so that a forked child can begin with a new one without a lock"
)]

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::Weak;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use sbp_locks::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::interpreter::once::{OncePy, interned};

/// An event loop that can be woken to take events: it may end at any time.
pub(crate) trait WakeLoop: Send + Sync {
    /// Whether the loop may still run.
    fn is_open(&self) -> bool;

    /// Wakes the loop unless a wake-up is already under way.
    fn wake(&self);
}

/// Events that wait at most.
const CAPACITY: usize = 1_024;
/// How long the levels that were looked up are good for.
const LEVELS_GOOD_FOR: Duration = Duration::from_secs(1);

/// The lowest level, as `logging` numbers them, that any logger of ours lets through.
static LOWEST: AtomicI64 = AtomicI64::new(NOTHING);
/// Higher than every level.
const NOTHING: i64 = i64::MAX;
/// This process's queue; null before the first use. Never freed, and replaced in a forked child alone: the parent's
/// threads may have held the old one's lock.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());

struct Queue {
    events: Mutex<VecDeque<Entry>>,
    /// How many there are, for who only wants to know whether there are any.
    length: AtomicUsize,
    dropped: AtomicU64,
    /// Loops that can be woken.
    loops: Mutex<Vec<Weak<dyn WakeLoop>>>,
    made: Instant,
    /// When levels have to be looked up again, in milliseconds since `made`.
    levels_until: AtomicU64,
}

struct Entry {
    metadata: &'static Metadata<'static>,
    message: String,
    time: SystemTime,
    thread: String,
}

impl Queue {
    fn new() -> Self {
        Self {
            events: Mutex::new(VecDeque::new()),
            length: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            loops: Mutex::new(Vec::new()),
            made: Instant::now(),
            levels_until: AtomicU64::new(0),
        }
    }

    /// The queue of this process, if there is one.
    fn current() -> Option<&'static Self> {
        let queue = QUEUE.load(Ordering::Acquire);
        // SAFETY: the pointer is null or came from `Box::leak`, so that it is valid for ever, and only shared references
        // are made of it.
        unsafe { queue.as_ref() }
    }

    fn push(&self, entry: Entry) {
        let mut events = self.events.lock();
        if events.len() >= CAPACITY {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        events.push_back(entry);
        let first = events.len() == 1;
        self.length.store(events.len(), Ordering::Release);
        drop(events);
        if first {
            self.wake();
        }
    }

    fn wake(&self) {
        let loops = self.loops.lock();
        let open = loops.iter().filter_map(Weak::upgrade).find(|known| known.is_open());
        drop(loops);
        if let Some(open) = open {
            open.wake();
        }
    }

    fn take(&self) -> (VecDeque<Entry>, u64) {
        let mut events = self.events.lock();
        self.length.store(0, Ordering::Release);
        (std::mem::take(&mut *events), self.dropped.swap(0, Ordering::Relaxed))
    }
}

/// Begins to collect events, unless that was done before.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    if Queue::current().is_some() {
        return Ok(());
    }
    let logging = module(py)?;
    // Libraries leave it to the application where messages go; without this, `logging` would print warnings.
    let silent = logging.call_method0(interned!(py, "NullHandler"))?;
    logger(py, "sbp_native")?.call_method1(interned!(py, "addHandler"), (silent,))?;
    // All of this ran attached, but Python code in between may have let another thread in: then there are two queues for
    // a moment, and the second one stays.
    QUEUE.store(Box::leak(Box::new(Queue::new())), Ordering::Release);
    // Whoever was first keeps the place: the command line's own log is one.
    let _ = tracing::subscriber::set_global_default(Collector);
    turn(py);
    Ok(())
}

/// Gives a forked child a queue of its own.
pub(crate) fn after_fork(_py: Python<'_>) {
    if Queue::current().is_some() {
        QUEUE.store(Box::leak(Box::new(Queue::new())), Ordering::Release);
    }
}

/// Has the first event of an empty queue wake this loop.
pub(crate) fn wakes(event_loop: Weak<dyn WakeLoop>) {
    if let Some(collected) = Queue::current() {
        let mut loops = collected.loops.lock();
        loops.retain(|known| known.strong_count() > 0);
        loops.push(event_loop);
    }
}

/// Hands waiting events to `logging`, and looks up now and then which ones are wanted. To be called by attached threads
/// that hold no lock: handlers are Python code.
pub(crate) fn turn(py: Python<'_>) {
    let Some(queue) = Queue::current() else { return };
    let now = u64::try_from(queue.made.elapsed().as_millis()).unwrap_or(u64::MAX);
    if now >= queue.levels_until.load(Ordering::Relaxed) {
        let good_for = u64::try_from(LEVELS_GOOD_FOR.as_millis()).unwrap_or(u64::MAX);
        queue
            .levels_until
            .store(now.saturating_add(good_for), Ordering::Relaxed);
        match lowest_level(py) {
            Ok(lowest) => LOWEST.store(lowest, Ordering::Relaxed),
            Err(error) => error.write_unraisable(py, None),
        }
    }
    if queue.length.load(Ordering::Acquire) == 0 {
        return;
    }
    let (events, dropped) = queue.take();
    for event in events {
        if let Err(error) = event.tell(py) {
            error.write_unraisable(py, None);
        }
    }
    if dropped > 0 {
        let message = format!("{dropped} messages were lost: nobody took them while more than {CAPACITY} waited");
        let told =
            logger(py, "sbp_native").and_then(|logger| logger.call_method1(interned!(py, "warning"), (message,)));
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    }
}

/// The last turn: nothing is collected behind it. Called when the interpreter ends.
pub(crate) fn end(py: Python<'_>) {
    turn(py);
    LOWEST.store(NOTHING, Ordering::Relaxed);
}

impl Entry {
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        let name = logger_name(self.metadata.target());
        let logger = logger(py, &name)?;
        let level = number(*self.metadata.level());
        if !logger
            .call_method1(interned!(py, "isEnabledFor"), (level,))?
            .is_truthy()?
        {
            return Ok(());
        }
        let file = self.metadata.file().unwrap_or_default();
        let line = self.metadata.line().unwrap_or_default();
        let record = logger.call_method1(
            interned!(py, "makeRecord"),
            (&name, level, file, line, &self.message, (), py.None()),
        )?;
        let since = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        record.setattr(interned!(py, "created"), since.as_secs_f64())?;
        record.setattr(interned!(py, "msecs"), f64::from(since.subsec_millis()))?;
        record.setattr(interned!(py, "threadName"), &self.thread)?;
        logger.call_method1(interned!(py, "handle"), (record,))?;
        Ok(())
    }
}

fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static MODULE: OncePy<PyAny> = OncePy::new();
    MODULE.get(py, || Ok(py.import("logging")?.into_any().unbind()))
}

fn logger<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    module(py)?.call_method1(interned!(py, "getLogger"), (name,))
}

/// `sbp_client::link` is `sbp_native.client.link`.
fn logger_name(target: &str) -> String {
    let path = target.strip_prefix("sbp_").unwrap_or(target);
    format!("sbp_native.{}", path.replace("::", "."))
}

/// A level as `logging` numbers them.
fn number(level: Level) -> i64 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// The lowest level that any logger of ours lets through.
fn lowest_level(py: Python<'_>) -> PyResult<i64> {
    let effective = |logger: &Bound<'_, PyAny>| {
        logger
            .call_method0(interned!(py, "getEffectiveLevel"))?
            .extract::<i64>()
    };
    let top = logger(py, "sbp_native")?;
    let mut lowest = effective(&top)?;
    let known = top
        .getattr(interned!(py, "manager"))?
        .getattr(interned!(py, "loggerDict"))?;
    // A copy: other threads make loggers meanwhile.
    let known = known.call_method0(interned!(py, "copy"))?.cast_into::<PyDict>()?;
    for (name, logger) in known.iter() {
        let ours = name
            .cast::<PyString>()
            .is_ok_and(|name| name.to_str().is_ok_and(|name| name.starts_with("sbp_native.")));
        // Names between two loggers have place-holders, which have no level.
        if ours && logger.hasattr(interned!(py, "getEffectiveLevel"))? {
            lowest = lowest.min(effective(&logger)?);
        }
    }
    Ok(lowest)
}

/// The subscriber behind the events of all our crates.
struct Collector;

impl Subscriber for Collector {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Levels change while the program runs, so each event asks.
        if metadata.is_event() && metadata.target().starts_with("sbp_") {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && number(*metadata.level()) >= LOWEST.load(Ordering::Relaxed)
            && metadata.target().starts_with("sbp_")
    }

    fn event(&self, event: &Event<'_>) {
        let Some(queue) = Queue::current() else { return };
        let mut text = Text::default();
        event.record(&mut text);
        queue.push(Entry {
            metadata: event.metadata(),
            message: text.message + &text.fields,
            time: SystemTime::now(),
            thread: std::thread::current().name().unwrap_or("sbp").to_owned(),
        });
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        // Spans are never enabled.
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// An event as one line: what happened, then `name=value` for what it is about.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, "; {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.record_debug(field, &value);
        }
    }
}
