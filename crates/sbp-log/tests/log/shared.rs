//! Ranges with copies on other servers: what counts for their writers, and where they end.

use std::collections::BTreeMap;

use bytes::Bytes;
use sbp_log::{
    Durability, EntryHead, EntryKind, Log, LogConfig, LogEntry, LogError, WRITER_WINDOW, WriterKey, WriterState,
    writers_in,
};
use sbp_sim::{SimFileSystem, Survival};
use sbp_types::{Offset, Position, RangeKey, StreamId, TimestampMs, WriterId};

use crate::common::{Opened, batch, open, small_config};
use crate::marks::{at, range, read_from};

const STREAM: StreamId = StreamId(1);

fn writer(low: u64) -> WriterId {
    WriterId { high: 9, low }
}

pub(crate) type Writers = BTreeMap<WriterKey, WriterState>;

/// What the log knows of the writers of a stream.
fn known(log: &Log<u64>, stream: StreamId) -> Writers {
    let parts = log.writers_of(stream);
    let states = parts.iter().flat_map(|part| writers_in(stream, part).unwrap());
    let states: Writers = states.collect();
    for (key, state) in &states {
        assert_eq!(log.writer(*key).as_ref(), Some(state));
    }
    states
}

/// The state of these writers in so many parts.
fn parts(log: &Log<u64>, stream: StreamId, count: usize) -> Vec<Bytes> {
    let whole = log.writers_of(stream).remove(0);
    let states = writers_in(stream, &whole).unwrap();
    let lengths = states.iter().map(|(_, state)| 64 + 24 * state.window.len());
    let mut parts = vec![whole[..4].to_vec(); count];
    let mut from = 4;
    for (number, length) in lengths.enumerate() {
        parts[number % count].extend_from_slice(&whole[from..from + length]);
        from += length;
    }
    assert_eq!(from, whole.len());
    parts.into_iter().map(Bytes::from).collect()
}

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) end: Position,
    pub(crate) head: EntryHead,
    bytes: Bytes,
    number: u64,
}

/// What was handed to the log, what it promised, and what it was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) ranges: BTreeMap<RangeKey, Vec<Sent>>,
    pub(crate) acknowledged: u64,
    pub(crate) confirmed: BTreeMap<RangeKey, Position>,
    ended: BTreeMap<RangeKey, Position>,
    sequences: BTreeMap<WriterId, i64>,
    epochs: BTreeMap<WriterId, i64>,
    pub(crate) numbers: u64,
}

impl History {
    fn end(&self, key: RangeKey) -> Position {
        let sent = self.ranges.get(&key).and_then(|sent| sent.last());
        sent.map_or(Position::default(), |sent| sent.end)
    }

    /// Hands an entry to the log; returns whether it took it.
    fn send(&mut self, log: &Log<u64>, head: EntryHead, bytes: Bytes) -> bool {
        let place = match self.ranges.get(&head.key).and_then(|sent| sent.last()) {
            Some(last) => last.end,
            None => Position::start(head.base_offset),
        };
        let head = EntryHead {
            base_offset: place.offset,
            marks: Some(place.marks),
            ..head
        };
        let entry = LogEntry {
            head,
            prefix: Default::default(),
            chunks: std::iter::once(bytes.clone())
                .filter(|bytes| !bytes.is_empty())
                .collect(),
            context: self.numbers,
        };
        if log.append(vec![entry]).is_err() {
            return false;
        }
        let end = match head.kind {
            EntryKind::Batch => place.behind_records(head.count),
            _ => place.behind_mark(),
        };
        let (end, number) = (end.unwrap(), self.numbers);
        self.ranges.entry(head.key).or_default().push(Sent {
            end,
            head,
            bytes,
            number,
        });
        self.numbers += 1;
        true
    }

    pub(crate) fn batch(&mut self, log: &Log<u64>, key: RangeKey, by: u64, length: usize, shared: bool) -> bool {
        let sequence = self.sequences.entry(writer(by)).or_default();
        let head = EntryHead {
            key,
            shared,
            count: 2,
            append_time: TimestampMs(1_000),
            writer: writer(by),
            writer_epoch: self.epochs.get(&writer(by)).copied().unwrap_or(0),
            base_sequence: *sequence,
            ..EntryHead::default()
        };
        *sequence += 2;
        let bytes = batch(self.numbers, length);
        self.send(log, head, bytes)
    }

