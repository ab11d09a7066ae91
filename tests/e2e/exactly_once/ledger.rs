//! What was read, and whether it is what was written.

use std::collections::BTreeMap;

use sbp_client::Ack;
use sbp_types::StreamId;

/// Records of one batch.
pub(crate) const RECORDS: u64 = 2;

/// A record by its writer, its batch and its place in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Written {
    pub(crate) writer: usize,
    pub(crate) batch: u64,
    pub(crate) place: u64,
}

impl Written {
    pub(crate) fn value(self) -> String {
        let Self { writer, batch, place } = self;
        format!("{writer}/{batch}/{place}")
    }

    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
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
pub(crate) struct Ledger {
    streams: BTreeMap<StreamId, Vec<(i64, Written)>>,
}

impl Ledger {
    pub(crate) fn add(&mut self, stream: StreamId, offset: i64, record: Written) {
        self.streams.entry(stream).or_default().push((offset, record));
    }

    /// Behind the last record that was read.
    pub(crate) fn end(&self, stream: StreamId) -> i64 {
        let last = self.streams.get(&stream).and_then(|records| records.last());
        last.map_or(0, |(offset, _)| offset + 1)
    }

    /// What is wrong with what was read, when these batches of each writer were written and acknowledged so.
    pub(crate) fn judge(&self, writers: &[(StreamId, Vec<Ack>)]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (stream, records) in &self.streams {
            let offsets = records.iter().map(|(offset, _)| *offset);
            if let Some((expected, found)) = (0..).zip(offsets).find(|(expected, found)| expected != found) {
                wrong.push(format!("stream {stream}: offset {found} where {expected} was due"));
            }
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

#[cfg(test)]
mod tests {
    use sbp_client::Durability;
    use sbp_types::{Offset, TimestampMs};

    use super::*;

    const STREAM: StreamId = StreamId(1);

    fn ack(base: i64) -> Ack {
        Ack {
            stream: STREAM,
            base_offset: Some(Offset(base)).filter(|_| base >= 0),
            records: 2,
            next_offset: Some(Offset(base + 2)),
            append_time: TimestampMs(0),
            durability: Durability::Fsync,
            duplicate: false,
        }
    }

    /// What is wrong when these batches of writer 0 were read.
    fn judged(batches: &[u64], acks: &[i64]) -> Vec<String> {
        let mut ledger = Ledger::default();
        for (offset, &batch) in (0..).step_by(2).zip(batches) {
            for place in 0..RECORDS {
                let record = Written {
                    writer: 0,
                    batch,
                    place,
                };
                assert_eq!(Written::parse(record.value().as_bytes()), Some(record));
                ledger.add(STREAM, offset + i64::try_from(place).unwrap(), record);
            }
        }
        ledger.judge(&[(STREAM, acks.iter().copied().map(ack).collect())])
    }

    #[test]
    fn only_once_and_in_order_is_right() {
        assert_eq!(judged(&[0, 1, 2], &[0, 2, 4]), [""; 0]);
        assert_eq!(
            judged(&[0, 1, 2], &[0, -1, 4]),
            [""; 0],
            "an old duplicate tells no offset"
        );
        for (batches, acks, says) in [
            (&[0, 1, 1][..], &[0, 2][..], "twice"),
            (&[0, 1, 0], &[0, 2], "twice"),
            (&[0, 2, 1], &[0, 4, 2], "before others"),
            (&[0, 1], &[0, 2, 4], "of 6"),
            (&[0, 1], &[0, 4], "elsewhere"),
            (&[], &[0], "of 2"),
        ] {
            let wrong = judged(batches, acks);
            assert!(wrong.iter().any(|wrong| wrong.contains(says)), "{batches:?}: {wrong:?}");
        }
    }

    #[test]
    fn offsets_have_no_holes() {
        let mut ledger = Ledger::default();
        let record = |place| Written {
            writer: 0,
            batch: 0,
            place,
        };
        ledger.add(STREAM, 0, record(0));
        ledger.add(STREAM, 2, record(1));
        assert!(ledger.judge(&[(STREAM, vec![ack(-1)])])[0].contains("offset 2 where 1"));
        assert_eq!(ledger.end(STREAM), 3);
    }
}
