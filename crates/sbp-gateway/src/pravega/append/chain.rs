//! The appends of a segment, one behind the other.
//!
//! Does no I/O. Each batch says where in the segment it begins, and states the offset that its first record has to get: so it is
//! refused where others have appended meanwhile. Then it is read where the segment ends, each writer is asked about anew, and what
//! is missing goes out again. One batch is on its way at a time: behind one that is refused, the next could get the offset that it
//! states all the same, behind records of others, and would say that it begins elsewhere than it does.
//!
//! A writer's batch has the number of its last event as epoch and the sequence 0. So the service takes a batch that it has for a
//! repeat, and refuses one with a lower number. The order of things matters: first it is read where the segment ends, then what a
//! writer has stored, then the writer appends behind that end. What another gateway appends for the same writer in between
//! moves the end, and shows.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use sbp_pravega::{NEW, WriterId};
use sbp_record::{MAX_BATCH_LENGTH, RecordsBuilder};
use sbp_types::Offset;

use crate::pravega::segment::{End, push_bytes};

/// Bytes of appends that go into one batch, where they are several.
const JOINED: usize = 4 << 20;
/// What a batch may have beside its records.
const HEAD: usize = 4 << 10;

/// What a client wants of its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// To append from now on.
    SetUp,
    /// Events.
    Append {
        data: Bytes,
        events: i32,
        /// The number of the last one.
        last: i64,
    },
    /// Bytes, where the segment has this length.
    Conditional { data: Bytes, number: i64, expected: i64 },
}

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It may append; this is the number of its last event.
    SetUp(i64),
    /// Stored, from behind the event `previous`; and the segment's length then, where it is known.
    Appended {
        number: i64,
        previous: i64,
        length: Option<i64>,
    },
    /// The segment does not have the length.
    ConditionFailed { number: i64 },
    /// No event can have the number.
    InvalidNumber { number: i64 },
    /// The segment takes no more appends.
    Sealed,
    /// There is no such segment any more.
    Gone,
    /// It is not known, or nothing that could be said would be true: the connection ends, and whoever comes again is told how far
    /// it is.
    Lost,
}

/// Why a batch is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The stream ends somewhere else; there, if that was told.
    Moved(Option<Offset>),
    /// The writer has another number than was known.
    Numbered,
    /// The stream takes no more records.
    Sealed,
    /// There is no such stream.
    Gone,
    /// Whether it is stored is not known.
    Unknown,
}

/// A batch to be appended.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) writer: WriterId,
    /// The writer's epoch.
    pub(crate) epoch: i64,
    pub(crate) records: RecordsBuilder,
    pub(crate) expected: Offset,
}

/// What is to be done next.
#[derive(Debug)]
pub(crate) enum Step<R> {
    /// Read where the segment ends, which is at this offset or behind it.
    ReadEnd(Option<Offset>),
    /// Ask for a writer's number. The answer is for this reading of the end.
    Ask(WriterId, u64),
    Submit(Box<Submission>),
    Tell(R, WriterId, Outcome),
}

/// Something that a client wants, and how it is told what comes of it.
#[derive(Debug)]
struct Waiting<R> {
    /// Which setup of the writer it belongs to.
    session: u64,
    what: What,
    reply: R,
}

/// An append that is on its way.
#[derive(Debug)]
struct Part<R> {
    waiting: Waiting<R>,
    last: i64,
    previous: i64,
    /// The segment's length behind it.
    length: i64,
}

#[derive(Debug)]
struct Writer<R> {
    /// Who may append; 0: nobody.
    session: u64,
    /// The number that the session was told when it was set up, or has stored itself since.
    told: i64,
    /// The number that is stored; `None`: it has to be asked for.
    stored: Option<i64>,
    is_asking: bool,
    waiting: VecDeque<Waiting<R>>,
    in_flight: Vec<Part<R>>,
    is_ready: bool,
    /// At which reading its conditional append has found the segment shorter than it expects: the next one decides.
    reread: Option<u64>,
    /// Sessions up to this one are over.
    left: u64,
}

