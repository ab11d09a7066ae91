//! What a batch writer holds: records that are gathered, batches whose fate is open, reports that nobody took yet.
//!
//! Does no I/O and reads no clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sbp_record::{EncodeError, MAX_BATCH_LENGTH, RecordsBuilder};

use super::{Delivery, Pushed, Record};
use crate::error::ClientError;
use crate::outcome::Ack;

/// A record up to this size fits into a batch whatever else that holds, and no gathered batch is larger.
pub(super) const LARGEST_GATHERED: usize = MAX_BATCH_LENGTH - (64 << 10);

/// What a record costs beside its bytes: its offsets and its bits.
const PER_RECORD: usize = 16;

/// The records of one batch, by number: both are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Run {
    fn len(self) -> u64 {
        u64::try_from(self.last - self.first + 1).unwrap_or(0)
    }
}

#[derive(Debug)]
pub(super) struct State {
    batch_bytes: usize,
    linger: Duration,
    max_in_flight: usize,
    /// Reports are kept for whoever takes them; else only failures are.
    reports: bool,
    gathered: RecordsBuilder,
    gathered_bytes: usize,
    /// When what is gathered is sent.
    due: Option<Instant>,
    /// The number of the next record.
    pub(super) next_sequence: i64,
    /// Batches made, and those whose fate is known. They end in their order.
    pub(super) taken: u64,
    pub(super) over: u64,
    /// Records of batches whose fate is open.
    open_records: u64,
    pub(super) delivered: VecDeque<Delivery>,
    pub(super) closed: bool,
}

impl State {
    pub(super) fn new(batch_bytes: usize, linger: Duration, max_in_flight: usize, reports: bool) -> Self {
        Self {
            batch_bytes: batch_bytes.clamp(1, LARGEST_GATHERED),
            linger,
            max_in_flight: max_in_flight.max(1),
            reports,
            gathered: RecordsBuilder::new(),
            gathered_bytes: 0,
            due: None,
            next_sequence: 0,
            taken: 0,
            over: 0,
            open_records: 0,
            delivered: VecDeque::new(),
            closed: false,
        }
    }

    /// Numbers begin here. Only before the first record.
    pub(super) fn begin_at(&mut self, sequence: i64) {
        if self.taken == 0 && self.gathered.is_empty() {
            self.next_sequence = sequence;
        }
    }

    /// Whether it is closed and all fates are known.
    pub(super) fn is_done(&self) -> bool {
        self.closed && self.unfinished() == 0
    }

    /// Whether a record goes into the batch that is gathered now; a record always goes into an empty one.
    pub(super) fn fits(&self, record: &Record<'_>) -> bool {
        self.gathered.is_empty() || self.gathered_bytes.saturating_add(cost(record)) <= self.batch_bytes
    }

    /// Gathers one record.
    pub(super) fn push(&mut self, record: &Record<'_>, now: impl FnOnce() -> Instant) -> Result<Pushed, EncodeError> {
        self.gathered
            .push(record.value, record.key, record.timestamp_us, record.headers)?;
        self.gathered_bytes = self.gathered_bytes.saturating_add(cost(record));
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let begins = self.due.is_none();
        let is_full = self.is_full();
        if is_full {
            self.due = Some(now());
        } else if begins {
            self.due = Some(now() + self.linger);
        }
        Ok(Pushed {
            sequence,
            is_full,
            begins,
        })
    }

    /// Takes what is gathered, to be sent.
    pub(super) fn seal(&mut self) -> Option<(RecordsBuilder, Run)> {
        if self.gathered.is_empty() {
            return None;
        }
        let records = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        self.due = None;
        let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
        let run = Run {
            first: self.next_sequence - count,
            last: self.next_sequence - 1,
        };
        self.sent(run);
        Some((records, run))
    }

    /// Numbers a batch that was made elsewhere. What is gathered is sealed before.
    pub(super) fn take_batch(&mut self, records: u32) -> Run {
        let run = Run {
            first: self.next_sequence,
            last: self.next_sequence + i64::from(records) - 1,
        };
        self.next_sequence = run.last + 1;
        self.sent(run);
        run
    }

    fn sent(&mut self, run: Run) {
        self.taken += 1;
        self.open_records += run.len();
    }