    pub(crate) fn fence(&mut self, log: &Log<u64>, key: RangeKey, by: u64, epoch: i64) -> bool {
        self.epochs.insert(writer(by), epoch);
        let head = EntryHead {
            key,
            kind: EntryKind::Fence,
            shared: true,
            append_time: TimestampMs(1_000),
            writer: writer(by),
            writer_epoch: epoch,
            base_sequence: self.sequences.get(&writer(by)).copied().unwrap_or(0),
            ..EntryHead::default()
        };
        self.send(log, head, Bytes::new())
    }

    /// Begins a range with what the log knows of the writers.
    pub(crate) fn begin(&mut self, log: &Log<u64>, key: RangeKey, start: i64, count: usize, shared: bool) -> bool {
        let parts = parts(log, key.stream, count);
        let number = u16::try_from(count).unwrap();
        (0..number).zip(parts).all(|(part, bytes)| {
            let head = EntryHead {
                key,
                kind: EntryKind::Writers { part, parts: number },
                shared,
                base_offset: Offset(start),
                ..EntryHead::default()
            };
            self.send(log, head, bytes)
        })
    }

    /// Everything that was sent is confirmed, but for so many entries of the range.
    pub(crate) fn confirm(&mut self, log: &Log<u64>, key: RangeKey, but: usize) {
        let sent = self.ranges.get(&key).map_or(&[][..], Vec::as_slice);
        let Some(last) = sent.len().checked_sub(but + 1).and_then(|last| sent.get(last)) else {
            return;
        };
        let told = self.confirmed.entry(key).or_default();
        *told = last.end.max(*told);
        log.confirm(key, *told);
    }

    pub(crate) fn end_range(&mut self, log: &Log<u64>, key: RangeKey, end: Position) {
        self.ended.insert(key, end);
        self.confirmed.insert(key, end);
        log.end_range(key, end);
    }

    /// The writers go on from what is known of them.
    pub(crate) fn resume(&mut self, known: &Writers) {
        self.sequences.retain(|writer, _| *writer == crate::shared::writer(9));
        self.epochs.clear();
        for (key, state) in known {
            self.sequences.insert(key.writer, state.next_sequence);
            self.epochs.insert(key.writer, state.epoch);
        }
    }

    /// What is to be known of the writers of a stream by what was said to be confirmed.
    pub(crate) fn expected(&self, log: &Log<u64>, stream: StreamId) -> Writers {
        let mut writers = Writers::new();
        let mut parts: Vec<Bytes> = Vec::new();
        for (key, sent) in self.ranges.iter().filter(|(key, _)| key.stream == stream) {
            let confirmed = self.confirmed.get(key).copied().unwrap_or_default();
            // What nobody else has a copy of counts when it is there.
            let synced = log.end_position(*key).unwrap_or_default();
            let counts = |sent: &&Sent| sent.end <= if sent.head.shared { confirmed } else { synced };
            for sent in sent.iter().filter(counts) {
                match sent.head.kind {
                    EntryKind::Writers { part, parts: all } => {
                        parts.truncate(usize::from(part));
                        parts.push(sent.bytes.clone());
                        if part + 1 == all {
                            writers = parts
                                .iter()
                                .flat_map(|part| writers_in(stream, part).unwrap())
                                .collect();
                        }
                    }
                    _ => {
                        let key = WriterKey::of(&sent.head).unwrap();
                        writers.entry(key).or_default().record(&sent.head);
                    }
                }
            }
        }
        writers
    }