impl<R> Default for Writer<R> {
    fn default() -> Self {
        Self {
            session: 0,
            told: NEW,
            stored: None,
            is_asking: false,
            waiting: VecDeque::new(),
            in_flight: Vec::new(),
            is_ready: false,
            reread: None,
            left: 0,
        }
    }
}

/// The appends of a segment.
#[derive(Debug)]
pub(crate) struct Chain<R> {
    /// Where the segment ends behind all that is on its way; `None`: it has to be read.
    end: Option<End>,
    /// How often it was not known any more.
    readings: u64,
    is_reading: bool,
    /// The stream ends at this offset or behind it.
    at_least: Option<Offset>,
    writers: HashMap<WriterId, Writer<R>>,
    /// Writers that something may be done for.
    ready: VecDeque<WriterId>,
    told: VecDeque<(R, WriterId, Outcome)>,
    /// Whether a batch is on its way.
    is_in_flight: bool,
    is_sealed: bool,
}

impl<R> Default for Chain<R> {
    fn default() -> Self {
        Self {
            end: None,
            readings: 1,
            is_reading: false,
            at_least: None,
            writers: HashMap::new(),
            ready: VecDeque::new(),
            told: VecDeque::new(),
            is_in_flight: false,
            is_sealed: false,
        }
    }
}

impl<R> Chain<R> {
    /// Takes what a client wants of a writer, in the order of the client. `session` is the same from one setup of the writer to
    /// the next.
    pub(crate) fn push(&mut self, writer: WriterId, session: u64, what: What, reply: R) {
        let of = self.writers.entry(writer).or_default();
        if what == What::SetUp {
            // Another gateway may have appended for it, and the client wants to know.
            of.stored = None;
        }
        of.waiting.push_back(Waiting { session, what, reply });
        self.make_ready(writer);
    }

    /// The session is over: nothing more comes of it.
    pub(crate) fn leave(&mut self, writer: WriterId, session: u64) {
        if let Some(of) = self.writers.get_mut(&writer) {
            of.left = of.left.max(session);
        }
        self.tidy(writer);
    }

    /// Forgets a writer that nobody appends with any more.
    fn tidy(&mut self, id: WriterId) {
        let is_unused = |of: &Writer<R>| {
            let is_idle = of.waiting.is_empty() && of.in_flight.is_empty() && !of.is_asking;
            // No session has the number 0.
            is_idle && of.session <= of.left
        };
        if self.writers.get(&id).is_some_and(is_unused) {
            self.writers.remove(&id);
        }
    }

    /// The segment takes no more appends.
    pub(crate) fn seal(&mut self) {
        self.is_sealed = true;
        self.ready_all();
    }

    /// Whether there is nothing under way, and nobody who may append.
    pub(crate) fn is_idle(&self) -> bool {
        self.writers.is_empty() && self.told.is_empty() && !self.is_reading
    }

