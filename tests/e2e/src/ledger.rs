//! What was read, and whether it is what was written.

use std::collections::BTreeMap;

use sbp_client::Ack;
use sbp_types::StreamId;

/// Records of one batch.
pub const RECORDS: u64 = 2;

/// A record by its writer, its batch and its place in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// Who wrote it.
    pub writer: usize,
    /// The number of its batch.
    pub batch: u64,
    /// Its place in there.
    pub place: u64,
}

impl Written {
    /// As it is written.
    #[must_use]
    pub fn value(self) -> String {
        let Self { writer, batch, place } = self;
        format!("{writer}/{batch}/{place}")
    }

    /// What [`value`](Self::value) wrote.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut numbers = std::str::from_utf8(value).ok()?.split('/');
        Some(Self {
            writer: numbers.next()?.parse().ok()?,
            batch: numbers.next()?.parse().ok()?,
            place: numbers.next()?.parse().ok()?,
        })
    }

    /// Its number among all records of its writer.
    fn number(self) -> u64 {
        self.batch * RECORDS + self.place
    }
}

/// Everything that was read of the streams, as it came.
#[derive(Debug, Default)]
pub struct Ledger {
    streams: BTreeMap<StreamId, Vec<(i64, Written)>>,
}

impl Ledger {
    /// Takes in the next record that was read.
    pub fn add(&mut self, stream: StreamId, offset: i64, record: Written) {
        self.streams.entry(stream).or_default().push((offset, record));
    }

    /// Behind the last record that was read.
    #[must_use]
    pub fn end(&self, stream: StreamId) -> i64 {
        let last = self.streams.get(&stream).and_then(|records| records.last());
        last.map_or(0, |(offset, _)| offset + 1)
    }

    /// The records of a stream from this offset on, as they came.
    fn from(&self, stream: StreamId, start: i64) -> impl Iterator<Item = &(i64, Written)> {
        let records = self.streams.get(&stream).into_iter().flatten();
        records.filter(move |(offset, _)| *offset >= start)
    }

    /// What is wrong with what was read of a stream later, from `start` on, when this was read before it: a record is gone, is
    /// another one, or came in front of one that was there.
    #[must_use]
    pub fn judge_later(&self, later: &Self, stream: StreamId, start: i64) -> Option<String> {
        let mut found = later.from(stream, start);
        for (offset, record) in self.from(stream, start) {
            let name = record.value();
            match found.next() {
                Some((at, other)) if at == offset && other == record => {}
                Some((at, other)) => {
                    let other = other.value();
                    return Some(format!(
                        "stream {stream}: {name} was at {offset}, and {other} is at {at} later"
                    ));
                }
                None => return Some(format!("stream {stream}: {name} was at {offset}, and is gone later")),
            }
        }
        None
    }

    /// What is wrong with what was read, when these batches of each writer were written and acknowledged so.
    #[must_use]
    pub fn judge(&self, writers: &[(StreamId, Vec<Ack>)]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (stream, records) in &self.streams {
            let offsets = records.iter().map(|(offset, _)| *offset);
            if let Some((expected, found)) = (0..).zip(offsets).find(|(expected, found)| expected != found) {
                wrong.push(format!("stream {stream}: offset {found} where {expected} was due"));
            }
            let is_foreign = |record: &Written| {
                writers
                    .get(record.writer)
                    .is_none_or(|(writes_to, _)| writes_to != stream)
            };
            let foreign = records.iter().filter(|(_, record)| is_foreign(record));
            wrong.extend(foreign.map(|(offset, record)| {
                let name = record.value();
                format!("stream {stream}: {name} is at {offset}, and nobody wrote it there")
            }));
        }
        for (writer, (stream, acks)) in writers.iter().enumerate() {
            let records = self.streams.get(stream).map_or(&[][..], Vec::as_slice);
            let ours = records.iter().filter(|(_, record)| record.writer == writer);
            judge_writer(writer, acks, ours, &mut wrong);
        }
        wrong
    }
}

fn judge_writer<'a>(
    writer: usize,
    acks: &[Ack],
    records: impl Iterator<Item = &'a (i64, Written)>,
    wrong: &mut Vec<String>,
) {
    let mut next = 0;
    for (offset, record) in records {
        let number = record.number();
        let name = record.value();
        match number.cmp(&next) {
            std::cmp::Ordering::Less => wrong.push(format!("{name} is there twice, again at {offset}")),
            std::cmp::Ordering::Greater => wrong.push(format!("{name} at {offset} comes before others are there")),
            std::cmp::Ordering::Equal => {
                let ack = usize::try_from(record.batch).ok().and_then(|batch| acks.get(batch));
                // None: stored so long ago that the server only knows that it is.
                let told = ack.and_then(|ack| ack.base_offset);
                let place = i64::try_from(record.place).unwrap();
                if told.is_some_and(|base| base.0 + place != *offset) {
                    wrong.push(format!(
                        "{name} is at {offset}, and was acknowledged elsewhere: {ack:?}"
                    ));
                }
            }
        }
        next = next.max(number + 1);
    }
    let written = acks.len() as u64 * RECORDS;
    if next != written {
        wrong.push(format!("writer {writer}: {next} records are there of {written}"));
    }
}