    /// What is wrong with a log that came back, in words.
    pub(crate) fn complaint(&self, log: &Log<u64>, streams: &[StreamId]) -> Option<String> {
        for (key, sent) in &self.ranges {
            let beginning = sent[0].head.base_offset;
            let found = read_from(log, *key, Position::start(beginning));
            let is_prefix = found.len() <= sent.len()
                && found
                    .iter()
                    .zip(sent)
                    .all(|(found, sent)| found.1 == sent.head && found.2 == sent.bytes);
            if !is_prefix {
                return Some(format!("{key}: something else than was sent"));
            }
            let end = self.ended.get(key).copied().unwrap_or(at(i64::MAX, 0));
            let promised = sent
                .iter()
                .filter(|sent| sent.number < self.acknowledged && sent.end <= end)
                .count();
            if found.len() < promised {
                return Some(format!("{key}: {} entries of {promised}", found.len()));
            }
            let found_end = found.last().map(|found| found.1.base_offset);
            if found_end > log.end_position(*key).map(|end| end.offset) {
                return Some(format!("{key}: ends before its entries"));
            }
        }
        for stream in streams {
            for (writer, state) in known(log, *stream) {
                let confirmed = self.expected(log, *stream).remove(&writer).unwrap_or_default();
                if state.epoch > confirmed.epoch || state.next_sequence > confirmed.next_sequence {
                    return Some(format!(
                        "{writer:?}: what was not confirmed counts: {state:?}, not {confirmed:?}"
                    ));
                }
            }
        }
        // The owner says again what it knows.
        for (key, end) in &self.ended {
            log.end_range(*key, *end);
        }
        log.confirm_all(self.confirmed.iter().map(|(key, confirmed)| (*key, *confirmed)));
        for (key, end) in &self.ended {
            let found = log.end_position(*key).unwrap_or_default();
            if found > *end || log.synced_end(*key).is_some_and(|synced| synced > end.offset) {
                return Some(format!("{key}: goes on behind its end"));
            }
            if !log.entries(*key, *end, 1 << 20).unwrap().is_empty()
                || !log.read(*key, end.offset, 1 << 20, true).unwrap().is_empty()
            {
                return Some(format!("{key}: what lies behind its end is read"));
            }
        }
        for stream in streams {
            let (found, expected) = (known(log, *stream), self.expected(log, *stream));
            if found != expected {
                return Some(format!("{stream}: {found:#?} is known, not {expected:#?}"));
            }
        }
        None
    }
}

/// Three ranges of a stream, the last one of which goes on, and a stream without copies elsewhere between them.
fn live(history: &mut History, (log, _, acks): &Opened) -> Option<()> {
    let wait = |history: &mut History| {
        acks.wait(usize::try_from(history.numbers).unwrap());
        let fine = acks.all().iter().all(|(_, outcome)| outcome.is_ok());
        history.acknowledged = if fine { history.numbers } else { history.acknowledged };
        fine.then_some(())
    };
    let (zero, one, two, alone) = (range(1, 0), range(1, 1), range(1, 2), range(2, 0));
    history.batch(log, zero, 1, 600, true).then_some(())?;
    history.batch(log, zero, 2, 900, true).then_some(())?;
    wait(history)?;
    history.confirm(log, zero, 1);
    history.fence(log, zero, 1, 3).then_some(())?;
    history.batch(log, alone, 5, 5_000, false).then_some(())?;
    history.batch(log, zero, 2, 7_000, true).then_some(())?;
    wait(history)?;
    history.confirm(log, zero, 1);
    log.checkpoint().ok()?;
    history.batch(log, zero, 2, 400, true).then_some(())?;
    history.fence(log, zero, 2, 4).then_some(())?;
    wait(history)?;
    // The last three entries are behind the end; two of them are of writer 2.
    let end = history.ranges[&zero][3].end;
    history.end_range(log, zero, end);
    history.sequences.insert(writer(2), 4);
    history.epochs.remove(&writer(2));
    history.begin(log, one, end.offset.0, 2, true).then_some(())?;
    wait(history)?;
    history.batch(log, one, 2, 800, true).then_some(())?;
    history.batch(log, alone, 5, 9_000, false).then_some(())?;
    wait(history)?;
    history.confirm(log, one, 2);
    log.checkpoint().ok()?;
    history.confirm(log, one, 0);
    history.batch(log, one, 1, 11_000, true).then_some(())?;
    wait(history)?;
    let end = history.end(one);
    history.end_range(log, one, end);
    history.begin(log, two, end.offset.0, 1, true).then_some(())?;
    history.batch(log, two, 2, 14_000, true).then_some(())?;
    wait(history)?;
    history.confirm(log, two, 1);
    log.reclaim().ok()?;
    history.batch(log, two, 1, 500, true).then_some(())?;
    wait(history)?;
    history.confirm(log, two, 1);
    Some(())
}