    /// Whether a batch is on its way.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.is_in_flight
    }

    /// What is to be done next; `None`: nothing, until something more is known.
    pub(crate) fn poll(&mut self) -> Option<Step<R>> {
        loop {
            if let Some((reply, writer, outcome)) = self.told.pop_front() {
                return Some(Step::Tell(reply, writer, outcome));
            }
            if self.end.is_none() {
                let is_due = !self.is_reading && !self.is_in_flight && !self.ready.is_empty();
                self.is_reading |= is_due;
                return is_due.then_some(Step::ReadEnd(self.at_least));
            }
            if let Some(step) = self.serve_next()? {
                return Some(step);
            }
        }
    }

    /// Serves a writer. `None`: there is none that something can be done for.
    fn serve_next(&mut self) -> Option<Option<Step<R>>> {
        if self.is_in_flight {
            return None;
        }
        let id = self.ready.pop_front()?;
        if let Some(of) = self.writers.get_mut(&id) {
            of.is_ready = false;
        }
        let step = self.serve(id);
        // What was left out because of the step is done behind it.
        if step.is_some() {
            self.make_ready(id);
            self.tidy(id);
        }
        Some(step)
    }

    fn serve(&mut self, id: WriterId) -> Option<Step<R>> {
        let end = self.end?;
        let of = self.writers.get_mut(&id)?;
        if of.is_asking || !of.in_flight.is_empty() {
            return None;
        }
        let front = of.waiting.front()?;
        let is_foreign = front.session != of.session && front.what != What::SetUp;
        let outcome = match (&front.what, of.stored) {
            _ if is_foreign => Some(Outcome::Lost),
            (What::Append { last: number, .. } | What::Conditional { number, .. }, _) if *number < 0 => {
                Some(Outcome::InvalidNumber { number: *number })
            }
            (_, None) => {
                of.is_asking = true;
                return Some(Step::Ask(id, self.readings));
            }
            (What::SetUp, Some(stored)) => {
                of.session = front.session;
                of.told = stored;
                Some(Outcome::SetUp(stored))
            }
            (What::Append { last, events, .. }, Some(stored)) if *last <= stored => Some(Outcome::Appended {
                number: stored,
                previous: last.saturating_sub(i64::from(*events)),
                length: None,
            }),
            (What::Conditional { number, .. }, Some(stored)) if *number <= stored => Some(Outcome::Appended {
                number: stored,
                previous: number.saturating_sub(1),
                length: None,
            }),
            _ if self.is_sealed => Some(Outcome::Sealed),
            // Another instance of the writer has stored some of its events: which, only a new setup tells.
            (What::Append { last, events, .. }, Some(stored))
                if stored > of.told && last.saturating_sub(i64::from(*events)) < stored =>
            {
                of.session = 0;
                Some(Outcome::Lost)
            }
            (What::Append { .. }, Some(_)) => return self.submit(id, end),
            (What::Conditional { number, expected, .. }, Some(_)) => {
                let (number, expected) = (*number, *expected);
                match self.judge_condition(id, end, expected) {
                    Some(true) => return self.submit(id, end),
                    Some(false) => Some(Outcome::ConditionFailed { number }),
                    None => return None,
                }
            }
        };
        let of = self.writers.get_mut(&id)?;
        let waiting = of.waiting.pop_front()?;
        Some(Step::Tell(waiting.reply, id, outcome?))
    }

    /// Whether the segment has the length that an append expects; `None`: that shows later.
    fn judge_condition(&mut self, id: WriterId, end: End, expected: i64) -> Option<bool> {
        let (reading, of) = (self.readings, self.writers.get_mut(&id)?);
        if expected > end.length && of.reread.is_none_or(|before| before == reading) {
            // Others may have appended.
            of.reread = Some(reading);
            self.lose_end(None);
            return None;
        }
        of.reread = None;
        Some(expected == end.length)
    }

    /// Makes a batch of what waits: one conditional append, or appends that follow each other.
    fn submit(&mut self, id: WriterId, end: End) -> Option<Step<R>> {
        let of = self.writers.get_mut(&id)?;
        let mut records = RecordsBuilder::new();
        let mut bytes = 0;
        let mut previous = of.told;
        while let Some(waiting) = of.waiting.front() {
            let is_first = of.in_flight.is_empty();
            let (data, last, goes_alone) = match &waiting.what {
                What::Append { data, last, .. } if *last > previous => (data.clone(), *last, false),
                What::Conditional { data, number, .. } if is_first => (data.clone(), *number, true),
                _ => break,
            };
            if !is_first && (bytes + data.len() > JOINED || waiting.session != of.session) {
                break;
            }
            let length = end.length.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
            let is_pushed = push_bytes(&mut records, &data, length).is_ok();
            let waiting = of.waiting.pop_front()?;
            if !is_pushed || records.body_length() > MAX_BATCH_LENGTH - HEAD {
                // Only one that is alone is that long.
                of.session = 0;
                return Some(Step::Tell(waiting.reply, id, Outcome::Lost));
            }
            bytes += data.len();
            let length = end.length.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
            of.in_flight.push(Part {
                waiting,
                last,
                previous,
                length,
            });
            previous = last;
            if goes_alone {
                break;
            }
        }
        let last = of.in_flight.last()?;
        let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
        self.end = Some(End {
            next: Offset(end.next.0.saturating_add(count)),
            length: last.length,
        });
        self.is_in_flight = true;
        Some(Step::Submit(Box::new(Submission {
            writer: id,
            epoch: last.last,
            records,
            expected: end.next,
        })))
    }

    /// Where the segment ends, or why that is not known.
    pub(crate) fn end_read(&mut self, end: Result<End, Refusal>) {
        self.is_reading = false;
        match end {
            Ok(end) => {
                self.end = Some(end);
                self.at_least = None;
            }
            Err(refusal) => {
                let outcome = outcome_of(refusal);
                let all: Vec<_> = self.writers.keys().copied().collect();
                for id in all {
                    self.fail(id, outcome);
                    self.tidy(id);
                }
                self.ready.clear();
                self.writers.values_mut().for_each(|of| of.is_ready = false);
            }
        }
    }

    /// The number of a writer's last event that is stored, [`NEW`] where there is none; or why that is not known.
    pub(crate) fn asked(&mut self, id: WriterId, reading: u64, stored: Result<i64, Refusal>) {
        let is_current = self.readings == reading;
        let Some(of) = self.writers.get_mut(&id) else { return };
        of.is_asking = false;
        match stored {
            Ok(stored) if is_current => of.stored = Some(stored),
            Ok(_) => {}
            Err(refusal) => self.fail(id, outcome_of(refusal)),
        }
        self.make_ready(id);
        self.tidy(id);
    }

    /// What came of the writer's batch. `is_repeat`: it was stored before.
    pub(crate) fn appended(&mut self, id: WriterId, outcome: Result<bool, Refusal>) {
        let Some(of) = self.writers.get_mut(&id) else { return };
        let parts = std::mem::take(&mut of.in_flight);
        self.is_in_flight = false;
        match outcome {
            Ok(is_repeat) => {
                let is_known = of.stored.is_some();
                for part in parts {
                    of.told = part.last;
                    of.stored = is_known.then_some(part.last);
                    let outcome = Outcome::Appended {
                        number: part.last,
                        previous: part.previous,
                        length: (!is_repeat).then_some(part.length),
                    };
                    self.told.push_back((part.waiting.reply, id, outcome));
                }
                if is_repeat {
                    // It is not where it would be now: neither is what follows.
                    self.lose_end(None);
                }
            }
            Err(refusal) => {
                for part in parts.into_iter().rev() {
                    of.waiting.push_front(part.waiting);
                }
                match refusal {
                    Refusal::Moved(at) => self.lose_end(at),
                    Refusal::Numbered => self.lose_end(None),
                    Refusal::Sealed => self.seal(),
                    Refusal::Gone => self.fail(id, Outcome::Gone),
                    Refusal::Unknown => {
                        self.fail(id, Outcome::Lost);
                        self.lose_end(None);
                    }
                }
            }
        }
        self.make_ready(id);
        self.tidy(id);
    }

    /// The end is to be read again, and every writer's number behind that. It is at this offset or behind it.
    fn lose_end(&mut self, at: Option<Offset>) {
        self.at_least = self.at_least.max(at);
        if self.end.take().is_some() {
            self.readings += 1;
            self.writers.values_mut().for_each(|of| of.stored = None);
        }
        self.ready_all();
    }

    /// All that a writer wants comes to this.
    fn fail(&mut self, id: WriterId, outcome: Outcome) {
        let Some(of) = self.writers.get_mut(&id) else { return };
        if outcome == Outcome::Lost {
            // What comes of this session behind what is lost would leave a hole.
            of.session = 0;
        }
        let waiting = std::mem::take(&mut of.waiting);
        let told = waiting.into_iter().map(|waiting| (waiting.reply, id, outcome));
        self.told.extend(told);
    }

    fn make_ready(&mut self, id: WriterId) {
        if let Some(of) = self.writers.get_mut(&id)
            && !of.waiting.is_empty()
            && !std::mem::replace(&mut of.is_ready, true)
        {
            self.ready.push_back(id);
        }
    }

    fn ready_all(&mut self) {
        let all: Vec<_> = self.writers.keys().copied().collect();
        all.into_iter().for_each(|id| self.make_ready(id));
    }
}

fn outcome_of(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::Gone => Outcome::Gone,
        Refusal::Sealed => Outcome::Sealed,
        Refusal::Moved(_) | Refusal::Numbered | Refusal::Unknown => Outcome::Lost,
    }
}