    /// The fate of a batch is known.
    pub(super) fn settle(&mut self, run: Run, result: Result<Ack, ClientError>) {
        self.over += 1;
        self.open_records = self.open_records.saturating_sub(run.len());
        if self.reports || result.is_err() {
            self.delivered.push_back(Delivery {
                first_sequence: run.first,
                last_sequence: run.last,
                result,
            });
        }
    }

    /// When what is gathered is to be sent. While too much is on its way it stays, and grows.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| self.may_send())
    }

    /// Whether another batch may be on its way.
    pub(super) fn may_send(&self) -> bool {
        self.taken - self.over < u64::try_from(self.max_in_flight).unwrap_or(u64::MAX)
    }

    fn is_full(&self) -> bool {
        self.linger.is_zero() || self.gathered_bytes >= self.batch_bytes
    }

    /// Whether another record may be taken: a batch can be sent, or the one that is gathered is not full.
    pub(super) fn has_room(&self) -> bool {
        self.may_send() || !self.is_full()
    }

    /// Records whose fate is not known.
    pub(super) fn unfinished(&self) -> u64 {
        self.open_records + u64::try_from(self.gathered.len()).unwrap_or(u64::MAX)
    }
}

/// What a record takes in a batch, at most.
pub(super) fn cost(record: &Record<'_>) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = record.headers.iter();
    let headers: usize = headers
        .map(|(name, value)| name.len() + length(*value) + PER_RECORD)
        .sum();
    length(record.value) + length(record.key) + headers + PER_RECORD
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use sbp_messages::ErrorCode;

    use super::{PER_RECORD, Record, Run, State};
    use crate::error::{ClientError, ErrorKind};

    const LINGER: Duration = Duration::from_millis(5);

    fn record(value: &[u8]) -> Record<'_> {
        Record {
            value: Some(value),
            ..Record::default()
        }
    }

    fn failed() -> ClientError {
        ClientError::new(ErrorKind::Rejected, ErrorCode::NOT_FOUND, "gone")
    }

    #[test]
    fn records_are_numbered_and_a_full_batch_is_told() {
        let mut state = State::new(2 * (PER_RECORD + 4), LINGER, 1, true);
        let now = Instant::now();
        state.begin_at(10);
        let first = state.push(&record(b"1234"), || now).unwrap();
        assert!((first.sequence, first.begins, first.is_full) == (10, true, false));
        assert_eq!(state.due(), Some(now + LINGER));
        assert!(state.fits(&record(b"1234")) && !state.fits(&record(b"12345")));
        let second = state.push(&record(b"1234"), || now + LINGER).unwrap();
        assert!((second.sequence, second.begins, second.is_full) == (11, false, true));
        let (records, run) = state.seal().unwrap();
        assert_eq!((records.len(), run), (2, Run { first: 10, last: 11 }));
        assert_eq!(state.take_batch(5), Run { first: 12, last: 16 });
        assert_eq!((state.next_sequence, state.unfinished()), (17, 7));
        state.begin_at(0);
        assert_eq!(state.next_sequence, 17);
    }

    #[test]
    fn what_is_gathered_waits_while_too_much_is_on_its_way() {
        let mut state = State::new(PER_RECORD + 1, LINGER, 1, true);
        let now = Instant::now();
        state.push(&record(b"a"), || now).unwrap();
        let (_, run) = state.seal().unwrap();
        assert!(state.has_room());
        state.push(&record(b"b"), || now).unwrap();
        assert!(!state.has_room());
        assert_eq!(state.due(), None);
        state.settle(run, Err(failed()));
        assert!(state.has_room());
        assert_eq!(state.due(), Some(now), "it is full, and does not linger");
        assert_eq!((state.taken, state.over, state.unfinished()), (1, 1, 1));
        let told = state.delivered.drain(..).collect::<Vec<_>>();
        assert_eq!((told[0].first_sequence, told[0].last_sequence), (0, 0));
    }

    #[test]
    fn without_linger_each_record_is_a_batch() {
        let mut state = State::new(1 << 20, Duration::ZERO, 1, false);
        assert!(state.push(&record(b"a"), Instant::now).unwrap().is_full);
        assert!(state.seal().is_some() && state.seal().is_none());
        assert!(!state.has_room());
    }
}