const STREAMS: [StreamId; 2] = [STREAM, StreamId(2)];

/// The script, with the power going at one operation, if it comes to that.
fn crash(at: Option<u64>, config: &LogConfig) -> (SimFileSystem, History, bool) {
    let fs = SimFileSystem::new();
    at.into_iter().for_each(|at| fs.power_off_at(at));
    let mut history = History::default();
    let Ok(opened) = open(&fs, config) else {
        return (fs, history, false);
    };
    let done = live(&mut history, &opened).is_some();
    drop(opened.0.shutdown());
    (fs, history, done)
}

/// As usual, and with every segment rewritten.
fn configs() -> [LogConfig; 2] {
    let moving = LogConfig {
        compaction_percent: 100,
        ..small_config()
    };
    [small_config(), moving]
}

fn check(history: &History, fs: &SimFileSystem, config: &LogConfig) -> Result<(), String> {
    let (log, recovered, _) = open(fs, config).map_err(|error| format!("refused: {error}"))?;
    if recovered.damage != sbp_log::Damage::default() {
        return Err(format!("called damage: {recovered:?}"));
    }
    if let Some(complaint) = history.complaint(&log, &STREAMS) {
        return Err(complaint);
    }
    drop(log);
    // What it was told and no checkpoint has is forgotten again, and nothing else.
    let (log, ..) =
        open(&fs.power_cut(Survival::Nothing), config).map_err(|error| format!("refused again: {error}"))?;
    match history.complaint(&log, &STREAMS) {
        Some(complaint) => Err(format!("{complaint} (second recovery)")),
        None => Ok(()),
    }
}

#[test]
fn what_counts_after_a_power_cut_is_what_was_confirmed() {
    for config in configs() {
        let (fs, history, done) = crash(None, &config);
        assert!(done, "the script does not even run");
        check(&history, &fs.power_cut(Survival::Nothing), &config).unwrap();
        for at in 1..=fs.operations() {
            let (fs, history, _) = crash(Some(at), &config);
            for (way, disk) in fs.power_cuts(4, at).into_iter().enumerate() {
                if let Err(complaint) = check(&history, &disk, &config) {
                    panic!("power cut at operation {at}, way {way}: {complaint}\n{:#?}", fs.trace());
                }
            }
        }
    }
}

#[test]
fn a_checkpoint_remembers_what_waits_and_where_ranges_end() {
    for config in configs() {
        let (fs, history, done) = crash(None, &config);
        assert!(done);
        let (log, recovered, _) = open(&fs, &config).unwrap();
        assert!(recovered.clean);
        // Nobody has to say anything again.
        for stream in STREAMS {
            assert_eq!(known(&log, stream), history.expected(&log, stream));
        }
        for (key, end) in &history.ended {
            assert_eq!(log.end_position(*key), Some(*end));
            assert_eq!(log.entries(*key, *end, 1 << 20).unwrap(), []);
            let found = recovered.ranges.iter().find(|(found, _)| found == key).unwrap().1;
            assert_eq!(at(found.next_offset.0, found.next_marks), *end);
        }
        // What waited waits still: the last batch of the last range.
        let (two, one) = (range(1, 2), &writer(1));
        let key = WriterKey {
            stream: STREAM,
            writer: *one,
        };
        let before = log.writer(key).unwrap().next_sequence;
        log.confirm(two, log.end_position(two).unwrap());
        assert_eq!(log.writer(key).unwrap().next_sequence, before + 2);
    }
}

/// A log with one range that others have copies of.
fn opened(config: &LogConfig) -> (SimFileSystem, Opened, History) {
    let fs = SimFileSystem::new();
    let opened = open(&fs, config).unwrap();
    (fs, opened, History::default())
}

fn sequence(log: &Log<u64>, by: u64) -> Option<i64> {
    let key = WriterKey {
        stream: STREAM,
        writer: writer(by),
    };
    log.writer(key).map(|state| state.next_sequence)
}

fn waited((_, _, acks): &Opened, history: &History) {
    acks.wait(usize::try_from(history.numbers).unwrap());
    assert!(acks.all().iter().all(|(_, outcome)| outcome.is_ok()));
}

#[test]
fn a_batch_counts_when_it_is_confirmed_and_alone_when_it_is_synced() {
    let (_, opened, mut history) = opened(&small_config());
    let (log, zero) = (&opened.0, range(1, 0));
    for _ in 0..3 {
        assert!(history.batch(log, zero, 1, 10, true));
        assert!(history.batch(log, range(2, 0), 1, 10, false));
    }
    waited(&opened, &history);
    assert_eq!((sequence(log, 1), log.end_position(zero)), (None, Some(at(6, 0))));
    assert_eq!(known(log, StreamId(2)).len(), 1);
    log.confirm(zero, at(3, 0));
    assert_eq!(
        sequence(log, 1),
        Some(2),
        "a batch in the middle of which something ends does not count"
    );
    log.confirm(zero, at(4, 0));
    log.confirm(zero, at(2, 0));
    assert_eq!(sequence(log, 1), Some(6), "one is of the other stream");
    log.confirm(zero, at(8, 0));
    assert!(history.batch(log, zero, 1, 10, true));
    waited(&opened, &history);
    assert_eq!(
        sequence(log, 1),
        history.sequences.get(&writer(1)).copied(),
        "it was said before"
    );
    // Nobody has a copy of a range that the log does not know.
    log.confirm(range(7, 7), at(8, 0));
    assert_eq!(log.end_position(range(7, 7)), None);
}

#[test]
fn all_but_the_last_batches_are_confirmed() {
    const MOST: i64 = 1_024;
    let (fs, opened, mut history) = opened(&small_config());
    let (log, zero) = (&opened.0, range(1, 0));
    for number in 0..MOST + 3 {
        assert!(history.batch(log, zero, 1, 10, true));
        if number % 100 == 0 {
            assert!(history.fence(log, zero, 7, number));
        }
    }
    waited(&opened, &history);
    assert_eq!(sequence(log, 1), Some(6));
    fs.power_off();
    let config = small_config();
    let (log, recovered, _) = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
    assert_eq!(sequence(&log, 1), Some(6));
    assert_eq!(recovered.writers.len(), 2, "the fence before them counts");
    let end = log.end_position(zero).unwrap();
    log.confirm(zero, end);
    assert_eq!(sequence(&log, 1), Some(2 * (MOST + 3)));
}

#[test]
fn the_state_of_the_writers_replaces_what_was_known_when_all_of_it_is_confirmed() {
    let (_, opened, mut history) = opened(&small_config());
    let (log, zero, one) = (&opened.0, range(1, 0), range(1, 1));
    assert!(history.batch(log, zero, 1, 10, true));
    assert!(history.batch(log, zero, 2, 10, true));
    waited(&opened, &history);
    log.confirm(zero, at(4, 0));
    let before = known(log, STREAM);
    assert!(history.begin(log, one, 4, 2, true));
    // More of the older range, of which the state says nothing.
    assert!(history.batch(log, zero, 1, 10, true));
    assert!(history.batch(log, zero, 3, 10, true));
    waited(&opened, &history);
    log.confirm(zero, at(6, 0));
    assert_eq!((sequence(log, 1), sequence(log, 3)), (Some(4), None));
    log.confirm(one, at(4, 1));
    assert_eq!(sequence(log, 1), Some(4), "half of it");
    log.confirm(one, at(4, 2));
    assert_eq!(known(log, STREAM), before);
    log.confirm(zero, at(8, 0));
    assert_eq!(known(log, STREAM), before, "an older range arrives late");
    // Also from a range that nobody else has, and then at once.
    let two = range(1, 2);
    log.release_stream(StreamId(5));
    assert!(history.begin(log, two, 4, 1, false));
    waited(&opened, &history);
    assert_eq!(known(log, STREAM), before);
    assert!(history.batch(log, one, 1, 10, true));
    waited(&opened, &history);
    log.confirm(one, at(9, 0));
    assert_eq!(known(log, STREAM), before);
    history.sequences.insert(writer(1), 2);
    assert!(history.batch(log, two, 1, 10, false));
    waited(&opened, &history);
    assert_eq!(sequence(log, 1), Some(4));
    log.release_stream(STREAM);
    assert_eq!(known(log, STREAM), Writers::new());
}

#[test]
fn a_copy_that_begins_without_the_state_of_the_writers_says_nothing_of_them() {
    for with_checkpoint in [false, true] {
        let config = small_config();
        let (fs, first, mut history) = opened(&config);
        let (log, zero, one, two) = (&first.0, range(1, 0), range(1, 1), range(1, 2));
        assert!(history.batch(log, zero, 1, 10, true));
        waited(&first, &history);
        log.confirm(zero, at(2, 0));
        let before = known(log, STREAM);
        assert_eq!(before.len(), 1);
        // Another server had the next range alone, and knew the writers when it began it.
        for by in [1, 3] {
            assert!(history.batch(log, one, by, 10, true));
        }
        assert!(history.fence(log, one, 1, 7));
        if with_checkpoint {
            waited(&first, &history);
            log.checkpoint().unwrap();
        }
        assert!(history.batch(log, one, 3, 10, true));
        waited(&first, &history);
        let end = history.end(one);
        log.end_range(one, end);
        log.confirm(one, end);
        assert_eq!(known(log, STREAM), before);
        fs.power_off();
        drop(first);
        let again = open(&fs.power_cut(Survival::Nothing), &config).unwrap();
        let log = &again.0;
        log.confirm(zero, at(2, 0));
        log.end_range(one, end);
        assert_eq!(known(log, STREAM), before);
        assert_eq!(log.end_position(one), Some(end), "it is all here");
        // A range that begins with the state says all again.
        assert!(history.begin(log, two, end.offset.0, 1, true));
        assert!(history.batch(log, two, 4, 10, true));
        let written = usize::try_from(history.numbers).unwrap() - 5;
        again.2.wait(written);
        log.confirm(two, history.end(two));
        assert_eq!(known(log, STREAM).len(), 2);
        assert_eq!((sequence(log, 4), sequence(log, 3)), (Some(2), None));
    }
}

#[test]
fn what_is_no_state_of_these_writers_is_refused() {
    let (_, opened, mut history) = opened(&small_config());
    let log = &opened.0;
    assert!(history.batch(log, range(1, 0), 1, 10, false));
    waited(&opened, &history);
    let part = log.writers_of(STREAM).remove(0);
    let send = |key, bytes: Bytes| {
        let head = EntryHead {
            key,
            kind: EntryKind::Writers { part: 0, parts: 1 },
            ..EntryHead::default()
        };
        let entry = LogEntry {
            head,
            prefix: Default::default(),
            chunks: std::iter::once(bytes).collect(),
            context: 9,
        };
        log.append(vec![entry])
    };
    for wrong in [
        part.slice(1..),
        part.slice(..part.len() - 1),
        part.slice(..3),
        Bytes::from_static(b"xxxx"),
    ] {
        assert!(matches!(send(range(1, 1), wrong), Err(LogError::NotWriters { .. })));
    }
    assert!(
        matches!(send(range(2, 1), part.clone()), Err(LogError::NotWriters { .. })),
        "of another stream"
    );
    send(range(1, 1), part).unwrap();
    send(range(3, 1), log.writers_of(StreamId(3)).remove(0)).unwrap();
}

#[test]
fn behind_its_end_a_range_takes_nothing_and_before_it_what_is_missing() {
    for sealed in [false, true] {
        let config = small_config();
        let (fs, opened, mut history) = opened(&config);
        let (log, zero) = (&opened.0, range(1, 0));
        for _ in 0..4 {
            // With large batches the first ones are in a segment with a footer.
            let length = if sealed { 14_000 } else { 100 };
            assert!(history.batch(log, zero, 1, length, true));
            assert!(history.fence(log, zero, 1, 0));
            if !sealed {
                assert!(history.batch(log, zero, 2, 10, true));
            }
        }
        waited(&opened, &history);
        let end = history.ranges[&zero][3].end;
        history.end_range(log, zero, end);
        let complaint = history.complaint(log, &[STREAM]);
        assert_eq!(complaint, None);
        if !sealed {
            assert_eq!(log.stored_bytes(zero) as usize, bytes_before(&history, zero, end));
        }
        let refused = EntryHead {
            key: zero,
            shared: true,
            base_offset: end.offset,
            count: 1,
            ..EntryHead::default()
        };
        let entry = |head| LogEntry {
            head,
            prefix: Default::default(),
            chunks: std::iter::once(Bytes::from_static(b"x")).collect(),
            context: 0,
        };
        assert!(matches!(log.append(vec![entry(refused)]), Err(LogError::Ended { end: told, .. }) if told == end));
        // A copy that has less is completed, and no more.
        let short = range(1, 5);
        let head = EntryHead {
            key: short,
            base_offset: Offset(0),
            ..refused
        };
        log.append(vec![entry(head)]).unwrap();
        log.end_range(short, at(3, 0));
        let more = |offset, count| {
            let head = EntryHead {
                base_offset: Offset(offset),
                count,
                ..head
            };
            log.append(vec![entry(head)])
        };
        assert!(matches!(more(1, 3), Err(LogError::Ended { .. })));
        more(1, 2).unwrap();
        assert!(matches!(more(3, 1), Err(LogError::Ended { .. })));
        opened.2.wait(usize::try_from(history.numbers).unwrap() + 2);
        assert_eq!(log.end_position(short), Some(at(3, 0)));
        log.checkpoint().unwrap();
        fs.power_off();
        let fs = fs.power_cut(Survival::Nothing);
        let (log, ..) = open(&fs, &config).unwrap();
        assert!(matches!(log.append(vec![entry(refused)]), Err(LogError::Ended { .. })));
        assert_eq!(history.complaint(&log, &[STREAM]), None);
        log.reclaim().unwrap();
        assert_eq!(history.complaint(&log, &[STREAM]), None);
    }
}

fn bytes_before(history: &History, key: RangeKey, end: Position) -> usize {
    let sent = history.ranges[&key].iter().filter(|sent| sent.end <= end);
    sent.map(|sent| sent.bytes.len()).sum()
}

#[test]
fn a_log_that_may_have_lost_its_end_says_so_until_it_is_told() {
    let config = LogConfig {
        durability: Durability::None,
        ..small_config()
    };
    let (fs, opened, mut history) = opened(&config);
    let (zero, alone) = (range(1, 0), range(2, 0));
    assert!(opened.0.knows_its_ends(), "there was nothing");
    assert!(history.batch(&opened.0, zero, 1, 10, true));
    assert!(history.batch(&opened.0, alone, 1, 10, false));
    waited(&opened, &history);
    opened.0.shutdown().unwrap();
    let opened = open(&fs, &config).unwrap();
    assert!(opened.0.knows_its_ends());
    assert!(opened.0.end_is_proven(zero));
    drop(opened);
    for shutdown in [true, true, false] {
        let (log, recovered, _) = open(&fs, &config).unwrap();
        // Once the end of a range is not known, shutting down helps nobody to know it.
        assert_eq!(log.knows_its_ends(), recovered.clean);
        assert!(!log.end_is_proven(zero) && log.end_is_proven(alone));
        if shutdown {
            log.shutdown().unwrap();
        }
    }
    let strict = small_config();
    let (log, ..) = open(&fs, &strict).unwrap();
    assert!(!log.knows_its_ends(), "the last groups were not synced");
    log.end_range(zero, at(2, 0));
    assert!(log.end_is_proven(zero));
    log.shutdown().unwrap();
    let (log, ..) = open(&fs, &strict).unwrap();
    assert!(log.knows_its_ends() && log.end_is_proven(zero));
}

#[test]
fn a_window_is_as_long_as_ever() {
    let (_, opened, mut history) = opened(&small_config());
    let (log, zero) = (&opened.0, range(1, 0));
    for _ in 0..WRITER_WINDOW + 5 {
        assert!(history.batch(log, zero, 1, 1, true));
    }
    waited(&opened, &history);
    log.confirm(zero, history.end(zero));
    let states = known(log, STREAM);
    assert_eq!(states.values().next().unwrap().window.len(), WRITER_WINDOW);
}
